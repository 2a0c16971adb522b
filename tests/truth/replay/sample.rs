//! Timer samples of a program that says where its data is: one ring per thread, registers of every sample.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use numamma::profile::perf::Regs;
use perf_event_open_sys::bindings as sys;

use super::code::LiveCode;

/// Where something is.
#[derive(Debug, Clone)]
pub struct Range {
    pub name: String,
    /// The thread it belongs to, for slices.
    pub tid: Option<u32>,
    pub start: u64,
    pub len: u64,
}

impl Range {
    pub fn holds(&self, addr: u64) -> bool {
        addr.wrapping_sub(self.start) < self.len
    }
}

/// What a run gave.
pub struct Run {
    pub ranges: Vec<Range>,
    /// Thread and registers of every sample.
    pub samples: Vec<(u32, Regs)>,
    pub code: LiveCode,
}

/// Samples per second and thread: few enough not to disturb, many enough for shares.
const RATE: u64 = 1000;
/// Data pages of a ring.
const PAGES: usize = 64;
/// Registers rax to flags and r8 to r15 in the order of `enum perf_event_x86_regs`.
const REGS_MASK: u64 = 0xff_03ff;
/// `Regs::gpr` index of each register in a sample, by bit number; rip and flags are apart.
const SAMPLE_ORDER: [usize; 8] = [0, 3, 1, 2, 6, 7, 5, 4];

/// Runs `program args` with two threads and samples them; Err with the reason when the kernel refuses.
pub fn sample(program: &str, args: &[&str]) -> Result<Run, String> {
    let mut child = Command::new(program)
        .args(args)
        .env("OMP_NUM_THREADS", "2")
        .env("OMP_WAIT_POLICY", "passive")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("program starts");
    let ranges = announced(&mut child);
    let pid = child.id() as i32;
    let code = LiveCode::of(pid);
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("tasks of a live child");
    let mut rings = Vec::new();
    for task in tasks.flatten() {
        let tid: i32 = task.file_name().to_string_lossy().parse().expect("task names are numbers");
        match Ring::open(tid) {
            Ok(ring) => rings.push(ring),
            Err(e) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("perf_event_open of task-clock: {e}"));
            }
        }
    }
    child.stdin.take().expect("piped").write_all(b"go\n").expect("child reads");
    let mut samples = Vec::new();
    loop {
        std::thread::sleep(Duration::from_millis(20));
        let over = child.try_wait().expect("own child").is_some();
        rings.iter_mut().for_each(|r| r.drain(&mut samples));
        if over {
            return Ok(Run { ranges, samples, code });
        }
    }
}

fn announced(child: &mut Child) -> Vec<Range> {
    let mut ranges = Vec::new();
    for line in BufReader::new(child.stdout.as_mut().expect("piped")).lines() {
        let line = line.expect("text");
        let f: Vec<&str> = line.split_whitespace().collect();
        let number = |k: usize| f[k].parse::<u64>().expect("number");
        match f[0] {
            "object" => ranges.push(Range { name: f[1].into(), tid: None, start: number(2), len: number(3) }),
            "slice" => {
                let tid = Some(number(2) as u32);
                ranges.push(Range { name: f[1].into(), tid, start: number(3), len: number(4) });
            }
            _ => return ranges,
        }
    }
    panic!("program ended before `ready`");
}

struct Ring {
    fd: i32,
    base: *mut u8,
    page: usize,
}

impl Ring {
    fn open(tid: i32) -> Result<Ring, std::io::Error> {
        let mut attr = sys::perf_event_attr {
            size: std::mem::size_of::<sys::perf_event_attr>() as u32,
            type_: sys::PERF_TYPE_SOFTWARE,
            config: u64::from(sys::PERF_COUNT_SW_TASK_CLOCK),
            sample_type: u64::from(
                sys::PERF_SAMPLE_IP
                    | sys::PERF_SAMPLE_TID
                    | sys::PERF_SAMPLE_TIME
                    | sys::PERF_SAMPLE_CPU
                    | sys::PERF_SAMPLE_REGS_USER,
            ),
            sample_regs_user: REGS_MASK,
            ..Default::default()
        };
        attr.__bindgen_anon_1.sample_period = 1_000_000_000 / RATE;
        attr.set_exclude_kernel(1);
        attr.set_exclude_hv(1);
        // SAFETY: attr is initialised with its own size and outlives the call.
        let fd =
            unsafe { perf_event_open_sys::perf_event_open(&mut attr, tid, -1, -1, sys::PERF_FLAG_FD_CLOEXEC.into()) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: sysconf has no preconditions.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let len = (PAGES + 1) * page;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_SHARED, fd, 0) };
        if base == libc::MAP_FAILED {
            let e = std::io::Error::last_os_error();
            // SAFETY: fd is ours and open.
            unsafe { libc::close(fd) };
            return Err(e);
        }
        Ok(Ring { fd, base: base.cast(), page })
    }

    fn drain(&mut self, out: &mut Vec<(u32, Regs)>) {
        let size = (PAGES * self.page) as u64;
        let control = self.base.cast::<sys::perf_event_mmap_page>();
        // SAFETY: the first page of the mapping is the control page; data_head is 8-aligned in it and shared with
        // the kernel, hence atomic. The acquire pairs with the kernel's barrier before it moves the head.
        let head = unsafe { AtomicU64::from_ptr(&raw mut (*control).data_head) }.load(Ordering::Acquire);
        // SAFETY: as above; only this process writes data_tail.
        let tail_cell = unsafe { AtomicU64::from_ptr(&raw mut (*control).data_tail) };
        let mut tail = tail_cell.load(Ordering::Relaxed);
        let word = |at: u64| {
            let off = (at % size) as usize;
            // SAFETY: off is below the data size and records are 8-aligned, so the word is inside the mapping.
            unsafe { self.base.add(self.page + off).cast::<u64>().read() }
        };
        while tail < head {
            let header = word(tail);
            let len = header >> 48;
            // ip, pid+tid, time, cpu, abi, then 18 registers in bit order.
            if header as u32 == sys::PERF_RECORD_SAMPLE && word(tail + 40) == 2 {
                out.push(((word(tail + 16) >> 32) as u32, decode(|k| word(tail + 48 + 8 * k))));
            }
            tail += len;
        }
        // Release: the kernel must not overwrite before the reads above.
        tail_cell.store(tail, Ordering::Release);
    }
}

fn decode(register: impl Fn(u64) -> u64) -> Regs {
    let mut regs = Regs { ip: register(8), flags: register(9), ..Regs::default() };
    for (k, &gpr) in SAMPLE_ORDER.iter().enumerate() {
        regs.gpr[gpr] = register(k as u64);
    }
    for k in 8..16 {
        regs.gpr[k] = register(k as u64 + 2);
    }
    regs
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: base and the length are those of the mapping made in open; fd is ours.
        unsafe {
            libc::munmap(self.base.cast(), (PAGES + 1) * self.page);
            libc::close(self.fd);
        }
    }
}
