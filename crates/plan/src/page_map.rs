//! Page maps: the node of each page of an object, as runs of pages.
//!
//! `"640x0,128x3"` means 640 pages of 4 KiB on node 0, then 128 pages on node 3; the map repeats until the object
//! ends. Where the placement has a block size, the numbers count blocks of that size. A map is divided into pieces of equal length (the greatest common divisor of the runs), so that it is a
//! block distribution.

use crate::nodes::MAX_NODE;
use crate::unusable::Unusable;

/// Most pieces of a map: about the number of mappings that Linux allows a process by default.
pub const MAX_PIECES: u64 = 65_536;

/// What the parts of a map are.
const RUN: &str = "a run of a page map; write pages x node, such as \"640x0\"";

/// A page map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageMap {
    /// Number of pages, at least 1, and node of each run.
    pub runs: Vec<(u64, u32)>,
    /// Pages per piece.
    pub piece: u64,
}

impl PageMap {
    /// Parses a map.
    ///
    /// # Errors
    /// An empty text, a part that is not a run, or more than [`MAX_PIECES`] pieces.
    pub fn parse(text: &str) -> Result<PageMap, Unusable> {
        if text.trim().is_empty() {
            return Err("a page map needs runs such as map = \"640x0,128x3\" (pages x node)".to_owned().into());
        }
        let runs = text.split(',').map(run).collect::<Result<Vec<_>, Unusable>>()?;
        let piece = runs.iter().fold(0, |all, run| common(all, run.0));
        let pieces = runs.iter().fold(0_u64, |all, run| all.saturating_add(run.0 / piece.max(1)));
        if pieces > MAX_PIECES {
            return Err(Unusable::from(format!(
                "the greatest common divisor of the runs of this page map is so small that it needs {pieces} pieces, \
                 more than {MAX_PIECES}; make the runs multiples of a larger number of pages"
            )));
        }
        Ok(PageMap { runs, piece })
    }

    /// Node of each piece.
    pub fn pieces(&self) -> Vec<u32> {
        self.runs.iter().flat_map(|run| std::iter::repeat_n(run.1, (run.0 / self.piece.max(1)) as usize)).collect()
    }
}

fn run(part: &str) -> Result<(u64, u32), Unusable> {
    let bad = || Unusable::form(part.trim(), RUN);
    let (pages, node) = part.trim().split_once('x').ok_or_else(bad)?;
    let pages = pages.trim().parse().ok().filter(|p| *p > 0).ok_or_else(bad)?;
    let node = node.trim().parse().ok().filter(|n| *n <= MAX_NODE).ok_or_else(bad)?;
    Ok((pages, node))
}

/// Greatest common divisor; `common(0, n)` is `n`.
fn common(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_become_equal_pieces() {
        let map = PageMap::parse("640x0, 128x3").unwrap();
        assert_eq!((map.piece, map.pieces()), (128, vec![0, 0, 0, 0, 0, 3]));
        assert_eq!(PageMap::parse("7x2").unwrap().pieces(), [2]);
    }

    #[test]
    fn what_is_no_map_is_named() {
        let says = |text: &str, wanted: &str| PageMap::parse(text).unwrap_err().to_string().contains(wanted);
        assert!(says(" ", "a page map needs runs"));
        for bad in ["x", "3", "3x", "x3", "0x1", "3x9999", "3x1,,", "-1x2", "99999999999999999999x1"] {
            assert!(says(bad, "is not a run of a page map"), "{bad}");
        }
        assert!(says("1000000x0,1x1", "needs 1000001 pieces"));
        assert!(PageMap::parse(&format!("{}x0,{}x1", u64::MAX, u64::MAX)).is_ok());
    }
}
