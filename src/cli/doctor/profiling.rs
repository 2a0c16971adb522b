//! What `numamma profile` needs.

use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;

use numamma_channel::reader::Channel;
use numamma_kernel::sys::PAGE;
use perf_event_open_sys::ioctls;

use super::line;
use crate::cli::fault_sampler::{self, Way};
use crate::cli::trace_flags;
use crate::launch::library::{self, LIB_ENV};
use crate::profile::perf::decode::{Source, record};
use crate::profile::perf::ring::Ring;
use crate::profile::perf::{PerfEvent, PerfRecord, attr, calibrate};
use crate::report::checks::{Check, State};

/// Default of `numamma profile --max-overhead`, as a fraction.
const DEFAULT_BUDGET: f64 = 0.03;
/// Samplers of other tools need these; `timer` needs none of them.
const PMUS: [(&str, &[&str]); 3] =
    [("pebs", &["cpu/events/mem-loads", "cpu_core/events/mem-loads"]), ("ibs", &["ibs_op"]), ("spe", &["arm_spe_0"])];
const PMU_DIR: &str = "/sys/bus/event_source/devices";
/// What the kernel grants every user for rings, KiB per CPU, unless changed.
const DEFAULT_MLOCK_KB: u64 = 516;

pub(super) fn checks() -> Vec<Check> {
    let mut checks = vec![timer(), page_faults(), ring_memory(), allocations(), trace(), fault()];
    checks.push(paranoid());
    checks.push(kernel_addresses());
    checks.push(pmus());
    checks
}

fn timer() -> Check {
    let name = "timer sampler";
    // Measured even where it is known, and kept: this is how to renew it.
    match calibrate::measured().map(|costs| costs.sample_ns) {
        Ok(0) => Check::new(name, State::Ok, "works; the machine is too busy to say what a sample costs"),
        Ok(cost) => {
            let rate = calibrate::rate_for(DEFAULT_BUDGET, cost);
            let us = cost as f64 / 1e3;
            Check::new(
                name,
                State::Ok,
                format!("works; a sample costs at least {us:.1} us, at {rate:.0} Hz the overhead stays below 3 %"),
            )
        }
        Err(e) => Check::new(name, State::Missing, attr::explain_refusal(&e)).enable(perf_command()),
    }
}

/// The command that makes the kernel accept events of ordinary users.
fn perf_command() -> &'static str {
    match line("/proc/sys/kernel/perf_event_paranoid").and_then(|p| p.parse::<i32>().ok()) {
        Some(level) if level > 2 => "sudo sysctl kernel.perf_event_paranoid=2",
        Some(_) => "docker run --cap-add PERFMON --security-opt seccomp=unconfined ... (in a container)",
        None => "a kernel with CONFIG_PERF_EVENTS=y",
    }
}

/// Touches a fresh page under the event and looks for its address in the ring.
fn page_faults() -> Check {
    let name = "first touch";
    match (sees_fault(true), sees_fault(false)) {
        (Ok(true), _) => Check::new(name, State::Ok, "page faults are seen, also those inside system calls"),
        (_, Ok(true)) => Check::new(
            name,
            State::Limited,
            "page faults are seen, except for pages first touched inside system calls such as read()",
        )
        .enable("sudo sysctl kernel.perf_event_paranoid=1"),
        (_, Ok(false)) => Check::new(name, State::Limited, "page-fault events open but report no address"),
        (_, Err(e)) => {
            Check::new(name, State::Missing, format!("page-fault events are refused: {e}")).enable(perf_command())
        }
    }
}

fn sees_fault(kernel: bool) -> io::Result<bool> {
    let mut event = attr::faults(kernel);
    event.set_inherit(0);
    event.set_enable_on_exec(0);
    let fd = attr::open(&mut event, 0, -1)?;
    let mut ring = Ring::map(&fd, 4)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let (len, prot) = (PAGE, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a new mapping that is written once and unmapped; the descriptor is an open event.
    let addr = unsafe {
        let page = libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0);
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        ioctls::ENABLE(fd.as_raw_fd(), 0);
        page.cast::<u8>().write_volatile(1);
        ioctls::DISABLE(fd.as_raw_fd(), 0);
        libc::munmap(page, len);
        page as u64
    };
    let mut seen = false;
    ring.drain(|bytes| {
        seen |=
            matches!(record(bytes, Source::Faults), Some(PerfRecord { event: PerfEvent::Fault { addr: a, .. }, .. }) if a == addr);
    });
    Ok(seen)
}

fn ring_memory() -> Check {
    let per_cpu = line("/proc/sys/kernel/perf_event_mlock_kb").and_then(|l| l.parse::<u64>().ok());
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is valid for a write of one rlimit.
    unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    let locked = match limit.rlim_cur {
        libc::RLIM_INFINITY => "no limit on locked memory".to_owned(),
        bytes => format!("{} KiB more by ulimit -l", bytes / 1024),
    };
    let found = match per_cpu {
        Some(kb) => format!("{kb} KiB per CPU, {locked}"),
        None => locked,
    };
    let check = Check::new("event buffers", State::Ok, found);
    match per_cpu {
        Some(kb) if kb < DEFAULT_MLOCK_KB => Check { state: State::Limited, ..check }
            .enable(format!("sudo sysctl kernel.perf_event_mlock_kb={DEFAULT_MLOCK_KB}")),
        _ => check,
    }
}

fn allocations() -> Check {
    let name = "allocations";
    let library = match library::find("profile") {
        Ok(path) => path,
        Err(e) => {
            return Check::new(name, State::Missing, e.to_string()).enable(format!("make install, or {LIB_ENV}=DIR"));
        }
    };
    let channel = match Channel::create(false) {
        Ok(channel) => channel,
        Err(e) => {
            return Check::new(name, State::Missing, e.to_string()).enable("ulimit -v unlimited; ulimit -f unlimited");
        }
    };
    let show = library.display();
    // A program that does nothing, with the library as `numamma profile` would load it.
    let run = Command::new("true").envs(channel.env()).env("LD_PRELOAD", &library).status();
    match run {
        Ok(_) if channel.attached() => Check::new(name, State::Ok, format!("{show} attaches to programs")),
        Ok(_) => Check::new(
            name,
            State::Missing,
            format!("{show} was preloaded but did not attach: it belongs to another version"),
        )
        .enable("make install (or cargo build --workspace) for this version"),
        Err(e) => {
            Check::new(name, State::Limited, format!("{show} was found but `true` could not be run with it: {e}"))
        }
    }
}

/// Only programs that are compiled for it can use it, so that nothing is broken without it.
fn trace() -> Check {
    let name = "trace sampler";
    match library::find_trace() {
        Ok(dir) => Check::new(name, State::Info, format!("{}, for programs that are compiled for it", dir.display()))
            .enable(trace_flags::COMMAND),
        Err(e) => Check::new(name, State::Info, e).enable("make install"),
    }
}

/// Nothing else needs it, so that nothing is broken without it.
fn fault() -> Check {
    let name = "fault sampler";
    match fault_sampler::usable(true) {
        Ok(Way::Moving) => {
            Check::new(name, State::Info, "works: the first use of each page in windows, by page faults")
        }
        Ok(Way::Balancing) => {
            let found =
                "works by NUMA balancing: the first use of some pages after the other, as often as the kernel asks";
            Check::new(name, State::Info, found)
        }
        Err(lack) => Check::new(name, State::Info, lack.why).enable(lack.enable),
    }
}

fn paranoid() -> Check {
    let name = "perf_event_paranoid";
    match line("/proc/sys/kernel/perf_event_paranoid") {
        Some(level) => {
            let meaning = match level.parse::<i32>() {
                Ok(i32::MIN..=1) => "everything numamma uses is open to all users",
                Ok(2) => "users may sample their own processes in user mode",
                _ => "above 2, kernels of Debian and Android let only root sample",
            };
            Check::new(name, State::Info, format!("{level}: {meaning}"))
        }
        None => Check::new(name, State::Info, "this kernel has no perf events"),
    }
}

fn kernel_addresses() -> Check {
    let level = line("/proc/sys/kernel/kptr_restrict").unwrap_or_else(|| "unknown".into());
    Check::new("kptr_restrict", State::Info, format!("{level}; does not matter, kernel code is not sampled"))
}

fn pmus() -> Check {
    let present = |paths: &[&str]| paths.iter().any(|p| Path::new(PMU_DIR).join(p).exists());
    let list: Vec<String> = PMUS
        .iter()
        .map(|(name, paths)| format!("{name} {}", if present(paths) { "present" } else { "absent" }))
        .collect();
    Check::new("memory PMUs", State::Info, format!("{}; the timer sampler needs none", list.join(", ")))
}
