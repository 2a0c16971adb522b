//! Every reader of what may come from outside, given damaged files: an answer or an error, never a panic.
//!
//! Each reader begins with real files (the corpus), and goes on with mutations of them: bytes, numbers, spans that are
//! copied, cut or repeated, and words of the format. Profiles are mutated before they are packed, so that the checksum
//! and LZ4 do not refuse all of them. What a reader accepts is used: reported, advised on, written again.
//!
//! `NUMAMMA_FUZZ_SECONDS=600 NUMAMMA_FUZZ_SEED=7 cargo test --test hostile readers -- --ignored` goes on for longer. An
//! input that fails is kept in tests/hostile/readers/failed, where every later run begins. fuzz/ runs the same readers
//! guided by coverage; with `NUMAMMA_CORPORA=DIR` the short test writes the corpora to DIR for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::{Scratch, source};
use crate::fuzz::generate::Random;
use crate::fuzz::variable;

mod corpora;
mod mutate;
mod targets;

use corpora::corpus;
use mutate::mutate;
use targets::{READERS, Reader};

/// Inputs of the short test for each reader: about a second each.
const INPUTS: usize = 1500;
/// Time of the long test for all readers together when none is given.
const LONG: Duration = Duration::from_secs(90);
/// One of so many inputs must be accepted: readers that refuse nearly all at once would show little.
const LEAST_ACCEPTED: usize = 100;
/// Accepted inputs that later mutations begin with, at most.
const POOL: usize = 200;

/// Gives the reader its corpus and mutations of it: `most`, or until `end`. Returns how many, and how many it accepted.
fn fuzz(name: &str, reader: Reader, dir: &Path, seed: u64, most: usize, end: Option<Instant>) -> (usize, usize) {
    let corpus = corpus(name);
    let mut pool = corpus.inputs;
    assert!(!pool.is_empty(), "{name}: no corpus");
    let examine = |data: &[u8]| match catch_unwind(AssertUnwindSafe(|| reader(data, dir))) {
        Ok(accepted) => accepted,
        Err(why) => {
            eprintln!("{name}: kept in {}", keep(name, seed, data).display());
            std::panic::resume_unwind(why);
        }
    };
    for data in pool.iter().chain(&failed_before(name)) {
        examine(data);
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let (mut count, mut accepted) = (0, 0);
    while count < most / corpus.cost && end.is_none_or(|end| Instant::now() < end) {
        let (first, other) = (random.below(pool.len()), random.below(pool.len()));
        let data = mutate(&mut random, &pool[first], &pool[other], corpus.words);
        if examine(&data) {
            accepted += 1;
            if pool.len() < POOL && random.once_in(20) {
                pool.push(data);
            }
        }
        count += 1;
    }
    eprintln!("{name}: {count} inputs, {accepted} accepted");
    (count, accepted)
}

fn failed() -> PathBuf {
    source("hostile/readers/failed")
}

/// Keeps an input on which the reader failed.
fn keep(name: &str, seed: u64, data: &[u8]) -> PathBuf {
    let path = failed().join(format!("{seed}-{:08x}.{name}", crc32fast::hash(data)));
    std::fs::create_dir_all(failed()).and_then(|()| std::fs::write(&path, data)).expect("the input cannot be kept");
    path
}

/// Inputs on which the reader failed in an earlier run.
fn failed_before(name: &str) -> Vec<Vec<u8>> {
    let files = std::fs::read_dir(failed()).into_iter().flatten().map(|f| f.unwrap().path());
    files.filter(|p| p.extension().is_some_and(|e| e == name)).map(|p| std::fs::read(p).unwrap()).collect()
}

fn every_reader(name: &str, seed: u64, most: usize, time: Option<Duration>) {
    let dir = Scratch::new(name);
    for (name, reader) in READERS {
        let end = time.map(|time| Instant::now() + time / READERS.len() as u32);
        let (count, accepted) = fuzz(name, reader, &dir, seed, most, end);
        assert!(accepted > count / LEAST_ACCEPTED, "{name}: only {accepted} of {count} accepted");
    }
}

#[test]
fn no_file_hurts_a_reader() {
    if let Some(dir) = std::env::var_os("NUMAMMA_CORPORA").map(PathBuf::from) {
        for (name, _) in READERS {
            std::fs::create_dir_all(dir.join(name)).unwrap();
            for (i, data) in corpus(name).inputs.into_iter().enumerate() {
                std::fs::write(dir.join(name).join(format!("first-{i}")), data).unwrap();
            }
        }
    }
    every_reader("readers", 1, INPUTS, None);
}

/// `NUMAMMA_FUZZ_SECONDS` and `NUMAMMA_FUZZ_SEED` choose how long, and from where.
#[test]
#[ignore = "long: make test-long"]
fn no_file_hurts_a_reader_for_minutes() {
    let time = variable("NUMAMMA_FUZZ_SECONDS").map_or(LONG, Duration::from_secs);
    every_reader("readers-long", variable("NUMAMMA_FUZZ_SEED").unwrap_or(2), usize::MAX, Some(time));
}
