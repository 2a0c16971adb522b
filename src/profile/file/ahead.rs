//! Reads a profile on a core of its own, some records ahead of what uses them.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};
use std::vec;

use super::Reader;
use crate::profile::records::Record;

/// Batches that wait to be used; a record may have many megabytes.
const WAITING: usize = 2;
/// Bytes of decoded records from which a batch is handed over: a hand-over can put either thread to sleep, which costs
/// more than decoding a small record.
const BATCH_BYTES: u64 = 4 << 20;
/// Bytes of a file from which a thread pays.
const LEAST_BYTES: u64 = 4 << 20;

/// Records with about the bytes of memory that each takes, in the order of the file.
#[derive(Debug)]
pub(in crate::profile) struct Ahead {
    /// Why reading stopped before the end of the file, for the user; known when there are no more records.
    pub damage: Option<String>,
    from: From,
}

type Batch = Vec<(Record, u64)>;

#[derive(Debug)]
enum From {
    Here(Box<Reader>),
    Beside(Receiver<Batch>, vec::IntoIter<(Record, u64)>, JoinHandle<Option<String>>),
    Ended,
}

impl Ahead {
    /// Reads the rest of a file.
    pub fn of(reader: Reader) -> Ahead {
        let several = thread::available_parallelism().is_ok_and(|n| n.get() > 1);
        if !several || reader.file_len < LEAST_BYTES {
            return Ahead::here(reader);
        }
        // The thread gets the reader when it runs, so that it is still here when it cannot be created.
        let (hand, handed) = sync_channel::<Reader>(1);
        let (to, from) = sync_channel(WAITING);
        let work = move || {
            let mut reader = handed.recv().ok()?;
            let (mut batch, mut bytes) = (Batch::new(), 0);
            while let Some(record) = reader.next() {
                bytes += reader.decoded;
                batch.push((record, reader.decoded));
                if bytes >= BATCH_BYTES {
                    bytes = 0;
                    if to.send(std::mem::take(&mut batch)).is_err() {
                        return reader.damage;
                    }
                }
            }
            // Nobody who wants the rest: nobody who wants the damage.
            let _ = to.send(batch);
            reader.damage
        };
        match thread::Builder::new().name("numamma-read".into()).spawn(work) {
            Ok(thread) => match hand.send(reader) {
                Ok(()) => Ahead { damage: None, from: From::Beside(from, Vec::new().into_iter(), thread) },
                Err(back) => Ahead::here(back.0),
            },
            Err(_) => Ahead::here(reader),
        }
    }

    /// Reads it on this core, as it is used.
    pub fn here(reader: Reader) -> Ahead {
        Ahead { damage: None, from: From::Here(Box::new(reader)) }
    }
}

impl Iterator for Ahead {
    type Item = (Record, u64);

    fn next(&mut self) -> Option<(Record, u64)> {
        match &mut self.from {
            From::Ended => return None,
            From::Here(reader) => {
                if let Some(record) = reader.next() {
                    return Some((record, reader.decoded));
                }
                self.damage.clone_from(&reader.damage);
                return None;
            }
            From::Beside(from, batch, _) => loop {
                if let Some(next) = batch.next() {
                    return Some(next);
                }
                let Ok(more) = from.recv() else { break };
                *batch = more.into_iter();
            },
        }
        if let From::Beside(.., thread) = std::mem::replace(&mut self.from, From::Ended) {
            self.damage = thread.join().unwrap_or_else(|_| Some("reading it failed".to_owned()));
        }
        None
    }
}
