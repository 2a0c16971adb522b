//! `numamma report --html`: size and injection for any profile, and the page in a headless browser.
//!
//! The browser runs a copy of the page with `html/drive.js` and the steps of the page behind its own scripts, which
//! visit the views and note what they see. axe-core, which scripts/setup gets, judges each view.

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine;
use numamma::profile::records::*;
use serde_json::Value;

use super::synthetic::{self, Dice, MIB, PAGE, access, header, object, thread};
use crate::common::{Scratch, numamma, root, run};

const MOST_BYTES: usize = 5 << 20;
/// Text that would be run, or end the data, if any of it were markup.
const MARKUP: &str =
    "</script><script>window.injected=1</script><img src=x onerror=\"window.injected=1\">'\"&lt;/*data*/`${1}";

fn page_of(dir: &Scratch, prof: &Path, more: &[&str]) -> String {
    let out = dir.join("page.html");
    let name = out.to_str().expect("a path of this test");
    let ran = run(numamma(&["report", "--html", name]).args(more).arg(prof));
    assert_eq!((ran.code(), ran.stdout.as_str()), (Some(0), ""), "{}", ran.stderr);
    let page = std::fs::read_to_string(out).expect("the page was written");
    assert!(page.len() <= MOST_BYTES, "{} bytes", page.len());
    assert_eq!(page.matches("</script").count(), 2, "the data and the scripts");
    assert!(!page.contains("window.injected") && !page.contains("src="), "text of the profile in the page");
    page
}

fn difference_of(dir: &Scratch, before: &Path, after: &Path) -> String {
    let out = dir.join("diff.html");
    let ran = run(numamma(&["diff", "--fail-if", "cost > +900%", "--html"]).arg(&out).arg(before).arg(after));
    assert_eq!((ran.code(), ran.stdout.as_str()), (Some(0), ""), "{}", ran.stderr);
    let page = std::fs::read_to_string(out).expect("the page was written");
    assert_eq!(page.matches("</script").count(), 2, "the data and the scripts");
    page
}

fn named(name: &str, names: &[String]) -> PathBuf {
    let objects = (0..).zip(names).map(|(id, n)| {
        let base = 0x4000_0000 + u64::from(id) * MIB;
        object(id, ObjectKind::Mapping, n, base, 4 * PAGE)
    });
    let accesses = (0..).zip(names).flat_map(|(id, _)| {
        let mut dice = Dice(u64::from(id) + 1);
        (0..6_u64).map(move |i| {
            let addr = 0x4000_0000 + u64::from(id) * MIB + dice.below(4 * PAGE);
            access(id, (i % 2) as u32, i * 1_000_000_000, addr, i % 3 == 0, true)
        })
    });
    let mut head = header();
    head.program.argv.push(MARKUP.into());
    head.program.path = format!("/opt/{MARKUP}");
    let mut records = vec![Record::Header(head), Record::Threads(vec![thread(0, MARKUP, None), thread(1, "b", None)])];
    records.push(Record::Objects(objects.collect()));
    records.extend(accesses.collect::<Vec<_>>().chunks(2000).map(|c| Record::Accesses(c.to_vec())));
    records.push(Record::Notes(vec![MARKUP.into()]));
    synthetic::write(&format!("html-{name}"), &records)
}

/// The steps through a report, and through a difference.
const REPORT: &str = include_str!("html/report.js");
const DIFFERENCE: &str = include_str!("html/difference.js");

/// The rules of axe-core; empty where it is not installed.
fn axe() -> String {
    let path = root().join("target/browser/node_modules/axe-core/axe.min.js");
    std::fs::read_to_string(path).unwrap_or_else(|_| {
        crate::common::skipped("no axe-core here, scripts/setup tests installs it where there is npm");
        String::new()
    })
}

/// What the steps saw; none without a browser.
fn driven(dir: &Scratch, page: &str, steps: &str) -> Option<Value> {
    let copy = dir.join("driven.html");
    let drive = include_str!("html/drive.js");
    let script = format!("<script>{}</script><script>{drive}{steps}</script></body>", axe());
    std::fs::write(&copy, page.replace("</body>", &script)).expect("the scratch directory is writable");
    let out = Command::new("chromium")
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--window-size=1280,1000"])
        .args(["--virtual-time-budget=20000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", dir.join("browser").display()))
        .arg(format!("file://{}", copy.display()))
        .output();
    let Ok(out) = out else {
        crate::common::skipped("no chromium here, scripts/setup tests installs it");
        return None;
    };
    let (dom, errors) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(!errors.contains("CONSOLE"), "{errors}");
    let text = dom.split("<pre id=\"driven\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let text = text.unwrap_or_else(|| panic!("the page was not driven to its end: {errors}"));
    let json = base64::engine::general_purpose::STANDARD.decode(text).expect("base64 of the script");
    let seen: Value = serde_json::from_slice(&json).expect("JSON of the script");
    assert_eq!((&seen["errors"], &seen["ready"]), (&serde_json::json!([]), &true.into()), "{seen:#}");
    assert_eq!((&seen["injected"], &seen["markup"]), (&"undefined".into(), &0.into()), "{seen:#}");
    assert_eq!(seen["axe"], serde_json::json!({}), "violations of accessibility");
    for (name, view) in seen["views"].as_object().expect("views") {
        assert_eq!(view["shown"], name.as_str(), "{seen:#}");
        assert!(view["sections"].as_u64() > Some(0), "{name} is empty: {seen:#}");
        assert_eq!((&view["empty"], &view["unnamed"]), (&0.into(), &0.into()), "pictures of {name}: {seen:#}");
    }
    Some(seen)
}

#[test]
fn figures_on_screen_are_those_of_json() {
    let dir = Scratch::new("html-lu");
    let prof = synthetic::write("html-lu", &synthetic::lu());
    let result = dir.join("compare.json");
    std::fs::write(&result, r#"{"policies":[{"name":"</script>","median_s":1.5}],"notes":[]}"#).expect("writable");
    let check = dir.join("verify.json");
    let counts = r#"{"name":"/dev/shm/halo","pages_planned":40960,"pages_present":40000,"pages_on_plan":30000,"pages_off_plan":10000,"pages_by_node":{"10":10000,"2":30000}}"#;
    std::fs::write(&check, format!(r#"{{"ok":false,"objects":[{counts}]}}"#)).expect("writable");
    let source = dir.join("lu");
    std::fs::create_dir(&source).expect("writable");
    let text: String = (1..=99).map(|i| format!("  if (a<b) f(\"<img src=x>\"); // {i}\n")).collect();
    std::fs::write(source.join("ssor.cpp"), text).expect("writable");
    let words = |path: &Path| path.to_str().expect("a path of this test").to_owned();
    let [result, check, source] = [&result, &check, &source].map(|path| words(path));
    let page = page_of(&dir, &prof, &["--nodes", "4", "--with", &result, "--with", &check, "--source", &source]);
    let json = run(numamma(&["report", "--json"]).arg(&prof));
    let report: Value = serde_json::from_str(&json.stdout).expect("JSON");
    let Some(seen) = driven(&dir, &page, REPORT) else { return };
    let wanted = report["objects"].as_array().expect("objects");
    let shown = seen["objects"].as_array().expect("rows");
    assert_eq!(shown.len(), wanted.len().min(20), "{seen:#}");
    for (row, object) in shown.iter().zip(wanted) {
        let pairs = [("id", "id"), ("size", "size"), ("cost", "cost_share"), ("share", "share")];
        pairs.iter().for_each(|(cell, key)| assert_eq!(row[*cell].as_f64(), object[*key].as_f64(), "{key}: {seen:#}"));
    }
    let one = wanted.iter().find(|o| o["id"] == seen["one"]["id"]).expect("the object that was opened");
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value}"));
    let total = number(&one["reads"]) + number(&one["writes"]);
    assert_eq!(number(&seen["one"]["totals"]["accesses"]) + number(&seen["one"]["unpaged"]), total, "{seen:#}");
    let evidence = &seen["evidence"];
    assert!(evidence["spectrum"] == true && evidence["peak"].as_f64() > Some(0.5), "{seen:#}");
    let place = evidence["source"][0][0].as_str().unwrap_or_default();
    let meant = evidence["source"][0][1].as_str().unwrap_or_default();
    assert!(place.contains("/src/lu/ssor.cpp:88") && meant.ends_with("// 88") && meant.contains("<img"), "{seen:#}");
    let places = seen["places"].as_array().expect("pictures");
    assert!(places.contains(&"node of the threads over time".into()), "{seen:#}");
    let bars = seen["bars"].as_array().expect("bars");
    assert!(bars[0] == "before, by first touch: node 0 25.0%, node 1 25.0%, node 2 25.0%, node 3 25.0%", "{bars:?}");
    assert_eq!(bars[1], "after, placed: node 2 73.2%, node 10 24.4%, not touched 2.3%", "{bars:?}");
    let steps = &seen["steps"];
    let sizes: Vec<f64> = steps["sorted"].as_array().expect("rows").iter().filter_map(Value::as_f64).collect();
    assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
    assert_ne!(steps["zoomed"][0], steps["zoomed"][1], "{seen:#}");
    assert_eq!(steps["zoomed"][0].as_str().map(|s| &s[..6]), steps["unzoomed"].as_str().map(|s| &s[..6]));
    let losses: Vec<&str> = steps["losses"].as_array().expect("three").iter().filter_map(Value::as_str).collect();
    assert!(losses[0].ends_with("0.0% of the information lost") && losses[2].starts_with("1 of"), "{losses:?}");
    assert_eq!((&steps["key"], &steps["paths"]), (&"overview".into(), &false.into()), "{seen:#}");
    assert_eq!(seen["views"].as_object().map(|v| v.len()), Some(6), "{seen:#}");
    check_fixes(&prof, &report, &seen["fixes"]);
}

/// Threads that took turns on too few CPUs share no lines that the counts show.
#[test]
fn what_could_not_be_judged_of_shared_lines_is_on_the_page() {
    let dir = Scratch::new("html-turns");
    // Of a second, by each of eight threads.
    for (ran_ns, remark) in [(130_000_000, true), (990_000_000, false)] {
        let mut records = synthetic::lu();
        let Some(Record::Header(header)) = records.first_mut() else { panic!("no header") };
        header.sampling.sampler = "trace".into();
        let waits = Waits { seen_ns: 1_000_000_000, ran_ns, ..Waits::default() };
        records.push(Record::ThreadWaits((0..8).map(|thread| ThreadWaits { thread, waits }).collect()));
        let prof = synthetic::write(&format!("html-turns-{remark}"), &records);
        let page = page_of(&dir, &prof, &["--nodes", "4"]);
        let words = "Whether threads take cache lines from each other could not be judged";
        let told = run(numamma(&["fixes", "--nodes", "4"]).arg(&prof)).stdout;
        assert_eq!(told.replace('\n', " ").contains(words), remark, "{told}");
        let Some(seen) = driven(&dir, &page, REPORT) else { return };
        let shown = seen["changes"].as_str().unwrap_or_else(|| panic!("no section: {seen:#}"));
        assert_eq!(shown.contains(words), remark, "{shown}");
    }
}

/// The page has the fixes of the command, each with a link to its object.
fn check_fixes(prof: &Path, report: &Value, seen: &Value) {
    let ran = run(numamma(&["fixes", "--nodes", "4", "--json"]).arg(prof));
    let wanted: Value = serde_json::from_str(&ran.success().stdout).expect("JSON");
    let (shown, wanted) = (seen.as_array().expect("rows"), wanted.as_array().expect("a list"));
    assert!(!wanted.is_empty() && shown.len() == wanted.len().min(20), "{seen:#}");
    assert!(wanted.iter().any(|fix| fix["gain"]["speedup"].is_number()), "{wanted:#?}");
    for (row, fix) in shown.iter().zip(wanted) {
        assert_eq!(row["kind"], fix["kind"], "{seen:#}");
        let gain = row["gain"].as_str().expect("words");
        match fix["gain"]["speedup"].as_f64() {
            Some(speedup) => assert!(gain.starts_with(&format!("expected {speedup:.2}x")), "{row}"),
            None => assert_eq!(fix["gain"]["note"], gain, "{row}"),
        }
        assert_eq!(row["how"].as_str().is_some_and(|how| how.contains("policy")), fix["by_policy"] == true, "{row}");
        let object = report["objects"].as_array().expect("objects").iter().find(|o| o["name"] == fix["object"]);
        let link = object.map_or(Value::Null, |o| format!("#object={}", o["id"]).into());
        assert_eq!(row["link"], link, "{row}");
    }
}

#[test]
fn a_difference_is_a_page_with_the_figures_of_json() {
    let dir = Scratch::new("html-diff");
    let before = synthetic::write("html-before", &synthetic::lu());
    let mut records = synthetic::lu();
    for record in &mut records {
        if let Record::Accesses(list) = record {
            list.retain(|a| a.object != 1 || a.time_ns % 3 == 0);
        }
    }
    let after = synthetic::write("html-after", &records);
    let page = difference_of(&dir, &before, &after);
    let json = run(numamma(&["diff", "--json"]).arg(&before).arg(&after));
    let wanted: Value = serde_json::from_str(&json.stdout).expect("JSON");
    let Some(seen) = driven(&dir, &page, DIFFERENCE) else { return };
    assert_eq!(seen["verdict"], wanted["verdict"], "{seen:#}");
    let (shown, objects) = (seen["objects"].as_array().expect("rows"), wanted["objects"].as_array().expect("objects"));
    assert_eq!(shown.len(), objects.len(), "{seen:#}");
    for (row, object) in shown.iter().zip(objects) {
        let cost = &object["cost"];
        for (cell, value) in
            [("before", &cost["before"]), ("after", &cost["after"]), ("points", &cost["points"]["change"])]
        {
            assert!(value.is_null() || row[cell].as_f64() == value.as_f64(), "{cell}: {row:#} {object:#}");
        }
        assert_eq!(row["bar"].is_null(), cost["points"].is_null(), "{row:#}");
    }
    let sorted: Vec<f64> = seen["steps"]["sorted"].as_array().expect("rows").iter().filter_map(Value::as_f64).collect();
    assert!(sorted.is_sorted_by(|a, b| a >= b), "{sorted:?}");
}

#[test]
fn names_are_text() {
    let dir = Scratch::new("html-names");
    let long = format!("std::map<{}>", "std::vector<std::pair<int,long>>,".repeat(125));
    let names = [
        "plain",
        MARKUP,
        "quote \" ' ` name",
        "שלום עולם",
        "\u{202e}reversed\u{2066}",
        &long,
        "日本",
        "a\nb\tc",
        "<b>bold</b>",
    ];
    let prof = named("names", &names.map(str::to_owned));
    let page = page_of(&dir, &prof, &[]);
    if let Some(seen) = driven(&dir, &page, REPORT) {
        assert_eq!(seen["steps"]["searched"], serde_json::json!([9, 0]), "{seen:#}");
    }
    let other = named("names-after", &[MARKUP, "<i>new</i>"].map(str::to_owned));
    let page = difference_of(&dir, &prof, &other);
    if let Some(seen) = driven(&dir, &page, DIFFERENCE) {
        let shown = |name: &str| seen["objects"].as_array().is_some_and(|rows| rows.iter().any(|r| r["name"] == name));
        assert!(shown(MARKUP) && shown("<b>bold</b>") && shown("<i>new</i>"), "{seen:#}");
    }
}

#[test]
fn the_smallest_profiles_and_many_objects() {
    let dir = Scratch::new("html-sizes");
    let empty = synthetic::write("html-empty", &[Record::Header(header())]);
    let page = page_of(&dir, &empty, &[]);
    driven(&dir, &page, REPORT);
    page_of(&dir, &named("one", &["only".to_owned()]), &[]);
    let many: Vec<String> = (0..10_000).map(|i| format!("object {i} {MARKUP}")).collect();
    let page = page_of(&dir, &named("many", &many), &[]);
    if let Some(seen) = driven(&dir, &page, REPORT) {
        assert_eq!(seen["objects"].as_array().map(Vec::len), Some(20), "{seen:#}");
    }
}

#[test]
fn what_is_not_a_result_is_refused() {
    let dir = Scratch::new("html-with");
    let prof = synthetic::write("html-with", &synthetic::lu());
    let text = dir.join("policy.toml");
    std::fs::write(&text, "version = 1\n").expect("writable");
    let out = dir.join("page.html");
    let ran = run(numamma(&["report", "--html"]).arg(&out).arg("--with").arg(&text).arg(&prof));
    assert!(ran.code() == Some(2) && ran.stderr.contains("it is not JSON"), "{:?} {}", ran.code(), ran.stderr);
    assert!(!out.exists());
}
