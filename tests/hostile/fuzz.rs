//! The whole apply library at start-up, given policy files from a fuzzer: a program that behaves as without them, one line
//! for a policy that cannot be used, and status 78 for it where NUMAMMA_STRICT asks.
//!
//! `NUMAMMA_FUZZ_SECONDS=600 NUMAMMA_FUZZ_SEED=7 cargo test --test hostile fuzz` goes on for longer, from another seed. A policy
//! that fails is kept in tests/hostile/fuzz/corpus, where every later run begins. The readers alone, without a program:
//! crates/plan/src/fuzz_tests.rs.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use numamma::launch::library;

#[allow(dead_code)] // crates/plan uses the rest
pub mod generate;

use self::generate::Random;

/// Runs when no time is given: under ten seconds.
const RUNS: usize = 800;
/// One run takes milliseconds; a hang is a failure.
const LIMIT: Duration = Duration::from_secs(30);
/// Lines for a policy that can be used in part: one about the build, one about mappings, one about what was refused, and
/// one for each rule at most.
const LINES_BESIDES_RULES: usize = 4;
const OUTPUT: &str = "173 2\n";
const STATUS: i32 = 5;
const EXIT_CONFIG: i32 = 78;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The program and where its policies are put.
struct Bench {
    dir: PathBuf,
    apply: PathBuf,
}

impl Bench {
    fn new() -> Bench {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-g", "-pthread", "-o"]).arg(dir.join("tiny")).arg(root().join("tests/hostile/fuzz/tiny.c"));
        assert!(cc.status().unwrap().success());
        Bench { dir, apply: library::find("apply").unwrap() }
    }

    /// Status, signal, output and lines on stderr.
    fn run(&self, policy: &str, strict: bool) -> Result<(i32, String, Vec<String>), String> {
        let file = self.dir.join("policy.toml");
        std::fs::write(&file, policy).unwrap();
        let mut command = Command::new(self.dir.join("tiny"));
        command.env("LD_PRELOAD", &self.apply).env("NUMAMMA_POLICY", &file).env_remove("NUMAMMA_STRICT");
        if strict {
            command.env("NUMAMMA_STRICT", "1");
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let started = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if started.elapsed() > LIMIT {
                let _ = child.kill();
                let _ = child.wait();
                return Err("it hung".into());
            }
            std::thread::sleep(Duration::from_micros(300));
        }
        let out = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&out.stderr);
        let lines: Vec<String> = stderr.lines().map(str::to_owned).collect();
        let code = out.status.code().ok_or(format!("killed by signal {:?}: {lines:?}", out.status.signal()))?;
        if lines.iter().any(|l| !l.starts_with("numamma: ")) {
            return Err(format!("words that are not ours: {lines:?}"));
        }
        Ok((code, String::from_utf8_lossy(&out.stdout).into_owned(), lines))
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

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn no_policy_file_hurts_a_program() {
    let corpus = root().join("tests/hostile/fuzz/corpus");
    let folders = [corpus.clone(), root().join("policies")];
    let mut files: Vec<PathBuf> =
        folders.iter().flat_map(|d| std::fs::read_dir(d).unwrap()).map(|f| f.unwrap().path()).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "toml"));
    files.sort();
    let seeds: Vec<String> =
        files.iter().map(|p| String::from_utf8_lossy(&std::fs::read(p).unwrap()).into_owned()).collect();
    let bench = Bench::new();
    for (text, path) in seeds.iter().zip(&files) {
        bench.examine(text).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    }
    let seed = variable("NUMAMMA_FUZZ_SEED").unwrap_or(1);
    let end = variable("NUMAMMA_FUZZ_SECONDS").map(|s| Instant::now() + Duration::from_secs(s));
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let (mut count, mut valid) = (0, 0);
    while end.map_or(count < RUNS, |end| Instant::now() < end) {
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
    let _ = std::fs::remove_dir_all(&bench.dir);
    eprintln!("{count} policies, {valid} of them valid");
    assert!(valid > count / 5, "only {valid} of {count} policies are valid: the test says little");
}
