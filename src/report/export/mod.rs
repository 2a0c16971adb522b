//! Profiles in formats that other tools read.
//!
//! The tables of [`schema`] are filled profile by profile ([`rows`]) into columns ([`batch`]) and written as Parquet
//! ([`parquet`]), CSV ([`csv`]) or one JSON document ([`json`]). Every row names its profile, rank and process, so that
//! the files of several ranks can be read as one.
//!
//! Viewers of flame graphs get the cost as [`stacks`]: [`folded`], [`speedscope`] and [`firefox`].
//!
//! Text of a profile was written by a stranger: it is escaped as on a terminal before it is put into a column, and
//! quoted by the rules of the format.

pub mod batch;
mod csv;
mod firefox;
mod folded;
mod json;
mod parquet;
mod rows;
pub mod schema;
mod source;
mod speedscope;
mod stacks;

use std::collections::BTreeMap;
use std::io::{self, Write};

use numamma_kernel::terminal;
use serde_json::Value;

use batch::Batch;
pub use source::Source;

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Tables, one Parquet file each, compressed with Snappy
    Parquet,
    /// Tables, one CSV file each (RFC 4180)
    Csv,
    /// All tables in one JSON document
    Json,
    /// Stacks for the Firefox Profiler (profiler.firefox.com), by thread and time
    Firefox,
    /// Stacks for flamegraph.pl and inferno, in microseconds
    Folded,
    /// Stacks for speedscope.app, by thread
    Speedscope,
}

impl Format {
    /// The ending of the files, where each table has one of its own.
    pub fn file_per_table(self) -> Option<&'static str> {
        match self {
            Format::Parquet => Some("parquet"),
            Format::Csv => Some("csv"),
            Format::Json | Format::Firefox | Format::Folded | Format::Speedscope => None,
        }
    }
}

/// Rows that are written at a time. A row group of Parquet should hold 100,000 to 1,000,000 rows (DuckDB's guide to
/// Parquet files); of the widest table these are 32 MB in memory.
const ROWS_AT_A_TIME: usize = 1 << 18;

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

/// One document, which is written when it is whole.
#[derive(Debug)]
pub struct Document {
    /// Name of the first program.
    program: String,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Tables(Vec<Batch>),
    Firefox(firefox::Firefox),
    Folded(BTreeMap<String, u64>),
    Speedscope(speedscope::Speedscope),
}

impl Document {
    /// A document without profiles; none for a format that has a file per table.
    pub fn new(format: Format) -> Option<Document> {
        let form = match format {
            Format::Parquet | Format::Csv => return None,
            Format::Json => Form::Tables(schema::TABLES.iter().map(|table| Batch::of(table)).collect()),
            Format::Firefox => Form::Firefox(firefox::Firefox::default()),
            Format::Folded => Form::Folded(BTreeMap::new()),
            Format::Speedscope => Form::Speedscope(speedscope::Speedscope::default()),
        };
        Some(Document { program: String::new(), form })
    }

    /// Adds a profile.
    pub fn add(&mut self, source: &Source) {
        if self.program.is_empty() {
            let path = &source.view.summary.header.program.path;
            self.program = terminal::line(path.rsplit('/').next().unwrap_or_default()).into_owned();
        }
        match &mut self.form {
            Form::Tables(batches) => batches.iter_mut().for_each(|batch| {
                // Nothing is written, so nothing can fail.
                let _ = rows::add(source, batch, &mut |_| Ok(()));
            }),
            Form::Firefox(document) => document.add(source),
            Form::Folded(lines) => folded::add(source, lines),
            Form::Speedscope(document) => document.add(source),
        }
    }

    /// The document.
    pub fn text(self) -> String {
        let of = |value: Value| format!("{value}\n");
        match self.form {
            Form::Tables(batches) => json::text(&batches),
            Form::Firefox(document) => of(document.value(&self.program)),
            Form::Folded(lines) => folded::text(&lines),
            Form::Speedscope(document) => of(document.value(&self.program)),
        }
    }
}
