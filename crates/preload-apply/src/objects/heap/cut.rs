//! Makes a heap object smaller: it stays where it is and loses the pages at its end.

use numamma_hook::{errno, sandbox};
use numamma_kernel::sys::PAGE;

use super::{colour, growth};
use crate::objects::heap_table::{self, NO_RULE};
use crate::objects::object::Object;
use crate::objects::released;
use crate::phases::exclusion;
use crate::place::Part;
use crate::rules::state::State;

/// Makes `old` smaller, to `size` bytes. `None` when it stays as it is.
pub fn shrink(state: &'static State, old: &Object, size: usize) -> Option<()> {
    let history = heap_table::history(old.base);
    let object = growth::take_idle(old)?;
    let pages = colour::pages_of(size, object.colour);
    let Some(gone) = object.pages.checked_sub(pages).filter(|gone| *gone > 0) else {
        growth::put_back(state, &object, history);
        return None;
    };
    let tail = Part { first: pages, pages: gone };
    if state.reports() {
        let _errno = errno::Saved::now();
        object.examine(state, tail, false);
    }
    let next = without(state, &object, size, tail);
    growth::put_back(state, &next, heap_table::CUT);
    Some(())
}

/// `object` without its `tail`, which is unmapped as when an object is freed.
fn without(state: &'static State, object: &Object, size: usize, tail: Part) -> Object {
    let (before, plan) = (object.mappings(state, object.whole()), object.plan(state));
    // The tail has no rule: its share of the budget is returned below.
    let base = object.base + tail.first as usize * PAGE;
    let (size_of_tail, pages) = (tail.pages as usize * PAGE, tail.pages);
    released::unmap(state, &Object { rule: NO_RULE, base, colour: 0, size: size_of_tail, pages, block: 0, ..*object });

    let mut next = Object { size, pages: tail.first, block: 0, ..*object };
    // So have those of parts that end with the object.
    let same = !state.divides(object.rule) && next.plan(state).map(|plan| plan.layout) == plan.map(|plan| plan.layout);
    // Where the blocks follow from the size, the rest has other ones. Without room for them in the budget, in a process
    // that has confined itself, and between phases it keeps those that it has.
    if !same
        && !sandbox::entered()
        && exclusion::shared().is_none()
        && let Some(plan) = next.fit_replacing(state, before)
    {
        if plan.populates() {
            growth::populate(state, &next, &plan, next.pages, false);
        } else {
            // A refusal is reported and counted.
            let _ = next.place(state, &plan, true);
        }
        return next;
    }
    next.block = object.block;
    state.give_mappings(before.saturating_sub(next.mappings(state, next.whole())));
    next
}
