//! mmap, munmap and mremap: mappings from a matched call site are placed where their [`Backing`] takes a policy.
//!
//! The program keeps full control of its mappings: pieces may be unmapped, replaced or moved, and the list of
//! placed ones follows.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;

use numamma_hook::entry::Caller;
use numamma_hook::{errno, real, say};
use numamma_kernel::sys::PAGE;
use numamma_plan::plan::{Layout, PagePlan};
use numamma_plan::policy::Mode;

use crate::backing::{Backing, Kind};
use crate::mapped::{self, Mapped};
use crate::matching::call_sites;
use crate::place::{self, Part};
use crate::state::{self, Rule, State, add};
use crate::{check, cost, gate, mover, observed};

type Ptr = *mut c_void;

const FAILED: Ptr = libc::MAP_FAILED;

/// mmap(2).
///
/// # Safety
/// C's contract; the last three arguments come from the entry stub.
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn mmap(
    addr: Ptr,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
    ra: usize,
    cfa: usize,
    rbp: usize,
) -> Ptr {
    // SAFETY: forwarded unchanged.
    let forward = || unsafe { real::mmap(addr, len, prot, flags, fd, offset) };
    if flags & libc::MAP_FIXED != 0 && len > 0 && !mapped::none() {
        // Before it is replaced: from then on the range is somebody else's.
        going(addr as usize, len);
    }
    let found = forward();
    if found == FAILED || call_sites::is_unmatched(ra) {
        return found;
    }
    let _errno = errno::Saved::now();
    // SAFETY: the caller as the stub saw it.
    if let Some(rule) = unsafe { call_sites::find(&Caller { ra, cfa, rbp }, len, None) } {
        place_mapping(rule, found as usize, len, Backing::of_mmap(prot, flags, fd));
    }
    found
}

/// Counts and places one new mapping, or says why it cannot be placed.
pub fn place_mapping(index: usize, start: usize, len: usize, backing: Result<Backing, &'static str>) {
    let Some((state, rule)) = state::get().and_then(|s| Some((s, s.rules.get(index)?))) else { return };
    add(&rule.counters.instances, 1);
    add(&rule.counters.bytes, len as u64);
    if backing.is_err() {
        add(&rule.counters.out_of_reach, 1);
    }
    let placed = backing.map_err(Some).and_then(|backing| {
        let len = len.next_multiple_of(backing.unit());
        let placing = rule.now();
        let node = observed::instance_node(state, rule, placing);
        let (object, object_len, block, waiting) = (start, len, 0, false);
        let m = Mapped { rule: index, object, object_len, start, len, node, block, backing, placing, waiting };
        if place_whole(state, m) { Ok(()) } else { Err(None) }
    });
    if let Err(why) = placed {
        let before = rule.counters.unplaced.fetch_add(1, Ordering::Relaxed);
        if let (Some(why), 0) = (why, before) {
            say!("{}: {why}", rule.rule.name());
        }
    }
}

/// Places a whole mapping and enters it in the list.
fn place_whole(state: &'static State, mut m: Mapped) -> bool {
    let (Some(mut plan), Some(rule)) = (plan_of(state, &m), state.rules.get(m.rule)) else { return false };
    if m.backing.kind == Kind::Huge {
        say_rounded(state, rule, &m);
    }
    if !place::fit(state, m.rule, &mut plan) {
        add(&rule.counters.over_budget, 1);
        return false;
    }
    m.block = plan.block_pages().unwrap_or(0);
    rule.counters.block.store(m.block * PAGE as u64, Ordering::Relaxed);
    let part = Part { first: 0, pages: plan.pages };
    let done = cost::measure(&rule.counters, || place::apply(&plan, m.start, part, m.node, m.backing.resident));
    if let Err(error) = done {
        place::refused(rule.rule.name(), error);
    }
    // What is not in the list could never be given back.
    if done.is_err() || !mapped::insert(&m) {
        state.give_mappings(plan.run_count());
    }
    // A phase that began in between may have been over the list already.
    if rule.now() != m.placing {
        mover::request();
    }
    done.is_ok()
}

/// Says once for each rule that huge pages make its blocks larger.
fn say_rounded(state: &State, rule: &Rule, m: &Mapped) {
    let base = |m: &Mapped| state.plan_of_pages(m.rule, m.placing, m.object_len as u64, 1, m.backing.unit() as u64);
    let Some(mut plan) = base(m) else { return };
    let wanted = plan.block_pages().unwrap_or(0) * 4;
    if plan.round_blocks((m.backing.unit() / PAGE) as u64)
        && rule.counters.instances.load(Ordering::Relaxed) == 1
        && let Some(block) = plan.block_pages()
    {
        let (name, unit) = (rule.rule.name(), m.backing.unit() >> 10);
        say!("{name}: blocks of {wanted} KiB become {} KiB, because its pages have {unit} KiB (hugetlb)", block * 4);
    }
}

/// The plan that a mapping's memory policy follows.
pub fn plan_of(state: &'static State, m: &Mapped) -> Option<PagePlan<'static>> {
    let (size, pages, unit) = (m.object_len as u64, (m.object_len / PAGE) as u64, m.backing.unit() as u64);
    let mut plan = match m.backing.kind {
        Kind::Private | Kind::Reserved => state.plan(m.rule, m.placing, size, pages)?,
        Kind::Shared | Kind::Huge => state.plan_of_pages(m.rule, m.placing, size, pages, unit)?,
    };
    if m.backing.kind != Kind::Private {
        // Shared memory would be made resident for all processes, and reserved address space cannot be.
        plan.mode = Mode::Policy;
    }
    if m.backing.kind == Kind::Huge && plan.layout == Layout::Bind {
        // The pages were promised to the mapping from all nodes together: where its own have none left, a strict policy
        // would end the program with SIGBUS.
        plan.layout = Layout::Preferred;
    }
    plan.round_blocks(unit / PAGE as u64);
    observed::apply(&mut plan, state.rules.get(m.rule)?, m.placing, m.node);
    plan.set_block_pages(m.block);
    Some(plan)
}

/// Mappings that a piece takes of the budget.
pub fn share(state: &'static State, m: &Mapped) -> u64 {
    plan_of(state, m).map_or(0, |plan| share_of(&plan, m.part()))
}

/// The same under a known plan. Each block counts in the piece that has its first page, so that the pieces of an object
/// together take what it took as a whole, however it was cut.
pub fn share_of(plan: &PagePlan<'_>, part: Part) -> u64 {
    match (plan.block_pages(), plan.run_count()) {
        (Some(block), 2..) => (part.first + part.pages).div_ceil(block) - part.first.div_ceil(block),
        (_, whole) if part.first == 0 => whole,
        _ => 0,
    }
}

/// Adds what is known of a piece to its rule; `live` as in [`crate::heap::examine`].
pub fn examine(state: &'static State, m: &Mapped, live: bool) {
    let Some(rule) = state.rules.get(m.rule) else { return };
    let late = live && m.placing != rule.now();
    let judged = if late { Mapped { placing: rule.now(), block: 0, ..*m } } else { *m };
    if let Some(plan) = plan_of(state, &judged) {
        check::examine(&plan, m.object, m.part(), m.node, late || m.waiting, &rule.counters);
    }
}

/// Checks and forgets what lies in a range that is about to go, and waits until nobody moves its pages any more: at most
/// for one bounded step of the mover, which then finds it forgotten.
pub fn going(start: usize, len: usize) {
    let _errno = errno::Saved::now();
    let end = start.saturating_add(len.next_multiple_of(PAGE));
    let mut any = false;
    mapped::remove(start, end, |piece| {
        any = true;
        let Some(state) = state::get() else { return };
        if state.reports() {
            examine(state, &piece, false);
        }
        state.give_mappings(share(state, &piece));
    });
    if any {
        gate::wait(start, end);
    }
}

/// munmap(2).
///
/// # Safety
/// C's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(addr: Ptr, len: usize) -> c_int {
    if !mapped::none() && len > 0 && (addr as usize).is_multiple_of(PAGE) {
        going(addr as usize, len);
    }
    // SAFETY: forwarded unchanged.
    unsafe { real::munmap(addr, len) }
}

/// mremap(2); variadic in C, which passes integers the same way.
///
/// # Safety
/// C's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(addr: Ptr, old: usize, new: usize, flags: c_int, new_addr: Ptr) -> Ptr {
    // SAFETY: forwarded unchanged.
    let forward = || unsafe { real::mremap(addr, old, new, flags, new_addr) };
    if mapped::none() {
        return forward();
    }
    let whole = mapped::at(addr as usize).filter(|m| m.len == old.next_multiple_of(PAGE) && old > 0);
    let Some(m) = whole else {
        if new < old {
            going((addr as usize).saturating_add(new.next_multiple_of(PAGE)), old - new);
        }
        return forward();
    };
    if new.next_multiple_of(PAGE) <= m.len && flags & (libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) == 0 {
        going(addr as usize + new.next_multiple_of(PAGE), m.len - new.next_multiple_of(PAGE));
        return forward();
    }
    if m.backing.kind != Kind::Private
        || flags & libc::MREMAP_MAYMOVE == 0
        || flags & (libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) != 0
    {
        // Not ours to imitate: the kernel decides, and the object is no longer followed.
        going(addr as usize, old);
        return forward();
    }
    // SAFETY: the object is a live private anonymous mapping of `old` bytes that the program wants moved.
    unsafe { grow(&m, old, new) }.unwrap_or_else(|| {
        going(addr as usize, old);
        forward()
    })
}

/// Moves a placed mapping by copying: the kernel refuses to grow a range of several mappings (EFAULT), which
/// the program could not foresee. Memory that is not readable and writable is left to the kernel.
///
/// # Safety
/// `m` is a live private anonymous mapping of `old` bytes.
unsafe fn grow(m: &Mapped, old: usize, new: usize) -> Option<Ptr> {
    let state = state::get()?;
    let plan = plan_of(state, m)?;
    if plan.run_count() <= 1 {
        return None; // one mapping: the kernel can move it
    }
    // SAFETY: a new anonymous mapping; the check below keeps the copy inside readable memory.
    unsafe {
        let found = real::mmap(
            core::ptr::null_mut(),
            new,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if found == FAILED {
            return None;
        }
        let len = new.next_multiple_of(PAGE);
        let placing = state.rules.get(m.rule).map_or(0, |r| r.now());
        let object = found as usize;
        let fresh = Mapped { object, object_len: len, start: object, len, block: 0, placing, waiting: false, ..*m };
        let placed = place_whole(state, fresh);
        if !copy_by_kernel(m.start, found as usize, old) {
            going(found as usize, len);
            real::munmap(found, len);
            return None;
        }
        if let Some(rule) = state.rules.get(m.rule).filter(|_| !placed) {
            add(&rule.counters.unplaced, 1);
        }
        going(m.start, m.len);
        real::munmap(m.start as Ptr, m.len);
        Some(found)
    }
}

/// Copies through process_vm_readv, which reports unreadable memory instead of killing the program.
unsafe fn copy_by_kernel(from: usize, to: usize, len: usize) -> bool {
    let mut done = 0;
    while done < len {
        let local = libc::iovec { iov_base: (to + done) as Ptr, iov_len: len - done };
        let remote = libc::iovec { iov_base: (from + done) as Ptr, iov_len: len - done };
        // SAFETY: `to` is writable for `len`; the kernel checks `from`.
        let rc = unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
        match usize::try_from(rc) {
            Ok(n) if n > 0 => done += n,
            _ => return false,
        }
    }
    true
}

/// The exported names; `mmap64` is the same function on x86_64.
mod exported {
    use super::Ptr;
    use core::ffi::c_int;

    numamma_hook::entry! {
        /// mmap(2).
        fn mmap(addr: Ptr, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> Ptr => super::mmap;
        /// mmap(2) with 64-bit offsets.
        fn mmap64(addr: Ptr, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> Ptr => super::mmap;
    }
}

#[cfg(test)]
mod tests {
    use numamma_plan::order::Order;
    use numamma_plan::policy::Huge;

    use super::*;

    #[test]
    fn pieces_take_together_what_the_whole_took() {
        for (layout, nodes) in [
            (Layout::Blocks(3, Order::Cyclic), vec![0, 1]),
            (Layout::Blocks(40, Order::Cyclic), vec![0, 1]),
            (Layout::Blocks(3, Order::Cyclic), vec![1]),
            (Layout::Interleave, vec![0, 1]),
            (Layout::Default, vec![]),
        ] {
            for mode in [Mode::Policy, Mode::Populate] {
                let plan = PagePlan { pages: 20, nodes: nodes.clone().into(), layout, huge: Huge::Keep, mode };
                let share = |first, end| share_of(&plan, Part { first, pages: end - first });
                assert_eq!(share(0, 20), plan.run_count(), "{layout:?}");
                for (one, two) in (1..20).flat_map(|one| (one..20).map(move |two| (one, two))) {
                    assert_eq!(
                        share(0, one) + share(one, two) + share(two, 20),
                        share(0, 20),
                        "{layout:?} {one} {two}"
                    );
                }
            }
        }
    }
}
