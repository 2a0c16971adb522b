//! Places mappings of the program if their [`Backing`] takes a policy, and forgets them.

use core::sync::atomic::Ordering;

use numamma_hook::alloc::elsewhere;
use numamma_hook::held_signals::HeldSignals;
use numamma_hook::{errno, sandbox, say, say_once};
use numamma_kernel::policy::Mode;
use numamma_kernel::sys::PAGE;
use numamma_plan::plan::PagePlan;
use numamma_plan::policy::Huge;

use super::backing::{Backing, Kind};
use super::mapping_list::{self, Piece};
use super::object::Object;
use crate::phases::{exclusion, mover_request};
use crate::place::{Part, counted_calls};
use crate::rules::counters::add;
use crate::rules::state::{self, Rule, State};
use crate::threads::thread_nodes;

/// Counts and places one new mapping, or prints why it cannot be placed.
pub fn place_mapping(index: usize, start: usize, len: usize, backing: Result<Backing, &'static str>) {
    if sandbox::entered() {
        return;
    }
    let _held = HeldSignals::hold();
    let Some((state, rule)) = state::get().and_then(|s| Some((s, s.rules.get(index)?))) else { return };
    state.count_new(index, 0, len);
    if backing.is_err() {
        state.rules_of(index).for_each(|rule| add(&rule.counters.out_of_reach, 1));
    }
    let placed = backing.map_err(Some).and_then(|backing| {
        let size = len.next_multiple_of(backing.unit());
        let placing = rule.current_index();
        let node = thread_nodes::instance_node(state, rule, placing);
        let (pages, base, block, waiting) = ((size / PAGE) as u64, start, 0, false);
        let object = Object { rule: index, placing, waiting, node, block, base, colour: 0, size, pages, backing };
        if place_whole(state, object) { Ok(()) } else { Err(None) }
    });
    if let Err(why) = placed {
        let before = rule.counters.unplaced.load(Ordering::Relaxed);
        state.rules_of(index).for_each(|rule| add(&rule.counters.unplaced, 1));
        if let (Some(why), 0) = (why, before) {
            say!("{}: {why}", rule.rule.name());
        }
    }
}

/// Places a whole mapping and enters it in the list. Without a free entry or mappings left in the budget it is not
/// placed.
pub fn place_whole(state: &'static State, object: Object) -> bool {
    place_replacing(state, object, 0)
}

/// As [`place_whole`], for a mapping whose memory policies have taken `old` mappings of the budget so far. When the
/// result is false, they may still be there, and the mappings stay taken.
fn place_replacing(state: &'static State, mut object: Object, old: u64) -> bool {
    let Some(rule) = state.rules.get(object.rule) else { return false };
    if object.backing.kind == Kind::Huge {
        say_rounded(state, rule, &object);
    }
    let Some(entry) = mapping_list::reserve() else {
        say_once!(
            "{}: {} placed mappings exist, and no more can be tracked; further ones are left to first touch",
            rule.rule.name(),
            mapping_list::CAPACITY
        );
        return false;
    };
    let Some(plan) = object.fit_replacing(state, old) else { return false };
    let placed = object.place(state, &plan, object.backing.resident).is_ok();
    if placed {
        entry.enter(&Piece { object, part: object.whole() });
    } else {
        let taken = object.mappings(state, object.whole());
        let left = remove_policy(&object, &plan, taken);
        state.give_mappings(taken.saturating_sub(left));
    }
    mover_request::placed(rule, object.placing);
    placed
}

/// Removes the memory policies of an object of which only some blocks could be placed. Returns the mappings that it
/// takes nevertheless.
fn remove_policy(object: &Object, plan: &PagePlan<'_>, taken: u64) -> u64 {
    match counted_calls::mbind(object.base, object.bytes(), Mode::Default, &[], false) {
        // Advice about huge pages cannot be withdrawn.
        Ok(()) => u64::from(plan.huge != Huge::Keep),
        // The kernel refuses policies as such, so there are none; a full table of mappings may hold some.
        Err(error) => {
            if error == libc::ENOMEM {
                taken
            } else {
                0
            }
        }
    }
}

/// Prints once for each rule that huge pages make its blocks larger.
fn say_rounded(state: &State, rule: &Rule, m: &Object) {
    let unplaced = state.plan_of_pages(m.rule, m.placing, m.size as u64, 1, m.backing.unit() as u64);
    let Some(mut plan) = unplaced else { return };
    let wanted = plan.block_bytes().unwrap_or(0) / 1024;
    if plan.round_blocks(m.backing.unit() as u64)
        && rule.counters.found.instances() == 1
        && let Some(block) = plan.block_bytes()
    {
        let (name, unit) = (rule.rule.name(), m.backing.unit() >> 10);
        say!("{name}: blocks of {wanted} KiB become {} KiB, because its pages have {unit} KiB (hugetlb)", block / 1024);
    }
}

/// Checks and forgets the placed mappings in a range that is about to be unmapped or replaced. Then waits until the
/// mover does not touch the range: at most for one bounded step, since later steps find the range forgotten.
pub fn forget_range(start: usize, len: usize) {
    set_aside(start, len).forget();
}

/// Pieces that are off the list while the program's call on them runs. Signals are held meanwhile: a handler that left
/// the call by siglongjmp would leave pieces that are in no list, or an entry half changed.
#[must_use]
pub struct Aside {
    pieces: Vec<Piece>,
    /// Dropped last: a handler of the program may not return.
    _held: Option<HeldSignals>,
}

/// As [`forget_range`], for a call that may fail and leave the range as it is.
pub fn set_aside(start: usize, len: usize) -> Aside {
    let _errno = errno::Saved::now();
    let held = HeldSignals::hold();
    let end = start.saturating_add(len.next_multiple_of(PAGE));
    let (mut pieces, mut any) = (Vec::new(), false);
    mapping_list::remove(start, end, |piece| {
        any = true;
        let Some(state) = state::get() else { return };
        if state.reports() {
            piece.object.examine(state, piece.part, false);
        }
        // Without memory the piece is forgotten at once.
        match elsewhere::fallibly(|| pieces.try_reserve(1)) {
            Ok(()) => pieces.push(piece),
            Err(_) => state.give_mappings(piece.object.mappings(state, piece.part)),
        }
    });
    if any {
        exclusion::wait(start, end);
    }
    Aside { pieces, _held: held }
}

impl Aside {
    /// Whether no placed mapping was in the range.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The range is gone: its mappings return to the budget.
    pub fn forget(self) {
        let Some(state) = state::get() else { return };
        self.pieces.iter().for_each(|piece| state.give_mappings(piece.object.mappings(state, piece.part)));
    }

    /// The range is as it was. A piece that finds no entry any more keeps its share of the budget, as its memory
    /// policies stay.
    #[inline(never)]
    pub fn restore(self) {
        let _errno = errno::Saved::now();
        self.pieces.iter().for_each(|piece| _ = mapping_list::insert(piece));
    }

    /// The range `[from, from + old)` was moved to `to` and now has `new` bytes, at least as many: a placed mapping at
    /// its end has grown. Not inlined, as [`Aside::restore`]: what they take of a stack would be taken by every call.
    #[inline(never)]
    pub fn enter_moved(self, from: usize, to: usize, old: usize, new: usize) {
        let _errno = errno::Saved::now();
        let Some(state) = state::get() else { return };
        for piece in &self.pieces {
            let base = piece.object.base.wrapping_sub(from).wrapping_add(to);
            let moved = Piece { object: Object { base, ..piece.object }, ..*piece };
            let more = if piece.end() == from + old { new - old } else { 0 };
            if more == 0 || !enter_grown(state, &moved, more) {
                mapping_list::insert(&moved);
            }
            if let Some(rule) = state.rules.get(piece.object.rule) {
                mover_request::placed(rule, piece.object.placing);
            }
        }
    }
}

/// Enters a piece that has become `more` bytes longer. The kernel extended the memory policy of its last page, which is
/// that of all pages unless the plan has several blocks. False when nothing was entered.
fn enter_grown(state: &'static State, moved: &Piece, more: usize) -> bool {
    let (size, pages) = (moved.part.first as usize * PAGE + moved.len() + more, (more / PAGE) as u64);
    let object = Object { size, pages: (size / PAGE) as u64, ..moved.object };
    let has_one_policy = object.plan(state).is_none_or(|plan| plan.run_count() <= 1);
    if has_one_policy && !state.divides(object.rule) {
        return mapping_list::insert(&Piece { object, part: Part { pages: moved.part.pages + pages, ..moved.part } });
    }
    if sandbox::entered() {
        return false;
    }
    let Some(rule) = state.rules.get(object.rule) else { return false };
    let (base, size, placing) = (moved.start(), moved.len() + more, rule.current_index());
    let backing = Backing { resident: true, ..object.backing };
    let (block, waiting, pages) = (0, false, (size / PAGE) as u64);
    let fresh = Object { base, size, pages, block, placing, waiting, backing, ..object };
    let placed = place_replacing(state, fresh, moved.object.mappings(state, moved.part));
    if !placed {
        add(&rule.counters.unplaced, 1);
    }
    placed
}
