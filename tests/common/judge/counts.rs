//! The tables that `numamma export` writes, as accesses by page and thread.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Accesses of a profile.
#[derive(Debug, Default)]
pub struct Counts {
    /// By name of the whole object.
    pub objects: BTreeMap<String, Object>,
    /// Of a thread: its number among those that work, and how many these are.
    pub workers: HashMap<u32, (u32, u32)>,
}

/// An object with all its parts.
#[derive(Debug, Default)]
pub struct Object {
    /// Linkage name of a variable.
    pub linkage: String,
    /// Bytes of the largest allocation.
    pub size: u64,
    /// By allocation and page.
    pub pages: BTreeMap<(u64, u64), Page>,
}

/// A page of an allocation.
#[derive(Debug, Default, Clone)]
pub struct Page {
    /// Accesses by thread.
    pub by_thread: BTreeMap<u32, u64>,
    /// The thread that touched it first.
    pub first: Option<u32>,
}

impl Page {
    pub fn total(&self) -> u64 {
        self.by_thread.values().sum()
    }

    pub fn add(&mut self, other: &Page) {
        other.by_thread.iter().for_each(|(thread, n)| *self.by_thread.entry(*thread).or_default() += n);
        self.first = self.first.or(other.first);
    }

    /// Share of a thread of the accesses.
    pub fn share(&self, thread: u32) -> f64 {
        self.by_thread.get(&thread).map_or(0.0, |n| *n as f64 / self.total().max(1) as f64)
    }
}

impl Object {
    /// The pages of all allocations on top of each other.
    pub fn by_page(&self) -> BTreeMap<u64, Page> {
        let mut pages = BTreeMap::<u64, Page>::new();
        self.pages.iter().for_each(|((_, number), page)| pages.entry(*number).or_default().add(page));
        pages
    }
}

/// Rows of a table, by the names of its columns.
fn rows(dir: &Path, table: &str) -> Vec<HashMap<String, String>> {
    let path = dir.join(table).with_extension("csv");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut lines = text.lines();
    let names = fields(lines.next().expect("names of columns"));
    lines.map(|line| names.iter().cloned().zip(fields(line)).collect()).collect()
}

/// Fields of a line: those with commas or quotes stand in quotes (RFC 4180).
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut quoted, mut field) = (Vec::new(), false, String::new());
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(std::mem::take(&mut field)),
            _ => field.push(c),
        }
    }
    fields.push(field);
    fields
}

impl Counts {
    /// What `numamma export -f csv -o DIR` wrote.
    pub fn read(dir: &Path) -> Counts {
        let mut counts = Counts::default();
        let mut wholes = HashMap::new();
        for row in rows(dir, "objects") {
            let is_part = !row["parent"].is_empty();
            let name = row[if is_part { "parent" } else { "name" }].clone();
            let offset: u64 = row["offset_bytes"].parse().unwrap_or(0);
            let size: u64 = row["size_bytes"].parse().expect("a size");
            let object = counts.objects.entry(name.clone()).or_default();
            object.linkage.clone_from(&row["linkage"]);
            object.size = object.size.max(offset + size);
            wholes.insert((row["object"].clone(), row["part"].clone()), (name, offset / 4096));
        }
        for row in rows(dir, "tallies") {
            let number = |column: &str| row[column].parse::<u64>().ok();
            let (Some(instance), Some(page)) = (number("instance"), number("page")) else { continue };
            let (name, first_page) = &wholes[&(row["object"].clone(), row["part"].clone())];
            let object = counts.objects.get_mut(name).expect("it was entered");
            let page = object.pages.entry((instance, first_page + page)).or_default();
            let thread = number("thread").expect("a thread") as u32;
            page.first = number("first_thread").map(|t| t as u32);
            *page.by_thread.entry(thread).or_default() += number("reads").unwrap_or(0) + number("writes").unwrap_or(0);
        }
        for row in rows(dir, "threads") {
            let number = |column: &str| row[column].parse::<u32>().ok();
            if let (Some(thread), Some(worker), Some(workers)) = (number("thread"), number("worker"), number("workers"))
            {
                counts.workers.insert(thread, (worker, workers));
            }
        }
        counts
    }
}
