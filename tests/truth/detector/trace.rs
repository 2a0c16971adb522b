//! From a plan to the accesses a profile would hold.

use numamma::detect::{ObjectView, PageAccess, PatternKind, Row, Sampling};
use numamma::profile::summary::{AccessFilter, TIME_SLOTS};

use super::plan::{Layout, Plan};
use super::random::Random;

pub const PAGE: u64 = 4096;
pub const SLOTS: u64 = TIME_SLOTS as u64;

impl Layout {
    /// Thread that uses a page.
    pub fn user(&self, page: u32, order: &[u32], r: &mut Random) -> u32 {
        match self {
            Layout::Slices { order, edges, period } => {
                let place = (f64::from(page) + r.unit()) % period / period;
                order[edges.partition_point(|e| *e <= place).min(order.len() - 1)]
            }
            Layout::Shared => order[r.below(order.len() as u64) as usize],
            Layout::One(thread) => *thread,
            Layout::Owners { chunk, owners } => owners[(page / chunk) as usize],
        }
    }
}

impl Plan {
    /// The object as the detectors see it.
    pub fn view(&self, r: &mut Random) -> ObjectView {
        let read_shared = self.kind == PatternKind::ReadShared;
        let init = self.initialised && self.kind != PatternKind::Private;
        let first = 2 + r.below(20);
        let mut accesses = Vec::with_capacity(self.samples as usize * 3 / 2);
        for _ in 0..self.samples {
            let slot = first + r.below(SLOTS - first);
            let at = (slot - first) as f64 / (SLOTS - first) as f64;
            let phase = self.phases.iter().find(|p| at < p.0).or(self.phases.last()).expect("a plan has a phase");
            accesses.push(self.access(&phase.1, slot as u16, r));
        }
        if init {
            let share = 0.05 + 0.5 * r.unit();
            let together = read_shared && r.chance(0.5);
            let extra = (f64::from(self.samples) * share / (1.0 - share)) as u64;
            for _ in 0..extra {
                let page = r.below(u64::from(self.pages)) as u32;
                let slices = self.order.len() as u64;
                let owner = self.order[(u64::from(page) * slices / u64::from(self.pages)) as usize];
                let thread = if together { owner } else { 0 };
                let (instance, page) = self.place(page, r);
                accesses.push(PageAccess {
                    instance,
                    page,
                    thread,
                    slot: r.below(first) as u16,
                    reads: 0.0,
                    writes: 1.0,
                });
            }
        }
        let pages = self.rows.map_or(self.pages, |rows| self.pages / rows);
        let row = |i: u32| Row {
            size: u64::from(pages) * PAGE,
            allocator: Some(if self.rows.is_some() { 0 } else { self.order[i as usize % self.order.len()] }),
        };
        ObjectView {
            size: if self.kind == PatternKind::Small { 2000 } else { u64::from(pages) * PAGE },
            skew: 0,
            page_size: PAGE,
            threads: self.threads,
            others: 0,
            instances: self.instances,
            cost_share: if self.kind == PatternKind::Cold { 0.001 } else { 0.5 },
            hot: self.kind != PatternKind::Cold,
            accesses: merged(accesses),
            rows: (0..self.instances).map(row).collect(),
            filter: AccessFilter::All,
            sampling: Sampling { duration_s: 10.0, rate_hz: 250.0, once: false },
            by_code: Vec::new(),
        }
    }

    fn access(&self, layout: &Layout, slot: u16, r: &mut Random) -> PageAccess {
        let page = r.below(u64::from(self.pages)) as u32;
        let any = self.order[r.below(self.order.len() as u64) as usize];
        let (instance, at) = self.place(page, r);
        // Well above 90 % so that chance does not cross the bar of private.
        let noise = if matches!(layout, Layout::One(_)) { self.noise.min(0.05) } else { self.noise };
        let thread = match layout {
            _ if r.chance(noise) => any,
            Layout::One(_) if self.instances > 1 => self.order[instance as usize % self.order.len()],
            _ => layout.user(page, &self.order, r),
        };
        let count = 1.0 + r.below(self.burst) as f32;
        let write = self.kind != PatternKind::ReadShared && r.chance(self.writes);
        let (reads, writes) = if write { (0.0, count) } else { (count, 0.0) };
        PageAccess { instance, page: at, thread, slot, reads, writes }
    }

    /// Instance and its page.
    fn place(&self, page: u32, r: &mut Random) -> (u32, u32) {
        match self.rows {
            Some(rows) => (page / (self.pages / rows), page % (self.pages / rows)),
            None if self.instances > 1 => (r.below(u64::from(self.instances)) as u32, page),
            None => (0, page),
        }
    }
}

/// One cell per (instance, page, thread, slot), as profiles are folded.
pub fn merged(mut accesses: Vec<PageAccess>) -> Vec<PageAccess> {
    accesses.sort_unstable_by_key(|a| (a.instance, a.page, a.thread, a.slot));
    accesses.dedup_by(|b, a| {
        let same = (a.instance, a.page, a.thread, a.slot) == (b.instance, b.page, b.thread, b.slot);
        if same {
            a.reads += b.reads;
            a.writes += b.writes;
        }
        same
    });
    accesses
}
