//! Rules that place alike share memory: what the report says of each of them.

use serde_json::Value;

use crate::common::{Policy, Scratch, compile, json_file, number, objects, placed, run};

/// Small objects of four rules, and the report under these places.
fn report(dir: &Scratch, name: &str, places: [&str; 4], more: &str) -> Value {
    let program = compile("cc", "preloads/shared/several.c", dir.join("several"), &["-O1", "-g"]);
    let rule = |policy: Policy, (function, place): (&str, &str)| {
        policy.rule(&format!("function = [\"{function}\"]"), &format!("policy = \"{place}\""))
    };
    let rules = ["first", "second", "grown", "pushed"].into_iter().zip(places);
    let policy = rules.fold(Policy::new().lines(more), rule).write(dir, &format!("{name}.toml"));
    let file = dir.join(format!("{name}.json"));
    let mut command = placed(&program, &policy);
    let ran = run(command.env("NUMAMMA_REPORT", &file)).success();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("damaged 0\n", ""), "{name}");
    json_file(&file)
}

/// Of each object: instances, in whose pages its small objects are, and whether pages are counted for it.
fn of_each(report: &Value) -> Vec<(u64, &str, bool)> {
    let each = objects(report).iter();
    let name = |o: &Value| o["name"].to_string();
    let with = each.clone().map(|o| o["shares_pages_of"].as_str().unwrap_or_else(|| panic!("{}", name(o))));
    each.zip(with).map(|(o, with)| (number(o, "instances"), with, number(o, "pages_present") > 0)).collect()
}

/// An object that realloc has made or changed is in memory of its own rule, so that no rule counts it twice.
#[test]
fn the_report_says_whose_pages_small_objects_share() {
    let dir = Scratch::new("shared");
    let apart = [(10_003, "", true), (10_000, "", true), (1, "", true), (3, "", true)];
    let alike = report(&dir, "alike", ["interleave"; 4], "");
    let shared = [apart[0], (10_000, "first", true), apart[2], apart[3]];
    assert_eq!(of_each(&alike), shared, "{alike:#}");
    for object in objects(&alike) {
        assert_eq!((number(object, "unplaced"), number(object, "pages_off_plan")), (0, 0), "{object:#}");
    }
    let others = report(&dir, "others", ["interleave", "local", "bind", "preferred\", nodes = \"0"], "");
    assert_eq!(of_each(&others), apart, "{others:#}");
    let counted = "[[phase]]\nname = \"later\"\nallocation = 9\nfunction = [\"none\"]";
    let counted = report(&dir, "counted", ["interleave"; 4], counted);
    assert_eq!(of_each(&counted), apart, "{counted:#}");
}
