use super::*;

fn member(name: &str, offset: u64, size: u64) -> Member {
    Member { name: name.into(), offset, size }
}

fn words(pieces: &[Piece]) -> Vec<(&str, u64, u64)> {
    pieces.iter().map(|p| (p.name.as_str(), p.offset, p.size)).collect()
}

const LARGE: u64 = PART_LEAST;

#[test]
fn large_members_are_parts_and_small_ones_stay_together() {
    let half = LARGE / 2;
    let members = [
        member("n", 0, 8),
        member("a", 8, LARGE),
        member("x", 8 + LARGE, half),
        member("y", 8 + LARGE + half, 16),
        member("z", 24 + LARGE + half, half),
        member("b", 24 + 2 * LARGE, 3 * LARGE),
        member("end", 24 + 5 * LARGE, 8),
    ];
    let size = 32 + 5 * LARGE;
    let expected = [("a", 0, 8 + LARGE), ("x..z", 8 + LARGE, LARGE + 16), ("b", 24 + 2 * LARGE, 3 * LARGE + 8)];
    assert_eq!(words(&pieces(&members, size)), expected);
    // With bytes that no member describes.
    let beyond = pieces(&members, size + LARGE);
    assert_eq!(words(&beyond)[3..], [("end", size - 8, 8 + LARGE)]);
    assert_eq!(words(&pieces(&members[..6], size + LARGE))[3..], [("(rest)", size - 8, 8 + LARGE)]);
}

#[test]
fn what_has_one_part_is_not_divided() {
    assert!(pieces(&[member("a", 0, LARGE), member("b", LARGE, 100)], LARGE + 100).is_empty());
    assert!(pieces(&[], LARGE).is_empty());
    let many: Vec<Member> = (0..=MOST_PARTS as u64).map(|i| member("m", i * LARGE, LARGE)).collect();
    assert!(pieces(&many, many.len() as u64 * LARGE).is_empty());
    let beyond = [member("a", 0, LARGE), member("b", LARGE, 5 * LARGE), member("c", u64::MAX - 5, LARGE)];
    assert_eq!(words(&pieces(&beyond, 2 * LARGE)), [("a", 0, LARGE), ("(rest)", LARGE, LARGE)]);
    assert!(pieces(&beyond[1..], 2 * LARGE).is_empty());
}
