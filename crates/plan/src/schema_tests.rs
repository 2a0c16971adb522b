//! The JSON schema of the policy file, for editors: generated from the types, shipped as policies/policy.schema.json.
//! `NUMAMMA_BLESS=1 cargo test -p numamma-plan schema` regenerates the file.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::policy::Policy;

fn policies() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies")
}

fn generated() -> Value {
    // The schema describes the files that the parser accepts, which include those that `advise` writes.
    let mut schema = schemars::schema_for!(Policy).to_value();
    plain_words(&mut schema);
    schema["title"] = "NumaMMA placement policy, version 1".into();
    schema
}

/// Removes the Rust links from the docstrings, which an editor would show as text.
fn plain_words(value: &mut Value) {
    match value {
        Value::Object(inner) => {
            if let Some(Value::String(text)) = inner.get_mut("description") {
                *text = text.replace("[`", "`").replace("`]", "`").replace('\n', " ");
            }
            inner.values_mut().for_each(plain_words);
        }
        Value::Array(inner) => inner.iter_mut().for_each(plain_words),
        _ => {}
    }
}

#[test]
fn schema_is_up_to_date() {
    let path = policies().join("policy.schema.json");
    let schema = generated();
    if std::env::var_os("NUMAMMA_BLESS").is_some() {
        std::fs::write(&path, serde_json::to_string_pretty(&schema).unwrap() + "\n").unwrap();
    }
    // As values: another crate in the same build may ask serde_json for another order of fields.
    let shipped: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap_or_default()).unwrap_or_default();
    assert!(shipped == schema, "{} is out of date: NUMAMMA_BLESS=1 cargo test -p numamma-plan schema", path.display());
}

/// Checks `value` against the keywords that the generator uses; an unknown keyword fails the test.
fn allows(root: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let Some(schema) = schema.as_object() else { return Ok(()) };
    let fault = |why: &str| Err(format!("{value}: {why}"));
    for (word, rule) in schema {
        let all = || rule.as_array().into_iter().flatten();
        let count = || all().filter(|s| allows(root, s, value).is_ok()).count();
        match word.as_str() {
            "$ref" => {
                let pointer = rule.as_str().unwrap().trim_start_matches('#');
                allows(root, root.pointer(pointer).ok_or("a reference to nothing")?, value)?;
            }
            "anyOf" if count() == 0 => return fault("none of the alternatives"),
            "oneOf" if count() != 1 => return fault("not one of the words"),
            "enum" if !all().any(|v| v == value) => return fault("not one of the words"),
            "const" if rule != value => return fault("another word"),
            "type" => {
                let fits = |name: &Value| match name.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "integer" => value.is_i64() || value.is_u64(),
                    "number" => value.is_number(),
                    "boolean" => value.is_boolean(),
                    "null" => value.is_null(),
                    other => panic!("type {other}"),
                };
                if !(rule.is_string() && fits(rule) || all().any(fits)) {
                    return fault("another type");
                }
            }
            "minimum" if value.as_f64().is_some_and(|v| v < rule.as_f64().unwrap()) => return fault("too small"),
            "maximum" if value.as_f64().is_some_and(|v| v > rule.as_f64().unwrap()) => return fault("too large"),
            "required" if value.is_object() && all().any(|k| value.get(k.as_str().unwrap()).is_none()) => {
                return fault("a key is missing");
            }
            "items" => value.as_array().into_iter().flatten().try_for_each(|v| allows(root, rule, v))?,
            "properties" => {
                for (key, inner) in rule.as_object().unwrap() {
                    value.get(key).map_or(Ok(()), |v| allows(root, inner, v))?;
                }
            }
            "additionalProperties" => {
                let known = |key: &String| schema.get("properties").and_then(|p| p.get(key)).is_some();
                for (key, inner) in value.as_object().into_iter().flatten().filter(|(key, _)| !known(key)) {
                    if rule == &Value::Bool(false) {
                        return fault(&format!("`{key}` is not known"));
                    }
                    allows(root, rule, inner)?;
                }
            }
            // Not checked: descriptions, and keywords that the types above imply.
            "anyOf" | "oneOf" | "enum" | "const" | "minimum" | "maximum" | "required" | "description" | "title"
            | "default" | "$defs" | "$schema" | "format" | "pattern" => {}
            other => panic!("the schema uses `{other}`, which this test does not know"),
        }
    }
    Ok(())
}

#[test]
fn schema_allows_the_shipped_policies_and_no_misspelling() {
    let schema = generated();
    let check = |text: &str| allows(&schema, &schema, &toml::from_str::<Value>(text).unwrap());
    let mut count = 0;
    for path in std::fs::read_dir(policies()).unwrap().map(|f| f.unwrap().path()) {
        if path.extension().is_some_and(|e| e == "toml") {
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(check(&text), Ok(()), "{}", path.display());
            count += 1;
        }
    }
    assert!(count >= 3);
    let rule = |keys: &str| format!("version = 1\n[[object]]\nglobal = \"a\"\n{keys}");
    assert_eq!(check(&rule("place = { policy = \"block\", block = \"20MiB\" }\nsize = 4096")), Ok(()));
    for bad in [
        "place = { policy = \"blok\" }",
        "place = { policy = \"block\" }\nsise = 1",
        "place = { policy = \"block\", block = -1 }",
        "",
    ] {
        assert!(check(&rule(bad)).is_err(), "{bad}");
    }
}

/// The fuzzer must use every word of the schema.
#[test]
fn schema_words_are_known_to_the_fuzzer() {
    fn words(value: &Value, found: &mut Vec<String>) {
        if let Some(object) = value.get("properties").and_then(Value::as_object) {
            found.extend(object.keys().cloned());
        }
        match value {
            Value::Object(inner) => inner.values().for_each(|v| words(v, found)),
            Value::Array(inner) => inner.iter().for_each(|v| words(v, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    words(&generated(), &mut found);
    let known = crate::fuzz_tests::generate::known();
    let unknown: Vec<&String> = found.iter().filter(|w| !known.contains(&w.as_str())).collect();
    assert!(found.len() > 30 && unknown.is_empty(), "tests/hostile/fuzz/generate.rs does not know {unknown:?}");
}
