//! What the fuzzing of each reader begins with: real files, and records as the recorder writes them.

use numamma::profile::records::*;
use numamma::topology::Topology;

use crate::common::{Scratch, compile, source};

/// The first inputs of a reader, and what stands in such files.
pub struct Corpus {
    pub inputs: Vec<Vec<u8>>,
    pub words: &'static [&'static [u8]],
    /// How much longer than the others an input takes.
    pub cost: usize,
}

/// The corpus of the reader `name`.
pub fn corpus(name: &str) -> Corpus {
    let (inputs, words, cost): (_, &[&[u8]], _) = match name {
        "profile" => (profiles(), &[], 5),
        "xml" => (machines(), XML, 1),
        "description" => (descriptions(), LEVELS, 1),
        "report" => (reports(), JSON, 1),
        "elf" => (programs(), &[], 20),
        "name" => (names(), &[], 1),
        "perf" => (samples(), &[], 1),
        "code" => (functions(), &[], 1),
        "proc" => (kernel_texts(), &[], 1),
        other => panic!("no corpus for the reader {other}"),
    };
    Corpus { inputs, words, cost }
}

const XML: &[&[u8]] = &[
    b"<object type=\"NUMANode\" os_index=\"",
    b"\" cpuset=\"0xf...f\"",
    b"</object>",
    b"<distances2",
    b"<u64values length=\"",
    b"&amp;",
    b"&#x1f;",
    b"<!DOCTYPE t [<!ENTITY a \"b\">]>",
    b"<memattr name=\"Latency\" flags=\"5\">",
    b"gp_index=\"",
];
const LEVELS: &[&[u8]] =
    &[b"pack:", b"numa:", b"[numa(memory=1TB)]", b"(indexes=1,0)", b" pu:2", b"core:", b"l3:", b"(", b"]"];
const JSON: &[&[u8]] = &[b"null", b"1e400", b"-1", b"\"\\u0000\"", b"[", b"{", b"true", b"\"objects\":"];

fn encoded(records: &[Record]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        let plain = postcard::to_stdvec(record).expect("records can be encoded");
        out.extend((plain.len() as u32).to_le_bytes());
        out.extend(plain);
    }
    out
}

fn profiles() -> Vec<Vec<u8>> {
    let frame = |offset| Frame { module: 0, offset };
    let header = Header {
        program: Program { path: "/a/b".into(), argv: vec!["b".into()], build_id: None },
        topology: Topology::uniform(2, 4),
        page_size: 4096,
        sampling: Sampling { sampler: "timer".into(), period_ns: 4_000_000, cost_ns: 20_000, ..Sampling::default() },
        ..Header::default()
    };
    let thread = |id| Thread {
        id,
        pid: 9,
        tid: 9 + id,
        name: "t".into(),
        start_routine: Some(frame(0x900)),
        creator: None,
        created_at: vec![],
        samples: 100,
        ..Thread::default()
    };
    let object = |id, kind, name: &str, site| Object {
        id,
        kind,
        name: name.into(),
        module: Some(0),
        site,
        instance: Instance { base: 0x10_0000 * u64::from(id + 1), size: 0x8_0000, ..Instance::default() },
        ..Object::default()
    };
    let access = |i: u64| Access {
        time_ns: i * 1_000_000,
        thread: (i % 4) as u32,
        cpu: (i % 4) as u16,
        object: (i % 3) as u32,
        addr: 0x10_0000 * (i % 3 + 1) + (i % 4) * 0x2_0000 + i * 64 % 0x2_0000,
        size: 8,
        write: i.is_multiple_of(3),
        certainty: if i.is_multiple_of(9) { Certainty::ObjectOnly } else { Certainty::Exact },
        cost_ns: 4_000_000,
        node: (i % 2) as u8,
        ip: frame(0x2000 + i % 5),
    };
    let member = |name: &str, offset| Member { name: name.into(), offset, size: 0x3_0000 };
    let location = Location { function: Some("f".into()), file: Some("f.c".into()), line: Some(3) };
    let records = |n: u64| {
        vec![
            Record::Header(header.clone()),
            Record::Modules(vec![Module { id: 0, path: "/a/b".into(), build_id: None, read_only: vec![(1, 5)] }]),
            Record::Threads((0..4).map(thread).collect()),
            Record::ThreadTasks(vec![ThreadTask {
                thread: 2,
                task: Task { class: frame(0x900), function: Some(frame(0x300)) },
            }]),
            Record::Sites(vec![CallSite { id: 0, frames: vec![frame(0x100), frame(0x200)] }]),
            Record::SiteCounts(vec![SiteCount {
                site: 0,
                instances: 2,
                bytes: 100,
                peak_bytes: 100,
                max_size: 0x8_0000,
            }]),
            Record::SiteFrees(vec![SiteFrees {
                site: 0,
                reported: 2,
                small: FreeCount { all: 1, by_others: 1 },
                large: FreeCount { all: u64::MAX, by_others: u64::MAX - 1 },
            }]),
            Record::Symbols(vec![Symbol { frame: frame(0x100), locations: vec![location.clone()] }]),
            Record::Objects(vec![
                object(0, ObjectKind::Global, "a", None),
                object(1, ObjectKind::Heap, "", Some(0)),
                object(2, ObjectKind::Mapping, "/m", None),
            ]),
            Record::Accesses((0..n).map(access).collect()),
            Record::Touches(vec![Touch { object: 0, addr: 0x10_0000, pages: 20, thread: 1, time_ns: 5 }]),
            Record::SampledTouches(vec![
                Touch { object: 0, addr: 0x10_0000, pages: 1, thread: 1, time_ns: 6 },
                Touch { object: 0, addr: 0x10_8000, pages: 1, thread: 1, time_ns: 7 },
                Touch { object: 2, addr: 0x20_0000, pages: 1, thread: 0, time_ns: 8 },
            ]),
            Record::Rank(3),
            Record::EventCounts(EventCounts { fault_period: 8, ..EventCounts::default() }),
            Record::Stats(Stats {
                duration_ns: n * 1_000_000,
                samples: n,
                resolved: n,
                achieved: 1.0,
                ..Stats::default()
            }),
            Record::Notes(vec!["a note".into()]),
            Record::Code(vec![CodeUnit { frame: frame(0x100), function: 0x100, nest: 0x104 }]),
            Record::AccessCode(vec![AccessCode {
                frame: frame(0x100),
                address: AddressKind::Loaded,
                body: 5,
                gap: 2,
                behind: 7,
                later: 1,
            }]),
            Record::LostFrames(vec![LostFrames { inner: None, outer: frame(0x100), locations: Vec::new() }]),
            Record::Members(vec![Members {
                module: 0,
                vaddr: 0,
                members: vec![member("first", 0), member("second", 0x3_0010)],
            }]),
            Record::End(Ended::Exited(0)),
        ]
    };
    [3, 40, 600].map(|n| encoded(&records(n))).into()
}

fn machines() -> Vec<Vec<u8>> {
    let files = std::fs::read_dir(source("topology")).expect("tests/topology");
    files.map(|f| std::fs::read(f.expect("an entry").path()).expect("a file")).collect()
}

fn texts(list: &[&str]) -> Vec<Vec<u8>> {
    list.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn descriptions() -> Vec<Vec<u8>> {
    texts(&[
        "pack:2 numa:2 core:3",
        "pack:2 [numa(memory=64GB)] [numa] core:2 pu:2",
        "numa:2(indexes=1,0 memory=1GiB) l3:1 pu:2(indexes=3,1,0,2)",
    ])
}

fn reports() -> Vec<Vec<u8>> {
    let object = r#"{"name":"a","policy":"block","nodes":"0-3","instances":2,"too_small":0,"unplaced":0,"bytes":8192,"pages_planned":2,"pages_present":2,"pages_on_plan":1,"pages_off_plan":1,"pages_waiting":0,"block":4096,"refused":1,"error":12,"over_budget":0,"out_of_reach":0,"mbind_calls":2,"place_ns":77,"pages_swapped":0,"reasons":{"full":1}}"#;
    texts(&[
        &format!(r#"{{"pid":7,"program":"/a","problem":null,"objects":[{object},{object}],"phases":[]}}"#),
        r#"{"pid":7,"program":"/a","objects":[],"phases":[]}"#,
    ])
}

/// Small programs with a symbol table and debug information, stripped and not.
fn programs() -> Vec<Vec<u8>> {
    let dir = Scratch::new("fuzz-programs");
    let flags: [&[&str]; 3] =
        [&["-O1", "-g", "-pthread"], &["-O1", "-s", "-pthread"], &["-O1", "-g", "-gz", "-no-pie", "-pthread"]];
    let made = flags.map(|flags| compile("cc", "hostile/fuzz/tiny.c", dir.join("tiny"), flags));
    made.iter().map(|path| std::fs::read(path).expect("just compiled")).collect()
}

fn names() -> Vec<Vec<u8>> {
    texts(&[
        "_ZNSt6vectorIiSaIiEE9push_backERKi",
        "_ZN4core3fmt9Formatter9write_str17h0123456789abcdefE",
        "_RNvCs1234_7mycrate3foo",
        "__grid_MOD_alloc",
        "main",
        "_Z1fIXadL_Z1gvEEEvv.constprop.0",
        "_ZZN1a1bEvENKUlvE_clEv",
        "_ZN12_GLOBAL__N_11fEv",
    ])
}

/// The records of perf_event_open(2): kind, flags, length, body.
fn samples() -> Vec<Vec<u8>> {
    let made = |kind: u32, body: &[u8]| {
        [&kind.to_le_bytes()[..], &[0, 0], &(body.len() as u16 + 8).to_le_bytes(), body].concat()
    };
    let counting: Vec<u8> = (0..=255).collect();
    [1, 3, 4, 7, 9, 10].map(|kind| made(kind, &counting)).into()
}

fn functions() -> Vec<Vec<u8>> {
    // mov rax,[rdi]; add [rsi+rcx*8],rax; inc rcx; cmp rcx,rdx; jb -15; vgatherdps; call; ret
    let scalar = b"\x48\x8b\x07\x48\x01\x04\xce\x48\xff\xc1\x48\x39\xd1\x72\xf1\xc3";
    let vector =
        b"\xc4\xe2\x75\x92\x04\x97\xe8\0\0\0\0\x64\x48\x8b\x04\x25\0\0\0\0\xf0\x48\x0f\xb1\x0e\xf3\x48\xa5\xc3";
    vec![scalar.to_vec(), vector.to_vec(), [&scalar[..], vector, scalar].concat()]
}

fn kernel_texts() -> Vec<Vec<u8>> {
    let own = ["maps", "smaps", "status"].map(|file| std::fs::read(format!("/proc/self/{file}")).expect("/proc"));
    let start = |bytes: Vec<u8>| bytes[..bytes.len().min(4096)].to_vec();
    own.into_iter()
        .map(start)
        .chain(texts(&["0-3,5,7-9", "Node 0, zone Normal\n  pages free 3\n        min 5\n"]))
        .collect()
}
