//! Cache lines that threads share, with the names of their objects.

use rustc_hash::FxHashMap;

use super::entries::Layout;
use super::types::LineOfObject;
use crate::profile::records::{Instance, Object, ObjectId, ObjectKind, SharedLine};

/// The lines whose objects are in the file, those with most invalidations first. `layout` has the final names.
pub(super) fn named(
    lines: &mut Vec<SharedLine>,
    objects: &FxHashMap<ObjectId, Object>,
    layout: &Layout,
) -> Vec<LineOfObject> {
    let with_name = |mut line: SharedLine| {
        let place = layout.places.get(&line.object)?;
        let entry = layout.entries.get(place.entry as usize)?;
        let object = entry.part.as_ref().map_or_else(|| entry.name.clone(), |part| part.parent.clone());
        let Instance { base, size, .. } = objects.get(&line.object)?.instance;
        let is_one = entry.kind != ObjectKind::SmallHeap;
        line.words.retain(|word| word.offset < 64);
        Some(LineOfObject { object, base: is_one.then_some(base), size: if is_one { size } else { 0 }, line })
    };
    let mut out: Vec<LineOfObject> = lines.drain(..).filter_map(with_name).collect();
    out.sort_by_key(|of| std::cmp::Reverse(of.line.other_words.saturating_add(of.line.same_word)));
    out
}
