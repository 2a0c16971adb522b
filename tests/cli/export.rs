//! `numamma export`: its tables hold what the report says, in the words of docs/export.md, for readers that others wrote.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use numamma::profile::records::*;
use numamma::report::export::schema::{self, Type};
use serde_json::{Value, json};

use super::synthetic;
use crate::common::{Ran, Scratch, needs, numamma, plain, root, run, source};

const DOCUMENT: &str = "docs/export.md";
const SCHEMA: &str = "docs/schemas/export.schema.json";

fn export(dir: &Path, args: &[&str]) -> Ran {
    run(numamma(&[&["export", "--format"], args].concat()).current_dir(dir))
}

/// The profile of [`synthetic::lu`] as that of an MPI rank.
fn of_rank(dir: &Path, rank: u32) -> String {
    let name = format!("lu.{rank}.prof");
    let mut records = synthetic::lu();
    if let Record::Header(header) = &mut records[0] {
        header.pid += rank;
    }
    records.insert(1, Record::Rank(rank));
    records.push(waits(&records));
    write(&dir.join(&name), &records);
    name
}

fn write(path: &Path, records: &[Record]) {
    let mut writer = numamma::profile::file::Writer::create(path).expect("the scratch directory is writable");
    records.iter().for_each(|r| writer.append(r).expect("the disk has room"));
}

fn document(dir: &Path, profiles: &[&str]) -> Value {
    export(dir, &[&["json"], profiles].concat()).success().json()
}

fn rows<'a>(document: &'a Value, table: &str) -> &'a [Value] {
    document[table].as_array().unwrap_or_else(|| panic!("no {table}"))
}

fn sum(rows: &[Value], column: &str) -> u64 {
    rows.iter().map(|row| row[column].as_u64().expect("a number")).sum()
}

/// The records of a CSV file, by the rules of RFC 4180; unquoted and empty is none.
fn csv(path: &Path) -> Vec<Vec<Option<String>>> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut records = vec![Vec::new()];
    let (mut field, mut is_quoted, mut chars) = (None, false, text.chars().peekable());
    while let Some(c) = chars.next() {
        match c {
            '"' if is_quoted && chars.next_if_eq(&'"').is_some() => field.get_or_insert_with(String::new).push('"'),
            '"' => {
                is_quoted = !is_quoted;
                field.get_or_insert_with(String::new);
            }
            ',' if !is_quoted => records.last_mut().expect("one").push(field.take()),
            '\r' if !is_quoted => {
                assert_eq!(chars.next(), Some('\n'), "a line ends in CR LF");
                records.last_mut().expect("one").push(field.take());
                records.push(Vec::new());
            }
            c => field.get_or_insert_with(String::new).push(c),
        }
    }
    assert_eq!(records.pop(), Some(Vec::new()), "the last line ends");
    records
}

/// What a value violates of a schema, by the words that ours use.
fn violations(schema: &Value, value: &Value, at: &str, out: &mut Vec<String>) {
    let is = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("the type {other} of the schema"),
    };
    for (word, rule) in schema.as_object().expect("a schema") {
        let kept = match word.as_str() {
            "type" => rule
                .as_str()
                .map_or_else(|| rule.as_array().expect("types").iter().filter_map(Value::as_str).any(is), is),
            "const" => value == rule,
            "required" => {
                rule.as_array().expect("names").iter().all(|n| value.get(n.as_str().expect("a name")).is_some())
            }
            "properties" => {
                for (name, rule) in rule.as_object().expect("properties") {
                    if let Some(value) = value.get(name) {
                        violations(rule, value, &format!("{at}.{name}"), out);
                    }
                }
                value.as_object().is_some_and(|o| o.keys().all(|name| rule.get(name).is_some()))
            }
            "items" => {
                let items = value.as_array().map_or(&[][..], Vec::as_slice);
                items.iter().enumerate().for_each(|(i, item)| violations(rule, item, &format!("{at}[{i}]"), out));
                true
            }
            "$schema" | "title" | "description" => true,
            other => panic!("the word {other} of the schema"),
        };
        if !kept {
            out.push(format!("{at}: {word} {rule}"));
        }
    }
}

#[test]
fn the_tables_hold_what_the_report_says() {
    let dir = Scratch::new("export-report");
    let names = [of_rank(&dir, 0), of_rank(&dir, 1)];
    let own =
        names.each_ref().map(|name| run(numamma(&["report", "--json", name]).current_dir(&*dir)).success().json());
    let both = document(&dir, &[&names[0], &names[1]]);
    for (rank, (name, report)) in (0_u64..).zip(names.iter().zip(&own)) {
        let of = |table: &str| -> Vec<Value> {
            rows(&both, table).iter().filter(|row| row["profile"] == name.as_str()).cloned().collect()
        };
        let (objects, tallies, threads) = (of("objects"), of("tallies"), of("threads"));
        assert_eq!((of("profiles").len(), &of("profiles")[0]["rank"]), (1, &json!(rank)));
        let listed = report["objects"].as_array().expect("a list");
        assert_eq!((objects.len(), threads.len()), (listed.len(), report["threads"].as_array().expect("a list").len()));
        check_waits(&threads, &report["threads"]);
        for (row, object) in objects.iter().zip(listed) {
            for (column, field) in [("object", "id"), ("kind", "kind"), ("name", "name"), ("reads", "reads")] {
                assert_eq!(row[column], object[field], "{row:#}");
            }
            assert_eq!((&row["pattern"], &row["pid"]), (&object["pattern"]["kind"], &json!(4000 + rank)));
            let cells: Vec<Value> = tallies.iter().filter(|t| t["object"] == row["object"]).cloned().collect();
            for column in ["reads", "writes", "remote", "placed", "cost_ns"] {
                assert_eq!(sum(&cells, column), row[column].as_u64().expect("a number"), "{column} of {row:#}");
            }
            let verdicts = of("verdicts").into_iter().filter(|v| v["object"] == row["object"] && v["scope"] == "run");
            assert_eq!(verdicts.count(), 1);
        }
        let with_site = listed.iter().filter(|o| !o["callsite"].as_array().expect("a list").is_empty()).count();
        let allocating: std::collections::BTreeSet<u64> =
            of("allocations").iter().filter_map(|a| a["object"].as_u64()).collect();
        assert_eq!((allocating.len(), with_site), (with_site, 2));
    }
}

/// Of all threads but the last, whose waits are not known.
fn check_waits(rows: &[Value], report: &Value) {
    let listed = report.as_array().expect("a list");
    for (row, thread) in rows.iter().zip(listed) {
        for column in ["waits", "bound"] {
            assert_eq!(row[column], thread[column], "{column}: {row:#}");
        }
        assert_eq!(row["waits_for_threads"].as_f64(), thread["waits_for_threads"].as_f64(), "{row:#}");
        let seconds = row["blocked_ns"].as_u64().map(|ns| ns as f64 / 1e9);
        assert_eq!(seconds, thread["blocked_s"].as_f64(), "{row:#}");
    }
    let (last, others) = rows.split_last().expect("threads");
    assert!(["waits", "blocked_ns", "bound"].iter().all(|column| last[column].is_null()), "{last:#}");
    assert!(others.iter().all(|row| row["waits"].as_u64() >= Some(100)), "{others:#?}");
    assert!(others.iter().all(|row| row["waits_seen_ns"].as_u64() > row["blocked_ns"].as_u64()), "{others:#?}");
}

/// Waits of the threads of [`synthetic::lu`] but for the last.
fn waits(records: &[Record]) -> Record {
    let list = |record: &Record| if let Record::Threads(list) = record { Some(list.clone()) } else { None };
    let threads: Vec<Thread> = records.iter().filter_map(list).flatten().collect();
    let of = |t: &Thread| {
        let n = u64::from(t.id);
        let (ran_ns, blocked_ns) = (7_000_000_000, 1_000_000 * n);
        let (all, for_threads, otherwise) = (100 + n, 50, 20);
        let waits =
            Waits { all, for_threads, otherwise, ran_ns, blocked_ns, seen_ns: 9_000_000_000, bound: n % 2 == 1 };
        ThreadWaits { thread: t.id, waits }
    };
    Record::ThreadWaits(threads.split_last().expect("threads").1.iter().map(of).collect())
}

#[test]
fn documents_and_tables_agree_with_the_schema() {
    let dir = Scratch::new("export-schema");
    let names = [of_rank(&dir, 0), of_rank(&dir, 1)];
    let text = serde_json::to_string_pretty(&schema::json_schema()).expect("a schema") + "\n";
    let shipped = root().join(SCHEMA);
    if std::env::var_os("NUMAMMA_BLESS").is_some() {
        std::fs::create_dir_all(shipped.parent().expect("a folder")).expect("the tree is writable");
        std::fs::write(&shipped, &text).expect("the tree is writable");
    }
    assert_eq!(std::fs::read_to_string(&shipped).unwrap_or_default(), text, "NUMAMMA_BLESS=1 writes {SCHEMA}");
    let all = document(&dir, &[&names[0], &names[1]]);
    let mut wrong = Vec::new();
    violations(&schema::json_schema(), &all, "", &mut wrong);
    assert_eq!(wrong, [""; 0]);
    violations(&schema::json_schema(), &json!({ "format": 1 }), "", &mut wrong);
    assert_eq!(wrong.len(), 2, "the check finds what is wrong: {wrong:?}");
    export(&dir, &["csv", "-o", "csv", &names[0], &names[1]]).success();
    for table in schema::TABLES {
        let records = csv(&dir.join(format!("csv/{}.csv", table.name)));
        let rows = rows(&all, table.name);
        let columns: Vec<&str> = table.columns.iter().map(|c| c.name).collect();
        assert_eq!(records[0].iter().flatten().collect::<Vec<_>>(), columns);
        assert_eq!(records.len() - 1, rows.len(), "{}", table.name);
        for (record, row) in records[1..].iter().zip(rows) {
            for (column, field) in table.columns.iter().zip(record) {
                let expected = match &row[column.name] {
                    Value::Null => None,
                    Value::String(text) => Some(text.clone()),
                    other => Some(other.to_string()),
                };
                // serde_json reads the last digit of a number in its own way.
                let number = |text: &Option<String>| text.as_ref().and_then(|t| t.parse::<f64>().ok());
                let is_near = |a: f64, b: f64| (a - b).abs() <= 1e-12 * a.abs().max(1.0);
                let near = number(field).zip(number(&expected)).is_some_and(|(a, b)| is_near(a, b));
                assert!(*field == expected || column.holds == Type::Real && near, "{field:?} {expected:?}");
            }
        }
    }
}

#[test]
fn every_column_is_documented_with_its_unit() {
    let expected: String = schema::TABLES
        .iter()
        .map(|table| {
            let row = |c: &schema::Column| {
                let kind = match c.holds {
                    Type::Text => "text",
                    Type::Int => "integer",
                    Type::Real => "number",
                    Type::Flag => "flag",
                };
                let null = if c.null { "?" } else { "" };
                format!("| `{}` | {kind}{null} | {} | {} |\n", c.name, c.unit, c.meaning)
            };
            let rows: String = table.columns.iter().map(row).collect();
            let head = "| column | type | unit | meaning |\n| --- | --- | --- | --- |";
            format!("### {}\n\nA row is {}.\n\n{head}\n{rows}\n", table.name, table.row)
        })
        .collect();
    let path = root().join(DOCUMENT);
    let text = std::fs::read_to_string(&path).expect("the document");
    if std::env::var_os("NUMAMMA_BLESS").is_some() {
        let begin = text.find("### profiles").unwrap_or(text.len());
        let end = text.find("## Stacks").unwrap_or(text.len());
        std::fs::write(&path, format!("{}{expected}{}", &text[..begin], &text[end..])).expect("the tree is writable");
        return;
    }
    assert!(text.contains(&expected), "NUMAMMA_BLESS=1 writes the tables of {DOCUMENT}:\n{expected}");
}

#[test]
fn files_are_replaced_as_a_whole_and_what_cannot_be_read_is_named() {
    let dir = Scratch::new("export-files");
    let names = [of_rank(&dir, 0), of_rank(&dir, 1)];
    dir.write("broken.prof", "no profile");
    let failed = export(&dir, &["csv", "-o", "out", "broken.prof"]).ended(2);
    assert!(failed.stderr.contains("broken.prof") && !dir.join("out").exists(), "{}", failed.stderr);
    export(&dir, &["csv", "-o", "out", &names[0], &names[1]]).success();
    let before = csv(&dir.join("out/objects.csv")).len();
    let partly = export(&dir, &["csv", "-o", "out", &names[0], "broken.prof"]).ended(1);
    assert!(partly.stderr.contains("broken.prof"), "{}", partly.stderr);
    assert_eq!(csv(&dir.join("out/objects.csv")).len() - 1, (before - 1) / 2, "the new one has one profile");
    let files = std::fs::read_dir(dir.join("out")).expect("a directory").count();
    assert_eq!(files, schema::TABLES.len(), "nothing temporary is left");
    let taken = export(&dir, &["parquet", "-o", &names[0], &names[1]]).ended(2);
    assert!(taken.stderr.contains("no directory"), "{}", taken.stderr);
    export(&dir, &["json", "-o", "all.json", &names[0]]).success();
    let written: Value = serde_json::from_slice(&std::fs::read(dir.join("all.json")).expect("it was written")).unwrap();
    assert_eq!(written["format"], "numamma-export");
}

/// Names that control a terminal, end a field or a line, or look like a formula.
const HOSTILE: &str = "=a\",\"b\r\n\x1b[2J;c\u{202e},\t'd";

fn hostile(dir: &Path) -> String {
    let mut records = synthetic::lu();
    for record in &mut records {
        match record {
            Record::Objects(objects) => {
                objects.iter_mut().filter(|o| o.site.is_none()).for_each(|o| o.name = HOSTILE.into())
            }
            Record::Threads(threads) => threads.iter_mut().for_each(|t| t.name = HOSTILE.into()),
            Record::Header(header) => header.host = HOSTILE.into(),
            _ => {}
        }
    }
    write(&dir.join("hostile.prof"), &records);
    "hostile.prof".into()
}

#[test]
fn hostile_names_stay_in_their_field() {
    let dir = Scratch::new("export-hostile");
    let name = hostile(&dir);
    export(&dir, &["csv", "-o", "csv", &name]).success();
    let shown = "=a\",\"b\\r\\n\\u{1b}[2J;c\\u{202e},\\t'd";
    let threads = csv(&dir.join("csv/threads.csv"));
    let column = threads[0].iter().position(|c| c.as_deref() == Some("name")).expect("the column");
    assert!(threads.iter().all(|record| record.len() == threads[0].len()));
    assert!(threads[1..].iter().all(|record| record[column].as_deref() == Some(shown)), "{threads:#?}");
    for table in schema::TABLES {
        let text = std::fs::read_to_string(dir.join(format!("csv/{}.csv", table.name))).expect("the table");
        let lines = text.split("\r\n").all(|line| line.chars().all(numamma_kernel::terminal::is_shown));
        assert!(lines, "{}", table.name);
    }
    let json = document(&dir, &[&name]);
    assert!(rows(&json, "threads").iter().all(|t| t["name"] == shown));
}

/// CPU time at all accesses of the profiles, ns.
fn cost(dir: &Path, profiles: &[&str]) -> u64 {
    sum(rows(&document(dir, profiles), "profiles"), "cost_ns")
}

#[test]
fn folded_stacks_lead_from_the_allocation_over_the_object_to_its_code() {
    let dir = Scratch::new("export-folded");
    let names = [of_rank(&dir, 0), of_rank(&dir, 1), hostile(&dir)];
    let all = names.each_ref().map(String::as_str);
    let folded = export(&dir, &[&["folded"], &all[..]].concat()).success().stdout;
    let lines: Vec<(&str, u64)> = folded
        .lines()
        .map(|l| l.rsplit_once(' ').map(|(s, n)| (s, n.parse().expect("a number"))).expect("a weight"))
        .collect();
    let (us, expected) = (lines.iter().map(|l| l.1).sum::<u64>(), cost(&dir, &all) / 1000);
    assert!(us.abs_diff(expected) <= lines.len() as u64, "{us} {expected}");
    let from_ssor = "rank 0;main;ssor(int);";
    assert!(
        lines.iter().any(|(stack, _)| stack.starts_with(from_ssor) && stack.contains(";[ssor ssor.cpp:88];")),
        "{folded}"
    );
    assert!(lines.iter().any(|(stack, _)| stack.starts_with("rank 1;[grid::cell];lu.C.x+0x2010")), "{folded}");
    let hostile = "[=a\",\"b\\r\\n\\u{1b}[2J:c\\u{202e},\\t'd";
    assert!(lines.iter().any(|(stack, _)| stack.starts_with(hostile)), "{folded}");
}

fn indices(value: &Value) -> Vec<Option<usize>> {
    value.as_array().expect("a list").iter().map(|i| i.as_u64().map(|i| i as usize)).collect()
}

#[test]
fn speedscope_gets_a_profile_for_each_thread() {
    let dir = Scratch::new("export-speedscope");
    let names = [of_rank(&dir, 0), hostile(&dir)];
    let all = names.each_ref().map(String::as_str);
    export(&dir, &[&["speedscope", "-o", "out.json"], &all[..]].concat()).success();
    let document: Value = serde_json::from_slice(&std::fs::read(dir.join("out.json")).expect("written")).expect("JSON");
    let (frames, profiles) = (rows(&document["shared"], "frames"), rows(&document, "profiles"));
    assert_eq!(profiles.len(), 16, "8 threads each");
    let mut total = 0;
    for profile in profiles {
        let (samples, weights) = (rows(profile, "samples"), rows(profile, "weights"));
        let sum: u64 = weights.iter().map(|w| w.as_u64().expect("a weight")).sum();
        assert_eq!((samples.len(), profile["endValue"].as_u64()), (weights.len(), Some(sum)));
        assert!(samples.iter().flat_map(indices).all(|i| i.is_some_and(|i| i < frames.len())));
        total += sum;
    }
    assert_eq!(total, cost(&dir, &all));
    let ssor = frames.iter().find(|f| f["name"] == "ssor(int)").expect("the function");
    assert_eq!((&ssor["file"], &ssor["line"]), (&json!("/src/lu/ssor.cpp"), &json!(88)));
}

#[test]
fn the_firefox_profiler_gets_tables_that_fit_each_other() {
    let dir = Scratch::new("export-firefox");
    let names = [of_rank(&dir, 0), hostile(&dir)];
    let all = names.each_ref().map(String::as_str);
    let profile = export(&dir, &[&["firefox"], &all[..]].concat()).success().json();
    let categories = rows(&profile["meta"], "categories").len();
    let mut total = 0.0;
    assert_eq!(rows(&profile, "threads").len(), 16);
    for thread in rows(&profile, "threads") {
        let of = |table: &str, column: &str| indices(&thread[table][column]);
        let length = |table: &str| thread[table]["length"].as_u64().expect("a length") as usize;
        for table in ["samples", "stackTable", "frameTable", "funcTable", "markers", "resourceTable", "nativeSymbols"] {
            let columns = thread[table].as_object().expect("a table").values().filter_map(Value::as_array);
            assert!(columns.clone().count() > 2 && columns.clone().all(|c| c.len() == length(table)), "{table}");
        }
        let within = |list: Vec<Option<usize>>, end: usize| list.into_iter().all(|i| i.is_some_and(|i| i < end));
        assert!(within(of("samples", "stack"), length("stackTable")) && length("samples") > 0);
        assert!(within(of("stackTable", "frame"), length("frameTable")));
        assert!(within(of("frameTable", "func"), length("funcTable")));
        assert!(within(of("funcTable", "name"), rows(thread, "stringArray").len()));
        assert!(within(of("stackTable", "category"), categories));
        // The profiler reads the stacks in one pass.
        assert!(of("stackTable", "prefix").iter().enumerate().all(|(i, below)| below.is_none_or(|below| below < i)));
        let times: Vec<f64> =
            thread["samples"]["time"].as_array().expect("times").iter().filter_map(Value::as_f64).collect();
        assert!(times.is_sorted() && times.iter().all(|t| (0.0..=20_000.0).contains(t)));
        total += thread["samples"]["weight"].as_array().expect("weights").iter().filter_map(Value::as_f64).sum::<f64>();
    }
    assert!((total - cost(&dir, &all) as f64 / 1e6).abs() < 1e-3, "{total}");
}

/// A Python with DuckDB and Polars from PyPI, kept beside the other files of the tests; none where they cannot be had.
fn python() -> Option<PathBuf> {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("export-python");
    let python = place.join("bin/python");
    let can_read =
        || run(plain("sh").args(["-c", "exec \"$0\" -c 'import duckdb, polars'"]).arg(&python)).status.success();
    if can_read() {
        return Some(python);
    }
    let made = run(plain("python3").args(["-m", "venv"]).arg(&place)).status.success();
    let install = ["-m", "pip", "install", "--quiet", "--retries", "1", "--timeout", "20", "duckdb", "polars"];
    let got = made && run(plain(&python).args(install)).status.success() && can_read();
    if !got {
        crate::common::skipped(
            "the tables in other readers need DuckDB and Polars from PyPI (python3-venv and a network)",
        );
    }
    got.then_some(python)
}

#[test]
fn duckdb_and_polars_read_the_tables_and_answer_the_questions() {
    if !needs(&["python3"], "the tables in other readers") {
        return;
    }
    let Some(python) = python() else { return };
    let dir = Scratch::new("export-readers");
    let names = [of_rank(&dir, 0), of_rank(&dir, 1)];
    let hostile = hostile(&dir);
    let all = [names[0].as_str(), &names[1], &hostile];
    for format in ["parquet", "csv"] {
        let out = if format == "csv" { "csv" } else { "tables" };
        export(&dir, &[&[format, "-o", out], &all[..]].concat()).success();
    }
    for (i, name) in all.iter().enumerate() {
        export(&dir, &["parquet", "-o", &format!("rank.{i}"), name]).success();
    }
    let expected = document(&dir, &all);
    let mut reader = Command::new(python);
    let read = run(reader.arg(source("cli/export/read.py")).arg(root().join(DOCUMENT)).current_dir(&*dir)).success();
    let seen = read.json();
    let counted: BTreeMap<String, BTreeMap<String, u64>> =
        serde_json::from_value(seen["rows"].clone()).expect("counts");
    for table in schema::TABLES {
        let rows = rows(&expected, table.name).len() as u64;
        assert!(rows > 0 && counted[table.name].values().all(|n| *n == rows), "{}: {rows} {counted:#?}", table.name);
    }
    let cost = sum(rows(&expected, "tallies"), "cost_ns");
    assert!(seen["sums"].as_object().expect("sums").values().all(|s| *s == cost), "{cost} {:#}", seen["sums"]);
    let names: Vec<&Value> = rows(&expected, "objects").iter().map(|o| &o["name"]).collect();
    assert_eq!(seen["names"].as_array().expect("names").iter().collect::<Vec<_>>(), names);
    assert_eq!(seen["csv_names_are_the_same"], true);
    let answers = seen["answers"].as_array().expect("answers");
    let is_answer = |a: &Value| a.as_array().map_or_else(|| a.as_str() != Some(""), |rows| !rows.is_empty());
    assert!(answers.len() >= 5 && answers.iter().all(is_answer), "{answers:#?}");
    // Which rank: two of them, and the profile without a rank.
    let seconds = |row: &Value| row[2].as_str().and_then(|s| s.parse::<f64>().ok()).expect("seconds");
    let ranks: Vec<f64> = answers[1].as_array().expect("rows").iter().map(seconds).collect();
    assert!(ranks.len() == 3 && (ranks.iter().sum::<f64>() - cost as f64 / 1e9).abs() < 1e-3, "{ranks:?} {cost}");
}
