//! What the profile says about programs whose behaviour is known.

use numamma::profile::records::*;

use super::harness::*;

/// Part of a thread's samples that may go elsewhere: libc, clock reading.
const MOSTLY: f64 = 0.9;

#[test]
fn threads_globals_heap_and_first_touch() {
    let dir = scratch("content");
    let program = compile(&dir, "shared", &[]);
    let recorded = || {
        let out = run(profile(&dir, &[], &[program.to_str().unwrap(), "0.7"]));
        assert!(out.status.success(), "{}", out.stderr);
        Profile::read(&dir.join("t.prof"))
    };
    // On a busy machine page faults may be lost, or cost so much that not all are recorded, as the profile says.
    let is_whole = |p: &Profile| p.stats.faults_lost == 0 && p.stats.events.thinned_ns == 0;
    let p = (0..2).map(|_| recorded()).find(is_whole).unwrap_or_else(recorded);
    assert_eq!((p.ending, &p.damage), (Some(Ended::Exited(0)), &None));
    p.check_sums();
    assert_eq!(p.threads.len(), 4, "main and three: {:?}", p.threads);
    assert!(p.threads.iter().all(|t| t.end_ns.is_some_and(|end| end >= t.start_ns)), "all have ended: {:?}", p.threads);
    assert!(p.threads.is_sorted_by_key(|t| t.start_ns), "ids follow creation");
    assert_eq!(p.threads[0].name, "shared");

    let heap = p.heap(4_096_000);
    let (left, right) = (p.global("left"), p.global("right"));
    assert_eq!((heap.len(), left.len(), right.len()), (1, 1, 1), "each object once");
    for (name, objects) in [("on-left", &left), ("on-right", &right), ("on-heap", &heap)] {
        let thread = p.thread(name).id;
        let all: Vec<&Access> = p.accesses_to(objects).collect();
        let own = all.iter().filter(|a| a.thread == thread).count();
        assert!(all.len() > 50, "{name}: {} accesses", all.len());
        // memset of `left` by main may be sampled once or twice.
        assert!(own as f64 >= MOSTLY * all.len() as f64, "{name}: {own} of {} by its thread", all.len());
        let (low, high) = (objects[0].instance.base, objects[0].instance.base + objects[0].instance.size);
        assert!(all.iter().all(|a| (low..high).contains(&a.addr)), "addresses are inside the object");
        assert!(all.iter().any(|a| a.write) && all.iter().any(|a| !a.write), "{name} is read and written");
        assert!(all.iter().all(|a| a.node != NODE_UNKNOWN), "{name}: the node of every page is known");
    }
    assert_eq!(heap[0].instance.thread, Some(p.thread("on-heap").id), "the allocating thread");
    let functions = p.functions(heap[0].site.expect("a call site"));
    assert!(functions.starts_with(&["buffer_for".into(), "worker".into()]), "{functions:?}");

    // 2 MiB each; globals share their first and last page with others.
    let pages = 512;
    assert!(p.touched(&left, Some(0)) >= pages - 1, "main touched `left`: {}", p.touched(&left, Some(0)));
    let of_worker = p.touched(&right, Some(p.thread("on-right").id));
    assert!(of_worker >= pages - 1, "its worker touched `right`: {of_worker}; {:?}", p.stats);
    let heap_pages = p.touched(&heap, Some(p.thread("on-heap").id));
    // 4,096,000 bytes and the allocator's header before them.
    assert_eq!(heap_pages, 1001, "all pages of the block and no more");
    for objects in [&left, &right] {
        assert!(p.touched(objects, None) <= pages + 1, "no page is touched first twice");
    }
}

#[test]
fn what_is_worked_on_is_what_costs() {
    let dir = scratch("cost");
    let program = compile(&dir, "shared", &[]);
    let out = run(profile(&dir, &[], &[program.to_str().unwrap(), "0.7"]));
    assert!(out.status.success());
    let p = Profile::read(&dir.join("t.prof"));
    let cost = |a: &mut dyn Iterator<Item = &Access>| a.map(|a| u64::from(a.cost_ns)).sum::<u64>() as f64;
    let total = cost(&mut p.accesses.iter());
    let known = [p.global("left"), p.global("right"), p.heap(4_096_000)].concat();
    let share = cost(&mut p.accesses_to(&known)) / total;
    assert!(share > 0.95, "{share} of the cost is on the three objects");
    // Each worker runs equally long: shares are equal, up to the noise of some hundred samples.
    for objects in [p.global("left"), p.global("right"), p.heap(4_096_000)] {
        let share = cost(&mut p.accesses_to(&objects)) / total;
        assert!((0.22..0.45).contains(&share), "{share} of {}", objects[0].name);
    }
}

#[test]
fn pages_touched_inside_system_calls_are_seen_or_the_lack_is_said() {
    let dir = scratch("kernel");
    let program = compile(&dir, "behave", &[]);
    let out = run(profile(&dir, &[], &[program.to_str().unwrap(), "read", "8388608"]));
    assert!(out.status.success(), "{}", out.stderr);
    let p = Profile::read(&dir.join("t.prof"));
    let pages = p.touched(&p.heap(8 << 20), Some(0));
    match p.notes.iter().any(|n| n.contains("system calls")) {
        true => assert!(pages < 100, "said not to be seen, yet {pages} were"),
        false => assert!((2048..=2049).contains(&pages), "{pages}"),
    }
}

#[test]
fn five_hundred_short_threads() {
    let dir = scratch("many");
    let program = compile(&dir, "family", &[]);
    let out = run(profile(&dir, &[], &[program.to_str().unwrap(), "many"]));
    assert!(out.status.success(), "{}", out.stderr);
    let p = Profile::read(&dir.join("t.prof"));
    p.check_sums();
    assert_eq!(p.threads.len(), 501);
    assert_eq!(p.stats.alloc_lost, 0, "slots of ended threads are used again");
    let mut names: Vec<&str> = p.threads[1..].iter().map(|t| t.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 500, "each has its own name");
    assert!(p.threads[1..].iter().all(|t| t.start_routine.is_some()), "each has its start routine");
    let created = |t: &Thread| t.creator == Some(p.threads[0].id) && !t.created_at.is_empty();
    assert!(p.threads[1..].iter().all(created), "main created each, and the call is known");
    assert!(p.threads.iter().all(|t| t.end_ns.is_some()));
}

#[test]
fn static_programs_have_globals_and_no_call_sites() {
    let dir = scratch("static");
    let program = compile(&dir, "shared", &["-static"]);
    let out = run(profile(&dir, &[], &[program.to_str().unwrap(), "0.4"]));
    assert!(out.status.success(), "{}", out.stderr);
    assert!(out.stderr.contains("statically linked"), "{}", out.stderr);
    let p = Profile::read(&dir.join("t.prof"));
    p.check_sums();
    assert!(!p.header().allocations);
    assert!(p.notes.iter().any(|n| n.contains("statically linked")));
    assert_eq!(p.threads.len(), 4);
    assert!(p.accesses_to(&p.global("left")).count() > 30);
    assert!(p.accesses_to(&p.global("right")).count() > 30);
    assert_eq!(p.sites.len(), 0);
}

#[test]
fn no_sampler_still_gives_allocations_and_first_touch() {
    let dir = scratch("none");
    let program = compile(&dir, "shared", &[]);
    let out = run({
        let mut c = numamma(&["profile", "--sampler", "none", "-o", "t.prof", "--"]);
        c.current_dir(&dir).arg(&program).arg("0.2");
        c
    });
    assert!(out.status.success(), "{}", out.stderr);
    let p = Profile::read(&dir.join("t.prof"));
    assert_eq!((p.stats.samples, p.accesses.len()), (0, 0));
    assert_eq!(p.header().sampling.sampler, "none");
    assert!(p.stats.alloc_events > 0);
    assert_eq!(p.touched(&p.heap(4_096_000), None), 1001);
}
