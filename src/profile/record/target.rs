//! The processes that are recorded: one that this process started, or some that ran before.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::launch::exit::Ended;
use crate::launch::held::Held;
use crate::launch::running::Running;
use crate::launch::signals::asked_to_end;

/// What is recorded.
#[derive(Debug)]
pub enum Target {
    /// A program that this process started.
    Launched {
        /// The process.
        held: Held,
        /// See [`Held::pidfd`].
        end: Option<OwnedFd>,
    },
    /// Programs that ran already.
    Attached(Vec<Running>),
}

impl Target {
    /// A program that was started for the recording.
    pub fn launched(held: Held) -> Target {
        Target::Launched { end: held.pidfd(), held }
    }

    /// How the last of them ended, if all have; does not wait.
    pub fn poll(&self) -> Option<Ended> {
        match self {
            Target::Launched { held, .. } => held.poll(),
            Target::Attached(running) => running.iter().all(Running::has_ended).then_some(Ended::Unknown),
        }
    }

    /// Descriptors of those that run, each readable once its process has ended.
    pub fn ends(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Target::Launched { end, .. } => end.iter().map(AsFd::as_fd).collect(),
            Target::Attached(running) => {
                running.iter().filter(|r| !r.has_ended()).filter_map(Running::end).map(AsFd::as_fd).collect()
            }
        }
    }

    /// Whether the user wants the recording to end before the program does. A signal to the recorder of a program that
    /// it started is one to the program.
    pub fn is_to_be_left(&self) -> bool {
        matches!(self, Target::Attached(_)) && asked_to_end().is_some()
    }

    /// The program that this process started, if it did.
    pub fn into_launched(self) -> Option<Held> {
        match self {
            Target::Launched { held, .. } => Some(held),
            Target::Attached(_) => None,
        }
    }
}
