//! The objects of a long recording. Those that ended without a sample leave their number only. Of those that ended and
//! were sampled so many stay; the accesses to further ones count for one that is like them.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::profile::PAGE;
use crate::profile::records::{Instance, Like, ModuleId, Object, ObjectId, ObjectKind, Resized, SiteId, ThreadId};

/// Ended objects without a sample that are kept of those which are alike. They show that objects of a call site lived
/// side by side, and with which sizes.
const KEPT_ALIKE: u32 = 16;
/// Ended objects with samples that are kept of those which are alike, were allocated by one thread and used most by one
/// thread. More than a detector needs to see whose they are.
const KEPT_SAMPLED: usize = 64;

/// Objects with the same are alike: process, kind, call site or name, and size to a factor of two.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Likeness {
    pid: u32,
    kind: ObjectKind,
    site: Option<SiteId>,
    module: Option<ModuleId>,
    name: String,
    size: u32,
}

impl Likeness {
    fn of(object: &Object) -> Likeness {
        Likeness {
            pid: object.pid,
            kind: object.kind,
            site: object.site,
            module: object.module,
            name: if object.site.is_some() { String::new() } else { object.name.clone() },
            size: object.instance.size.max(1).ilog2(),
        }
    }
}

/// All objects of a file.
#[derive(Debug, Default)]
pub(super) struct Objects {
    all: FxHashMap<ObjectId, Object>,
    /// How many more were like this one.
    more: FxHashMap<ObjectId, u64>,
    /// What realloc made others of.
    before: FxHashMap<ObjectId, Resized>,
}

impl Objects {
    /// Adds or replaces objects.
    pub fn put(&mut self, list: Vec<Object>) {
        self.all.extend(list.into_iter().map(|o| (o.id, o)));
    }

    /// Adds what an earlier compaction left out.
    pub fn put_more(&mut self, list: Vec<Like>) {
        list.into_iter().for_each(|like| *self.more.entry(like.object).or_default() += like.more);
    }

    /// Adds what realloc made of other objects.
    pub fn put_resized(&mut self, list: Vec<Resized>) {
        self.before.extend(list.into_iter().map(|r| (r.object, r)));
    }

    /// The objects that stay, ascending, how many others were like them, and where the accesses of those that were
    /// sampled go. `users`: of each object with accesses the thread that has most of them.
    pub fn left(mut self, users: &FxHashMap<ObjectId, ThreadId>) -> Left {
        let mut objects: Vec<Object> = self.all.into_values().collect();
        objects.sort_unstable_by_key(|o| o.id);
        // The first of those that are alike, and how many of them are kept.
        let mut alike: FxHashMap<Likeness, (ObjectId, u32)> = FxHashMap::default();
        let mut sampled: FxHashMap<(Likeness, Option<ThreadId>, ThreadId), Sampled> = FxHashMap::default();
        let mut moved = FxHashMap::default();
        let resized: FxHashSet<ObjectId> = self.before.values().map(|r| r.before).collect();
        objects.retain(|o| {
            let variable = matches!(o.kind, ObjectKind::Global | ObjectKind::Section);
            if variable || o.instance.died_ns.is_none() {
                return true;
            }
            let like = match users.get(&o.id) {
                Some(user) => {
                    let of_user = sampled.entry((Likeness::of(o), o.instance.thread, *user)).or_default();
                    let Some(to) = of_user.other(o) else { return true };
                    moved.insert(o.id, Moved { to: to.0, from: o.instance.base, base: to.1.base, size: to.1.size });
                    to.0
                }
                None => {
                    let (first, kept) = alike.entry(Likeness::of(o)).or_insert((o.id, 0));
                    *kept += 1;
                    if *kept <= KEPT_ALIKE {
                        return true;
                    }
                    *first
                }
            };
            let own = self.more.remove(&o.id).unwrap_or(0);
            // What realloc made something else of is no further object.
            let alone = u64::from(!resized.contains(&o.id));
            *self.more.entry(like).or_default() += alone + own;
            false
        });
        let mut more: Vec<Like> = self.more.into_iter().map(|(object, more)| Like { object, more }).collect();
        more.sort_unstable_by_key(|like| like.object);
        let resized = links(&self.before, &objects);
        Left { objects, more, resized, moved }
    }
}

/// What realloc made of what, where objects in between do not stay. Ids ascend in time, but in a damaged file.
fn links(before: &FxHashMap<ObjectId, Resized>, objects: &[Object]) -> Vec<Resized> {
    let kept: FxHashSet<ObjectId> = objects.iter().map(|o| o.id).collect();
    let earlier = |id: ObjectId| before.get(&id).copied().filter(|r| r.before < id);
    let further = |r: &Resized| {
        earlier(r.before).map(|e| Resized { object: r.object, calls: r.calls.saturating_add(e.calls), ..e })
    };
    let link = |o: &Object| std::iter::successors(earlier(o.id), further).find(|r| kept.contains(&r.before));
    objects.iter().filter_map(link).collect()
}

/// What [`Objects::left`] finds.
pub(super) struct Left {
    pub objects: Vec<Object>,
    pub more: Vec<Like>,
    pub resized: Vec<Resized>,
    /// Objects that are not kept although they have accesses.
    pub moved: FxHashMap<ObjectId, Moved>,
}

impl Left {
    /// The ids of the objects that stay.
    pub fn kept(&self) -> FxHashSet<ObjectId> {
        self.objects.iter().map(|o| o.id).collect()
    }
}

/// Where the accesses to an object go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moved {
    pub to: ObjectId,
    from: u64,
    base: u64,
    size: u64,
}

impl Moved {
    /// The address in the other object: the same page of it, if it is large enough.
    pub fn address(&self, addr: u64) -> u64 {
        let page = (addr / PAGE).saturating_sub(self.from / PAGE);
        let last = (self.base.saturating_add(self.size.max(1) - 1) / PAGE).saturating_sub(self.base / PAGE);
        ((self.base / PAGE + page.min(last)) * PAGE).max(self.base)
    }
}

/// The kept ones of objects that are alike.
#[derive(Default)]
struct Sampled {
    kept: Vec<(ObjectId, Instance)>,
    /// Those that were not kept so far.
    others: usize,
}

impl Sampled {
    /// None if the object is kept, else one of those kept, in turn.
    fn other(&mut self, object: &Object) -> Option<(ObjectId, Instance)> {
        if self.kept.len() < KEPT_SAMPLED {
            self.kept.push((object.id, object.instance));
            return None;
        }
        self.others += 1;
        self.kept.get(self.others % KEPT_SAMPLED).copied()
    }
}
