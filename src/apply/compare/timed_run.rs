//! One run of the program: started, its output read and not shown, its time measured, its pages counted if asked for.
//!
//! The time is from before fork to the end that the kernel reports, so that it includes what a preload costs at
//! start-up. Reading `numa_maps` stops the program's page faults for as long as it takes: it is only done in runs that
//! are not timed. [`signals`] forwards signals; a program that has not ended within [`GRACE`] after one is killed.

use std::hash::{DefaultHasher, Hasher};
use std::io::{self, PipeReader, Read};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::residency::{Residency, children};
use crate::launch::exit::{Ended, wait_unreaped};
use crate::launch::signals;

/// Time between a signal that asks the program to end and SIGKILL.
const GRACE: Duration = Duration::from_secs(3);
/// Longest time between two checks for signals.
const CHECK: Duration = Duration::from_millis(100);
/// First pause between two counts of pages; doubled up to [`CHECK`].
const FIRST_PAUSE: Duration = Duration::from_millis(4);
/// A count that takes long is followed by a pause this many times as long: the program may take page faults most of the
/// time, and what it had before its end is still seen where counts are slow (large programs, loaded machines).
const PAUSE_PER_COUNT: u32 = 5;
/// Longest time the pipes are read after the end of the program, as processes that it started may go on writing.
const LEFT_OVER: Duration = Duration::from_millis(500);
/// Bytes kept of the beginning of stdout, to show where outputs differ.
const HEAD: usize = 1 << 18;
/// Bytes kept of the end of stderr, to show why a program failed.
const TAIL: usize = 4096;

/// What the program printed on stdout.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// Hash of all of it.
    pub digest: u64,
    /// Bytes of all of it.
    pub bytes: u64,
    /// Its first [`HEAD`] bytes.
    pub head: Vec<u8>,
}

/// A run that has ended.
#[derive(Debug)]
pub struct Finished {
    /// From before the start to the end, seconds.
    pub seconds: f64,
    /// How it ended.
    pub ended: Ended,
    /// What it printed on stdout.
    pub output: Output,
    /// The last bytes of stderr.
    pub errors: Vec<u8>,
    /// Pages by node when the program had most of them; the reason why there is no count otherwise.
    pub residency: Result<Residency, String>,
}

/// Runs `command` to its end. `count`: count its pages meanwhile, which disturbs the time.
///
/// # Errors
/// When it cannot be started or waited for.
pub fn run(mut command: Command, count: bool) -> io::Result<Finished> {
    let (out, out_end) = io::pipe()?;
    let (err, err_end) = io::pipe()?;
    let (done, done_end) = io::pipe()?;
    command.stdin(stdin()).stdout(out_end).stderr(err_end);
    std::thread::scope(|scope| {
        // Both ends are dropped on an error, before the scope waits for its thread.
        let (send_pid, receive_pid) = mpsc::channel();
        // Made before the program, which cannot run without it. Ends when the program has not been started.
        let waiter = std::thread::Builder::new().spawn_scoped(scope, move || {
            receive_pid.recv().map(wait_unreaped).ok();
            let now = Instant::now();
            drop(done_end);
            now
        })?;
        let started = Instant::now();
        let mut child = command.spawn()?;
        drop(command); // and with it this process's copies of the writing ends
        let pid = child.id();
        signals::forward_signals(pid as i32);
        // The waiter lives until it has received it.
        let _ = send_pid.send(pid);
        let mut watch = Watch::new(pid, count);
        watch.follow([out, err], &done);
        let end = waiter.join().unwrap_or_else(|_| Instant::now());
        signals::forget_child();
        let ended = child.wait()?.into();
        Ok(watch.finished(ended, (end - started).as_secs_f64()))
    })
}

/// A redirected file is read from its beginning by every run; a terminal or pipe can be read only once, so it is not.
fn stdin() -> Stdio {
    let path = "/proc/self/fd/0";
    let file = std::fs::metadata(path).is_ok_and(|m| m.is_file());
    file.then(|| std::fs::File::open(path).ok()).flatten().map_or_else(Stdio::null, Stdio::from)
}

/// What is collected while the program runs.
struct Watch {
    pid: u32,
    count: bool,
    output: Output,
    hasher: DefaultHasher,
    errors: Vec<u8>,
    residency: Result<Residency, String>,
    pause: Duration,
    next_count: Instant,
    kill_at: Option<Instant>,
}

impl Watch {
    fn new(pid: u32, count: bool) -> Watch {
        let reason = if count { "it ended before its pages could be counted" } else { "not counted in a timed run" };
        Watch {
            pid,
            count,
            output: Output::default(),
            hasher: DefaultHasher::new(),
            errors: Vec::new(),
            residency: Err(reason.to_owned()),
            pause: FIRST_PAUSE,
            next_count: Instant::now() + FIRST_PAUSE,
            kill_at: None,
        }
    }

    /// What was collected of a run that has ended.
    fn finished(self, ended: Ended, seconds: f64) -> Finished {
        let output = Output { digest: self.hasher.finish(), ..self.output };
        Finished { seconds, ended, output, errors: self.errors, residency: self.residency }
    }

    /// Reads both pipes until the program has ended and they are empty. Processes that it started may keep them open:
    /// they are not waited for.
    fn follow(&mut self, mut pipes: [PipeReader; 2], done: &PipeReader) {
        let mut open = [true; 2];
        let mut ended: Option<Instant> = None;
        loop {
            // A negative number is skipped by poll.
            let fd = |i: usize, p: &PipeReader| if open[i] { p.as_raw_fd() } else { -1 };
            let mut polled = [fd(0, &pipes[0]), fd(1, &pipes[1]), done.as_raw_fd()].map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            });
            let wait = if self.count { self.next_count.saturating_duration_since(Instant::now()) } else { CHECK };
            // SAFETY: three initialised pollfds of open files.
            unsafe { libc::poll(polled.as_mut_ptr(), 3, wait.min(CHECK).as_millis() as i32 + 1) };
            let mut read = false;
            for i in 0..2 {
                if polled[i].revents != 0 {
                    read = true;
                    open[i] = self.take(i, &mut pipes[i]);
                }
            }
            if polled[2].revents == 0 {
                self.signals();
                self.pages();
            } else if !read || ended.get_or_insert_with(Instant::now).elapsed() > LEFT_OVER {
                return;
            }
        }
    }

    /// Reads once from a pipe that is readable; false at its end.
    fn take(&mut self, pipe: usize, from: &mut PipeReader) -> bool {
        let mut buffer = [0u8; 1 << 16];
        let got = match from.read(&mut buffer) {
            Ok(0) => return false,
            Ok(n) => &buffer[..n],
            Err(e) => return e.kind() == io::ErrorKind::Interrupted,
        };
        if pipe == 0 {
            self.hasher.write(got);
            self.output.bytes += got.len() as u64;
            let room = HEAD - self.output.head.len();
            self.output.head.extend_from_slice(&got[..got.len().min(room)]);
        } else {
            self.errors.extend_from_slice(got);
            let surplus = self.errors.len().saturating_sub(TAIL);
            self.errors.drain(..surplus);
        }
        true
    }

    fn signals(&mut self) {
        if signals::asked_to_end().is_none() {
            return;
        }
        let now = Instant::now();
        if now >= *self.kill_at.get_or_insert(now + GRACE) {
            kill_family(self.pid);
        }
    }

    fn pages(&mut self) {
        let now = Instant::now();
        if !self.count || now < self.next_count {
            return;
        }
        let found = Residency::of(self.pid);
        let larger = |now: &Residency| self.residency.as_ref().is_ok_and(|before| before.total() > now.total());
        match found {
            // A process that has just ended shows an empty map; a program that frees its memory at the end shows less.
            Ok(now) if now.total() == 0 || larger(&now) => {}
            Ok(now) => self.residency = Ok(now),
            Err(reason) if self.residency.is_err() => self.residency = Err(reason),
            Err(_) => {}
        }
        self.pause = (2 * self.pause).min(CHECK).max(PAUSE_PER_COUNT * now.elapsed());
        self.next_count = Instant::now() + self.pause;
    }
}

/// Kills the child `pid` and what it has started: a script or a recorder must not leave its program behind.
fn kill_family(pid: u32) {
    // SAFETY: signals to a process that this one has not reaped, or that a stopped one has started, and so cannot reap.
    let send = |signal| unsafe { libc::kill(pid as i32, signal) };
    send(libc::SIGSTOP);
    children(pid).into_iter().for_each(kill_family);
    send(libc::SIGKILL);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut c = Command::new("/bin/sh");
        c.args(["-c", script]);
        c
    }

    #[test]
    fn output_time_and_status_of_a_run() {
        let f = run(sh("echo out; echo err >&2; sleep 0.2; exit 3"), false).unwrap();
        assert_eq!((f.output.head.as_slice(), f.errors.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
        assert_eq!(f.ended, Ended::Exited(3));
        assert!((0.2..2.0).contains(&f.seconds), "{}", f.seconds);
        assert!(f.residency.is_err());
        let same = run(sh("echo out"), false).unwrap().output;
        assert_eq!(same, f.output);
        assert_ne!(run(sh("echo other"), false).unwrap().output.digest, same.digest);
    }

    #[test]
    fn more_than_a_pipe_holds_and_what_is_left_behind() {
        let started = Instant::now();
        let f = run(sh("sleep 5 & head -c 3000000 /dev/zero; echo end >&2"), false).unwrap();
        assert_eq!((f.output.bytes, f.output.head.len()), (3_000_000, HEAD));
        assert!(started.elapsed() < Duration::from_secs(4), "the background process is not waited for");
    }

    #[test]
    fn pages_are_counted_while_it_runs() {
        let f = run(sh("sleep 0.3"), true).unwrap();
        match f.residency {
            Ok(r) => assert!(r.total() > 0),
            Err(reason) => assert!(reason.contains("numa_maps"), "{reason}"),
        }
    }

    #[test]
    fn nothing_that_the_program_started_is_left() {
        let (mut from, to) = io::pipe().unwrap();
        let mut child = sh("sh -c 'sleep 60; :' & echo; wait").stdout(to).spawn().unwrap();
        assert_eq!(from.read(&mut [0; 1]).unwrap(), 1);
        let started = Instant::now();
        while children(child.id()).iter().all(|sh| children(*sh).is_empty()) {
            assert!(started.elapsed() < Duration::from_secs(20), "the shell starts sleep");
        }
        kill_family(child.id());
        child.wait().unwrap();
        // The pipe ends with the last process that has it.
        assert_eq!(from.read(&mut [0; 1]).unwrap(), 0);
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    }

    #[test]
    fn what_does_not_exist_cannot_start() {
        assert!(run(Command::new("/nonexistent/program"), false).is_err());
    }
}
