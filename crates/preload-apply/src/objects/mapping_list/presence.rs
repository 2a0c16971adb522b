//! Whether a range of addresses may have a page of a listed mapping, without a search of the list.
//!
//! Each page of a small piece is counted under its number modulo [`PAGES`], each chunk of a larger one under its number
//! modulo [`CHUNKS`]. A piece is counted before it is entered and until it has been removed, and what remains of a cut
//! piece is counted before the piece itself is not any more. So a count of zero is certain for a thread that knows the
//! mapping; other pieces may make it more, which costs a search.

use core::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use numamma_kernel::sys::PAGE;

/// Pages up to which a piece is small: as many counts are changed when it is entered.
const SMALL: usize = 64;
/// Counts of pages: [`super::CAPACITY`] pieces of 16 pages that lie side by side share none.
const PAGES: usize = 1 << 16;
const CHUNK: usize = 1 << 20;
/// Counts of chunks: pieces that lie within 4 GiB share none.
const CHUNKS: usize = 1 << 12;

/// The most that is counted in one place are the pieces of the list and those that are being cut.
const _: () = assert!(2 * super::CAPACITY <= u16::MAX as usize);

pub struct Presence {
    pages: [AtomicU16; PAGES],
    chunks: [AtomicU16; CHUNKS],
    /// Small pieces.
    small: AtomicUsize,
}

/// The counts of the units of `unit` bytes that have a byte in `[start, end)`, each once.
fn counts(all: &[AtomicU16], unit: usize, start: usize, end: usize) -> impl Iterator<Item = &AtomicU16> {
    let (first, last) = (start / unit, end.max(1).div_ceil(unit));
    let numbers = first..last.min(first + all.len());
    numbers.filter_map(|number| all.get(number % all.len()))
}

impl Presence {
    /// Nothing is listed.
    pub const fn new() -> Presence {
        Presence {
            pages: [const { AtomicU16::new(0) }; PAGES],
            chunks: [const { AtomicU16::new(0) }; CHUNKS],
            small: AtomicUsize::new(0),
        }
    }

    fn change(&self, start: usize, end: usize, by: i16) {
        let is_small = end - start <= SMALL * PAGE;
        if is_small {
            self.small.fetch_add(by as usize, Ordering::Relaxed);
        }
        let (all, unit) = if is_small { (&self.pages[..], PAGE) } else { (&self.chunks[..], CHUNK) };
        counts(all, unit, start, end).for_each(|count| _ = count.fetch_add(by as u16, Ordering::Relaxed));
    }

    /// Counts a piece that is about to be entered.
    pub fn add(&self, start: usize, end: usize) {
        self.change(start, end, 1);
    }

    /// Takes back what [`Presence::add`] counted.
    pub fn remove(&self, start: usize, end: usize) {
        self.change(start, end, -1);
    }

    /// Whether a piece may have a page of `[start, end)`.
    pub fn may_have(&self, start: usize, end: usize) -> bool {
        let any = |all, unit| counts(all, unit, start, end).any(|count| count.load(Ordering::Relaxed) > 0);
        let any_small = self.small.load(Ordering::Relaxed) > 0;
        (any_small && (end - start > SMALL * PAGE || any(&self.pages, PAGE))) || any(&self.chunks, CHUNK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_found_in_each_of_its_pages() {
        static PRESENCE: Presence = Presence::new();
        let may_have = |page: usize, pages: usize| PRESENCE.may_have(page * PAGE, (page + pages) * PAGE);
        for (page, pages, other) in [(1000, 3, 1003), (1000, 65, 1280), (70_000, SMALL, 70_064), (255, 2_000_000, 0)] {
            let (start, end) = (page * PAGE, (page + pages) * PAGE);
            assert!(!PRESENCE.may_have(0, usize::MAX & !(PAGE - 1)));
            PRESENCE.add(start, end);
            assert!(
                may_have(page, 1) && may_have(page + pages - 1, 1) && may_have(page - 1, 2) && may_have(0, 1 << 30)
            );
            // So large a piece has all counts.
            assert_eq!(may_have(other, 1), pages > 1_000_000, "{page} {pages}");
            PRESENCE.add(start, start + PAGE);
            PRESENCE.remove(start, end);
            assert!(may_have(page, 1) && !may_have(page + 1, 1), "what remains of a cut piece");
            PRESENCE.remove(start, start + PAGE);
        }
    }
}
