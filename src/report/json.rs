//! The report for scripts. Names are part of the interface: fields may be added, none renamed or removed.
//! Sizes and periods are bytes, times seconds, shares 0 to 1.

use serde::Serialize;

use super::overview::overhead_share;
use super::sample_account::Fates;
use super::{View, remote_share};
use crate::detect::{PatternKind, Segment};
use crate::profile::records::{Ended, ObjectKind, Thread};
use crate::profile::summary::{Entry, ratio};

#[derive(Serialize)]
struct Report<'a> {
    program: &'a str,
    argv: &'a [String],
    build_id: Option<&'a str>,
    host: &'a str,
    started_unix: u64,
    sampler: &'a str,
    sampler_reason: &'a str,
    period_s: f64,
    duration_s: f64,
    cpu_s: f64,
    /// Share of the program's CPU time; null when the cost of a sample was not measured.
    overhead: Option<f64>,
    page_size: u64,
    thp: &'a str,
    nodes: &'a [crate::topology::Node],
    exit_status: Option<i32>,
    signal: Option<i32>,
    complete: bool,
    notes: &'a [String],
    samples: Samples,
    threads: Vec<ThreadRow<'a>>,
    objects: Vec<ObjectRow<'a>>,
}

#[derive(Serialize)]
struct Samples {
    total: u64,
    resolved: u64,
    lost: u64,
    stack: u64,
    unknown: u64,
    tls: u64,
    small: u64,
    no_access: u64,
    unresolved: u64,
    gather: u64,
    undecoded: u64,
    own: u64,
    accesses: u64,
    achieved: f64,
}

#[derive(Serialize)]
struct ThreadRow<'a> {
    id: u32,
    pid: u32,
    tid: u32,
    name: &'a str,
    start_routine: Option<String>,
    start_s: f64,
    end_s: Option<f64>,
    cpus: &'a [u16],
    migrations: u64,
    samples: u64,
}

#[derive(Serialize)]
struct ObjectRow<'a> {
    id: u32,
    kind: ObjectKind,
    name: &'a str,
    linkage: Option<&'a str>,
    module: Option<&'a str>,
    vaddr: Option<u64>,
    /// `function file:line`, innermost first.
    callsite: Vec<String>,
    /// `module+0x..`, the same frames.
    callsite_frames: Vec<String>,
    size: u64,
    instances: u64,
    /// Of all accesses seen.
    share: f64,
    /// Of all CPU time charged.
    cost_share: f64,
    cost_s: f64,
    reads: u64,
    writes: u64,
    /// Null when no page's node is known.
    remote_share: Option<f64>,
    threads: Vec<u32>,
    thread_accesses: Vec<u64>,
    first_touch: Vec<FirstTouch>,
    pattern: Option<PatternRow<'a>>,
}

#[derive(Serialize)]
struct FirstTouch {
    thread: u32,
    pages: u64,
    share: f64,
}

#[derive(Serialize)]
struct PatternRow<'a> {
    kind: PatternKind,
    period: Option<u64>,
    confidence: f64,
    evidence: &'a str,
    /// Instances judged as one object in allocation order.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<u32>,
    /// Parts of the run with different patterns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    phases: Vec<PhaseRow<'a>>,
    /// Of a phased object: the pattern of the whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    overall: Option<PatternKind>,
    figures: crate::detect::Figures,
}

#[derive(Serialize)]
struct PhaseRow<'a> {
    start_s: f64,
    end_s: f64,
    /// Of the object's accesses.
    share: f64,
    initialisation: bool,
    kind: PatternKind,
    period: Option<u64>,
    confidence: f64,
    evidence: &'a str,
}

fn phase(s: &Segment) -> PhaseRow<'_> {
    let p = &s.pattern;
    PhaseRow {
        start_s: s.start_s,
        end_s: s.end_s,
        share: s.share,
        initialisation: s.initialisation,
        kind: p.kind,
        period: p.period,
        confidence: p.confidence,
        evidence: &p.evidence,
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Writes the report as JSON: every entry that was accessed, or the first `top`; `only` restricts it to one.
///
/// # Errors
/// Only what serde_json may report, which for these types is nothing.
pub fn render(view: &View, only: Option<&Entry>) -> Result<String, serde_json::Error> {
    let (h, stats) = (&view.summary.header, &view.summary.stats);
    let (exit_status, signal) = match view.summary.ending {
        Some(Ended::Exited(code)) => (Some(code), None),
        Some(Ended::Signalled(signal)) => (None, Some(signal)),
        None => (None, None),
    };
    let listed = view.ranked().into_iter().take(view.options.top.unwrap_or(usize::MAX));
    let objects = match only {
        Some(entry) => vec![object(view, entry)],
        None => listed.map(|e| object(view, e)).collect(),
    };
    let mut text = serde_json::to_string_pretty(&Report {
        program: &h.program.path,
        argv: &h.program.argv,
        build_id: h.program.build_id.as_deref(),
        host: &h.host,
        started_unix: h.started_unix,
        sampler: &h.sampling.sampler,
        sampler_reason: &h.sampling.reason,
        period_s: seconds(h.sampling.period_ns),
        duration_s: seconds(stats.duration_ns),
        cpu_s: seconds(stats.cpu_ns),
        overhead: overhead_share(view),
        page_size: h.page_size,
        thp: &h.thp,
        nodes: &h.topology.nodes,
        exit_status,
        signal,
        complete: view.summary.ending.is_some(),
        notes: &view.summary.notes,
        samples: samples(view),
        threads: view.summary.threads.iter().map(|t| thread(view, t)).collect(),
        objects,
    })?;
    text.push('\n');
    Ok(text)
}

fn samples(view: &View) -> Samples {
    let (stats, fates) = (&view.summary.stats, Fates::of(view));
    let whole = |n: f64| n.round() as u64;
    Samples {
        total: stats.samples,
        resolved: stats.resolved,
        lost: stats.lost,
        stack: whole(fates.stack),
        unknown: whole(fates.unknown),
        tls: whole(fates.tls + fates.tls_only),
        small: whole(fates.small),
        no_access: stats.no_access,
        unresolved: stats.unresolved,
        gather: stats.vsib,
        undecoded: stats.undecoded,
        own: stats.own,
        accesses: view.total.accesses(),
        achieved: stats.achieved,
    }
}

fn thread<'a>(view: &View, t: &'a Thread) -> ThreadRow<'a> {
    ThreadRow {
        id: t.id,
        pid: t.pid,
        tid: t.tid,
        name: &t.name,
        start_routine: t.start_routine.map(|frame| view.summary.frame_name(frame)),
        start_s: seconds(t.start_ns),
        end_s: t.end_ns.map(seconds),
        cpus: &t.cpus,
        migrations: t.migrations,
        samples: t.samples,
    }
}

fn object<'a>(view: &View<'a>, e: &'a Entry) -> ObjectRow<'a> {
    let frames = e.site.as_ref().map_or(&[][..], |s| &s.frames[..]);
    let threads = e.threads();
    let touchers = e.first_touchers();
    let pages: u64 = touchers.iter().map(|(_, n)| n).sum();
    ObjectRow {
        id: e.id,
        kind: e.kind,
        name: &e.name,
        linkage: (!e.linkage.is_empty()).then_some(&e.linkage),
        module: e.module.and_then(|m| view.summary.modules.get(m as usize)).map(|m| m.path.as_str()),
        vaddr: e.module.map(|_| e.vaddr),
        callsite: frames.iter().map(|&f| view.summary.frame_name(f)).collect(),
        callsite_frames: frames.iter().map(|&f| view.summary.frame_place(f)).collect(),
        size: e.size,
        instances: e.instances,
        share: view.share(e),
        cost_share: view.cost_share(e),
        cost_s: seconds(e.total.cost_ns),
        reads: e.total.reads,
        writes: e.total.writes,
        remote_share: remote_share(&e.total),
        threads: threads.iter().map(|(t, _)| *t).collect(),
        thread_accesses: threads.iter().map(|(_, c)| view.options.access.count(c)).collect(),
        first_touch: touchers
            .into_iter()
            .map(|(thread, n)| FirstTouch { thread, pages: n, share: ratio(n, pages) })
            .collect(),
        pattern: view.pattern(e).map(|p| PatternRow {
            kind: p.kind,
            period: p.period,
            confidence: p.confidence,
            evidence: &p.evidence,
            group: p.group,
            phases: p.segments.iter().map(phase).collect(),
            overall: p.whole.as_ref().map(|w| w.kind),
            figures: p.figures,
        }),
    }
}
