//! Page maps of one period, for slices that equal blocks in a list of nodes do not fit.

use numamma_plan::plan::{self, PAGE, page_size_of};
use numamma_plan::policy::{Block, Place, PolicyKind, Size};

use super::block_layout::Layout;
use super::candidates::WORTH_BLOCKS;
use super::scene::{Choice, Scene, Simplicity};
use crate::detect::{Pattern, PatternKind};
use crate::profile::summary::Entry;

/// A page map has blocks of a thread's part of a period, or of a half, a quarter or an eighth of it, or else so many
/// that edges between slices of any sizes are met: an edge that lies in the middle of its block costs 1/4096 of the
/// object.
const MAP_HALVINGS: u32 = 4;
const FINE: u64 = 2048;
/// Part of the object by which a map must make more local than larger blocks do, and no less than the edges of the
/// slices may be off by ([`error_of_edges`]).
const LEAST_BETTER: f64 = 0.01;
/// Most runs of pages of a period of a page map: a person can still read the line.
const MOST_RUNS: usize = 256;

/// Part of `base` bytes, an object or a period, that may be on the wrong side of an edge of its slices: an edge lies
/// somewhere in the page, or between the two samples, beside it.
fn error_of_edges(pattern: &Pattern, base: u64, page: u64) -> f64 {
    let apart = (page as f64 / base as f64).max(1.0 / pattern.figures.samples.max(1.0));
    (pattern.slices.len() as f64 * apart).max(LEAST_BETTER)
}

impl Scene<'_> {
    /// A page map of one period, for slices that follow the threads while equal blocks do not fit them, as with six
    /// threads on four nodes. None where blocks are as good.
    pub fn mapped_slices(&self, entry: &Entry, pattern: &Pattern) -> Option<Choice> {
        let policy = match pattern.kind {
            PatternKind::Block => PolicyKind::Block,
            PatternKind::BlockCyclic => PolicyKind::BlockCyclic,
            _ => return None,
        };
        if self.target.portable || pattern.group.is_some() {
            return None;
        }
        let page = page_size_of(&Place::default(), entry.size, self.target.thp);
        let (sliced, base, _) = self.slices(entry, pattern, policy);
        let blocks = self.best_layout(&sliced, base, page).local;
        let node_of = |user: u32| self.node_of(user, sliced.threads);
        let threads = u64::from(sliced.threads);
        let halved = (0..MAP_HALVINGS).map(|n| threads << n);
        let counts = [pattern.slices.len() as u64].into_iter().chain(halved).filter(|n| (2..FINE).contains(n));
        let layout = |count: u64| {
            let block = sliced.block(base, count, page);
            // The map repeats. It drifts from the period where huge pages make its blocks larger.
            let blocks = if sliced.repeats { plan::part_of(base, block).max(1) } else { base.div_ceil(block) };
            let order = sliced.preferred_nodes(blocks as u32, block, node_of);
            let local = sliced.local_share(&order, block, node_of);
            let runs = order.chunk_by(|a, b| a == b).count();
            (1..=MOST_RUNS).contains(&runs).then_some(Layout { order, block, local })
        };
        // One per cent more does not justify smaller blocks.
        let better = |best: Layout, other: Layout| if other.local > best.local + LEAST_BETTER { other } else { best };
        let edges = error_of_edges(pattern, base, page);
        let coarse = counts.filter_map(layout).reduce(better);
        let before = coarse.as_ref().map_or(blocks, |coarse| coarse.local.max(blocks));
        let best = layout(FINE).filter(|fine| fine.local > before + edges).or(coarse)?;
        if best.local < WORTH_BLOCKS || best.local <= blocks + edges {
            return None;
        }
        let node = |index: &u32| self.target.ids.get(*index as usize).copied();
        let nodes = best.order.iter().map(node).collect::<Option<Vec<u32>>>()?;
        // In pages where the blocks consist of them.
        let (pages, block) = match best.block.is_multiple_of(PAGE) {
            true => (best.block / PAGE, None),
            false => (1, Some(Block::Size(Size(best.block)))),
        };
        let runs = nodes.chunk_by(|a, b| a == b).map(|run| format!("{}x{}", run.len() as u64 * pages, run[0]));
        let map = runs.collect::<Vec<_>>().join(",");
        let remark = self.laid_out(sliced.seen);
        let place = Place { policy: PolicyKind::Map, map: Some(map), block, ..Place::default() };
        Some(Choice { place, remark, simplicity: Simplicity::Mapped, numbered: None })
    }
}
