//! The report for scripts. Names are part of the interface: fields may be added, none renamed or removed.
//! Sizes and periods are bytes, times seconds, shares 0 to 1.

use serde_json::{Value, json};

use super::View;
use super::sample_account::Fates;
use crate::detect::{CodePattern, Pattern, Segment, waits_for_threads};
use crate::profile::records::{Ended, Thread};
use crate::profile::summary::{Entry, ratio};

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Writes the report as JSON: every entry that was accessed, or the first `top`; `only` restricts it to one.
pub fn render(view: &View, only: Option<&Entry>) -> Value {
    let (h, stats) = (&view.summary.header, &view.summary.stats);
    let (exit_status, signal) = match view.summary.ending {
        Some(Ended::Exited(code)) => (Some(code), None),
        Some(Ended::Signalled(signal)) => (None, Some(signal)),
        Some(Ended::Runs | Ended::Unknown) | None => (None, None),
    };
    let listed = view.ranked().into_iter().take(view.options.top.unwrap_or(usize::MAX));
    let objects: Vec<Value> = match only {
        Some(entry) => vec![object(view, entry)],
        None => listed.map(|e| object(view, e)).collect(),
    };
    let mut report = json!({
        "program": h.program.path,
        "argv": h.program.argv,
        "build_id": h.program.build_id,
        "host": h.host,
        "started_unix": h.started_unix,
        "sampler": h.sampling.sampler,
        "sampler_reason": h.sampling.reason,
        "period_s": seconds(h.sampling.period_ns),
        "duration_s": seconds(stats.duration_ns),
        "cpu_s": seconds(stats.cpu_ns),
        // Shares of the CPU time that the program uses alone; null when the cost of a sample was not measured.
        "overhead": view.overhead_share(),
        "overhead_parts": view.overhead_shares().map(|parts| json!({
            "samples": parts.samples,
            "tracking": parts.tracking,
            "faults": parts.faults,
            "mappings": parts.mappings,
        })),
        // CPU time of the recorder.
        "recorder_cpu_s": seconds(stats.recorder_cpu_ns),
        "page_size": h.page_size,
        "thp": h.thp,
        "nodes": h.topology.nodes,
        // The machine of `predicted_remote_share`.
        "predicted_for": view.predicted.as_ref().map(|p| &p.target),
        "exit_status": exit_status,
        "signal": signal,
        "complete": view.summary.ending.is_some(),
        // Whether the recording ended before the program.
        "went_on": view.summary.ending == Some(Ended::Runs),
        "notes": view.summary.notes,
        "samples": samples(view),
        "lost": lost(view),
        "first_touches": first_touches(view),
        "threads": threads(view),
        // Waits of threads for each other; null where they are not known.
        "migration": super::thread_table::migration_json(view),
        // Kinds of threads that run beside each other.
        "kinds": super::thread_table::kinds_json(view),
        // Cache lines that threads take from each other; null where the sampler does not count them.
        "sharing": super::shared_lines::json(view),
        "objects": objects,
    });
    if let Some(processes) = &view.processes {
        processes.add_json(&mut report, view);
    }
    report
}

fn samples(view: &View) -> Value {
    let (stats, fates) = (&view.summary.stats, Fates::of(view));
    let whole = |n: f64| n.round() as u64;
    json!({
        "total": stats.samples,
        "resolved": stats.resolved,
        "lost": stats.lost,
        "stack": whole(fates.stack),
        "unknown": whole(fates.unknown),
        "tls": whole(fates.tls + fates.tls_only),
        "small": whole(fates.small),
        "spinning": whole(fates.spinning),
        "no_access": stats.no_access,
        "unresolved": stats.unresolved,
        "gather": stats.vsib,
        "undecoded": stats.undecoded,
        "own": stats.own,
        "accesses": view.total.accesses(),
        "achieved": stats.achieved,
    })
}

/// Records lost in full buffers, by kind. `starts` are those of threads and processes, which are among `mappings`.
fn lost(view: &View) -> Value {
    let stats = &view.summary.stats;
    json!({
        "samples": stats.lost,
        "mappings": stats.events.mappings_lost,
        "starts": stats.events.starts_lost,
        "faults": stats.faults_lost,
        "allocations": stats.alloc_lost,
    })
}

/// How page faults were recorded: all of them but for `thinned_s`, in which one in `period` of each thread was, and in
/// `unseen_s` of that time none.
fn first_touches(view: &View) -> Value {
    let stats = &view.summary.stats;
    json!({
        "faults": stats.faults,
        "faults_sampled": stats.events.faults_sampled,
        "period": stats.events.fault_period,
        "thinned_s": seconds(stats.events.thinned_ns),
        "unseen_s": seconds(stats.events.unseen_ns),
    })
}

fn threads(view: &View) -> Vec<Value> {
    let waits = waits_for_threads(&view.summary.threads);
    view.summary.threads.iter().zip(waits).map(|(t, waits)| thread(view, t, waits)).collect()
}

fn thread(view: &View, t: &Thread, for_threads: Option<f64>) -> Value {
    let role = view.roles.of(t.id);
    let rank = role.and_then(|role| role.rank);
    json!({
        "id": t.id,
        "pid": t.pid,
        "tid": t.tid,
        "name": t.name,
        "start_routine": t.start_routine.map(|frame| view.summary.frame_name(frame)),
        "creator": t.creator,
        "kind": role.map(|role| role.kind),
        "slot": role.map(|role| role.slot),
        "works": rank.is_some(),
        "rank": rank.map(|rank| rank.rank),
        "workers": rank.map(|rank| rank.of),
        "start_s": seconds(t.start_ns),
        "end_s": t.end_ns.map(seconds),
        "cpus": t.cpus,
        "migrations": t.migrations,
        "samples": t.samples,
        // Times that it gave its CPU away because it could not go on, and of these about those for other threads.
        "waits": t.waits.map(|waits| waits.all),
        "waits_for_threads": for_threads,
        // Time in which it neither ran nor waited for a CPU, and whether it may run on one CPU or node only.
        "blocked_s": t.waits.map(|waits| seconds(waits.blocked_ns)),
        "bound": t.waits.map(|waits| waits.bound),
    })
}

fn object(view: &View, e: &Entry) -> Value {
    let frames = e.site.as_ref().map_or(&[][..], |s| &s.frames[..]);
    let steps = e.site.as_ref().map_or(Vec::new(), |site| view.summary.steps(site).0);
    let by_others = view.by_others(e, None);
    let threads = e.threads();
    let touchers = e.first_touchers();
    let pages: u64 = touchers.iter().map(|(_, n)| n).sum();
    let touched = |(thread, n): &(u32, u64)| json!({ "thread": thread, "pages": n, "share": ratio(*n, pages) });
    let mut row = json!({
        "id": e.id,
        "kind": e.kind,
        "name": e.name,
        "linkage": (!e.linkage.is_empty()).then_some(&e.linkage),
        "module": e.module.and_then(|m| view.summary.modules.get(m as usize)).map(|m| &m.path),
        "vaddr": e.module.map(|_| e.vaddr),
        // `function file:line`, innermost first, with the functions that have no frame of their own.
        "callsite": steps.iter().map(|s| view.summary.step_name(s)).collect::<Vec<_>>(),
        // `module+0x..` of the frames.
        "callsite_frames": frames.iter().map(|&f| view.summary.frame_place(f)).collect::<Vec<_>>(),
        "size": e.size,
        "instances": e.instances,
        // Blocks that were freed; of these, those that another thread than the allocating one freed.
        "frees": e.details.frees.all,
        "frees_by_others": e.details.frees.by_others,
        // Of all accesses seen.
        "share": view.share(e),
        // Of all CPU time charged.
        "cost_share": view.cost_share(e),
        "cost_s": seconds(e.total.cost_ns),
        "reads": e.total.reads,
        "writes": e.total.writes,
        // Null when no page's node is known, and on a machine with one node.
        "remote_share": view.remote_share(&e.total),
        // Of the accesses whose page's first toucher is known, those by another thread; null when none is known.
        // Successive threads of one slot of a pool count as one.
        "by_others_share": by_others.share(),
        // Of all accesses, those whose page's first toucher is known.
        "by_others_known": by_others.known_share(),
        // Under first touch on the machine of --target or --nodes; null without.
        "predicted_remote_share": view.predicted_remote(e),
        "threads": threads.iter().map(|(t, _)| t).collect::<Vec<_>>(),
        "thread_accesses": threads.iter().map(|(_, c)| view.options.access.count(c)).collect::<Vec<_>>(),
        "first_touch": touchers.iter().map(touched).collect::<Vec<_>>(),
        // Of these pages, those whose first toucher was not seen but follows from others.
        "first_touch_extrapolated": e.extrapolated_touches(),
        "pattern": view.pattern(e).map(pattern),
    });
    // Of a part of an object: the object, the member if it is one, and where the part begins. `size` is that of the
    // part.
    if let Some(part) = &e.part {
        row["parent"] = json!(part.parent);
        if !part.member.is_empty() {
            row["member"] = json!(part.member);
        }
        row["offset"] = json!(part.offset);
    }
    // Of some allocations of a call site: which, as in a policy.
    if let Some(numbers) = &e.numbers {
        row["numbers"] = json!(numbers.in_policy());
    }
    row
}

fn pattern(p: &Pattern) -> Value {
    let mut row = json!({
        "kind": p.kind,
        "period": p.period,
        "confidence": p.confidence,
        "evidence": p.evidence,
    });
    // Instances judged as one object in allocation order.
    if let Some(group) = p.group {
        row["group"] = json!(group);
    }
    // Parts of the run with different patterns.
    if !p.segments.is_empty() {
        row["phases"] = p.segments.iter().map(phase).collect();
    }
    // Functions that use the object differently.
    if !p.by_code.is_empty() {
        row["by_code"] = p.by_code.iter().map(by_code).collect();
    }
    // Of a phased or mixed object: the pattern of the whole run, of all functions together.
    if let Some(whole) = &p.whole {
        row["overall"] = json!(whole.kind);
    }
    row["figures"] = json!(p.figures);
    row
}

fn by_code(c: &CodePattern) -> Value {
    json!({
        "function": c.function,
        "kind": c.pattern.kind,
        "period": c.pattern.period,
        // Of the object's accesses that count.
        "share": c.share,
        "confidence": c.pattern.confidence,
        "evidence": c.pattern.evidence,
    })
}

fn phase(s: &Segment) -> Value {
    json!({
        "start_s": s.start_s,
        "end_s": s.end_s,
        // Of the object's accesses.
        "share": s.share,
        "initialisation": s.initialisation,
        "kind": s.pattern.kind,
        "period": s.pattern.period,
        "confidence": s.pattern.confidence,
        "evidence": s.pattern.evidence,
    })
}
