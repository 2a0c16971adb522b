//! The candidate placements of one object: those that its pattern suggests, and those that are priced for every object.
//!
//! [`super::choose`] prices them. Slices suggest blocks only when enough of the object would be on the node of the
//! thread that uses it, with threads on nodes as [`super::Target::home_of`] gives them.

use std::collections::HashMap;

use numamma_plan::plan::{PAGE, page_size_in_use, page_size_of};
use numamma_plan::policy::{Auto, Block, Huge, Place, PolicyKind, Size};

use super::binding;
use super::block_layout::{Layout, SlicedObject, first_planned};
use super::numbered;
use super::processes;
use super::scene::{Choice, Scene, Simplicity};
use crate::detect::limits::PRIVATE_SHARE;
use crate::detect::{Pattern, PatternKind, Rank};
use crate::profile::records::ObjectKind;
use crate::profile::summary::{Entry, duration};

/// Local share from which slices suggest a block distribution: half way between interleaved and perfectly local would
/// be 0.5 to 0.6 on two to eight nodes; below it, latency gains no longer outweigh the uneven load of the nodes.
pub(super) const WORTH_BLOCKS: f64 = 0.6;
/// Share of pages first touched by the thread that uses them from which first touch is a good placement.
const TOUCHED_RIGHT: f64 = 0.9;
/// Size of a block, rounded up to huge pages, over a node's part from which blocks no longer match the threads. The
/// NumaMMA paper still placed `cjac` of LU in such blocks (5 MiB / 8 = 640 KiB on pages of 2 MiB), which interleaves it
/// in large pieces.
const COARSE: f64 = 1.5;
/// Ratio of the largest to the smallest part of a node from which the parts are said to differ in size. Parts of whole
/// rows or pages are equal only nearly.
const UNEVEN: f64 = 1.25;
/// Largest number of single nodes that are priced; larger machines have too many to price all.
const MOST_SINGLE: usize = 16;
/// Part of the accesses that [`hot_pages`] covers.
const HOT_PART: f64 = 0.9;
/// Accesses from a node over those from the node with most, from which its threads count as users of an object: half.
/// Pages on nodes with fewer are remote for most of the accesses to them.
const USERS: f64 = 0.5;
/// A position at the end of a slice.
const ALMOST_ONE: f64 = 0.999;
/// Used part of an object below which blocks are computed from the used part.
const USED_PART: f64 = 0.9;

/// Share of the accesses that the allocating thread makes to instances it uses for a time from which nothing is placed:
/// as many as make an object private.
const BRIEF_SHARE: f64 = PRIVATE_SHARE;

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

/// Whether the pattern suggests nothing better than spreading.
fn first_is_spread(choices: &[Choice]) -> bool {
    choices.first().is_some_and(|c| c.simplicity == Simplicity::Spread)
}

/// Small objects that threads use in slices: each begins at block 0 of a rule that goes by blocks.
fn pool() -> Choice {
    Choice::interleave(Some(
        "it consists of objects smaller than a page, which no rule can place by blocks, so their pages are interleaved; \
         one allocation for all of them could be placed by blocks"
            .into(),
    ))
}

impl Scene<'_> {
    /// The placements to price for an object of this pattern, or the reason why none is needed.
    pub fn candidates(&self, entry: &Entry, pattern: &Pattern) -> Result<Vec<Choice>, String> {
        if let Some(why) = self.brief(entry) {
            return Err(why);
        }
        let first = match pattern.kind {
            PatternKind::Small | PatternKind::Cold => return Err(pattern.evidence.clone()),
            PatternKind::Unsure => return Err(pattern.evidence.clone()),
            PatternKind::Private => self.private(entry, pattern)?,
            PatternKind::Random | PatternKind::ReadShared | PatternKind::Irregular => self.spread(entry, pattern)?,
            // A caller passes the pattern of the whole run, of one phase or of one function, which are neither.
            PatternKind::Phased | PatternKind::Mixed => return Err(pattern.evidence.clone()),
            PatternKind::Block | PatternKind::BlockCyclic if entry.kind == ObjectKind::SmallHeap => pool(),
            // Rows are allocated one by one, so that a rule can only place whole instances, as for private objects.
            PatternKind::Block | PatternKind::BlockCyclic if pattern.group.is_some() => self.rows(entry, pattern)?,
            PatternKind::Block => self.sliced(entry, pattern, (PolicyKind::Block, WORTH_BLOCKS), None),
            PatternKind::BlockCyclic => self.sliced(entry, pattern, (PolicyKind::BlockCyclic, WORTH_BLOCKS), None),
        };
        let sharing = processes::sharing(&self.summary.threads, entry);
        if sharing > 1 {
            let remark = processes::no_blocks(sharing, pattern).map(|why| format!("{why}: it is interleaved"));
            return Ok(vec![Choice::interleave(remark)]);
        }
        let mut choices = vec![first];
        if entry.kind != ObjectKind::SmallHeap {
            choices.extend(self.exact_slices(entry, pattern));
            choices.extend(self.mapped_slices(entry, pattern));
            choices.extend(self.parts_of_irregular(entry, pattern));
        }
        // One thread allocates for the others. Where each user allocates its own, local placement is simpler.
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

    /// The placements to price for an object whose functions may disagree: those that suit all of them together, and
    /// those that suit one of them.
    pub fn candidates_by_code(&self, entry: &Entry, pattern: &Pattern) -> Result<Vec<Choice>, String> {
        let all = self.candidates(entry, pattern.overall());
        let mut of_functions: Vec<Choice> = Vec::new();
        for row in &pattern.by_code {
            for choice in self.candidates(entry, &row.pattern).unwrap_or_default() {
                // A block of `auto` would be computed from the pattern of the whole object.
                let computed = choice.place.policy == PolicyKind::BlockCyclic
                    && matches!(choice.place.block, Some(Block::Auto(_)))
                    && row.pattern.period != pattern.overall().period;
                if !computed && of_functions.iter().all(|c| c.place != choice.place) {
                    let said = choice.remark.map(|r| format!("as `{}` uses it: {r}", row.function));
                    of_functions.push(Choice { remark: said, ..choice });
                }
            }
        }
        if of_functions.is_empty() {
            return all;
        }
        let mut choices = all.unwrap_or_default();
        of_functions.retain(|f| choices.iter().all(|c| c.place != f.place));
        choices.append(&mut of_functions);
        Ok(choices)
    }

    /// Why nothing is placed when instances are used by the thread that allocates them, until they are freed, and that
    /// thread touches them first or they do not live long enough for a placement to pay.
    fn brief(&self, entry: &Entry) -> Option<String> {
        let turnover = self.summary.turnover(entry)?;
        let pays_after_ns = self.world.pay_back_ns(turnover.mean_size as u64);
        let is_own = |limit_ns| self.summary.own_freed_share(entry, limit_ns) >= BRIEF_SHARE;
        let because = if is_own(pays_after_ns) {
            "too short for a placement to pay"
        } else if is_own(f64::INFINITY) && entry.own_touches_share() >= TOUCHED_RIGHT {
            "on memory that this thread touched first, so first touch already places it"
        } else {
            return None;
        };
        Some(format!(
            "each of {} is used by the thread that allocates it and freed after about {}, {because}",
            turnover.count(),
            duration(turnover.median_ns)
        ))
    }

    /// Placements that are priced whatever the pattern is.
    fn unspecific(&self, entry: &Entry) -> Vec<Choice> {
        let mut choices = vec![Choice::interleave(None)];
        let is_allocated =
            entry.kind != ObjectKind::Global && entry.kind != ObjectKind::Section && entry.site.is_some();
        if is_allocated && binding::binds_allocators(self, entry) {
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
        if entry.kind != ObjectKind::SmallHeap {
            let naive = chosen(PolicyKind::Block, "all".into());
            let place = Place { block: Some(Block::Auto(Auto::Auto)), ..naive.place };
            choices.push(Choice { place, ..naive });
        }
        let id = |n: usize| self.world.model().nodes[n].id;
        let near: Vec<u32> = self.world.homes().into_iter().map(id).collect();
        // Threads that are not bound run on any node with CPUs.
        let of_cpus = self.world.homes_of_cpus().len();
        let known = |nodes: &[u32]| nodes.len() >= of_cpus || binding::keeps_workers(self);
        let is_some = |nodes: &[u32]| nodes.len() > 1 && nodes.len() < self.target.ids.len() && known(nodes);
        if is_some(&near) {
            let nodes = numamma_plan::nodes::format(&near);
            let remark = (near.len() < of_cpus).then(|| format!("the workers, which are bound, run on nodes {nodes}"));
            choices.push(Choice { remark, ..chosen(PolicyKind::Interleave, nodes) });
        }
        let own: Vec<u32> = self.homes_of_users(entry).into_iter().map(id).collect();
        if is_some(&own) && own != near {
            let nodes = numamma_plan::nodes::format(&own);
            let remark = Some(format!("the threads that use it run on nodes {nodes}"));
            choices.push(Choice { remark, ..chosen(PolicyKind::Interleave, nodes) });
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

    /// Nodes with memory, of the model, that are the nearest of the workers that use an entry. Those with less than
    /// [`USERS`] of the accesses of the node with most are left out.
    fn homes_of_users(&self, entry: &Entry) -> Vec<usize> {
        let mut accesses = vec![0.0; self.world.nodes()];
        for cell in &entry.cells {
            let Some(rank) = self.roles.rank(cell.thread) else { continue };
            let [first, last] = [0.0, ALMOST_ONE].map(|part| self.world.teams.successor(rank, part));
            let successors = first.rank..=last.rank;
            let each = cell.counters.accesses() as f64 / successors.clone().count().max(1) as f64;
            for rank in successors {
                accesses[self.world.home(self.world.node_of(Rank { rank, ..first }))] += each;
            }
        }
        let most = accesses.iter().copied().fold(0.0, f64::max);
        self.world.memory.iter().copied().filter(|n| most > 0.0 && accesses[*n] >= USERS * most).collect()
    }

    /// Random: interleave, unless nearly all accesses go to fewer pages than there are nodes.
    fn spread(&self, entry: &Entry, pattern: &Pattern) -> Result<Choice, String> {
        let hot = hot_pages(entry);
        if hot < u64::from(self.target.nodes) {
            return Err(format!(
                "{}; {:.0} % of its accesses go to {hot} page{}, too few to spread over the nodes",
                pattern.evidence,
                100.0 * HOT_PART,
                if hot == 1 { "" } else { "s" }
            ));
        }
        Ok(Choice::interleave(None))
    }

    /// Whether the owners of a private object touched their pages first.
    pub fn touched_by_user(&self, entry: &Entry, pattern: &Pattern) -> bool {
        let owner: HashMap<u32, u32> = pattern.owners.iter().map(|o| (o.instance, o.thread)).collect();
        let seen = self.roles.team_of(entry);
        let (mut pages, mut right) = (0u64, 0u64);
        for run in &entry.touches {
            let Some(rank) = owner.get(&run.instance) else { continue };
            pages += u64::from(run.pages);
            right += if self.roles.number(run.thread, seen) == Some(*rank) { u64::from(run.pages) } else { 0 };
        }
        pages > 0 && right as f64 >= TOUCHED_RIGHT * pages as f64
    }

    /// Private: no rule where first touch already places it, else the node of the only user.
    fn private(&self, entry: &Entry, pattern: &Pattern) -> Result<Choice, String> {
        let handed_on = self.roles.user_kind_of_others(entry).is_some();
        let together = !handed_on || binding::keeps_workers(self);
        if self.touched_by_user(entry, pattern) && together {
            let by = match handed_on {
                true => {
                    "a thread of another kind with the number of the one that uses it, so first touch places it while a \
                     policy binds both to one node"
                }
                false => "the thread that uses it, so first touch already places it",
            };
            return Err(format!("{}; it is first touched by {by}", pattern.evidence));
        }
        let mut users: Vec<u32> = pattern.owners.iter().map(|o| o.thread).collect();
        users.sort_unstable();
        users.dedup();
        let seen = self.roles.team_of(entry);
        let allocated_by_user = pattern.owners.iter().filter(|o| {
            let thread = entry.seen.get(o.instance as usize).and_then(|i| i.thread);
            thread.and_then(|t| self.roles.number(t, seen)) == Some(o.thread)
        });
        let home = together && allocated_by_user.count() as f64 >= TOUCHED_RIGHT * pattern.owners.len().max(1) as f64;
        if entry.kind != ObjectKind::Global && entry.kind != ObjectKind::Section && home {
            let place = Place { policy: PolicyKind::Local, ..Place::default() };
            let remark = Some("each thread allocates what it uses".into());
            return Ok(Choice { place, remark, simplicity: Simplicity::Local, numbered: None });
        }
        match users.as_slice() {
            [only] => self.bound(*only, seen, pattern),
            _ => {
                let why = numbered::choice(self, entry, pattern).err();
                let why = why.map(|why| format!(" and cannot be placed by number, because {why}")).unwrap_or_default();
                Ok(Choice::interleave(Some(format!(
                    "the instances are allocated by other threads than those that use them{why}, so their pages are \
                     interleaved; allocation in the thread that uses an instance would be better"
                ))))
            }
        }
    }

    /// Rows of a matrix, each an allocation of its own: as private ones where each row has one user, else interleaved,
    /// because a rule cannot divide the instances of one call site by pages.
    fn rows(&self, entry: &Entry, pattern: &Pattern) -> Result<Choice, String> {
        if !pattern.owners.is_empty() {
            return self.private(entry, pattern);
        }
        Ok(Choice::interleave(Some(
            "its rows are allocated one by one and shared, which no rule can describe yet, so their pages are \
             interleaved; one allocation for all rows could be placed by blocks"
                .into(),
        )))
    }

    fn bound(&self, rank: u32, seen: u32, pattern: &Pattern) -> Result<Choice, String> {
        if self.target.portable {
            return Err(format!(
                "{}, but another thread touches it first; the nearest node depends on the machine: use `--nodes N`",
                pattern.evidence
            ));
        }
        let node = self.target.ids.get(self.node_of_seen(rank, seen) as usize).copied().unwrap_or(0);
        let place = Place { policy: PolicyKind::Bind, nodes: Some(node.to_string()), ..Place::default() };
        let remark = Some(format!("worker {rank} runs on node {node}"));
        Ok(Choice { place, remark, simplicity: Simplicity::OneNode, numbered: None })
    }

    /// Blocks at the granularity of base pages, at the price of the object's huge pages. The NumaMMA paper rounds the
    /// blocks of short periods up to huge pages instead, which puts most of each period on other nodes than its users.
    fn exact_slices(&self, entry: &Entry, pattern: &Pattern) -> Option<Choice> {
        let policy = match pattern.kind {
            PatternKind::Block => PolicyKind::Block,
            PatternKind::BlockCyclic => PolicyKind::BlockCyclic,
            _ => return None,
        };
        let huge = page_size_in_use(entry.size, self.target.thp) > PAGE;
        let choice = (huge && pattern.group.is_none())
            .then(|| self.sliced(entry, pattern, (policy, WORTH_BLOCKS), Some(Huge::Split)))?;
        (choice.place.policy == policy).then_some(Choice { simplicity: Simplicity::Split, ..choice })
    }

    /// The slices of an object, its bytes that are used, and the bytes of a period (all of it for plain blocks).
    pub fn slices<'p>(&self, entry: &Entry, pattern: &'p Pattern, policy: PolicyKind) -> (SlicedObject<'p>, u64, u64) {
        let whole = match policy {
            PolicyKind::BlockCyclic => pattern.period.unwrap_or(entry.size),
            _ => entry.size,
        };
        let used = pattern.slices.last().map_or(whole, |s| s.end).max(1);
        let partly = policy == PolicyKind::Block && (used as f64) < USED_PART * whole as f64;
        let seen = self.roles.team_of(entry);
        let sliced = SlicedObject {
            slices: &pattern.slices,
            size: entry.size.min(if partly { used } else { u64::MAX }),
            whole,
            repeats: policy == PolicyKind::BlockCyclic,
            first: first_planned(entry, policy),
            seen,
            threads: self.world.teams.on_target(seen),
        };
        (sliced, if partly { used } else { whole }, whole)
    }

    /// Blocks for an irregular object, and those of the period that describes most of it, whatever share they make
    /// local: their prices say whether they are worth it. Tiles of a matrix lie in few of the blocks each.
    fn parts_of_irregular(&self, entry: &Entry, pattern: &Pattern) -> Vec<Choice> {
        if pattern.kind != PatternKind::Irregular || pattern.group.is_some() {
            return Vec::new();
        }
        let periodic = pattern.nearest.as_deref().map(|nearest| (nearest, PolicyKind::BlockCyclic));
        let tried = [(pattern, PolicyKind::Block)].into_iter().chain(periodic);
        let choices = tried.map(|(by, policy)| (policy, self.sliced(entry, by, (policy, 0.0), None)));
        let placed = choices.filter(|(policy, choice)| choice.place.policy == *policy);
        // They do not follow from the pattern. Where they are no cheaper, the pages that are used at one time may lie
        // on one node.
        placed.map(|(_, choice)| Choice { simplicity: Simplicity::Chosen, ..choice }).collect()
    }

    /// Block and block-cyclic, from the local share `worth` on.
    fn sliced(
        &self,
        entry: &Entry,
        pattern: &Pattern,
        (policy, worth): (PolicyKind, f64),
        huge: Option<Huge>,
    ) -> Choice {
        let page = page_size_of(&Place { huge, ..Place::default() }, entry.size, self.target.thp);
        let (sliced, base, whole) = self.slices(entry, pattern, policy);
        let (used, partly) = (base, policy == PolicyKind::Block && base < whole);
        let users = self.nodes_of_users(&sliced);
        if let ([only], false) = (users.as_slice(), self.target.portable) {
            let node = self.target.ids.get(*only as usize).copied().unwrap_or(0);
            let place = Place { policy: PolicyKind::Bind, nodes: Some(node.to_string()), ..Place::default() };
            let remark = Some(format!("all threads that use it run on node {node}"));
            return Choice { place, remark, simplicity: Simplicity::OneNode, numbered: None };
        }
        let nodes = u64::from(self.target.nodes);
        let parts = if self.target.portable { nodes } else { users.len().max(1) as u64 };
        if whole.div_ceil(parts) < PAGE {
            let what = "a node's part of a period would be less than a page of 4 KiB, so single pages are interleaved";
            return Choice::interleave(Some(what.into()));
        }
        let Layout { order, block, local } = self.best_layout(&sliced, base, page);
        // Nodes without CPUs do not take part.
        let parts = order.len().max(1) as f64;
        let coarse =
            policy == PolicyKind::BlockCyclic && block as f64 > COARSE * (base as f64 / parts).max(PAGE as f64);
        let in_order = order.iter().copied().eq(0..self.target.nodes);
        if !coarse && local >= worth && self.target.portable && !in_order {
            return Choice::interleave(Some(
                "the nodes of its blocks depend on the machine, because not all threads take part: use `--nodes N`; \
                 this portable policy interleaves its pages"
                    .into(),
            ));
        }
        if !coarse && local < worth {
            let in_turn = pattern.slices.is_sorted_by_key(|slice| slice.thread);
            let because = if !in_turn {
                "its slices do not follow the order in which threads fill the nodes"
            } else if self.is_uneven(&sliced) {
                "the nodes' parts of it differ in size"
            } else {
                "the edges of its slices are too few pages apart"
            };
            return Choice::interleave(Some(format!(
                "blocks would make only {:.0} % of it local, because {because}, so its pages are interleaved",
                100.0 * local
            )));
        }
        let rounded = coarse
            .then(|| format!("a node's part of {} is rounded up to huge pages", Size(base.div_ceil(nodes))))
            .or_else(|| self.laid_out(sliced.seen));
        let split = (huge == Some(Huge::Split)).then(|| "at the price of its huge pages".to_owned());
        let partly_used = partly.then(|| format!("only the first {used} bytes are used"));
        let remarks: Vec<String> = [rounded, split, partly_used].into_iter().flatten().collect();
        // Of instances that differ in size, each has blocks of its own.
        let sizes_differ = policy == PolicyKind::Block && entry.seen.windows(2).any(|two| two[0].size != two[1].size);
        let auto = (self.target.portable || sizes_differ) && !partly;
        let place = Place {
            policy,
            block: Some(if auto { Block::Auto(Auto::Auto) } else { Block::Size(Size(block)) }),
            nodes: Some(if in_order || coarse { "all".into() } else { self.list(&order) }),
            huge,
            ..Place::default()
        };
        let remark = (!remarks.is_empty()).then(|| remarks.join("; "));
        Choice { place, remark, simplicity: Simplicity::Pattern, numbered: None }
    }

    fn list(&self, order: &[u32]) -> String {
        let ids: Vec<String> =
            order.iter().filter_map(|i| self.target.ids.get(*i as usize)).map(u32::to_string).collect();
        ids.join(",")
    }

    /// Whether the nodes' parts of an object differ by more than [`UNEVEN`].
    fn is_uneven(&self, sliced: &SlicedObject<'_>) -> bool {
        let mut parts: HashMap<u32, u64> = HashMap::new();
        sliced.offsets().for_each(|(_, user)| *parts.entry(self.node_of(user, sliced.threads)).or_default() += 1);
        let (least, most) = (parts.values().min(), parts.values().max());
        least.zip(most).is_some_and(|(least, most)| *most as f64 > UNEVEN * *least as f64)
    }

    /// The nodes on which the users of the slices run, ascending, as indices into the target's list.
    fn nodes_of_users(&self, sliced: &SlicedObject<'_>) -> Vec<u32> {
        let mut used: Vec<u32> = sliced.offsets().map(|(_, user)| self.node_of(user, sliced.threads)).collect();
        used.sort_unstable();
        used.dedup();
        used
    }

    /// The block layout with the largest local share: over all nodes, or over those whose threads take part. A node
    /// list names each node once, so orders that need a node twice are not considered.
    pub fn best_layout(&self, sliced: &SlicedObject<'_>, base: u64, page: u64) -> Layout {
        let used = self.nodes_of_users(sliced);
        let mut best = self.layout((0..self.target.nodes).collect(), sliced, base, page);
        for count in [self.target.nodes, used.len() as u32] {
            let block = sliced.block(base, count.into(), page);
            let wanted = sliced.preferred_nodes(count, block, |t| self.node_of(t, sliced.threads));
            let mut distinct = wanted.clone();
            distinct.sort_unstable();
            distinct.dedup();
            if wanted.is_empty() || distinct.len() != wanted.len() {
                continue;
            }
            let layout = Layout {
                local: sliced.local_share(&wanted, block, |t| self.node_of(t, sliced.threads)),
                order: wanted,
                block,
            };
            // One per cent more does not justify a node list in place of `all`.
            if layout.local > best.local + 0.01 {
                best = layout;
            }
        }
        best
    }

    fn layout(&self, order: Vec<u32>, sliced: &SlicedObject<'_>, base: u64, page: u64) -> Layout {
        let block = sliced.block(base, order.len() as u64, page);
        Layout { local: sliced.local_share(&order, block, |t| self.node_of(t, sliced.threads)), order, block }
    }
}
