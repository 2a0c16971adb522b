//! Divides the objects of one call site by size, where objects of very different sizes exist side by side: a function
//! that allocates a table and a matrix at one line makes two objects, a buffer that grows is one.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::wrappers::Life;
use crate::profile::records::{Frame, Object, ObjectKind};

/// Neighbouring sizes of one class differ by less than this factor. Containers grow by factors of up to 2, of which
/// samples may miss a step.
const GAP: u64 = 8;
/// Objects of one call site that are compared; the sizes of further ones decide nothing.
const MAX_COMPARED: usize = 1024;

/// The classes of all call sites.
#[derive(Debug, Default)]
pub(super) struct SizeClasses {
    lives: FxHashMap<(ObjectKind, Rc<[Frame]>), Vec<Life>>,
    /// First size of every class but the lowest, ascending.
    bounds: FxHashMap<(ObjectKind, Rc<[Frame]>), Vec<u64>>,
}

impl SizeClasses {
    /// Takes note of an object with these naming frames.
    pub fn add(&mut self, object: &Object, frames: &Rc<[Frame]>) {
        if !matches!(object.kind, ObjectKind::Heap | ObjectKind::Mapping) {
            return;
        }
        let i = &object.instance;
        let list = self.lives.entry((object.kind, frames.clone())).or_default();
        if list.len() < MAX_COMPARED {
            list.push(Life { size: i.size, born_ns: i.born_ns, died_ns: i.died_ns.unwrap_or(u64::MAX) });
        }
    }

    /// Finds the classes, when all objects are known.
    pub fn divide(&mut self) {
        for (key, mut list) in std::mem::take(&mut self.lives) {
            list.sort_unstable_by_key(|l| (l.size, l.born_ns));
            let mut bounds: Vec<u64> = Vec::new();
            let mut first = 0;
            for i in 1..list.len() {
                if list[i].size < list[i - 1].size.saturating_mul(GAP) {
                    continue;
                }
                let next = (i + 1..list.len()).find(|&k| list[k].size >= list[k - 1].size.saturating_mul(GAP));
                let (below, above) = (&list[first..i], &list[i..next.unwrap_or(list.len())]);
                if below.iter().any(|a| above.iter().any(|b| a.overlaps(b))) {
                    bounds.push(list[i].size);
                    first = i;
                }
            }
            if !bounds.is_empty() {
                self.bounds.insert(key, bounds);
            }
        }
    }

    /// The class of an object, from 0.
    pub fn of(&self, object: &Object, frames: &Rc<[Frame]>) -> Option<u32> {
        let bounds = self.bounds.get(&(object.kind, frames.clone()))?;
        Some(bounds.partition_point(|first| *first <= object.instance.size) as u32)
    }

    /// Whether the objects with these naming frames are of several classes.
    pub fn several(&self, kind: ObjectKind, frames: &Rc<[Frame]>) -> bool {
        self.bounds.contains_key(&(kind, frames.clone()))
    }
}
