//! CPUs to which the OpenMP runtime will bind threads, computed from the environment variables of the user.
//!
//! The rules are those of GNU libgomp (team.c, env.c): `OMP_PLACES` takes precedence over `GOMP_CPU_AFFINITY`; a list
//! of places without `OMP_PROC_BIND` implies `OMP_PROC_BIND=true`, which means `close`. Values that only the runtime
//! can expand, such as `cores`, give `None`.

use crate::cpus::MAX_CPU;
use crate::nodes::numbers;

/// CPUs of each of `threads` threads; `variable` returns the value of an environment variable. `None` when the
/// variables do not determine the CPUs.
pub fn of_threads(threads: u32, variable: impl Fn(&str) -> Option<String>) -> Option<Vec<Vec<u32>>> {
    let bind = variable("OMP_PROC_BIND").map(|b| b.trim().to_ascii_lowercase());
    let bind = bind.as_deref().unwrap_or("true");
    if bind == "false" {
        return None;
    }
    if let Some(text) = variable("OMP_PLACES") {
        let places = places(&text).filter(|_| text.trim().starts_with('{'))?;
        let count = places.len() as u32;
        let index = |t: u32| match bind {
            "master" | "primary" => Some(0),
            "true" | "close" | "spread" if threads.is_multiple_of(count) => Some(t / (threads / count)),
            "true" | "close" if threads < count => Some(t),
            "spread" if count.is_multiple_of(threads) => Some(t * (count / threads)),
            _ => None,
        };
        return (0..threads).map(|t| places.get(index(t)? as usize).cloned()).collect();
    }
    let cpus = places(&variable("GOMP_CPU_AFFINITY").filter(|t| !t.trim().starts_with('{'))?)?;
    Some(cpus.iter().cycle().take(threads as usize).cloned().collect())
}

/// The CPUs of each place of `{0,1},{2,3}`, `{0:4},{4:4}` (start:length), `0-3 4-7` or `0 2 4` (GOMP_CPU_AFFINITY:
/// one CPU per place). `None` for abstract names, strides and multipliers, which only the OpenMP runtime can expand.
fn places(text: &str) -> Option<Vec<Vec<u32>>> {
    let text = text.trim();
    if text.starts_with('{') {
        let inner = text.strip_prefix('{')?.strip_suffix('}')?;
        return inner.split('}').enumerate().map(|(i, place)| place_of(i, place)).collect();
    }
    let mut lists = Vec::new();
    for word in text.split([' ', ',']).filter(|w| !w.is_empty()) {
        let cpus = numbers(word, MAX_CPU).ok()?;
        lists.extend(cpus.into_iter().map(|c| vec![c]));
    }
    (!lists.is_empty()).then_some(lists)
}

/// CPUs of place `i`, from the text between two closing braces: `0,1` for the first place, `,{2,3` for the others.
fn place_of(i: usize, text: &str) -> Option<Vec<u32>> {
    let text = if i == 0 { text } else { text.trim().strip_prefix(',')?.trim().strip_prefix('{')? };
    if let Some((start, len)) = text.split_once(':') {
        let (start, len): (u32, u32) = (start.trim().parse().ok()?, len.trim().parse().ok()?);
        let end = start.checked_add(len).filter(|e| *e <= MAX_CPU + 1 && len > 0)?;
        return Some((start..end).collect());
    }
    text.split(',').map(|c| c.trim().parse().ok().filter(|c| *c <= MAX_CPU)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_on_places() {
        let of = |threads, set: &[(&str, &str)]| {
            of_threads(threads, |name| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
        };
        let lists = |l: &[u32]| Some(l.iter().map(|c| vec![*c]).collect::<Vec<_>>());
        let four = ("OMP_PLACES", "{0},{2},{4},{6}");
        assert_eq!(of(4, &[four]), lists(&[0, 2, 4, 6]));
        assert_eq!(of(2, &[four]), lists(&[0, 2]));
        assert_eq!(of(2, &[four, ("OMP_PROC_BIND", "spread")]), lists(&[0, 4]));
        assert_eq!(of(8, &[four, ("OMP_PROC_BIND", "close")]), lists(&[0, 0, 2, 2, 4, 4, 6, 6]));
        assert_eq!(of(2, &[four, ("OMP_PROC_BIND", "master")]), lists(&[0, 0]));
        assert_eq!(of(6, &[four]), None, "only the runtime knows how it distributes six threads over four places");
        assert_eq!(of(4, &[four, ("OMP_PROC_BIND", "FALSE")]), None);
        assert_eq!(of(4, &[("OMP_PLACES", "cores")]), None);
        assert_eq!(of(4, &[("OMP_PROC_BIND", "true")]), None);
        assert_eq!(of(3, &[("GOMP_CPU_AFFINITY", "3 1")]), lists(&[3, 1, 3]));
    }

    #[test]
    fn places_that_are_plain_lists() {
        assert_eq!(places("{0,1},{2,3}"), Some(vec![vec![0, 1], vec![2, 3]]));
        assert_eq!(places("{0:2}, {4:2}"), Some(vec![vec![0, 1], vec![4, 5]]));
        assert_eq!(places("0-1 6"), Some(vec![vec![0], vec![1], vec![6]]));
        assert_eq!(places("3"), Some(vec![vec![3]]));
        for other in ["cores", "", "{0:4}:2:4", "{0:4:2}", "0-15:2", "{0,1", "{0},2", "{}", "!{0}"] {
            assert_eq!(places(other), None, "{other}");
        }
    }
}
