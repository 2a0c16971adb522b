//! Node lists in numactl's notation: `0-3,5`, `all`, `!2`, `+0-1`.
//!
//! The order of a list is kept: `3,1` puts the first block on node 3. The caller passes the nodes that exist and
//! those that are the process's own ([`Available`]). Plain numbers may name any existing node; `all`, `!` and `+`
//! refer to the own nodes only, so that one policy serves every rank of an MPI job.

use numamma_kernel::policy::MAX_NODES;

use crate::unusable::Unusable;

/// Largest node number a list may hold.
pub const MAX_NODE: u32 = MAX_NODES as u32 - 1;

/// What a node list is.
const LIST: &str = "a node list; write numbers and ranges such as \"0-3,5\", or \"all\", \"!2\" or \"+0-1\"";

/// The nodes a list may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Available<'a> {
    /// Nodes with memory that the process may use.
    pub existing: &'a [u32],
    /// The nodes of `existing` that are close to the process's CPUs; `all` means these.
    pub own: &'a [u32],
}

/// A machine whose nodes are all the process's own.
impl<'a, T: AsRef<[u32]> + ?Sized> From<&'a T> for Available<'a> {
    fn from(existing: &'a T) -> Available<'a> {
        Available { existing: existing.as_ref(), own: existing.as_ref() }
    }
}

/// The nodes that `text` names, in the order of the text.
///
/// # Errors
/// A text that is not a list, a node that is not available, or a list that selects no node.
pub fn parse<'a>(text: &str, available: impl Into<Available<'a>>) -> Result<Vec<u32>, Unusable> {
    let Available { existing, own } = available.into();
    let Words { negated, relative, numbers } = words(text, MAX_NODE)?;
    let beyond = |i: u32| {
        let (count, own) = (own.len(), format(own));
        format!("+{i} is beyond the {count} nodes of this process, {own}; + counts these nodes from 0")
    };
    let named = match numbers {
        None => own.to_vec(),
        Some(numbers) if !relative => numbers,
        Some(numbers) => {
            let node = |i: u32| own.get(i as usize).copied().ok_or_else(|| beyond(i));
            numbers.into_iter().map(node).collect::<Result<_, _>>()?
        }
    };
    check_existing(named.iter().copied(), existing)?;
    let nodes: Vec<u32> = if negated { own.iter().copied().filter(|n| !named.contains(n)).collect() } else { named };
    if nodes.is_empty() {
        return Err(format!("`{}` leaves no node; the nodes are {}", text.trim(), format(own)).into());
    }
    Ok(nodes)
}

/// Checks that all nodes of a placement are among those that the process may use.
///
/// # Errors
/// The first node that is not.
pub(crate) fn check_existing(mut nodes: impl Iterator<Item = u32>, existing: &[u32]) -> Result<(), Unusable> {
    let Some(node) = nodes.find(|n| !existing.contains(n)) else { return Ok(()) };
    Err(Unusable::from(format!(
        "node {node} does not exist, has no memory or is not allowed for this process; it may use nodes {}. \
         `numamma advise` writes a policy for the nodes that are here",
        format(existing)
    )))
}

/// Checks the syntax of a list, for any machine.
///
/// # Errors
/// A text that is not a list.
pub fn check_syntax(text: &str) -> Result<(), Unusable> {
    words(text, MAX_NODE).map(drop)
}

/// A list as it is written.
pub(crate) struct Words {
    /// It begins with `!`.
    pub negated: bool,
    /// The numbers begin with `+`.
    pub relative: bool,
    /// `None` for `all`.
    pub numbers: Option<Vec<u32>>,
}

/// Reads a list with numbers up to `most`.
pub(crate) fn words(text: &str, most: u32) -> Result<Words, Unusable> {
    let text = text.trim();
    let (negated, list) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest.trim()));
    if list == "all" {
        return Ok(Words { negated, relative: false, numbers: None });
    }
    let (relative, list) = list.strip_prefix('+').map_or((false, list), |rest| (true, rest));
    Ok(Words { negated, relative, numbers: Some(numbers(list, most)?) })
}

/// The numbers of `0-3,5`, in the order of the text.
///
/// # Errors
/// A part that is not a number or an ascending range up to `most`, or a number that is listed twice.
pub(crate) fn numbers(list: &str, most: u32) -> Result<Vec<u32>, Unusable> {
    let mut found = Vec::new();
    for part in list.split(',') {
        let bad = || Unusable::form(part.trim(), LIST);
        let (a, b) = part.split_once('-').unwrap_or((part, part));
        let a: u32 = a.trim().parse().map_err(|_| bad())?;
        let b: u32 = b.trim().parse().map_err(|_| bad())?;
        if a > b || b > most {
            return Err(bad());
        }
        for node in a..=b {
            if found.contains(&node) {
                return Err(format!("node {node} is listed twice").into());
            }
            found.push(node);
        }
    }
    Ok(found)
}

/// `[0, 1, 2, 5]` as `0-2,5`; the order is kept.
pub fn format(nodes: &[u32]) -> String {
    if nodes.is_empty() { "none".to_owned() } else { format_runs(nodes) }
}

/// `[0, 1, 2, 5]` as `0-2,5`, for numbers of any width.
pub fn format_runs<T: Copy + Into<u64>>(numbers: &[T]) -> String {
    let runs = numbers.chunk_by(|&a, &b| a.into().checked_add(1) == Some(b.into()));
    let ends = runs.filter_map(|run| Some(((*run.first()?).into(), (*run.last()?).into())));
    let words = ends.map(|(first, last)| if first < last { format!("{first}-{last}") } else { first.to_string() });
    words.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: [u32; 4] = [0, 1, 2, 3];

    #[test]
    fn numactl_words() {
        assert_eq!(parse("0-3", &FOUR).unwrap(), FOUR);
        assert_eq!(parse("all", &FOUR).unwrap(), FOUR);
        assert_eq!(parse("!2", &FOUR).unwrap(), [0, 1, 3]);
        assert_eq!(parse("!0-1", &FOUR).unwrap(), [2, 3]);
        assert_eq!(parse(" 3, 1 ", &FOUR).unwrap(), [3, 1], "the order is the user's");
        assert_eq!(parse("0-1,8", &[0, 1, 8]).unwrap(), [0, 1, 8]);
    }

    #[test]
    fn words_relative_to_the_processs_own_nodes() {
        let rank = Available { existing: &FOUR, own: &[2, 3] };
        let named = |text: &str| parse(text, rank);
        assert_eq!(named("all").unwrap(), [2, 3]);
        assert_eq!(named("+0").unwrap(), [2]);
        assert_eq!(named("+1,0").unwrap(), [3, 2]);
        assert_eq!(named("!3").unwrap(), [2]);
        assert_eq!(named("!+0").unwrap(), [3]);
        assert_eq!(named("0-3").unwrap(), FOUR, "plain numbers are not relative");
        assert!(named("+2").unwrap_err().to_string().contains("+2 is beyond the 2 nodes of this process, 2-3"));
        assert!(parse("+", &FOUR).is_err() && check_syntax("+1-x").is_err());
        assert!(check_syntax("+0-1").is_ok() && check_syntax("!+0").is_ok());
    }

    #[test]
    fn errors_name_the_word_and_the_nodes_that_exist() {
        assert!(parse("0-x", &FOUR).unwrap_err().to_string().contains("`0-x`"));
        assert!(parse("", &FOUR).is_err());
        assert!(parse("3-1", &FOUR).is_err());
        assert!(parse("0-4000000000", &FOUR).is_err(), "no loop over four billion nodes");
        assert!(parse("1,1", &FOUR).unwrap_err().to_string().contains("twice"));
        let unknown = parse("0-7", &FOUR).unwrap_err().to_string();
        assert!(unknown.contains("node 4 does not exist") && unknown.contains("0-3"), "{unknown}");
        assert!(parse("!9", &FOUR).is_err());
        assert!(parse("!0", &[0]).unwrap_err().to_string().contains("leaves no node"));
        assert!(parse("!all", &FOUR).is_err());
    }

    #[test]
    fn lists_print_as_they_are_read() {
        assert_eq!(format_runs(&[1_u64, 2, 3, 7, 9, 10]), "1-3,7,9-10");
        assert_eq!((format_runs::<u64>(&[]), format(&[])), (String::new(), "none".to_owned()));
        for text in ["0-3", "0,2,5-7", "3,1", "0"] {
            assert_eq!(format(&numbers(text, MAX_NODE).unwrap()), text);
        }
    }
}
