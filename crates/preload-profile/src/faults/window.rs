//! One window: find the resident pages, move them away, serve the threads that touch them, move the rest back.

use core::ffi::{c_int, c_long};
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use numamma_channel::layout::SLOTS;
use numamma_hook::sys::PAGE;
use numamma_kernel::maps;
use numamma_kernel::userfault::{Refusal, Run, Userfault, has_page, present_runs};

use super::excluded::{can_move, parts};
use super::pages::{HUGE, Pages};
use super::serve::{Serving, Tell};
use super::state::Sampled;
use super::waiting::{Waiting, monotonic_ns, wait_for, waited_for_cpu_ns};

/// Most ranges of a window; what lies beyond them is not armed, and counted as such.
const MOST_PAGES: usize = 1 << 13;
/// Places for parts of ranges that the program moves (mremap) while something else keeps their pages from following.
const SPARE: usize = 256;
/// Runs of pages that are found at once.
const RUNS: usize = 512;
/// Most that is moved away before threads that wait are served.
const STEP: usize = HUGE;
/// A window ends when the program has worked for the interval besides waiting for faults, and at the latest after so
/// many intervals: what is known of the waiting is an estimate.
const MOST_STRETCH: u64 = 16;

/// A window also ends with so many first touches of new pages, each of which takes some ten times as long as without
/// the sampler and gets a small page: 1 MiB.
const MOST_FRESH: usize = 256;

/// The memory of a window, part of the thread's own mapping. All zero bytes are valid.
pub struct Room {
    pages: [Pages; MOST_PAGES + SPARE],
    len: usize,
    runs: [Run; RUNS],
    /// Whether the thread of each slot lives.
    living: [bool; SLOTS],
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
    let without_place = find(setting, room);
    room.register(fault);
    room.verify();
    room.pages.iter_mut().skip(room.len).take(SPARE).for_each(|spare| *spare = Pages::new(0, 0));
    let pages = room.pages.get_mut(..room.len + SPARE).unwrap_or_default();
    let mut serving = Serving { fault, pagemap: setting.pagemap, pages, tell: Some(tell), busy_ns: 0, fresh: 0 };
    let counts = arm(&mut serving, setting.pagemap, &mut room.runs, waits);
    let faults = setting.sampled.faults();
    faults.windows.fetch_add(1, Relaxed);
    faults.armed.fetch_add(counts.armed, Relaxed);
    faults.unarmed.fetch_add(counts.unarmed + without_place, Relaxed);
    let arming_ns = monotonic_ns() - begun;
    faults.waited_ns.fetch_add(arming_ns, Relaxed);
    let mut waited_ns = arming_ns;
    serving.busy_ns = 0;
    let (armed_at, delayed_ns) = (monotonic_ns(), waited_for_cpu_ns());
    loop {
        let elapsed = monotonic_ns() - armed_at;
        let waited = serving.busy_ns + waited_ns;
        let over = elapsed >= setting.interval_ns.saturating_add(waited.min(elapsed))
            || elapsed >= setting.interval_ns.saturating_mul(MOST_STRETCH);
        if over || serving.fresh >= MOST_FRESH || waits.ends_window() {
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
    // While this thread waits for a CPU, those wait that it would serve; each then waits for one as this one did.
    let delayed_ns = 2 * waited_for_cpu_ns().saturating_sub(delayed_ns);
    waited_ns += served_ns + (monotonic_ns() - ends) + delayed_ns;
    faults.waited_ns.fetch_add(waited_ns - arming_ns, Relaxed);
    Ok(Went { waited_ns })
}

/// Finds the mappings of the program that have pages; returns how many pages have no place in the list. A mapping is
/// registered as a whole: a part of it would be a mapping of its own then, and mremap(2) of both would fail.
fn find(setting: &Setting, room: &mut Room) -> u64 {
    let map = setting.sampled.map;
    let threads = map.header().high_water.load(Relaxed) as usize;
    for (slot, lives) in room.living.iter_mut().enumerate().take(threads) {
        *lives = is_alive(map.slot(slot).owner.load(Acquire));
    }
    let living = |slot: &usize| room.living.get(*slot) == Some(&true);
    room.len = 0;
    let mut without_place = 0;
    maps::for_each_own(|mapping| {
        if !can_move(&mapping) {
            return;
        }
        parts(mapping.start, mapping.end, setting.own, (0..threads).filter(living), |start, end| {
            let pages = present_runs(setting.pagemap, start, end, &mut room.runs)
                .map_or(0, |(found, _)| room.runs.iter().take(found).map(Run::pages).sum());
            if pages > 0 && !push(&mut room.pages, &mut room.len, start, end) {
                without_place += pages;
            }
        });
    });
    without_place
}

/// Whether the owner of a slot, process << 32 | thread, lives. The stack of one that has ended may be other memory now.
fn is_alive(owner: u64) -> bool {
    let (pid, tid) = ((owner >> 32) as c_long, c_long::from(owner as u32));
    // SAFETY: sends nothing; arguments without pointers.
    owner != 0 && unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, 0 as c_long) } == 0
}

impl Room {
    /// Lets the kernel tell of faults and makes room for the pages; ranges for which that is refused are left alone.
    ///
    /// All ranges are registered before anything is mapped: room that came to a place which the program has just left
    /// would be registered as the program's, and this thread would wait for itself.
    fn register(&mut self, fault: Userfault) {
        let pages = self.pages.get_mut(..self.len).unwrap_or_default();
        for pages in pages.iter_mut() {
            pages.changed = !fault.register(pages.start, pages.end - pages.start, true);
        }
        for pages in pages.iter_mut().filter(|pages| !pages.changed) {
            pages.changed = !pages.make_room() || {
                let (room, len) = pages.room();
                !fault.register(room, len, false)
            };
        }
    }

    /// Only a range that lies in one mapping is armed. A part of it that was unmapped before it was registered, and
    /// then mapped again, would be a mapping of its own, as it is not registered: a page that is moved away from there
    /// would not be asked for. One that is unmapped since brings an event, before which the kernel moves nothing.
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
fn arm(serving: &mut Serving<'_>, pagemap: c_int, runs: &mut [Run], waits: &Waiting) -> Counts {
    let mut counts = Counts::default();
    for index in 0..serving.pages.len() {
        let Some(pages) = serving.pages.get(index).filter(|_| !waits.ends_window()) else { break };
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
        let (fault, pagemap) = (serving.fault, serving.pagemap);
        let Some(pages) = serving.pages.get_mut(index).filter(|pages| !pages.changed) else { return };
        let step = ((at / STEP + 1) * STEP).min(end) - at;
        let (counted, error) = fault.move_pages(pages.side(at), at, step, true);
        let moved =
            if error.is_some() { counted + uncounted(pages, pagemap, at + counted, at + step) } else { counted };
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

/// Bytes from `at` on that were moved, too, when moving pages up to `end` failed. Linux 6.18 moves pages in batches.
/// Where the kernel migrates pages meanwhile (compaction), a batch may have moved that its count leaves out: the next
/// call finds pages where these should go (EEXIST).
fn uncounted(pages: &Pages, pagemap: c_int, at: usize, end: usize) -> usize {
    (at..end).step_by(PAGE).take_while(|page| has_page(pagemap, pages.side(*page))).count() * PAGE
}
