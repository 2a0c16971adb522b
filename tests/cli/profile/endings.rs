//! The program's own face: output, status, signals; and recordings that end early.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use numamma::profile::records::Ended;

use super::harness::*;

fn signal(pid: u32, number: i32) {
    // SAFETY: plain system call on a process this test started.
    assert_eq!(unsafe { libc::kill(pid as i32, number) }, 0);
}

/// Process that the recorder `parent` started, once it runs the program.
fn program_of(parent: u32, name: &str) -> u32 {
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        for pid in children.split_whitespace().filter_map(|p| p.parse::<u32>().ok()) {
            let exe = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
            if exe.file_name().is_some_and(|f| f == name) {
                return pid;
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{name} was not started");
}

fn start(dir: &Path, options: &[&str], command: &[&str]) -> (Child, u32) {
    let mut c = profile(dir, options, command);
    let child = c.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("numamma starts");
    let pid = program_of(child.id(), Path::new(command[0]).file_name().unwrap().to_str().unwrap());
    (child, pid)
}

/// Until the program has computed for so long, however busy the machine is.
fn wait_for_cpu(pid: u32, ms: u64) {
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the program runs");
        let utime =
            stat.rsplit(')').next().and_then(|s| s.split_whitespace().nth(11)).and_then(|t| t.parse::<u64>().ok());
        if utime.is_some_and(|ticks| ticks * 10 >= ms) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the program got no CPU time");
}

#[test]
fn output_and_input_pass_bit_for_bit() {
    let dir = scratch("streams");
    let program = compile(&dir, "behave", &[]);
    let words = ["out", "no newline", "err", "from the \u{1b}[1mprogram", "copy", "exit", "3"];
    let input: Vec<u8> = (0..200_000u32).map(|i| (i * 7 % 251) as u8).collect();
    let feed = |mut c: Command| {
        let mut child = c.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        let data = input.clone();
        let feeder = std::thread::spawn(move || pipe.write_all(&data).is_ok());
        let out = child.wait_with_output().unwrap();
        assert!(feeder.join().unwrap());
        out
    };
    let mut alone = plain(&program);
    alone.args(words);
    let alone = feed(alone);
    let program = program.to_str().unwrap();
    let under = feed(profile(&dir, &["-q"], &[&[program], &words[..]].concat()));
    assert_eq!(alone.status.code(), Some(3));
    assert_eq!(under.status.code(), Some(3));
    assert!(under.stdout == alone.stdout, "stdout differs");
    assert_eq!(text(&under.stderr), text(&alone.stderr), "quiet means quiet");
    // Not quiet: our lines come on stderr alone, marked.
    let told = feed(profile(&dir, &[], &[&[program], &words[..]].concat()));
    assert!(told.stdout == alone.stdout);
    let said = text(&told.stderr).replacen("from the \u{1b}[1mprogram", "", 1);
    assert!(said.lines().all(|l| l.starts_with("numamma: ")), "{said}");
    assert!(said.contains("t.prof") && said.contains("numamma report"), "{said}");
}

#[test]
fn exit_status_is_the_programs_own() {
    let dir = scratch("status");
    let program = compile(&dir, "behave", &[]);
    let program = program.to_str().unwrap();
    for (words, ending) in [
        (["exit", "0"], Ended::Exited(0)),
        (["exit", "1"], Ended::Exited(1)),
        (["exit", "255"], Ended::Exited(255)),
        (["kill", "6"], Ended::Signalled(6)),
        (["kill", "9"], Ended::Signalled(9)),
        (["kill", "11"], Ended::Signalled(11)),
        (["kill", "15"], Ended::Signalled(15)),
    ] {
        let out = run(profile(&dir, &[], &[&[program], &words[..]].concat()));
        assert_eq!(Ended::from(out.status), ending, "{words:?}: {}", out.stderr);
        let p = Profile::read(&dir.join("t.prof"));
        assert_eq!((p.ending, p.damage), (Some(ending), None), "{words:?}");
    }
}

#[test]
fn signal_dispositions_and_masks_are_as_alone() {
    let dir = scratch("mask");
    let program = compile(&dir, "behave", &[]);
    let alone = run(heeding(plain(&program)).arg("mask"));
    let under = run(profile(&dir, &["-q"], &[program.to_str().unwrap(), "mask"]));
    assert_eq!(under.stdout, alone.stdout);
    // nohup ignores SIGHUP; that must reach the program, too.
    let exe = NUMAMMA;
    let nohup = run(plain("sh")
        .current_dir(&dir)
        .args(["-c", "trap '' HUP; \"$0\" profile -q -o t.prof -- \"$1\" mask"])
        .args([Path::new(&exe), &program]));
    assert!(nohup.stdout.contains("ignored 1\n"), "{nohup:?}");
}

#[test]
fn a_killed_program_leaves_a_complete_profile() {
    let dir = scratch("killed");
    let program = compile(&dir, "behave", &[]);
    let (child, pid) = start(&dir, &[], &[program.to_str().unwrap(), "spin", "20000"]);
    wait_for_cpu(pid, 300);
    signal(pid, libc::SIGKILL);
    let out = wait(child);
    assert_eq!(out.signal(), Some(libc::SIGKILL));
    let p = Profile::read(&dir.join("t.prof"));
    assert_eq!((p.ending, &p.damage), (Some(Ended::Signalled(9)), &None));
    p.check_sums();
    assert!(p.accesses_to(&p.global("cells")).count() > 50, "{:?}", p.stats);
}

#[test]
fn a_killed_recorder_leaves_what_it_had_and_the_program_goes_on() {
    let dir = scratch("recorder-killed");
    let program = compile(&dir, "behave", &[]);
    let words = ["spin", "500", "spin", "4000", "out", "done"];
    let (mut child, pid) = start(&dir, &[], &[&[program.to_str().unwrap()], &words[..]].concat());
    wait_for_cpu(pid, 500);
    std::thread::sleep(Duration::from_millis(1500)); // the file grows once a second
    signal(child.id(), libc::SIGKILL);
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert!(Path::new(&format!("/proc/{pid}")).exists(), "the program still runs");
    let p = Profile::read(&dir.join("t.prof"));
    assert_eq!(p.ending, None);
    assert!(p.accesses_to(&p.global("cells")).count() > 50, "{:?}", p.stats);
    assert!(p.stats.duration_ns > 500_000_000, "{:?}", p.stats);
    // The program holds the other end of the pipe: reading ends when it does.
    let out = wait(child);
    assert_eq!(out.stdout, "done");
}

/// As when the machine runs out of memory: neither has time to write anything.
#[test]
fn a_recorder_and_its_program_killed_together_leave_what_was_written() {
    let dir = scratch("both-killed");
    let program = compile(&dir, "behave", &[]);
    let (mut child, pid) = start(&dir, &[], &[program.to_str().unwrap(), "spin", "20000"]);
    wait_for_cpu(pid, 500);
    std::thread::sleep(Duration::from_millis(1500)); // the file grows once a second
    signal(child.id(), libc::SIGKILL);
    signal(pid, libc::SIGKILL);
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    let p = Profile::read(&dir.join("t.prof"));
    assert_eq!(p.ending, None);
    assert!(p.accesses_to(&p.global("cells")).count() > 50, "{:?}", p.stats);
    let report = run(numamma(&["report", dir.join("t.prof").to_str().unwrap()]));
    assert_eq!(report.code(), Some(0), "{}", report.stderr);
    assert!(report.stdout.contains("cells"), "{}", report.stdout);
}

/// Two programs that have one process id after another, in a PID namespace in which the next one can be chosen.
#[test]
fn a_process_id_that_is_used_again_is_another_process() {
    let dir = scratch("pid-reused");
    let (first, second) = (compile(&dir, "behave", &[]), compile(&dir, "slices", &[]));
    let script = "\"$1\" spin 400 & a=$!; wait $a
        echo $((a - 1)) > /proc/sys/kernel/ns_last_pid || exit 77
        \"$2\" 0.4 > slices.out & b=$!; wait $b; [ $a = $b ] || exit 78";
    let sh = ["sh", "-c", script, "sh", first.to_str().unwrap(), second.to_str().unwrap()];
    // None where this is not root.
    let recorded = |options: &[&str]| {
        let inside = profile(&dir, options, &sh);
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc"]).arg(inside.get_program()).args(inside.get_args());
        let out = run({
            command.current_dir(&dir).stdin(Stdio::null());
            command
        });
        if !dir.join("t.prof").exists() || out.code() == Some(77) {
            crate::common::skipped(&format!("not root here: {}", out.stderr));
            return None;
        }
        assert_eq!(out.code(), Some(0), "{}", out.stderr);
        Some(Profile::read(&dir.join("t.prof")))
    };
    // Each program's variable is charged by its own threads only.
    let users = |p: &Profile, variable: &str| -> Vec<String> {
        let objects = p.global(variable);
        let by = p.accesses_to(&objects).filter_map(|a| p.threads.get(a.thread as usize));
        by.map(|thread| thread.name.clone()).collect()
    };
    let Some(all) = recorded(&["--follow"]) else { return };
    let (cells, sliced) = (users(&all, "cells"), users(&all, "sliced"));
    assert!(cells.len() > 50 && cells.iter().all(|name| *name == "behave"), "{cells:?}");
    assert!(sliced.len() > 50 && sliced.iter().all(|name| *name != "behave"), "{sliced:?}");
    // The profile of one of the programs has nothing of the other, which had its process id.
    for (program, own) in [("behave", "cells"), ("slices", "sliced")] {
        let Some(one) = recorded(&["--program", program]) else { return };
        assert!(users(&one, own).len() > 50, "{program}: {:?}", one.threads);
        let others = one.threads.iter().filter(|t| (t.name == "behave") != (program == "behave"));
        assert_eq!(others.count(), 0, "{program}: {:?}", one.threads);
    }
}

#[test]
fn signals_sent_to_the_recorder_reach_the_program() {
    let dir = scratch("forward");
    let program = compile(&dir, "behave", &[]);
    for number in [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1] {
        let catch = number.to_string();
        let (child, _) =
            start(&dir, &[], &[program.to_str().unwrap(), "catch", &catch, "out", "ready", "sleep", "20000"]);
        std::thread::sleep(Duration::from_millis(300));
        signal(child.id(), number);
        let out = wait(child);
        assert_eq!(out.code(), Some(5), "signal {number}: {}", out.stderr);
        assert_eq!(out.stdout, format!("readycaught {number:02}\n"));
        assert_eq!(Profile::read(&dir.join("t.prof")).ending, Some(Ended::Exited(5)));
    }
}

#[test]
fn an_interrupt_from_the_terminal_ends_the_program_and_not_the_profile() {
    let dir = scratch("interrupt");
    let program = compile(&dir, "behave", &[]);
    // A process group of its own, interrupted as the terminal does: all of it.
    use std::os::unix::process::CommandExt;
    let mut c = profile(&dir, &[], &[program.to_str().unwrap(), "spin", "20000"]);
    let child = c.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    program_of(child.id(), "behave");
    std::thread::sleep(Duration::from_millis(300));
    // SAFETY: plain system call on the group this test made.
    assert_eq!(unsafe { libc::kill(-(child.id() as i32), libc::SIGINT) }, 0);
    let out = wait(child);
    assert_eq!(out.signal(), Some(libc::SIGINT), "{}", out.stderr);
    let p = Profile::read(&dir.join("t.prof"));
    assert_eq!((p.ending, &p.damage), (Some(Ended::Signalled(2)), &None));
}

#[test]
fn a_file_size_limit_stops_the_file_and_not_the_program() {
    let dir = scratch("limit");
    let exe = NUMAMMA;
    let limited = |program: &Path, seconds: &str| {
        let script = "ulimit -f 4; exec \"$0\" profile -F 500 -o t.prof -- \"$1\" \"$2\"";
        let mut c = Command::new("bash");
        c.current_dir(&dir).args(["-c", script]).args([Path::new(&exe), program]).arg(seconds);
        run(c)
    };
    // The channel is a sparse file larger than that: refused, with the reason.
    let out = limited(&compile(&dir, "shared", &[]), "2.5");
    let text = &out.stderr;
    assert_eq!((out.code(), text.lines().count()), (Some(2), 1), "{text}");
    assert!(text.contains("ulimit -f"), "{text}");
    // The limit that the message names is enough.
    let enough = text.rsplit("ulimit -f ").next().and_then(|rest| rest.split(')').next()).expect("a limit");
    let enough: u64 = enough.parse().expect("a number");
    for (limit, code) in [(enough, 0), (enough - 1, 2)] {
        let script = format!("ulimit -f {limit}; exec \"$0\" profile -o whole.prof -- true");
        run(Command::new("bash").current_dir(&dir).args(["-c", &script, exe])).ended(code);
    }
    // A static program has no channel: its profile runs into the limit.
    let out = limited(&compile(&dir, "shared", &["-static"]), "2.5");
    let text = &out.stderr;
    assert_eq!(out.code(), Some(0), "{text}");
    assert_eq!(text.matches("File too large").count(), 1, "said once: {text}");
    let p = Profile::read(&dir.join("t.prof"));
    assert_eq!(p.ending, None);
    assert!(p.header().program.path.ends_with("shared"));
}

#[test]
fn a_device_without_room_is_said_once_and_left_alone() {
    let dir = scratch("no-room-for-file");
    let program = compile(&dir, "behave", &[]);
    // Through a link: should the recorder rename what it must not, only the link is moved.
    std::os::unix::fs::symlink("/dev/full", dir.join("full")).unwrap();
    let out = run(profile(&dir, &["-o", "full"], &[program.to_str().unwrap(), "out", "ran"]));
    assert!(!dir.join("full.old").is_symlink(), "the device is left alone");
    let text = &out.stderr;
    assert_eq!(text.matches("No space left").count(), 1, "said once: {text}");
    assert_eq!((out.code(), &out.stdout[..]), (Some(2), ""), "refused before the program ran: {text}");
}

#[test]
fn a_small_file_system_keeps_what_fits() {
    let dir = scratch("tmpfs");
    let program = compile(&dir, "shared", &[]);
    let mount = dir.join("small");
    std::fs::create_dir(&mount).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=16k", "none"]).arg(&mount).output();
    if !mounted.is_ok_and(|o| o.status.success()) {
        return crate::common::skipped("not root: a small file system cannot be mounted");
    }
    let out = run(profile(&dir, &["-o", "small/t.prof"], &[program.to_str().unwrap(), "2.5"]));
    let read = std::panic::catch_unwind(|| Profile::read(&mount.join("t.prof")));
    let unmounted = Command::new("umount").arg(&mount).status().unwrap();
    assert!(unmounted.success());
    let text = &out.stderr;
    assert_eq!(out.code(), Some(0), "{text}");
    assert_eq!(text.matches("No space left").count(), 1, "said once: {text}");
    assert!(text.contains("incomplete"), "{text}");
    let p = read.expect("what fits is readable");
    assert_eq!(p.ending, None);
    assert_eq!(p.header().program.argv.last().map(String::as_str), Some("2.5"));
}

#[test]
fn an_older_profile_is_kept() {
    let dir = scratch("older");
    let program = compile(&dir, "behave", &[]);
    for status in ["1", "2"] {
        run(profile(&dir, &[], &[program.to_str().unwrap(), "exit", status]));
    }
    assert_eq!(Profile::read(&dir.join("t.prof")).ending, Some(Ended::Exited(2)));
    assert_eq!(Profile::read(&dir.join("t.prof.old")).ending, Some(Ended::Exited(1)));
}
