//! The node on which a page of a planned object belongs. Placement, migration, verification and prediction all use this
//! function.

use crate::plan::{Layout, PAGE, PagePlan};

/// A transparent huge page as a number of base pages, log2.
pub const HUGE_ORDER: u32 = 9;

/// Where a page belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home<'a> {
    /// On any node: the plan leaves the page to the kernel.
    Any,
    /// On this node.
    One(u32),
    /// On any of these nodes; a page on one of them stays.
    AnyOf(&'a [u32]),
    /// Interleaved over these nodes, by an address that is not known.
    InTurn(&'a [u32]),
}

impl Home<'_> {
    /// Whether a page on node `now` is where it belongs.
    #[inline]
    pub fn allows(self, now: u32) -> bool {
        match self {
            Home::Any => true,
            Home::One(node) => node == now,
            Home::AnyOf(nodes) | Home::InTurn(nodes) => nodes.contains(&now),
        }
    }
}

/// Inputs of [`PagePlan::home`] besides the plan.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Node of a `local` object.
    pub node: u32,
    /// Size of the pages as a number of base pages, log2: interleaving goes by whole pages.
    pub order: u32,
    /// Address of the object's first whole page, and the addresses interleaving counts from; `None` before the
    /// program runs: then base pages are [`Home::InTurn`], and huge pages count from the object's start.
    pub address: Option<(usize, &'a Interleaving)>,
}

impl PagePlan<'_> {
    /// Where page number `page` (4 KiB, from the object's first whole page) belongs.
    #[inline]
    pub fn home(&self, page: u64, context: &Context<'_>) -> Home<'_> {
        let one = |node: Option<u32>| node.map_or(Home::Any, Home::One);
        match self.layout {
            Layout::Default => Home::Any,
            Layout::Strict | Layout::Preferred => Home::AnyOf(&self.nodes),
            Layout::Local => Home::One(context.node),
            Layout::Blocks(..) => one(self.block_node(page).and_then(|i| self.nodes.get(i as usize)).copied()),
            Layout::Interleave | Layout::Weighted => match context.address {
                Some((base, interleaving)) => {
                    let page_bytes = (PAGE as usize) << context.order;
                    let address = (base + (page * PAGE) as usize) & !(page_bytes - 1);
                    one(interleaving.node(address, context.order))
                }
                None if context.order == 0 || self.layout == Layout::Weighted => Home::InTurn(&self.nodes),
                None => {
                    one(self.nodes.get(((page >> context.order) % self.nodes.len().max(1) as u64) as usize).copied())
                }
            },
        }
    }

    /// Whether the node of a page depends on its address.
    pub fn interleaves(&self) -> bool {
        matches!(self.layout, Layout::Interleave | Layout::Weighted)
    }
}

/// Width of the page number that the kernel divides by the number of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// Before Linux 6.7 (`offset_il_node` casts to unsigned int), which matters when the number of nodes is no power
    /// of two.
    Bits32,
    /// Since 6.7 (`interleave_nid` takes a pgoff_t).
    Bits64,
}

impl Width {
    /// The width in the kernel with this release (`/proc/sys/kernel/osrelease`); `Bits64` when the text cannot be
    /// parsed.
    pub fn of_release(release: &str) -> Width {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
        match (numbers.next(), numbers.next()) {
            (Some(major), Some(minor)) if (1..=6).contains(&major) && (major, minor) < (6, 7) => Width::Bits32,
            _ => Width::Bits64,
        }
    }
}

/// A mapping, with the offsets from which the kernel counts its pages for interleaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First address.
    pub start: usize,
    /// Address behind the last byte.
    pub end: usize,
    /// `vm_pgoff`: pages into the file; for anonymous memory its address in pages.
    pub page_offset: usize,
    /// Inode number of shared memory (mm/shmem.c adds it, to spread small files), counted in base pages; else 0.
    pub bias: usize,
}

/// The kernel's interleaving formula (mm/mempolicy.c): the node number is `(offset in mapping + mapping's page
/// offset) mod M` in units of the page the kernel allocated. Outside of all spans a page counts by its address.
#[derive(Clone, Debug)]
pub struct Interleaving {
    /// Mappings that may contain pages of the object.
    pub spans: Vec<Span>,
    /// Node of each page of one round, see [`round`].
    pub round: Vec<u32>,
    /// Kernel version.
    pub width: Width,
}

impl Interleaving {
    /// Node of the page of `4 KiB << order` at `address`.
    #[inline]
    pub fn node(&self, address: usize, order: u32) -> Option<u32> {
        let page = PAGE as usize;
        let offset = match self.spans.iter().find(|s| (s.start..s.end).contains(&address)) {
            Some(s) if order == 0 => (s.page_offset + (address - s.start) / page).wrapping_add(s.bias),
            Some(s) => (s.page_offset >> order) + (((address - s.start) / page) >> order),
            None => (address / page) >> order,
        };
        let offset = if self.width == Width::Bits32 { offset as u32 as usize } else { offset };
        self.round.get(offset % self.round.len().max(1)).copied()
    }
}

/// Node of each page of one round of interleaving over `nodes`: ascending, because node lists are masks to the
/// kernel. With weights a node has as many pages in a row as its weight (`weighted_interleave_nid` of
/// mm/mempolicy.c).
pub fn round(nodes: &[u32], weight: impl Fn(u32) -> usize) -> Vec<u32> {
    let mut sorted = nodes.to_vec();
    sorted.sort_unstable();
    sorted.iter().flat_map(|&node| core::iter::repeat_n(node, weight(node))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_order::Order;
    use crate::policy::{Huge, Mode};

    fn interleaving(spans: &[Span], width: Width) -> Interleaving {
        Interleaving { spans: spans.to_vec(), round: vec![0, 1, 2], width }
    }

    #[test]
    fn interleaving_follows_the_kernels_formula() {
        let span = Span { start: 0x10_0000, end: 0x80_0000, page_offset: 0x100, bias: 0 };
        let inside = interleaving(&[span], Width::Bits64);
        assert_eq!(inside.node(0x10_1000, 0), Some(257 % 3));
        // An unaligned mapping: the first whole huge page is number 0, not 1.
        assert_eq!(inside.node(0x20_0000, HUGE_ORDER), Some(0));
        assert_eq!(interleaving(&[], Width::Bits64).node(0x20_0000, HUGE_ORDER), Some(1));
        // Seen on Linux 6.1: the page number 0x7faab056f counts as 0xfaab056f.
        assert_eq!(interleaving(&[], Width::Bits32).node(0x7faa_b056_f000, 0), Some(0));
        assert_eq!(interleaving(&[], Width::Bits64).node(0x7faa_b056_f000, 0), Some(1));
        assert_eq!(interleaving(&[Span { bias: 1, ..span }], Width::Bits64).node(0x10_1000, 0), Some(258 % 3));
    }

    #[test]
    fn the_width_changed_with_linux_6_7() {
        let widths = ["5.10.0-8-amd64", "6.6.30", "6.7.0", "7.0", ""].map(Width::of_release);
        assert_eq!(widths.map(|w| w == Width::Bits32), [true, true, false, false, false]);
    }

    #[test]
    fn a_round_is_ascending_and_weighted() {
        assert_eq!(round(&[2, 0], |_| 1), [0, 2]);
        assert_eq!(round(&[2, 0], |node| node as usize + 1), [0, 2, 2, 2]);
    }

    #[test]
    fn every_layout_has_a_home_for_its_pages() {
        let plan =
            |layout| PagePlan { pages: 64, nodes: vec![2, 0].into(), layout, huge: Huge::Keep, mode: Mode::Policy };
        let run = interleaving(&[], Width::Bits64);
        let context = Context { node: 7, order: 0, address: Some((0x20_0000, &run)) };
        let before = Context { address: None, ..context };
        assert_eq!(plan(Layout::Default).home(1, &context), Home::Any);
        assert_eq!(plan(Layout::Strict).home(1, &context), Home::AnyOf(&[2, 0]));
        assert_eq!(plan(Layout::Local).home(1, &context), Home::One(7));
        assert_eq!(plan(Layout::Blocks(4 * PAGE, Order::Cyclic)).home(5, &before), Home::One(0));
        assert_eq!(plan(Layout::Interleave).home(1, &context), Home::One(513 % 3));
        assert_eq!(plan(Layout::Interleave).home(1, &before), Home::InTurn(&[2, 0]));
        let huge = Context { order: HUGE_ORDER, ..context };
        assert_eq!(plan(Layout::Interleave).home(5, &huge), Home::One(1), "the whole huge page of the page");
        let huge = Context { order: HUGE_ORDER, ..before };
        let turns = plan(Layout::Interleave);
        assert_eq!([511, 512].map(|page| turns.home(page, &huge)), [Home::One(2), Home::One(0)]);
        assert!(Home::AnyOf(&[2, 0]).allows(0) && !Home::One(2).allows(0) && Home::Any.allows(9));
    }
}
