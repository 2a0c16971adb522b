//! CPU lists in numactl's notation, for explicit thread binding: `0-3,8`, `all`, `!0`, `+0-3`.
//!
//! Numbers without `+` are the kernel's CPU numbers; `+n` is the n-th of the CPUs that the process may use, `all`
//! means all of them and `!list` all of them but the listed ones.

use numamma_kernel::affinity::MAX_CPUS;

use crate::nodes::{self, Words};
use crate::unusable::Unusable;

/// Largest CPU number a list may hold.
pub(crate) const MAX_CPU: u32 = MAX_CPUS as u32 - 1;

/// The CPUs that `text` names, ascending; `usable` are the CPUs that the process may use, ascending.
///
/// # Errors
/// A text that is not a list, a CPU that the process may not use, or a list that selects no CPU.
pub fn parse(text: &str, usable: &[u32]) -> Result<Vec<u32>, Unusable> {
    let Words { negated, relative, numbers } = words(text)?;
    let numbers =
        numbers.unwrap_or_else(|| if relative { (0..usable.len() as u32).collect() } else { usable.to_vec() });
    let of = |n: u32| if relative { usable.get(n as usize).copied() } else { usable.contains(&n).then_some(n) };
    let unusable = |cpu: u32| {
        let usable = nodes::format(usable);
        format!("CPU {cpu} is offline or not allowed for this process, which may use CPUs {usable}")
    };
    let named = numbers.into_iter().map(|n| of(n).ok_or_else(|| unusable(n))).collect::<Result<Vec<_>, _>>()?;
    let found: Vec<u32> = usable.iter().copied().filter(|c| named.contains(c) != negated).collect();
    if found.is_empty() { Err(format!("`{text}` selects no CPU").into()) } else { Ok(found) }
}

/// Checks the syntax of a list, for any machine.
///
/// # Errors
/// A text that is not a list.
pub fn check_syntax(text: &str) -> Result<(), Unusable> {
    words(text).map(drop)
}

/// What a CPU list is.
const LIST: &str = "a CPU list; write numbers and ranges such as \"0-3,8\", each once, or \"all\", \"!0\" or \"+0-3\"";

fn words(text: &str) -> Result<Words, Unusable> {
    nodes::words(text, MAX_CPU).map_err(|_| Unusable::form(text, LIST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numactl_words() {
        let usable = [2, 3, 6, 7];
        let named = |text: &str| parse(text, &usable);
        assert_eq!(named("2-3").unwrap(), [2, 3]);
        assert_eq!(named("all").unwrap(), usable);
        assert_eq!(named("!2").unwrap(), [3, 6, 7]);
        assert_eq!(named("+0,2").unwrap(), [2, 6]);
        assert_eq!(named("!+0").unwrap(), [3, 6, 7]);
        assert!(
            named("0-3")
                .unwrap_err()
                .to_string()
                .contains("CPU 0 is offline or not allowed for this process, which may use")
        );
        assert!(named("+4").is_err() && named("!all").is_err() && named("").is_err() && named("3,3").is_err());
        assert!(check_syntax("0-9000").is_err() && check_syntax("8000").is_ok() && check_syntax("0-x").is_err());
    }
}
