//! What the whole library shares once the policy is accepted: set once before `main`, read by the hooks.

use std::borrow::Cow;

use core::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU64, Ordering};

use numamma_plan::callsite::group::RuleGroup;
use numamma_plan::machine::Machine;
use numamma_plan::plan::{self, Layout, PagePlan};
use numamma_plan::policy::{ObjectRule, Place, Policy, PolicyKind};

use super::counters::Counters;
use super::small_heap::Homes;

/// Share of vm.max_map_count that all placed objects together may use: beyond the limit pthread_create and
/// malloc of the program fail, so most of it must stay the program's.
const BUDGET_DIVISOR: u64 = 4;
/// Share that must stay free when the program's own mappings are many.
const FREE_DIVISOR: u64 = 4;
/// Mappings that placed objects take before the program's own are counted again: that costs milliseconds when they are many.
const RECOUNT: u64 = 1024;

/// One of the places of a rule: its own, or that of a phase.
pub struct Placing {
    /// As in the file.
    pub place: Place,
    /// Node of each block in turn, see [`plan::node_list`].
    pub nodes: Vec<u32>,
    /// Layout of a page map, which only depends on the place: plans of allocations must not allocate.
    pub map: Option<Layout>,
    /// Where small objects go; none when they cannot be placed under this policy.
    pub homes: Homes,
    /// Index of the phase; none for the rule's own place.
    pub phase: Option<usize>,
    /// Nodes that `bind-block` may name.
    pub named: Vec<u32>,
    /// Nodes of the blocks of `bind-block` by where its threads were seen; null until then, leaked afterwards.
    pub seen: AtomicPtr<Vec<u32>>,
}

impl Placing {
    /// Node of a block of `bind-block` whose thread is known to be on node `on`: that one if the rule may use it.
    pub fn or_ahead(&self, on: u32, ahead: u32) -> u32 {
        if self.named.contains(&on) { on } else { ahead }
    }
}

/// One rule of the policy at work.
pub struct Rule {
    /// As in the file.
    pub rule: ObjectRule,
    /// Its own place, then those of its phases.
    pub placings: Vec<Placing>,
    /// Which of them holds, with the ticket of the phase that brought it: see [`Rule::begin_phase`].
    now: AtomicU64,
    /// Totals.
    pub counters: Counters,
    /// It was said that its blocks are larger than asked for.
    pub said_coarse: AtomicBool,
}

/// Bits of `Rule::now` that hold the index of the placing; the ticket is above.
const PLACING_BITS: u32 = 8;
const _: () = assert!(numamma_plan::check::MOST_PHASES < 1 << PLACING_BITS);

impl Rule {
    /// A rule in its own place; `placings` is not empty.
    pub fn new(rule: ObjectRule, placings: Vec<Placing>) -> Rule {
        let (now, counters, said_coarse) = Default::default();
        Rule { rule, placings, now, counters, said_coarse }
    }

    /// Index of the placing that holds now.
    #[inline]
    pub fn now(&self) -> usize {
        // Acquire pairs with `begin_phase`: nothing else is read through it, but the plan must not be older than the phase.
        (self.now.load(Ordering::Acquire) & ((1 << PLACING_BITS) - 1)) as usize
    }

    /// The placing that holds now.
    pub fn placing(&self) -> Option<&Placing> {
        self.placings.get(self.now())
    }

    /// Nodes among which an allocation remembers the one it is local to: those of the place that is `local`, if any is.
    pub fn local_nodes(&self) -> &[u32] {
        let local = self.placings.iter().find(|p| p.place.policy == PolicyKind::Local);
        local.or_else(|| self.placings.first()).map_or(&[], |p| &p.nodes)
    }

    /// Phase `phase` begins as the `ticket`-th to begin. Of two that begin at once the later ticket holds, for every rule
    /// alike. True if the rule has another place from now on.
    pub fn begin_phase(&self, phase: usize, ticket: u64) -> bool {
        let Some(index) = self.placings.iter().position(|p| p.phase == Some(phase)) else { return false };
        let wanted = ticket << PLACING_BITS | index as u64;
        let before = self.now.fetch_max(wanted, Ordering::AcqRel);
        before < wanted && before & ((1 << PLACING_BITS) - 1) != index as u64
    }
}

/// The accepted policy and the machine it meets.
pub struct State {
    /// As in the file, without its objects: these are in `rules`.
    pub policy: Policy,
    /// This machine.
    pub machine: Machine,
    /// CPUs of each list of an explicit binding.
    pub cpu_lists: Vec<Vec<u32>>,
    /// Rules in the order of the file.
    pub rules: Vec<Rule>,
    /// Which of their allocations the rules for call sites take.
    pub selections: Vec<RuleGroup>,
    /// The build is the one the policy was made from: addresses can be believed.
    pub same_build: bool,
    /// Where to write the report, if anywhere, and the process that writes it.
    pub report: Option<std::path::PathBuf>,
    /// Process that owns the report: forked children keep quiet.
    pub pid: u32,
    /// NUMAMMA_VERBOSE=1.
    pub verbose: bool,
    /// Mappings in use by placed objects; less than nothing for a moment, when one goes while the mover exchanges its policy.
    pub mappings: AtomicI64,
    /// Mappings of the program itself, when they were last counted.
    pub others: AtomicU64,
    /// What `mappings` was then.
    pub counted_at: AtomicU64,
}

static STATE: AtomicPtr<State> = AtomicPtr::new(core::ptr::null_mut());

/// The state; `None` before start-up is complete and in programs that are left alone.
#[inline(always)]
pub fn get() -> Option<&'static State> {
    // SAFETY: the pointer is null or a leaked box; Acquire pairs with the Release of `publish`.
    unsafe { STATE.load(Ordering::Acquire).as_ref() }
}

/// Makes the state visible to the hooks. Called once.
pub fn publish(state: State) -> &'static State {
    let leaked: &'static State = Box::leak(Box::new(state));
    STATE.store(core::ptr::from_ref(leaked).cast_mut(), Ordering::Release);
    leaked
}

impl State {
    /// Mappings all placed objects may use: a quarter of the limit, less when the program's own would leave less than
    /// another quarter free.
    pub fn budget(&self) -> u64 {
        let limit = self.machine.max_map_count;
        let room = (limit - limit / FREE_DIVISOR).saturating_sub(self.others.load(Ordering::Relaxed));
        room.min(limit / BUDGET_DIVISOR)
    }

    /// Counts the program's own mappings, by the lines of /proc/self/maps, if much was placed since.
    fn recount(&self, wanted: u64) {
        let used = self.used_mappings();
        if used.saturating_add(wanted).saturating_sub(self.counted_at.load(Ordering::Relaxed)) < RECOUNT {
            return;
        }
        self.counted_at.store(used.saturating_add(wanted), Ordering::Relaxed);
        self.others.store(numamma_kernel::maps::count_own().saturating_sub(used), Ordering::Relaxed);
    }

    /// Plan of an object of rule `index` in its place number `placing`. Allocates nothing: it is made for every placed
    /// allocation.
    pub fn plan(&self, index: usize, placing: usize, size: u64, pages: u64) -> Option<PagePlan<'_>> {
        let rule = self.rules.get(index)?;
        let page_size = plan::page_size_of(&rule.placings.get(placing)?.place, size, self.machine.thp);
        self.plan_of_pages(index, placing, size, pages, page_size)
    }

    /// The same for memory whose page size is known.
    pub fn plan_of_pages(
        &self,
        index: usize,
        placing: usize,
        size: u64,
        pages: u64,
        page_size: u64,
    ) -> Option<PagePlan<'_>> {
        let rule = self.rules.get(index)?;
        let Placing { place, nodes, map, .. } = rule.placings.get(placing)?;
        let pattern = rule.rule.pattern.as_ref();
        let count = nodes.len() as u64;
        let layout = map.or_else(|| plan::layout(place, pattern, size, page_size, count).ok())?;
        let (huge, mode) = (place.huge.unwrap_or_default(), place.mode.unwrap_or_default());
        Some(PagePlan { pages, nodes: Cow::Borrowed(nodes), layout, huge, mode })
    }

    /// This process writes the report (a forked child has another pid and keeps quiet).
    pub fn reports(&self) -> bool {
        self.report.is_some() && numamma_kernel::sys::pid() == self.pid
    }

    /// Takes `wanted` mappings out of the budget instead of `old` ones; what would be left when that is too much.
    pub fn take_mappings(&self, wanted: u64, old: u64) -> Result<(), u64> {
        self.recount(wanted.saturating_sub(old));
        let budget = self.budget() as i64;
        let (wanted, old) = (wanted as i64, old as i64);
        let mut used = self.mappings.load(Ordering::Relaxed);
        loop {
            let left = budget.saturating_sub(used.max(0)).max(0).saturating_add(old);
            if wanted > left {
                return Err(left as u64);
            }
            let more = used.wrapping_add(wanted - old);
            match self.mappings.compare_exchange_weak(used, more, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => used = now,
            }
        }
    }

    /// Gives mappings back.
    pub fn give_mappings(&self, count: u64) {
        self.mappings.fetch_sub(count as i64, Ordering::Relaxed);
    }

    /// Mappings in use by placed objects.
    pub fn used_mappings(&self) -> u64 {
        self.mappings.load(Ordering::Relaxed).max(0) as u64
    }
}
