//! Teams of workers: the rank of a new thread by its start routine, its creator and the living threads of its team.
//!
//! The creating thread finds the team and takes the lowest free slot; the slot is free again when the thread ends,
//! before pthread_join returns. See [`numamma_plan::teams`] for the rule.

use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use numamma_hook::entry::Caller;
use numamma_hook::{fork_wiped, modules, stackbounds, sys, unwind};
use numamma_plan::callsite::Frame;
use numamma_plan::callsite::frame::file_name;
use numamma_plan::machine::Machine;
use numamma_plan::policy::Policy;
use numamma_plan::slots::{MOST_SLOTS, Slots};
use numamma_plan::teams::{MOST_WORKERS, Rank, Team};
use numamma_plan::threads::is_openmp_runtime;

use crate::matching::elf::Elf;
use crate::matching::modules::linked_name;

/// Tables of slots of all teams together: a nested team has one for each worker of its outer team. 256 KiB.
const MOST_TABLES: usize = 512;
/// Frames of the stack that creates a thread in which the place of the program is searched.
const FRAMES: usize = 16;

/// A team, prepared.
struct Known {
    team: Team,
    workers: u32,
    start: Vec<Frame>,
    site: Vec<Frame>,
    /// Index of the outer team.
    inside: Option<usize>,
    /// Number of its first table, and of its tables.
    first: usize,
    tables: usize,
}

/// The teams of the policy.
pub struct Teams {
    known: Vec<Known>,
    tables: Vec<Slots>,
    /// Threads created so far of each table whose threads are numbered in turn, see [`Known::in_turn`].
    created: Vec<AtomicU32>,
    /// Process that the slots belong to.
    process: AtomicU32,
    /// Key whose destructor frees a thread's slot; none yet, or none to be had, is [`NO_KEY`].
    key: AtomicUsize,
    pub main_works: bool,
}

const NO_KEY: usize = usize::MAX;

/// What a thread knows about itself.
#[repr(C)]
struct Own {
    /// Index of its team + 1; 0 in a thread of no team.
    team: Cell<u32>,
    rank: Cell<u32>,
    of: Cell<u32>,
}

numamma_hook::static_tls!(fn own() -> Own, "numamma_apply_team");

/// What the creating thread tells the new one, as one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Table of slots, which also tells the team; none for a thread of no team.
    table: Option<u32>,
    slot: u32,
    /// Rank as a worker; none for a thread that does not work.
    pub rank: Option<Rank>,
    /// Number of the CPUs to which the creator is bound and which the new thread inherits, below [`MOST_INHERITED`].
    /// Not known here, see [`super::binding::token`].
    pub inherits: Option<u32>,
}

/// Most sets of CPUs that are told apart. A thread that inherits others counts as bound by the program.
pub const MOST_INHERITED: u32 = (1 << INHERITED_BITS) - 1;

/// Bits of a seat as a number, from the lowest: `of`, `rank`, slot, table, number + 1 of the inherited CPUs.
const OF_BITS: u32 = MOST_WORKERS.ilog2() + 1;
const RANK_BITS: u32 = MOST_WORKERS.ilog2();
const SLOT_BITS: u32 = MOST_SLOTS.ilog2();
const TABLE_BITS: u32 = MOST_TABLES.ilog2() + 1;
const INHERITED_BITS: u32 = 9;
const _: () = assert!(OF_BITS + RANK_BITS + SLOT_BITS + TABLE_BITS + INHERITED_BITS <= u64::BITS);

impl Seat {
    const NONE: Seat = Seat { table: None, slot: 0, rank: None, inherits: None };

    /// As a number.
    pub fn token(&self) -> u64 {
        let Rank { rank, of } = self.rank.unwrap_or(Rank { rank: 0, of: 0 });
        let fields = [
            (self.inherits.map_or(0, |cpus| cpus + 1), INHERITED_BITS),
            (self.table.map_or(0, |table| table + 1), TABLE_BITS),
            (self.slot, SLOT_BITS),
            (rank, RANK_BITS),
            (of, OF_BITS),
        ];
        fields.iter().fold(0, |token, (value, bits)| token << bits | u64::from(*value))
    }

    /// From [`Seat::token`].
    pub fn of_token(mut token: u64) -> Seat {
        let mut field = |bits: u32| {
            let value = token & ((1 << bits) - 1);
            token >>= bits;
            value as u32
        };
        let (of, rank, slot, table) = (field(OF_BITS), field(RANK_BITS), field(SLOT_BITS), field(TABLE_BITS));
        let rank = (of > 0).then_some(Rank { rank, of });
        Seat { table: table.checked_sub(1), slot, rank, inherits: field(INHERITED_BITS).checked_sub(1) }
    }
}

impl Teams {
    /// Those of a policy, whose start routines are found by name if this is another build of the program. `None` when
    /// the policy has no team, and where the loader does not tell the module of an address (glibc before 2.35): threads
    /// are then bound in the order of their creation.
    pub fn of(policy: &Policy, machine: &Machine, same_build: bool) -> Option<Teams> {
        if policy.teams.is_empty() || !modules::asks_loader() {
            return None;
        }
        let frames = |list: &Option<Vec<String>>| -> Vec<Frame> {
            list.iter().flatten().filter_map(|text| text.parse().ok()).collect()
        };
        let (mut known, mut tables): (Vec<Known>, Vec<Slots>) = (Vec::new(), Vec::new());
        for team in &policy.teams {
            let inside = team.inside.and_then(|n| (n as usize).checked_sub(1)).filter(|n| *n < known.len());
            let creators = inside.and_then(|outer| known.get(outer)).map_or(1, |outer| outer.workers as usize);
            let creators = creators.min(MOST_TABLES.saturating_sub(tables.len())).max(1);
            let (mut start, mut site) = (frames(&team.start), frames(&team.site));
            if !same_build {
                start = by_name(team.function.as_deref().unwrap_or_default());
                site.clear();
            }
            let workers = team.workers_on(machine);
            known.push(Known {
                team: team.clone(),
                workers,
                start,
                site,
                inside,
                first: tables.len(),
                tables: creators,
            });
            tables.extend((0..creators).map(|_| Slots::new()));
        }
        let main_works = policy.teams.iter().any(|team| team.inside.is_none() && team.creator_works());
        let created = tables.iter().map(|_| AtomicU32::new(0)).collect();
        let (process, key) = (AtomicU32::new(fork_wiped::process()), AtomicUsize::new(NO_KEY));
        Some(Teams { known, tables, created, process, key, main_works })
    }

    /// Prepares the release of slots at the end of threads.
    pub fn start(&self) {
        let mut key = 0;
        // SAFETY: the key is writable, the destructor follows pthread_key_create's contract.
        if unsafe { libc::pthread_key_create(&raw mut key, Some(release)) } == 0 {
            self.key.store(key as usize, Ordering::Relaxed);
        }
    }

    /// Takes a seat for a thread that the calling thread is about to create with `routine`.
    ///
    /// # Safety
    /// `caller` comes from the entry stub of a hook that has not returned yet.
    pub unsafe fn take(&self, routine: usize, caller: &Caller) -> Seat {
        self.forget_parent();
        let none = Seat::NONE;
        let mut stack = [0_u64; FRAMES];
        let mut frames: &[u64] = &[];
        if self.known.iter().any(|k| !k.site.is_empty() || k.inside.is_some()) {
            // SAFETY: the caller's promise; the bound is that of its stack.
            let depth = unsafe { unwind::walk(caller, stackbounds::high_for(caller.cfa), &mut stack) };
            frames = &stack[..depth];
        }
        let Some(module) = modules::find(routine) else { return none };
        let (creator, is_main) = ((own().team.get() as usize).checked_sub(1), sys::tid() == sys::pid());
        // Main is worker 0 of its team, and creates teams inside it in regions inside regions.
        let nests = !is_main || regions(&module, frames) > 1;
        let by_creator = |k: &Known| match k.inside {
            Some(outer) => creator == Some(outer) && nests,
            None => creator.is_none() || is_main,
        };
        let fits = |k: &Known| by_creator(k) && k.is_of(&module, routine) && k.is_created_at(frames);
        let found = self.known.iter().enumerate().filter(|(_, k)| fits(k)).max_by_key(|(_, k)| k.inside.is_some());
        let Some((index, known)) = found else { return none };
        let whole = if known.inside.is_some() { own_rank() } else { Rank::ALONE };
        let table = known.first + whole.rank as usize % known.tables;
        let slot = match self.created.get(table).filter(|_| known.in_turn()) {
            Some(created) => Some(created.fetch_add(1, Ordering::Relaxed) % known.seats()),
            None => self.tables.get(table).and_then(Slots::take),
        };
        let Some(slot) = slot else { return none };
        if known.inside.is_none() && known.team.creator_works() && creator.is_none() {
            self.sit(index, Rank::ALONE.part(0, known.workers));
        }
        let rank = known.team.index_of(slot).map(|at| whole.part(known.seat_of(at), known.workers));
        Seat { table: Some(table as u32), slot, rank, inherits: None }
    }

    /// Frees the seat of a thread that was not created.
    pub fn give(&self, seat: &Seat) {
        if let Some(table) = seat.table.and_then(|table| self.tables.get(table as usize)) {
            table.give(seat.slot);
        }
    }

    /// Gives the calling thread, a new one, its seat.
    pub fn begin(&self, seat: &Seat) {
        let Some(table) = seat.table else { return };
        let key = self.key.load(Ordering::Relaxed);
        if key != NO_KEY {
            // Not null. The first 32 keys of a process need no memory (pthread_setspecific of glibc).
            let value = (table as usize) << 32 | (seat.slot as usize + 1);
            // SAFETY: the key was created and is never deleted.
            unsafe { libc::pthread_setspecific(key as libc::pthread_key_t, value as *const c_void) };
        }
        let of_table = |k: &Known| (k.first..k.first + k.tables).contains(&(table as usize));
        if let (Some(team), Some(rank)) = (self.known.iter().position(of_table), seat.rank) {
            self.sit(team, rank);
        }
    }

    /// Makes the calling thread a worker of a team.
    fn sit(&self, team: usize, rank: Rank) {
        let own = own();
        own.team.set(team as u32 + 1);
        own.rank.set(rank.rank);
        own.of.set(rank.of);
    }

    /// A forked child has none of its parent's threads but the one that forked, which is its main thread.
    fn forget_parent(&self) {
        let process = fork_wiped::process();
        if self.process.swap(process, Ordering::Relaxed) != process {
            self.tables.iter().for_each(Slots::clear);
            own().team.set(0);
        }
    }
}

/// Rank of the calling thread; all of the work for a thread of no team.
pub fn own_rank() -> Rank {
    let own = own();
    if own.team.get() == 0 { Rank::ALONE } else { Rank { rank: own.rank.get(), of: own.of.get().max(1) } }
}

/// Frees the slot of a thread that ends.
unsafe extern "C" fn release(value: *mut c_void) {
    let value = value as usize;
    let state = crate::rules::state::get();
    let Some(teams) = state.and_then(|state| state.teams.as_ref()) else { return };
    let (table, slot) = (value >> 32, (value & u32::MAX as usize) as u32 - 1);
    if teams.process.load(Ordering::Relaxed) == fork_wiped::process()
        && let Some(table) = teams.tables.get(table)
    {
        table.give(slot);
    }
}

impl Known {
    /// Seats of threads that are created: all but the creator's.
    fn seats(&self) -> u32 {
        self.workers.saturating_sub(self.team.creator_works().into()).max(1)
    }

    /// The index among the workers of a thread with `index`: more threads than workers share the seats that are not the
    /// creator's.
    fn seat_of(&self, index: u32) -> u32 {
        let first = u32::from(self.team.creator_works());
        if index < first { index } else { first + (index - first) % self.seats() }
    }

    /// Whether threads are numbered in turn, and not by free slots: an OpenMP runtime makes the threads of a region
    /// inside a region anew each time, and detaches them, so that some still end while the next ones begin.
    fn in_turn(&self) -> bool {
        self.inside.is_some() && self.team.openmp == Some(true)
    }

    /// Whether threads that start in `routine` may belong to the team.
    fn is_of(&self, module: &modules::Module, routine: usize) -> bool {
        if self.team.openmp == Some(true) {
            return core::str::from_utf8(module.path()).is_ok_and(is_openmp_runtime);
        }
        // Without a start routine, the site decides.
        let any = self.start.is_empty() && !self.site.is_empty();
        any || self.start.iter().any(|frame| is_at(frame, module, routine))
    }

    fn is_created_at(&self, frames: &[u64]) -> bool {
        let at = |ra: &u64| {
            let ra = *ra as usize;
            modules::find(ra).is_some_and(|module| self.site.iter().any(|frame| is_at(frame, &module, ra)))
        };
        self.site.is_empty() || frames.iter().any(at)
    }
}

/// Whether a frame of the policy is the code at `address`.
fn is_at(frame: &Frame, module: &modules::Module, address: usize) -> bool {
    let wanted = frame.module.as_bytes();
    let named = || {
        let path = if module.is_program() { modules::executable() } else { module.path() };
        let name = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
        // A profile names a library by its file, the loader by a link to it.
        name == wanted || linked_name(path).is_some_and(|real| real == wanted)
    };
    module.vaddr(address) as u64 == frame.vaddr && named()
}

/// Groups of neighbouring frames in a module: one for each region of an OpenMP runtime that is entered.
fn regions(module: &modules::Module, frames: &[u64]) -> usize {
    let inside = |ra: &u64| (module.start..module.end).contains(&(*ra as usize));
    frames.iter().enumerate().filter(|(i, ra)| inside(ra) && !frames.get(i + 1).is_some_and(inside)).count()
}

/// The functions of the program with these linkage names.
fn by_name(names: &[String]) -> Vec<Frame> {
    let path = modules::executable();
    let mut found = Vec::new();
    let Some(elf) = Elf::with_symbols(path).filter(|_| !names.is_empty()) else { return found };
    let module = String::from_utf8_lossy(path);
    elf.functions(|name, symbol| {
        if names.iter().any(|wanted| wanted.as_bytes() == name) {
            found.push(Frame { module: file_name(&module).to_owned(), vaddr: symbol.address });
        }
    });
    found
}

/// Whether the calling thread is a worker of a team.
pub fn is_worker() -> bool {
    own().team.get() != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_are_read_as_they_were_written() {
        let last = Rank { rank: MOST_WORKERS - 1, of: MOST_WORKERS };
        for table in [None, Some(0), Some(MOST_TABLES as u32 - 1)] {
            for rank in [None, Some(Rank::ALONE), Some(last)] {
                for (slot, inherits) in [(0, Some(MOST_INHERITED - 1)), (1, Some(0)), (MOST_SLOTS as u32 - 1, None)] {
                    let seat = Seat { table, slot, rank, inherits };
                    assert_eq!(Seat::of_token(seat.token()), seat);
                }
            }
        }
    }
}
