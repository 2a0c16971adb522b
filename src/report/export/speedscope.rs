//! The file format of speedscope (<https://www.speedscope.app/file-format-schema.json>): a profile for each thread,
//! whose samples are weighted by CPU time.

use serde_json::{Value, json};

use super::source::Source;
use super::stacks::{Place, Stacks};

/// Frames and profiles of several files.
#[derive(Debug, Default)]
pub(super) struct Speedscope {
    frames: Vec<Value>,
    profiles: Vec<Value>,
}

impl Speedscope {
    /// Adds the threads of a profile.
    pub fn add(&mut self, source: &Source) {
        let stacks = Stacks::of(source);
        let first = self.frames.len();
        self.frames.extend(stacks.places.iter().map(frame));
        for of_thread in stacks.samples.chunk_by(|a, b| a.thread == b.thread) {
            let weights: Vec<u64> = of_thread.iter().map(|s| s.cost_ns).collect();
            let samples: Vec<Vec<usize>> =
                of_thread.iter().map(|s| stacks.stacks[s.stack].iter().map(|place| first + place).collect()).collect();
            self.profiles.push(json!({
                "type": "sampled",
                "name": source.thread_name(of_thread[0].thread),
                "unit": "nanoseconds",
                "startValue": 0,
                "endValue": weights.iter().sum::<u64>(),
                "samples": samples,
                "weights": weights,
            }));
        }
    }

    /// The document.
    pub fn value(self, name: &str) -> Value {
        json!({
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "exporter": concat!("numamma ", env!("CARGO_PKG_VERSION")),
            "name": name,
            "activeProfileIndex": 0,
            "shared": { "frames": self.frames },
            "profiles": self.profiles,
        })
    }
}

fn frame(place: &Place) -> Value {
    let mut frame = json!({ "name": place.name });
    if let Some(file) = &place.file {
        frame["file"] = json!(file);
    }
    if let Some(line) = place.line {
        frame["line"] = json!(line);
    }
    frame
}
