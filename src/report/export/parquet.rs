//! A table as Parquet, by the writer of columns of the `parquet` crate.
//!
//! Types and encodings are those that every reader has known for years: INT64, DOUBLE, BOOLEAN and UTF-8 strings in
//! data pages of version 1, compressed with Snappy. Whole numbers are written as differences: of the tallies, whose
//! rows are in order, that takes a sixth of the space of dictionaries and half of their time, which goes into hashing.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{ColumnPath, Type as Node, TypePtr};

use super::batch::{Batch, Cells, Values};
use super::schema::{Column, Table, Type};

/// Rows with one text that are written at a time: as many as the writer takes at once.
const SAME_AT_A_TIME: usize = 1024;

/// A file that is being written.
pub(super) struct File<W: Write + Send>(SerializedFileWriter<W>);

impl<W: Write + Send> File<W> {
    /// Begins a file.
    pub fn begin(out: W, table: &Table) -> io::Result<File<W>> {
        let units = table.columns.iter().filter(|c| !c.unit.is_empty());
        let units = units.map(|c| KeyValue::new(format!("unit.{}", c.name), c.unit.to_owned())).collect();
        let mut properties = WriterProperties::builder()
            .set_created_by(format!("numamma version {}", env!("CARGO_PKG_VERSION")))
            .set_compression(Compression::SNAPPY)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_key_value_metadata(Some(units));
        for column in table.columns.iter().filter(|c| c.holds == Type::Int) {
            let path = ColumnPath::from(column.name);
            properties = properties.set_column_dictionary_enabled(path.clone(), false);
            properties = properties.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
        let schema = schema(table).map_err(other)?;
        SerializedFileWriter::new(out, schema, Arc::new(properties.build())).map(File).map_err(other)
    }

    /// Adds rows as a row group.
    pub fn write(&mut self, batch: &Batch) -> io::Result<()> {
        if batch.rows() == 0 {
            return Ok(());
        }
        let mut group = self.0.next_row_group().map_err(other)?;
        for cells in batch.columns() {
            let Some(mut column) = group.next_column().map_err(other)? else { break };
            write_column(&mut column, cells).and_then(|()| column.close()).map_err(other)?;
        }
        group.close().map(drop).map_err(other)
    }

    /// Writes the end, without which there is no table.
    pub fn finish(self) -> io::Result<()> {
        self.0.close().map(drop).map_err(other)
    }
}

fn write_column(column: &mut SerializedColumnWriter<'_>, cells: &Cells) -> Result<(), ParquetError> {
    let levels = (!cells.levels.is_empty()).then_some(&cells.levels[..]);
    match &cells.values {
        Values::Int(values) => column.typed::<Int64Type>().write_batch(values, levels, None)?,
        Values::Real(values) => column.typed::<DoubleType>().write_batch(values, levels, None)?,
        Values::Flag(values) => column.typed::<BoolType>().write_batch(values, levels, None)?,
        Values::Text(texts) if texts.words.len() == 1 && cells.levels.is_empty() => {
            // The name of the profile: no reason to copy it for every row.
            let same = vec![ByteArray::from(texts.words[0].as_str()); texts.of_rows.len().min(SAME_AT_A_TIME)];
            for rows in texts.of_rows.chunks(SAME_AT_A_TIME) {
                column.typed::<ByteArrayType>().write_batch(&same[..rows.len()], None, None)?;
            }
            texts.of_rows.len()
        }
        Values::Text(texts) => {
            let words: Vec<ByteArray> = texts.words.iter().map(|w| ByteArray::from(w.as_str())).collect();
            let values: Vec<ByteArray> = texts.of_rows.iter().map(|&i| words[i as usize].clone()).collect();
            column.typed::<ByteArrayType>().write_batch(&values, levels, None)?
        }
    };
    Ok(())
}

fn schema(table: &Table) -> Result<TypePtr, ParquetError> {
    let node = |column: &Column| {
        let (physical, logical) = match column.holds {
            Type::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Type::Int => (Physical::INT64, None),
            Type::Real => (Physical::DOUBLE, None),
            Type::Flag => (Physical::BOOLEAN, None),
        };
        let repetition = if column.null { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let node = Node::primitive_type_builder(column.name, physical).with_logical_type(logical);
        node.with_repetition(repetition).build().map(Arc::new)
    };
    let fields = table.columns.iter().map(node).collect::<Result<_, _>>()?;
    Node::group_type_builder(table.name).with_fields(fields).build().map(Arc::new)
}

fn other(e: ParquetError) -> io::Error {
    match e {
        ParquetError::External(e) => match e.downcast::<io::Error>() {
            Ok(e) => *e,
            Err(e) => io::Error::other(e),
        },
        e => io::Error::other(e),
    }
}
