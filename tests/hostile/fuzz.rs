//! The whole apply library at start-up, given policy files from a fuzzer: a program that behaves as without them, one
//! line for a policy that cannot be used, and status 78 for it where NUMAMMA_STRICT asks.
//!
//! `NUMAMMA_FUZZ_SECONDS=600 NUMAMMA_FUZZ_SEED=7 cargo test --test hostile fuzz -- --ignored` goes on for longer. A
//! policy that fails is kept in tests/hostile/fuzz/corpus, where every later run begins. The readers alone, without a
//! program: crates/plan/src/fuzz_tests.rs.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::common::{Scratch, compile, placed, root, run_within, source};

#[allow(dead_code)] // crates/plan uses the rest
pub mod generate;

use self::generate::Random;

/// Random files of the short test: under ten seconds.
const RUNS: usize = 800;
/// One run takes milliseconds; a hang is a failure.
const LIMIT: Duration = Duration::from_secs(30);
/// Lines for a policy that can be used in part: one about the build, one about mappings, one about what was refused,
/// and one for each rule at most.
const LINES_BESIDES_RULES: usize = 4;
const OUTPUT: &str = "173 2\n";
const STATUS: i32 = 5;
const EXIT_CONFIG: i32 = 78;

/// Time of the long test when none is given.
const LONG: Duration = Duration::from_secs(120);

/// The program, and where its policies are put.
struct Bench {
    dir: Scratch,
    program: PathBuf,
}

impl Bench {
    fn new(name: &str) -> Bench {
        let dir = Scratch::new(name);
        let program = compile("cc", "hostile/fuzz/tiny.c", dir.join("tiny"), &["-O1", "-g", "-pthread"]);
        Bench { dir, program }
    }

    /// Status, output and lines on stderr.
    fn run(&self, policy: &str, strict: bool) -> Result<(i32, String, Vec<String>), String> {
        let mut command = placed(&self.program, self.dir.write("policy.toml", policy));
        if strict {
            command.env("NUMAMMA_STRICT", "1");
        }
        let ran = run_within(command, LIMIT, &self.dir)?;
        let (ours, theirs) = ran.messages();
        let code = ran.code().ok_or(format!("killed by signal {:?}: {ours:?}", ran.signal()))?;
        if !theirs.is_empty() {
            return Err(format!("lines on stderr that are not NumaMMA's: {theirs:?}"));
        }
        Ok((code, ran.stdout.clone(), ours.into_iter().map(str::to_owned).collect()))
    }

    /// What must hold for any policy file.
    fn examine(&self, policy: &str) -> Result<(), String> {
        let parsed = numamma_plan::check::parse(policy);
        let (code, output, lines) = self.run(policy, false)?;
        if (code, output.as_str()) != (STATUS, OUTPUT) {
            return Err(format!("status {code}, output {output:?}, {lines:?}"));
        }
        let most = parsed.as_ref().map_or(1, |p| LINES_BESIDES_RULES + p.objects.len() + p.phases.len());
        if lines.len() > most || parsed.is_err() && lines.is_empty() {
            return Err(format!("{} lines: {lines:?}", lines.len()));
        }
        match self.run(policy, true)? {
            (EXIT_CONFIG, output, lines) if output.is_empty() && !lines.is_empty() => Ok(()),
            (STATUS, output, _) if output == OUTPUT && parsed.is_ok() => Ok(()),
            other => {
                Err(format!("strict: {other:?}, and the policy is {}", if parsed.is_ok() { "valid" } else { "not" }))
            }
        }
    }
}

/// A number in the environment.
pub fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Policy files from the corpus, then random ones from `seed`: `most` of them, or until `end`.
fn no_policy_file_hurts(name: &str, seed: u64, most: usize, end: Option<Instant>) {
    let corpus = source("hostile/fuzz/corpus");
    let folders = [corpus.clone(), root().join("policies")];
    let mut files: Vec<PathBuf> =
        folders.iter().flat_map(|d| std::fs::read_dir(d).unwrap()).map(|f| f.unwrap().path()).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "toml"));
    files.sort();
    let seeds: Vec<String> =
        files.iter().map(|p| String::from_utf8_lossy(&std::fs::read(p).unwrap()).into_owned()).collect();
    let bench = Bench::new(name);
    for (text, path) in seeds.iter().zip(&files) {
        bench.examine(text).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let (mut count, mut valid) = (0, 0);
    while count < most && end.is_none_or(|end| Instant::now() < end) {
        let fresh = generate::policy(&mut random);
        // The readers are fuzzed elsewhere: here most must get past them.
        let text = match random.below(4) {
            0 => generate::mutate(&mut random, &seeds[count % seeds.len()], &fresh),
            1 => generate::mutate(&mut random, &fresh, &seeds[count % seeds.len()]),
            _ => fresh,
        };
        if let Err(why) = bench.examine(&text) {
            let name = corpus.join(format!("failed-start-{seed}-{count}.toml"));
            std::fs::write(&name, &text).unwrap();
            panic!("{why}\nkept in {}:\n{text}", name.display());
        }
        valid += usize::from(numamma_plan::check::parse(&text).is_ok());
        count += 1;
    }
    eprintln!("{count} policies, {valid} of them valid");
    assert!(valid > count / 5, "only {valid} of {count} policies are valid: the test says little");
}

#[test]
fn no_policy_file_hurts_a_program() {
    no_policy_file_hurts("fuzz", 1, RUNS, None);
}

/// `NUMAMMA_FUZZ_SECONDS` and `NUMAMMA_FUZZ_SEED` choose how long, and from where.
#[test]
#[ignore = "long: make test-long"]
fn no_policy_file_hurts_a_program_for_minutes() {
    let time = variable("NUMAMMA_FUZZ_SECONDS").map_or(LONG, Duration::from_secs);
    let seed = variable("NUMAMMA_FUZZ_SEED").unwrap_or(2);
    no_policy_file_hurts("fuzz-long", seed, usize::MAX, Some(Instant::now() + time));
}
