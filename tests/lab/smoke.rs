//! The NUMA lab keeps its promises: streams, status, files, nodes, limits. Every other lab test stands on them.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::lab::{available, command as lab};
use crate::common::{Scratch, compile, text};

fn run(args: &[&str]) -> std::process::Output {
    lab().args(args).output().expect("bash runs the lab script")
}

fn shown(path: PathBuf) -> String {
    path.to_str().expect("a UTF-8 path").to_owned()
}

/// Bytes that a terminal, a shell or a line-based relay would change.
fn awkward_bytes(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_u32;
    (0..length)
        .map(|i| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            // Every byte value at the start, in order, NUL, CR, LF and EOT among them.
            if i < 256 { i as u8 } else { state as u8 }
        })
        .collect()
}

#[test]
fn streams_and_status_pass_unchanged() {
    if !available() {
        return;
    }
    let scratch = Scratch::new("lab-smoke-streams");
    let (out, err) = (awkward_bytes(3_000_001), awkward_bytes(70_001));
    let (out_file, err_file) = (shown(scratch.write("out.bin", &out)), shown(scratch.write("err.bin", &err)));
    let script = "cat out.bin; cat err.bin >&2; [ ! -t 1 ] && [ ! -t 2 ] && [ -z \"$(cat)\" ] && \
                  [ \"$1\" = \"it's \\ \\$1 \n\" ] && exit 37";
    let started = Instant::now();
    let done = run(&["--add", &out_file, "--add", &err_file, "--", "bash", "-c", script, "sh", "it's \\ $1 \n"]);
    assert_eq!(done.status.code(), Some(37), "{}", text(&done.stderr[done.stderr.len().saturating_sub(2000)..]));
    assert!(done.stdout == out, "stdout changed: {} bytes of {}", done.stdout.len(), out.len());
    assert!(done.stderr == err, "stderr changed: {} bytes of {}", done.stderr.len(), err.len());
    // 15 s is the bar on a free machine; on one where other tests boot too it was seen to take 40.
    assert!(started.elapsed() < Duration::from_secs(90), "{:?}", started.elapsed());
}

#[test]
fn a_killed_command_gives_128_plus_the_signal_and_leaves_no_words() {
    if !available() {
        return;
    }
    // What it leaves running holds a pipe open: the lab must not wait for it.
    let done = run(&["--timeout", "120", "--", "bash", "-c", "echo one; (sleep 1000; echo late) >&2 & kill -SEGV $$"]);
    assert_eq!(done.status.code(), Some(128 + 11), "{}", text(&done.stderr));
    assert_eq!(text(&done.stdout), "one\n");
    assert_eq!(text(&done.stderr), "");
}

/// Shows nodes, CPUs and distances as the kernel has them.
const SHOW_NODES: &str = "cat /sys/devices/system/node/online; nproc; cat /sys/devices/system/node/node?/distance; \
                          cat /sys/devices/system/node/node?/cpulist; cat /sys/kernel/mm/transparent_hugepage/enabled";

#[test]
fn two_nodes_with_distances_and_thp() {
    if !available() {
        return;
    }
    let done = run(&[
        "--nodes=2",
        "--cpus-per-node=1",
        "--distances",
        "10 31;17,10",
        "--thp",
        "never",
        "sh",
        "-c",
        SHOW_NODES,
    ]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert_eq!(text(&done.stdout), "0-1\n2\n10 31\n17 10\n0\n1\nalways madvise [never]\n");
}

#[test]
fn eight_nodes_with_the_defaults() {
    if !available() {
        return;
    }
    let done = run(&["--nodes", "8", "--memory-per-node", "256", "--", "sh", "-c", SHOW_NODES]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let mut expected = String::from("0-7\n16\n");
    for i in 0..8 {
        let row: Vec<_> = (0..8).map(|j| if i == j { "10" } else { "20" }).collect();
        expected += &format!("{}\n", row.join(" "));
    }
    (0..8).for_each(|i| expected += &format!("{}-{}\n", 2 * i, 2 * i + 1));
    assert_eq!(text(&done.stdout), expected + "[always] madvise never\n");
}

#[test]
fn a_program_with_its_own_library_places_and_samples_without_privilege() {
    if !available() {
        return;
    }
    let scratch = Scratch::new("lab-smoke-place");
    let library = compile("cc", "lab/smoke/answer.c", scratch.join("libanswer.so"), &["-O1", "-shared", "-fPIC"]);
    let rpath = format!("-Wl,-rpath,{}", scratch.display());
    let flags = ["-O1", &shown(library), &rpath];
    let program = shown(compile("cc", "lab/smoke/place.c", scratch.join("place"), &flags));
    let done = run(&["--user", "--add", &program, "--", "place"]);
    assert!(done.status.success(), "{:?} {}", done.status, text(&done.stderr));
    let nodes: String = ["0", "1", "2", "3"].iter().map(|n| n.repeat(16)).collect();
    assert_eq!(text(&done.stdout), format!("{nodes} samples 1 answer 42 uid 1000\n"));
}

#[test]
fn scripts_data_directories_and_roots_are_there() {
    if !available() {
        return;
    }
    let scratch = Scratch::new("lab-smoke-files");
    let show = "#!/usr/bin/env bash\ncat data.txt tree/deep/leaf \"$1\"\npwd\nid -u\n";
    let script = shown(scratch.write_mode("show.sh", show, 0o755));
    std::fs::create_dir_all(scratch.join("tree/deep")).expect("tree");
    let leaf = shown(scratch.write("tree/deep/leaf", "leaf\n"));
    let (data, tree) = (shown(scratch.write("data.txt", "data\n")), shown(scratch.join("tree")));
    let args =
        ["--add", &script, "--add", &data, "--add", &tree, "--with-root", &tree, "--sysctl", "kernel.numa_balancing=0"];
    let done = lab().args(args).args(["--", "show.sh", &leaf]).output().expect("the lab runs");
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert_eq!(text(&done.stdout), "data\nleaf\nleaf\n/work\n0\n");
}

#[test]
fn the_newer_kernel_boots_and_the_library_preloads_by_name() {
    if !available() {
        return;
    }
    // The loader must find it as it is found after `make install`. The name in the map is the proof.
    let look = "while read -r l; do case $l in */usr/local/lib/libnumamma-apply.so) echo there; break;; esac; done \
                </proc/self/maps; uname -r";
    let done = lab()
        .args(["--kernel", "6.12", "--nodes", "2", "--"])
        .args(["env", "LD_PRELOAD=libnumamma-apply.so", "/bin/bash", "-c", look])
        .output()
        .expect("the lab runs");
    assert!(done.status.success(), "{}", text(&done.stderr));
    let out = text(&done.stdout);
    assert!(out.starts_with("there\n6.12."), "{out}\n{}", text(&done.stderr));
}

#[test]
fn a_timeout_ends_the_guest_and_says_so() {
    if !available() {
        return;
    }
    let started = Instant::now();
    let done = run(&["--timeout", "3", "--", "sh", "-c", "echo begun; sleep 1000"]);
    assert_eq!(done.status.code(), Some(124), "{}", text(&done.stderr));
    assert_eq!(text(&done.stdout), "begun\n");
    assert!(text(&done.stderr).contains("timeout: the command ran for 3 s"), "{}", text(&done.stderr));
    // Boot, three seconds, and the end: not the thousand of the command.
    assert!(started.elapsed() < Duration::from_secs(150), "{:?}", started.elapsed());
}

#[test]
fn a_missing_tool_is_named_with_its_package() {
    // A PATH with all that the script needs but qemu.
    let scratch = Scratch::new("lab-smoke-missing");
    for tool in ["bash", "readlink", "dirname", "busybox", "mke2fs", "ldd", "setpriv", "env"] {
        let found = Command::new("sh")
            .args(["-c", &format!("PATH=$PATH:/usr/sbin:/sbin command -v {tool}")])
            .output()
            .map(|o| text(&o.stdout).trim().to_owned())
            .expect("sh runs");
        if !found.is_empty() {
            std::os::unix::fs::symlink(found, scratch.join(tool)).expect("link");
        }
    }
    let done = lab().env("PATH", scratch.as_os_str()).args(["--", "true"]).output().expect("the lab runs");
    assert_eq!(done.status.code(), Some(125), "{}", text(&done.stderr));
    let words = text(&done.stderr);
    assert!(words.contains("qemu-system-x86_64") && words.contains("apt-get install qemu-system-x86"), "{words}");
}

#[test]
fn mistakes_are_refused_before_anything_boots() {
    for (args, word) in [
        (&["--nodes", "0", "true"][..], "--nodes"),
        (&["--nodes", "2", "--distances", "10,20", "true"], "1 rows for 2 nodes"),
        (&["--nodes", "2", "--distances", "10,20;20,11", "true"], "node 1 is at 10"),
        (&["--kernel", "5.10", "true"], "6.1 6.12"),
        (&["--add", "/no/such/file", "true"], "/no/such/file"),
        (&["--with-root", "relative", "true"], "absolute"),
        (&["--frobnicate", "true"], "--frobnicate"),
        (&["--nodes"], "needs a value"),
        (&[], "no command"),
    ] {
        let done = run(args);
        assert_eq!(done.status.code(), Some(125), "{args:?}: {}", text(&done.stderr));
        assert!(text(&done.stderr).contains(word), "{args:?}: {}", text(&done.stderr));
        assert!(done.stdout.is_empty());
    }
}
