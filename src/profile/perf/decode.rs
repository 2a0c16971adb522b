//! One kernel record, decoded.
//!
//! Sample records hold the fields that [`super::attr`] requests, in this order:
//! ```text
//! timer: ip u64 | pid u32 tid u32 | time u64 | cpu u32 res u32 | abi u64 | registers u64 x REGS_COUNT (if abi != 0)
//!        | size u64 | stack | used u64 (if size != 0)   (all three only where the stack is sampled)
//! fault: ip u64 | pid u32 tid u32 | time u64 | addr u64 | cpu u32 res u32   (of both events)
//! ```
//! All others end in: `pid u32 tid u32 | time u64 | cpu u32 res u32`.

use perf_event_open_sys::bindings as abi;

use super::attr::REGS_COUNT;
use super::ring::HEADER;
use super::{Inode, Mapping, PerfEvent, PerfRecord, Regs, UserState};

/// Bytes behind every record that is not a sample.
const TRAILER: usize = 24;
/// Flag in `misc` of a COMM record that was made by exec.
const MISC_COMM_EXEC: u16 = 1 << 13;

/// Which event a sample record belongs to; each has a buffer of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// [`super::attr::timer`].
    Timer,
    /// [`super::attr::sideband`], shared with [`super::attr::some_faults`].
    Sideband,
    /// [`super::attr::faults`].
    Faults,
}

/// Little-endian fields one after the other; reads past the end give `None`.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

/// Decodes a record, header included. `None`: an unused kind, or a record that is too short.
pub fn record(bytes: &[u8], source: Source) -> Option<PerfRecord> {
    let mut header = Fields(bytes.get(..HEADER)?);
    let kind = header.u32()?;
    let misc = u16::from_le_bytes(header.take()?);
    let body = &bytes[HEADER..];
    match kind {
        abi::PERF_RECORD_SAMPLE if source == Source::Timer => sample(body),
        abi::PERF_RECORD_SAMPLE => fault(body, source == Source::Sideband),
        abi::PERF_RECORD_MMAP2 => mmap(body),
        abi::PERF_RECORD_COMM => comm(body, misc & MISC_COMM_EXEC != 0),
        abi::PERF_RECORD_FORK => task(body, |parent_pid, parent_tid| PerfEvent::Fork { parent_pid, parent_tid }),
        abi::PERF_RECORD_EXIT => task(body, |_, _| PerfEvent::Exit),
        abi::PERF_RECORD_LOST => lost(body),
        _ => None,
    }
}

fn sample(body: &[u8]) -> Option<PerfRecord> {
    let mut f = Fields(body);
    f.u64()?; // the instruction pointer, which is among the user registers too
    let (pid, tid, time_ns, cpu) = (f.u32()?, f.u32()?, f.u64()?, f.u32()?);
    f.u32()?;
    let user = match f.u64()? {
        // A 32-bit program, whose registers the replay does not interpret.
        0 | 1 => None,
        _ => Some(Box::new(UserState { regs: registers(&mut f)?, stack: stack(&mut f).unwrap_or_default().into() })),
    };
    Some(PerfRecord { time_ns, pid, tid, event: PerfEvent::Sample { cpu: cpu as u16, user } })
}

/// The bytes of the stack that the kernel could read, which may be fewer than it was asked for.
fn stack<'a>(f: &mut Fields<'a>) -> Option<&'a [u8]> {
    let size = usize::try_from(f.u64()?).ok()?;
    let (bytes, rest) = f.0.split_at_checked(size)?;
    let used = Fields(rest).u64()?;
    bytes.get(..usize::try_from(used).ok()?)
}

/// Registers arrive in the order of `enum perf_event_x86_regs`: AX BX CX DX SI DI BP SP IP FLAGS R8..R15.
fn registers(f: &mut Fields<'_>) -> Option<Regs> {
    let mut r = [0u64; REGS_COUNT];
    for slot in &mut r {
        *slot = f.u64()?;
    }
    let [ax, bx, cx, dx, si, di, bp, sp, ip, flags, r8, r9, r10, r11, r12, r13, r14, r15] = r;
    Some(Regs { gpr: [ax, cx, dx, bx, sp, bp, si, di, r8, r9, r10, r11, r12, r13, r14, r15], ip, flags, fs_base: 0 })
}

fn fault(body: &[u8], sampled: bool) -> Option<PerfRecord> {
    let mut f = Fields(body);
    let (ip, pid, tid, time_ns, addr) = (f.u64()?, f.u32()?, f.u32()?, f.u64()?, f.u64()?);
    Some(PerfRecord { time_ns, pid, tid, event: PerfEvent::Fault { addr, ip, sampled } })
}

/// Time of a record that is not a sample, from its trailer, and the record without the trailer.
fn trailer(body: &[u8]) -> Option<(u64, &[u8])> {
    let (rest, trailer) = body.split_at_checked(body.len().checked_sub(TRAILER)?)?;
    let mut f = Fields(trailer);
    f.u64()?;
    Some((f.u64()?, rest))
}

fn mmap(body: &[u8]) -> Option<PerfRecord> {
    let (time_ns, rest) = trailer(body)?;
    let mut f = Fields(rest);
    let (pid, tid, addr, len, pgoff) = (f.u32()?, f.u32()?, f.u64()?, f.u64()?, f.u64()?);
    // A build-id only where the event asks for it, which ours does not.
    let (device, number, generation) = ((f.u32()?, f.u32()?), f.u64()?, Some(f.u64()?));
    let (prot, flags) = (f.u32()?, f.u32()?);
    let is_shared = flags & libc::MAP_TYPE as u32 != libc::MAP_PRIVATE as u32 && number != 0;
    let shared = is_shared.then_some(Inode { device, number, generation });
    let mapping = Mapping { addr, len, pgoff, prot, path: text(f.0), shared };
    Some(PerfRecord { time_ns, pid, tid, event: PerfEvent::Mmap(mapping) })
}

fn comm(body: &[u8], exec: bool) -> Option<PerfRecord> {
    let (time_ns, rest) = trailer(body)?;
    let mut f = Fields(rest);
    Some(PerfRecord { time_ns, pid: f.u32()?, tid: f.u32()?, event: PerfEvent::Comm { name: text(f.0), exec } })
}

/// A FORK or EXIT; `event` gets the parent's process and thread.
fn task(body: &[u8], event: impl FnOnce(u32, u32) -> PerfEvent) -> Option<PerfRecord> {
    let mut f = Fields(body);
    let (pid, parent_pid, tid, parent_tid, time_ns) = (f.u32()?, f.u32()?, f.u32()?, f.u32()?, f.u64()?);
    Some(PerfRecord { time_ns, pid, tid, event: event(parent_pid, parent_tid) })
}

fn lost(body: &[u8]) -> Option<PerfRecord> {
    let mut f = Fields(body);
    f.u64()?; // the event's id
    Some(PerfRecord { time_ns: 0, pid: 0, tid: 0, event: PerfEvent::Lost(f.u64()?) })
}

/// A text padded with zeros.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let mut b = kind.to_le_bytes().to_vec();
        b.extend(misc.to_le_bytes());
        b.extend(((HEADER + body.len()) as u16).to_le_bytes());
        b.extend(body);
        b
    }

    fn words(values: &[u64]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    fn pair(low: u32, high: u32) -> u64 {
        u64::from(low) | u64::from(high) << 32
    }

    #[test]
    fn registers_land_by_name() {
        let mut body = words(&[0x1000, pair(7, 8), 99, pair(3, 0), 2]);
        // AX BX CX DX SI DI BP SP IP FLAGS R8..R15 numbered 100, 101, ...
        body.extend(words(&(100..100 + REGS_COUNT as u64).collect::<Vec<_>>()));
        let s = record(&bytes(abi::PERF_RECORD_SAMPLE, 0, &body), Source::Timer).expect("a whole record");
        let PerfEvent::Sample { cpu, user: Some(user) } = s.event else {
            panic!("no sample with 64-bit registers: {s:?}")
        };
        let r = &user.regs;
        assert!(user.stack.is_empty());
        assert_eq!((s.pid, s.tid, s.time_ns, cpu), (7, 8, 99, 3));
        // encoding order: ax cx dx bx sp bp si di r8..r15
        assert_eq!(&r.gpr[..8], &[100, 102, 103, 101, 107, 106, 104, 105]);
        assert_eq!((r.ip, r.flags, r.gpr[8], r.gpr[15]), (108, 109, 110, 117));
    }

    #[test]
    fn the_stack_is_as_long_as_the_kernel_could_read() {
        let registers = [[0x1000, pair(7, 8), 99, pair(3, 0), 2].as_slice(), &[5; REGS_COUNT]].concat();
        let stack_of = |tail: &[u64]| {
            let body = words(&[&registers, tail].concat());
            match record(&bytes(abi::PERF_RECORD_SAMPLE, 0, &body), Source::Timer).expect("a record").event {
                PerfEvent::Sample { user: Some(user), .. } => user.stack.to_vec(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(stack_of(&[16, 1, 2, 16]), words(&[1, 2]));
        assert_eq!(stack_of(&[16, 1, 2, 8]), words(&[1]));
        assert!(stack_of(&[0]).is_empty());
        assert!(stack_of(&[16, 1, 2, 17]).is_empty(), "more than there is");
        assert!(stack_of(&[1 << 40, 1, 2, 8]).is_empty());
    }

    #[test]
    fn mmap_name_and_time() {
        let mut body = words(&[pair(7, 8), 0x1000, 0x2000, 0x3000, 0, 0, 0, pair(5, 2)]);
        body.extend(b"/bin/x\0\0");
        body.extend(words(&[pair(7, 8), 1234, 0]));
        let got = record(&bytes(abi::PERF_RECORD_MMAP2, 0, &body), Source::Timer);
        let (path, shared) = ("/bin/x".into(), None);
        let mapping = Mapping { addr: 0x1000, len: 0x2000, pgoff: 0x3000, prot: 5, path, shared };
        let want = PerfRecord { time_ns: 1234, pid: 7, tid: 8, event: PerfEvent::Mmap(mapping) };
        assert_eq!(got, Some(want));
    }

    #[test]
    fn a_shared_mapping_has_the_identity_of_its_file() {
        let shared = |flags: u32, inode: u64| {
            let mut body = words(&[pair(7, 8), 0x1000, 0x2000, 0x3000, pair(0, 1), inode, 9, pair(3, flags)]);
            body.extend(b"/x\0\0\0\0\0\0");
            body.extend(words(&[pair(7, 8), 1234, 0]));
            match record(&bytes(abi::PERF_RECORD_MMAP2, 0, &body), Source::Timer).expect("a record").event {
                PerfEvent::Mmap(mapping) => mapping.shared,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(shared(1, 77), Some(Inode { device: (0, 1), number: 77, generation: Some(9) }));
        assert_eq!((shared(2, 77), shared(1, 0)), (None, None));
    }

    #[test]
    fn every_cut_is_refused_or_read_but_never_panics() {
        for kind in 0..24 {
            for len in 0..200 {
                let body: Vec<u8> = (0..len).map(|i| i as u8).collect();
                let _ = record(&bytes(kind, MISC_COMM_EXEC, &body), Source::Timer);
                let _ = record(&bytes(kind, 0, &body), Source::Faults);
            }
        }
    }
}
