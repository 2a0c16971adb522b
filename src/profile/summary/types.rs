//! What a folded profile holds: entries, their counters per page, thread and time slot, and first touches.

use std::collections::HashMap;
use std::ops::Range;

use super::spinning::Spinning;
use super::stacks::CallStacks;
use super::stays::Stay;
use crate::profile::records::{
    AccessCode, AddressKind, CallSite, Ended, Folded, Frame, FreeCount, Header, Idle, Instance, Location, Module,
    ModuleId, ObjectKind, SharedLine, Stats, Thread, ThreadId,
};

/// Number of equal time slots the run is cut into.
pub const TIME_SLOTS: u16 = 64;

/// A cache line that a thread lost to another one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LineOfObject {
    /// Name of the entry of its object; of a part the name of the whole.
    pub object: String,
    /// Address of the object; none where it is not one piece of memory: small allocations of a call site.
    pub base: Option<u64>,
    /// Bytes of the object; of small allocations 0.
    pub size: u64,
    /// What was counted.
    pub line: SharedLine,
}

/// A whole profile, folded.
#[derive(Debug, Clone)]
pub struct Summary {
    /// The program, the machine and the sampler.
    pub header: Header,
    /// Modules by id.
    pub modules: Vec<Module>,
    /// Threads by id, creation order.
    pub threads: Vec<Thread>,
    /// Names of frames.
    pub symbols: HashMap<Frame, Vec<Location>>,
    /// What else is known of call stacks.
    pub stacks: CallStacks,
    /// Entries, highest cost first.
    pub entries: Vec<Entry>,
    /// CPUs of the threads over time, by thread and time; empty where the file does not say, and for several profiles.
    pub stays: Vec<Stay>,
    /// Waiting for other threads in loops, which no entry has.
    pub spinning: Spinning,
    /// Cache lines that threads lost to each other, those with most invalidations first; empty for several profiles and
    /// where the sampler does not count them.
    pub shared_lines: Vec<LineOfObject>,
    /// Counters of the recorder.
    pub stats: Stats,
    /// How the run ended; none when the recording was cut off.
    pub ending: Option<Ended>,
    /// MPI rank of the program, if a launcher gave it one; none for several profiles.
    pub rank: Option<u32>,
    /// Profiles of one program that are summed up here. Times are those of one run, counters sums over all.
    pub profiles: u32,
    /// Recorder's notes and the reader's (damage), for the user.
    pub notes: Vec<String>,
}

/// Objects reported as one: a global, all instances of a call site, a mapping, a stack.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// Stable within this profile, 0 is the highest cost.
    pub id: u32,
    /// Kind.
    pub kind: ObjectKind,
    /// Display name: demangled global, `function file:line` of the call site, mapping name.
    pub name: String,
    /// Linkage name of a global (what a policy uses); empty otherwise.
    pub linkage: String,
    /// Module of a global.
    pub module: Option<ModuleId>,
    /// ELF address of a global, or of the first page of a part.
    pub vaddr: u64,
    /// The object that this is a part of, if it is one; its size, pages and counters are those of the part.
    pub part: Option<Part>,
    /// Which instances of their call site these are, where others are an entry of their own.
    pub numbers: Option<Numbers>,
    /// Call site (all stacks that share the innermost user frame's identity are one entry).
    pub site: Option<CallSite>,
    /// Bytes: of a global; of the largest instance of a call site; peak bytes of small heap objects.
    pub size: u64,
    /// Smallest and largest size of its allocations, where others of the same call site are of another size and are an
    /// entry of their own.
    pub size_class: Option<(u64, u64)>,
    /// Number of instances (1 for a global).
    pub instances: u64,
    /// Instances that were sampled or touched, in order of birth. The base of grouped small objects is the lowest page
    /// seen.
    pub seen: Vec<Instance>,
    /// Counters summed.
    pub total: Counters,
    /// Counters per (instance, page, thread, slot), ascending in that order.
    pub cells: Vec<Cell>,
    /// First touches per instance, ascending in (instance, page). An allocation in memory that the program used before
    /// has those of the memory.
    pub touches: Vec<TouchRun>,
    /// The same counters by the code that made the accesses, most accesses first and the rest last; empty when one
    /// function or loop makes nearly all of them, or the profile does not know.
    pub by_code: Vec<CodePart>,
    /// Parts for reports only.
    pub details: Details,
}

/// A part of a variable: one large member, or several small neighbours; or a part of any object that no debug
/// information names. A page that two parts share belongs to the one that accesses it at the higher cost.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Part {
    /// Display name of the object.
    pub parent: String,
    /// Its bytes.
    pub parent_size: u64,
    /// Name of the member, `first..last` of several; empty for a part without one.
    pub member: String,
    /// Offset of the part's first byte: of a page, or 0.
    pub offset: u64,
}

/// Some of the allocations of a call site, by their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Numbers {
    /// Their numbers, from 1, ascending, `1-2,5`.
    pub list: String,
    /// The numbers repeat after so many.
    pub every: Option<u64>,
    /// Allocations of the call site.
    pub all: u64,
}

/// The accesses to an entry by one function, or by one loop nest of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CodePart {
    /// Name of the function; empty for all code that has no part of its own.
    pub function: String,
    /// `function file:line` of the instruction with the most accesses, inlined functions included: it tells the loops
    /// of a function apart.
    pub place: String,
    /// Module and first address of the loop nest, or of the function outside of loops; none for the rest.
    pub nest: Option<Frame>,
    /// Counters of the cells summed.
    pub total: Counters,
    /// As [`Entry::cells`].
    pub cells: Vec<Cell>,
}

/// Parts of an entry that no detector uses, for reports and prices.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Details {
    /// Counters that are in [`Entry::total`] but in no cell, because only the object is known (vector
    /// gathers, addresses lost but for the next iteration's) or the page number does not fit.
    pub unpaged: Counters,
    /// The same by thread, ascending.
    pub unpaged_by: Vec<(ThreadId, Counters)>,
    /// Backing of a mapping that is not private anonymous memory: a file, shared memory, huge pages.
    pub backing: Option<String>,
    /// Whether that is shared memory, which has a policy of its own, and no file in the page cache.
    pub is_shared_memory: bool,
    /// Instructions that accessed the entry, highest cost first, at most [`MAX_CODE`].
    pub code: Vec<(Frame, Counters)>,
    /// Of an entry of one instance the pages, counted as in [`Cell::page`], between which the accesses of each of these
    /// instructions lie, as far as known.
    pub code_pages: Vec<(Frame, Range<u32>)>,
    /// What these instructions tell of the time of their accesses, as far as known; for the cost model.
    pub access_code: Vec<AccessCode>,
    /// Where in a page the accesses of each thread and instruction begin; only where all accesses were counted.
    pub page_entries: PageEntries,
    /// Calls of realloc that made the instances in [`Entry::seen`] larger or smaller.
    pub resizes: u64,
    /// How many of its blocks were freed, and by whom, estimated where not all allocations were reported. Of several
    /// classes of sizes of a call site not known.
    pub frees: FreeCount,
    /// Of an entry of less than a page the accesses to each word, ascending, as far as their addresses are known.
    pub words: Vec<WordUse>,
    /// Pages whose first toucher was concluded from the faults of others.
    pub extrapolated: Extrapolated,
    /// Neither shown nor placed: the user does not want to see it ([`super::Selection`]).
    pub left_out: bool,
}

/// Sampled accesses of a thread to eight bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WordUse {
    /// Address, a multiple of 8.
    pub addr: u64,
    /// Thread.
    pub thread: ThreadId,
    /// Its accesses.
    pub counters: Counters,
}

/// Pages of an entry whose first toucher was not seen, but follows from some of the page faults. Ascending and
/// disjoint.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Extrapolated {
    /// Touched in order by one thread, between two of its faults.
    pub between: Vec<PageRange>,
    /// Near a page that was sampled: right in the sum of many pages, not for each of them.
    pub around: Vec<PageRange>,
}

/// Accesses to an entry by how the pages are entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageEntries {
    /// Accesses that are as at random.
    pub random: u64,
    /// All of which it is known.
    pub all: u64,
}

impl PageEntries {
    /// The share that is as at random, 0 to 1; none where it is not known.
    pub fn random_share(&self) -> Option<f64> {
        (self.all > 0).then(|| ratio(self.random, self.all))
    }

    /// Adds those of another process.
    pub fn add(&mut self, other: &PageEntries) {
        self.random = self.random.saturating_add(other.random);
        self.all = self.all.saturating_add(other.all);
    }
}

/// Pages of one instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRange {
    /// Index into [`Entry::seen`].
    pub instance: u32,
    /// First page, counted as in [`Cell::page`].
    pub low: u32,
    /// The one after the last.
    pub high: u32,
}

/// Instructions kept per entry; a screen shows fewer.
pub const MAX_CODE: usize = 32;

impl Summary {
    /// Sum of the counters of all entries, the whole of every share.
    pub fn total(&self) -> Counters {
        let mut sum = Counters::default();
        self.entries.iter().for_each(|e| sum.add(&e.total));
        sum
    }

    /// Share of the charged CPU time that went to this entry, 0 to 1.
    pub fn cost_share(&self, entry: &Entry) -> f64 {
        ratio(entry.total.cost_ns, self.total().cost_ns)
    }

    /// Length of the run, ns: the recorder's figure, or the time of the last access when the recording was cut off.
    pub fn duration_ns(&self) -> u64 {
        self.stats.duration_ns
    }

    /// Time in which the program did not run, summed over the profiles. An earlier version did not record it: then the
    /// time in which not even one thread had a CPU, whether one waited for a CPU or not.
    pub fn idle(&self) -> Idle {
        let recorded_ns = self.duration_ns().saturating_mul(self.profiles.max(1).into());
        let cpu_ns = self.stats.cpu_ns;
        let without = if cpu_ns > 0 { recorded_ns.saturating_sub(cpu_ns) } else { 0 };
        self.stats.events.idle.unwrap_or(Idle { idle_ns: without, waited_ns: 0 })
    }
}

/// `part / whole`; 0 when the whole is 0.
pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl Entry {
    /// The mean of a figure over the instructions that access it, by cost; none where no instruction has one.
    pub fn mean_of_code(&self, figure: impl Fn(&AccessCode) -> f64) -> Option<f64> {
        let (mut sum, mut weights) = (0.0, 0.0);
        for code in &self.details.access_code {
            if let Some((_, counters)) = self.details.code.iter().find(|(frame, _)| *frame == code.frame) {
                sum += figure(code) * counters.cost_ns as f64;
                weights += counters.cost_ns as f64;
            }
        }
        (weights > 0.0).then(|| sum / weights)
    }

    /// Whether most accesses go through it in sequence.
    pub fn is_swept(&self) -> bool {
        let counted = |code: &AccessCode| f64::from(u8::from(code.address == AddressKind::Counted));
        self.mean_of_code(counted).is_some_and(|share| share > 0.5)
    }

    /// Threads that accessed the entry, ascending, with their counters.
    pub fn threads(&self) -> Vec<(ThreadId, Counters)> {
        let mut by_thread = std::collections::BTreeMap::<ThreadId, Counters>::new();
        for cell in &self.cells {
            by_thread.entry(cell.thread).or_default().add(&cell.counters);
        }
        for (thread, counters) in &self.details.unpaged_by {
            by_thread.entry(*thread).or_default().add(counters);
        }
        by_thread.into_iter().collect()
    }

    /// First touchers with the number of pages each, most pages first.
    pub fn first_touchers(&self) -> Vec<(ThreadId, u64)> {
        let mut by_thread = std::collections::BTreeMap::<ThreadId, u64>::new();
        for run in &self.touches {
            *by_thread.entry(run.thread).or_default() += u64::from(run.pages);
        }
        let mut list: Vec<_> = by_thread.into_iter().collect();
        list.sort_by_key(|&(thread, pages)| (std::cmp::Reverse(pages), thread));
        list
    }

    /// Whether its pages are those of a program file that nobody writes: constants and tables of names.
    pub fn is_read_only(&self, modules: &[Module]) -> bool {
        let of_file = matches!(self.kind, ObjectKind::Global | ObjectKind::Section);
        let module = self.module.and_then(|m| modules.get(m as usize)).filter(|_| of_file);
        module.is_some_and(|m| m.read_only.iter().any(|(low, high)| (*low..*high).contains(&self.vaddr)))
    }

    /// The file that a mapping shows, whose pages are in the page cache.
    pub fn file(&self) -> Option<&str> {
        self.details.backing.as_deref().filter(|_| !self.details.is_shared_memory)
    }

    /// Whether the entry can be placed at all: everything but stacks, TLS and unknown addresses.
    pub fn placeable(&self) -> bool {
        !matches!(self.kind, ObjectKind::Stack | ObjectKind::Tls | ObjectKind::Unknown)
    }
}

/// Counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Reads seen.
    pub reads: u64,
    /// Writes seen.
    pub writes: u64,
    /// Of both, those to a page on another node than the CPU's (only where the node is known).
    pub remote: u64,
    /// Of both, those whose node is known.
    pub placed: u64,
    /// CPU time charged, ns.
    pub cost_ns: u64,
}

impl Counters {
    /// Reads and writes.
    pub fn accesses(&self) -> u64 {
        self.reads + self.writes
    }

    /// The counters of a sum of accesses.
    pub(super) fn of(f: &Folded) -> Counters {
        // A recorder counts in 32 bits, and no stretch of time has hours; a damaged file must not overflow the sums.
        let count = |n: u64| n.min(u32::MAX.into());
        let [reads, writes, remote, placed] = [f.reads, f.writes, f.remote, f.placed].map(count);
        Counters { reads, writes, remote, placed, cost_ns: f.cost_ns.min(1 << 44) }
    }

    /// As large a part of these as `part` is of `whole`.
    pub(super) fn part(&self, part: &Counters, whole: &Counters) -> Counters {
        let of = |own: u64, part: u64, whole: u64| (own as f64 * ratio(part, whole)).round() as u64;
        let (accesses, all) = (part.accesses(), whole.accesses());
        Counters {
            reads: of(self.reads, accesses, all),
            writes: of(self.writes, accesses, all),
            remote: of(self.remote, accesses, all),
            placed: of(self.placed, accesses, all),
            cost_ns: of(self.cost_ns, part.cost_ns, whole.cost_ns),
        }
    }

    /// Adds another set of counters.
    pub fn add(&mut self, o: &Counters) {
        self.reads = self.reads.saturating_add(o.reads);
        self.writes = self.writes.saturating_add(o.writes);
        self.remote = self.remote.saturating_add(o.remote);
        self.placed = self.placed.saturating_add(o.placed);
        self.cost_ns = self.cost_ns.saturating_add(o.cost_ns);
    }
}

/// Which accesses are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum AccessFilter {
    /// Loads only.
    Read,
    /// Stores only.
    Write,
    /// Both.
    #[default]
    All,
}

impl AccessFilter {
    /// The accesses that pass.
    pub fn count(self, c: &Counters) -> u64 {
        match self {
            AccessFilter::Read => c.reads,
            AccessFilter::Write => c.writes,
            AccessFilter::All => c.accesses(),
        }
    }
}

/// Counters of one page of one instance, by one thread, in one time slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// Index into [`Entry::seen`].
    pub instance: u32,
    /// Page number counted from the page that holds the instance's first byte.
    pub page: u32,
    /// Thread.
    pub thread: ThreadId,
    /// Time slot, 0 .. [`TIME_SLOTS`].
    pub slot: u16,
    /// Counters.
    pub counters: Counters,
}

/// Pages of one instance first touched by one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TouchRun {
    /// Index into [`Entry::seen`].
    pub instance: u32,
    /// First page, counted as in [`Cell::page`].
    pub page: u32,
    /// Pages.
    pub pages: u32,
    /// Thread.
    pub thread: ThreadId,
    /// Time of the first touch, ns.
    pub time_ns: u64,
}
