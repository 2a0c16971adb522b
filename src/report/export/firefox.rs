//! The processed profile format of the Firefox Profiler (<https://profiler.firefox.com>), version [`VERSION`]; newer
//! ones of the profiler read it, too.
//!
//! A thread has a sample for each stack and time slot, in the middle of the slot, weighted by CPU time.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::source::Source;
use super::stacks::{Kind, Place, Sample, Stacks};
use crate::profile::records::ThreadId;
use crate::profile::summary::TIME_SLOTS;

/// `preprocessedProfileVersion`: the last one in which every thread has strings of its own, with whole times.
const VERSION: u32 = 49;
/// Names and colours by [`Kind`].
const CATEGORIES: [(&str, &str); 3] = [("Allocation", "blue"), ("Object", "orange"), ("Access", "green")];

/// Threads of several files.
#[derive(Debug, Default)]
pub(super) struct Firefox {
    threads: Vec<Value>,
    started_unix: Option<u64>,
    interval_ms: f64,
}

impl Firefox {
    /// Adds the threads of a profile.
    pub fn add(&mut self, source: &Source) {
        let (stacks, header) = (Stacks::of(source), &source.view.summary.header);
        let started = self.started_unix.map_or(header.started_unix, |s| s.min(header.started_unix));
        self.started_unix = Some(started);
        self.interval_ms = ms(source.view.summary.duration_ns() / u64::from(TIME_SLOTS));
        for samples in stacks.samples.chunk_by(|a, b| a.thread == b.thread) {
            self.threads.push(thread(source, &stacks, samples));
        }
    }

    /// The document.
    pub fn value(self, name: &str) -> Value {
        let category = |(name, color)| json!({ "name": name, "color": color, "subcategories": ["Other"] });
        json!({
            "meta": {
                "version": 24,
                "preprocessedProfileVersion": VERSION,
                "product": name,
                "importedFrom": concat!("numamma ", env!("CARGO_PKG_VERSION")),
                "startTime": self.started_unix.unwrap_or(0) * 1000,
                "interval": self.interval_ms,
                "processType": 0,
                "stackwalk": 1,
                "debug": false,
                "symbolicated": true,
                "usesOnlyOneStackType": true,
                "sourceCodeIsNotOnSearchfox": true,
                "categories": CATEGORIES.map(category),
                "markerSchema": [],
                "pausedRanges": [],
                "extensions": { "length": 0, "baseURL": [], "id": [], "name": [] },
            },
            "libs": [],
            "pages": [],
            "counters": [],
            "profilerOverhead": [],
            "threads": self.threads,
        })
    }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn category(kind: Kind) -> usize {
    match kind {
        Kind::Allocation => 0,
        Kind::Object => 1,
        Kind::Code => 2,
    }
}

fn thread(source: &Source, stacks: &Stacks, samples: &[Sample]) -> Value {
    let id = samples[0].thread;
    let summary = source.view.summary;
    let own = summary.threads.get(id as usize);
    let (start, end) = own.map_or((0, None), |t| (t.start_ns, t.end_ns));
    let mut tables = Tables::default();
    let of_samples: Vec<Option<usize>> = samples.iter().map(|s| tables.stack(stacks, s.stack)).collect();
    let slot_ns = summary.duration_ns() / u64::from(TIME_SLOTS);
    // What is in no slot has the time of the first that is in one.
    let time = |s: &Sample| ms(s.slot.map_or(0, |slot| u64::from(slot) * slot_ns + slot_ns / 2));
    let none = |n: usize| vec![Value::Null; n];
    let count = samples.len();
    let mut out = json!({
        "name": source.thread_name(id),
        "processName": summary.header.program.path.rsplit('/').next().map(|n| numamma_kernel::terminal::line(n)),
        "processType": "default",
        "isMainThread": is_main(source, id),
        "pid": process(source),
        "tid": own.map_or(id, |t| t.tid),
        "processStartupTime": 0,
        "processShutdownTime": null,
        "registerTime": ms(start),
        "unregisterTime": end.map(ms),
        "pausedRanges": [],
        "markers": { "length": 0, "category": [], "data": [], "endTime": [], "name": [], "phase": [], "startTime": [] },
        "nativeSymbols": { "length": 0, "address": [], "functionSize": [], "libIndex": [], "name": [] },
        "resourceTable": { "length": 0, "lib": [], "name": [], "host": [], "type": [] },
        "samples": {
            "length": count,
            "stack": of_samples,
            "time": samples.iter().map(time).collect::<Vec<_>>(),
            "weight": samples.iter().map(|s| ms(s.cost_ns)).collect::<Vec<_>>(),
            "weightType": "tracing-ms",
            "responsiveness": none(count),
        },
    });
    tables.write(&mut out);
    out
}

/// Processes of different ranks may have one number, on different hosts.
fn process(source: &Source) -> String {
    let pid = source.view.summary.header.pid;
    source.view.summary.rank.map_or_else(|| pid.to_string(), |rank| format!("{pid}.{rank}"))
}

fn is_main(source: &Source, id: ThreadId) -> bool {
    source.view.summary.threads.get(id as usize).is_some_and(|t| t.tid == t.pid)
}

/// The tables of a thread: strings, functions with a frame each, and stacks as a tree.
#[derive(Debug, Default)]
struct Tables {
    strings: Vec<String>,
    of_strings: HashMap<String, usize>,
    /// By the index of the place.
    of_places: HashMap<usize, usize>,
    /// Of each function: name, file, line, category.
    functions: Vec<(usize, Option<usize>, Option<u32>, usize)>,
    /// Of each stack: what is below it, and its frame.
    stacks: Vec<(Option<usize>, usize)>,
    of_stacks: HashMap<(Option<usize>, usize), usize>,
}

impl Tables {
    fn string(&mut self, text: &str) -> usize {
        let new = self.strings.len();
        let index = *self.of_strings.entry(text.to_owned()).or_insert(new);
        if index == new {
            self.strings.push(text.to_owned());
        }
        index
    }

    fn function(&mut self, place: usize, what: &Place) -> usize {
        if let Some(known) = self.of_places.get(&place) {
            return *known;
        }
        let name = self.string(&what.name);
        let file = what.file.as_deref().map(|file| self.string(file));
        self.functions.push((name, file, what.line, category(what.kind)));
        self.of_places.insert(place, self.functions.len() - 1);
        self.functions.len() - 1
    }

    fn stack(&mut self, stacks: &Stacks, stack: usize) -> Option<usize> {
        let mut below = None;
        for &place in &stacks.stacks[stack] {
            let key = (below, self.function(place, &stacks.places[place]));
            let new = self.stacks.len();
            let index = *self.of_stacks.entry(key).or_insert(new);
            if index == new {
                self.stacks.push(key);
            }
            below = Some(index);
        }
        below
    }

    fn write(&self, out: &mut Value) {
        let (functions, count) = (&self.functions, self.functions.len());
        let none = || vec![Value::Null; count];
        let categories: Vec<usize> = functions.iter().map(|f| f.3).collect();
        out["stringArray"] = json!(self.strings);
        out["funcTable"] = json!({
            "length": count,
            "name": functions.iter().map(|f| f.0).collect::<Vec<_>>(),
            "fileName": functions.iter().map(|f| f.1).collect::<Vec<_>>(),
            "isJS": vec![false; count],
            "relevantForJS": vec![false; count],
            "resource": vec![-1; count],
            "lineNumber": none(),
            "columnNumber": none(),
        });
        out["frameTable"] = json!({
            "length": count,
            "func": (0..count).collect::<Vec<_>>(),
            "line": functions.iter().map(|f| f.2).collect::<Vec<_>>(),
            "category": categories,
            "subcategory": vec![0; count],
            "address": vec![-1; count],
            "inlineDepth": vec![0; count],
            "nativeSymbol": none(),
            "innerWindowID": none(),
            "implementation": none(),
            "column": none(),
            "optimizations": none(),
        });
        out["stackTable"] = json!({
            "length": self.stacks.len(),
            "prefix": self.stacks.iter().map(|s| s.0).collect::<Vec<_>>(),
            "frame": self.stacks.iter().map(|s| s.1).collect::<Vec<_>>(),
            "category": self.stacks.iter().map(|s| categories[s.1]).collect::<Vec<_>>(),
            "subcategory": vec![0; self.stacks.len()],
        });
    }
}
