//! Small objects whose size realloc changes: in their heap, in place where there is room behind them.

use core::sync::atomic::{AtomicUsize, Ordering};

use numamma_hook::sandbox;
use numamma_kernel::sys::PAGE;

use super::ROOM_DIVISOR;
use crate::objects::small_objects::Small;
use crate::rules::churn::MOST_SHARED;
use crate::rules::small_heap::chunk::ALIGN;
use crate::rules::state;

/// Objects that are remembered as having grown, by their address; a newer one replaces an older one.
const REMEMBERED: usize = 1024;

/// Addresses of objects that have grown. The next object at such an address may get room too early.
static GROWN: [AtomicUsize; REMEMBERED] = [const { AtomicUsize::new(0) }; REMEMBERED];

fn grown(address: usize) -> &'static AtomicUsize {
    &GROWN[address / ALIGN % REMEMBERED]
}

/// The small object with `size` bytes in the heap that it is in; `None` when it must be replaced. Up to [`MOST_SHARED`]
/// bytes it never takes much more there than whole pages would. When it grows again it gets room.
///
/// # Safety
/// It is a live object, which the program gives up.
pub unsafe fn resize(small: &Small, size: usize) -> Option<usize> {
    let rule = state::get().filter(|_| !sandbox::entered())?.rules.get(small.rule)?;
    let most = match rule.placings.len() {
        1 => MOST_SHARED - 1,
        _ if size < PAGE => PAGE - 1,
        _ if rule.is_small(size) => size,
        _ => return None,
    };
    if size > most {
        return None;
    }
    let grows = size > small.usable();
    let again = grows && grown(small.address).load(Ordering::Relaxed) == small.address;
    let wanted = if again { (size + size / ROOM_DIVISOR).min(most) } else { size };
    // SAFETY: the caller's promise.
    let address = unsafe { small.resize(wanted) }?;
    if grows {
        grown(address).store(address, Ordering::Relaxed);
    }
    Some(address)
}
