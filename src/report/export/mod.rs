//! Profiles in formats that other tools read.
//!
//! The tables of [`schema`] are filled profile by profile ([`rows`]) into columns ([`batch`]) and written as Parquet
//! ([`parquet`]), CSV ([`csv`]) or one JSON document ([`json`]). Every row names its profile, rank and process, so that the
//! files of several ranks can be read as one.
//!
//! Text of a profile was written by a stranger: it is escaped as on a terminal before it is put into a column, and quoted
//! by the rules of the format.

pub mod batch;
mod csv;
mod json;
mod parquet;
mod rows;
pub mod schema;

use std::io::{self, Write};

use super::View;
use batch::Batch;

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Tables, one Parquet file each, compressed with Snappy
    Parquet,
    /// Tables, one CSV file each (RFC 4180)
    Csv,
    /// All tables in one JSON document
    Json,
}

impl Format {
    /// The ending of the files, where each table has one of its own.
    pub fn file_per_table(self) -> Option<&'static str> {
        match self {
            Format::Parquet => Some("parquet"),
            Format::Csv => Some("csv"),
            Format::Json => None,
        }
    }
}

/// Rows that are written at a time. A row group of Parquet should hold 100,000 to 1,000,000 rows (DuckDB's guide to
/// Parquet files); of the widest table these are 32 MB in memory.
const ROWS_AT_A_TIME: usize = 1 << 18;

/// A profile to export.
#[derive(Debug)]
pub struct Source<'a> {
    /// Its file as it was named.
    pub file: String,
    /// The profile with its verdicts.
    pub view: &'a View<'a>,
}

/// Where one table goes.
enum Sink<W: Write + Send> {
    Parquet(Box<parquet::File<W>>),
    Csv(csv::File<W>),
}

/// Tables that are written to a file each.
pub struct Files<W: Write + Send>(Vec<(Batch, Sink<W>)>);

impl<W: Write + Send> Files<W> {
    /// Begins the files; `open` is asked for that of each table.
    ///
    /// # Errors
    /// Those of `open` and of writing.
    pub fn begin(format: Format, mut open: impl FnMut(&str) -> io::Result<W>) -> io::Result<Files<W>> {
        let begun = schema::TABLES.iter().map(|table| {
            let out = open(table.name)?;
            let sink = match format {
                Format::Parquet => Sink::Parquet(Box::new(parquet::File::begin(out, table)?)),
                _ => Sink::Csv(csv::File::begin(out, table)?),
            };
            Ok((Batch::of(table), sink))
        });
        begun.collect::<io::Result<_>>().map(Files)
    }

    /// Adds the rows of a profile.
    ///
    /// # Errors
    /// Those of writing.
    pub fn add(&mut self, source: &Source) -> io::Result<()> {
        for (batch, sink) in &mut self.0 {
            rows::add(source, batch, &mut |batch| {
                if batch.rows() >= ROWS_AT_A_TIME { sink.write(batch) } else { Ok(()) }
            })?;
        }
        Ok(())
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(self) -> io::Result<()> {
        self.0.into_iter().try_for_each(|(mut batch, mut sink)| {
            sink.write(&mut batch)?;
            match sink {
                Sink::Parquet(file) => file.finish(),
                Sink::Csv(file) => file.finish(),
            }
        })
    }
}

impl<W: Write + Send> Sink<W> {
    /// Writes the rows, of which none is left then.
    fn write(&mut self, batch: &mut Batch) -> io::Result<()> {
        match self {
            Sink::Parquet(file) => file.write(batch)?,
            Sink::Csv(file) => file.write(batch)?,
        }
        batch.clear();
        Ok(())
    }
}

/// All tables as one document, which is written when it is whole: its tables stand one after the other.
pub struct Document(Vec<Batch>);

impl Default for Document {
    fn default() -> Document {
        Document(schema::TABLES.iter().map(|table| Batch::of(table)).collect())
    }
}

impl Document {
    /// Adds the rows of a profile.
    pub fn add(&mut self, source: &Source) {
        for batch in &mut self.0 {
            // Nothing is written, so nothing can fail.
            let _ = rows::add(source, batch, &mut |_| Ok(()));
        }
    }

    /// The document.
    pub fn text(&self) -> String {
        json::text(&self.0)
    }
}
