//! One window: find the resident pages, move them away, serve the threads that touch them, move the rest back.

use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;

use numamma_hook::sys::PAGE;
use numamma_kernel::maps;
use numamma_kernel::userfault::{Refusal, Run, Userfault, present_runs};

use super::Sampled;
use super::excluded::{can_move, parts};
use super::pages::{HUGE, Pages};
use super::serve::{Serving, Tell};
use super::thread::{Waiting, monotonic_ns, wait_for};

/// Most ranges of a window; beyond it larger gaps without pages belong to ranges.
const MOST_PAGES: usize = 1 << 11;
/// Places for parts of ranges that the program moves (mremap) while something else keeps their pages from following.
const SPARE: usize = 256;
/// Most mappings that are searched.
const MOST_MAPPINGS: usize = 1 << 13;
/// Runs of pages that are found at once.
const RUNS: usize = 512;
/// Pages without memory between two parts of one range: each that is touched in the window costs a fault of its own.
const LEAST_GAP: usize = 16 * PAGE;
/// Most that is moved away before threads that wait are served.
const STEP: usize = HUGE;
/// A window ends when the program has worked for the interval besides waiting for faults, and at the latest after so many
/// intervals: what is known of the waiting is an estimate.
const MOST_STRETCH: u64 = 16;

/// The memory of a window, part of the thread's own mapping. All zero bytes are valid.
pub struct Room {
    pages: [Pages; MOST_PAGES + SPARE],
    len: usize,
    mappings: [(usize, usize); MOST_MAPPINGS],
    mappings_len: usize,
    runs: [Run; RUNS],
}

/// How a window went.
pub struct Went {
    /// Time that threads waited, or may have.
    pub waited_ns: u64,
}

/// What stays the same from window to window.
pub struct Setting {
    pub sampled: Sampled,
    pub pagemap: c_int,
    /// The thread's own memory.
    pub own: (usize, usize),
    pub interval_ns: u64,
    pub round_trip_ns: u64,
}

/// Executes a window. `waits` says what also ends it.
///
/// # Errors
/// The descriptor is refused.
pub fn window(setting: &Setting, room: &mut Room, tell: Tell<'_>, waits: &Waiting) -> Result<Went, Refusal> {
    let begun = monotonic_ns();
    let fault = Userfault::open()?;
    find(setting, room);
    room.register(fault);
    room.verify();
    room.pages.iter_mut().skip(room.len).take(SPARE).for_each(|spare| *spare = Pages::new(0, 0));
    let pages = room.pages.get_mut(..room.len + SPARE).unwrap_or_default();
    let mut serving = Serving { fault, pagemap: setting.pagemap, pages, tell, busy_ns: 0 };
    let counts = arm(&mut serving, setting.pagemap, &mut room.runs);
    let faults = setting.sampled.faults();
    faults.windows.fetch_add(1, Relaxed);
    faults.armed.fetch_add(counts.armed, Relaxed);
    faults.unarmed.fetch_add(counts.unarmed, Relaxed);
    let mut waited_ns = monotonic_ns() - begun;
    serving.busy_ns = 0;
    let armed_at = monotonic_ns();
    loop {
        let elapsed = monotonic_ns() - armed_at;
        let waited = serving.busy_ns + waited_ns;
        let over = elapsed >= setting.interval_ns.saturating_add(waited.min(elapsed))
            || elapsed >= setting.interval_ns.saturating_mul(MOST_STRETCH);
        if over || waits.is_over() {
            break;
        }
        if !serving.answer() {
            let slept = wait_for(fault.fd(), waits, setting.interval_ns);
            // The thread that waits woke this one, which wakes it.
            waited_ns += if slept { setting.round_trip_ns } else { 0 };
        }
    }
    let ends = monotonic_ns();
    let served_ns = serving.busy_ns;
    serving.bring_all();
    fault.close();
    for pages in serving.pages.iter_mut() {
        // SAFETY: all pages are back.
        unsafe { pages.release() };
    }
    waited_ns += served_ns + (monotonic_ns() - ends);
    faults.waited_ns.fetch_add(waited_ns, Relaxed);
    Ok(Went { waited_ns })
}

/// Finds the parts of the program's memory that have pages.
fn find(setting: &Setting, room: &mut Room) {
    let threads = setting.sampled.map.header().high_water.load(Relaxed) as usize;
    room.mappings_len = 0;
    maps::for_each_own(|mapping| {
        if !can_move(&mapping) {
            return;
        }
        parts(mapping.start, mapping.end, setting.own, threads, |start, end| {
            if let Some(place) = room.mappings.get_mut(room.mappings_len) {
                *place = (start, end);
                room.mappings_len += 1;
            }
        });
    });
    let mut gap = LEAST_GAP;
    while !room.find_pages(setting.pagemap, gap) {
        gap *= 4;
    }
}

impl Room {
    /// False when there are too many ranges.
    fn find_pages(&mut self, pagemap: c_int, gap: usize) -> bool {
        self.len = 0;
        for &(start, end) in self.mappings.iter().take(self.mappings_len) {
            let (mut at, mut part) = (start, None::<(usize, usize)>);
            while at < end {
                let Some((found, stopped)) = present_runs(pagemap, at, end, &mut self.runs) else { break };
                for run in self.runs.iter().take(found) {
                    let (low, high) = (run.start as usize, run.end as usize);
                    part = match part {
                        Some((first, last)) if low - last <= gap => Some((first, high)),
                        Some((first, last)) => {
                            if !push(&mut self.pages, &mut self.len, first, last) {
                                return false;
                            }
                            Some((low, high))
                        }
                        None => Some((low, high)),
                    };
                }
                if stopped <= at {
                    break;
                }
                at = stopped;
            }
            if let Some((first, last)) = part
                && !push(&mut self.pages, &mut self.len, first, last)
            {
                // A mapping may be larger than every gap.
                return gap > isize::MAX as usize / 8;
            }
        }
        true
    }

    /// Makes room for the pages and lets the kernel tell of faults; ranges for which that is refused are left alone.
    fn register(&mut self, fault: Userfault) {
        for pages in self.pages.iter_mut().take(self.len) {
            let made = pages.make_room() && {
                let (room, len) = pages.room();
                fault.register(room, len, false) && fault.register(pages.start, pages.end - pages.start, true)
            };
            pages.changed = !made;
        }
    }

    /// Only a range that lies in one mapping is armed. A part of it that was unmapped before it was registered, and then
    /// mapped again, would be a mapping of its own, as it is not registered: a page that is moved away from there would
    /// not be asked for. One that is unmapped since brings an event, before which the kernel moves nothing.
    fn verify(&mut self) {
        let (pages, len) = (&mut self.pages, self.len);
        let pages = pages.get_mut(..len).unwrap_or_default();
        pages.sort_unstable_by_key(|pages| pages.start);
        let mut next = 0;
        maps::for_each_own(|mapping| {
            while let Some(pages) = pages.get_mut(next).filter(|pages| pages.start < mapping.end) {
                let within = mapping.start <= pages.start && pages.end <= mapping.end && can_move(&mapping);
                pages.changed |= !within;
                next += 1;
            }
        });
        pages.iter_mut().skip(next).for_each(|pages| pages.changed = true);
    }
}

fn push(list: &mut [Pages], len: &mut usize, start: usize, end: usize) -> bool {
    let Some(place) = list.get_mut(*len).filter(|_| *len < MOST_PAGES) else { return false };
    *place = Pages::new(start, end);
    *len += 1;
    true
}

#[derive(Default)]
struct Counts {
    armed: u64,
    unarmed: u64,
}

/// Moves the pages away.
fn arm(serving: &mut Serving<'_>, pagemap: c_int, runs: &mut [Run]) -> Counts {
    let mut counts = Counts::default();
    for index in 0..serving.pages.len() {
        let Some(pages) = serving.pages.get(index) else { break };
        let (mut at, end) = (pages.start, pages.end);
        while at < end && serving.pages.get(index).is_some_and(|pages| !pages.changed) {
            let Some((found, stopped)) = present_runs(pagemap, at, end, runs) else { break };
            for run in runs.iter().take(found) {
                arm_run(serving, index, run, &mut counts);
            }
            if stopped <= at {
                break;
            }
            at = stopped;
        }
    }
    counts
}

fn arm_run(serving: &mut Serving<'_>, index: usize, run: &Run, counts: &mut Counts) {
    let (mut at, end) = (run.start as usize, run.end as usize);
    if let Some(pages) = serving.pages.get_mut(index).filter(|_| run.is_huge()) {
        pages.set_huge(at, end);
    }
    while at < end {
        let fault = serving.fault;
        let Some(pages) = serving.pages.get_mut(index).filter(|pages| !pages.changed) else { return };
        let step = ((at / STEP + 1) * STEP).min(end) - at;
        let (moved, error) = fault.move_pages(pages.side(at), at, step, true);
        pages.set_away(at, at + moved, true);
        counts.armed += (moved / PAGE) as u64;
        at += moved;
        match error {
            None => {}
            Some(_) if moved > 0 => {}
            Some(libc::EAGAIN) => numamma_hook::sys::yield_now(),
            // The mapping is locked, or is not what it was.
            Some(libc::EINVAL) => {
                counts.unarmed += ((end - at) / PAGE) as u64;
                pages.changed = true;
            }
            Some(_) => {
                counts.unarmed += 1;
                at += PAGE;
            }
        }
        while serving.answer() {}
    }
}
