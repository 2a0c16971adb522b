//! Whether samples are taken, as the program says with `numamma_profile()` of numamma.h.
//!
//! Samples of a time in which they are off are dropped when they are processed, so that they begin and end at the very
//! call; events that are enabled from outside would be a round of the recorder late.

use rustc_hash::FxHashMap;

/// The switch of every process.
#[derive(Debug, Default)]
pub struct Switch {
    /// Off until a process switches samples on.
    starts_off: bool,
    /// What the processes said last.
    on: FxHashMap<u32, bool>,
    /// Times that one switched them on.
    pub switched_on: u64,
    /// Samples dropped.
    pub dropped: u64,
}

impl Switch {
    /// All processes start switched off if `starts_off`.
    pub fn new(starts_off: bool) -> Switch {
        Switch { starts_off, ..Switch::default() }
    }

    /// Whether processes start switched off.
    pub fn starts_off(&self) -> bool {
        self.starts_off
    }

    /// A process says whether samples are to be taken from now on.
    pub fn set(&mut self, pid: u32, on: bool) {
        let before = self.on.insert(pid, on).unwrap_or(!self.starts_off);
        self.switched_on += u64::from(on && !before);
    }

    /// A new process begins with what holds in its parent.
    pub fn forked(&mut self, parent: u32, pid: u32) {
        match self.on.get(&parent) {
            Some(&on) => self.on.insert(pid, on),
            None => self.on.remove(&pid),
        };
    }

    /// Whether a sample of a process is wanted; counts one that is not.
    pub fn is_on(&mut self, pid: u32) -> bool {
        let on = self.on.get(&pid).copied().unwrap_or(!self.starts_off);
        self.dropped += u64::from(!on);
        on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_of_a_process_holds_and_children_inherit_it() {
        let mut switch = Switch::new(true);
        assert!(!switch.is_on(1));
        switch.set(1, true);
        switch.set(1, true);
        switch.forked(1, 2);
        switch.forked(7, 8);
        assert!(switch.is_on(1) && switch.is_on(2) && !switch.is_on(8));
        switch.set(2, false);
        assert!(switch.is_on(1) && !switch.is_on(2));
        assert_eq!((switch.switched_on, switch.dropped), (1, 3));
        let mut switch = Switch::new(false);
        assert!(switch.is_on(1));
        switch.set(1, false);
        assert!(!switch.is_on(1));
        // The id of a process that ended.
        switch.forked(5, 1);
        assert!(switch.is_on(1));
    }
}
