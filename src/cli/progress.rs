//! What a person at a terminal sees while a command works for longer than a second. Files and pipes get nothing.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use numamma_kernel::terminal;

use crate::launch::exit::show_progress;
use crate::merge;
use crate::profile::file;

/// What takes less time needs no bar.
const SOON: Duration = Duration::from_secs(1);
/// Time between two pictures of a bar.
const PICTURE: Duration = Duration::from_millis(100);
/// indicatif's words for a bar in the width that is left.
const BAR: &str = "numamma: {msg} [{wide_bar}] {percent}% of {total_bytes}, {eta} left";
const SPINNER: &str = "numamma: {msg} {spinner}";

/// A bar on stderr, from a second after it was made until it is dropped.
struct Bar(Option<(Sender<()>, JoinHandle<()>)>);

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.0.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}

/// Does `work`, which reads these profiles; a directory stands for its profiles.
pub fn while_reading<T>(profiles: &[PathBuf], work: impl FnOnce() -> T) -> T {
    let _bar = io::stderr().is_terminal().then(|| reading(profiles));
    work()
}

fn reading(profiles: &[PathBuf]) -> Bar {
    let (files, _) = merge::listed(profiles);
    let bytes = files.iter().filter_map(|file| file.metadata().ok()).map(|m| m.len()).sum();
    let words = match &files[..] {
        [one] => format!("reading {}", terminal::line(&one.to_string_lossy())),
        several => format!("reading {} profiles", several.len()),
    };
    let from = file::bytes_read();
    bar(words, bytes, move || file::bytes_read() - from)
}

/// Draws `words` and how many of `total` bytes are `done`; when all of them are, that something is still computed.
fn bar(words: String, total: u64, done: impl Fn() -> u64 + Send + 'static) -> Bar {
    let (end, ended) = channel::<()>();
    let draw = move || {
        if ended.recv_timeout(SOON) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr()).with_message(words);
        let style = |template| ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style(BAR));
        let mut working = false;
        while ended.recv_timeout(PICTURE) == Err(RecvTimeoutError::Timeout) {
            bar.set_position(done());
            if !working && done() >= total {
                working = true;
                bar.set_style(style(SPINNER));
                bar.set_message("computing");
            }
            bar.tick();
        }
        bar.finish_and_clear();
    };
    // Without a thread there is no bar.
    Bar(Builder::new().name("progress".into()).spawn(draw).ok().map(|thread| (end, thread)))
}

/// Whether a line that is replaced may be on the terminal while a program runs: not where the program's output is, too.
pub fn may_mix_with_a_program(quiet: bool) -> bool {
    !quiet && io::stderr().is_terminal() && !io::stdout().is_terminal()
}

/// Whether [`recorded`] has written its line.
static RECORDED: AtomicBool = AtomicBool::new(false);

/// Shows how long a recording goes on.
pub fn recorded(since: Duration, samples: u64) {
    RECORDED.store(true, Ordering::Relaxed);
    show_progress(&format!("recording: {} s, {samples} samples", since.as_secs()));
}

/// Removes the line of [`recorded`].
pub fn end_of_recording() {
    if RECORDED.swap(false, Ordering::Relaxed) {
        show_progress("");
    }
}
