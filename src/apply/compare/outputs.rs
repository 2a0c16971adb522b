//! Whether the program printed the same under all policies: placement must not change what a program prints.
//!
//! Programs that print times or process numbers differ from run to run under any policy; the runs of
//! one policy show that.

use super::timed_run::Output;

/// Characters of a differing line that are shown.
const SHOWN: usize = 60;

/// What each policy's runs printed.
#[derive(Debug)]
pub struct Outputs {
    reference: Option<Output>,
    policies: Vec<Seen>,
}

#[derive(Debug, Clone, Default)]
struct Seen {
    runs: usize,
    /// Runs whose output is not the reference's, and the first of them.
    other: usize,
    example: Option<Output>,
}

impl Outputs {
    /// For so many policies; the first run of the first is the reference.
    pub fn new(policies: usize) -> Outputs {
        Outputs { reference: None, policies: vec![Seen::default(); policies] }
    }

    /// Takes the output of a run.
    pub fn add(&mut self, policy: usize, output: &Output) {
        let reference = self.reference.get_or_insert_with(|| output.clone());
        let Some(seen) = self.policies.get_mut(policy) else { return };
        seen.runs += 1;
        if output != reference {
            seen.other += 1;
            seen.example.get_or_insert_with(|| output.clone());
        }
    }

    /// What the reader must know; `names` of the policies, in order.
    pub fn notes(&self, names: &[&str]) -> Vec<String> {
        let Some(reference) = &self.reference else { return Vec::new() };
        let example = |seen: &Seen| seen.example.as_ref().map(|e| first_difference(reference, e)).unwrap_or_default();
        let Some((first, others)) = self.policies.split_first() else { return Vec::new() };
        if first.other > 0 {
            return vec![format!(
                "the program prints something else in every run, also under {} ({}): the outputs could not be compared",
                names.first().unwrap_or(&""),
                example(first)
            )];
        }
        let differing = others.iter().zip(names.iter().skip(1)).filter(|(seen, _)| seen.other > 0);
        differing
            .map(|(seen, name)| {
                format!(
                    "the output under {name} is not that of {} in {} of {} runs ({}): if it is no time or address, \
                     compare by hand, as placement must not change what a program prints",
                    names.first().unwrap_or(&""),
                    seen.other,
                    seen.runs,
                    example(seen)
                )
            })
            .collect()
    }
}

fn first_difference(a: &Output, b: &Output) -> String {
    let (mut left, mut right) = (a.head.split(|c| *c == b'\n'), b.head.split(|c| *c == b'\n'));
    let mut line = 1;
    loop {
        match (left.next(), right.next()) {
            (Some(x), Some(y)) if x == y => line += 1,
            (None, None) => return format!("{} and {} bytes, the same beginning", a.bytes, b.bytes),
            (x, y) => return format!("line {line}: {} / {}", shown(x), shown(y)),
        }
    }
}

fn shown(line: Option<&[u8]>) -> String {
    let Some(line) = line else { return "nothing".to_owned() };
    let text: String =
        String::from_utf8_lossy(line).chars().map(|c| if c.is_control() { '?' } else { c }).take(SHOWN).collect();
    format!("\"{text}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out(text: &str) -> Output {
        Output {
            digest: text.len() as u64 + 1000 * text.bytes().map(u64::from).sum::<u64>(),
            bytes: text.len() as u64,
            head: text.into(),
        }
    }

    #[test]
    fn the_same_everywhere_needs_no_words() {
        let mut o = Outputs::new(2);
        for policy in [0, 1, 1, 0] {
            o.add(policy, &out("sum 27\n"));
        }
        assert!(o.notes(&["first-touch", "interleave"]).is_empty());
        assert!(Outputs::new(0).notes(&[]).is_empty());
    }

    #[test]
    fn times_in_the_output_are_told_from_wrong_results() {
        let mut o = Outputs::new(2);
        o.add(0, &out("sum 27\ntime 1.0\n"));
        o.add(1, &out("sum 27\ntime 1.1\n"));
        o.add(0, &out("sum 27\ntime 1.2\n"));
        let notes = o.notes(&["first-touch", "interleave"]);
        assert_eq!(notes.len(), 1);
        assert!(
            notes[0].contains("every run") && notes[0].contains("line 2: \"time 1.0\" / \"time 1.2\""),
            "{notes:?}"
        );

        let mut o = Outputs::new(2);
        for (policy, text) in [(0, "sum 27\n"), (1, "sum 28\n"), (0, "sum 27\n"), (1, "sum 27\n")] {
            o.add(policy, &out(text));
        }
        let notes = o.notes(&["first-touch", "policy.toml"]);
        assert!(notes[0].contains("under policy.toml") && notes[0].contains("1 of 2 runs"), "{notes:?}");
    }
}
