//! The report of a placed run: the counts of the apply preload for each rule and each phase.
//!
//! The preload writes the report as JSON when the program ends ([`PlacementReport::to_json`]); the command line reads
//! it with serde. The macro `record` makes the writer and the reader from one declaration of the fields, so that the
//! preload does not link a JSON library.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use numamma_kernel::policy::MAX_NODES;
use serde::{Deserialize, Serialize};

use crate::nodes;

/// A value that can be written as JSON.
trait ToJson {
    fn write(&self, out: &mut String);
}

/// Declares a struct whose fields are written as JSON by [`ToJson`] and read by serde under the same names.
macro_rules! record {
    ($(#[$about:meta])* $record:ident { $($(#[$about_field:meta])* $field:ident: $type:ty,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
        pub struct $record {
            $($(#[$about_field])* pub $field: $type,)+
        }

        impl ToJson for $record {
            fn write(&self, out: &mut String) {
                let fields: &[(&str, &dyn ToJson)] = &[$((stringify!($field), &self.$field)),+];
                for (i, (name, value)) in fields.iter().enumerate() {
                    let _ = write!(out, "{}\"{name}\":", if i == 0 { '{' } else { ',' });
                    value.write(out);
                }
                out.push('}');
            }
        }
    };
}

record! {
    /// Report of one process.
    PlacementReport {
        /// Id of the process.
        pid: u32,
        /// Path of the program that was placed.
        program: String,
        /// Why the preload placed nothing; none when it placed objects.
        problem: Option<String>,
        /// Nodes that `all` means in a node list of this process: `0-3`.
        #[serde(default)]
        all: String,
        /// CPUs that the process was given when it started.
        #[serde(default)]
        cpus: String,
        /// Nodes to which the process's memory was restricted when it started; empty when it was not.
        #[serde(default)]
        bound_memory: String,
        /// Counts of each rule of the policy, in its order.
        objects: Vec<ObjectReport>,
        /// Counts of each phase of the policy, in its order.
        #[serde(default)]
        phases: Vec<PhaseReport>,
    }
}

record! {
    /// Counts of one rule, summed over its instances.
    ObjectReport {
        /// Title of the rule: [`crate::policy::ObjectRule::title`].
        name: String,
        /// Distribution, as in the policy file.
        policy: String,
        /// Nodes, as in the policy file.
        nodes: String,
        /// Objects found: globals with this name, allocations from this call site.
        instances: u64,
        /// Instances too small to be placed (less than a whole page).
        too_small: u64,
        /// Instances that could not be placed; the kernel chose the nodes of their pages.
        unplaced: u64,
        /// Bytes of all instances.
        bytes: u64,
        /// Whole pages that have a planned node.
        pages_planned: u64,
        /// Of these, pages that existed when they were checked (touched and not swapped out).
        pages_present: u64,
        /// Of the present pages, those on their planned node.
        pages_on_plan: u64,
        /// Of the present pages, those on another node.
        pages_off_plan: u64,
        /// Of the present pages, those that had not been moved to their place in the current phase when the program
        /// ended or freed them.
        #[serde(default)]
        pages_waiting: u64,
        /// Block size in use, bytes; 0 without blocks.
        block: u64,
        /// Instances that the kernel refused to place.
        #[serde(default)]
        refused: u64,
        /// The errno of the last instance that the kernel refused; 0 when it refused none.
        #[serde(default)]
        error: u64,
        /// Instances that were not placed because the mapping budget was used up.
        #[serde(default)]
        over_budget: u64,
        /// Instances that were not placed because memory of their size came and went too often.
        #[serde(default)]
        too_brief: u64,
        /// Instances that cannot have a memory policy: read-only data, files, shared memory.
        #[serde(default)]
        out_of_reach: u64,
        /// Calls of mbind for the rule.
        #[serde(default)]
        mbind_calls: u64,
        /// Time spent placing, ns.
        #[serde(default)]
        place_ns: u64,
        /// Planned pages that were swapped out.
        #[serde(default)]
        pages_swapped: u64,
        /// Of the present pages, those on each node, by the number of the node; nodes without pages are left out.
        #[serde(default)]
        pages_by_node: BTreeMap<String, u64>,
        /// Pages off plan by [`crate::reason::Reason::word`]; reasons without pages are left out.
        #[serde(default)]
        reasons: BTreeMap<String, u64>,
        /// Nodes that were full when pages planned there spilled to other nodes, as a node list.
        #[serde(default)]
        full_nodes: String,
        /// Title of the first rule that places alike and whose small objects share pages with those of this rule; empty
        /// when there is none before. A page counts for the rule that needed it first.
        #[serde(default)]
        shares_pages_of: String,
    }
}

record! {
    /// Counts of one phase of the policy, summed over the times it began.
    PhaseReport {
        /// Name, as in the policy file.
        name: String,
        /// Number of times the phase began.
        times: u64,
        /// Seconds from the program's start to the first begin of the phase; none when it never began.
        begun: Option<f64>,
        /// What began the phase last: `time`, `allocation` or `call`.
        how: Option<String>,
        /// Pages of 4 KiB that were moved to another node for the phase.
        pages_moved: u64,
        /// Pages of 4 KiB that the kernel did not move as the phase requires.
        pages_not_moved: u64,
        /// Bytes of the pages that were moved.
        bytes: u64,
        /// Seconds that the moving thread worked for the phase.
        worked: f64,
        /// Seconds from each begin of the phase until all its pages were moved, including pauses of the moving thread.
        took: f64,
        /// Whether all pages were moved before the program ended or another phase began.
        finished: bool,
    }
}

impl PlacementReport {
    /// The report as JSON, one line per rule and phase.
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out.push('\n');
        out
    }
}

impl ObjectReport {
    /// Adds the counts of the same rule in another process.
    pub fn add(&mut self, other: &ObjectReport) {
        for (sum, more) in [
            (&mut self.instances, other.instances),
            (&mut self.too_small, other.too_small),
            (&mut self.unplaced, other.unplaced),
            (&mut self.bytes, other.bytes),
            (&mut self.pages_planned, other.pages_planned),
            (&mut self.pages_present, other.pages_present),
            (&mut self.pages_on_plan, other.pages_on_plan),
            (&mut self.pages_off_plan, other.pages_off_plan),
            (&mut self.pages_waiting, other.pages_waiting),
            (&mut self.pages_swapped, other.pages_swapped),
            (&mut self.refused, other.refused),
            (&mut self.over_budget, other.over_budget),
            (&mut self.too_brief, other.too_brief),
            (&mut self.out_of_reach, other.out_of_reach),
            (&mut self.mbind_calls, other.mbind_calls),
            (&mut self.place_ns, other.place_ns),
        ] {
            *sum += more;
        }
        for (sums, more) in [(&mut self.reasons, &other.reasons), (&mut self.pages_by_node, &other.pages_by_node)] {
            more.iter().for_each(|(key, pages)| *sums.entry(key.clone()).or_default() += pages);
        }
        self.full_nodes = either(&self.full_nodes, &other.full_nodes);
        if self.shares_pages_of.is_empty() {
            self.shares_pages_of.clone_from(&other.shares_pages_of);
        }
        self.error = if other.error == 0 { self.error } else { other.error };
        self.block = self.block.max(other.block);
    }
}

/// The node list of all nodes of two lists of numbers.
fn either(one: &str, other: &str) -> String {
    let numbers = |list: &str| nodes::numbers(list, MAX_NODES as u32).unwrap_or_default();
    let mut both = [numbers(one), numbers(other)].concat();
    both.sort_unstable();
    both.dedup();
    nodes::format_runs(&both)
}

impl PhaseReport {
    /// Adds the counts of the same phase in another process. `begun` is the earliest, `took` the longest of both.
    pub fn add(&mut self, other: &PhaseReport) {
        self.times += other.times;
        self.begun = match (self.begun, other.begun) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.how = self.how.take().or_else(|| other.how.clone());
        self.pages_moved += other.pages_moved;
        self.pages_not_moved += other.pages_not_moved;
        self.bytes += other.bytes;
        self.worked += other.worked;
        self.took = self.took.max(other.took);
        self.finished &= other.finished;
    }
}

// Writing to a String cannot fail, so the results of `write!` in this file are ignored.

impl ToJson for u64 {
    fn write(&self, out: &mut String) {
        let _ = write!(out, "{self}");
    }
}

impl ToJson for u32 {
    fn write(&self, out: &mut String) {
        u64::from(*self).write(out);
    }
}

/// JSON has neither infinity nor NaN. The fields are seconds computed from nanoseconds, which are always finite.
impl ToJson for f64 {
    fn write(&self, out: &mut String) {
        let _ = write!(out, "{self}");
    }
}

impl ToJson for bool {
    fn write(&self, out: &mut String) {
        let _ = write!(out, "{self}");
    }
}

impl ToJson for String {
    fn write(&self, out: &mut String) {
        out.push('"');
        for c in self.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                c if (c as u32) < 0x20 => {
                    let _ = write!(out, "\\u{:04x}", c as u32);
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

impl<T: ToJson> ToJson for Option<T> {
    fn write(&self, out: &mut String) {
        match self {
            Some(value) => value.write(out),
            None => out.push_str("null"),
        }
    }
}

impl<T: ToJson> ToJson for Vec<T> {
    fn write(&self, out: &mut String) {
        out.push('[');
        for (i, value) in self.iter().enumerate() {
            out.push_str(if i == 0 { "\n  " } else { ",\n  " });
            value.write(out);
        }
        out.push_str("\n]");
    }
}

impl ToJson for BTreeMap<String, u64> {
    fn write(&self, out: &mut String) {
        out.push('{');
        for (i, (key, value)) in self.iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            key.write(out);
            out.push(':');
            value.write(out);
        }
        out.push('}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let object = ObjectReport {
            name: "a\"b\\c\nd, instances 1-4".into(),
            policy: "bind".into(),
            nodes: "0-3".into(),
            instances: u64::MAX,
            pages_off_plan: 3,
            pages_by_node: [("0".to_owned(), 5), ("12".to_owned(), 7)].into(),
            reasons: [("full".to_owned(), 2), ("moved".to_owned(), 1)].into(),
            ..ObjectReport::default()
        };
        let phase = PhaseReport {
            name: "größer".into(),
            begun: Some(1.234_567_891),
            how: Some("call".into()),
            worked: 1e-9,
            took: 12_345_678.5,
            finished: true,
            ..PhaseReport::default()
        };
        let full = PlacementReport {
            pid: 7,
            program: "/bin/true".into(),
            problem: None,
            all: "0-3".into(),
            cpus: "0-7".into(),
            bound_memory: String::new(),
            objects: vec![object.clone(), ObjectReport::default()],
            phases: vec![phase, PhaseReport::default()],
        };
        let refused = PlacementReport { problem: Some("cannot read the policy".into()), ..PlacementReport::default() };
        for report in [full, refused] {
            assert_eq!(serde_json::from_str::<PlacementReport>(&report.to_json()).unwrap(), report);
        }
        // `verify --json` writes the record with serde: names and values must be the same.
        let mut text = String::new();
        object.write(&mut text);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), serde_json::to_value(&object).unwrap());
    }

    #[test]
    fn full_nodes_of_two_processes_are_those_of_both() {
        let of = |full_nodes: &str| ObjectReport { full_nodes: full_nodes.into(), ..ObjectReport::default() };
        let mut sum = ObjectReport::default();
        for (more, all) in [("", ""), ("3", "3"), ("", "3"), ("1-2,5", "1-3,5"), ("3", "1-3,5")] {
            sum.add(&of(more));
            assert_eq!(sum.full_nodes, all);
        }
    }

    #[test]
    fn strings_are_escaped() {
        let mut out = String::new();
        "a\"b\\c\nd".to_owned().write(&mut out);
        assert_eq!(out, "\"a\\\"b\\\\c\\u000ad\"");
    }
}
