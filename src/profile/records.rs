//! What a profile holds. Times are nanoseconds since the start of the run, sizes and addresses bytes.
//!
//! Ids are dense indices given in order of first appearance; id 0 of each table is used.
//! Later records with an id that was already seen replace the earlier one (thread end times, counts).

use serde::{Deserialize, Serialize};

pub use crate::launch::exit::Ended;
use crate::topology::Topology;

/// Index of a [`Module`].
pub type ModuleId = u32;
/// Index of a [`Thread`].
pub type ThreadId = u32;
/// Index of a [`CallSite`].
pub type SiteId = u32;
/// Index of an [`Object`].
pub type ObjectId = u32;

/// Node number of a page whose node is not known.
pub const NODE_UNKNOWN: u8 = u8::MAX;

/// A program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Program {
    /// Path as resolved.
    pub path: String,
    /// Arguments, `argv[0]` first.
    pub argv: Vec<String>,
    /// Hex GNU build-id.
    pub build_id: Option<String>,
}

/// How a run is sampled.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Sampling {
    /// `timer` or `none`.
    pub sampler: String,
    /// Why this sampler, one sentence.
    pub reason: String,
    /// Sampling period per thread, nanoseconds of CPU time; 0: no samples.
    pub period_ns: u64,
    /// Measured lower bound of the cost of one sample, nanoseconds; 0 when not calibrated.
    pub cost_ns: u64,
    /// Requested bound of the overhead, a fraction.
    pub max_overhead: f64,
}

/// First record of a file: what ran, where and how it was sampled.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Header {
    /// Version of numamma that recorded it.
    pub numamma: String,
    /// What ran.
    pub program: Program,
    /// Host name.
    pub host: String,
    /// Seconds since 1970 at the start.
    pub started_unix: u64,
    /// Process id of the program.
    pub pid: u32,
    /// How it was sampled.
    pub sampling: Sampling,
    /// Base page size, bytes.
    pub page_size: u64,
    /// `always`, `madvise`, `never` or `unknown` (/sys/kernel/mm/transparent_hugepage/enabled).
    pub thp: String,
    /// Nodes of the machine that ran it.
    pub topology: Topology,
    /// Whether allocation events were recorded (false for static programs).
    pub allocations: bool,
}

/// An ELF file that was mapped.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Module {
    /// Id.
    pub id: ModuleId,
    /// Path inside the program's mount namespace.
    pub path: String,
    /// Hex GNU build-id.
    pub build_id: Option<String>,
    /// ELF virtual addresses that the program may not write, (first, one past the last): code and constants.
    pub read_only: Vec<(u64, u64)>,
}

/// A place in code: ELF virtual address inside a module (address minus load bias).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Frame {
    /// Module; [`NO_MODULE`] for code outside any ELF file (JIT), where `offset` is the address.
    pub module: ModuleId,
    /// ELF virtual address.
    pub offset: u64,
}

/// Module of code outside every ELF file.
pub const NO_MODULE: ModuleId = u32::MAX;

/// A thread of the program.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Thread {
    /// Id; ids follow creation order.
    pub id: ThreadId,
    /// Process.
    pub pid: u32,
    /// Kernel thread id.
    pub tid: u32,
    /// Last name seen (prctl PR_SET_NAME / comm).
    pub name: String,
    /// Start routine as given to pthread_create.
    pub start_routine: Option<Frame>,
    /// Thread that created it; none for the first thread of the run, and where the kernel did not say.
    pub creator: Option<ThreadId>,
    /// Return addresses of the call of pthread_create, innermost first; empty where none was recorded.
    pub created_at: Vec<Frame>,
    /// What it runs, where the start routine serves all threads of C++ and the object says so. In the file a record of
    /// its own, see [`Record::ThreadTasks`].
    #[serde(skip)]
    pub task: Option<Task>,
    /// How often it waited, where that is known. In the file a record of its own, see [`Record::ThreadWaits`].
    #[serde(skip)]
    pub waits: Option<Waits>,
    /// Start of its lifetime.
    pub start_ns: u64,
    /// End of its lifetime; none while it exists.
    pub end_ns: Option<u64>,
    /// CPUs it was sampled on, ascending.
    pub cpus: Vec<u16>,
    /// CPU migrations counted by the kernel or seen between samples.
    pub migrations: u64,
    /// Samples taken in it.
    pub samples: u64,
}

/// What a thread of std::thread runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Task {
    /// Virtual table of the object with the function and its arguments: its class, so the type of the function.
    pub class: Frame,
    /// The first address of code in the object: the function, where it is given by a pointer.
    pub function: Option<Frame>,
}

/// The task of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadTask {
    /// Thread.
    pub thread: ThreadId,
    /// What it runs.
    pub task: Task,
}

/// How often a thread gave its CPU away because it could not go on (voluntary context switches), in the whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Waits {
    /// All of them.
    pub all: u64,
    /// Of these, as far as that was seen, those for other threads: for locks, conditions, barriers, ends of threads.
    pub for_threads: u64,
    /// And those for a time, a device, a file, a page.
    pub otherwise: u64,
    /// CPU time.
    pub ran_ns: u64,
    /// Time in which it neither ran nor waited for a CPU.
    pub blocked_ns: u64,
    /// The part of its life that both are known of, from its start.
    pub seen_ns: u64,
    /// Whether it may run on one CPU, or on those of one node of several, only.
    pub bound: bool,
}

impl Waits {
    /// Adds those of a thread of another process.
    pub fn add(&mut self, other: &Waits) {
        self.all = self.all.saturating_add(other.all);
        self.for_threads = self.for_threads.saturating_add(other.for_threads);
        self.otherwise = self.otherwise.saturating_add(other.otherwise);
        self.ran_ns = self.ran_ns.saturating_add(other.ran_ns);
        self.blocked_ns = self.blocked_ns.saturating_add(other.blocked_ns);
        self.seen_ns = self.seen_ns.saturating_add(other.seen_ns);
        self.bound &= other.bound;
    }
}

/// The waits of a thread; the last record of a thread counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ThreadWaits {
    /// Thread.
    pub thread: ThreadId,
    /// How often it waited.
    pub waits: Waits,
}

/// A call stack that allocated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSite {
    /// Id.
    pub id: SiteId,
    /// Return addresses, innermost first.
    pub frames: Vec<Frame>,
}

/// Counts of one call site, cumulative; the last record counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SiteCount {
    /// Call site.
    pub site: SiteId,
    /// Allocations so far.
    pub instances: u64,
    /// Bytes allocated so far.
    pub bytes: u64,
    /// Largest number of bytes alive at one time.
    pub peak_bytes: u64,
    /// Size of the largest instance.
    pub max_size: u64,
}

/// Blocks that the program freed, without those that realloc replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FreeCount {
    /// All of them.
    pub all: u64,
    /// Of these, those that another thread of the same process had allocated.
    pub by_others: u64,
}

impl FreeCount {
    /// Adds others.
    pub fn add(&mut self, other: &FreeCount) {
        self.all = self.all.saturating_add(other.all);
        self.by_others = self.by_others.saturating_add(other.by_others);
    }

    /// The same of `all` allocations, of which `part` were reported one by one.
    pub fn scaled(&self, all: u64, part: u64) -> FreeCount {
        let of = |n: u64| {
            let scaled = u128::from(n) * u128::from(all.max(part)) / u128::from(part.max(1));
            if part == 0 { n } else { u64::try_from(scaled).unwrap_or(u64::MAX) }
        };
        FreeCount { all: of(self.all), by_others: of(self.by_others) }
    }
}

/// Frees of the blocks of one call site that were seen, cumulative; the last record counts. Those of blocks that were
/// not reported, because the program allocates so often, are not among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SiteFrees {
    /// Call site.
    pub site: SiteId,
    /// Allocations that were reported one by one, of all those of [`SiteCount::instances`].
    pub reported: u64,
    /// Blocks under [`SMALL_OBJECT`] bytes.
    pub small: FreeCount,
    /// Larger blocks.
    pub large: FreeCount,
}

/// Kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ObjectKind {
    /// A named variable of an ELF file.
    Global,
    /// The part of an ELF section that no symbol names.
    Section,
    /// One allocation of at least [`SMALL_OBJECT`] bytes.
    Heap,
    /// All allocations of a call site that are smaller than [`SMALL_OBJECT`], together.
    SmallHeap,
    /// A mapping that is none of the others (file, shm, hugetlb, an allocator's arena).
    Mapping,
    /// Stack of a thread.
    Stack,
    /// Static TLS of a thread, where it can be distinguished from the stack.
    Tls,
    /// Memory of which nothing is known at that address and time.
    #[default]
    Unknown,
}

/// Allocations below this are grouped by call site: one page, the unit of placement.
pub const SMALL_OBJECT: u64 = 4096;

/// Where memory lies and how long it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Instance {
    /// First byte; 0 for [`ObjectKind::SmallHeap`].
    pub base: u64,
    /// Bytes; for [`ObjectKind::SmallHeap`] see the site's counts.
    pub size: u64,
    /// Start of its lifetime.
    pub born_ns: u64,
    /// End of its lifetime; none while it exists.
    pub died_ns: Option<u64>,
    /// Thread that allocated it; for stacks, its owner.
    pub thread: Option<ThreadId>,
}

/// A range of memory with one identity: a variable, an allocation, a mapping, a stack.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Object {
    /// Id.
    pub id: ObjectId,
    /// Kind.
    pub kind: ObjectKind,
    /// Linkage name of a global, section name, mapping name, thread name of a stack; empty for heap.
    pub name: String,
    /// Module of a global.
    pub module: Option<ModuleId>,
    /// ELF virtual address of a global; 0 otherwise.
    pub vaddr: u64,
    /// Call site of a heap object, or of a mapping made by a hooked mmap.
    pub site: Option<SiteId>,
    /// Process; 0 for shared memory, which several processes may map.
    pub pid: u32,
    /// Its memory; addresses of shared memory are those of the first mapping, in all processes.
    pub instance: Instance,
}

/// How an access was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Certainty {
    /// Exact: on an unambiguous path.
    Exact,
    /// The path took one ambiguous back-edge: counted as an access, never charged with CPU time.
    Loop,
    /// Only the object is known (of a gather whose indices are lost: by the base register).
    ObjectOnly,
    /// Only the page is known: ways to the sample that cannot be told apart access the same one, or the indices of a
    /// gather or of a look-up were read from memory after the sample.
    Page,
}

/// One memory access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// When the sample was taken.
    pub time_ns: u64,
    /// Thread that made the access.
    pub thread: ThreadId,
    /// CPU that the thread ran on.
    pub cpu: u16,
    /// Object accessed.
    pub object: ObjectId,
    /// Address.
    pub addr: u64,
    /// Bytes accessed.
    pub size: u8,
    /// Store (or read-modify-write).
    pub write: bool,
    /// How the address was found.
    pub certainty: Certainty,
    /// CPU time this access is charged with, nanoseconds: the sample's period on the access that
    /// waited, 0 on the others.
    pub cost_ns: u32,
    /// Node of the page at that time, or [`NODE_UNKNOWN`].
    pub node: u8,
    /// Instruction.
    pub ip: Frame,
}

/// Accesses to one page of an object by one instruction of a thread, close in time, summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folded {
    /// When the first of them was sampled.
    pub time_ns: u64,
    /// Thread that made them.
    pub thread: ThreadId,
    /// Object accessed.
    pub object: ObjectId,
    /// Address of the first.
    pub addr: u64,
    /// Whether the object is all that is known of where: the address is that of one of the accesses, or of none.
    pub object_only: bool,
    /// Instruction.
    pub ip: Frame,
    /// Loads.
    pub reads: u64,
    /// Stores.
    pub writes: u64,
    /// Of both, those to a page on another node than the CPU's.
    pub remote: u64,
    /// Of both, those for which that is known.
    pub placed: u64,
    /// CPU time charged, ns.
    pub cost_ns: u64,
}

/// Objects that ended without a sample and are not in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Like {
    /// An object of the same call site (or kind and name) and of about the same size.
    pub object: ObjectId,
    /// How many there were.
    pub more: u64,
}

/// An object that realloc made of another one: the same memory for the program, with another size and mostly at another
/// address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Resized {
    /// What realloc returned.
    pub object: ObjectId,
    /// What it was before; of those that are in the file the last.
    pub before: ObjectId,
    /// Calls of realloc from the one to the other.
    pub calls: u64,
}

/// Object of a [`Touch`] whose object is not in the file: only the addresses count, for objects that were there later.
pub const NO_OBJECT: ObjectId = ObjectId::MAX;

/// Consecutive pages of an object first touched by one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Touch {
    /// Object.
    pub object: ObjectId,
    /// Address of the first page, rounded down to the page.
    pub addr: u64,
    /// Number of base pages.
    pub pages: u64,
    /// Thread that touched the pages first.
    pub thread: ThreadId,
    /// Time of the first of them.
    pub time_ns: u64,
}

/// What a frame is called: outermost function first when calls were inlined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Symbol {
    /// The place.
    pub frame: Frame,
    /// Demangled functions with file and line, innermost (inlined) first.
    pub locations: Vec<Location>,
}

/// One function at one line.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Location {
    /// Demangled name.
    pub function: Option<String>,
    /// Source file.
    pub file: Option<String>,
    /// Line.
    pub line: Option<u32>,
}

/// Where an instruction that accessed memory belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeUnit {
    /// The instruction.
    pub frame: Frame,
    /// First address of its function, in the same module; of code outside every ELF file, of its mapping.
    pub function: u64,
    /// First address of its loop nest: the outermost loop around it that calls nothing, else the innermost one;
    /// `function` outside of loops.
    pub nest: u64,
}

/// How the address of an access comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum AddressKind {
    /// Not known: outside of a loop, or from a value that a call returned.
    #[default]
    Unknown,
    /// From registers that count: a sequence, or always the same place.
    Counted,
    /// From a value that the loop loads, or makes of the last one by more than counting: a gather, random numbers.
    Loaded,
    /// From a value whose own address was loaded before: a list, a tree, a search.
    Chained,
    /// Always the same, by a loop that pauses until another thread writes there: a spin lock, a barrier.
    Spun,
}

/// What an instruction that accesses memory tells of the time its accesses take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessCode {
    /// The instruction.
    pub frame: Frame,
    /// How its address comes about.
    pub address: AddressKind,
    /// Instructions of the innermost loop around it; 0 outside of loops.
    pub body: u32,
    /// Instructions from it to the next that accesses memory, itself included; 0 outside of loops.
    pub gap: u32,
    /// Samples that were charged to it and taken right behind it; 0, as the next, where that tells nothing (emulators).
    pub behind: u64,
    /// Samples that were charged to it and taken at a later instruction.
    pub later: u64,
}

/// Functions that are missing between two frames of call stacks, because they left by a tail call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostFrames {
    /// The frame whose code they jumped to; none for the allocator.
    pub inner: Option<Frame>,
    /// The frame that called the outermost of them.
    pub outer: Frame,
    /// The functions, innermost first, each at the line of its tail call.
    pub locations: Vec<Location>,
}

/// Bytes from which on a member of a variable is a part of its own: 16 pages. Of such a part at most an eighth, its
/// first and its last page, is shared with its neighbours, and on machines of 8 nodes two pages are left for each node.
pub const PART_LEAST: u64 = 16 * SMALL_OBJECT;

/// A member of a variable.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Member {
    /// Name as in the source, of nested structs `outer.inner`.
    pub name: String,
    /// Offset of its first byte from that of the variable.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

/// The members of a global variable: of a COMMON block, a struct or a class.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Members {
    /// Module of the variable.
    pub module: ModuleId,
    /// Its ELF virtual address.
    pub vaddr: u64,
    /// Ascending by offset, without overlap.
    pub members: Vec<Member>,
}

/// Accesses to a word of a shared cache line, in the whole run. A set of threads has bit n for those whose number, in
/// order of their first access, is n modulo 64.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SharedWord {
    /// Offset of its first byte from that of the line.
    pub offset: u8,
    /// Threads that read it.
    pub readers: u64,
    /// Threads that wrote it.
    pub writers: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// The instruction that read it last.
    pub read_ip: Option<Frame>,
    /// The instruction that wrote it last.
    pub write_ip: Option<Frame>,
    /// The member of the variable that it is in; empty when not known.
    pub field: String,
}

/// A cache line that several threads used, as the `trace` sampler counted it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SharedLine {
    /// The object of the word that was used most.
    pub object: ObjectId,
    /// Address of the line.
    pub addr: u64,
    /// Times that a write took the line from a thread that used other words only.
    pub other_words: u64,
    /// Times that a write took it from a thread that used the written word.
    pub same_word: u64,
    /// Its words that were used, ascending.
    pub words: Vec<SharedWord>,
}

/// Counters of the recorder, cumulative; the last record counts.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Stats {
    /// Length of the run so far.
    pub duration_ns: u64,
    /// CPU time of the program so far (user and system).
    pub cpu_ns: u64,
    /// Samples taken.
    pub samples: u64,
    /// Samples whose waiting access was found.
    pub resolved: u64,
    /// Samples lost in full buffers.
    pub lost: u64,
    /// Samples without any memory access on the path.
    pub no_access: u64,
    /// Samples whose nearest access could not be computed (address register lost).
    pub unresolved: u64,
    /// Samples whose waiting access was a vector gather or scatter with lost indices.
    pub vsib: u64,
    /// Samples in code that could not be read or decoded.
    pub undecoded: u64,
    /// Samples in NumaMMA's own preload, which belong to the tracking of allocations.
    pub own: u64,
    /// Samples whose waiting access went through a segment register to TLS.
    pub tls: u64,
    /// First-touch faults seen.
    pub faults: u64,
    /// First-touch faults lost in full buffers.
    pub faults_lost: u64,
    /// Allocation events seen.
    pub alloc_events: u64,
    /// Allocation events lost in full buffers.
    pub alloc_lost: u64,
    /// CPU time of the recorder.
    pub recorder_cpu_ns: u64,
    /// Samples taken over samples expected from CPU time and period.
    pub achieved: f64,
    /// Counters that have a record of their own, [`Record::EventCounts`].
    #[serde(skip)]
    pub events: EventCounts,
}

/// Counters of the kernel's events that are not in [`Stats`], cumulative; the last record counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EventCounts {
    /// What the record of a page fault cost the program, nanoseconds; 0 when not measured.
    pub fault_ns: u64,
    /// A page fault in [`Record::SampledTouches`] stands for so many of its thread.
    pub fault_period: u32,
    /// Page faults that were sampled while not all were recorded.
    pub faults_sampled: u64,
    /// Time of the run in which not all page faults were recorded.
    pub thinned_ns: u64,
    /// Part of it in which none was.
    pub unseen_ns: u64,
    /// Records of mappings, names, starts and ends of threads that were lost in full buffers.
    pub mappings_lost: u64,
    /// Threads and processes whose start was among them.
    pub starts_lost: u64,
    /// These last, as profiles of before have none.
    pub idle: Option<Idle>,
    /// None also where it was not measured.
    pub kernel: Option<KernelCost>,
}

/// CPU time that the kernel took from the program for the recording, beside samples. What was measured for each event
/// times their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KernelCost {
    /// All page faults: those that were recorded, those that only passed an event, and those beside events that were
    /// switched off.
    pub faults_ns: u64,
    /// Records of mappings and of heaps that grew.
    pub mappings_ns: u64,
}

/// Time of the run in which the program did not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Idle {
    /// No thread ran or waited for a CPU: they slept, or waited for devices, files or each other.
    pub idle_ns: u64,
    /// Time that threads waited for a CPU, summed over the threads.
    pub waited_ns: u64,
}

/// One record of a profile file; a chunk holds one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// Always first.
    Header(Header),
    /// New or changed modules.
    Modules(Vec<Module>),
    /// New or changed threads.
    Threads(Vec<Thread>),
    /// New call sites.
    Sites(Vec<CallSite>),
    /// Counts of call sites.
    SiteCounts(Vec<SiteCount>),
    /// New or changed objects.
    Objects(Vec<Object>),
    /// Accesses, in time order within the record.
    Accesses(Vec<Access>),
    /// First touches.
    Touches(Vec<Touch>),
    /// Names of frames.
    Symbols(Vec<Symbol>),
    /// Counters.
    Stats(Stats),
    /// Always last of a complete file.
    End(Ended),
    /// Notes for the user about this recording, one sentence each.
    Notes(Vec<String>),
    /// Functions and loops of the instructions in the accesses.
    Code(Vec<CodeUnit>),
    /// What tail calls removed from the call stacks.
    LostFrames(Vec<LostFrames>),
    /// Members of global variables.
    Members(Vec<Members>),
    /// How the addresses of accesses come about, and where they were sampled.
    AccessCode(Vec<AccessCode>),
    /// First touches, of one page each, while only one in [`EventCounts::fault_period`] page faults was recorded.
    SampledTouches(Vec<Touch>),
    /// Counters of the kernel's events.
    EventCounts(EventCounts),
    /// What threads of std::thread run.
    ThreadTasks(Vec<ThreadTask>),
    /// MPI rank of the program; only where a launcher gave one.
    Rank(u32),
    /// Accesses, summed up when a long recording was compacted.
    Folded(Vec<Folded>),
    /// Objects that were left out then.
    Like(Vec<Like>),
    /// Objects that realloc made of others.
    Resized(Vec<Resized>),
    /// Cache lines that several threads used.
    SharedLines(Vec<SharedLine>),
    /// How often threads waited.
    ThreadWaits(Vec<ThreadWaits>),
    /// Which threads freed what others allocated.
    SiteFrees(Vec<SiteFrees>),
}

impl Record {
    /// The record in two parts; none for a record that is no list of at least two items.
    pub fn halves(&self) -> Option<(Record, Record)> {
        fn cut<T: Clone>(list: &[T], record: fn(Vec<T>) -> Record) -> Option<(Record, Record)> {
            let (first, second) = list.split_at(list.len() / 2);
            (list.len() > 1).then(|| (record(first.to_vec()), record(second.to_vec())))
        }
        match self {
            Record::Header(_) | Record::Stats(_) | Record::End(_) | Record::EventCounts(_) | Record::Rank(_) => None,
            Record::Modules(list) => cut(list, Record::Modules),
            Record::Threads(list) => cut(list, Record::Threads),
            Record::Sites(list) => cut(list, Record::Sites),
            Record::SiteCounts(list) => cut(list, Record::SiteCounts),
            Record::Objects(list) => cut(list, Record::Objects),
            Record::Accesses(list) => cut(list, Record::Accesses),
            Record::Touches(list) => cut(list, Record::Touches),
            Record::Symbols(list) => cut(list, Record::Symbols),
            Record::Notes(list) => cut(list, Record::Notes),
            Record::Code(list) => cut(list, Record::Code),
            Record::LostFrames(list) => cut(list, Record::LostFrames),
            Record::Members(list) => cut(list, Record::Members),
            Record::AccessCode(list) => cut(list, Record::AccessCode),
            Record::SampledTouches(list) => cut(list, Record::SampledTouches),
            Record::ThreadTasks(list) => cut(list, Record::ThreadTasks),
            Record::Folded(list) => cut(list, Record::Folded),
            Record::Like(list) => cut(list, Record::Like),
            Record::Resized(list) => cut(list, Record::Resized),
            Record::SharedLines(list) => cut(list, Record::SharedLines),
            Record::ThreadWaits(list) => cut(list, Record::ThreadWaits),
            Record::SiteFrees(list) => cut(list, Record::SiteFrees),
        }
    }
}

// The profile preload uses the same bound for the allocations that it thins.
const _: () = assert!(SMALL_OBJECT == numamma_channel::layout::SMALL as u64);
