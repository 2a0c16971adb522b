//! The profile preload in real programs: events against known truth.
//!
//! Each test compiles a small program (tests/preloads/preload_profile/), runs it with the library preloaded and this
//! process as its recorder, and compares what came through the channel with what the program did.

mod harness;

use self::harness::{Build, Run, run, run_prepared, run_with};
use numamma_channel::{Event, EventKind, Origin};

use crate::common::{Scratch, plain, preload, run as run_command, source};

/// The allocation of `size` bytes, the only one there may be, and the functions of its call stack.
fn allocation(run: &Run, size: u64) -> (Event, Vec<String>) {
    let found: Vec<&Event> = run.allocations().filter(|e| harness::size(e) == size).collect();
    assert_eq!(found.len(), 1, "allocations of {size} bytes");
    (*found[0], run.functions(found[0]))
}

fn assert_stack(run: &Run, size: u64, expected: &[&str]) {
    let (_, functions) = allocation(run, size);
    assert!(
        functions.starts_with(&expected.iter().map(|s| (*s).to_string()).collect::<Vec<_>>()),
        "{size}: {functions:?}"
    );
}

/// Every heap object that came is freed later, exactly once, and never twice alive.
fn assert_paired(run: &Run, sizes: std::ops::Range<u64>) {
    let mut events = run.events.clone();
    events.sort_by_key(|e| e.time_ns);
    for (i, event) in events.iter().enumerate() {
        let EventKind::Alloc { addr, size, origin: Origin::Heap, .. } = event.what else { continue };
        if !sizes.contains(&size) {
            continue;
        }
        let next = events[i + 1..].iter().find_map(|e| match e.what {
            EventKind::Free { addr: a, origin: Origin::Heap, .. } if a == addr => Some("free"),
            EventKind::Alloc { addr: a, origin: Origin::Heap, .. } if a == addr => Some("alloc"),
            _ => None,
        });
        assert_eq!(next, Some("free"), "{size} bytes at {addr:#x}");
    }
}

#[test]
fn every_allocation_function_with_its_call_stack() {
    for flags in [&["-O2"][..], &["-O0"], &["-O3", "-fno-omit-frame-pointer"], &["-O2", "-mavx2"]] {
        let program = Build::new("calls.c").flags(flags).build();
        let run = run(&program, &[]);
        assert_eq!(run.lost, 0);
        assert_stack(&run, 30001, &["innermost", "middle", "outermost", "main"]);
        assert_stack(&run, 30004, &["innermost", "with_alloca", "main"]);
        assert_stack(&run, 30005, &["innermost", "realigned", "main"]);
        assert_stack(&run, 30002, &["deep"; 16]);
        assert_stack(&run, 31003, &["deep", "deep", "deep", "deep", "main"]);
        for size in [100_100, 20001, 20002, 30006] {
            allocation(&run, size);
        }
        for size in [100_100, 20001, 20002, 20011, 20224, 20013, 20014, 20480] {
            assert_stack(&run, size, &["family", "main"]);
        }
        assert_paired(&run, 20_000..32_000);
        mappings(&run);
    }
}

fn mappings(run: &Run) {
    let of_program = |size| {
        let mut all = run.allocations().filter(|e| harness::size(e) == size);
        let event = *all.next().unwrap();
        assert!(all.next().is_none());
        assert_eq!(run.functions(&event)[..2], ["mappings", "main"]);
        let EventKind::Alloc { addr, origin, .. } = event.what else { unreachable!() };
        assert_eq!(origin, Origin::Mmap);
        addr
    };
    let (first, second) = (of_program(303_104), of_program(20 << 20));
    let unmapped: Vec<(u64, u64)> = run
        .events
        .iter()
        .filter_map(|e| match e.what {
            EventKind::Free { addr, size, origin: Origin::Mmap, .. } => Some((addr, size)),
            _ => None,
        })
        .collect();
    assert!(unmapped.contains(&(first, 303_104)) && unmapped.contains(&(second, 20 << 20)), "{unmapped:?}");
}

#[test]
fn a_failed_realloc_leaves_the_object_alive() {
    let program = Build::new("calls.c").build();
    let run = run(&program, &[]);
    let all: Vec<&Event> = run.allocations().filter(|e| (30003..30100).contains(&harness::size(e))).collect();
    // reallocarray(p, 3, 10001), then what the failed realloc left.
    let last: Vec<u64> = all.iter().filter(|e| run.functions(e)[0] == "family").map(|e| harness::size(e)).collect();
    assert_eq!(last[0], 30003);
    assert!(last.len() == 2 && last[1] >= 30003, "{last:?}");
}

#[test]
fn what_realloc_returns_is_what_it_was_given() {
    let program = Build::new("calls.c").build();
    let run = run(&program, &[]);
    let is =
        |e: &Event, wanted: u64| matches!(e.what, EventKind::Alloc { size, resized, .. } if size == wanted && resized);
    for (size, resized) in [(20001, false), (20002, true), (30003, true), (20011, false)] {
        let (at, event) = run.events.iter().enumerate().find(|(_, e)| harness::size(e) == size).unwrap();
        assert_eq!(is(event, size), resized, "{size}");
        let before = run.events[..at].iter().rfind(|e| e.tid == event.tid).unwrap();
        let ends = matches!(before.what, EventKind::Free { resized: true, .. });
        assert_eq!(ends, resized, "{size} follows {before:?}");
    }
}

#[test]
fn operator_new_belongs_to_its_caller() {
    let program = Build::new("new.cpp").flags(&["-O2", "-std=c++17"]).build();
    let run = run(&program, &[]);
    assert_eq!(run.stdout, "an exception passes our frames\n");
    for (size, function) in
        [(40001, "scalar_new"), (40002, "array_new"), (40064, "aligned_new"), (40003, "fill_vector")]
    {
        let (_, functions) = allocation(&run, size);
        // libstdc++'s operator new may come first: it is a frame like any other.
        let own = functions.iter().position(|f| f == function);
        assert!(own.is_some_and(|at| at <= 2) && functions.contains(&"main".to_string()), "{size}: {functions:?}");
    }
}

#[test]
fn threads_say_their_routine_and_stack() {
    let program = Build::new("threads.c").build();
    let run = run(&program, &[]);
    let starts = run.thread_starts();
    assert_eq!(starts.len(), 10, "main, eight pthreads and a C11 thread");
    let main: Vec<_> = starts.iter().filter(|s| s.0.tid == s.0.pid).collect();
    assert!(main.len() == 1 && main[0].1 == 0);
    for line in run.stdout.lines() {
        let (index, local) = line.split_once(' ').unwrap();
        let (index, local): (u64, u64) = (index.parse().unwrap(), local.parse().unwrap());
        let base = if index < 4 { 50000 } else { 60000 };
        let (event, functions) = allocation(&run, base + index);
        let routine = if index < 4 { "first_routine" } else { "second_routine" };
        assert_eq!(functions[..2], ["allocate", routine]);
        // Its thread started with that routine on the stack that held the local, no frame of ours in between.
        let of_thread: Vec<_> = starts.iter().filter(|s| s.0.tid == event.tid).collect();
        let fits = |s: &&&(Event, u64, std::ops::Range<u64>)| run.function(s.1 + 1) == routine && s.2.contains(&local);
        assert!(of_thread.iter().any(|s| fits(&s)), "{of_thread:?}");
        assert!(functions[2..].iter().all(|f| f == "?"), "only libc above: {functions:?}");
    }
    assert_eq!(allocation(&run, 70001).1[..2], ["allocate", "c11_routine"]);
}

#[test]
fn threads_of_cxx_say_what_they_run() {
    for flags in [&["-O2"][..], &["-O0"], &["-O3", "-fno-rtti"]] {
        let program = Build::new("tasks.cpp").flags(flags).build();
        let run = run(&program, &[]);
        let words: Vec<(u32, u32, [u64; 2])> = run.events.iter().filter_map(harness::task_words).collect();
        if flags.contains(&"-fno-rtti") {
            assert!(words.is_empty(), "no class says how the function is given");
            continue;
        }
        let mut threads: std::collections::BTreeMap<u32, Vec<[u64; 2]>> = std::collections::BTreeMap::new();
        words.iter().for_each(|(tid, _, pair)| threads.entry(*tid).or_default().push(*pair));
        let class = |words: &[[u64; 2]]| words[0][0];
        let pointers: Vec<_> = threads.values().filter(|words| words.len() == 4).collect();
        let types: Vec<_> = threads.values().filter(|words| words.len() == 1).collect();
        assert_eq!((pointers.len(), types.len(), threads.len()), (6, 2, 8), "{flags:?}: {threads:x?}");
        assert!(pointers.iter().all(|words| class(words) == class(pointers[0])), "one type of function");
        assert!(class(types[0]) == class(types[1]) && class(types[0]) != class(pointers[0]));
        for name in ["read_all", "write_all"] {
            // What follows the function may be another thread's.
            let function = |words: &[[u64; 2]]| words.iter().flatten().map(|w| run.function(w + 1)).find(|f| f != "?");
            let runs = pointers.iter().filter(|words| function(words).is_some_and(|f| f.contains(name)));
            assert_eq!(runs.count(), 3, "{flags:?}: {name}");
        }
    }
}

#[test]
fn two_thousand_short_threads() {
    let program = Build::new("many_threads.c").build();
    let run = run(&program, &["2000"]);
    assert_eq!(run.lost, 0);
    assert_eq!(run.thread_starts().len(), 2001);
    let sizes: std::collections::BTreeSet<u64> =
        run.allocations().map(harness::size).filter(|s| (80000..82000).contains(s)).collect();
    assert_eq!(sizes.len(), 2000);
}

#[test]
fn slots_are_reused_when_threads_are_reported_gone() {
    let program = Build::new("many_threads.c").build();
    // More threads than slots: without thread_gone the last ones would be lost.
    let run = run_with(&program, &["6000"], false, harness::Gone::Report);
    assert_eq!(run.lost, 0);
    assert_eq!(run.thread_starts().len(), 6001);
}

#[test]
fn children_are_inert_and_exec_attaches_again() {
    let program = Build::new("family.c").build();
    let run = run(&program, &[]);
    assert_eq!(run.stdout, "second image\n");
    let sizes: Vec<u64> = run.allocations().map(harness::size).filter(|s| (90001..90010).contains(s)).collect();
    assert_eq!(sizes, [90001, 90003, 90005]);
    assert_eq!(run.images, 2);
    assert!(run.events.iter().all(|e| e.pid == run.pid));
    assert_eq!(run.thread_starts().len(), 2, "main of each image");
}

#[test]
fn followed_children_record_under_their_own_pid() {
    let program = Build::new("family.c").build();
    let run = run_with(&program, &[], true, harness::Gone::Keep);
    let pid_of = |size| allocation(&run, size).0.pid;
    assert_eq!([pid_of(90001), pid_of(90003), pid_of(90005)], [run.pid; 3]);
    let (forked, spawned) = (pid_of(90002), pid_of(90004));
    assert!(forked != run.pid && spawned != run.pid && forked != spawned);
    assert_eq!(run.functions(&allocation(&run, 90002).0)[..2], ["allocate", "main"]);
    assert_eq!(run.images, 4);
}

#[test]
fn a_full_channel_is_counted_exactly() {
    let program = Build::new("flood.c").build();
    let run = run_with(&program, &["400000"], false, harness::Gone::DrainAtEnd);
    assert!(run.lost > 400_000, "{}", run.lost);
    let quiet = run_with(&program, &["1"], false, harness::Gone::DrainAtEnd);
    assert_eq!(quiet.lost, 0);
    // The array, too.
    let expected = quiet.events.len() as u64 + 2 * 399_999 + 2;
    assert_eq!(run.events.len() as u64 + run.lost, expected);
}

#[test]
fn many_threads_at_once_share_the_memory_of_the_channel() {
    let program = Build::new("crowd.c").build();
    // Nothing is read before the end: 34,000 events of each of 300 threads.
    let run = run_with(&program, &["300", "17000"], false, harness::Gone::DrainAtEnd);
    assert!(run.memory < 100 << 20, "{} MiB", run.memory >> 20);
    assert_eq!(run.thread_starts().len(), 301, "no thread is crowded out");
    assert!(run.lost > 1_000_000);
    // Five thousand that do little, read all the time: as far as the reader gets a CPU beside them.
    let mut runs = (0..3).map(|_| run_with(&program, &["5000", "20"], false, harness::Gone::Keep));
    let is_whole = |run: &Run| {
        assert!(run.memory < 100 << 20, "{} MiB", run.memory >> 20);
        (run.thread_starts().len(), run.lost) == (5001, 0)
    };
    assert!(runs.any(|run| is_whole(&run)), "events were lost in each of three runs");
}

#[test]
fn large_allocations_and_mappings_beyond_their_quota_are_left_out_and_counted() {
    let program = Build::new("flood.c").build();
    for size in [5_000, 100_000] {
        let thin = |channel: &numamma_channel::reader::Channel| {
            channel.set_quota(8);
            channel.set_thin(0xfff);
        };
        let run = run_prepared(&program, &["300000", &size.to_string()], false, harness::Gone::Keep, thin);
        assert!(run.events.len() < 1000, "{} events", run.events.len());
        assert!((300_000 - 2048..300_000).contains(&run.skipped), "{}", run.skipped);
        // What is rare is recorded, and what is recorded ends.
        allocation(&run, 1_000_001);
        assert_paired(&run, 5_000..1_000_002);
        assert_eq!(run.lost, 0);
    }
}

#[test]
fn whatever_else_lies_behind_the_path_is_left_alone() {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;
    let dir = Scratch::new("preload-profile-stranger");
    let channel = numamma_channel::reader::Channel::create(true).unwrap();
    let name = channel.env()[0].1.to_str().unwrap().to_owned();
    let (path, identity) = name.split_once(':').unwrap();
    let (inode, nonce) = identity.split_once(':').unwrap();
    // A file with the bytes and the size of the channel, which is not sealed; and an empty one.
    let copy =
        std::fs::File::options().read(true).write(true).create(true).truncate(true).open(dir.join("copy")).unwrap();
    copy.set_len(std::fs::metadata(path).unwrap().len()).unwrap();
    let mut start = vec![0; 4096];
    std::os::unix::fs::FileExt::read_exact_at(&std::fs::File::open(path).unwrap(), &mut start, 0).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&copy, &start, 0).unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut writer, &start[..100]).unwrap();
    let me = format!("/proc/{}/fd", std::process::id());
    let copied = copy.metadata().unwrap().ino();
    let (pipe, copy_fd) = (reader.as_raw_fd(), copy.as_raw_fd());
    for stale in [
        format!("{me}/{pipe}"),
        format!("{me}/{pipe}:{inode}:{nonce}"),
        format!("{me}/{copy_fd}"),
        format!("{me}/{copy_fd}:{identity}"),
        format!("{me}/{copy_fd}:{copied}:{nonce}"),
        format!("{path}:{inode}:1:2"),
        format!("{path}:1:{nonce}"),
        path.to_owned(),
    ] {
        let mut child = plain("/bin/true");
        child.env("LD_PRELOAD", preload("profile")).env(numamma_channel::CHANNEL_ENV, &stale);
        let mut child = child.spawn().unwrap();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if std::time::Instant::now() > end => break None,
                None => std::thread::sleep(std::time::Duration::from_millis(5)),
            }
        };
        if status.is_none() {
            child.kill().unwrap();
        }
        assert!(status.is_some_and(|s| s.success()), "{stale}: {status:?}");
        assert!(!channel.attached(), "{stale}");
        let mut now = vec![0; 4096];
        std::os::unix::fs::FileExt::read_exact_at(&copy, &mut now, 0).unwrap();
        assert!(now == start, "{stale}: somebody's file was changed");
    }
    // SAFETY: a query about the bytes in a pipe, whose answer is a live local.
    let waiting = unsafe {
        let mut waiting: libc::c_int = 0;
        assert_eq!(libc::ioctl(pipe, libc::FIONREAD, &raw mut waiting), 0);
        waiting
    };
    assert_eq!(waiting, 100, "bytes were taken from somebody's pipe");
    // And the right name works.
    let mut right = plain("/bin/true");
    right.env("LD_PRELOAD", preload("profile")).env(numamma_channel::CHANNEL_ENV, &name);
    run_command(right);
    assert!(channel.attached());
}

#[test]
fn a_process_in_another_namespace_is_known_by_the_recorders_pid() {
    let unshare = std::path::Path::new("/usr/bin/unshare");
    let allowed = plain(unshare).args(["-pf", "true"]).status().is_ok_and(|s| s.success());
    if !allowed {
        return crate::common::skipped("not root: no process namespace can be made");
    }
    let program = Build::new("crowd.c").build();
    let line = [program.to_str().unwrap(), "4", "2"];
    // The command is the second process of its namespace: its own pid there is a small number.
    let script = format!("true; {}; true", line.join(" "));
    let run = run_with(unshare, &["-pf", "sh", "-c", &script], true, harness::Gone::Keep);
    let starts = run.thread_starts();
    let pids: std::collections::BTreeSet<u32> = run.events.iter().map(|e| e.pid).collect();
    assert!(pids.len() >= 3 && pids.iter().all(|pid| *pid >= run.pid), "{pids:?} of {}", run.pid);
    let crowd = starts.iter().find(|s| s.1 != 0).unwrap().0.pid;
    let tids: std::collections::BTreeSet<u32> = starts.iter().filter(|s| s.0.pid == crowd).map(|s| s.0.tid).collect();
    assert!(tids.len() == 5 && tids.contains(&crowd), "{tids:?} of {crowd}");
    // Without --follow it is not recorded, whatever pid it has.
    let run = run_with(unshare, &["-pf", "sh", "-c", &script], false, harness::Gone::Keep);
    assert!(run.events.iter().all(|e| e.pid == run.pid));
}

#[test]
fn code_that_replaces_other_code_is_unwound_anew() {
    let small = Build::new("plugin.c").flags(&["-O2", "-DSIZE=12001", "-DPAD=400"]).library("plugin_small").build();
    let large = Build::new("plugin.c").flags(&["-O2", "-DSIZE=12002", "-DPAD=2000"]).library("plugin_large").build();
    let program = Build::new("load.c").build();
    let run = run(&program, &[small.to_str().unwrap(), large.to_str().unwrap()]);
    let lines: Vec<Vec<String>> =
        run.stdout.lines().map(|l| l.split(' ').map(str::to_string).collect::<Vec<_>>()).collect();
    assert_eq!(lines.len(), 6);
    // Else the test proves nothing: the second must lie where the first was.
    assert_eq!(lines[0][2], lines[1][2]);
    let all: Vec<&Event> = run.allocations().filter(|e| [12001, 12002].contains(&harness::size(e))).collect();
    assert_eq!(all.len(), 6);
    for (event, line) in all.iter().zip(&lines) {
        let address = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
        let stack = &run.stacks[&harness::stack(event)];
        assert!(stack[0].wrapping_sub(address(&line[2])) < 200, "inner: {stack:x?} {line:?}");
        assert!(stack[1].wrapping_sub(address(&line[1])) < 200, "outer: {stack:x?} {line:?}");
        assert_eq!(run.function(stack[2]), "main");
    }
}

#[test]
fn signals_on_another_stack_and_exit_amid_allocations() {
    let program = Build::new("signals.c").build();
    let run = run(&program, &[]);
    assert_eq!(run.stdout, "signals: done\n");
    let in_handler: Vec<&Event> = run.allocations().filter(|e| harness::size(e) == 126_976).collect();
    assert!(!in_handler.is_empty(), "some signals arrive outside of hooks");
    for event in in_handler {
        assert_eq!(run.functions(event), ["handler"], "nothing is read beyond an unknown stack");
    }
}

#[test]
fn a_foreign_allocator_stays_in_charge() {
    let foreign = Build::new("foreign.c").library("foreign").build();
    let program = Build::new("uses_foreign.c").link(&foreign).build();
    let run = run(&program, &[]);
    assert_eq!(run.stdout, "2\n", "malloc and realloc went to the program's own allocator");
    assert_eq!(allocation(&run, 15001).1[..2], ["allocate", "main"]);
    allocation(&run, 15002);
    assert!(run.allocations().all(|e| harness::size(e) != 64 << 20), "its arena is not the program's mapping");
}

#[test]
fn output_is_the_same_with_and_without() {
    let program = Build::new("new.cpp").flags(&["-O2", "-std=c++17"]).build();
    let bare = run_command(&mut plain(&program));
    let under = run_command(plain(&program).env("LD_PRELOAD", preload("profile")));
    assert_eq!((bare.status, &bare.stdout, &bare.stderr), (under.status, &under.stdout, &under.stderr), "no channel");
    let mut pointless = plain(&program);
    pointless.env("LD_PRELOAD", preload("profile")).env(numamma_channel::CHANNEL_ENV, "/proc/1/fd/99");
    let under = run_command(pointless);
    assert_eq!((bare.status, bare.stdout, bare.stderr), (under.status, under.stdout, under.stderr), "no such channel");
}

#[test]
fn a_compiler_and_its_children_work_as_before() {
    let dir = Scratch::new("preload-profile-compiled");
    let (source, out) = (source("preloads/preload_profile/new.cpp"), dir.join("compiled.o"));
    let source = source.to_str().unwrap();
    let args = ["-O2", "-c", source, "-o", out.to_str().unwrap()];
    let compiler = std::path::Path::new("/usr/bin/g++");
    assert!(std::process::Command::new(compiler).args(args).status().unwrap().success());
    let plain = std::fs::read(&out).unwrap();
    for follow in [false, true] {
        std::fs::remove_file(&out).unwrap();
        let run = run_with(compiler, &args, follow, harness::Gone::Keep);
        assert_eq!(std::fs::read(&out).unwrap(), plain, "follow: {follow}");
        // The driver, cc1plus and the assembler.
        assert!(if follow { run.images >= 3 } else { run.images == 1 }, "{} images", run.images);
        // cc1plus unwinds deeply through static functions: the stacks must still be sensible.
        let deep = run.stacks.values().filter(|s| s.len() == numamma_channel::MAX_FRAMES).count();
        assert!(!follow || deep * 2 > run.stacks.len(), "{deep} of {} stacks are deep", run.stacks.len());
    }
}

#[test]
fn a_limited_address_space_is_enough() {
    let program = Build::new("calls.c").build();
    let script = format!("ulimit -v 400000; exec {}", program.display());
    let run = run(std::path::Path::new("/bin/sh"), &["-c", &script]);
    assert_eq!(run.stdout, "calls: done\n");
    assert_eq!((run.images, run.lost), (2, 0));
    assert_eq!(run.allocations().filter(|e| harness::size(e) == 30001).count(), 1);
}

#[test]
fn what_a_program_repeats_is_said_once_and_its_last_word_holds() {
    let run = run(&Build::new("switch.c").flags(&["-O2", "-Iinclude"]).build(), &[]);
    assert_eq!(run.lost, 0);
    let mut events = run.events.clone();
    events.sort_by_key(|e| e.time_ns);
    let said: Vec<bool> = events.iter().filter_map(harness::switched).collect();
    assert_eq!(said[..2], [false, true], "each of the two million calls once");
    let (mut on, mut rounds) = (false, 0);
    for event in &events {
        on = harness::switched(event).unwrap_or(on);
        if harness::size(event) == 100_000 {
            assert!(on, "round {rounds}");
            rounds += 1;
        }
    }
    assert_eq!(rounds, 20_000);
}
