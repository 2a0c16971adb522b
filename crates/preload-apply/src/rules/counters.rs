//! Counters of each rule.

use core::sync::atomic::{AtomicU64, Ordering};

use numamma_kernel::policy::MAX_NODES;
use numamma_plan::reason::Reason;

/// Places in which threads count; a power of two. With one for all, small objects of two threads that share nothing
/// took ten times as long as those of one.
const STRIPES: usize = 8;

/// How many objects a rule has found, and their bytes. Counted for every allocation, so threads count in different
/// cache lines.
#[derive(Default)]
pub struct Found([Stripe; STRIPES]);

#[derive(Default)]
#[repr(align(64))]
struct Stripe {
    instances: AtomicU64,
    bytes: AtomicU64,
}

impl Found {
    /// Counts an object of `bytes`. `thread` differs between threads.
    pub fn count(&self, thread: usize, bytes: usize) {
        let stripe = &self.0[thread % STRIPES];
        add(&stripe.instances, 1);
        add(&stripe.bytes, bytes as u64);
    }

    /// Objects found.
    pub fn instances(&self) -> u64 {
        self.0.iter().fold(0, |sum, stripe| sum.wrapping_add(stripe.instances.load(Ordering::Relaxed)))
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> u64 {
        self.0.iter().fold(0, |sum, stripe| sum.wrapping_add(stripe.bytes.load(Ordering::Relaxed)))
    }
}

/// Counters of one rule, summed over its objects; any thread may add.
#[derive(Default)]
pub struct Counters {
    /// Objects found.
    pub found: Found,
    /// Of these, without a whole page, or too small for pages of their own.
    pub too_small: AtomicU64,
    /// Of the others, not placed.
    pub unplaced: AtomicU64,
    /// Of these, refused by the kernel.
    pub refused: AtomicU64,
    /// The last error of the kernel.
    pub error: AtomicU64,
    /// Of the unplaced, refused by the budget of mappings.
    pub over_budget: AtomicU64,
    /// Of the unplaced, those whose memory would come and go too often, see [`super::churn`].
    pub too_brief: AtomicU64,
    /// Of the unplaced, memory that no policy reaches: read-only data, files, shared memory.
    pub out_of_reach: AtomicU64,
    /// Calls of mbind for this rule.
    pub mbind_calls: AtomicU64,
    /// Time spent placing, ns.
    pub place_ns: AtomicU64,
    /// Pages that were waiting to be moved to the place of a phase when last checked.
    pub waiting: AtomicU64,
    /// Pages with a planned node.
    pub planned: AtomicU64,
    /// Pages that existed when checked.
    pub present: AtomicU64,
    /// Of these, on plan.
    pub on_plan: AtomicU64,
    /// Of these, off plan.
    pub off_plan: AtomicU64,
    /// Of the present pages, those on each node, by its number; see [`Counters::of_nodes`].
    pub by_node: Box<[AtomicU64]>,
    /// Pages off plan by reason, see [`Reason`].
    pub reasons: [AtomicU64; Reason::ALL.len()],
    /// A bit for each node that was full when pages planned there were allocated, see [`Reason::Spilled`].
    pub full_nodes: [AtomicU64; MAX_NODES / 64],
    /// Pages with a planned node that were swapped out when checked.
    pub swapped: AtomicU64,
    /// Bytes of the last block size used.
    pub block: AtomicU64,
}

impl Counters {
    /// Counters that count the pages of each of the first `nodes` nodes; the default counts those of none.
    pub fn of_nodes(nodes: usize) -> Counters {
        Counters { by_node: (0..nodes).map(|_| AtomicU64::new(0)).collect(), ..Counters::default() }
    }
}

/// Relaxed, because totals are read only at exit.
pub fn add(counter: &AtomicU64, value: u64) {
    counter.fetch_add(value, Ordering::Relaxed);
}
