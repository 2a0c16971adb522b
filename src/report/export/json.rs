//! All tables as one JSON document: an object of lists, a row an object. Its schema is docs/schemas/export.schema.json.

use std::fmt::Write;

use super::batch::{Batch, Value};
use super::schema::VERSION;

/// The document.
pub(super) fn text(tables: &[Batch]) -> String {
    let mut out = format!("{{\"format\":\"numamma-export\",\"version\":{VERSION}");
    for batch in tables {
        let _ = write!(out, ",\n\"{}\":[", batch.table().name);
        let mut before = "\n";
        let _ = batch.each(|row| {
            out += before;
            before = ",\n";
            let mut mark = '{';
            for (column, value) in batch.table().columns.iter().zip(row) {
                write!(out, "{mark}\"{}\":", column.name)?;
                mark = ',';
                match *value {
                    Value::Int(n) => write!(out, "{n}")?,
                    Value::Real(x) if x.is_finite() => write!(out, "{x}")?,
                    // A number that is not finite has no form in JSON.
                    Value::Null | Value::Real(_) => out += "null",
                    Value::Flag(is) => write!(out, "{is}")?,
                    Value::Text(text) => write!(out, "{}", serde_json::Value::from(text))?,
                }
            }
            out.push('}');
            Ok::<(), std::fmt::Error>(())
        });
        out.push(']');
    }
    out + "}\n"
}
