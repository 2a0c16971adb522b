//! Computes the time of a placed run from its accesses.

use super::demand::{Demand, Demands, bin, bins};
use super::{IN_CONCERT, LINE_BYTES, MOST_LINKED, PAGE_WALK_NS, Placement, Spill, WINDOWS, World};

/// The threads of a node with fewer accesses than this part of an equal share do not count as the slowest.
const SETS_PACE: f64 = 0.05;

/// Accesses of one or more objects under their placements.
pub(in crate::advise) struct Load<'a> {
    pub(super) world: &'a World<'a>,
    nodes: usize,
    linked: bool,
    /// By bin: accesses x latency, ns.
    waits: Vec<f64>,
    /// By bin: CPU time that computes beside these accesses, ns.
    computes: Vec<f64>,
    /// By bin and node of the page: lines.
    drawn: Vec<f64>,
    /// By bin, node of the thread and node of the page: lines over links. Empty on very many nodes.
    links: Vec<f64>,
    /// Parallel accesses by node of the thread: their number, and accesses x latency.
    pace: Vec<(f64, f64)>,
    local: f64,
    remote: f64,
    /// Lines, and CPU time that computes, for each access of the object that is added.
    lines: f64,
    computes_ns: f64,
}

/// The result of pricing a placement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::advise) struct Outcome {
    /// Wall time of the waiting, ns.
    pub time_ns: f64,
    /// Share of the lines that come from the nearest node.
    pub local_share: f64,
    /// Share of the lines that the busiest node's memory serves.
    pub busiest_share: f64,
}

/// Sums of a slice, or of a window of it.
struct Part {
    waits: f64,
    computes: f64,
    drawn: Vec<f64>,
    links: Vec<f64>,
}

impl<'a> Load<'a> {
    pub fn new(world: &'a World<'a>) -> Load<'a> {
        let (nodes, bins) = (world.nodes(), bins(world.clock.slices.len()));
        let linked = nodes > 1 && nodes <= MOST_LINKED;
        Load {
            world,
            nodes,
            linked,
            waits: vec![0.0; bins],
            computes: vec![0.0; bins],
            drawn: vec![0.0; bins * nodes],
            links: vec![0.0; if linked { bins * nodes * nodes } else { 0 }],
            pace: vec![(0.0, 0.0); nodes],
            local: 0.0,
            remote: 0.0,
            lines: 0.0,
            computes_ns: 0.0,
        }
    }

    /// Adds an object's accesses.
    pub fn add(&mut self, demands: &Demands, placement: &Placement<'_>, spill: &Spill) {
        (self.lines, self.computes_ns) = (demands.lines, demands.computes_ns);
        if placement.gives_up_huge_pages() {
            demands.sums.iter().for_each(|(&(bin, from), accesses)| self.add_walks(bin.into(), from.into(), *accesses));
        }
        if placement.is_balanced() {
            self.add_balanced(demands, placement, spill);
            return;
        }
        let Some(shares) = placement.shares() else {
            self.add_pages(demands, demands.list.iter(), placement, spill);
            return;
        };
        for (&(bin, from), accesses) in &demands.sums {
            for (to, share) in shares {
                self.add_to(bin.into(), from.into(), *to, accesses * share, spill);
            }
        }
    }

    /// Adds a part of an object's accesses, page by page.
    pub fn add_pages<'d>(
        &mut self,
        demands: &Demands,
        list: impl Iterator<Item = &'d Demand>,
        placement: &Placement<'_>,
        spill: &Spill,
    ) {
        (self.lines, self.computes_ns) = (demands.lines, demands.computes_ns);
        // The node is computed once per page: most neighbours in the list are on the same page.
        let mut last = ((u32::MAX, u32::MAX), 0);
        for d in list {
            if last.0 != (d.instance, d.page) {
                last = ((d.instance, d.page), placement.node(d.instance, d.page));
            }
            self.add_to(d.bin.into(), d.from.into(), last.1, d.accesses.into(), spill);
        }
    }

    pub(super) fn add_to(&mut self, bin: usize, from: usize, to: usize, accesses: f64, spill: &Spill) {
        for (node, share) in spill.of_node(to) {
            self.add_one(bin, from, *node, accesses * share);
        }
    }

    fn add_one(&mut self, bin: usize, from: usize, to: usize, accesses: f64) {
        let latency = self.world.model().latency[from][to];
        self.waits[bin] += accesses * latency;
        self.computes[bin] += accesses * self.computes_ns;
        let lines = accesses * self.lines;
        self.drawn[bin * self.nodes + to] += lines;
        if self.linked && from != to {
            self.links[(bin * self.nodes + from) * self.nodes + to] += lines;
        }
        if self.world.home(from) == to {
            self.local += lines;
        } else {
            self.remote += lines;
        }
        if !self.is_serial(bin) {
            self.pace[from].0 += accesses;
            self.pace[from].1 += accesses * latency;
        }
    }

    /// Adds the page walks of accesses that no longer go to huge pages.
    fn add_walks(&mut self, bin: usize, from: usize, accesses: f64) {
        self.waits[bin] += accesses * PAGE_WALK_NS;
        if !self.is_serial(bin) {
            self.pace[from].1 += accesses * PAGE_WALK_NS;
        }
    }

    fn is_serial(&self, bin: usize) -> bool {
        self.world.clock.slices.get(self.world.slice_of_bin(bin)).is_none_or(|s| s.serial)
    }

    /// Mean latency of the node whose threads wait longest, over the mean of all; 1 without parallel accesses.
    fn worst_pace(&self) -> f64 {
        let (all, waits) = self.pace.iter().fold((0.0, 0.0), |sum, p| (sum.0 + p.0, sum.1 + p.1));
        let taking_part = self.pace.iter().filter(|p| p.0 > 0.0).count().max(1);
        let least = SETS_PACE * all / taking_part as f64;
        let worst = self.pace.iter().filter(|p| p.0 > least).map(|p| p.1 / p.0).fold(0.0, f64::max);
        if waits > 0.0 { (worst * all / waits).max(1.0) } else { 1.0 }
    }

    /// The time and the shares of all accesses added so far, which take turns with what the program computes on them.
    pub fn outcome(&self) -> Outcome {
        self.outcome_beside(&[])
    }

    /// The same beside other CPU time, ns by slice, during which lines are fetched, too, where accesses are mixed.
    pub fn outcome_beside(&self, other_ns: &[f64]) -> Outcome {
        let pace = self.worst_pace();
        let mut time_ns = 0.0;
        for (index, slice) in self.world.clock.slices.iter().enumerate() {
            let pace = if slice.serial { 1.0 } else { pace };
            let other = other_ns.get(index).copied().unwrap_or(0.0);
            let time = |part: &Part, other: f64| {
                let computes = (part.computes + other) / slice.parallel;
                self.time(part, computes, slice.parallel / pace)
            };
            let parts: Vec<Part> = (0..=WINDOWS).map(|w| self.part(bin(index, w).into())).collect();
            let mixed = time(&self.sum(parts.iter().map(|p| (p, 1.0))), other);
            let each = 1.0 / WINDOWS as f64;
            // In concert all threads wait at a time, and do the other work at another.
            let windows = parts[1..].iter().map(|w| time(&self.sum([(w, 1.0), (&parts[0], each)]), 0.0));
            time_ns += (1.0 - IN_CONCERT) * mixed + IN_CONCERT * windows.sum::<f64>();
        }
        let mut by_node = vec![0.0; self.nodes];
        self.drawn.iter().enumerate().for_each(|(i, a)| by_node[i % self.nodes] += a);
        let all: f64 = by_node.iter().sum();
        let of_all = |part: f64| if all > 0.0 { part / all } else { 0.0 };
        Outcome {
            time_ns,
            local_share: if all > 0.0 { self.local / (self.local + self.remote) } else { 0.0 },
            busiest_share: of_all(by_node.iter().copied().fold(0.0, f64::max)),
        }
    }

    fn part(&self, bin: usize) -> Part {
        let square = self.nodes * self.nodes;
        Part {
            waits: self.waits[bin],
            computes: self.computes[bin],
            drawn: self.drawn[bin * self.nodes..(bin + 1) * self.nodes].to_vec(),
            links: if self.linked { self.links[bin * square..(bin + 1) * square].to_vec() } else { Vec::new() },
        }
    }

    fn sum<'p>(&self, parts: impl IntoIterator<Item = (&'p Part, f64)>) -> Part {
        let mut sum = Part { waits: 0.0, computes: 0.0, drawn: vec![0.0; self.nodes], links: Vec::new() };
        for (part, weight) in parts {
            sum.links.resize(part.links.len(), 0.0);
            sum.waits += weight * part.waits;
            sum.computes += weight * part.computes;
            sum.drawn.iter_mut().zip(&part.drawn).for_each(|(s, p)| *s += weight * p);
            sum.links.iter_mut().zip(&part.links).for_each(|(s, p)| *s += weight * p);
        }
        sum
    }

    /// Waiting of `parallel` threads in a part, besides what they compute: as long as the accesses take, or until the
    /// busiest controller or link has moved all lines, which it also does while they compute.
    fn time(&self, part: &Part, computes_ns: f64, parallel: f64) -> f64 {
        let bandwidth = &self.world.model().bandwidth;
        let transfer =
            |lines: f64, bytes_a_second: f64| lines * LINE_BYTES / bytes_a_second.max(f64::MIN_POSITIVE) * 1e9;
        let controller = part.drawn.iter().enumerate().map(|(n, a)| transfer(*a, bandwidth[n][n])).fold(0.0, f64::max);
        let links = part.links.iter().enumerate().filter(|(_, a)| **a > 0.0);
        let link = links.map(|(i, a)| transfer(*a, bandwidth[i / self.nodes][i % self.nodes])).fold(0.0, f64::max);
        (part.waits / parallel.max(f64::MIN_POSITIVE)).max(controller.max(link) - computes_ns)
    }
}
