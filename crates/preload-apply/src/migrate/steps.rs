//! Moves the pages of one object in bounded steps.

use core::ffi::c_int;

use numamma_hook::say_once;
use numamma_kernel::pages::{self, BATCH};
use numamma_kernel::sys::PAGE;
use numamma_plan::home_node::{Context, HUGE_ORDER, Home, Interleaving};
use numamma_plan::machine::Thp;
use numamma_plan::plan::{HUGE_PAGE, PagePlan};
use numamma_plan::policy::Huge;

use crate::objects::backing::{Backing, Kind};
use crate::place::{Part, interleaving, may_take, populate, resident_nodes};

/// Pages of one step, those of a huge page. At about 0.8 GB a second (Goglin and Furmento, MTAAP 2009) a step takes 2.5
/// ms, which is the longest that a munmap has to wait.
pub const STEP_PAGES: usize = BATCH;
/// Work after which the mover rests, ns: about one step, so that ranges without pages are passed without rest.
const WORK_NS: u64 = 2_000_000;
/// Rest as a multiple of the work before it. With 1 the mover takes at most half of a core and half of what the memory
/// controllers can move, and still moves 0.4 GB a second.
const REST: u64 = 1;

/// Result of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Pages that were moved to their node.
    pub moved: u64,
    /// Pages that could not be moved.
    pub failed: u64,
}

/// The nodes on which the pages of one object belong.
pub struct Goal<'a> {
    plan: &'a PagePlan<'a>,
    base: usize,
    /// Node of a `local` object.
    node: u32,
    interleaving: Interleaving,
    /// The system has huge pages.
    huge: bool,
    /// The object may keep its huge pages.
    keep: bool,
    /// Pages of the object are hugetlb pages of `4 KiB << order`, which move only as a whole; 0: they are not.
    order: u32,
}

impl<'a> Goal<'a> {
    /// The goal for the object whose first whole page is at `base`.
    pub fn new(plan: &'a PagePlan<'a>, base: usize, node: u32, thp: Thp) -> Goal<'a> {
        let (huge, keep) = (thp != Thp::Never, plan.huge != Huge::Split);
        Goal { plan, base, node, interleaving: interleaving::of(plan), huge, keep, order: 0 }
    }

    /// The goal for a mapping with `backing`.
    pub fn with_backing(self, backing: Backing) -> Goal<'a> {
        let order = if backing.kind == Kind::Huge { backing.shift - PAGE.trailing_zeros() } else { 0 };
        Goal { order, ..self }
    }

    /// Node that the page at `address`, as part of a page of `4 KiB << order`, must move to; `None` if it may stay.
    fn node(&self, address: usize, now: u32, order: u32) -> Option<u32> {
        let context = Context { node: self.node, order, address: Some((self.base, &self.interleaving)) };
        match self.plan.home(((address - self.base) / PAGE) as u64, &context) {
            home if home.allows(now) => None,
            Home::Any => None,
            Home::One(node) => Some(node),
            Home::AnyOf(nodes) | Home::InTurn(nodes) => nodes.get(address / PAGE % nodes.len().max(1)).copied(),
        }
    }

    /// Moves the existing pages of `[start, end)`: at most [`STEP_PAGES`] pages, which do not cross a boundary of 2
    /// MiB.
    pub fn step(&self, start: usize, end: usize) -> Done {
        let count = ((end - start) / PAGE).min(STEP_PAGES);
        if self.plan.populates() && may_take((count * PAGE) as u64) {
            let part = Part { first: ((start - self.base) / PAGE) as u64, pages: count as u64 };
            // Pages that cannot be allocated are left to first touch.
            let _ = populate::populate_missing(self.plan, self.base, part);
        }
        let (mut pages, mut status) = ([0_usize; BATCH], [0 as c_int; BATCH]);
        pages.iter_mut().enumerate().for_each(|(i, p)| *p = start + i * PAGE);
        let Some(pages) = pages.get(..count) else { return Done::default() };
        let Some(status) = status.get_mut(..count) else { return Done::default() };
        if let Err(error) = resident_nodes::page_nodes(pages, status) {
            say_once!(
                "cannot move pages between phases (move_pages, error {error}); those that exist stay where they are"
            );
            return Done::default();
        }
        let whole = count == BATCH && start.is_multiple_of(HUGE_PAGE as usize);
        let huge = whole && status.first().is_some_and(|first| *first >= 0 && status.iter().all(|s| s == first));
        let huge = huge && self.huge && self.order == 0;
        // A huge page moves only as a whole, and the rest of it may belong to another object.
        let split = self.huge
            && self.order == 0
            && if huge { !self.keep || !self.have_one_node(pages, status) } else { !whole };
        if split {
            pages::split_huge_page(start + PAGE.min(end - start - PAGE));
        }
        let order = if huge && self.keep { HUGE_ORDER } else { self.order };
        let first = self.misplaced(pages, status, order);
        let mut left = first;
        // A page that was busy is tried a second time.
        for _ in 0..2 {
            if left.count == 0 {
                break;
            }
            pages::move_to(left.pages(), left.nodes());
            if pages::page_nodes(pages, status).is_err() {
                break;
            }
            left = self.misplaced(pages, status, order);
        }
        let failed = left.count.min(first.count);
        Done { moved: (first.count - failed) as u64, failed: failed as u64 }
    }

    /// Whether all pages belong on one node, so that a huge page can stay whole.
    fn have_one_node(&self, pages: &[usize], status: &[c_int]) -> bool {
        let mut wanted = pages.iter().zip(status).map(|(p, s)| match u32::try_from(*s) {
            Ok(now) => self.node(*p, now, HUGE_ORDER).unwrap_or(now),
            Err(_) => u32::MAX,
        });
        wanted.next().is_none_or(|first| wanted.all(|w| w == first))
    }

    fn misplaced(&self, pages: &[usize], status: &[c_int], order: u32) -> Misplaced {
        let mut wrong = Misplaced { count: 0, pages: [0; BATCH], nodes: [0; BATCH] };
        for (&page, &now) in pages.iter().zip(status) {
            let Ok(now) = u32::try_from(now) else { continue };
            if let (Some(node), Some(p), Some(n)) =
                (self.node(page, now, order), wrong.pages.get_mut(wrong.count), wrong.nodes.get_mut(wrong.count))
            {
                *p = page;
                *n = node as c_int;
                wrong.count += 1;
            }
        }
        wrong
    }
}

/// Pages that are on a wrong node, and the node of each where it belongs.
#[derive(Clone, Copy)]
struct Misplaced {
    count: usize,
    pages: [usize; BATCH],
    nodes: [c_int; BATCH],
}

impl Misplaced {
    fn pages(&self) -> &[usize] {
        self.pages.get(..self.count).unwrap_or_default()
    }

    fn nodes(&self) -> &[c_int] {
        self.nodes.get(..self.count).unwrap_or_default()
    }
}

/// The end of the step that begins at `at`, in a range that ends at `end`.
pub fn step_end(at: usize, end: usize) -> usize {
    (at + 1).next_multiple_of(HUGE_PAGE as usize).min(end)
}

/// How much the mover has worked since it last rested.
#[derive(Default)]
pub struct Pace {
    worked_ns: u64,
}

impl Pace {
    /// Counts `ns` of work; returns how long to rest now, if at all.
    pub fn worked(&mut self, ns: u64) -> Option<u64> {
        self.worked_ns += ns;
        let due = self.worked_ns >= WORK_NS;
        due.then(|| core::mem::take(&mut self.worked_ns) * REST)
    }
}

#[cfg(test)]
mod tests {
    use numamma_plan::plan::Layout;
    use numamma_plan::policy::Mode;

    use super::*;
    use numamma_kernel::mappings;

    #[test]
    fn steps_end_at_huge_pages() {
        let huge = HUGE_PAGE as usize;
        assert_eq!(step_end(0x1000, 3 * huge), huge);
        assert_eq!(step_end(huge, 3 * huge), 2 * huge);
        assert_eq!(step_end(2 * huge, 2 * huge + PAGE), 2 * huge + PAGE);
    }

    #[test]
    fn the_mover_rests_as_long_as_it_works() {
        let mut pace = Pace::default();
        assert_eq!(pace.worked(WORK_NS / 2), None);
        assert_eq!(pace.worked(WORK_NS), Some(WORK_NS * 3 / 2 * REST));
        assert_eq!(pace.worked(1), None);
    }

    #[test]
    fn hugetlb_pages_belong_where_their_head_does() {
        let turns = [0, 1, 2];
        let layout = Layout::Interleave;
        let plan =
            PagePlan { pages: 1 << 20, nodes: turns.to_vec().into(), layout, huge: Huge::Keep, mode: Mode::Policy };
        let goal = Goal::new(&plan, 0, 0, Thp::Never);
        for shift in [21, 30] {
            let goal = Goal::new(&plan, 0, 0, Thp::Never).with_backing(Backing {
                kind: Kind::Huge,
                shift,
                resident: true,
                ..Backing::PRIVATE
            });
            for number in 0..4 {
                let head = number << shift;
                let wanted = turns.get(number % 3).copied();
                assert_eq!([head, head + PAGE, head + (PAGE << 8)].map(|at| goal.node(at, 9, goal.order)), [wanted; 3]);
            }
        }
        assert_eq!([0, PAGE, 2 * PAGE].map(|at| goal.node(at, 9, goal.order)), [Some(0), Some(1), Some(2)]);
    }

    #[test]
    fn populating_blocks_makes_their_pages() {
        let len = 8 * PAGE;
        let base = mappings::map_aligned(len, PAGE).unwrap();
        let layout = Layout::Blocks(3 * PAGE as u64, numamma_plan::block_order::Order::Cyclic);
        let plan = PagePlan { pages: 8, nodes: vec![0].into(), layout, huge: Huge::Keep, mode: Mode::Populate };
        Goal::new(&plan, base, 0, Thp::Never).step(base + 2 * PAGE, base + 5 * PAGE);
        let pages: Vec<usize> = (0..8).map(|page| base + page * PAGE).collect();
        let mut status = [0; 8];
        pages::page_nodes(&pages, &mut status).unwrap();
        assert_eq!(status.map(|s| s == 0), [false, false, true, true, true, false, false, false]);
    }

    #[test]
    fn pages_on_plan_stay_and_pages_of_a_missing_node_are_counted() {
        let len = 8 * PAGE;
        let base = mappings::map_aligned(len, PAGE).unwrap();
        for page in 0..5 {
            // SAFETY: the test made this writable mapping.
            unsafe { ((base + page * PAGE) as *mut u8).write(page as u8 + 1) };
        }
        let goal = |nodes: Vec<u32>| PagePlan {
            pages: 8,
            nodes: nodes.into(),
            layout: Layout::Strict,
            huge: Huge::Keep,
            mode: Mode::Policy,
        };
        let here = goal(vec![0]);
        assert_eq!(Goal::new(&here, base, 0, Thp::Never).step(base, base + len), Done::default());
        let nowhere = goal(vec![900]);
        let done = Goal::new(&nowhere, base, 0, Thp::Never).step(base, base + len);
        assert_eq!(done, Done { moved: 0, failed: 5 });
        // SAFETY: as above.
        assert!((0..5).all(|page| unsafe { *((base + page * PAGE) as *const u8) } == page as u8 + 1));
    }
}
