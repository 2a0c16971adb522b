//! Reads profiles in parallel, and hands them on in their order.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use super::files::{LeftOut, listed, of_one_program};
use super::groups::Builder;
use super::{Many, Member, groups};
use crate::profile::file::FileError;
use crate::profile::summary::Summary;

/// Profiles that are read at a time, at most: each is in memory as a whole.
const AT_A_TIME: usize = 4;

/// Reads the profiles that `names` stand for. What cannot be read, and what is of another program than most, is left
/// out.
///
/// # Errors
/// When nothing is left: what each file lacks.
pub fn load(names: &[PathBuf]) -> Result<Many, Vec<LeftOut>> {
    let (files, mut left_out) = listed(names);
    if let [file] = &files[..] {
        return match Summary::load(file) {
            Ok(summary) => Ok(single(file.clone(), summary, left_out)),
            Err(e) => {
                left_out.push(LeftOut { why: e.to_string() });
                Err(left_out)
            }
        };
    }
    let files = of_one_program(files, &mut left_out);
    let mut builder = Builder::default();
    let workers = thread::available_parallelism().map_or(1, |n| n.get()).min(AT_A_TIME).min(files.len().max(1));
    thread::scope(|scope| {
        // Each reads every n-th file and waits with it, so there are never more in memory, and their order is that of
        // the files.
        let channels: Vec<(Receiver<Result<Summary, FileError>>, bool)> = (0..workers)
            .map(|first| {
                let (to, from) = sync_channel(0);
                let own = files.iter().skip(first).step_by(workers);
                let work = move || {
                    for file in own {
                        if to.send(Summary::load_beside_others(file)).is_err() {
                            return;
                        }
                    }
                };
                (from, thread::Builder::new().spawn_scoped(scope, work).is_ok())
            })
            .collect();
        for (file, (from, started)) in files.iter().zip(channels.iter().cycle()) {
            // Where no thread could be created, its part is read here.
            let loaded = if *started { from.recv() } else { Ok(Summary::load_beside_others(file)) };
            match loaded {
                Ok(Ok(summary)) => builder.add(file.clone(), summary),
                Ok(Err(e)) => left_out.push(LeftOut { why: e.to_string() }),
                Err(_) => left_out.push(LeftOut { why: format!("{}: reading it failed", file.display()) }),
            }
        }
    });
    match builder.finish(left_out.clone()) {
        Some(many) => Ok(many),
        None => Err(left_out),
    }
}

/// One profile, as it is.
fn single(file: PathBuf, summary: Summary, left_out: Vec<LeftOut>) -> Many {
    let objects = (0..summary.entries.len() as u32).collect();
    let process = super::catalog::Process { summary, objects };
    let member: Member = groups::member(file, &process);
    let known = super::catalog::Known::of;
    let objects = process.summary.entries.iter().map(known).collect();
    Many { whole: process.summary, groups: Vec::new(), members: vec![member], objects, unlike: false, left_out }
}
