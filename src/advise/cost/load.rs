//! Computes the time of a placed run from its accesses.

use super::demand::{Demand, Demands, bin, bins};
use super::resample::Split;
use super::{IN_CONCERT, LINE_BYTES, MOST_LINKED, PAGE_WALK_NS, Placement, Spill, WINDOWS, World};

/// Accesses of one or more objects under their placements.
pub(in crate::advise) struct Load<'a> {
    pub(super) world: &'a World<'a>,
    nodes: usize,
    linked: bool,
    bins: usize,
    /// Group of the samples that are added; every array has the sums of one group after those of the other.
    group: usize,
    /// How samples are divided into groups; none in a load without groups.
    split: Option<Split>,
    grouped: bool,
    /// In groups: one in so many of an object's demands stands for all.
    pub(super) one_in: usize,
    /// In groups: whether the part of the time that waits is no draw.
    pub(super) waiting_known: bool,
    /// In groups, by slice: CPU time that waits, and that computes, ns.
    waited: Vec<f64>,
    computed: Vec<f64>,
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

impl Part {
    fn clear(&mut self) {
        (self.waits, self.computes) = (0.0, 0.0);
        self.drawn.fill(0.0);
        self.links.fill(0.0);
    }
}

impl<'a> Load<'a> {
    pub fn new(world: &'a World<'a>) -> Load<'a> {
        Load { grouped: false, ..Load::in_groups(world, 1) }
    }

    /// A load that keeps the sums of so many random groups of the samples.
    pub(super) fn in_groups(world: &'a World<'a>, groups: usize) -> Load<'a> {
        let (nodes, bins) = (world.nodes(), bins(world.clock.slices.len()));
        let linked = nodes > 1 && nodes <= MOST_LINKED;
        let slices = if groups > 1 { groups * world.clock.slices.len() } else { 0 };
        Load {
            world,
            nodes,
            linked,
            bins,
            group: 0,
            split: None,
            grouped: true,
            one_in: 1,
            waiting_known: false,
            waited: vec![0.0; slices],
            computed: vec![0.0; slices],
            waits: vec![0.0; groups * bins],
            computes: vec![0.0; groups * bins],
            drawn: vec![0.0; groups * bins * nodes],
            links: vec![0.0; if linked { groups * bins * nodes * nodes } else { 0 }],
            pace: vec![(0.0, 0.0); groups * nodes],
            local: 0.0,
            remote: 0.0,
            lines: 0.0,
            computes_ns: 0.0,
        }
    }

    /// Adds an object's accesses.
    pub fn add(&mut self, demands: &Demands, placement: &Placement<'_>, spill: &Spill) {
        (self.lines, self.computes_ns) = (demands.lines, demands.computes_ns);
        self.split = self.split_of(placement, demands);
        if placement.gives_up_huge_pages() && !self.grouped {
            demands.sums.iter().for_each(|(&(bin, from), accesses)| self.add_walks(bin.into(), from.into(), *accesses));
        }
        if placement.is_balanced() {
            self.add_balanced(demands, placement, spill);
            return;
        }
        let Some(shares) = placement.shares() else {
            self.add_pages(demands, demands.list.iter().enumerate(), placement, spill);
            return;
        };
        if self.grouped {
            let list = demands.list.iter().enumerate().step_by(self.one_in);
            list.for_each(|(index, d)| self.add_demand((index, d), shares, placement, spill));
            return;
        }
        for (&(bin, from), accesses) in &demands.sums {
            for (to, share) in shares {
                self.add_to(bin.into(), from.into(), *to, accesses * share, spill);
            }
        }
    }

    fn split_of(&self, placement: &Placement<'_>, demands: &Demands) -> Option<Split> {
        self.grouped.then(|| Split::of(self.world, placement.entry(), demands, self.waiting_known))
    }

    /// Adds a part of an object's accesses, page by page; demands come with their index in the list.
    pub fn add_pages<'d>(
        &mut self,
        demands: &Demands,
        list: impl Iterator<Item = (usize, &'d Demand)>,
        placement: &Placement<'_>,
        spill: &Spill,
    ) {
        (self.lines, self.computes_ns) = (demands.lines, demands.computes_ns);
        self.split = self.split_of(placement, demands);
        // The node is computed once per page: most neighbours in the list are on the same page.
        let mut last = ((u32::MAX, u32::MAX), 0);
        for (index, d) in list {
            if index % self.one_in != 0 {
                continue;
            }
            if last.0 != (d.instance, d.page) {
                last = ((d.instance, d.page), placement.node(d.instance, d.page));
            }
            self.add_demand((index, d), &[(last.1, 1.0)], placement, spill);
        }
    }

    /// Adds accesses of which such shares go to these nodes.
    pub(super) fn add_demand(
        &mut self,
        (index, d): (usize, &Demand),
        shares: &[(usize, f64)],
        placement: &Placement<'_>,
        spill: &Spill,
    ) {
        let (bin, from, accesses) = (usize::from(d.bin), usize::from(d.from), f64::from(d.accesses));
        let Some(split) = self.split.take() else {
            shares.iter().for_each(|(to, share)| self.add_to(bin, from, *to, accesses * share, spill));
            return;
        };
        split.parts(index, accesses, |group, part| {
            let (part, waiting) = (accesses * part * self.one_in as f64, split.waiting[group]);
            self.group = group;
            let at = group * self.world.clock.slices.len() + self.world.slice_of_bin(bin);
            self.waited[at] += part * waiting * split.waits_ns;
            self.computed[at] += part * (split.computes_ns + (1.0 - waiting) * split.waits_ns);
            let accesses = part * waiting;
            if placement.gives_up_huge_pages() {
                self.add_walks(bin, from, accesses);
            }
            shares.iter().for_each(|(to, share)| self.add_to(bin, from, *to, accesses * share, spill));
        });
        self.split = Some(split);
    }

    pub(super) fn add_to(&mut self, bin: usize, from: usize, to: usize, accesses: f64, spill: &Spill) {
        for (node, share) in spill.of_node(to) {
            self.add_one(bin, from, *node, accesses * share);
        }
    }

    fn add_one(&mut self, bin: usize, from: usize, to: usize, accesses: f64) {
        let latency = self.world.model().latency[from][to];
        let at = self.group * self.bins + bin;
        self.waits[at] += accesses * latency;
        self.computes[at] += accesses * self.computes_ns;
        let lines = accesses * self.lines;
        self.drawn[at * self.nodes + to] += lines;
        if self.linked && from != to {
            self.links[(at * self.nodes + from) * self.nodes + to] += lines;
        }
        if self.world.home(from) == to {
            self.local += lines;
        } else {
            self.remote += lines;
        }
        if !self.is_serial(bin) {
            let pace = &mut self.pace[self.group * self.nodes + from];
            *pace = (pace.0 + accesses, pace.1 + accesses * latency);
        }
    }

    /// Adds the page walks of accesses that no longer go to huge pages.
    fn add_walks(&mut self, bin: usize, from: usize, accesses: f64) {
        self.waits[self.group * self.bins + bin] += accesses * PAGE_WALK_NS;
        if !self.is_serial(bin) {
            self.pace[self.group * self.nodes + from].1 += accesses * PAGE_WALK_NS;
        }
    }

    /// Adds the sums of another load with as many groups.
    pub fn merge(&mut self, other: &Load<'_>) {
        let add = |sums: &mut [f64], more: &[f64]| sums.iter_mut().zip(more).for_each(|(sum, x)| *sum += x);
        add(&mut self.waited, &other.waited);
        add(&mut self.computed, &other.computed);
        add(&mut self.waits, &other.waits);
        add(&mut self.computes, &other.computes);
        add(&mut self.drawn, &other.drawn);
        add(&mut self.links, &other.links);
        self.pace.iter_mut().zip(&other.pace).for_each(|(sum, x)| *sum = (sum.0 + x.0, sum.1 + x.1));
        self.local += other.local;
        self.remote += other.remote;
    }

    /// Number of sums of a load without groups.
    pub fn sums(&self) -> usize {
        self.waits.len() + self.computes.len() + self.drawn.len() + self.links.len() + 2 * self.pace.len()
    }

    /// The sum of all groups, each times its weight.
    pub(super) fn combined(&self, weights: &[f64]) -> Load<'a> {
        let mut out = Load::new(self.world);
        for (group, weight) in weights.iter().enumerate().filter(|(_, w)| **w != 0.0) {
            let add = |sums: &mut [f64], of_groups: &[f64]| {
                let from = group * sums.len();
                let own = &of_groups[from..from + sums.len()];
                sums.iter_mut().zip(own).for_each(|(sum, x)| *sum += weight * x);
            };
            add(&mut out.waits, &self.waits);
            add(&mut out.computes, &self.computes);
            add(&mut out.drawn, &self.drawn);
            add(&mut out.links, &self.links);
            let own = &self.pace[group * self.nodes..(group + 1) * self.nodes];
            out.pace.iter_mut().zip(own).for_each(|(sum, x)| *sum = (sum.0 + weight * x.0, sum.1 + weight * x.1));
        }
        out
    }

    /// In groups, by slice: CPU time that waits and that computes, ns.
    pub(super) fn cpu_ns(&self) -> (&[f64], &[f64]) {
        (&self.waited, &self.computed)
    }

    fn is_serial(&self, bin: usize) -> bool {
        self.world.clock.slices.get(self.world.slice_of_bin(bin)).is_none_or(|s| s.serial)
    }

    /// Mean latency of the node whose threads wait longest, over the mean of all; 1 without parallel accesses. Threads
    /// with less than an equal share of the accesses do other work meanwhile, which waits as all do: a few accesses
    /// that stray do not make them the slowest.
    fn worst_pace(&self) -> f64 {
        let (all, waits) = self.pace.iter().fold((0.0, 0.0), |sum, p| (sum.0 + p.0, sum.1 + p.1));
        if waits <= 0.0 {
            return 1.0;
        }
        let mean = waits / all;
        let share = all / self.pace.iter().filter(|p| p.0 > 0.0).count().max(1) as f64;
        let of_node = |p: &(f64, f64)| (p.1 + (share - p.0).max(0.0) * mean) / p.0.max(share);
        let worst = self.pace.iter().filter(|p| p.0 > 0.0).map(of_node).fold(0.0, f64::max);
        (worst / mean).max(1.0)
    }

    /// The time and the shares of all accesses added so far, which take turns with what the program computes on them.
    pub fn outcome(&self) -> Outcome {
        self.outcome_beside(&[])
    }

    /// The same beside other CPU time, ns by slice, during which lines are fetched, too, where accesses are mixed.
    pub fn outcome_beside(&self, other_ns: &[f64]) -> Outcome {
        let pace = self.worst_pace();
        let mut time_ns = 0.0;
        let (mut mixed, mut window) = (self.no_part(), self.no_part());
        for (index, slice) in self.world.clock.slices.iter().enumerate() {
            let pace = if slice.serial { 1.0 } else { pace };
            let other = other_ns.get(index).copied().unwrap_or(0.0);
            let time = |part: &Part, other: f64| {
                let computes = (part.computes + other) / slice.parallel;
                self.time(part, computes, slice.parallel / pace)
            };
            mixed.clear();
            (0..=WINDOWS).for_each(|w| self.add_part(&mut mixed, bin(index, w).into(), 1.0));
            let mixed = time(&mixed, other);
            // In concert all threads wait at a time, and do the other work at another.
            let windows = (1..=WINDOWS).map(|w| {
                window.clear();
                self.add_part(&mut window, bin(index, w).into(), 1.0);
                self.add_part(&mut window, bin(index, 0).into(), 1.0 / WINDOWS as f64);
                time(&window, 0.0)
            });
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

    /// A part without accesses.
    fn no_part(&self) -> Part {
        let links = if self.linked { self.nodes * self.nodes } else { 0 };
        Part { waits: 0.0, computes: 0.0, drawn: vec![0.0; self.nodes], links: vec![0.0; links] }
    }

    /// Adds a bin, times `weight`, to a part.
    fn add_part(&self, part: &mut Part, bin: usize, weight: f64) {
        let square = part.links.len();
        part.waits += weight * self.waits[bin];
        part.computes += weight * self.computes[bin];
        let drawn = &self.drawn[bin * self.nodes..(bin + 1) * self.nodes];
        part.drawn.iter_mut().zip(drawn).for_each(|(sum, x)| *sum += weight * x);
        let links = &self.links[bin * square..(bin + 1) * square];
        part.links.iter_mut().zip(links).for_each(|(sum, x)| *sum += weight * x);
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
