//! The page plan of an object: its layout over nodes, computed from a placement of the policy.
//!
//! Pages are 4 KiB, numbered from the object's first whole page: bytes that share a page with a neighbouring object are
//! not placed. A *block distribution of N MiB* puts the first N MiB on the first node, the next N MiB on the second,
//! and starts over after the last node; `block` and `block-cyclic` differ only in how `auto` computes N. N may be any
//! number of bytes from a page on: a page goes with the block that has its middle, so that the edges of a block are at
//! most half a page off wherever it is, and the rows of a matrix stay with their nodes whatever their length. A
//! [`PagePlan`] is a formula and not a list of pages, so its size does not depend on the size of the object.

use std::borrow::Cow;

use crate::block_order::Order;
use crate::machine::Thp;
use crate::nodes::{self, Available};
use crate::page_map::PageMap;
use crate::policy::{Auto, Block, Huge, Mode, PatternNote, Place, PolicyKind};
use crate::threads::thread_node;
use crate::unusable::Unusable;

/// The base page of x86_64, bytes; also the unit of every plan.
pub const PAGE: u64 = 4096;
/// A transparent huge page of x86_64, bytes.
pub const HUGE_PAGE: u64 = 2 << 20;

/// Consecutive pages of one object that go to one node; page numbers count from the object's first whole page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// First page.
    pub first: u64,
    /// Number of pages.
    pub pages: u64,
    /// Index into the object's node list.
    pub node: u32,
}

/// How the pages of an object are spread over its node list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// The kernel chooses the node.
    Default,
    /// Any page on any listed node, never on another one: the kernel kills a process when these are full.
    Strict,
    /// Any page on any listed node, or on another node when these are full.
    Preferred,
    /// Page by page over the listed nodes, by the kernel's formula (from the address, not from the object's start).
    Interleave,
    /// As `Interleave`, in proportion to the kernel's weights.
    Weighted,
    /// Blocks of this many bytes, at least a page, assigned to nodes in this order.
    Blocks(u64, Order),
    /// All pages on the node of the thread that allocates the instance.
    Local,
}

/// The plan of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PagePlan<'a> {
    /// Whole pages of the object.
    pub pages: u64,
    /// Node numbers, in the order of the policy. The preload makes a plan for every allocation and borrows the list.
    pub nodes: Cow<'a, [u32]>,
    /// Distribution of the pages.
    pub layout: Layout,
    /// Use of transparent huge pages.
    pub huge: Huge,
    /// Whether blocks get a memory policy each or are populated.
    pub mode: Mode,
}

/// Page size in bytes that the kernel uses for an object of `size` bytes: the huge page size if the setting is
/// `always` and the object can hold a huge page.
pub fn page_size_in_use(size: u64, thp: Thp) -> u64 {
    if thp == Thp::Always && size >= HUGE_PAGE { HUGE_PAGE } else { PAGE }
}

/// As [`page_size_in_use`], for an object whose placement may request or forbid huge pages.
pub fn page_size_of(place: &Place, size: u64, thp: Thp) -> u64 {
    match place.huge.unwrap_or_default() {
        Huge::Keep => page_size_in_use(size, thp),
        Huge::Split => PAGE,
        Huge::Want if thp == Thp::Never => PAGE,
        Huge::Want => page_size_in_use(size, Thp::Always),
    }
}

/// Plans an object of `size` bytes with `pages` whole pages of 4 KiB. `page_size` is the page size in use in bytes,
/// `available` the nodes that the node list may name, `threads` the number of threads for `bind-block`.
///
/// # Errors
/// A node list that cannot be used, a missing block size or an invalid page map.
pub fn plan<'a>(
    place: &Place,
    pattern: Option<&PatternNote>,
    size: u64,
    pages: u64,
    page_size: u64,
    available: impl Into<Available<'a>>,
    threads: u32,
) -> Result<PagePlan<'static>, Unusable> {
    let nodes = node_list(place, available, threads)?;
    let layout = layout(place, pattern, size, page_size, nodes.len() as u64)?;
    Ok(PagePlan {
        pages,
        nodes: Cow::Owned(nodes),
        layout,
        huge: place.huge.unwrap_or_default(),
        mode: place.mode.unwrap_or_default(),
    })
}

/// The node list of a placement, one entry per block before the list repeats: the named nodes, for `bind-block` the
/// node of each thread, for `map` the node of each piece of the map.
///
/// # Errors
/// A node list that cannot be used, or an invalid page map.
pub fn node_list<'a>(place: &Place, available: impl Into<Available<'a>>, threads: u32) -> Result<Vec<u32>, Unusable> {
    let available = available.into();
    let nodes = match &place.nodes {
        Some(list) => nodes::parse(list, available)?,
        // A map names nodes by number, and plain numbers may name any existing node.
        None if place.policy == PolicyKind::Map => available.existing.to_vec(),
        None => available.own.to_vec(),
    };
    match place.policy {
        PolicyKind::BindBlock => {
            let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
            let node = |t| nodes.get(thread_node(t, threads.max(1), count) as usize).copied().unwrap_or(0);
            Ok((0..threads.clamp(1, MOST_THREADS)).map(node).collect())
        }
        PolicyKind::Map => {
            let map = PageMap::parse(place.map.as_deref().unwrap_or_default())?;
            nodes::check_existing(map.runs.iter().map(|run| run.1), &nodes)?;
            Ok(map.pieces())
        }
        _ => Ok(nodes),
    }
}

/// Most blocks of `bind-block`, one per thread: the largest number of CPUs that Linux supports on x86_64.
pub const MOST_THREADS: u32 = 8192;

/// The layout of an object of `size` bytes over a list of `nodes` nodes. Allocates only for `map`.
///
/// # Errors
/// A missing block size or an invalid page map.
pub fn layout(
    place: &Place,
    pattern: Option<&PatternNote>,
    size: u64,
    page_size: u64,
    nodes: u64,
) -> Result<Layout, Unusable> {
    let blocks = |bytes: u64, order| Layout::Blocks(bytes.max(PAGE), order);
    let random = Order::Random(place.seed.unwrap_or(0));
    let block = || block_bytes(place, pattern.and_then(|p| p.period).map(|p| p.0), size, page_size, nodes);
    Ok(match place.policy {
        PolicyKind::Default => Layout::Default,
        PolicyKind::Bind if place.strict == Some(true) => Layout::Strict,
        PolicyKind::Bind | PolicyKind::Preferred | PolicyKind::PreferredMany => Layout::Preferred,
        PolicyKind::Interleave => Layout::Interleave,
        PolicyKind::WeightedInterleave => Layout::Weighted,
        PolicyKind::Local => Layout::Local,
        PolicyKind::Block | PolicyKind::BlockCyclic | PolicyKind::BindBlock => blocks(block()?, Order::Cyclic),
        PolicyKind::Skew => blocks(block()?, Order::Skew),
        PolicyKind::Prime => blocks(block()?, Order::Prime),
        PolicyKind::RandomBlock => blocks(block()?, random),
        PolicyKind::Random => blocks(page_size, random),
        PolicyKind::Map => blocks(map_piece_bytes(place)?, Order::Cyclic),
    })
}

/// Bytes of the pieces of a page map. Not inlined: reading the map takes much of the stack, and plans are made deep in
/// the calls of a program that has little of it.
#[inline(never)]
fn map_piece_bytes(place: &Place) -> Result<u64, Unusable> {
    let map = PageMap::parse(place.map.as_deref().unwrap_or_default())?;
    let unit = match place.block {
        Some(Block::Size(given)) => given.0.max(PAGE),
        None | Some(Block::Auto(Auto::Auto)) => PAGE,
    };
    Ok(map.piece.saturating_mul(unit))
}

/// Block size in bytes: as given, or computed. Computed blocks consist of whole huge pages where these are in use, as
/// the paper did for LU's `cjac` (5 MiB / 8 nodes -> 2 MiB with huge pages); those of a period are exact on pages of 4
/// KiB, because what they are rounded by adds up over the periods.
fn block_bytes(place: &Place, period: Option<u64>, size: u64, page_size: u64, nodes: u64) -> Result<u64, Unusable> {
    let nodes = nodes.max(1);
    match place.block {
        Some(Block::Size(given)) => Ok(given.0),
        None | Some(Block::Auto(Auto::Auto)) => {
            let no_block =
                || "block-cyclic needs `block = \"20MiB\"`, or a `pattern.period` to compute it from".to_owned();
            let whole = match place.policy {
                PolicyKind::BlockCyclic if page_size == PAGE => {
                    return Ok(part_of(period.ok_or_else(no_block)?, nodes));
                }
                PolicyKind::BlockCyclic => period.ok_or_else(no_block)?,
                // Page by page unless a size is given.
                PolicyKind::Skew | PolicyKind::Prime => return Ok(page_size),
                PolicyKind::RandomBlock => return Err(no_block().into()),
                _ => size,
            };
            Ok(round_up(whole.div_ceil(nodes).max(1), page_size))
        }
    }
}

fn round_up(value: u64, unit: u64) -> u64 {
    value.div_ceil(unit).saturating_mul(unit)
}

/// One of `parts` equal parts of `whole` bytes, to the nearest byte: so many of them are `whole` again, or nearly so.
pub fn part_of(whole: u64, parts: u64) -> u64 {
    let parts = parts.max(1);
    whole.saturating_add(parts / 2) / parts
}

/// Number of the block of `block` bytes that has page `page`.
pub fn block_of_page(page: u64, block: u64) -> u64 {
    page.saturating_mul(PAGE).saturating_add(PAGE / 2) / block.max(PAGE)
}

/// First page of block number `number`: the first whose middle is in it.
fn first_page(number: u64, block: u64) -> u64 {
    number.saturating_mul(block.max(PAGE)).saturating_add(PAGE / 2 - 1) / PAGE
}

impl PagePlan<'_> {
    /// Most mappings that the object has under this plan.
    pub fn run_count(&self) -> u64 {
        match self.layout {
            Layout::Default => 0,
            _ if self.pages == 0 => 0,
            Layout::Blocks(..) if self.one_place() || self.mode == Mode::Populate => 1,
            Layout::Blocks(..) => self.blocks_before(self.pages).unwrap_or(0),
            _ => 1,
        }
    }

    /// Whether all blocks have the same node.
    fn one_place(&self) -> bool {
        self.nodes.windows(2).all(|pair| pair[0] == pair[1])
    }

    /// Bytes per block of a block distribution.
    pub fn block_bytes(&self) -> Option<u64> {
        match self.layout {
            Layout::Blocks(block, _) => Some(block),
            _ => None,
        }
    }

    /// Blocks that begin before page `page` of a block distribution.
    pub fn blocks_before(&self, page: u64) -> Option<u64> {
        self.block_bytes().map(|block| page.checked_sub(1).map_or(0, |last| block_of_page(last, block) + 1))
    }

    /// What [`PagePlan::set_block_pages`] needs to have these blocks again in an object of another size: pages per
    /// block. 0 for blocks that are no whole pages, because these follow from the placement alone.
    pub fn block_pages(&self) -> u64 {
        self.block_bytes().filter(|block| block.is_multiple_of(PAGE)).map_or(0, |block| block / PAGE)
    }

    /// Sets the block size, as computed earlier by [`PagePlan::coarsen`]; no effect for 0 and for other layouts.
    pub fn set_block_pages(&mut self, pages: u64) {
        if let (Layout::Blocks(block, _), 1..) = (&mut self.layout, pages) {
            *block = pages.saturating_mul(PAGE);
        }
    }

    /// Rounds the block size up to whole pages of `unit` bytes, for memory in pages of that size. True if it changed.
    pub fn round_blocks(&mut self, unit: u64) -> bool {
        let Layout::Blocks(block, order) = self.layout else { return false };
        if unit <= PAGE {
            return false;
        }
        let rounded = round_up(block, unit);
        self.layout = Layout::Blocks(rounded, order);
        rounded != block
    }

    /// Index into the node list that page `page` of a block distribution goes to.
    pub fn block_node(&self, page: u64) -> Option<u32> {
        match self.layout {
            Layout::Blocks(block, order) => {
                Some(order.node(block_of_page(page, block), self.nodes.len() as u64) as u32)
            }
            _ => None,
        }
    }

    /// Whether the blocks are populated instead of getting a memory policy each.
    pub fn populates(&self) -> bool {
        self.mode == Mode::Populate && matches!(self.layout, Layout::Blocks(..))
    }

    /// Runs of a block distribution, ascending, one mapping each; empty for other layouts.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.runs_of(0, self.pages)
    }

    /// The runs within the `pages` pages from `first` on.
    pub fn runs_of(&self, first: u64, pages: u64) -> impl Iterator<Item = Run> + '_ {
        let (block, order) = match self.layout {
            Layout::Blocks(..) if self.one_place() => (u64::MAX, Order::Cyclic),
            Layout::Blocks(block, order) => (block, order),
            _ => (0, Order::Cyclic),
        };
        let end = first.saturating_add(pages).min(self.pages);
        let number = |page| block_of_page(page, block);
        let numbers = if block == 0 || first >= end { 0..0 } else { number(first)..number(end - 1) + 1 };
        let nodes = self.nodes.len() as u64;
        numbers.map(move |i| {
            let from = first.max(first_page(i, block));
            Run { first: from, pages: first_page(i + 1, block).min(end) - from, node: order.node(i, nodes) as u32 }
        })
    }

    /// Enlarges the block size to its smallest multiple, rounded up to whole pages, that needs at most `max_runs`
    /// mappings. True if it changed.
    pub fn coarsen(&mut self, max_runs: u64) -> bool {
        let Layout::Blocks(block, order) = self.layout else { return false };
        if self.run_count() <= max_runs.max(1) {
            return false;
        }
        let needed = self.pages.div_ceil(max_runs.max(1)).saturating_mul(PAGE);
        self.layout = Layout::Blocks(round_up(round_up(needed, block), PAGE), order);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Size;

    const MIB: u64 = 1 << 20;
    const EIGHT: [u32; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

    fn place(policy: PolicyKind, block: Option<Block>) -> Place {
        Place { policy, block, ..Place::default() }
    }

    #[test]
    fn cjac_of_the_paper() {
        let p = place(PolicyKind::BlockCyclic, Some(Block::Auto(Auto::Auto)));
        assert_eq!(block_bytes(&p, Some(5 * MIB), 20 * MIB, HUGE_PAGE, 8).unwrap(), 2 * MIB);
        assert_eq!(block_bytes(&p, Some(5 * MIB), 20 * MIB, PAGE, 8).unwrap(), 640 << 10);
        assert_eq!(block_bytes(&p, Some(160 * MIB), 558 * MIB, HUGE_PAGE, 8).unwrap(), 20 * MIB);
        assert!(block_bytes(&p, None, 20 * MIB, PAGE, 8).unwrap_err().to_string().contains("`pattern.period`"));
    }

    #[test]
    fn huge_pages_only_where_one_fits() {
        assert_eq!(page_size_in_use(20 * MIB, Thp::Always), HUGE_PAGE);
        assert_eq!(page_size_in_use(MIB, Thp::Always), PAGE);
        assert_eq!(page_size_in_use(20 * MIB, Thp::Madvise), PAGE);
    }

    #[test]
    fn block_naive_is_size_over_nodes_rounded_up() {
        let p = place(PolicyKind::Block, None);
        assert_eq!(block_bytes(&p, None, 10 * PAGE, PAGE, 4).unwrap(), 3 * PAGE);
        let plan = plan(&p, None, 10 * PAGE, 10, PAGE, &[0, 1, 2, 3], 4).unwrap();
        let runs: Vec<_> = plan.runs().collect();
        assert_eq!(runs.len() as u64, plan.run_count());
        assert_eq!(
            runs.iter().map(|r| (r.first, r.pages, r.node)).collect::<Vec<_>>(),
            [(0, 3, 0), (3, 3, 1), (6, 3, 2), (9, 1, 3)]
        );
        let part = plan.runs_of(4, 4).map(|r| (r.first, r.pages, r.node)).collect::<Vec<_>>();
        assert_eq!(part, [(4, 2, 1), (6, 2, 2)]);
        assert_eq!((plan.runs_of(10, 5).count(), plan.runs_of(3, 0).count()), (0, 0));
    }

    #[test]
    fn a_block_distribution_starts_over_after_the_last_node() {
        let p = place(PolicyKind::BlockCyclic, Some(Block::Size(Size(2 * PAGE))));
        let plan = plan(&p, None, 9 * PAGE, 9, PAGE, &[4, 6], 4).unwrap();
        assert_eq!((0..9).map(|i| plan.block_node(i).unwrap()).collect::<Vec<_>>(), [0, 0, 1, 1, 0, 0, 1, 1, 0]);
        for run in plan.runs() {
            assert!((run.first..run.first + run.pages).all(|i| plan.block_node(i) == Some(run.node)));
        }
        assert_eq!(plan.runs().map(|r| r.pages).sum::<u64>(), 9);
    }

    /// A page belongs to the node of the rows that have most of it: rows of 19,192 bytes, eight to a node in turn.
    #[test]
    fn blocks_that_are_no_whole_pages_do_not_drift() {
        let (row, rows) = (19_192, 2400);
        let (size, node_of) = (row * rows, |at: u64| at / row / 8 % 4);
        let p = place(PolicyKind::BlockCyclic, Some(Block::Size(Size(8 * row))));
        let plan = plan(&p, None, size, size / PAGE, PAGE, &[0, 1, 2, 3], 8).unwrap();
        for page in 0..plan.pages {
            let own = |node| (page * PAGE..(page + 1) * PAGE).filter(|at| node_of(*at) == node).count();
            let most = (0..4).map(own).max().unwrap();
            assert_eq!(own(plan.block_node(page).unwrap().into()), most, "page {page}");
        }
        let auto = place(PolicyKind::BlockCyclic, Some(Block::Auto(Auto::Auto)));
        assert_eq!(block_bytes(&auto, Some(32 * row), size, PAGE, 4).unwrap(), 8 * row);
    }

    #[test]
    fn runs_and_numbers_of_blocks_agree_whatever_the_size_of_a_block() {
        for bytes in [1, PAGE, PAGE + 1, 5000, 6143, 6144, 6145, 3 * PAGE - 1, 3 * PAGE, 100_003, u64::MAX] {
            let p = place(PolicyKind::BlockCyclic, Some(Block::Size(Size(bytes))));
            let plan = plan(&p, None, 200 * PAGE, 200, PAGE, &EIGHT, 4).unwrap();
            let runs: Vec<Run> = plan.runs().collect();
            assert_eq!(runs.len() as u64, plan.run_count(), "{bytes}");
            let pages = |of: &[Run]| -> Vec<(u64, u32)> {
                of.iter().flat_map(|r| (r.first..r.first + r.pages).map(|page| (page, r.node))).collect()
            };
            let whole: Vec<(u64, u32)> = (0..200).map(|page| (page, plan.block_node(page).unwrap())).collect();
            assert_eq!(pages(&runs), whole, "{bytes}");
            for first in 0..200 {
                let before = runs.iter().filter(|r| r.first < first).count() as u64;
                assert_eq!(plan.blocks_before(first), Some(before), "{bytes}: {first}");
                let part: Vec<Run> = plan.runs_of(first, 13).collect();
                assert_eq!(pages(&part), whole[first as usize..200.min(first as usize + 13)], "{bytes}: {first}");
            }
        }
    }

    #[test]
    fn the_runs_of_a_map_count_blocks_where_it_has_a_size() {
        let map = |block| Place { map: Some("2x0,1x3".into()), ..place(PolicyKind::Map, block) };
        let nodes = |place: &Place| {
            let plan = plan(place, None, 12 * PAGE, 12, PAGE, &[0, 1, 2, 3], 4).unwrap();
            (0..12).map(|page| plan.nodes[plan.block_node(page).unwrap() as usize]).collect::<Vec<_>>()
        };
        assert_eq!(nodes(&map(None)), [0, 0, 3, 0, 0, 3, 0, 0, 3, 0, 0, 3]);
        // Edges at 1.5, 3, 4.5, 6, ... pages: a page goes with its middle.
        let half = Some(Block::Size(Size(PAGE * 3 / 2)));
        assert_eq!(nodes(&map(half)), [0, 0, 0, 3, 0, 0, 0, 3, 3, 0, 0, 0]);
    }

    #[test]
    fn bind_is_a_preference_unless_strict() {
        let layout_of = |strict| {
            let place = Place { policy: PolicyKind::Bind, strict, ..Place::default() };
            layout(&place, None, PAGE, PAGE, 2).unwrap()
        };
        assert_eq!([None, Some(false)].map(layout_of), [Layout::Preferred; 2]);
        assert_eq!(layout_of(Some(true)), Layout::Strict);
    }

    #[test]
    fn one_node_is_one_run() {
        let p = place(PolicyKind::BlockCyclic, Some(Block::Size(Size(1))));
        let plan = plan(&p, None, 1 << 40, 1 << 28, PAGE, &[0], 4).unwrap();
        assert_eq!(plan.runs().collect::<Vec<_>>(), [Run { first: 0, pages: 1 << 28, node: 0 }]);
        assert_eq!(plan.run_count(), 1);
    }

    #[test]
    fn coarser_blocks_keep_within_the_budget_and_stay_multiples() {
        let p = place(PolicyKind::BlockCyclic, Some(Block::Size(Size(3 * PAGE))));
        let mut plan = plan(&p, None, 1000 * PAGE, 1000, PAGE, &EIGHT, 4).unwrap();
        assert!(!plan.coarsen(400));
        assert!(plan.coarsen(100));
        assert_eq!(plan.layout, Layout::Blocks(12 * PAGE, Order::Cyclic));
        assert!(plan.run_count() <= 100);
        plan.mode = Mode::Populate;
        assert!(plan.run_count() == 1 && plan.runs().count() > 1 && !plan.coarsen(1), "populating costs no mapping");
    }

    #[test]
    fn blocks_of_huge_pages_are_whole_ones() {
        let p = place(PolicyKind::BlockCyclic, Some(Block::Size(Size(3 * MIB))));
        let mut plan = plan(&p, None, 16 * MIB, 4096, PAGE, &EIGHT, 4).unwrap();
        assert!(plan.round_blocks(HUGE_PAGE) && !plan.round_blocks(HUGE_PAGE) && !plan.round_blocks(PAGE));
        assert_eq!(plan.layout, Layout::Blocks(4 * MIB, Order::Cyclic));
    }

    #[test]
    fn an_object_without_a_whole_page_has_no_runs() {
        let plan = plan(&place(PolicyKind::Block, None), None, 520, 0, PAGE, &EIGHT, 4).unwrap();
        assert_eq!((plan.runs().count(), plan.run_count()), (0, 0));
    }
}
