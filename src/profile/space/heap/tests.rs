use super::*;
use std::collections::BTreeMap;

fn large(size: u64) -> LargeBlock {
    LargeBlock { size, born_ns: 1, site: 7, thread: 3, object: NO_OBJECT, before: NO_OBJECT, calls: 0 }
}

#[test]
fn interior_addresses_find_small_and_large_blocks() {
    let mut h = Heap::default();
    h.insert_small(0x1000_0ff0, 100, 1, 0);
    h.insert_large(0x1000_2000, large(5 << 20));
    assert_eq!(h.lookup(0x1000_1053).map(|f| f.low), Ok(0x1000_0ff0));
    assert!(h.lookup(0x1000_1054).is_err());
    let found = h.lookup(0x1000_2000 + (5 << 20) - 1).unwrap();
    assert_eq!((found.low, found.high), (0x1000_2000, 0x1000_2000 + (5 << 20)));
    assert_eq!(h.lookup(0x1000_2000 + (5 << 20)), Err((0x1050_2000, 0x1060_0000)));
    assert_eq!(h.remove(0x1000_2000).unwrap().1.unwrap().site, 7);
    assert_eq!(h.remove(0x1000_2000), None);
    assert!(h.lookup(0x1000_2000).is_err());
}

#[test]
fn an_empty_block_occupies_one_byte() {
    let mut h = Heap::default();
    h.insert_small(0x2000, 0, 4, 5);
    assert_eq!(h.lookup(0x2000).unwrap().value, Block::Small { site: 4, size: 0, thread: Some(5) });
    assert!(h.lookup(0x2001).is_err());
}

#[test]
fn a_small_block_keeps_its_thread_where_the_number_fits() {
    let mut h = Heap::default();
    let most = (1 << 19) - 2;
    for (i, thread) in (0_u32..).zip([0, most, most + 1, u32::MAX]) {
        h.insert_small(0x1000 + 0x1000 * u64::from(i), SMALL_OBJECT - 1, u32::MAX - i, thread);
    }
    let at = |h: &mut Heap, addr| h.remove(addr).unwrap().0.value;
    let block = |site, thread| Block::Small { site, size: SMALL_OBJECT as u32 - 1, thread };
    assert_eq!(at(&mut h, 0x1000), block(u32::MAX, Some(0)));
    assert_eq!(at(&mut h, 0x2000), block(u32::MAX - 1, Some(most)));
    assert_eq!(at(&mut h, 0x3000), block(u32::MAX - 2, None));
    assert_eq!(at(&mut h, 0x4000), block(u32::MAX - 3, None));
}

/// Against a plain ordered map, with a fixed linear congruential generator.
#[test]
fn agrees_with_an_ordered_map() {
    let mut h = Heap::default();
    let mut model: BTreeMap<u64, u64> = BTreeMap::new();
    let mut seed = 12345u64;
    let mut next = |n: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % n
    };
    for _ in 0..60_000 {
        let addr = 0x7f00_0000_0000 + next(1 << 20) * 16;
        let size = if next(10) == 0 { next(3 << 20) } else { next(300) };
        if next(3) == 0 {
            assert_eq!(h.remove(addr).map(|(f, _)| f.high - f.low), model.remove(&addr).map(|s| s.max(1)));
        } else {
            let before = model.range(..addr + size.max(1)).next_back().map(|(a, s)| (*a, a + s.max(&1)));
            let got = h.at_or_before(addr + size.max(1) - 1).map(|f| (f.low, f.high));
            assert_eq!(got, before);
            if before.is_none_or(|(_, high)| high <= addr) {
                model.insert(addr, size);
                if size < SMALL_OBJECT { h.insert_small(addr, size, 1, 2) } else { h.insert_large(addr, large(size)) }
            }
        }
        let probe = 0x7f00_0000_0000 + next(1 << 24);
        let expected =
            model.range(..=probe).next_back().map(|(a, s)| (*a, a + s.max(&1))).filter(|(_, high)| probe < *high);
        match h.lookup(probe) {
            Ok(f) => assert_eq!(Some((f.low, f.high)), expected),
            Err((low, high)) => {
                assert_eq!(expected, None);
                assert!(low <= probe && probe < high);
                assert!(model.range(low..high).next().is_none());
                assert!(model.range(..low).next_back().is_none_or(|(a, s)| a + s.max(&1) <= low));
            }
        }
    }
    let (mut bytes, mut blocks) = (0, 0);
    h.for_each(|_, size| {
        bytes += size;
        blocks += 1;
    });
    assert_eq!((bytes, blocks), (model.values().sum::<u64>(), model.len()));
}
