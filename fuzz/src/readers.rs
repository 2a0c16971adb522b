//! The reader that `NUMAMMA_READER` names, for libFuzzer.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/hostile/readers/targets.rs"]
mod targets;

use targets::{READERS, Reader};

/// The reader, and a directory for its files.
static READER: LazyLock<(Reader, PathBuf)> = LazyLock::new(|| {
    let name = std::env::var("NUMAMMA_READER").expect("NUMAMMA_READER names a reader");
    let (_, reader) = READERS.iter().find(|(known, _)| *known == name).expect("NUMAMMA_READER is not a reader");
    let dir = std::env::temp_dir().join(format!("numamma-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory for temporary files");
    (*reader, dir)
});

fuzz_target!(|data: &[u8]| {
    READER.0(data, &READER.1);
});
