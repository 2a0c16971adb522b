//! The facts of the page as JSON: what `report --json` says, and what the views show beside it.

use serde_json::{Map, Value, json};

use super::source::Sources;
use super::{Extra, verdict};
use crate::advise::fixes::{Fix, unjudged};
use crate::advise::{Advice, Item, ObjectPrice};
use crate::detect;
use crate::profile::summary::{Entry, TIME_SLOTS, ratio};
use crate::report::bins::item_of;
use crate::report::{View, fixes as shown, json, object_details, run_verdict, sample_account};

/// Objects with colours of their own in the picture of the cost over time.
const STACKED: usize = 8;
/// Objects with call stacks and code; the others have their figures only.
const DETAILED: usize = 1000;
/// Instructions of an object that are listed, and those of them whose source is shown.
const MOST_CODE: usize = 12;
const MOST_SOURCE: usize = 5;
/// Fixes: those behind them save least, and no reader gets there.
const MOST_FIXES: usize = 200;
/// Objects whose spectrum is drawn: a transform over the pages of the largest takes a tenth of a second.
const SPECTRA: usize = 64;

/// All facts but those of the tiles.
pub(super) fn facts(view: &View, extra: &Extra) -> Value {
    let (total, rows) = sample_account::of(view);
    let account: Vec<Value> =
        rows.iter().map(|r| json!({ "label": r.label, "cost": r.cost, "samples": r.samples })).collect();
    let target = extra.target.map(|(target, assumed)| {
        json!({ "name": target.model.name, "nodes": target.nodes, "threads": target.threads, "assumed": assumed })
    });
    let mut sources = Sources::below(&extra.sources, view.summary.header.started_unix);
    let details = details(view, extra, &mut sources);
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "report": json::render(view, None),
        "verdict": verdict::of(view, extra),
        "run_verdict": run_verdict::of(view),
        "account": { "samples": total, "rows": account },
        "target": target,
        "policy": extra.advice.as_ref().map(|(_, text)| text),
        "remarks": extra.advice.as_ref().map(|(advice, _)| &advice.remarks),
        "items": extra.advice.as_ref().map(|(advice, _)| items(view, advice)),
        "prediction": extra.prediction,
        "fixes": extra.fixes.as_ref().map(|list| fixes(view, extra, list)),
        "unjudged": extra.fixes.as_ref().map(|list| unjudged(view.summary, &view.roles, list)),
        "missing": extra.missing,
        "slots": TIME_SLOTS,
        "stacked": stacked(view),
        "details": details,
        "spectra": spectra(view),
        "sources": sources.list(),
        "results": extra.results.iter().map(|(name, value)| json!({ "file": name, "value": value })).collect::<Vec<_>>(),
    })
}

/// The prices of an entry.
fn prices<'a>(view: &View, entry: &Entry, extra: &'a Extra) -> Option<&'a ObjectPrice> {
    let share = view.cost_share(entry);
    let named = extra.prediction?.objects.iter().filter(|o| o.name == entry.name);
    named.min_by(|a, b| (a.share - share).abs().total_cmp(&(b.share - share).abs()))
}

fn placement(item: &Item) -> Value {
    let why = item.rule.as_ref().map_or_else(Clone::clone, |rule| rule.why.clone().unwrap_or_default());
    json!({
        "name": item.name, "share": item.share, "pattern": item.pattern.as_ref().map(|p| p.kind),
        "placed": item.rule.is_ok(), "place": crate::report::advice::place_words(item), "why": why,
    })
}

/// The fixes in words, each with the number of its object.
fn fixes(view: &View, extra: &Extra, list: &[Fix]) -> Vec<Value> {
    let machine = extra.target.map_or("", |(target, _)| target.model.name.as_str());
    let id = |fix: &Fix| {
        let away = |e: &&Entry| (view.cost_share(e) - fix.share).abs();
        let named = view.summary.entries.iter().filter(|e| Some(&e.name) == fix.object.as_ref());
        named.min_by(|a, b| away(a).total_cmp(&away(b))).map(|e| e.id)
    };
    let row = |fix: &Fix| {
        json!({
            "kind": fix.kind, "about": fix.kind.about(), "id": id(fix), "object": fix.object, "share": fix.share,
            "what": fix.what, "why": fix.why, "speedup": fix.gain.speedup, "gain": shown::gain(&fix.gain, machine),
            "by_policy": fix.by_policy, "is_hint": fix.is_hint,
            "places": fix.places.iter().map(shown::place).collect::<Vec<_>>(),
        })
    };
    list.iter().take(MOST_FIXES).map(row).collect()
}

fn items(view: &View, advice: &Advice) -> Vec<Value> {
    let entry = |item: &Item| {
        let of = |e: &&Entry| item_of(view, e, advice).is_some_and(|own| std::ptr::eq(own, item));
        view.summary.entries.iter().find(of).map(|e| e.id)
    };
    let row = |item: &Item| {
        let mut row = placement(item);
        row["id"] = json!(entry(item));
        row
    };
    advice.items.iter().map(row).collect()
}

/// Cost by object and time slot, ns: the first objects one by one, the others together.
fn stacked(view: &View) -> Value {
    let slots = usize::from(TIME_SLOTS);
    let ranked = view.ranked();
    let by_slot = |entries: &[&Entry]| {
        let mut sums = vec![0_u64; slots];
        for cell in entries.iter().flat_map(|e| &e.cells) {
            sums[usize::from(cell.slot).min(slots - 1)] += cell.counters.cost_ns;
        }
        sums
    };
    let (first, others) = ranked.split_at(ranked.len().min(STACKED));
    let mut rows: Vec<Value> =
        first.iter().map(|e| json!({ "id": e.id, "name": e.name, "cost_ns": by_slot(&[*e]) })).collect();
    if !others.is_empty() {
        let name = format!("{} other objects", others.len());
        rows.push(json!({ "id": null, "name": name, "cost_ns": by_slot(others) }));
    }
    Value::Array(rows)
}

/// By id: where an object was allocated, the code and the threads that access it, its advice and prices.
fn details(view: &View, extra: &Extra, sources: &mut Sources) -> Value {
    let mut all = Map::new();
    for entry in view.ranked().into_iter().take(DETAILED) {
        let mut own = detail(view, entry, extra);
        own["source"] = source(view, entry, sources);
        all.insert(entry.id.to_string(), own);
    }
    Value::Object(all)
}

/// The spectra of hot objects that several threads use, by id.
fn spectra(view: &View) -> Value {
    let mut all = Map::new();
    let wanted = |e: &&Entry| view.pattern(e).is_some_and(|p| p.figures.samples > 0.0);
    for entry in view.ranked().into_iter().filter(wanted).take(SPECTRA) {
        if let Some(spectrum) = detect::spectrum(entry, view.summary, &view.roles) {
            let (longest, shortest) = spectrum.periods;
            // Three digits are what a picture shows.
            let strengths: Vec<f64> =
                spectrum.strengths.iter().map(|s| (f64::from(*s) * 1000.0).round() / 1000.0).collect();
            all.insert(
                entry.id.to_string(),
                json!({ "longest": longest, "shortest": shortest, "strengths": strengths }),
            );
        }
    }
    Value::Object(all)
}

/// Where an object was allocated and accessed most, with the numbers of the excerpts of source, those that there are.
fn source(view: &View, entry: &Entry, sources: &mut Sources) -> Value {
    let mut all = Vec::new();
    let mut add = |what: &str, place: Option<&crate::profile::records::Location>, share: Option<f64>| {
        let Some(number) = place.and_then(|place| sources.excerpt(place)) else { return };
        if !all.iter().any(|known: &Value| known["source"] == number && known["what"] == what) {
            all.push(json!({ "what": what, "source": number, "cost_share": share }));
        }
    };
    if let Some(site) = &entry.site {
        let (steps, naming) = view.summary.steps(site);
        add("allocated", steps.get(naming).and_then(|step| step.location), None);
    }
    for (frame, counters) in entry.details.code.iter().take(MOST_SOURCE) {
        let place = view.summary.symbols.get(frame).and_then(|list| list.first());
        add("accessed", place, Some(ratio(counters.cost_ns, entry.total.cost_ns)));
    }
    Value::Array(all)
}

fn detail(view: &View, entry: &Entry, extra: &Extra) -> Value {
    let naming = entry.site.as_ref().map(|site| view.summary.steps(site).1);
    let code = |(frame, c): &(crate::profile::records::Frame, crate::profile::summary::Counters)| {
        json!({
            "name": view.summary.frame_name(*frame), "place": view.summary.frame_place(*frame),
            "cost_share": ratio(c.cost_ns, entry.total.cost_ns), "reads": c.reads, "writes": c.writes,
        })
    };
    let threads: Vec<Value> = entry
        .threads()
        .iter()
        .map(|(t, c)| {
            json!({ "thread": t, "cost_share": ratio(c.cost_ns, entry.total.cost_ns), "reads": c.reads,
                "writes": c.writes, "remote_share": view.remote_share(c),
                "by_others_share": view.by_others(entry, Some(*t)).share() })
        })
        .collect();
    json!({
        "kind": object_details::kind(view, entry),
        "touched_by": object_details::touched_by(entry),
        "lifetime": object_details::lifetime(view, entry),
        "unpaged": entry.details.unpaged.accesses(),
        "seen": entry.seen.len(),
        "naming": naming,
        "code": entry.details.code.iter().take(MOST_CODE).map(code).collect::<Vec<_>>(),
        "threads": threads,
        "item": extra.advice.as_ref().and_then(|(advice, _)| item_of(view, entry, advice)).map(placement),
        "prices": prices(view, entry, extra),
        "slices": view.pattern(entry).map(|p| p.slices.iter().take(512).collect::<Vec<_>>()),
    })
}
