//! JSON schemas of the types whose `Deserialize` is written by hand.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::borrow::Cow;

use super::{Block, Size};

/// What [`Size::parse`] reads.
const SIZE: &str = r"^\s*[0-9]+\s*(B|K|KiB|M|MiB|G|GiB)?\s*$";

impl JsonSchema for Size {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number of bytes, or a string with a binary unit such as \"640KiB\" or \"20MiB\".",
            "anyOf": [{ "type": "integer", "minimum": 0 }, { "type": "string", "pattern": SIZE }]
        })
    }
}

impl JsonSchema for Block {
    fn schema_name() -> Cow<'static, str> {
        "Block".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A block size, or \"auto\": computed at start-up from pattern, node count and page size.",
            "anyOf": [generator.subschema_for::<Size>(), { "const": "auto" }]
        })
    }
}
