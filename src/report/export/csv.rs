//! A table as CSV (RFC 4180): a line of names first, text in quotes where it must be, nothing for null.

use std::io::{self, Write};

use super::batch::{Batch, Value};
use super::schema::Table;

/// Bytes that are collected before they are written.
const BUFFER: usize = 1 << 18;

/// A file that is being written.
pub(super) struct File<W: Write> {
    out: W,
    buffer: Vec<u8>,
}

impl<W: Write> File<W> {
    /// Begins a file with the names of the columns.
    pub fn begin(out: W, table: &Table) -> io::Result<File<W>> {
        let names: Vec<&str> = table.columns.iter().map(|c| c.name).collect();
        Ok(File { out, buffer: format!("{}\r\n", names.join(",")).into_bytes() })
    }

    /// Adds rows.
    pub fn write(&mut self, batch: &Batch) -> io::Result<()> {
        batch.each(|row| {
            for (i, value) in row.iter().enumerate() {
                if i > 0 {
                    self.buffer.push(b',');
                }
                field(&mut self.buffer, *value)?;
            }
            self.buffer.extend(b"\r\n");
            if self.buffer.len() < BUFFER {
                return Ok(());
            }
            let written = self.out.write_all(&self.buffer);
            self.buffer.clear();
            written
        })
    }

    /// Writes what is left.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.out.flush()
    }
}

fn field(out: &mut Vec<u8>, value: Value<'_>) -> io::Result<()> {
    match value {
        Value::Null => Ok(()),
        Value::Int(n) => write!(out, "{n}"),
        Value::Real(x) => write!(out, "{x}"),
        Value::Flag(is) => write!(out, "{is}"),
        Value::Text(text) => {
            // An empty text is quoted too: without quotes it is null.
            if !text.is_empty() && !text.contains(['"', ',', '\n', '\r']) {
                out.extend(text.as_bytes());
                return Ok(());
            }
            out.push(b'"');
            for byte in text.bytes() {
                out.push(byte);
                if byte == b'"' {
                    out.push(byte);
                }
            }
            out.push(b'"');
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_quoted_where_a_reader_would_take_it_apart() {
        let written = |text: &str| {
            let mut out = Vec::new();
            field(&mut out, Value::Text(text)).expect("memory");
            String::from_utf8(out).expect("text")
        };
        for (text, expected) in
            [("a b", "a b"), ("", "\"\""), ("a,b", "\"a,b\""), ("\"a\"", "\"\"\"a\"\"\""), ("a\r\nb", "\"a\r\nb\"")]
        {
            assert_eq!(written(text), expected);
        }
    }
}
