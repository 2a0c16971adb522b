//! The report as one HTML file, which needs nothing but a browser: no network, no other file.
//!
//! The page is in files of its own beside this one. Rust makes one JSON value of the data ([`data`]) and bins of the
//! counters ([`super::bins`]), deflated and in base64, so that nothing of a profile is ever markup. The scripts
//! write all of it as text. The file has at most [`MOST_BYTES`], whatever the profile; what is cut is said in it.

mod data;
mod pack;
mod source;
mod verdict;

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::View;
use super::bins::{Pictures, Places, Tile, nodes_of};
use crate::advise::fixes::Fix;
use crate::advise::{Advice, Prediction, Target};
use crate::profile::summary::Entry;

/// Largest page.
pub const MOST_BYTES: usize = 5 << 20;
/// Of these, for the facts of the objects, deflated and in base64.
const MOST_FACTS: usize = 3 << 19;
/// And for the counters of the objects.
const MOST_TILES: usize = 5 << 19;
/// Cells of an object with at least a hundredth of the cost, and of the others.
const TILE_CELLS: (usize, usize) = (40_000, 4_000);

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");
/// In the order in which the page runs them.
const SCRIPTS: [&str; 13] = [
    include_str!("base.js"),
    include_str!("store.js"),
    include_str!("draw.js"),
    include_str!("overview.js"),
    include_str!("evidence.js"),
    include_str!("fixes.js"),
    include_str!("object.js"),
    include_str!("places.js"),
    include_str!("threads.js"),
    include_str!("cartography.js"),
    include_str!("results.js"),
    include_str!("shell.js"),
    include_str!("start.js"),
];
/// Those of a difference of two profiles; `overview.js` for its lists of facts.
const DIFFERENCE: [&str; 6] = [
    include_str!("base.js"),
    include_str!("store.js"),
    include_str!("draw.js"),
    include_str!("overview.js"),
    include_str!("shell.js"),
    include_str!("difference.js"),
];

/// What the page shows besides the profile.
#[derive(Debug, Default)]
pub struct Extra<'a> {
    /// The machine that the advice is for, and whether nobody named it.
    pub target: Option<(&'a Target, bool)>,
    /// Advice for it, and the policy file.
    pub advice: Option<(&'a Advice, String)>,
    /// What the policies bring there.
    pub prediction: Option<&'a Prediction>,
    /// What to change in the source; none without advice.
    pub fixes: Option<Vec<Fix>>,
    /// Why there is no advice, or no prediction.
    pub missing: Option<String>,
    /// Results of `compare --json`, `tune --json` and `verify --json`, with the names of their files.
    pub results: Vec<(String, Value)>,
    /// Directories below which source is read.
    pub sources: Vec<PathBuf>,
}

/// Writes the page.
pub fn render(view: &View, extra: &Extra) -> String {
    let mut cut = Vec::new();
    let ranked = view.ranked();
    let (tiles, heads) = tiles(view, &ranked, extra, &mut cut);
    let pictures = Pictures::of(view);
    let places = Places::of(view, &pictures.gantt);
    let mut facts = data::facts(view, extra);
    facts["tiles"] = heads;
    facts["pictures"] = json!({
        "rows": pictures.rows, "bytes": pictures.bytes, "groups": pictures.gantt.groups,
        "threads_per_group": pictures.gantt.per_group,
        "places": places.as_ref().map(|p| if p.are_nodes { "node" } else { "CPU" }),
    });
    let facts = fitting(facts, "/report/objects", &cut);
    let blobs = json!({
        "facts": facts, "cartography": pack::cartography(&pictures), "threads": pack::threads(&pictures, places.as_ref()),
        "tiles": tiles,
    });
    filled(&SCRIPTS, &blobs)
}

/// Writes the page of a difference of two profiles: what [`super::difference_json`] says, its objects with the largest
/// changes first.
pub fn difference(facts: Value) -> String {
    filled(&DIFFERENCE, &json!({ "facts": fitting(facts, "/objects", &[]) }))
}

fn filled(scripts: &[&str], blobs: &Value) -> String {
    // The data come last: nothing of them is searched for the marks of the page.
    PAGE.replace("/*style*/", STYLE).replace("/*scripts*/", &scripts.concat()).replace("/*data*/", &blobs.to_string())
}

/// The counters of the objects as text and what is to know of them, by id, highest cost first, while there is room.
fn tiles(view: &View, ranked: &[&Entry], extra: &Extra, cut: &mut Vec<String>) -> (Value, Value) {
    let (mut texts, mut heads) = (Map::new(), Map::new());
    let (mut room, mut left) = (MOST_TILES, 0);
    for entry in ranked {
        let most = if view.cost_share(entry) >= 0.01 { TILE_CELLS.0 } else { TILE_CELLS.1 };
        let Some(tile) = Tile::of(view, entry, most) else { continue };
        let advised = extra.target.zip(extra.advice.as_ref());
        let nodes = advised.map(|((target, _), (advice, _))| nodes_of(view, entry, &tile, (target, advice)));
        let text = pack::tile(&tile, &nodes.unwrap_or_default());
        if text.len() + 100 > room {
            left += 1;
            continue;
        }
        room -= text.len() + 100;
        let [pages, threads, slots] = tile.shifts;
        heads.insert(
            entry.id.to_string(),
            json!({ "pages": tile.pages, "page_shift": pages, "thread_shift": threads, "slot_shift": slots,
                "cells": tile.cells.len() }),
        );
        texts.insert(entry.id.to_string(), text.into());
    }
    if left > 0 {
        cut.push(format!("The pages of {left} objects are not in this file; they are in the profile."));
    }
    (Value::Object(texts), Value::Object(heads))
}

/// The facts, with as many of the objects, which are at `list`, as there is room for.
fn fitting(mut facts: Value, list: &str, cut: &[String]) -> String {
    let count = |facts: &Value| facts.pointer(list).and_then(Value::as_array).map_or(0, Vec::len);
    let all = count(&facts);
    loop {
        let kept = count(&facts);
        let mut said = cut.to_owned();
        if kept < all {
            said.push(format!("The last {} of {all} objects are not in this file.", all - kept));
        }
        facts["cut"] = json!(said);
        let text = pack::deflated(facts.to_string().as_bytes());
        if text.len() <= MOST_FACTS || kept <= 1 {
            return text;
        }
        if let Some(Value::Array(list)) = facts.pointer_mut(list) {
            list.truncate(kept / 2);
        }
    }
}
