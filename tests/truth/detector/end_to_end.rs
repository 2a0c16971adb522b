//! The command itself on a profile file: stdout is a policy, stderr is for people.

use std::path::{Path, PathBuf};

use numamma::profile::file::Writer;
use numamma::profile::records::{
    Access, Certainty, Ended, Frame, Header, Instance, Module, Object, ObjectKind, Program, Record, Sampling, Stats,
    Thread,
};
use numamma::topology::Topology;
use numamma_plan::policy::{Block, PolicyKind, Size};

use super::random::Random;
use super::trace::PAGE;
use crate::common::{Ran, Scratch, numamma, run};

const THREADS: u32 = 8;
const PERIOD: u64 = 512 * PAGE;
const BASE: u64 = 0x60_0000;

fn header() -> Header {
    Header {
        numamma: "0.1.0".into(),
        program: Program { path: "/opt/app".into(), argv: vec!["app".into()], build_id: Some("5f1c".into()) },
        host: "here".into(),
        started_unix: 0,
        pid: 1,
        sampling: Sampling {
            sampler: "timer".into(),
            reason: "no PMU".into(),
            period_ns: 4_000_000,
            cost_ns: 0,
            max_overhead: 0.03,
        },
        page_size: PAGE,
        thp: "never".into(),
        topology: Topology::uniform(1, 2),
        allocations: true,
    }
}

fn thread(id: u32) -> Thread {
    Thread {
        id,
        pid: 1,
        tid: id + 1,
        name: "app".into(),
        start_routine: None,
        creator: None,
        created_at: vec![],
        task: None,
        waits: None,
        start_ns: 0,
        end_ns: None,
        cpus: vec![],
        migrations: 0,
        samples: 500,
    }
}

/// A profile of a global `field` that `THREADS` threads share out every `PERIOD`.
fn record(dir: &Path, samples: u64) -> PathBuf {
    record_with(dir, samples, |at, _| (at % PERIOD * u64::from(THREADS) / PERIOD) as u32)
}

/// The same with the user of a byte at a part of the run (0 to 1).
fn record_with(dir: &Path, samples: u64, user: impl Fn(u64, f64) -> u32) -> PathBuf {
    let path = dir.join("numamma.prof");
    let mut writer = Writer::create(&path).unwrap();
    let object = Object {
        id: 0,
        kind: ObjectKind::Global,
        name: "field".into(),
        module: Some(0),
        vaddr: BASE,
        site: None,
        pid: 1,
        instance: Instance { base: BASE, size: 20 * PERIOD, born_ns: 0, died_ns: None, thread: None },
    };
    let mut r = Random::new(7);
    let access = |i: u64, r: &mut Random| {
        let at = r.below(20 * PERIOD);
        Access {
            time_ns: i * 1_000_000,
            thread: user(at, i as f64 / samples as f64),
            cpu: 0,
            object: 0,
            addr: BASE + at,
            size: 8,
            write: false,
            certainty: Certainty::Exact,
            cost_ns: 4_000_000,
            node: 0,
            ip: Frame { module: 0, offset: 0x1000 },
        }
    };
    let accesses = (0..samples).map(|i| access(i, &mut r)).collect();
    let stats = Stats { duration_ns: samples * 1_000_000, samples, resolved: samples, ..Stats::default() };
    for record in [
        Record::Header(header()),
        Record::Modules(vec![Module { id: 0, path: "/opt/app".into(), build_id: None, read_only: vec![] }]),
        Record::Threads((0..THREADS).map(thread).collect()),
        Record::Objects(vec![object]),
        Record::Accesses(accesses),
        Record::Stats(stats),
        Record::End(Ended::Exited(0)),
    ] {
        writer.append(&record).unwrap();
    }
    path
}

fn advise(dir: &Path, args: &[&str]) -> Ran {
    run(numamma(&["advise"]).args(args).current_dir(dir))
}

fn scratch(name: &str) -> Scratch {
    Scratch::new(&format!("advise-{name}"))
}

#[test]
fn stdout_is_the_policy_and_nothing_else() {
    let dir = scratch("policy");
    let path = record(&dir, 4000);
    let out = advise(&dir, &["--nodes", "4"]);
    let (text, words) = (out.stdout, out.stderr);
    assert!(out.status.success(), "{words}");
    let policy = numamma_plan::check::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let [rule] = policy.objects.as_slice() else { panic!("{text}") };
    assert_eq!(rule.global.as_deref(), Some("field"));
    assert_eq!(rule.address, Some(BASE));
    assert_eq!(rule.place.policy, PolicyKind::BlockCyclic);
    assert_eq!(rule.place.block, Some(Block::Size(Size(PERIOD / 4))));
    assert!(words.contains("block-cyclic") && words.contains("field"), "{words}");

    let quiet = advise(&dir, &["-q", "--nodes", "4", "-o", "policy.toml", path.to_str().unwrap()]);
    assert!(quiet.status.success() && quiet.stdout.is_empty() && quiet.stderr.is_empty(), "{quiet:?}");
    assert_eq!(std::fs::read_to_string(dir.join("policy.toml")).unwrap(), text);

    let json = advise(&dir, &["--json"]).json();
    assert_eq!(json["objects"][0]["pattern"]["kind"], "block-cyclic");
    assert_eq!(json["objects"][0]["pattern"]["period"], PERIOD);
}

/// Threads that change sides half way: both halves with their times, and one placement with the reason.
#[test]
fn phases_are_shown_with_their_times() {
    let dir = scratch("phases");
    let slice = |at: u64| (at * u64::from(THREADS) / (20 * PERIOD)) as u32;
    record_with(&dir, 6000, |at, when| (slice(at) + if when < 0.5 { 0 } else { THREADS / 2 }) % THREADS);
    let report = |args: &[&str]| run(numamma(&["report"]).args(args).current_dir(&dir)).success();
    let json = report(&["--json"]).json();
    let pattern = &json["objects"][0]["pattern"];
    assert_eq!(pattern["kind"], "phased", "{pattern:#}");
    let phases = pattern["phases"].as_array().unwrap();
    assert_eq!(phases.len(), 2, "{pattern:#}");
    // 6 s in all; a time slot is a 64th of it.
    assert!((phases[0]["end_s"].as_f64().unwrap() - 3.0).abs() < 0.2, "{pattern:#}");
    assert!(phases.iter().all(|p| p["kind"] == "block"), "{pattern:#}");
    let text = report(&["--object", "field"]).stdout;
    assert!(text.contains("0.00 s to") && text.contains("6.00 s (") && text.contains("phased"), "{text}");
    let policy = advise(&dir, &["--nodes", "2"]).stdout;
    numamma_plan::check::parse(&policy).unwrap_or_else(|e| panic!("{e}\n{policy}"));
    assert!(policy.contains("phases"), "{policy}");
}

#[test]
fn reads_and_writes_are_judged_apart() {
    let dir = scratch("access");
    record(&dir, 4000);
    let kind = |args: &[&str]| {
        let json = advise(&dir, &[&["--json", "--nodes", "4"], args].concat()).json();
        json["objects"][0]["pattern"]["kind"].as_str().unwrap().to_owned()
    };
    assert_eq!(kind(&["--access", "read"]), "block-cyclic");
    assert_eq!(kind(&["--access", "all"]), "block-cyclic");
    // The made profile holds no write.
    assert_eq!(kind(&["--access", "write"]), "unsure");
}

#[test]
fn unusable_profiles_are_one_clear_message() {
    let dir = scratch("bad");
    let none = advise(&dir, &[]);
    assert_eq!((none.status.code(), none.stdout.len()), (Some(2), 0));
    assert!(none.stderr.contains("numamma profile -- ./app"));
    record(&dir, 0);
    let empty = advise(&dir, &[]);
    assert_eq!((empty.status.code(), empty.stdout.len()), (Some(2), 0));
    assert!(empty.stderr.contains("-F"), "{empty:?}");
    let path = record(&dir, 4000);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 5]).unwrap();
    let torn = advise(&dir, &["--nodes", "2"]);
    assert!(torn.status.success(), "{torn:?}");
    assert!(torn.stderr.contains("cut short"), "{}", torn.stderr);
    numamma_plan::check::parse(&torn.stdout).unwrap();
}
