//! Profiles written by hand through the recorder's own writer.

use std::path::{Path, PathBuf};

use numamma::profile::file::Writer;
use numamma::profile::records::*;
use numamma::topology::Topology;

pub const PAGE: u64 = 4096;
pub const MIB: u64 = 1 << 20;
/// 250 Hz.
pub const PERIOD_NS: u64 = 4_000_000;

/// A file that no other test uses.
pub fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("report-{name}.prof"));
    let _ = std::fs::remove_file(&path);
    path
}

pub fn write(name: &str, records: &[Record]) -> PathBuf {
    let path = scratch(name);
    let mut writer = Writer::create(&path).expect("the scratch directory is writable");
    records.iter().for_each(|r| writer.append(r).expect("the disk has room"));
    path
}

pub fn header() -> Header {
    let mut topology = Topology::uniform(4, 24);
    topology.nodes.iter_mut().for_each(|n| n.memory = 32 << 30);
    Header {
        numamma: "0.1.0".into(),
        program: Program {
            path: "/opt/npb/bin/lu.C.x".into(),
            argv: vec!["./lu.C.x".into(), "--itmax".into(), "50".into()],
            build_id: Some("5f1c0de5".into()),
        },
        host: "lab1".into(),
        started_unix: 1_795_248_240,
        pid: 4000,
        sampling: Sampling {
            sampler: "timer".into(),
            reason: "no hardware sampling here".into(),
            period_ns: PERIOD_NS,
            cost_ns: 20_000,
            max_overhead: 0.03,
        },
        page_size: PAGE,
        thp: "madvise".into(),
        topology,
        allocations: true,
    }
}

pub fn thread(id: ThreadId, name: &str, start_routine: Option<Frame>) -> Thread {
    Thread {
        id,
        pid: 4000,
        tid: 4000 + id,
        name: name.into(),
        start_routine,
        creator: None,
        created_at: vec![],
        task: None,
        waits: None,
        start_ns: u64::from(id) * 1_000_000,
        end_ns: Some(20_000_000_000),
        cpus: vec![id as u16 * 3],
        migrations: u64::from(id % 2),
        samples: 1000,
    }
}

pub fn object(id: ObjectId, kind: ObjectKind, name: &str, base: u64, size: u64) -> Object {
    Object {
        id,
        kind,
        name: name.into(),
        module: None,
        vaddr: 0,
        site: None,
        pid: 4000,
        instance: Instance { base, size, born_ns: u64::from(id), died_ns: None, thread: None },
    }
}

pub fn access(object: ObjectId, thread: ThreadId, time_ns: u64, addr: u64, write: bool, cost: bool) -> Access {
    Access {
        time_ns,
        thread,
        cpu: thread as u16 * 3,
        object,
        addr,
        size: 8,
        write,
        certainty: if cost { Certainty::Exact } else { Certainty::Loop },
        cost_ns: if cost { PERIOD_NS as u32 } else { 0 },
        node: 0,
        ip: Frame { module: 0, offset: 0x2000 + u64::from(object) * 0x10 },
    }
}

fn frame(module: ModuleId, offset: u64) -> Frame {
    Frame { module, offset }
}

fn location(function: &str, file: &str, line: u32) -> Location {
    Location { function: Some(function.into()), file: Some(file.into()), line: Some(line) }
}

fn symbol(module: ModuleId, offset: u64, locations: Vec<Location>) -> Symbol {
    Symbol { frame: frame(module, offset), locations }
}

/// Numbers that look random and are the same every time (Knuth's MMIX generator).
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// A run like the paper's LU on four nodes with 8 threads: `cvar_` in slices per thread that repeat every
/// 16 MiB, all of it first touched by the main thread; workspaces from one call site, one per thread; small
/// nodes of a map; stacks, TLS and addresses of no known object.
pub fn lu() -> Vec<Record> {
    let mut objects = vec![
        object(0, ObjectKind::Global, "cvar_", 0x4000_0000, 160 * MIB),
        object(1, ObjectKind::Global, "_ZN4grid4cellE", 0x5000_0100, 64 * 1024),
        object(2, ObjectKind::SmallHeap, "", 0, 0),
        object(3, ObjectKind::Stack, "lu.C.x", 0x7ff0_0000_0000, 8 * MIB),
        object(4, ObjectKind::Tls, "lu.C.x", 0x7fee_0000_0000, 4096),
        object(5, ObjectKind::Unknown, "", 0, 0),
        object(6, ObjectKind::Mapping, "/dev/shm/halo", 0x6000_0000, 4 * MIB),
        object(7, ObjectKind::Section, ".bss", 0x5800_0000, 32 * 1024),
    ];
    objects[0].module = Some(0);
    objects[0].vaddr = 0x40_0000;
    objects[1].module = Some(0);
    objects[1].vaddr = 0x50_0100;
    objects[2].site = Some(2);
    objects[7].module = Some(1);
    for t in 0..8 {
        let base = 0x7f00_0000_0010 + u64::from(t) * 4 * MIB;
        let mut o = object(8 + t, ObjectKind::Heap, "", base, 2 * MIB);
        // Reached on two ways through the runtime: one call site to the user.
        o.site = Some(t % 2);
        o.instance.thread = Some(t);
        o.instance.died_ns = Some(19_000_000_000);
        objects.push(o);
    }
    let mut records = vec![Record::Header(header()), Record::Modules(modules()), Record::Sites(sites())];
    let omp = Some(frame(3, 0x100));
    let threads = (0..8).map(|t| thread(t, if t == 0 { "lu.C.x" } else { "worker" }, omp.filter(|_| t > 0)));
    records.push(Record::Threads(threads.collect()));
    records.push(Record::Objects(objects));
    records.push(Record::Touches(touches()));
    records.extend(lu_accesses().chunks(2000).map(|c| Record::Accesses(c.to_vec())));
    records.push(Record::SiteCounts(vec![
        SiteCount { site: 0, instances: 4, bytes: 8 * MIB, peak_bytes: 8 * MIB, max_size: 2 * MIB },
        SiteCount { site: 1, instances: 4, bytes: 9 * MIB, peak_bytes: 8 * MIB, max_size: 2 * MIB },
        SiteCount { site: 2, instances: 120_000, bytes: 6 * MIB, peak_bytes: 5 * MIB, max_size: 56 },
    ]));
    records.push(Record::Symbols(symbols()));
    records.push(Record::Notes(vec!["8 short-lived threads were never sampled".into()]));
    records.push(Record::Stats(lu_stats()));
    records.push(Record::End(Ended::Exited(0)));
    records
}

fn modules() -> Vec<Module> {
    let paths = [
        "/opt/npb/bin/lu.C.x",
        "/usr/lib/x86_64-linux-gnu/libc.so.6",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30",
        "/usr/lib/x86_64-linux-gnu/libgomp.so.1",
    ];
    (0..).zip(paths).map(|(id, path)| Module { id, path: path.into(), build_id: None, read_only: vec![] }).collect()
}

fn sites() -> Vec<CallSite> {
    vec![
        CallSite { id: 0, frames: vec![frame(2, 0x10), frame(0, 0x1100), frame(0, 0x1200), frame(1, 0x50)] },
        CallSite { id: 1, frames: vec![frame(1, 0x20), frame(2, 0x18), frame(0, 0x1100), frame(0, 0x1200)] },
        CallSite { id: 2, frames: vec![frame(2, 0x10), frame(0, 0x1300), frame(0, 0x1400), frame(0, 0x1200)] },
    ]
}

fn symbols() -> Vec<Symbol> {
    let vector = "std::vector<double, std::allocator<double> >::vector(unsigned long)";
    let insert = "std::_Hashtable<int, std::pair<int const, Node> >::_M_insert(int&&)";
    vec![
        // The runtime is inlined into the user's frame.
        symbol(0, 0x1100, vec![location(vector, "stl_vector.h", 350), location("ssor(int)", "/src/lu/ssor.cpp", 88)]),
        symbol(0, 0x1200, vec![location("main", "/src/lu/lu.cpp", 12)]),
        symbol(0, 0x1300, vec![location(insert, "hashtable.h", 1600)]),
        symbol(0, 0x1400, vec![location("exchange_boundary_values(Grid const&, int)", "/src/lu/exchange.cpp", 41)]),
        symbol(0, 0x2000, vec![location("jacld(int)", "/src/lu/jacld.cpp", 35)]),
        symbol(2, 0x10, vec![location("operator new(unsigned long)", "new_op.cc", 50)]),
        symbol(3, 0x100, vec![location("gomp_thread_start", "team.c", 129)]),
    ]
}

fn touches() -> Vec<Touch> {
    let touch =
        |object, addr, bytes: u64, thread, time_ns| Touch { object, addr, pages: bytes / PAGE, thread, time_ns };
    let mut list = vec![touch(0, 0x4000_0000, 160 * MIB, 0, 500), touch(1, 0x5000_0000, 68 * 1024, 0, 600)];
    // The halo is touched by the threads that use it.
    list.extend((0..8).map(|t| touch(6, 0x6000_0000 + u64::from(t) * MIB / 2, MIB / 2, t, 700)));
    list.extend((0..8).map(|t| touch(8 + t, 0x7f00_0000_0000 + u64::from(t) * 4 * MIB, 2 * MIB + PAGE, t, 800)));
    list
}

/// The samples with an access that waited, each with one more access of the loop.
fn lu_accesses() -> Vec<Access> {
    let mut dice = Dice(1);
    let mut list = Vec::new();
    for i in 0..4500u64 {
        let t = (i % 8) as ThreadId;
        let time = i * 4_444_444;
        // cvar_ is used in the second half of the run.
        let (id, addr, write) = match dice.below(100) {
            n if n < 58 => {
                let slice = 2 * MIB * u64::from(t);
                (0, 0x4000_0000 + dice.below(10) * 16 * MIB + slice + dice.below(2 * MIB), n % 4 == 0)
            }
            n if n < 70 => (1, 0x5000_0100 + dice.below(64 * 1024), false),
            n if n < 82 => (8 + t, 0x7f00_0000_0010 + u64::from(t) * 4 * MIB + dice.below(2 * MIB), n % 2 == 0),
            n if n < 87 => (2, 0x7e00_0000_0000 + dice.below(5 * MIB), false),
            n if n < 92 => (6, 0x6000_0000 + u64::from(t) * MIB / 2 + dice.below(MIB / 2), true),
            n if n < 96 => (3, 0x7ff0_0000_0000 + dice.below(64 * 1024), true),
            n if n < 98 => (4, 0x7fee_0000_0000 + dice.below(4096), false),
            98 => (7, 0x5800_0000 + dice.below(32 * 1024), false),
            _ => (5, dice.below(1 << 46), false),
        };
        let mut waited = access(id, t, time, addr, write, true);
        waited.node = if id == 5 {
            NODE_UNKNOWN
        } else if id >= 8 {
            (t / 2) as u8
        } else {
            0
        };
        if i % 50 == 49 {
            waited.certainty = Certainty::ObjectOnly;
        }
        let mut other = access(0, t, time, 0x4000_0000 + u64::from(t) * 2 * MIB + dice.below(2 * MIB), false, false);
        other.ip.offset = 0x2008;
        list.extend([waited, other]);
    }
    list
}

fn lu_stats() -> Stats {
    Stats {
        duration_ns: 20_000_000_000,
        cpu_ns: 20_000_000_000 * 8,
        samples: 5050,
        resolved: 4410,
        lost: 50,
        no_access: 250,
        unresolved: 100,
        vsib: 140,
        undecoded: 40,
        own: 0,
        tls: 100,
        faults: 50_000,
        achieved: 0.98,
        ..Stats::default()
    }
}
