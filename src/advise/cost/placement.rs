//! On which node a page is under a placement: the formulas of the apply library for what a policy file says, the
//! recorded first touchers for what it leaves to the kernel, a list of nodes for a page map.

use std::borrow::Cow;

use numamma_plan::home_node::{Context, HUGE_ORDER, Home};
use numamma_plan::plan::{self, HUGE_PAGE, PAGE, PagePlan};
use numamma_plan::policy::{Huge, Mode, PatternNote, Place};
use numamma_plan::unusable::Unusable;

use super::World;
use crate::advise::block_layout::{descends, pages_before};
use crate::detect::Rank;
use crate::profile::records::ThreadId;
use crate::profile::summary::{Entry, TouchRun};

/// Most pages looked at to find how much of an object goes to each node.
const PROBES: u64 = 1024;
/// The first thread of a program.
const MAIN: ThreadId = 0;

/// Where the pages of one object are.
pub(in crate::advise) struct Placement<'a> {
    world: &'a World<'a>,
    entry: &'a Entry,
    layout: Layout,
    /// One thread touched everything first.
    alone: bool,
    /// Workers touched it in reverse order.
    down: bool,
    /// The kernel moves its pages to their users.
    balanced: bool,
    /// Node of the model with the threads that do not work; that of worker 0 when absent.
    unbound: Option<usize>,
    /// Kind of the threads that use it, where nothing binds threads: those of other kinds are anywhere.
    users: Option<usize>,
}

impl<'a> World<'a> {
    /// What the kernel of the target does with an object that no rule places.
    pub fn unplaced(&'a self, entry: &'a Entry) -> Placement<'a> {
        if self.balances() { Placement::balanced(self, entry) } else { Placement::first_touch(self, entry) }
    }

    /// The same under a policy that binds threads.
    pub fn unplaced_by_bound(&'a self, entry: &'a Entry) -> Placement<'a> {
        Placement { users: None, ..self.unplaced(entry) }
    }
}

enum Layout {
    /// A rule's plan for objects of the entry's size, on nodes of the model.
    Planned {
        plan: PagePlan<'static>,
        /// Bytes per block of each instance, as their sizes differ; empty for other layouts.
        blocks: Vec<u64>,
        /// Size of the pages in use, see [`Context::order`].
        order: u32,
        /// Nodes of pages that are interleaved by an address that is not known, with their shares; empty for other
        /// layouts.
        shares: Vec<(usize, f64)>,
    },
    /// (instance, first page) of a group of pages and its node, ascending.
    Map(Vec<((u32, u32), usize)>),
    /// Pages that rules for parts of the object place, ascending; the kernel places the others.
    Pieces(Vec<Piece>),
}

/// Pages of an object that one rule places.
pub(in crate::advise) struct Piece {
    /// First page, and one past the last, as in a cell.
    pub pages: (u64, u64),
    /// Pages that the rule places before the first one.
    pub before: u64,
    plan: PagePlan<'static>,
    order: u32,
}

impl<'a> Placement<'a> {
    fn new(world: &'a World<'a>, entry: &'a Entry, layout: Layout) -> Placement<'a> {
        let alone = entry.touches.iter().all(|t| t.thread == entry.touches[0].thread);
        let down = descends(entry.touches.iter().filter_map(|t| Some(world.roles.rank(t.thread)?.rank)));
        Placement { world, entry, layout, alone, down, balanced: false, unbound: None, users: None }
    }

    /// What the kernel does on its own, with threads that nothing binds: a thread stays on its node, but which node two
    /// threads of different kinds are on is chance.
    pub fn first_touch(world: &'a World<'a>, entry: &'a Entry) -> Placement<'a> {
        let (layout, huge, mode) = (plan::Layout::Default, Huge::default(), Mode::default());
        let plan = PagePlan { pages: 0, nodes: Vec::new().into(), layout, huge, mode };
        let placement =
            Placement::new(world, entry, Layout::Planned { plan, blocks: Vec::new(), order: 0, shares: Vec::new() });
        Placement { users: world.roles.user_kind_of_others(entry), ..placement }
    }

    /// The same, and the kernel moves pages to their users.
    pub fn balanced(world: &'a World<'a>, entry: &'a Entry) -> Placement<'a> {
        Placement { balanced: true, ..Placement::first_touch(world, entry) }
    }

    /// What the kernel does with pages that a thread of one node, of the model, has touched first.
    pub fn touched_on(world: &'a World<'a>, entry: &'a Entry, node: usize) -> Placement<'a> {
        let balanced = world.balances();
        Placement { balanced, ..Placement::map(world, entry, vec![((0, 0), node)]) }
    }

    /// The same, where the threads that do not work are on a node of the model when they touch or allocate.
    pub fn with_unbound_on(self, node: usize) -> Placement<'a> {
        Placement { unbound: Some(node), ..self }
    }

    /// The object.
    pub fn entry(&self) -> &'a Entry {
        self.entry
    }

    /// Whether the kernel moves its pages to their users; [`Placement::node`] is where they are at first.
    pub fn is_balanced(&self) -> bool {
        self.balanced
    }

    /// Groups of pages, ascending by (instance, first page), each with its node of the model.
    pub fn map(world: &'a World<'a>, entry: &'a Entry, groups: Vec<((u32, u32), usize)>) -> Placement<'a> {
        Placement::new(world, entry, Layout::Map(groups))
    }

    /// Every instance on one node, an index into the target's, in order of birth.
    pub fn of_instances(world: &'a World<'a>, entry: &'a Entry, nodes: &[u32]) -> Placement<'a> {
        let node = |n: &u32| world.memory.get(*n as usize).copied().unwrap_or(0);
        Placement::map(world, entry, (0..).zip(nodes).map(|(instance, n)| ((instance, 0), node(n))).collect())
    }

    /// What a rule of a policy file does.
    ///
    /// # Errors
    /// As the apply library's: nodes the target lacks, a block size that cannot be computed.
    pub fn of(
        world: &'a World<'a>,
        entry: &'a Entry,
        place: &Place,
        pattern: Option<&PatternNote>,
    ) -> Result<Placement<'a>, Unusable> {
        let ids = plan::node_list(place, &world.target.ids, world.target.threads)?;
        let index = |id: &u32| world.target.ids.iter().position(|i| i == id).and_then(|i| world.memory.get(i)).copied();
        let nodes: Vec<usize> = ids.iter().filter_map(index).collect();
        let page = |size: u64| plan::page_size_of(place, size, world.target.thp);
        let layout = |size: u64| plan::layout(place, pattern, size, page(size), nodes.len() as u64);
        let plan = PagePlan {
            pages: entry.size.div_ceil(PAGE),
            nodes: nodes.iter().map(|n| *n as u32).collect(),
            layout: layout(entry.size)?,
            huge: place.huge.unwrap_or_default(),
            mode: place.mode.unwrap_or_default(),
        };
        let mut blocks = Vec::new();
        if plan.block_bytes().is_some() {
            for instance in &entry.seen {
                blocks.push(if let plan::Layout::Blocks(block, _) = layout(instance.size)? { block } else { PAGE });
            }
        }
        // The kernel interleaves huge pages as wholes (interleave_nid with the shift of the page's order).
        let order = if page(entry.size) == HUGE_PAGE { HUGE_ORDER } else { 0 };
        // The weights are the administrator's; those by bandwidth are what they are for.
        let weight = |n: usize| if plan.layout == plan::Layout::Weighted { world.model().bandwidth[n][n] } else { 1.0 };
        let in_turn = matches!(plan.home(0, &Context { node: 0, order, address: None }), Home::InTurn(_));
        let shares = if in_turn { shares(&nodes, weight) } else { Vec::new() };
        Ok(Placement::new(world, entry, Layout::Planned { plan, blocks, order, shares }))
    }

    /// What a rule does to `pages` of an object, which are those from number `before` on of the `size` bytes that it
    /// places.
    ///
    /// # Errors
    /// As [`Placement::of`].
    pub fn piece(
        world: &World<'_>,
        (place, pattern): (&Place, Option<&PatternNote>),
        size: u64,
        pages: (u64, u64),
        before: u64,
    ) -> Result<Piece, Unusable> {
        let ids = plan::node_list(place, &world.target.ids, world.target.threads)?;
        let index = |id: &u32| world.target.ids.iter().position(|i| i == id).and_then(|i| world.memory.get(i)).copied();
        let nodes: Vec<u32> = ids.iter().filter_map(index).map(|n| n as u32).collect();
        let page = plan::page_size_of(place, size, world.target.thp);
        let layout = plan::layout(place, pattern, size, page, nodes.len() as u64)?;
        let (huge, mode) = (place.huge.unwrap_or_default(), place.mode.unwrap_or_default());
        let plan = PagePlan { pages: size.div_ceil(PAGE), nodes: nodes.into(), layout, huge, mode };
        Ok(Piece { pages, before, plan, order: if page == HUGE_PAGE { HUGE_ORDER } else { 0 } })
    }

    /// The pieces of an object, ascending.
    pub fn pieces(world: &'a World<'a>, entry: &'a Entry, pieces: Vec<Piece>) -> Placement<'a> {
        Placement::new(world, entry, Layout::Pieces(pieces))
    }

    /// Whether an object that would have huge pages has none under this placement.
    pub fn gives_up_huge_pages(&self) -> bool {
        let split = matches!(&self.layout, Layout::Planned { plan, .. } if plan.huge == Huge::Split);
        split && plan::page_size_in_use(self.entry.size, self.world.target.thp) > PAGE
    }

    /// The nodes of a page that is on several in proportion, whichever page it is.
    pub fn shares(&self) -> Option<&[(usize, f64)]> {
        match &self.layout {
            Layout::Planned { shares, .. } if !shares.is_empty() => Some(shares),
            _ => None,
        }
    }

    /// Node of the model of a page, numbered as in a cell. For pages in proportion the first of their nodes.
    pub fn node(&self, instance: u32, page: u32) -> usize {
        match &self.layout {
            Layout::Planned { plan, blocks, order, .. } => {
                let mut plan = PagePlan { nodes: Cow::Borrowed(&plan.nodes), ..*plan };
                if let (plan::Layout::Blocks(block, _), Some(own)) = (&mut plan.layout, blocks.get(instance as usize)) {
                    *block = *own;
                }
                self.planned(&plan, *order, (instance, page), self.whole_page(page))
            }
            Layout::Pieces(pieces) => {
                let (number, unit) = (u64::from(page), self.world.summary.header.page_size.max(PAGE) / PAGE);
                let piece = pieces.iter().find(|p| (p.pages.0..p.pages.1).contains(&number));
                piece.map_or_else(
                    || self.touched(instance, page),
                    |p| match p.plan.home(0, &Context { node: 0, order: p.order, address: None }) {
                        // Which of them follows from an address that is not known: one page each.
                        Home::InTurn(nodes) => nodes.get(page as usize % nodes.len().max(1)).map_or(0, |n| *n as usize),
                        _ => self.planned(&p.plan, p.order, (instance, page), (number - p.pages.0) * unit + p.before),
                    },
                )
            }
            Layout::Map(groups) => {
                let at = groups.partition_point(|(first, _)| *first <= (instance, page));
                groups.get(at.saturating_sub(1)).map_or(0, |(_, node)| *node)
            }
        }
    }

    /// Node of a page that is number `number` of the plan.
    fn planned(&self, plan: &PagePlan<'_>, order: u32, (instance, page): (u32, u32), number: u64) -> usize {
        let node = if plan.layout == plan::Layout::Local { self.allocated(instance) as u32 } else { 0 };
        match plan.home(number, &Context { node, order, address: None }) {
            Home::Any => self.touched(instance, page),
            Home::One(node) => node as usize,
            Home::AnyOf(nodes) => {
                let near = self.touched(instance, page);
                let latency = &self.world.model().latency[near];
                let nodes = nodes.iter().map(|n| *n as usize);
                nodes.min_by(|a, b| latency[*a].total_cmp(&latency[*b])).unwrap_or(near)
            }
            Home::InTurn(nodes) => nodes.first().map_or(0, |n| *n as usize),
        }
    }

    /// Number of a page as a plan counts: 4 KiB pages from the first that a rule places. The page that a variable
    /// shares with a neighbour goes with the first.
    fn whole_page(&self, page: u32) -> u64 {
        let size = self.world.summary.header.page_size.max(PAGE);
        (u64::from(page) * (size / PAGE)).saturating_sub(pages_before(self.entry))
    }

    /// Node of the first toucher. Where no touch was recorded for an instance, it is taken for the thread that
    /// allocated it, which gets memory back that it freed. When none was recorded for the whole object, it is taken for
    /// the main thread where an instance is kept to the end of the run: programs fill their arrays there.
    fn touched(&self, instance: u32, page: u32) -> usize {
        let touches = &self.entry.touches;
        let after = touches.partition_point(|t| (t.instance, t.page) <= (instance, page));
        // Faults inside system calls are not seen: such a page goes with the one before it.
        match after.checked_sub(1).and_then(|i| touches.get(i)).filter(|t| t.instance == instance) {
            Some(run) if self.is_of_others(run.thread) => self.anywhere(instance, page),
            Some(run) => self.home_of(run.thread, self.part_of_run(run, page)),
            None if touches.is_empty() && self.is_kept(instance) => self.home_of(MAIN, 0.0),
            None if self.allocator(instance).is_some_and(|t| self.is_of_others(t)) => self.anywhere(instance, page),
            None => self.allocated(instance),
        }
    }

    /// Whether a thread is of another kind than those that use the object, and nothing binds both to one node.
    fn is_of_others(&self, thread: ThreadId) -> bool {
        self.users.is_some_and(|kind| self.world.roles.is_other_kind(thread, kind))
    }

    /// One of the nodes with CPUs, each as often as the others.
    fn anywhere(&self, instance: u32, page: u32) -> usize {
        let homes = self.world.homes_of_cpus();
        // Mixed, as pages with samples may be at even distances.
        let mixed = (u64::from(instance) << 32 | u64::from(page)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        homes.get(mixed as usize % homes.len().max(1)).copied().unwrap_or(0)
    }

    fn is_kept(&self, instance: u32) -> bool {
        self.entry.seen.get(instance as usize).is_none_or(|i| i.died_ns.is_none())
    }

    /// How far into a run its page is. A lone toucher stays one thread on the target.
    fn part_of_run(&self, run: &TouchRun, page: u32) -> f64 {
        // A page behind the run goes with its last one.
        let last = run.page.saturating_add(run.pages.saturating_sub(1));
        let ahead = if self.down { last.saturating_sub(page) } else { page - run.page };
        if self.alone { 0.0 } else { (f64::from(ahead) / f64::from(run.pages.max(1))).min(0.999) }
    }

    fn allocator(&self, instance: u32) -> Option<ThreadId> {
        self.entry.seen.get(instance as usize).and_then(|i| i.thread)
    }

    fn allocated(&self, instance: u32) -> usize {
        self.home_of(self.allocator(instance).unwrap_or_default(), 0.0)
    }

    fn home_of(&self, thread: ThreadId, part: f64) -> usize {
        match self.world.roles.rank(thread) {
            Some(rank) => self.home_of_rank(rank, part),
            // A thread that does not work is not bound. Where nobody says where it is, it counts where thread 0 runs.
            None => self.unbound.unwrap_or_else(|| self.home_of_rank(Rank::ALONE, 0.0)),
        }
    }

    fn home_of_rank(&self, rank: Rank, part: f64) -> usize {
        self.world.home(self.world.node_of(self.world.teams.successor(rank, part)))
    }

    /// Bytes on each node of the model when all instances that live at a time are there.
    pub fn bytes(&self) -> Vec<f64> {
        let mut bytes = vec![0.0; self.world.nodes()];
        let size = footprint(self.entry);
        if let Some(shares) = self.shares() {
            shares.iter().for_each(|(n, share)| bytes[*n] += share * size);
            return bytes;
        }
        let instances = self.entry.seen.len().max(1) as u64;
        let pages = self.entry.size.div_ceil(PAGE).max(1).saturating_mul(instances);
        let probes = pages.min(PROBES);
        for k in 0..probes {
            // Evenly spaced over the instances one after the other, as if they were one object.
            let at = (2 * k + 1) * instances;
            let (instance, inside) = (at / (2 * probes), at % (2 * probes));
            let size_of = self.entry.seen.get(instance as usize).map_or(self.entry.size, |i| i.size);
            let pages = size_of.div_ceil(self.world.summary.header.page_size.max(1));
            let page = (u128::from(pages) * u128::from(inside) / u128::from(2 * probes)) as u32;
            bytes[self.node(instance as u32, page)] += size / probes as f64;
        }
        bytes
    }
}

/// Nodes with their shares, in proportion to a weight.
fn shares(nodes: &[usize], weight: impl Fn(usize) -> f64) -> Vec<(usize, f64)> {
    let sum: f64 = nodes.iter().map(|n| weight(*n)).sum();
    nodes.iter().map(|n| (*n, weight(*n) / sum.max(f64::MIN_POSITIVE))).collect()
}

/// Most bytes of the entry's known instances alive at a time.
fn footprint(entry: &Entry) -> f64 {
    let mut changes: Vec<(u64, i128)> = entry
        .seen
        .iter()
        .flat_map(|i| [Some((i.born_ns, i128::from(i.size))), i.died_ns.map(|end| (end, -i128::from(i.size)))])
        .flatten()
        .collect();
    // At the same nanosecond ends go before starts.
    changes.sort_unstable();
    let (mut now, mut most) = (0i128, 0i128);
    for (_, change) in changes {
        now += change;
        most = most.max(now);
    }
    (most as f64).max(entry.size as f64)
}

/// What happens to pages for which a node has no room: they go to the nearest nodes that have.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::advise) struct Spill {
    to: Vec<Vec<(usize, f64)>>,
    /// Whether anything is moved.
    pub any: bool,
}

impl Spill {
    /// From the bytes that are to be on each node; `taken` are already there.
    pub fn of(world: &World<'_>, wanted: &[f64], taken: &[f64]) -> Spill {
        let mut room: Vec<f64> =
            (0..world.nodes()).map(|n| world.capacity(n) - taken.get(n).copied().unwrap_or(0.0)).collect();
        let mut to: Vec<Vec<(usize, f64)>> = Vec::with_capacity(wanted.len());
        for (node, bytes) in wanted.iter().enumerate() {
            let stay = bytes.min(room[node].max(0.0));
            room[node] -= stay;
            to.push(vec![(node, if *bytes > 0.0 { stay / bytes } else { 1.0 })]);
        }
        let mut any = false;
        for (node, bytes) in wanted.iter().enumerate() {
            let mut left = bytes * (1.0 - to[node][0].1);
            if left <= 0.0 {
                continue;
            }
            any = true;
            let mut order = world.memory.clone();
            order.sort_by(|a, b| world.model().latency[node][*a].total_cmp(&world.model().latency[node][*b]));
            for other in order {
                let moved = left.min(room[other].max(0.0));
                if moved > 0.0 {
                    room[other] -= moved;
                    left -= moved;
                    to[node].push((other, moved / bytes));
                }
            }
            // More than the whole machine has: it is swapped, which no latency describes; it stays where it was to be.
            to[node][0].1 += left / bytes;
        }
        Spill { to, any }
    }

    /// Nodes that pages meant for `node` are on, with their shares.
    pub fn of_node(&self, node: usize) -> &[(usize, f64)] {
        self.to.get(node).map_or(&[], Vec::as_slice)
    }
}
