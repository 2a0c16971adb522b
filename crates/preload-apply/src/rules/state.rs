//! The state that the whole library shares once the policy is accepted: written once before `main`, read by the hooks.

use std::borrow::Cow;

use core::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU64, Ordering};

use numamma_hook::own_stack;
use numamma_kernel::sys::PAGE;
use numamma_plan::callsite::group::{self, RuleGroup};
use numamma_plan::machine::{Given, Machine};
use numamma_plan::plan::{self, Layout, PagePlan};
use numamma_plan::policy::{ObjectRule, Phase, Place, Policy, PolicyKind};

use super::churn::Churn;
use super::counters::Counters;
use super::small_heap::{self, home::Homes};
use crate::threads::teams::Teams;

/// Share (1/4) of vm.max_map_count that all placed objects together may use. Beyond the limit pthread_create and malloc
/// of the program fail, so most of the limit is left to the program.
const BUDGET_DIVISOR: u64 = 4;
/// Share (1/4) that must stay free when the program itself has many mappings.
const FREE_DIVISOR: u64 = 4;
/// Mappings that placed objects may take before the program's own are counted again, which takes milliseconds when they
/// are many.
const RECOUNT_AFTER: u64 = 1024;

/// One place of a rule, prepared for use: its own, or that of a phase.
pub struct Placing {
    /// As in the file.
    pub place: Place,
    /// Node of each block, repeated cyclically; see [`plan::node_list`].
    pub nodes: Vec<u32>,
    /// The layout where it is the same for all objects, computed in advance: a page map, of which that allocates, and
    /// what needs no block size of its own for each object.
    pub layout: Option<Layout>,
    /// Homes of small objects; empty when small objects cannot be placed under this policy.
    pub homes: Homes,
    /// As many for those of all rules that share the heaps of this one; none where there are no such rules.
    pub shared: Homes,
    /// Index of the phase; none for the rule's own place.
    pub phase: Option<usize>,
    /// Of `bind-block`.
    pub thread_nodes: ThreadNodes,
}

/// Where `bind-block` may put the blocks of threads, and where the threads are.
#[derive(Default)]
pub struct ThreadNodes {
    /// Nodes that the rule may use.
    pub allowed: Vec<u32>,
    /// Nodes of the blocks as the threads were observed; null until then, leaked afterwards.
    pub observed: AtomicPtr<Vec<u32>>,
}

impl ThreadNodes {
    /// Node of a block whose thread is on node `on`: that node if the rule may use it, else `expected`.
    pub fn allowed_or(&self, on: u32, expected: u32) -> u32 {
        if self.allowed.contains(&on) { on } else { expected }
    }
}

/// One rule of the policy, prepared for use.
pub struct Rule {
    /// As in the file.
    pub rule: ObjectRule,
    /// Its own place, then those of its phases.
    pub placings: Vec<Placing>,
    /// Index of the current placing, with the ticket of the phase that set it: see [`Rule::begin_phase`].
    current: AtomicU64,
    pub counters: Counters,
    /// The sizes of its objects that come and go too often.
    pub churn: Churn,
    /// A message said that the blocks are larger than asked for.
    pub said_enlarged: AtomicBool,
    /// Of a rule for a part of an allocation that is the first for its call site: the indices of all of them, its own
    /// first. An object is of this rule, and its parts are placed by all.
    parts: Vec<usize>,
    /// Index of the first rule that places as this one does, which is its own if there is none before: its memory is
    /// that of this rule, see [`share_memory`].
    memory: usize,
    /// Index of the rule whose `shared` homes its small objects use; none where it has heaps of its own. `shares`: it
    /// has had objects there.
    heaps: Option<usize>,
    shares: AtomicBool,
    /// Its objects of fewer bytes stay where the program's allocator puts them, in every phase: all of a rule that
    /// leaves its objects alone, and those of less than a page where small ones cannot be placed. There, those that
    /// waste pages do, too: see [`wastes_pages`].
    left_below: usize,
}

/// Different places of a policy that are compared with those of other rules: each rule is compared with all of them
/// before the program starts.
const MOST_PLACES: usize = 256;

/// Bits of `Rule::current` that hold the index of the placing; the ticket is above.
const PLACING_BITS: u32 = 8;
const _: () = assert!(numamma_plan::check::MOST_PHASES < 1 << PLACING_BITS);

/// Whether whole pages take more than a quarter more than the `size` bytes of an object with the length that glibc
/// writes in front of it: a program of many such objects would take as much more memory. So it is of some sizes of up
/// to three pages.
#[inline]
fn wastes_pages(size: usize) -> bool {
    let taken = size.saturating_add(size_of::<usize>());
    (PAGE..=3 * PAGE + PAGE / 4).contains(&taken) && 4 * size.next_multiple_of(PAGE) > 5 * taken
}

impl Rule {
    /// A rule that holds its own place; `placings` is not empty.
    pub fn new(rule: ObjectRule, placings: Vec<Placing>, counters: Counters) -> Rule {
        let (current, churn, said_enlarged, heaps, shares) = Default::default();
        let leaves =
            |place: &Place| place.policy == PolicyKind::Default && place.huge.is_none() && place.mode.is_none();
        let left_below = match placings.as_slice() {
            all if all.iter().all(|placing| leaves(&placing.place)) => usize::MAX,
            all if all.iter().all(|placing| placing.homes.is_empty()) => PAGE,
            _ => 0,
        };
        let (parts, memory) = (Vec::new(), 0);
        Rule { rule, placings, current, counters, churn, said_enlarged, parts, memory, heaps, shares, left_below }
    }

    /// Makes it the first of the rules of these indices, which place the parts of its objects.
    pub fn divide(&mut self, parts: Vec<usize>) {
        self.parts = parts;
        self.left_below = PAGE;
    }

    /// See [`Rule::divide`]; none of a rule that places its objects as a whole.
    pub fn parts(&self) -> &[usize] {
        &self.parts
    }

    /// Makes homes that other rules share; `own` is its index.
    fn share_heaps(&mut self, own: usize) {
        for placing in self.placings.iter_mut().filter(|placing| placing.shared.is_empty()) {
            placing.shared = small_heap::home::homes(placing.place.policy, placing.nodes.len());
        }
        self.heaps = Some(own);
    }

    /// Index of the rule that has the heaps which it shares; none where its small objects are in heaps of its own.
    #[inline]
    pub fn shares_heaps_of(&self) -> Option<usize> {
        self.heaps
    }

    /// Notes that it has objects in them.
    #[inline]
    pub fn note_sharing(&self) {
        if !self.shares() {
            self.shares.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it has had objects in heaps that it shares.
    pub fn shares(&self) -> bool {
        self.shares.load(Ordering::Relaxed)
    }

    /// Whether `other` places each object as this rule does, and always will.
    fn places_as(&self, other: &Rule) -> bool {
        let only = |rule: &Rule| rule.placings.len() == 1 && rule.parts.is_empty();
        let is_alike = |(one, two): (&Placing, &Placing)| {
            // The blocks of threads are where these run, which is observed for each rule.
            one.place.policy != PolicyKind::BindBlock && one.place == two.place && one.nodes == two.nodes
        };
        only(self)
            && only(other)
            && self.rule.pattern == other.rule.pattern
            && self.placings.iter().zip(&other.placings).all(is_alike)
    }

    /// Whether an object of `size` bytes stays where the program's allocator puts it, in every phase.
    #[inline]
    pub fn leaves(&self, size: usize) -> bool {
        size < self.left_below || self.is_too_small(size)
    }

    /// Whether an object of `size` bytes is too small for pages of its own, and no others of this rule share its pages.
    #[inline]
    pub fn is_too_small(&self, size: usize) -> bool {
        self.left_below == PAGE && (size < PAGE || wastes_pages(size))
    }

    /// Whether an object of `size` bytes shares pages with others of this rule, or stays with the program's allocator
    /// where it cannot: whole pages would take too much. Where phases move objects, larger ones have pages of their
    /// own.
    #[inline]
    pub fn is_small(&self, size: usize) -> bool {
        size < PAGE || ((self.left_below == PAGE || self.placings.len() > 1) && wastes_pages(size))
    }

    /// Whether all of its objects do.
    pub fn leaves_all(&self) -> bool {
        self.left_below == usize::MAX
    }

    /// Index of the current placing.
    #[inline]
    pub fn current_index(&self) -> usize {
        // Acquire pairs with `begin_phase`: the plan must not be older than the phase.
        (self.current.load(Ordering::Acquire) & ((1 << PLACING_BITS) - 1)) as usize
    }

    /// The current placing.
    pub fn current_placing(&self) -> Option<&Placing> {
        self.placings.get(self.current_index())
    }

    /// Whether one of its places is `local`.
    pub fn has_local_place(&self) -> bool {
        self.placings.iter().any(|p| p.place.policy == PolicyKind::Local)
    }

    /// Nodes among which an allocation chooses its local node: those of the place that is `local`, else of the first
    /// place.
    pub fn local_nodes(&self) -> &[u32] {
        let local = self.placings.iter().find(|p| p.place.policy == PolicyKind::Local);
        local.or_else(|| self.placings.first()).map_or(&[], |p| &p.nodes)
    }

    /// Begins phase `phase` with number `ticket`. Of two phases that begin at the same time the later ticket wins, for
    /// every rule alike. True if the place of the rule changes.
    pub fn begin_phase(&self, phase: usize, ticket: u64) -> bool {
        let Some(index) = self.placings.iter().position(|p| p.phase == Some(phase)) else { return false };
        let wanted = ticket << PLACING_BITS | index as u64;
        let before = self.current.fetch_max(wanted, Ordering::AcqRel);
        before < wanted && before & ((1 << PLACING_BITS) - 1) != index as u64
    }
}

/// Lets rules that place alike share memory: what is kept of freed arrays, and heaps of small objects. Otherwise rules
/// whose objects take turns, as those of the passes of a compiler or of the steps of a solver, would each have what all
/// of them need together.
///
/// Of a small object in a shared heap it is not known whose it is. So heaps are only shared by rules of which each is
/// the only one for its call site, since `instances` and `sizes` must count and compare each object once; and not under a
/// policy with phases that begin at an allocation, for which a realloc does not count.
pub fn share_memory(rules: &mut [Rule], phases: &[Phase]) {
    let counts = phases.iter().any(|phase| phase.allocation.is_some());
    let alone = group::alone(rules.iter().map(|rule| &rule.rule));
    // The first rules of each place, and of these the first one that shares its heaps.
    let mut first: Vec<(usize, Option<usize>)> = Vec::new();
    for index in 0..rules.len() {
        rules[index].memory = index;
        let found = first.iter().position(|&(before, _)| rules[before].places_as(&rules[index]));
        let at = found.unwrap_or(first.len());
        if at == MOST_PLACES {
            continue;
        }
        if found.is_none() {
            first.push((index, None));
        }
        rules[index].memory = first[at].0;
        match (alone[index] && !counts, first[at].1) {
            (true, Some(with)) => {
                rules[with].share_heaps(with);
                rules[index].heaps = Some(with);
            }
            (true, None) => first[at].1 = Some(index),
            (false, _) => {}
        }
    }
}

/// The rule whose memory the objects of rule `index` have, see [`share_memory`].
#[inline]
pub fn memory_of(index: usize) -> usize {
    get().map_or(index, |state| state.memory_of(index))
}

/// The accepted policy and the machine.
pub struct State {
    /// The policy without its objects, which are in `rules`.
    pub policy: Policy,
    /// What the process was given when it started.
    pub given: Given,
    pub machine: Machine,
    /// The teams of workers; none when the policy has no team.
    pub teams: Option<Teams>,
    /// CPUs of each list of an explicit binding.
    pub cpu_lists: Vec<Vec<u32>>,
    /// Rules in the order of the file.
    pub rules: Vec<Rule>,
    /// The rules for call sites, grouped by call site.
    pub groups: Vec<RuleGroup>,
    /// The program is the build that the policy was made from, so addresses are valid.
    pub same_build: bool,
    /// Path of the report, if any.
    pub report: Option<std::path::PathBuf>,
    /// Process that writes the report; forked children do not.
    pub pid: u32,
    /// NUMAMMA_VERBOSE=1.
    pub verbose: bool,
    /// NUMAMMA_SUMMARY=1.
    pub summary: bool,
    /// Mappings in use by placed objects. Negative for a moment when an object is released while the mover changes its
    /// policy.
    pub mappings: AtomicI64,
    /// Mappings of the program itself at the last count.
    pub own_mappings: AtomicU64,
    /// Mappings taken since that count, whether they were returned or not.
    pub taken: AtomicU64,
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
    /// Mappings that all placed objects together may use: a quarter of the limit, less when the program's own mappings
    /// would leave less than another quarter free.
    pub fn budget(&self) -> u64 {
        let limit = self.machine.max_map_count;
        let room = (limit - limit / FREE_DIVISOR).saturating_sub(self.own_mappings.load(Ordering::Relaxed));
        room.min(limit / BUDGET_DIVISOR)
    }

    /// Counts the program's own mappings in /proc/self/maps if [`RECOUNT_AFTER`] mappings were taken since the last
    /// count. Those returned meanwhile count, too: the program's own may have become more.
    fn recount(&self, wanted: u64) {
        let taken = self.taken.fetch_add(wanted, Ordering::Relaxed).saturating_add(wanted);
        if taken < RECOUNT_AFTER {
            return;
        }
        self.taken.store(0, Ordering::Relaxed);
        let used = self.used_mappings();
        if let Some(all) = own_stack::run(numamma_kernel::maps::count_own).flatten() {
            self.own_mappings.store(all.saturating_sub(used), Ordering::Relaxed);
        }
    }

    /// The rule whose memory the objects of rule `index` have, see [`share_memory`].
    #[inline]
    pub fn memory_of(&self, index: usize) -> usize {
        self.rules.get(index).map_or(index, |rule| rule.memory)
    }

    /// The sizes of objects of rule `index` that come and go too often: with the memory, this is shared.
    #[inline]
    pub fn churn_of(&self, index: usize) -> Option<&Churn> {
        self.rules.get(self.memory_of(index)).map(|rule| &rule.churn)
    }

    /// The rules that place objects of rule `index`: itself, or those of the parts.
    pub fn rules_of(&self, index: usize) -> impl Iterator<Item = &Rule> {
        let parts = self.rules.get(index).map_or(&[][..], Rule::parts);
        let own = parts.is_empty().then_some(index);
        own.into_iter().chain(parts.iter().copied()).filter_map(|index| self.rules.get(index))
    }

    /// Whether somebody will ask how many objects each rule found.
    pub fn counts(&self) -> bool {
        self.verbose || self.summary || self.report.is_some()
    }

    /// Counts a new object of rule `index`, of `size` bytes, that thread number `thread` allocates: for the rules of
    /// its parts, if it is placed in parts.
    pub fn count_new(&self, index: usize, thread: usize, size: usize) {
        let Some(rule) = self.rules.get(index) else { return };
        if rule.parts.is_empty() {
            rule.counters.found.count(thread, size);
        }
        for rule in rule.parts.iter().filter_map(|&index| self.rules.get(index)) {
            let bytes = rule.rule.bytes().map_or(0, |range| range.bytes_of(size as u64));
            rule.counters.found.count(thread, bytes as usize);
        }
    }

    /// Whether objects of rule `index` are placed in parts.
    pub fn divides(&self, index: usize) -> bool {
        self.rules.get(index).is_some_and(|rule| !rule.parts.is_empty())
    }

    /// Plan of an object of rule `index` in its placing number `placing`. Does not allocate: every placed allocation
    /// makes a plan.
    pub fn plan(&self, index: usize, placing: usize, size: u64, pages: u64) -> Option<PagePlan<'_>> {
        let rule = self.rules.get(index)?;
        let page_size = plan::page_size_of(&rule.placings.get(placing)?.place, size, self.machine.thp);
        self.plan_of_pages(index, placing, size, pages, page_size)
    }

    /// As [`State::plan`], for memory whose page size is known.
    pub fn plan_of_pages(
        &self,
        index: usize,
        placing: usize,
        size: u64,
        pages: u64,
        page_size: u64,
    ) -> Option<PagePlan<'_>> {
        let rule = self.rules.get(index)?;
        let Placing { place, nodes, layout, .. } = rule.placings.get(placing)?;
        let of_object = || plan::layout(place, rule.rule.pattern.as_ref(), size, page_size, nodes.len() as u64);
        let layout = layout.or_else(|| of_object().ok())?;
        let (huge, mode) = (place.huge.unwrap_or_default(), place.mode.unwrap_or_default());
        Some(PagePlan { pages, nodes: Cow::Borrowed(nodes), layout, huge, mode })
    }

    /// Whether this process will write the report; a forked child has another pid. A process that has confined itself
    /// has written it already.
    pub fn reports(&self) -> bool {
        self.report.is_some() && !numamma_hook::sandbox::entered() && numamma_kernel::sys::pid() == self.pid
    }

    /// Takes `wanted` mappings from the budget in place of `old` ones; the error is the number left when that is too
    /// few.
    pub fn take_mappings(&self, wanted: u64, old: u64) -> Result<(), u64> {
        self.recount(wanted.saturating_sub(old));
        self.reserve_mappings(wanted, old)
    }

    /// Takes `more` mappings for parts of a mapping, which become mappings of their own only when one of them is
    /// unmapped; false when the budget has not so many. Every allocation may call it.
    pub fn divide_mapping(&self, more: u64) -> bool {
        self.reserve_mappings(more, 0).is_ok()
    }

    fn reserve_mappings(&self, wanted: u64, old: u64) -> Result<(), u64> {
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

    /// Returns mappings to the budget.
    pub fn give_mappings(&self, count: u64) {
        self.mappings.fetch_sub(count as i64, Ordering::Relaxed);
    }

    /// Mappings in use by placed objects.
    pub fn used_mappings(&self) -> u64 {
        self.mappings.load(Ordering::Relaxed).max(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(function: &str, (policy, nodes): (PolicyKind, &[u32]), phase: bool) -> Rule {
        let placing = |phase| Placing {
            place: Place { policy, ..Place::default() },
            nodes: nodes.to_vec(),
            layout: None,
            homes: small_heap::home::homes(policy, nodes.len()),
            shared: Homes::new(),
            phase,
            thread_nodes: ThreadNodes::default(),
        };
        let placings = if phase { vec![placing(None), placing(Some(0))] } else { vec![placing(None)] };
        let rule = ObjectRule { function: Some(vec![function.to_owned()]), ..ObjectRule::default() };
        Rule::new(rule, placings, Counters::default())
    }

    #[test]
    fn rules_that_place_alike_share_the_memory_of_the_first() {
        let (both, one) = ((PolicyKind::Interleave, &[0, 1][..]), (PolicyKind::Interleave, &[0][..]));
        let blocks = (PolicyKind::BindBlock, &[0, 1][..]);
        let all =
            [(both, false), (one, false), (both, true), (both, false), (blocks, false), (blocks, false), (one, false)];
        let shared = |phases: &[Phase], change: fn(&mut Vec<Rule>)| {
            let mut rules = (0..).zip(all).map(|(n, (place, phase))| rule(&format!("f{n}"), place, phase)).collect();
            change(&mut rules);
            share_memory(&mut rules, phases);
            assert!(rules.iter().all(|rule| rule.placings[0].shared.len()
                == usize::from(
                    rule.heaps.is_some() && { rule.heaps == rules.iter().position(|other| core::ptr::eq(rule, other)) }
                )));
            rules.iter().map(|rule| (rule.memory, rule.heaps)).unzip::<_, _, Vec<_>, Vec<_>>()
        };
        let of_all = [Some(0), Some(1), None, Some(0), None, None, Some(1)];
        assert_eq!(shared(&[], |_| {}), (vec![0, 1, 2, 0, 4, 5, 1], of_all.to_vec()));
        let (memory, heaps) = shared(&[], |rules| rules[0].divide(vec![0, 1]));
        assert_eq!(
            (&memory[..], &heaps[..]),
            (&[0, 1, 2, 3, 4, 5, 1][..], &[None, Some(1), None, None, None, None, Some(1)][..])
        );
        let counted = Phase { allocation: Some(3), ..Phase::default() };
        assert_eq!(shared(&[counted], |_| {}), (vec![0, 1, 2, 0, 4, 5, 1], vec![None; 7]));
        let (memory, heaps) = shared(&[], |rules| rules[0].rule.sizes = Some("1KiB-".into()));
        assert_eq!((memory[3], heaps[0], heaps[3]), (0, None, None), "arrays are shared");
        let (_, heaps) = shared(&[], |rules| rules[4].rule.function = rules[3].rule.function.clone());
        assert_eq!(heaps, [None, Some(1), None, None, None, None, Some(1)], "two rules for one call site");
    }

    #[test]
    fn whole_pages_of_an_object_take_a_quarter_more_at_most() {
        let wastes = |sizes: [usize; 4]| sizes.map(wastes_pages);
        assert_eq!(wastes([4096, 4097, 6545, 6546]), [false, true, true, false]);
        assert_eq!(wastes([8192, 8193, 9822, 9823]), [false, true, true, false]);
        assert_eq!(wastes([12_288, 12_289, 13_099, 13_100]), [false, true, true, false]);
        assert!(
            (13_100..1usize << 20).all(|size| 4 * size.next_multiple_of(PAGE) <= 5 * (size + 8) && !wastes_pages(size))
        );
    }
}
