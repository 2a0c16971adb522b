//! Objects with too few samples for a verdict of their own, judged together: those that one function allocates in one
//! size, such as the arrays that a template or a loop over fields makes. One of them says little, sixty say what they
//! all are.

use std::collections::HashMap;
use std::ops::Range;

use super::pattern::{Owner, Pattern, PatternKind};
use super::roles::Roles;
use super::view::{ObjectView, PageAccess, Weight, view_with};
use crate::profile::records::ObjectKind;
use crate::profile::summary::{AccessFilter, Entry, Summary, outermost};

/// What objects that are judged together have in common.
#[derive(PartialEq, Eq, Hash)]
struct Shape {
    /// The function that allocates them: of the frame that names the object, the outermost, as inlined functions have
    /// no frame of their own.
    function: String,
    pages: u64,
    threads: u32,
}

/// Replaces the patterns of those entries about which nothing is known alone by that of all entries of the same shape,
/// where it says the same of each of them. `classify` judges a view.
pub(super) fn judge(
    summary: &Summary,
    roles: &Roles,
    filter: AccessFilter,
    classify: impl Fn(&ObjectView) -> Pattern,
    patterns: &mut [Pattern],
) {
    let mut groups: HashMap<Shape, Vec<usize>> = HashMap::new();
    for (index, entry) in summary.entries.iter().enumerate() {
        if patterns[index].kind == PatternKind::Unsure
            && let Some(shape) = shape(summary, roles, entry)
        {
            groups.entry(shape).or_default().push(index);
        }
    }
    for group in groups.into_values().filter(|group| group.len() > 1) {
        let weight = Weight { share: 0.0, hot: true };
        let views = group.iter().map(|&i| view_with(&summary.entries[i], summary, roles, weight, filter));
        let mut firsts = vec![0];
        let pooled = views.reduce(|all, more| {
            firsts.push(all.instances);
            join(all, more)
        });
        let Some(together) = pooled.as_ref().map(&classify) else { continue };
        for (index, first) in group.iter().zip(firsts) {
            let instances = u32::try_from(summary.entries[*index].instances).unwrap_or(u32::MAX);
            if let Some(pattern) = of_one(&together, first..first.saturating_add(instances)) {
                let others = group.len() - 1;
                let evidence = format!("judged with {others} others of its function and size: {}", pattern.evidence);
                patterns[*index] = Pattern { evidence, ..pattern };
            }
        }
    }
}

/// What a pattern of several objects says of the one with these instances: slices, and that there are none, hold for
/// each; owners are those of its own instances.
fn of_one(together: &Pattern, instances: Range<u32>) -> Option<Pattern> {
    match together.kind {
        PatternKind::Block | PatternKind::BlockCyclic | PatternKind::Random | PatternKind::ReadShared => {
            Some(together.clone())
        }
        PatternKind::Private => {
            let own = together.owners.iter().filter(|owner| instances.contains(&owner.instance));
            let owners: Vec<Owner> =
                own.map(|owner| Owner { instance: owner.instance - instances.start, ..*owner }).collect();
            (!owners.is_empty()).then(|| Pattern { owners, ..together.clone() })
        }
        _ => None,
    }
}

fn shape(summary: &Summary, roles: &Roles, entry: &Entry) -> Option<Shape> {
    let site = entry.site.as_ref().filter(|_| entry.kind == ObjectKind::Heap)?;
    let frame = site.frames.get(summary.user_frame(site))?;
    let function = outermost(summary.symbols.get(frame)?)?.function.clone()?;
    let pages = entry.size.div_ceil(summary.header.page_size.max(1));
    Some(Shape { function, pages, threads: roles.team_of(entry) })
}

/// Both views as instances of one object.
fn join(mut all: ObjectView, more: ObjectView) -> ObjectView {
    let moved =
        more.accesses.into_iter().map(|a| PageAccess { instance: a.instance.saturating_add(all.instances), ..a });
    all.accesses.extend(moved);
    all.instances = all.instances.saturating_add(more.instances);
    all.size = all.size.max(more.size);
    // Different objects are not rows of one, and each has too few accesses for a verdict by function.
    all.rows.clear();
    all.by_code.clear();
    all
}
