//! The calling thread's stack among the mappings of the process.

use core::ffi::c_int;

use numamma_kernel::maps::{self, Mapping};

use super::Bounds;

/// The initial stack of the process, which is the main thread's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Initial {
    /// What of it is mapped: all of this can be read.
    pub mapped: Bounds,
    /// End of the nearest mapping below it; the stack cannot grow that far.
    pub below: usize,
}

/// What one reading of /proc/self/maps shows.
pub struct Seen {
    /// `None` when the file cannot be read.
    pub initial: Option<Initial>,
    /// The mapping that holds the thread control block, as far as that: the stack of a thread made by glibc.
    pub below_control_block: Option<Bounds>,
    /// Lines of the file.
    pub lines: usize,
    thread_pointer: usize,
    /// Adjacent mappings that may be pieces of one stack, the last ones so far.
    run: Bounds,
    /// End of the mapping before them.
    before_run: usize,
}

impl Seen {
    /// Nothing yet.
    pub fn new(thread_pointer: usize) -> Seen {
        let run = Bounds { low: 0, high: 0 };
        Seen { initial: None, below_control_block: None, lines: 0, thread_pointer, run, before_run: 0 }
    }

    /// Reads the file. Allocates nothing; takes 5 KiB of stack.
    pub fn now(thread_pointer: usize) -> Seen {
        let mut seen = Seen::new(thread_pointer);
        maps::for_each_own(|mapping| seen.add(&mapping));
        seen
    }

    /// Takes the next mapping, by ascending address.
    ///
    /// The kernel calls the mapping `[stack]` that holds the first stack pointer of the process, and keeps other
    /// mappings a guard gap away from it, unless the program insists on an address (MAP_FIXED). What adjoins it is
    /// therefore the same stack, split because the program gave a part other flags (mlock, mbind, madvise).
    fn add(&mut self, mapping: &Mapping<'_>) {
        self.lines += 1;
        if mapping.contains(self.thread_pointer) && is_readable(mapping.prot) {
            self.below_control_block = Some(Bounds { low: mapping.start, high: self.thread_pointer });
        }
        if self.initial.is_some() {
            return;
        }
        let is_initial = mapping.path == "[stack]";
        let anonymous = !mapping.shared && mapping.inode == 0 && (is_initial || mapping.path.is_empty());
        if !anonymous || !is_readable(mapping.prot) {
            self.run = Bounds { low: mapping.end, high: mapping.end };
            self.before_run = mapping.end;
            return;
        }
        if mapping.start != self.run.high {
            self.before_run = self.run.high;
            self.run.low = mapping.start;
        }
        self.run.high = mapping.end;
        if is_initial {
            self.initial = Some(Initial { mapped: self.run, below: self.before_run });
        }
    }
}

fn is_readable(prot: c_int) -> bool {
    prot & libc::PROT_READ != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(text: &str) -> Seen {
        let mut seen = Seen::new(0x7200);
        maps::parse(text.as_bytes()).for_each(|mapping| seen.add(&mapping));
        seen
    }

    fn initial(lines: &[&str]) -> Option<(usize, usize, usize)> {
        let found = seen(&lines.join("\n")).initial;
        found.map(|initial| (initial.below, initial.mapped.low, initial.mapped.high))
    }

    const STACK: &str = "a000-c000 rw-p 00000000 00:00 0 [stack]";
    const ABOVE: &str = "c000-d000 r-xp 00000000 00:00 0 [vdso]";

    #[test]
    fn the_initial_stack_is_what_the_kernel_calls_so() {
        let fiber = "7000-8000 rw-p 00000000 00:00 0 ";
        assert_eq!(initial(&[fiber, STACK, ABOVE]), Some((0x8000, 0xa000, 0xc000)));
        assert_eq!(initial(&[STACK]), Some((0, 0xa000, 0xc000)));
        assert_eq!(initial(&[fiber, ABOVE]), None);
        assert_eq!(initial(&["a000-c000 ---p 00000000 00:00 0 [stack]"]), None);
    }

    #[test]
    fn pieces_that_adjoin_it_belong_to_it() {
        let piece = "9000-a000 rw-p 00000000 00:00 0 ";
        assert_eq!(initial(&["8000-9000 rwxp 00000000 00:00 0 ", piece, STACK]), Some((0, 0x8000, 0xc000)));
        assert_eq!(initial(&["7000-8000 rw-p 00000000 00:00 0 ", piece, STACK]), Some((0x8000, 0x9000, 0xc000)));
        assert_eq!(initial(&["8000-9000 ---p 00000000 00:00 0 ", piece, STACK]), Some((0x9000, 0x9000, 0xc000)));
        for other in ["---p 00000000 00:00 0 ", "rw-p 00000000 08:01 7 /a", "rw-s 00000000 00:00 0 "] {
            assert_eq!(initial(&[&format!("9000-a000 {other}"), STACK]), Some((0xa000, 0xa000, 0xc000)), "{other}");
        }
    }

    #[test]
    fn the_stack_of_a_thread_ends_at_its_control_block() {
        let found = seen("6000-7000 ---p 00000000 00:00 0 \n7000-8000 rw-p 00000000 00:00 0 ");
        assert_eq!((found.below_control_block, found.lines), (Some(Bounds { low: 0x7000, high: 0x7200 }), 2));
        assert_eq!(seen("7000-7200 rw-p 00000000 00:00 0 ").below_control_block, None);
    }
}
