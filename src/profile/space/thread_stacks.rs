//! Names of the threads, and the part of memory that holds the stack pointer of each.

use std::ops::Range;

use crate::profile::records::{ObjectId, ThreadId};

/// Bound of the table: thread ids are dense, so a larger id is damage and must not cost memory.
const MAX_THREADS: usize = 1 << 22;

/// Names of threads, and for each the range in which the stack pointer is known to be on the same stack.
#[derive(Debug, Default)]
pub(super) struct ThreadStacks {
    table: Vec<ThreadStack>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct ThreadStack {
    /// Address space of `range`.
    pub(super) serial: u32,
    pub(super) range: Range<u64>,
    /// The thread's stack bounds were reported by the preload.
    pub(super) announced: bool,
    name: Option<String>,
    /// Stack objects that have the thread's name, with their address spaces.
    pub(super) stacks: Vec<(ObjectId, u32)>,
}

impl ThreadStacks {
    pub(super) fn get(&mut self, thread: ThreadId) -> Option<&mut ThreadStack> {
        let index = thread as usize;
        if index >= self.table.len() {
            if index >= MAX_THREADS {
                return None;
            }
            self.table.resize(index + 1, ThreadStack::default());
        }
        self.table.get_mut(index)
    }

    pub(super) fn is_on_known_stack(&self, thread: ThreadId, serial: u32, sp: u64) -> bool {
        self.table.get(thread as usize).is_some_and(|t| t.range.contains(&sp) && t.serial == serial)
    }

    /// Sets the name; returns the stack objects to rename.
    pub(super) fn rename(&mut self, thread: ThreadId, name: &str) -> Vec<(ObjectId, u32)> {
        match self.get(thread) {
            Some(t) if t.name.as_deref() != Some(name) => {
                t.name = Some(name.to_string());
                t.stacks.clone()
            }
            _ => Vec::new(),
        }
    }

    /// Name of the object of the thread's stack.
    pub(super) fn stack_name(&self, thread: ThreadId) -> String {
        match self.table.get(thread as usize).and_then(|t| t.name.as_deref()) {
            Some(name) => format!("stack of {name}"),
            None => format!("stack of thread {thread}"),
        }
    }
}
