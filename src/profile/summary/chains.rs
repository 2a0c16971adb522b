//! Arrays that realloc made larger or smaller: one object of the program, of which the profile has one for each size.
//!
//! The stages of such an array that were allocated at one call site are one instance. It lives from the first to the
//! last, has the address of the last and the size of the largest, and all accesses count from the first byte of their
//! stage.

use rustc_hash::FxHashMap;

use super::tables::Tables;
use crate::profile::PAGE;
use crate::profile::records::{Instance, Object, ObjectId, ObjectKind, Resized};

/// The chains of a profile.
#[derive(Debug, Default)]
pub(super) struct Chains {
    /// Of every stage but the last of its chain, where it belongs.
    stages: FxHashMap<ObjectId, Stage>,
    /// Of every last stage with others before it, what they are together, and the calls of
    /// realloc between them.
    whole: FxHashMap<ObjectId, (Instance, u64)>,
}

/// A stage that realloc ended.
#[derive(Debug, Clone, Copy)]
struct Stage {
    last: ObjectId,
    /// Number of stages behind it; none where a later one is a copy, which has its own first touches.
    pages_behind: Option<u32>,
}

impl Chains {
    /// `same_site`: whether two objects were allocated at the same place of the program.
    pub fn find(tables: &Tables, mut same_site: impl FnMut(&Object, &Object) -> bool) -> Chains {
        let mut links: Vec<Resized> = tables.before.values().copied().collect();
        // Ids ascend in time, so the stage behind another one is known before it. A damaged file may say otherwise.
        links.sort_unstable_by_key(|r| (std::cmp::Reverse(r.object), r.before));
        let mut chains = Chains::default();
        for Resized { object, before, calls } in links {
            let both = tables.objects.get(&object).zip(tables.objects.get(&before));
            let Some((after, earlier)) = both.filter(|_| before < object) else { continue };
            let alike = after.kind == ObjectKind::Heap && earlier.kind == ObjectKind::Heap && after.pid == earlier.pid;
            if alike && !chains.stages.contains_key(&before) && same_site(after, earlier) {
                chains.add(after, earlier, calls);
            }
        }
        chains
    }

    fn add(&mut self, after: &Object, earlier: &Object, calls: u64) {
        let behind = self.stages.get(&after.id).map_or(Some(0), |stage| stage.pages_behind);
        let pages_behind = behind.filter(|_| keeps_pages(&earlier.instance, &after.instance)).map(|n| n + 1);
        let stage = Stage { last: self.last(after.id), pages_behind };
        self.stages.insert(earlier.id, stage);
        let (whole, all_calls) = self.whole.entry(stage.last).or_insert((after.instance, 0));
        *all_calls = all_calls.saturating_add(calls);
        let Instance { size, born_ns, thread, .. } = earlier.instance;
        *whole = Instance { size: whole.size.max(size), born_ns: whole.born_ns.min(born_ns), thread, ..*whole };
    }

    /// The last stage of the object's chain, or the object itself.
    pub fn last(&self, id: ObjectId) -> ObjectId {
        self.stages.get(&id).map_or(id, |stage| stage.last)
    }

    /// What an object with others before it is together with them.
    pub fn whole(&self, id: ObjectId) -> Option<Instance> {
        self.whole.get(&id).map(|(instance, _)| *instance)
    }

    /// Calls of realloc that made an object of those before it.
    pub fn calls(&self, id: ObjectId) -> u64 {
        self.whole.get(&id).map_or(0, |(_, calls)| *calls)
    }

    /// Number of stages that have the pages of this one; none if they have not.
    pub fn pages_behind(&self, id: ObjectId) -> Option<u32> {
        self.stages.get(&id).map_or(Some(0), |stage| stage.pages_behind)
    }
}

/// Where in its first page a block begins that glibc has mapped: behind the two words of its header (`struct
/// malloc_chunk` of malloc.c).
const MAPPED_HEADER: u64 = 16;

/// Whether the pages stay or are moved: in place, and by the mremap of glibc, which moves a mapped block to another
/// mapping. All else is copied.
fn keeps_pages(before: &Instance, after: &Instance) -> bool {
    let mapped = |i: &Instance| i.base % PAGE == MAPPED_HEADER;
    before.base == after.base || mapped(before) && mapped(after)
}
