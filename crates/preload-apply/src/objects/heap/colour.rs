//! Where in its first page an array begins, its colour (Bonwick, The Slab Allocator, 1994). Arrays that all begin at a
//! page have their elements of one number in the same few sets of the first-level cache, which is indexed by the
//! address within a page: a program that walks more of them side by side than a set has ways, 8 to 12, waits for the
//! next cache in each step. So it is with arrays that glibc maps, but not with those that it takes from its heap. So
//! where a page's place does not depend on the array it is part of, arrays begin at different places of their pages.

use numamma_kernel::sys::PAGE;
use numamma_plan::plan::HUGE_PAGE;

/// Bytes of which a colour is a multiple: two cache lines, which the processor fetches as a pair. Smaller steps would
/// make more addresses look like those of arrays.
pub const STEP: usize = 128;
/// Bytes of the largest colour.
const MOST: usize = PAGE - STEP;
/// Smallest array that is coloured. It takes a page more, 3 % of this size.
const LEAST: usize = 128 << 10;

/// Whether an array of `size` bytes at a multiple of `align` may be coloured. Not those that may hold a huge page: they
/// begin with one.
pub fn is_possible(size: usize, align: usize) -> bool {
    align <= STEP && (LEAST..HUGE_PAGE as usize - PAGE).contains(&size)
}

/// Pages of an array of `size` bytes that begins `colour` bytes behind its first page. Of one that is coloured, as many
/// as with the largest colour, so that memory serves any array of the size again. realloc may ask for any number of
/// bytes.
pub fn pages_of(size: usize, colour: u16) -> u64 {
    let before = if colour > 0 { MOST } else { 0 };
    size.max(1).saturating_add(before).div_ceil(PAGE) as u64
}

/// Pages of an array of `size` bytes that will be coloured.
pub fn pages_with_room(size: usize) -> u64 {
    pages_of(size, MOST as u16)
}

/// Bytes of the largest array that may be coloured in `bytes` of whole pages.
pub fn size_in(bytes: usize) -> usize {
    bytes.saturating_sub(MOST)
}

/// The colour of an array whose first page is at `base`, never 0: the upper bits of the product with 2^64 divided by
/// the golden ratio (Knuth, The Art of Computer Programming, volume 3, 6.4) differ for pages at any distance.
pub fn of_page(base: usize) -> u16 {
    let spread = ((base / PAGE) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let steps = (PAGE / STEP - 1) as u64;
    STEP as u16 * (1 + (((spread >> 32) * steps) >> 32)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_near_the_largest_number_have_more_pages_than_any_other() {
        let most = usize::MAX.div_ceil(PAGE) as u64;
        assert!((0..2 * PAGE).all(|less| pages_with_room(usize::MAX - less) >= most - 2));
        assert_eq!((pages_of(0, 0), pages_of(PAGE + 1, 0), pages_of(PAGE + 129, 128)), (1, 2, 3));
    }

    #[test]
    fn arrays_side_by_side_begin_at_all_places() {
        for distance in [1, 33, 64, 257, 512] {
            let mut seen = std::collections::BTreeMap::<u16, usize>::new();
            let bases = (0..310).map(|number| 0x7f12_3456_7000 + number * distance * PAGE);
            bases.map(of_page).for_each(|colour| *seen.entry(colour).or_default() += 1);
            assert!(seen.keys().all(|colour| *colour > 0
                && usize::from(*colour) <= MOST
                && usize::from(*colour).is_multiple_of(STEP)));
            let most = seen.values().max().copied().unwrap_or_default();
            assert!(seen.len() == 31 && most <= 25, "{distance} pages: {} places, {most} at one", seen.len());
        }
    }

    #[test]
    fn a_coloured_array_has_a_page_more() {
        assert_eq!((pages_of(LEAST, 0), pages_of(LEAST, 128), pages_with_room(LEAST)), (32, 33, 33));
        assert_eq!((pages_of(LEAST + STEP, 0), pages_with_room(LEAST + STEP)), (33, 33));
        assert_eq!(pages_with_room(size_in(40 * PAGE)), 40);
        assert!(is_possible(LEAST, 64) && !is_possible(LEAST, 256) && !is_possible(LEAST - 1, 1));
        assert!(!is_possible(HUGE_PAGE as usize - PAGE, 1));
    }
}
