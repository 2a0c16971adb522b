//! Tests of [`super`]: every error has a position and names the offending word.

use super::*;
use crate::policy::{Bind, Size};

const LU: &str = r#"
version = 1
[program]
path = "lu.C.x"
build-id = "5f1c"
[machine]
topology = "pack:4 numa:2 core:6"
[threads]
bind = "compact"
count = 32
[[object]]
global = "cvar_"
size = 585105408
pattern = { kind = "block-cyclic", period = "160MiB", confidence = 0.97 }
place = { policy = "block-cyclic", block = "20MiB", nodes = "all" }
why = "58 % of cost"
[[object]]
callsite = ["lu.C.x+0x1a2b", "libc.so.6+0x271ca"]
function = ["setup", "__libc_start_call_main"]
place = { policy = "block", block = "auto" }
"#;

#[test]
fn the_example_of_the_design_reads_and_writes() {
    let policy = parse(LU).unwrap();
    assert_eq!(policy.objects[0].place.block, Some(Block::Size(Size(20 << 20))));
    assert_eq!(policy.objects[1].place.block, Some(Block::Auto(Auto::Auto)));
    assert_eq!(policy.threads.as_ref().unwrap().bind, Bind::Compact);
    let again = parse(&toml::to_string(&policy).unwrap()).unwrap();
    assert_eq!(again, policy);
}

/// `text` must fail at `line`, at the column of `word`, with a message that contains all of `says`.
fn fails(text: &str, line: usize, word: &str, says: &[&str]) {
    let e = parse(text).unwrap_err();
    let column = text.lines().nth(line - 1).unwrap().find(word).unwrap() + 1;
    assert_eq!((e.line, e.column), (line, column), "{e}");
    for s in says {
        assert!(e.to_string().contains(s), "`{s}` is not in: {e}");
    }
    assert!(!e.to_string().contains('\n'));
}

#[test]
fn unknown_words_come_with_the_allowed_ones() {
    let place = |p: &str| format!("version = 1\n[[object]]\nglobal = \"a\"\nplace = {p}\n");
    fails(&place("{ policy = \"blok\" }"), 4, "\"blok\"", &["`blok`", "`block`", "`block-cyclic`", "`interleave`"]);
    fails(&place("{ polcy = \"block\" }"), 4, "polcy", &["`polcy`", "`policy`"]);
    fails(&place("{ policy = \"block\", block = \"20MB\" }"), 4, "\"20MB\"", &["`20MB`", "auto"]);
    fails("version = 1\n[threads]\nbind = \"comact\"\n", 3, "\"comact\"", &["`comact`", "`compact`", "`scatter`"]);
    fails("version = 1\nobjects = 3\n", 2, "objects", &["`objects`", "`object`"]);
}

#[test]
fn keys_belong_to_their_policies() {
    let place = |p: &str| format!("version = 1\n[[object]]\nglobal = \"a\"\nplace = {p}\n");
    fails(&place("{ policy = \"interleave\", block = 4096 }"), 4, "4096", &["`block` needs", "random-block"]);
    fails(&place("{ policy = \"block\", seed = 7 }"), 4, "7", &["`seed` needs", "random"]);
    fails(&place("{ policy = \"block\", map = \"1x0\" }"), 4, "\"1x0\"", &["`map` needs"]);
    fails(&place("{ policy = \"map\", map = \"1y0\" }"), 4, "\"1y0\"", &["`1y0`", "640x0"]);
    fails(&place("{ policy = \"map\" }"), 4, "{ policy", &["640x0,128x3"]);
    fails(&place("{ policy = \"random-block\" }"), 4, "{ policy", &["block size"]);
    fails(&place("{ policy = \"preferred\", nodes = \"0-1\" }"), 4, "\"0-1\"", &["one node", "preferred-many"]);
    fails(&place("{ policy = \"block\", strict = true }"), 4, "true", &["`strict` needs", "bind"]);
    fails(&place("{ policy = \"bind\", strict = \"yes\" }"), 4, "\"yes\"", &["boolean"]);
    fails(&place("{ policy = \"bind\", huge = \"always\" }"), 4, "\"always\"", &["`keep`", "`split`", "`want`"]);
}

#[test]
fn syntax_errors_are_located() {
    let e = parse("version = 1\n[[object]\n").unwrap_err();
    assert_eq!(e.line, 2, "{e}");
    assert_eq!(parse("version = 2\n").unwrap_err().line, 1);
    fails("version = 2\n", 1, "2", &["version 2"]);
    assert!(parse("").unwrap_err().to_string().contains("version"));
}

#[test]
fn what_people_write_by_hand_is_answered_with_what_to_write() {
    fails("version = 1\n[object]\nname = \"a\"\n", 2, "[object]", &["write [[object]]"]);
    fails("version = 1\n[phase]\nname = \"a\"\n[phase]\nname = \"b\"\n", 4, "phase]", &["write [[phase]]"]);
    let place = |p: &str| format!("version = 1\n[[object]]\nglobal = \"a\"\nplace = {p}\n");
    fails(&place("{ policy = interleave }"), 4, "interleave", &["quotes", "\"interleave\""]);
    fails(&place("\"interleave\""), 4, "\"interleave\"", &["place = { policy = \"interleave\" }"]);
    fails(&place("{ policy = \"bind\" }\nglobal = \"b\""), 5, "global", &["global is given twice", "[[object]]"]);
    fails(&place("{ policy = block, nodes = \"0\" }"), 4, "block", &["\"block\""]);
    fails("version = 1\n[[threads]]\nbind = \"compact\"\n", 2, "[[threads]]", &["write [threads]"]);
    fails("[threads]\nbind = \"compact\"\n", 1, "[threads]", &["version = 1"]);
    fails("version = 1\n[[object]]\nglobal = \"a\"\n", 2, "[[object]]", &["place = { policy = \"interleave\" }"]);
}

#[test]
fn exactly_one_name() {
    let rule = |keys: &str| format!("version = 1\n[[object]]\n{keys}\nplace = {{ policy = \"bind\" }}\n");
    assert!(parse(&rule("function = [\"f\"]")).is_ok());
    fails(&rule("size = 3"), 2, "[[object]]", &["no name"]);
    fails(&rule("global = \"a\"\nfunction = [\"f\"]"), 3, "\"a\"", &["not by both"]);
    fails(&rule("callsite = []"), 3, "[]", &["empty"]);
    fails(&rule("callsite = [\"app\"]"), 3, "[\"app\"]", &["`app`", "module+0x"]);
    fails(&rule("function = [\"f\"]\nmodule = \"m\""), 4, "\"m\"", &["module"]);
}

#[test]
fn blocks_only_where_they_mean_something() {
    let place = |p: &str| format!("version = 1\n[[object]]\nglobal = \"a\"\nplace = {p}\n");
    fails(&place("{ policy = \"bind\", block = \"auto\" }"), 4, "\"auto\"", &["`block` needs"]);
    fails(&place("{ policy = \"block-cyclic\" }"), 4, "{ policy", &["pattern.period"]);
    fails(&place("{ policy = \"block\", block = 0 }"), 4, "0", &["smaller than a page, as 0 bytes are"]);
    fails(&place("{ policy = \"block-cyclic\", block = 4095 }"), 4, "4095", &["as 4095 bytes are"]);
    fails(&place("{ policy = \"local\" }"), 4, "\"local\"", &["allocations"]);
    fails(&place("{ policy = \"bind\", nodes = \"0;1\" }"), 4, "\"0;1\"", &["`0;1`", "0-3,5"]);
    let period = "pattern = { kind = \"block-cyclic\", period = \"5MiB\" }\n";
    assert!(parse(&(place("{ policy = \"block-cyclic\", block = \"auto\" }") + period)).is_ok());
}

#[test]
fn allocations_are_chosen_by_size_number_and_line() {
    let rule = |keys: &str| format!("version = 1\n[[object]]\n{keys}\nplace = {{ policy = \"bind\" }}\n");
    let policy = parse(&rule("line = \"src/lu.c:120\"\ninstances = \"1-4,7\"\nsizes = \"1MiB-\"")).unwrap();
    assert_eq!(policy.objects[0].name(), "src/lu.c:120");
    assert_eq!(policy.objects[0].title(), "src/lu.c:120, instances 1-4,7, sizes 1MiB-");
    assert!(parse(&rule("function = [\"f\"]\nline = \"no number\"")).is_ok(), "informative beside a name");
    fails(&rule("line = \"lu.c\""), 3, "\"lu.c\"", &["`lu.c`", "lu.c:120"]);
    fails(&rule("function = [\"f\"]\ninstances = \"0\""), 4, "\"0\"", &["`0`", "1-4,7"]);
    fails(&rule("function = [\"f\"]\ninstances = \"7,1\""), 4, "\"7,1\"", &["`1`", "ascending"]);
    fails(&rule("function = [\"f\"]\nsizes = \"1MB-\""), 4, "\"1MB-\"", &["`1MB-`", "1MiB-64MiB"]);
    fails(&rule("global = \"a\"\nsizes = \"1MiB\""), 4, "\"1MiB\"", &["`sizes` is for allocations"]);
    fails(&rule("global = \"a\"\ninstances = \"1\""), 4, "\"1\"", &["`instances` is for allocations"]);
    fails(&rule("line = \"a.c:1\"\nmodule = \"m\""), 4, "\"m\"", &["module"]);
}

#[test]
fn a_rule_behind_one_that_takes_everything_is_shadowed() {
    let rule = |keys: &str| format!("[[object]]\n{keys}\nplace = {{ policy = \"bind\" }}\n");
    let f = "function = [\"f\"]";
    let parts =
        [f, f, "function = [\"f\", \"g\"]", "line = \"a.c:1\"", "line = \"a.c:1\"\nsizes = \"1\"", "global = \"f\""];
    let first = [format!("{f}\ninstances = \"1\""), format!("{f}\nranks = \"0\"")];
    let text: String = first.iter().map(String::as_str).chain(parts).map(rule).collect();
    let policy = parse(&format!("version = 1\n{text}")).unwrap();
    assert_eq!(shadowed(&policy.objects), [(3, 2), (6, 5)]);
}

#[test]
fn ranks_modes_and_cpu_lists_are_checked() {
    let object = |more: &str| format!("version = 1\n[[object]]\nglobal = \"a\"\n{more}\n");
    let block = "place = { policy = \"block\" }";
    fails(&object(&format!("ranks = \"0-x\"\n{block}")), 4, "\"0-x\"", &["`0-x`", "ranks", "\"8-\""]);
    assert!(parse(&object(&format!("ranks = \"0-1,8-\"\n{block}"))).is_ok());
    let populate = |policy: &str| object(&format!("place = {{ policy = \"{policy}\", mode = \"populate\" }}"));
    fails(&populate("interleave"), 4, "\"populate\"", &["`interleave` needs only one"]);
    assert!(parse(&populate("block")).is_ok());
    let bind = |lists: &str| format!("version = 1\n[threads]\nbind = {lists}\n");
    fails(&bind("[]"), 3, "[]", &["lists no CPUs"]);
    fails(&bind("[\"0-3\", \"4-\"]"), 3, "[\"0-3\"", &["`4-` is not a CPU list"]);
    fails(&bind("\"compat\""), 3, "\"compat\"", &["`compat`", "compact", "[\"0-3\", \"4-7\"]"]);
    fails(&bind("3"), 3, "3", &["list of CPU lists"]);
    let lists = vec!["0-3".to_owned(), "!0".to_owned()];
    let policy = parse(&bind("[\"0-3\", \"!0\"]")).unwrap();
    assert_eq!(policy.threads.as_ref().unwrap().bind, Bind::Explicit(lists));
    let written = toml::to_string(&policy).unwrap();
    assert_eq!(parse(&written).unwrap(), policy, "{written}");
}

#[test]
fn phases_are_declared_once_and_begin_somehow() {
    let object = "[[object]]\nglobal = \"a\"\nplace = { policy = \"block\" }\n";
    let good = format!(
        "version = 1\n[[phase]]\nname = \"solve\"\nafter = 12.5\n[[phase]]\nname = \"out\"\nafter = 20\nallocation = 3\n\
         function = [\"write\"]\n{object}phases = {{ solve = {{ policy = \"interleave\" }}, out = {{ policy = \"bind\", nodes = \"0\" }} }}\n"
    );
    assert!(toml_subset::read::<Policy>(&good).is_some(), "the fast reader reads phases");
    let policy = parse(&good).unwrap();
    assert_eq!(policy.phases[0].after, Some(12.5));
    assert_eq!((policy.phases[1].after, policy.phases[1].allocation), (Some(20.0), Some(3)));
    assert_eq!(policy.objects[0].phases["out"].policy, PolicyKind::Bind);
    assert_eq!(parse(&toml::to_string(&policy).unwrap()).unwrap(), policy);

    let phase = |body: &str| format!("version = 1\n[[phase]]\n{body}\n");
    fails(&phase("name = \"\""), 3, "\"\"", &["needs a name"]);
    fails(&phase("name = \"a\"\n[[phase]]\nname = \"a\""), 5, "\"a\"", &["two phases", "`a`"]);
    for bad in ["-1.0", "inf", "nan", "-inf"] {
        fails(&phase(&format!("name = \"a\"\nafter = {bad}")), 4, bad, &["seconds"]);
    }
    fails(&phase("name = \"a\"\nallocation = 0\nfunction = [\"f\"]"), 4, "0", &["from 1"]);
    fails(&phase("name = \"a\"\nallocation = 2"), 4, "2", &["call site"]);
    fails(&phase("name = \"a\"\nfunction = [\"f\"]"), 2, "[[phase]]", &["allocation = 1"]);
    fails(&phase("name = \"a\"\nallocation = 2\ncallsite = [\"nonsense\"]"), 5, "[", &["nonsense"]);
}

#[test]
fn places_of_phases_are_checked_where_they_stand() {
    let with = |name: &str, rest: &str| {
        format!(
            "version = 1\n[[phase]]\nname = \"solve\"\n[[object]]\n{name}\nplace = {{ policy = \"block\" }}\nphases = {{ {rest} }}\n"
        )
    };
    let global = "global = \"a\"";
    fails(&with(global, "sovle = { policy = \"block\" }"), 7, "{ policy", &["`sovle`", "solve"]);
    let block = with(global, "solve = { policy = \"bind\", block = 4096 }");
    fails(&block, 7, "4096", &["`block` needs"]);
    fails(&with(global, "solve = { policy = \"local\" }"), 7, "\"local\"", &["allocations"]);
    fails(&with(global, "solve = { policy = \"block-cyclic\" }"), 7, "{ policy", &["block-cyclic needs"]);
    fails(&with(global, "solve = { policy = \"bind\", nodes = \"x\" }"), 7, "\"x\"", &["x"]);
    assert!(parse(&with("function = [\"f\"]", "solve = { policy = \"local\" }")).is_ok());
}

#[test]
fn a_function_without_a_name_is_no_rule() {
    for words in ["[\"\", \"\"]", "[\"\"]", "[]"] {
        let text = format!("version = 1\n[[object]]\nfunction = {words}\nplace = {{ policy = \"bind\" }}\n");
        fails(&text, 3, "[", &["`function` names no function"]);
    }
    // `?` matches any function, so the rule matches every allocation; that is allowed.
    assert!(parse("version = 1\n[[object]]\nfunction = [\"?\"]\nplace = { policy = \"bind\" }\n").is_ok());
}
