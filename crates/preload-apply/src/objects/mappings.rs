//! Places mappings of the program if their [`Backing`] takes a policy, and forgets them.

use core::sync::atomic::Ordering;

use numamma_hook::{errno, say};
use numamma_kernel::sys::PAGE;

use super::backing::{Backing, Kind};
use super::mapping_list::{self, Piece};
use super::object::Object;
use crate::phases::{exclusion, mover_request};
use crate::rules::counters::add;
use crate::rules::state::{self, Rule, State};
use crate::threads::thread_nodes;

/// Counts and places one new mapping, or prints why it cannot be placed.
pub fn place_mapping(index: usize, start: usize, len: usize, backing: Result<Backing, &'static str>) {
    let Some((state, rule)) = state::get().and_then(|s| Some((s, s.rules.get(index)?))) else { return };
    add(&rule.counters.instances, 1);
    add(&rule.counters.bytes, len as u64);
    if backing.is_err() {
        add(&rule.counters.out_of_reach, 1);
    }
    let placed = backing.map_err(Some).and_then(|backing| {
        let size = len.next_multiple_of(backing.unit());
        let placing = rule.current_index();
        let node = thread_nodes::instance_node(state, rule, placing);
        let (pages, base, block, waiting) = ((size / PAGE) as u64, start, 0, false);
        let object = Object { rule: index, placing, waiting, node, block, base, size, pages, backing };
        if place_whole(state, object) { Ok(()) } else { Err(None) }
    });
    if let Err(why) = placed {
        let before = rule.counters.unplaced.fetch_add(1, Ordering::Relaxed);
        if let (Some(why), 0) = (why, before) {
            say!("{}: {why}", rule.rule.name());
        }
    }
}

/// Places a whole mapping and enters it in the list.
pub fn place_whole(state: &'static State, mut object: Object) -> bool {
    let Some(rule) = state.rules.get(object.rule) else { return false };
    if object.backing.kind == Kind::Huge {
        say_rounded(state, rule, &object);
    }
    let Some(plan) = object.fit(state) else { return false };
    let placed = object.place(state, &plan, object.backing.resident).is_ok();
    // The mappings of a piece that is not in the list could never be returned to the budget.
    if !placed || !mapping_list::insert(&Piece { object, part: object.whole() }) {
        state.give_mappings(plan.run_count());
    }
    mover_request::request_if_outdated(rule, object.placing);
    placed
}

/// Prints once for each rule that huge pages make its blocks larger.
fn say_rounded(state: &State, rule: &Rule, m: &Object) {
    let unplaced = state.plan_of_pages(m.rule, m.placing, m.size as u64, 1, m.backing.unit() as u64);
    let Some(mut plan) = unplaced else { return };
    let wanted = plan.block_pages().unwrap_or(0) * 4;
    if plan.round_blocks((m.backing.unit() / PAGE) as u64)
        && rule.counters.instances.load(Ordering::Relaxed) == 1
        && let Some(block) = plan.block_pages()
    {
        let (name, unit) = (rule.rule.name(), m.backing.unit() >> 10);
        say!("{name}: blocks of {wanted} KiB become {} KiB, because its pages have {unit} KiB (hugetlb)", block * 4);
    }
}

/// Checks and forgets the placed mappings in a range that is about to be unmapped or replaced. Then waits until the
/// mover does not touch the range: at most for one bounded step, since later steps find the range forgotten.
pub fn forget_range(start: usize, len: usize) {
    let _errno = errno::Saved::now();
    let end = start.saturating_add(len.next_multiple_of(PAGE));
    let mut any = false;
    mapping_list::remove(start, end, |piece| {
        any = true;
        let Some(state) = state::get() else { return };
        if state.reports() {
            piece.object.examine(state, piece.part, false);
        }
        state.give_mappings(piece.object.mappings(state, piece.part));
    });
    if any {
        exclusion::wait(start, end);
    }
}
