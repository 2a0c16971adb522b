//! The placement of one object: from its slices or owners to a distribution over the target's nodes.
//!
//! This makes the placements that a pattern suggests, and those that are always worth a price; [`super::choose`] prices
//! them. Slices only suggest blocks when enough of the object would be on the node of the thread that uses it, with
//! threads on nodes as [`Target::home_of`] says.

use std::collections::HashMap;

use numamma_plan::plan::{PAGE, page_size_in_use, page_size_of};
use numamma_plan::policy::{Auto, Block, Huge, ObjectRule, Place, PolicyKind, Size};

use super::cost::World;
use super::probe::{Layout, Probe, extrapolate};
use super::{Target, choose, naming, note, numbered, phases};
use crate::detect::{Pattern, PatternKind};
use crate::profile::model::{ObjectKind, ThreadId};
use crate::profile::summary::{Entry, Summary};

/// What all placements of one advice share.
pub(super) struct Scene<'a> {
    pub summary: &'a Summary,
    pub ranks: &'a HashMap<ThreadId, u32>,
    pub target: &'a Target,
    pub world: &'a World<'a>,
}

/// Local share from which slices are worth a block distribution: half way between spreading and perfect would be
/// 0.5 to 0.6 on two to eight nodes; below it latency gains no longer outweigh the uneven load of the nodes.
const WORTH_BLOCKS: f64 = 0.6;
/// Share of pages that the right threads touched first from which first touch needs no help.
const TOUCHED_RIGHT: f64 = 0.9;
/// Blocks this much larger than a node's part (because huge pages are) cannot follow the threads any more; the
/// paper still placed `cjac` of LU so (5 MiB / 8 = 640 KiB on pages of 2 MiB), which spreads it in large pieces.
const COARSE: f64 = 1.5;
/// Single nodes that are priced; on larger machines the first ones stand for all.
const MOST_SINGLE: usize = 16;
/// Part of the accesses that decides on how many pages an object really has.
const HOT_PART: f64 = 0.9;
/// Used part of an object below which blocks are computed from the used part.
const USED_PART: f64 = 0.9;

/// Whether a rule needs threads to stay on their nodes.
pub(super) fn relies_on_binding(rule: &ObjectRule) -> bool {
    matches!(rule.place.policy, PolicyKind::Bind | PolicyKind::Block | PolicyKind::BlockCyclic | PolicyKind::Local)
        || rule.instances.is_some()
}

/// Number of the busiest pages that have [`HOT_PART`] of the accesses together.
fn hot_pages(entry: &Entry) -> u64 {
    let mut pages: HashMap<(u32, u32), u64> = HashMap::new();
    for c in &entry.cells {
        *pages.entry((c.instance, c.page)).or_default() += c.counters.accesses();
    }
    let mut counts: Vec<u64> = pages.into_values().collect();
    counts.sort_unstable_by_key(|n| std::cmp::Reverse(*n));
    let wanted = HOT_PART * counts.iter().sum::<u64>() as f64;
    let sums = counts.iter().scan(0, |sum, n| {
        *sum += n;
        Some(*sum as f64)
    });
    sums.take_while(|sum| *sum < wanted).count() as u64 + 1
}

/// Share of the accesses to private objects of this entry's kind that were remote although their user touched them
/// first; none where that does not apply. Threads that move between nodes leave their memory behind.
pub(super) fn left_behind(scene: &Scene<'_>, entry: &Entry, pattern: &Pattern) -> Option<f64> {
    let applies =
        pattern.kind == PatternKind::Private && entry.total.placed > 0 && scene.touched_by_user(entry, pattern);
    applies.then(|| entry.total.remote as f64 / entry.total.placed as f64)
}

/// How much a reader has to take in, ascending; among placements that cost the same the simplest is advised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Simplicity {
    /// Where the allocating thread runs.
    Local,
    /// The node of the only user.
    OneNode,
    /// The distribution that follows from the pattern. It stays exact in large pieces and keeps huge pages.
    Pattern,
    /// Page by page over all nodes.
    Spread,
    /// The distribution that follows from the pattern, without huge pages.
    Split,
    /// Only on chosen nodes, which the pattern does not explain.
    Chosen,
}

/// A placement with the words that go after the evidence.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Choice {
    pub place: Place,
    pub remark: Option<String>,
    pub simplicity: Simplicity,
    /// Node of every instance in order of birth, as an index into the target's: a rule for each node.
    pub numbered: Option<Vec<u32>>,
}

/// Whether the pattern suggests nothing better than spreading.
fn first_is_spread(choices: &[Choice]) -> bool {
    choices.first().is_some_and(|c| c.simplicity == Simplicity::Spread)
}

impl Choice {
    fn interleave(remark: Option<String>) -> Choice {
        let place = Place { policy: PolicyKind::Interleave, nodes: Some("all".into()), ..Place::default() };
        Choice { place, remark, simplicity: Simplicity::Spread, numbered: None }
    }
}

impl Scene<'_> {
    /// The rule of one hot object, or why it has none. `taken` are the bytes that objects placed before it have on each
    /// node of the model; its own are added. Instances that are placed by number have more rules, which come second.
    pub fn rule(
        &self,
        entry: &Entry,
        pattern: &Pattern,
        share: f64,
        taken: &mut [f64],
    ) -> Result<(ObjectRule, Vec<ObjectRule>), String> {
        if self.target.nodes < 2 {
            return Err(format!("{}; the target has one node", pattern.evidence));
        }
        if self.ranks.len() < 2 {
            return Err("one thread uses everything; first touch places it".into());
        }
        let phased = pattern;
        let pattern = pattern.overall();
        let choices = self.choices(entry, pattern)?;
        let mut rule = naming::name(self.summary, entry)?;
        rule.size = Some(entry.size);
        rule.pattern = Some(note(pattern));
        let others = taken.to_vec();
        let advised = choose::choose(self, entry, pattern, choices, rule.pattern.as_ref(), taken);
        let by_number = advised.as_ref().is_ok_and(|a| a.numbered.is_some());
        let whole = advised.as_ref().ok().map(|a| &a.place);
        // Instances that have a node each do not move.
        let staged =
            if by_number { None } else { phases::verdict(self, entry, phased, whole, rule.pattern.as_ref(), &others) };
        let pays = staged.as_ref().is_some_and(|s| !s.places.is_empty());
        let advised = match advised {
            Ok(advised) => Some(advised),
            Err(_) if pays => None,
            Err(reason) => return Err(reason),
        };
        let (mut words, mut numbered): (Vec<String>, _) = (Vec::new(), None);
        if let Some(advised) = advised {
            rule.place = advised.place;
            words.extend(advised.remark);
            numbered = advised.numbered;
        }
        if let Some(staged) = staged {
            words.push(staged.words.clone());
            phases::note(&mut rule, staged);
        }
        let words: String = words.into_iter().map(|w| format!("; {w}")).collect();
        rule.why = Some(format!("{:.1} % of the cost; {}{words}", 100.0 * share, pattern.evidence));
        let more = numbered.map(|nodes| numbered::split(&mut rule, &nodes, self.target));
        Ok((rule, more.unwrap_or_default()))
    }

    /// What is to be priced for an object of this pattern, or why nothing need be.
    pub fn choices(&self, entry: &Entry, pattern: &Pattern) -> Result<Vec<Choice>, String> {
        let first = match pattern.kind {
            PatternKind::Small | PatternKind::Cold => return Err(pattern.evidence.clone()),
            PatternKind::Unsure => return Err(pattern.evidence.clone()),
            PatternKind::Private => self.private(entry, pattern)?,
            PatternKind::Random | PatternKind::ReadShared | PatternKind::Irregular => self.spread(entry, pattern)?,
            // Never the pattern of a whole run, nor of a phase.
            PatternKind::Phased => return Err(pattern.evidence.clone()),
            // Rows allocated one by one: what can be placed is an instance, as with private ones.
            PatternKind::Block | PatternKind::BlockCyclic if pattern.group.is_some() => self.rows(entry, pattern)?,
            PatternKind::Block => self.sliced(entry, pattern, PolicyKind::Block, None),
            PatternKind::BlockCyclic => self.sliced(entry, pattern, PolicyKind::BlockCyclic, None),
        };
        let mut choices = vec![first];
        choices.extend(self.exact_slices(entry, pattern));
        // Where one thread allocates for others; each on the node of its own allocator is simpler.
        if first_is_spread(&choices) && !pattern.owners.is_empty() {
            choices.extend(numbered::choice(self, entry, pattern));
        }
        for other in self.unspecific(entry) {
            if choices.iter().all(|c| c.place != other.place) {
                choices.push(other);
            }
        }
        Ok(choices)
    }

    /// Placements worth a price whatever the pattern is.
    fn unspecific(&self, entry: &Entry) -> Vec<Choice> {
        let mut choices = vec![Choice::interleave(None)];
        if entry.kind != ObjectKind::Global && entry.kind != ObjectKind::Section && entry.site.is_some() {
            let place = Place { policy: PolicyKind::Local, ..Place::default() };
            choices.push(Choice { place, remark: None, simplicity: Simplicity::Local, numbered: None });
        }
        if self.target.portable {
            return choices;
        }
        let chosen = |policy, nodes: String| {
            let place = Place { policy, nodes: Some(nodes), ..Place::default() };
            Choice { place, remark: None, simplicity: Simplicity::Chosen, numbered: None }
        };
        let id = |n: usize| self.world.model().nodes[n].id;
        let near: Vec<u32> = self.world.homes().into_iter().map(id).collect();
        if near.len() > 1 && near.len() < self.target.ids.len() {
            choices.push(chosen(PolicyKind::Interleave, numamma_plan::nodes::format(&near)));
        }
        if self.world.uneven() {
            let remark =
                "it needs weights by bandwidth in /sys/kernel/mm/mempolicy/weighted_interleave, and Linux 6.9".into();
            let all = chosen(PolicyKind::WeightedInterleave, "all".into());
            choices.push(Choice { remark: Some(remark), ..all });
        }
        let single = self.world.memory.iter().take(MOST_SINGLE).map(|n| chosen(PolicyKind::Bind, id(*n).to_string()));
        choices.extend(single);
        choices
    }

    /// Random: spread page by page, unless nearly all accesses go to so few pages that they stay on so many nodes.
    fn spread(&self, entry: &Entry, pattern: &Pattern) -> Result<Choice, String> {
        let hot = hot_pages(entry);
        if hot < u64::from(self.target.nodes) {
            return Err(format!(
                "{}; {:.0} % of its accesses go to {hot} page{}, which no spreading can share out",
                pattern.evidence,
                100.0 * HOT_PART,
                if hot == 1 { "" } else { "s" }
            ));
        }
        Ok(Choice::interleave(None))
    }

    /// Nearest node with memory (index into the target's list) of a thread of the target; of one seen, extrapolated to
    /// the target's number of threads.
    fn node_of(&self, user: u32) -> u32 {
        self.target.home_of(user)
    }

    fn node_of_seen(&self, rank: u32) -> u32 {
        self.node_of(extrapolate(rank, 0.0, self.ranks.len() as u32, self.target.threads))
    }

    /// Whether the owners of a private object touched their pages first.
    fn touched_by_user(&self, entry: &Entry, pattern: &Pattern) -> bool {
        let owner: HashMap<u32, u32> = pattern.owners.iter().map(|o| (o.instance, o.thread)).collect();
        let (mut pages, mut right) = (0u64, 0u64);
        for run in &entry.touches {
            let Some(rank) = owner.get(&run.instance) else { continue };
            pages += u64::from(run.pages);
            right += if self.ranks.get(&run.thread) == Some(rank) { u64::from(run.pages) } else { 0 };
        }
        pages > 0 && right as f64 >= TOUCHED_RIGHT * pages as f64
    }

    /// Private: nothing where first touch does it, else the node of the only user.
    fn private(&self, entry: &Entry, pattern: &Pattern) -> Result<Choice, String> {
        if self.touched_by_user(entry, pattern) {
            return Err(format!("{}; its user touches it first, so first touch already places it", pattern.evidence));
        }
        let mut users: Vec<u32> = pattern.owners.iter().map(|o| o.thread).collect();
        users.sort_unstable();
        users.dedup();
        let allocated_by_user = pattern.owners.iter().filter(|o| {
            let thread = entry.seen.get(o.instance as usize).and_then(|i| i.thread);
            thread.and_then(|t| self.ranks.get(&t)) == Some(&o.thread)
        });
        let home = allocated_by_user.count() as f64 >= TOUCHED_RIGHT * pattern.owners.len().max(1) as f64;
        if entry.kind != ObjectKind::Global && entry.kind != ObjectKind::Section && home {
            let place = Place { policy: PolicyKind::Local, ..Place::default() };
            return Ok(Choice { place, remark: None, simplicity: Simplicity::Local, numbered: None });
        }
        match users.as_slice() {
            [only] => self.bound(*only, pattern),
            _ => {
                let why = numbered::choice(self, entry, pattern).err();
                let why = why.map(|why| format!(" and cannot be placed by number, because {why}")).unwrap_or_default();
                Ok(Choice::interleave(Some(format!(
                    "the instances are allocated by other threads than use them{why}, so their pages are spread; allocating in \
                     the using thread would be better"
                ))))
            }
        }
    }

    /// Rows of a matrix, each an allocation of its own: local where the user allocates them, else spread, because no
    /// rule can give the instances of one call site to nodes by their number.
    fn rows(&self, entry: &Entry, pattern: &Pattern) -> Result<Choice, String> {
        if !pattern.owners.is_empty() {
            return self.private(entry, pattern);
        }
        Ok(Choice::interleave(Some(
            "its rows are allocated one by one and shared, which no rule can follow yet, so their pages are spread; one \
             allocation for all rows could be placed by blocks"
                .into(),
        )))
    }

    fn bound(&self, rank: u32, pattern: &Pattern) -> Result<Choice, String> {
        if self.target.portable {
            return Err(format!(
                "{}, but another thread touches it first; which node is near depends on the machine: use `--nodes N`",
                pattern.evidence
            ));
        }
        let node = self.target.ids.get(self.node_of_seen(rank) as usize).copied().unwrap_or(0);
        let place = Place { policy: PolicyKind::Bind, nodes: Some(node.to_string()), ..Place::default() };
        let remark = Some(format!("thread {rank} runs on node {node}"));
        Ok(Choice { place, remark, simplicity: Simplicity::OneNode, numbered: None })
    }

    /// Slices of an object of few huge pages, cut to the page by giving those up. Not for block-cyclic objects:
    /// theirs are cut again and again, and the paper rounded them up.
    fn exact_slices(&self, entry: &Entry, pattern: &Pattern) -> Option<Choice> {
        let huge = page_size_in_use(entry.size, self.target.thp) > PAGE;
        let once = pattern.kind == PatternKind::Block && pattern.group.is_none();
        let choice = (huge && once).then(|| self.sliced(entry, pattern, PolicyKind::Block, Some(Huge::Split)))?;
        (choice.place.policy == PolicyKind::Block).then_some(Choice { simplicity: Simplicity::Split, ..choice })
    }

    /// Block and block-cyclic.
    fn sliced(&self, entry: &Entry, pattern: &Pattern, policy: PolicyKind, huge: Option<Huge>) -> Choice {
        let whole = match policy {
            PolicyKind::BlockCyclic => pattern.period.unwrap_or(entry.size),
            _ => entry.size,
        };
        let nodes = u64::from(self.target.nodes);
        if whole.div_ceil(nodes) < PAGE {
            let what = "a node's part of a period would be less than a page of 4 KiB, so pages are spread one by one";
            return Choice::interleave(Some(what.into()));
        }
        let page = page_size_of(&Place { huge, ..Place::default() }, entry.size, self.target.thp);
        let used = pattern.slices.last().map_or(whole, |s| s.end).max(1);
        let partly = policy == PolicyKind::Block && (used as f64) < USED_PART * whole as f64;
        let base = if partly { used } else { whole };
        let probe = Probe {
            slices: &pattern.slices,
            size: entry.size.min(if partly { used } else { u64::MAX }),
            whole,
            seen: self.ranks.len() as u32,
            threads: self.target.threads,
        };
        let Layout { order, block, local } = self.best_layout(&probe, base, page);
        // Not all nodes need take part: those without CPUs do not.
        let parts = order.len().max(1) as f64;
        let coarse =
            policy == PolicyKind::BlockCyclic && block as f64 > COARSE * (base as f64 / parts).max(PAGE as f64);
        let in_order = order.iter().copied().eq(0..self.target.nodes);
        if !coarse && local >= WORTH_BLOCKS && self.target.portable && !in_order {
            return Choice::interleave(Some(
                "which nodes its blocks should go to depends on the machine, because not all threads take part: use \
                 `--nodes N`; until then pages are spread"
                    .into(),
            ));
        }
        if !coarse && local < WORTH_BLOCKS {
            return Choice::interleave(Some(format!(
                "blocks would bring only {:.0} % of it to its users, because the parts do not follow the order in which \
                 threads fill the nodes, so pages are spread",
                100.0 * local
            )));
        }
        let remark = if coarse {
            format!("a node's part of {} is rounded up to huge pages", Size(base.div_ceil(nodes)))
        } else {
            format!("{:.0} % of it comes to the node of its user", 100.0 * local)
        };
        let remark =
            if huge == Some(Huge::Split) { format!("{remark}, at the price of its huge pages") } else { remark };
        let remark = if partly { format!("{remark}; only the first {used} bytes are used") } else { remark };
        let auto = self.target.portable && !partly;
        let place = Place {
            policy,
            block: Some(if auto { Block::Auto(Auto::Auto) } else { Block::Size(Size(block)) }),
            nodes: Some(if in_order || coarse { "all".into() } else { self.list(&order) }),
            huge,
            ..Place::default()
        };
        Choice { place, remark: Some(remark), simplicity: Simplicity::Pattern, numbered: None }
    }

    fn list(&self, order: &[u32]) -> String {
        let ids: Vec<String> =
            order.iter().filter_map(|i| self.target.ids.get(*i as usize)).map(u32::to_string).collect();
        ids.join(",")
    }

    /// The layout that brings most of the object to its users: over all nodes, or over those whose threads take part.
    /// Node lists name a node once, so an order that wants one twice is given up for the plain one.
    fn best_layout(&self, probe: &Probe<'_>, base: u64, page: u64) -> Layout {
        let mut used: Vec<u32> = probe.places().map(|(_, user)| self.node_of(user)).collect();
        used.sort_unstable();
        used.dedup();
        let plain = self.layout((0..self.target.nodes).collect(), probe, base, page);
        let mut best = plain;
        for count in [self.target.nodes, used.len() as u32] {
            let block = round_up(base.div_ceil(u64::from(count.max(1))), page);
            let wanted = probe.wanted(count, block, |t| self.node_of(t));
            let mut distinct = wanted.clone();
            distinct.sort_unstable();
            distinct.dedup();
            if wanted.is_empty() || distinct.len() != wanted.len() {
                continue;
            }
            let layout = Layout { local: probe.local(&wanted, block, |t| self.node_of(t)), order: wanted, block };
            // A per cent more is not worth a list that a reader has to understand.
            if layout.local > best.local + 0.01 {
                best = layout;
            }
        }
        best
    }

    fn layout(&self, order: Vec<u32>, probe: &Probe<'_>, base: u64, page: u64) -> Layout {
        let block = round_up(base.div_ceil(order.len().max(1) as u64), page);
        Layout { local: probe.local(&order, block, |t| self.node_of(t)), order, block }
    }
}

fn round_up(value: u64, unit: u64) -> u64 {
    value.div_ceil(unit).saturating_mul(unit)
}
