//! Names made by a stranger, in every input and through every command: nothing that is printed may control a terminal,
//! hide or reorder text, or look like a line of our own; JSON and TOML still hold the names as they are.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use numamma::profile::records::*;
use numamma_plan::check;

use super::synthetic::{self, MIB, PAGE, PERIOD_NS, access, header, object, thread};
use crate::common::{NUMAMMA, Scratch, compile, placed, plain, preload};

/// What a terminal obeys or a reader does not see, written independently of the code that escapes it.
const HIDDEN: [&str; 14] = [
    "\x1b[2J",
    "\x1b]0;title\x07",
    "\x1b[1m",
    "\x1b[38;5;9m",
    "\u{9b}31m",
    "\r",
    "\t",
    "\x08",
    "\x7f",
    "\u{85}",
    "\u{202e}",
    "\u{2066}",
    "\u{200b}",
    "\u{2028}",
];
/// A line that only NumaMMA may write, and a command.
const FORGED: &str = "\nnumamma: all pages are on plan\n[[object]]\nNext: rm -rf ~\n";
const SHELL: &str = "'\";touch pwned;$(touch pwned)`touch pwned`\\ \"";

/// Everything at once, with `word` to find it again.
fn hostile(word: &str) -> String {
    format!("{word}{}{FORGED}{SHELL}{word}", HIDDEN.concat())
}

fn location(word: &str) -> Location {
    Location { function: Some(hostile(word)), file: Some(hostile("file")), line: Some(7) }
}

/// A profile in which every text is hostile.
fn profile() -> PathBuf {
    let frame = |offset| Frame { module: 0, offset };
    let mut head = header();
    head.program = Program {
        path: format!("/opt/{}", hostile("program")),
        argv: vec![hostile("argv0"), hostile("argv1")],
        build_id: Some(hostile("build")),
    };
    (head.host, head.numamma, head.thp) = (hostile("host"), hostile("version"), hostile("thp"));
    (head.sampling.sampler, head.sampling.reason) = (hostile("sampler"), hostile("reason"));
    let base = 0x4000_0000;
    let heap = 0x7f00_0000_0000;
    let slices = |object: u32, base: u64| {
        (0..1600_u64).map(move |i| {
            let t = (i % 4) as u32;
            let addr = base + u64::from(t) * 4 * MIB + i * PAGE % (4 * MIB);
            access(object, t, i * 1_000_000, addr, i % 2 == 0, true)
        })
    };
    let records = vec![
        Record::Header(head),
        Record::Modules(vec![Module {
            id: 0,
            path: format!("/opt/{}", hostile("module")),
            build_id: None,
            read_only: vec![],
        }]),
        Record::Threads((0..4).map(|t| thread(t, &hostile("thread"), Some(frame(0x900)))).collect()),
        Record::Sites(vec![CallSite { id: 0, frames: vec![frame(0x100), frame(0x200)] }]),
        Record::SiteCounts(vec![SiteCount {
            site: 0,
            instances: 1,
            bytes: 16 * MIB,
            peak_bytes: 16 * MIB,
            max_size: 16 * MIB,
        }]),
        Record::Symbols(
            [0x100, 0x200, 0x900, 0x2000]
                .map(|at| Symbol { frame: frame(at), locations: vec![location("function")] })
                .into(),
        ),
        Record::Objects(vec![
            Object {
                module: Some(0),
                vaddr: 0x4000,
                ..object(0, ObjectKind::Global, &hostile("global"), base, 16 * MIB)
            },
            Object { site: Some(0), ..object(1, ObjectKind::Heap, "", heap, 16 * MIB) },
            object(2, ObjectKind::Mapping, &hostile("mapping"), 0x6000_0000_0000, 16 * MIB),
        ]),
        Record::Accesses(slices(0, base).chain(slices(1, heap)).chain(slices(2, 0x6000_0000_0000)).collect()),
        Record::Touches(vec![Touch { object: 0, addr: base, pages: 4096, thread: 0, time_ns: 1 }]),
        Record::Stats(Stats {
            duration_ns: 4800 * PERIOD_NS,
            samples: 4800,
            resolved: 4800,
            achieved: 1.0,
            ..Stats::default()
        }),
        Record::Notes(vec![hostile("note")]),
        Record::End(Ended::Exited(0)),
    ];
    synthetic::write("hostile", &records)
}

/// A TOML string of `text` with escapes for everything but letters and digits.
fn toml(text: &str) -> String {
    let escaped: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_string() } else { format!("\\U{:08X}", c as u32) })
        .collect();
    format!("\"{escaped}\"")
}

/// A policy in which every text is hostile: what cannot be found, and a phase.
fn policy(program: Option<&str>) -> String {
    let program = program.map_or(String::new(), |p| format!("[program]\npath = {}\n", toml(p)));
    let rule = |key: &str, word: &str| {
        format!("[[object]]\n{key}\nwhy = {}\nplace = {{ policy = \"interleave\" }}\n", toml(&hostile(word)))
    };
    format!(
        "version = 1\n{program}[[phase]]\nname = {}\nafter = 0.01\n{}{}",
        toml(&hostile("phase")),
        rule(&format!("global = {}", toml(&hostile("global"))), "why"),
        rule(&format!("function = [{}]", toml(&hostile("function"))), "why"),
    )
}

/// Fails when `output` holds a character that controls a terminal or hides text, or a line that was forged.
fn examine(what: &str, output: &[u8], colors: bool) {
    let mut text = String::from_utf8(output.to_vec()).unwrap_or_else(|e| panic!("{what}: not UTF-8: {e}"));
    if colors {
        assert!(!text.contains("\x1b[1m\x1b[38;5;9m"), "{what}: styles of a name\n{text:?}");
        for style in ["\x1b[0m", "\x1b[1m", "\x1b[2m"] {
            text = text.replace(style, "");
        }
        (0..=255).for_each(|color| text = text.replace(&format!("\x1b[38;5;{color}m"), ""));
    }
    for c in text.chars().filter(|c| *c != '\n') {
        let shown = !c.is_control() && !HIDDEN.iter().any(|h| h.contains(c) && !c.is_ascii());
        assert!(shown, "{what}: {c:?} in\n{text:?}");
    }
    for line in text.lines() {
        let forged = ["numamma: all pages are", "[[object]]Next", "Next: rm"].iter().any(|f| line.starts_with(f));
        assert!(!forged, "{what}: the line {line:?} in\n{text}");
    }
}

/// Runs a command and examines what it wrote; returns stdout.
fn examined(command: &mut Command, colors: bool) -> String {
    let what = format!("{command:?}");
    let out = command.output().unwrap_or_else(|e| panic!("{what}: {e}"));
    examine(&format!("{what}, stdout"), &out.stdout, colors);
    examine(&format!("{what}, stderr"), &out.stderr, false);
    assert!(!out.stdout.is_empty() || !out.stderr.is_empty(), "{what} printed nothing");
    String::from_utf8(out.stdout).expect("examined above")
}

/// An argument of a command.
type Arg<'a> = &'a dyn AsRef<OsStr>;

fn numamma(dir: &Path, args: &[Arg]) -> String {
    let colors = args.iter().any(|a| a.as_ref() == "always");
    let mut command = plain(NUMAMMA);
    command.current_dir(dir).env("NUMAMMA_LIB", preload("apply").parent().expect("an absolute path"));
    examined(command.args(args.iter().map(|a| a.as_ref())), colors)
}

/// The words for a shell of the command in the line that begins with `start`.
fn words(text: &str, start: &str) -> Vec<String> {
    let line = text.lines().find_map(|l| l.strip_prefix(start)).unwrap_or_else(|| panic!("no {start:?} in\n{text}"));
    let out = Command::new("bash").args(["-c", &format!("printf '%s\\0' {line}")]).output().expect("bash");
    String::from_utf8(out.stdout).expect("UTF-8").split('\0').map(str::to_owned).collect()
}

#[test]
fn a_hostile_profile_is_only_shown() {
    let dir = Scratch::new("hostile-profile");
    // A file name that is hostile, too.
    let prof = dir.join(hostile("prof").replace('/', "_"));
    std::fs::rename(profile(), &prof).unwrap();
    let prof = &prof;
    for color in ["never", "always"] {
        let text = numamma(&dir, &[&"report", prof, &"--all", &"--color", &color]);
        let next = words(&text, "  or: ");
        assert_eq!(next[..2], ["numamma", "report"]);
        assert_eq!(next[2], prof.to_str().unwrap());
        let wanted = next[3].strip_prefix("--object=").unwrap_or_else(|| panic!("{next:?}"));
        let one = numamma(&dir, &[&"report", prof, &format!("--object={wanted}"), &"--color", &color]);
        assert!(one.contains("Pages x threads"), "the command that is shown names the object\n{one}");
    }
    for wanted in ["global", "function", "mapping", "thread", "no\x1b[2Jsuch\nthing"] {
        numamma(&dir, &[&"report", prof, &"--object", &wanted]);
    }
    let json: serde_json::Value = serde_json::from_str(&numamma(&dir, &[&"report", prof, &"--json"])).unwrap();
    assert_eq!(json["host"], hostile("host"));
    let names: Vec<&str> = json["objects"].as_array().unwrap().iter().filter_map(|o| o["linkage"].as_str()).collect();
    assert!(names.contains(&hostile("global").as_str()), "{names:?}");
    let target = "pack:4 numa:1 core:2";
    let advised = numamma(&dir, &[&"advise", prof, &"--target", &target]);
    let policy = check::parse(&advised).unwrap_or_else(|e| panic!("{e}\n{advised}"));
    assert_eq!(policy.program.as_ref().map(|p| p.path.clone()), Some(format!("/opt/{}", hostile("program"))));
    let globals: Vec<_> = policy.objects.iter().filter_map(|o| o.global.clone()).collect();
    assert!(globals.contains(&hostile("global")), "{advised}");
    let json = numamma(&dir, &[&"advise", prof, &"--target", &target, &"--json"]);
    assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{json}");
    let file = dir.join(hostile("policy").replace('/', "_"));
    std::fs::write(&file, &advised).unwrap();
    numamma(&dir, &[&"predict", prof, &"--target", &target, &"--objects", &"--policy", &file]);
    let json = numamma(&dir, &[&"predict", prof, &"--target", &target, &"--json", &"--policy", &file]);
    assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{json}");
    numamma(&dir, &[&"fixes", prof, &"--nodes", &"4"]);
    for format in ["--json", "--sarif"] {
        let json = numamma(&dir, &[&"fixes", prof, &"--nodes", &"4", &format]);
        assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{json}");
    }
    numamma(&dir, &[&"diff", prof, prof]);
    numamma(&dir, &[&"tune", &"--profile", prof, &"--runs", &"1", &"--", &"true"]);
    assert!(!dir.join("pwned").exists());
    // Damage is quoted with the file's name.
    let whole = std::fs::read(prof).unwrap();
    std::fs::write(prof, &whole[..whole.len() - 7]).unwrap();
    numamma(&dir, &[&"report", prof]);
    numamma(&dir, &[&"advise", prof, &"--nodes", &"2"]);
}

#[test]
fn hostile_policies_programs_and_arguments_are_only_shown() {
    let dir = Scratch::new("hostile-policy");
    let name = hostile("tiny").replace('/', "_");
    let program = compile("cc", "hostile/fuzz/tiny.c", dir.join(&name), &["-O1", "-g", "-pthread"]);
    let file = dir.join(hostile("policy").replace('/', "_"));
    for text in [
        policy(None),
        policy(Some(&name)),
        policy(Some("another\x1b[2Jprogram")),
        // Syntax and schema errors, which quote the line, the key or the value.
        format!("version = 1\nx\u{202e}\u{9b}2J = {SHELL}\n"),
        format!("version = 1\n{} = 1\n", toml(&hostile("key"))),
        format!("version = 1\n[[object]]\nglobal = \"x\"\nplace = {{ policy = {} }}\n", toml(&hostile("value"))),
        format!(
            "version = 1\n[[object]]\nglobal = \"x\"\nplace = {{ policy = \"bind\", nodes = {} }}\n",
            toml(&hostile("nodes"))
        ),
        format!("version = 1\n[threads]\nbind = [{}]\n", toml(&hostile("cpus"))),
    ] {
        std::fs::write(&file, &text).unwrap();
        for command in ["run", "verify"] {
            numamma(&dir, &[&command, &"--policy", &file, &program, &hostile("argument")]);
        }
        numamma(&dir, &[&"compare", &"-n", &"1", &"--policies", &file, &"--", &program, &hostile("argument")]);
        for (variable, value) in
            [("NUMAMMA_VERBOSE", "1"), ("NUMAMMA_STRICT", "1"), ("NUMAMMA_REPORT", "no\x1b[2J/dir")]
        {
            let out = placed(&program, &file).current_dir(&dir).env(variable, value).output().unwrap();
            examine("the apply library", &out.stderr, false);
        }
        numamma(&dir, &[&"predict", &profile(), &"--nodes", &"2", &"--policy", &file]);
    }
    std::fs::write(&file, policy(None)).unwrap();
    let json = numamma(&dir, &[&"verify", &"--json", &"--quiet", &"--policy", &file, &program]);
    let json =
        json.split_once('{').map(|(_, rest)| format!("{{{rest}")).unwrap_or_else(|| panic!("no object in {json:?}"));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["policy"], file.to_str().unwrap());
    numamma(&dir, &[&"advise", &"--static", &program, &"--nodes", &"2", &"--min-size", &"1"]);
    numamma(&dir, &[&"top", &"--batch", &"-n", &"1", &"-d", &"200ms", &program, &hostile("argument")]);
    let best = dir.join(hostile("best").replace('/', "_"));
    numamma(&dir, &[&"tune", &"--runs", &"1", &"-o", &best, &"--", &program, &hostile("argument")]);
    numamma(&dir, &[&"profile", &"-o", &dir.join(hostile("out").replace('/', "_")), &program, &hostile("argument")]);
}

#[test]
fn what_is_missing_or_wrong_is_only_shown() {
    let dir = Scratch::new("hostile-missing");
    let missing = hostile("missing").replace('/', "_");
    let (nowhere, option) = (dir.join(&missing).join("x"), format!("--{missing}"));
    let text = dir.write_mode("text", "no program", 0o755);
    let hostile_text = dir.write_mode(&hostile("text").replace('/', "_"), "no program", 0o755);
    let refused = dir.write_mode(&hostile("refused").replace('/', "_"), "no program", 0o644);
    let script = dir.write_mode("script", format!("#!/no/{}\n", hostile("interpreter").replace('\n', "")), 0o755);
    for path in [&dir.join(&missing), &text, &hostile_text, &refused, &script] {
        let lists: Vec<Vec<Arg>> = vec![
            vec![&"report", path],
            vec![&"advise", path],
            vec![&"advise", &"--static", path],
            vec![&"predict", path, &"--policy", path],
            vec![&"profile", path],
            vec![&"run", &"--policy", path, &"true"],
            vec![&"verify", &"--policy", path, path],
            vec![&"compare", &"--policies", path, &"true"],
            vec![&"advise", &"--target", path],
            vec![&"topology", &"-o", &nowhere],
        ];
        lists.iter().for_each(|args| _ = numamma(&dir, args));
    }
    let lists: Vec<Vec<Arg>> = vec![
        vec![&missing],
        vec![&"report", &option],
        vec![&"report", &"--top", &missing],
        vec![&"report", &"--color", &missing],
        vec![&"report", &"x", &missing],
        vec![&"advise", &"--target", &missing],
        vec![&"advise", &"--nodes", &missing],
        vec![&"advise", &"--min-size", &missing],
        vec![&"profile", &"--max-overhead", &missing, &"true"],
        vec![&"topology", &"--seconds", &missing],
    ];
    lists.iter().for_each(|args| _ = numamma(&dir, args));
}
