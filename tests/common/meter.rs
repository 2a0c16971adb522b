//! What the lab's meter counted (`tests/lab/meter`): lines fetched from memory by node of the CPU and of the memory.

use std::ops::Range;
use std::path::Path;

use serde::Deserialize;

/// Lines by node of the CPU (row) and node of the memory (column).
pub type Matrix = Vec<Vec<u64>>;

/// One metered run of a program.
#[derive(Debug, Deserialize)]
pub struct Metered {
    pub name: String,
    /// The run reached its end, and the function that its counting began with.
    pub complete: bool,
    /// What is added to an address of the program's file to have that of the process.
    pub load_bias: u64,
    pub loads: u64,
    pub stores: u64,
    pub instructions: u64,
    /// Modelled time, ns.
    pub time_ns: f64,
    pub by_loads: Matrix,
    pub by_stores: Matrix,
    /// Lines from a cache of another node, by node of the CPU and of that cache.
    pub forwarded: Matrix,
    /// Bytes of a page.
    pub grain: u64,
    /// Pages that were accessed, in order of address.
    pub pages: Vec<Page>,
}

/// What was counted of a page.
#[derive(Debug, Deserialize)]
pub struct Page {
    pub address: u64,
    pub loads: u64,
    pub stores: u64,
    /// Lines whose page was on the CPU's node.
    pub local: u64,
    /// Lines by node of the CPU.
    pub lines_by: Vec<u64>,
    /// Lines by node of the memory.
    pub lines_at: Vec<u64>,
}

/// Sums over some pages.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Sum {
    pub accesses: u64,
    pub lines: u64,
    pub local: u64,
    pub at: Vec<u64>,
    /// Lines that would be local if each page were on the node that fetches most of it.
    pub best_local: u64,
}

impl Sum {
    pub fn local_share(&self) -> f64 {
        share(self.local, self.lines)
    }

    /// Largest share of the lines that one node's memory gives.
    pub fn busiest(&self) -> f64 {
        share(self.at.iter().copied().max().unwrap_or(0), self.lines)
    }

    /// Local share of the best page map for locality alone.
    pub fn best_local_share(&self) -> f64 {
        share(self.best_local, self.lines)
    }
}

fn share(part: u64, of: u64) -> f64 {
    part as f64 / of.max(1) as f64
}

impl Metered {
    /// All runs of a file of the meter, in order; panics when the meter failed.
    pub fn read(path: &Path) -> Vec<Metered> {
        let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        text.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l:.300}"))).collect()
    }

    /// Lines fetched from memory, for loads and for stores.
    pub fn lines(&self) -> Matrix {
        let add = |(a, b): (&Vec<u64>, &Vec<u64>)| a.iter().zip(b).map(|(a, b)| a + b).collect();
        self.by_loads.iter().zip(&self.by_stores).map(add).collect()
    }

    /// Everything that was counted.
    pub fn all(&self) -> Sum {
        self.range(0..u64::MAX)
    }

    /// What was counted of the pages that begin in an address range; part of a page counts by its share of bytes.
    pub fn range(&self, range: Range<u64>) -> Sum {
        let nodes = self.by_loads.len();
        let mut sum = Sum { at: vec![0; nodes], ..Sum::default() };
        for page in &self.pages {
            let from = page.address.max(range.start);
            let to = (page.address + self.grain).min(range.end);
            if from >= to {
                continue;
            }
            let part = |n: u64| n * (to - from) / self.grain;
            sum.accesses += part(page.loads + page.stores);
            sum.lines += part(page.lines_by.iter().sum());
            sum.local += part(page.local);
            sum.best_local += part(page.lines_by.iter().copied().max().unwrap_or(0));
            sum.at.iter_mut().zip(&page.lines_at).for_each(|(s, n)| *s += part(*n));
        }
        sum
    }
}

/// The run of that name.
pub fn named<'a>(runs: &'a [Metered], name: &str) -> &'a Metered {
    let run = runs.iter().find(|r| r.name == name);
    run.unwrap_or_else(|| panic!("no run {name} among {:?}", runs.iter().map(|r| &r.name).collect::<Vec<_>>()))
}

/// A line `object NAME ADDRESS BYTES` of a program's output, as an address range.
pub fn printed(text: &str, name: &str) -> Range<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix("object ")?.strip_prefix(name)?.strip_prefix(' '));
    let words = line.unwrap_or_else(|| panic!("no object {name} in {text}")).split(' ');
    let numbers: Vec<u64> = words.map(|w| w.parse().expect("a number")).collect();
    numbers[0]..numbers[0] + numbers[1]
}
