//! What a newcomer types in the first hour, beside the plain path of the README: wrappers, terminals of 60 columns,
//! other programs than the policy's, the help behind the words.

use crate::common::{Policy, Ran, Scratch, compile, json_file, needs, numamma, number, plain, root, run};
use crate::synthetic;

/// objects.c, a policy for a variable of it and a script that starts it.
fn objects(name: &str) -> Scratch {
    let dir = Scratch::new(&format!("first-hour-{name}"));
    compile("cc", "preloads/apply/objects.c", dir.join("objects"), &["-O2", "-g"]);
    Policy::of("objects").rule("global = \"zeroes\"", "policy = \"interleave\"").write(&dir, "p.toml");
    dir.write_mode("start.sh", "#!/bin/sh\n./objects exit\n./objects exit\ntrue\n", 0o755);
    dir
}

fn typed(dir: &Scratch, args: &[&str]) -> Ran {
    run(numamma(args).current_dir(dir))
}

#[test]
fn verify_finds_the_program_behind_a_script() {
    let dir = objects("script");
    let out = typed(&dir, &["verify", "-p", "p.toml", "--json", "--", "./start.sh"]).success();
    assert!(!out.stderr.contains("the policy is for"), "a script is no mistake: {}", out.stderr);
    assert!(out.stderr.contains("on plan"), "{}", out.stderr);
    let json: serde_json::Value = serde_json::from_str(&out.stdout[out.stdout.find('{').unwrap()..]).unwrap();
    assert_eq!((&json["processes"], &json["objects"][0]["instances"]), (&2.into(), &2.into()), "{json}");
}

#[test]
fn a_policy_for_another_program_is_named() {
    let dir = objects("other");
    std::fs::copy("/bin/true", dir.join("heat")).expect("the scratch directory is writable");
    let other = typed(&dir, &["verify", "-p", "p.toml", "--", "./heat"]).ended(1).stderr;
    assert!(other.contains("./heat is not the policy's program (objects)"), "{other}");
    let idle = typed(&dir, &["verify", "-p", "p.toml", "--", "sh", "-c", "true"]).ended(1).stderr;
    assert!(idle.contains("start a program named objects"), "{idle}");
}

#[test]
fn a_policy_that_places_nothing_is_said() {
    let dir = objects("nothing");
    Policy::new().write(&dir, "none.toml");
    let said = typed(&dir, &["run", "-p", "none.toml", "--", "./objects", "exit"]).success().stderr;
    assert!(said.contains("none.toml places no object"), "{said}");
    let said = typed(&dir, &["run", "-p", "p.toml", "--", "./objects", "exit"]).success().stderr;
    assert!(!said.contains("places no object"), "{said}");
}

#[test]
fn tables_fit_a_terminal_of_60_columns() {
    let dir = objects("narrow");
    for args in [&["doctor"][..], &["verify", "-p", "p.toml", "--", "./objects", "exit"]] {
        let out = run(numamma(args).current_dir(&dir).env("COLUMNS", "60"));
        let text = if args[0] == "doctor" { &out.stdout } else { &out.stderr };
        // Commands and paths are for copying.
        let prose = text.lines().filter(|line| !line.contains('/') && !line.contains("enable:"));
        let wide: Vec<&str> = prose.filter(|line| line.chars().count() > 60).collect();
        assert!(wide.is_empty(), "{args:?}: {wide:?}");
    }
    let out =
        run(numamma(&["verify", "-p", "p.toml", "--", "./objects", "exit"]).current_dir(&dir).env("COLUMNS", "60"));
    assert!(
        out.stderr.contains("zeroes") && out.stderr.contains("on plan") && out.stderr.contains("hidden: "),
        "{}",
        out.stderr
    );
}

#[test]
fn the_help_explains_every_column() {
    let dir = objects("columns");
    let profile = synthetic::write("first-hour-columns", &synthetic::lu());
    let profile = profile.to_str().unwrap();
    let help = |command: &str| typed(&dir, &[command, "--help"]).success().stdout;
    let report = |columns: &str| {
        run(numamma(&["report", profile, "--nodes", "2"]).current_dir(&dir).env("COLUMNS", columns)).success().stdout
    };
    for (help, table) in [
        (help("report"), report("300")),
        (help("verify"), typed(&dir, &["verify", "-p", "p.toml", "--", "./objects", "exit"]).stderr),
    ] {
        let explained = help.split("Columns").nth(1).expect("a glossary");
        let lines: Vec<&str> = table.lines().collect();
        let rule = |line: &str| line.trim_start().starts_with("-----");
        let heads = lines.windows(2).filter(|two| rule(two[1]) || two[0].starts_with(" object ")).map(|two| two[0]);
        let heads: Vec<&str> = heads.flat_map(|head| head.trim().split("  ")).map(str::trim).collect();
        assert!(heads.len() > 5, "{table}");
        for head in heads.into_iter().filter(|head| !head.is_empty()) {
            assert!(explained.contains(head), "{head} is not explained: {explained}");
        }
    }
}

#[test]
fn a_shortened_name_and_a_number_name_an_object() {
    let dir = Scratch::new("first-hour-names");
    let profile = synthetic::write("first-hour-names", &synthetic::lu());
    let profile = profile.to_str().unwrap();
    let title = |name: &str| {
        let out = typed(&dir, &["report", profile, "--object", name]).success().stdout;
        out.lines().next().unwrap_or_default().to_owned()
    };
    assert!(title("#0").starts_with("cvar_"), "{}", title("#0"));
    assert_eq!(title("exchange_..ge.cpp:41"), title("exchange_"), "as a table of 100 columns shows it");
}

#[test]
fn the_report_can_follow_the_recording() {
    let dir = objects("report");
    let out = typed(&dir, &["profile", "-q", "--report", "--", "./objects", "exit"]).success();
    assert!(out.stdout.contains("Where the samples went") && out.stdout.contains("verdict"), "{}", out.stdout);
}

#[test]
fn runs_that_can_tell_nothing_are_said_first() {
    let dir = objects("few");
    let args =
        ["compare", "-n", "3", "--warmup", "2", "--export-json", "c.json", "-p", "p.toml", "--", "./objects", "exit"];
    let out = typed(&dir, &args).success();
    let at = |words: &str| out.stderr.find(words).unwrap_or_else(|| panic!("{words}: {}", out.stderr));
    assert!(at("3 runs of each policy can never tell") < at("warm-up: first-touch"));
    assert!(at("-n 4 is the least") < at("warm-up: first-touch"));
    assert_eq!(out.stderr.matches("warm-up: ").count(), 4, "{}", out.stderr);
    let json = std::fs::read_to_string(dir.join("c.json")).expect("the exported file");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert!(json["policies"][1]["mean"].is_f64() && json["policies"][1]["deviation"].is_f64(), "{json}");
    let four = typed(&dir, &["compare", "-n", "4", "-p", "p.toml", "--", "./objects", "exit"]).success().stderr;
    assert!(!four.contains("can never tell"), "{four}");
}

#[test]
fn a_stripped_copy_of_the_same_build_is_placed_by_address() {
    let dir = objects("stripped");
    if !needs(&["strip"], "the stripped copy") {
        return;
    }
    let advice = ["advise", "-q", "--static", "objects", "--min-size", "64KiB", "--nodes", "2", "-o", "static.toml"];
    typed(&dir, &advice).success();
    let policy = std::fs::read_to_string(dir.join("static.toml")).expect("the policy");
    assert!(policy.contains("build-id = ") && policy.contains("address = "), "{policy}");
    std::fs::create_dir(dir.join("stripped")).expect("the scratch directory is writable");
    run(plain("strip").current_dir(&dir).args(["-s", "-o", "stripped/objects", "objects"])).success();
    let found = |program: &str| {
        let out = typed(&dir, &["verify", "-q", "-p", "static.toml", "-o", "v.json", "--", program, "exit"]).success();
        let json = json_file(&dir.join("v.json"));
        let pages: Vec<u64> = crate::common::objects(&json).iter().map(|o| number(o, "pages_planned")).collect();
        assert!(!pages.is_empty() && pages.iter().all(|pages| *pages > 0), "{json} {}", out.stderr);
        pages
    };
    assert_eq!(found("stripped/objects"), found("./objects"));
    // An address without the build that it is of leads nowhere.
    std::fs::write(dir.join("static.toml"), policy.replace("build-id = ", "# ")).expect("the policy is writable");
    typed(&dir, &["verify", "-q", "-p", "static.toml", "--", "stripped/objects", "exit"]).ended(1);
}

/// A program that starts its arguments.
const STARTER: &str = "#include <sys/wait.h>\n#include <unistd.h>\n\
    int main(int n, char **words) { if (!fork()) { execv(words[1], words + 1); _exit(1); } wait(0); return n < 2; }\n";

fn starter(dir: &Scratch, name: &str, flags: &[&str]) -> String {
    let source = dir.write(&format!("{name}.c"), STARTER);
    compile("cc", source.to_str().unwrap(), dir.join(name), flags).display().to_string()
}

#[test]
fn a_static_launcher_is_looked_through() {
    let dir = Scratch::new("first-hour-static");
    let include = format!("-I{}", root().join("include").display());
    let solver = compile("cc", "cli/documents/solver.c", dir.join("solver"), &["-O2", "-g", "-pthread", &include]);
    let starter = starter(&dir, "starter", &["-static"]);
    let solver = solver.to_str().unwrap();
    let out = typed(&dir, &["profile", "-F", "1000", "--", &starter, solver]).success();
    assert!(
        out.stderr.contains("this is the profile of") && out.stderr.contains("next: `numamma report`"),
        "{}",
        out.stderr
    );
    let json = typed(&dir, &["report", "--json"]).success().json();
    assert_eq!(json["program"], solver, "{}", json["program"]);
    let is_heap = |o: &serde_json::Value| o["kind"] == "heap";
    assert!(json["objects"].as_array().unwrap().iter().any(is_heap), "its allocations are known: {json}");
}

#[test]
fn a_static_launcher_is_no_static_program() {
    let dir = objects("static-launcher");
    let starter = starter(&dir, "starter", &["-static"]);
    let checked = typed(&dir, &["verify", "-p", "p.toml", "--", &starter, "./objects", "exit"]).success().stderr;
    assert!(checked.contains("on plan"), "{checked}");
    let other = typed(&dir, &["verify", "-p", "p.toml", "--", &starter, "/bin/true"]).ended(1).stderr;
    assert!(other.contains("start a program named objects"), "{other}");
    Policy::new().rule("global = \"zeroes\"", "policy = \"interleave\"").write(&dir, "any.toml");
    let refused = typed(&dir, &["run", "-p", "any.toml", "--", &starter, "./objects", "exit"]).ended(126).stderr;
    assert!(refused.contains("[program] path = "), "{refused}");
}

#[test]
fn what_runs_elsewhere_is_recorded_behind_its_launcher() {
    let dir = Scratch::new("first-hour-elsewhere");
    let launcher = starter(&dir, "srun", &[]);
    let script = dir.write_mode("job.sh", format!("#!/bin/sh\n{launcher} /bin/sleep 0.3\n"), 0o755);
    let command = format!("{launcher} numamma profile -- /bin/sleep 0.3");
    let typed_directly = typed(&dir, &["profile", "-F", "1", "--", &launcher, "/bin/sleep", "0.3"]).success().stderr;
    assert!(typed_directly.starts_with("numamma: what "), "it is said before the run: {typed_directly}");
    let in_script = typed(&dir, &["profile", "-F", "1", "--", script.to_str().unwrap()]).success().stderr;
    for said in [typed_directly, in_script] {
        assert!(said.contains(&format!("next: `{command}`")) && !said.contains("let it work for"), "{said}");
    }
    let report = typed(&dir, &["report"]).success().stdout;
    assert!(report.ends_with(&format!("Next: {command}\n")), "{report}");
}

#[test]
fn the_hottest_objects_are_those_with_samples() {
    let dir = objects("hottest");
    let include = format!("-I{}", root().join("include").display());
    compile("cc", "cli/documents/solver.c", dir.join("solver"), &["-O2", "-g", "-pthread", &include]);
    typed(&dir, &["profile", "-q", "-F", "1000", "--", "./solver", "5"]).success();
    let said = typed(&dir, &["report", "--object", "nosuch"]).ended(2).stderr;
    let report = typed(&dir, &["report", "--json"]).success().json();
    let objects = report["objects"].as_array().expect("objects");
    // A section of a library is touched in every run, and on a slow machine sampled in some.
    for named in said.lines().skip(1) {
        let (_, name) = named.trim().split_once(' ').expect("a number and a name");
        let sampled = |o: &serde_json::Value| o["name"] == name && number(o, "reads") + number(o, "writes") > 0;
        assert!(objects.iter().any(sampled), "{name} is touched, not hot: {said}");
    }
    assert!(said.contains(" grid"), "{said}");
}

#[test]
fn without_samples_the_next_line_leads_on() {
    let dir = Scratch::new("first-hour-nothing");
    let starter = starter(&dir, "starter", &[]);
    let profile = |words: &[&str]| typed(&dir, &[&["profile", "-F", "1", "--"][..], words].concat()).success().stderr;
    let said = profile(&[&starter, "/bin/true"]);
    assert!(said.contains(&format!("next: `numamma profile --follow -- {starter} /bin/true`")), "{said}");
    assert!(typed(&dir, &["report"]).success().stdout.contains("numamma profile --follow -- "), "as the report says");
    let said = profile(&["/bin/true"]);
    assert!(said.contains("next: `numamma report`") && !said.contains("numamma advise"), "{said}");
}

#[test]
fn a_number_without_an_object_says_which_there_are() {
    let dir = Scratch::new("first-hour-number");
    let profile = synthetic::write("first-hour-number", &synthetic::lu());
    let said = typed(&dir, &["report", profile.to_str().unwrap(), "--object", "#99"]).ended(2).stderr;
    assert!(said.contains("no object with that number was accessed; they go from #0 to #"), "{said}");
}

#[test]
fn a_comparison_fits_its_terminal_and_says_first_that_runs_are_short() {
    let dir = objects("comparison");
    let args = ["compare", "-n", "4", "-p", "p.toml", "--", "./objects", "exit"];
    let out = run(numamma(&args).current_dir(&dir).env("COLUMNS", "80")).success();
    assert!(out.stdout.lines().all(|line| line.chars().count() <= 80), "{}", out.stdout);
    assert!(out.stdout.contains("hidden: ") && out.stdout.contains(" p.toml: "), "{}", out.stdout);
    let (before, _) = out.stderr.split_once("run 1 of 4").expect("the first run");
    let first = before.split("warm-up: first-touch ").nth(1).and_then(|time| time.split(' ').next()).expect("a time");
    // On a busy machine a run takes longer than what counts as short.
    let is_short = first.parse::<f64>().expect("seconds") < 0.1;
    assert_eq!(before.contains("loading and starting are a large part"), is_short, "{}", out.stderr);
}
