//! Small files that claim or unpack to very much: every command ends with an answer or a reason within the memory that
//! docs/security.md states. The limit is on the address space, so that a reservation of too much is seen, too.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use numamma::profile::file::{MAGIC, VERSION, Writer};
use numamma::profile::records::*;

use super::synthetic::{self, PAGE, access, header, object, thread};
use crate::common::{NUMAMMA, Ran, Scratch, plain, run};

/// Address space of a command: twice what docs/security.md states, for the stacks and arenas of its threads.
const MOST: u64 = 3 << 30;
/// Seconds of CPU time of a command.
const SECONDS: u64 = 60;

/// Runs `numamma ARGS` under the limits; it must end with an answer or a reason.
fn bounded(what: &str, args: &[&str]) -> Ran {
    let mut command: Command = plain(NUMAMMA);
    command.args(args);
    let limit = |resource, most| {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: reads one rlimit.
        unsafe { libc::setrlimit(resource, &raw const limit) }
    };
    // SAFETY: setrlimit is async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            limit(libc::RLIMIT_AS, MOST);
            limit(libc::RLIMIT_CPU, SECONDS);
            Ok(())
        })
    };
    let ran = run(command);
    let (code, stderr) = (ran.code(), &ran.stderr);
    assert!(matches!(code, Some(0 | 2)), "{what}: {args:?}: {:?}\n{stderr}", ran.status);
    assert!(code == Some(0) || stderr.starts_with("numamma: "), "{what}: {args:?}: no reason\n{stderr}");
    assert!(!stderr.contains("panicked"), "{what}: {args:?}\n{stderr}");
    ran
}

/// A profile whose chunks are `payloads`, with right checksums. A payload is LZ4 with its unpacked size in front.
fn raw_profile(path: PathBuf, payloads: &[Vec<u8>]) -> PathBuf {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend([0; 4]);
    for payload in payloads {
        bytes.extend(b"CHNK");
        bytes.extend((payload.len() as u32).to_le_bytes());
        bytes.extend(crc32fast::hash(payload).to_le_bytes());
        bytes.extend(payload);
    }
    std::fs::write(&path, bytes).unwrap();
    path
}

fn packed(plain: &[u8]) -> Vec<u8> {
    lz4_flex::compress_prepend_size(plain)
}

/// A list of `items` items of the variant `kind`, each encoded as `zeroes` bytes of 0.
fn list(kind: u8, items: usize, zeroes: usize) -> Vec<u8> {
    let mut plain = vec![kind];
    let mut n = items;
    while n > 0x7f {
        plain.push(n as u8 | 0x80);
        n >>= 7;
    }
    plain.push(n as u8);
    plain.resize(plain.len() + items * zeroes, 0);
    packed(&plain)
}

/// The commands that read a profile in the short tests and, with `every`, in the long ones.
fn commands(path: &str, every: bool) -> Vec<Vec<&str>> {
    let short = [&["report", "--json"][..]];
    let rest = [&["report"][..], &["report", "--object", "a"], &["advise", "--nodes", "4"]];
    let commands = short.iter().chain(if every { &rest[..] } else { &[] });
    commands.map(|command| [command, &[path][..]].concat()).collect()
}

fn profiles_that_unpack_to_much(every: bool) {
    let dir = Scratch::new(&format!("bombs-{every}"));
    let head = packed(&postcard::to_stdvec(&Record::Header(header())).unwrap());
    let zeroes = |n: usize| vec![0; n];
    let million = 1_000_000;
    // The numbers of the variants are those of `Record`.
    let bombs: Vec<(&str, Vec<Vec<u8>>)> = vec![
        ("empty notes", vec![head.clone(), list(11, 360 * million, 1)]),
        ("empty notes, in parts", [vec![head.clone()], vec![list(11, 16 * million, 1); 3]].concat()),
        ("empty symbols", vec![head.clone(), list(8, 60 * million, 3)]),
        (
            "symbols of empty locations",
            vec![
                head.clone(),
                packed(&[&[8, 1][..], &[0, 0, 0x80, 0xc0, 0xda, 0x08][..], &zeroes(54 * million)].concat()),
            ],
        ),
        ("empty threads", vec![head.clone(), list(2, 5 * million, 10)]),
        ("empty objects", [vec![head.clone()], vec![list(5, 2 * million, 13); 4]].concat()),
        (
            "a list that is longer than the chunk",
            vec![head.clone(), packed(&[6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0])],
        ),
        ("arguments", vec![packed(&[&[0, 0, 0, 0x80, 0xc0, 0xda, 0x08][..], &zeroes(50 * million)].concat())]),
        ("a false size", vec![head.clone(), [&u32::MAX.to_le_bytes()[..], &[0; 64]].concat()]),
        ("a size that is not reached", vec![head, [&(60_u32 << 20).to_le_bytes()[..], &[0; 64]].concat()]),
    ];
    for (what, payloads) in bombs {
        let path = raw_profile(dir.join("bomb.prof"), &payloads);
        let path = path.to_str().unwrap();
        commands(path, every).iter().for_each(|args| _ = bounded(what, args));
    }
}

#[test]
fn a_profile_takes_no_more_memory_than_is_stated() {
    profiles_that_unpack_to_much(false);
}

#[test]
#[ignore = "long: make test-long"]
fn a_profile_takes_no_more_memory_than_is_stated_in_any_command() {
    profiles_that_unpack_to_much(true);
}

fn profiles_with_great_numbers(every: bool) {
    let write = |name: &str, records: &[Record]| {
        let path = synthetic::write(&format!("bomb-{name}-{every}"), records);
        commands(path.to_str().unwrap(), every).iter().for_each(|args| _ = bounded(name, args));
    };
    let base =
        |id: u32, size: u64| Object { module: Some(0), ..object(id, ObjectKind::Global, "a", 0x10_0000_0000, size) };
    let module = Record::Modules(vec![Module { id: 0, path: "/opt/x".into(), build_id: None, read_only: vec![] }]);
    // Ids in steps, each within the gap that is tolerated.
    let steps = (1..4000).map(|i| Thread { id: i * 65_000, ..thread(0, "far", None) }).collect();
    write("ids", &[Record::Header(header()), Record::Threads(steps)]);
    let modules = (1..4000).map(|i| Module { id: i * 65_000, ..Module::default() }).collect();
    write("modules", &[Record::Header(header()), Record::Modules(modules)]);
    // 64 TiB of pages of 4 KiB, used at both ends.
    let ends = (0..4000_u64).map(|i| {
        let offset = if i % 2 == 0 { i * PAGE } else { (64 << 40) - i * PAGE };
        access(0, (i % 4) as u32, i * 1_000_000, 0x10_0000_0000 + offset, i % 3 == 0, true)
    });
    let threads = Record::Threads((0..4).map(|t| thread(t, "x", None)).collect());
    let touch = Touch { object: 0, addr: 0x10_0000_0000, pages: u64::MAX, thread: 0, time_ns: 0 };
    write(
        "pages",
        &[
            Record::Header(header()),
            module.clone(),
            threads.clone(),
            Record::Objects(vec![base(0, 64 << 40)]),
            Record::Accesses(ends.collect()),
            Record::Touches(vec![touch; 3]),
        ],
    );
    for page_size in [1, 2, 1 << 62, 1 << 63, 3] {
        let head = Header { page_size, ..header() };
        let few = (0..400)
            .map(|i| access(0, i % 4, u64::from(i) * 1_000_000, 0x10_0000_0000 + u64::from(i) * 64, false, true));
        let objects = Record::Objects(vec![base(0, 1 << 20)]);
        write(
            "page size",
            &[Record::Header(head), module.clone(), threads.clone(), objects, Record::Accesses(few.collect())],
        );
    }
    let mut head = header();
    let node = head.topology.nodes[0].clone();
    head.topology.nodes = (0..200_000).map(|id| numamma::topology::Node { id, ..node.clone() }).collect();
    write("nodes", &[Record::Header(head), module, threads]);
}

#[test]
fn numbers_in_a_profile_are_no_sizes_of_tables() {
    profiles_with_great_numbers(false);
}

#[test]
#[ignore = "long: make test-long"]
fn numbers_in_a_profile_are_no_sizes_of_tables_in_any_command() {
    profiles_with_great_numbers(true);
}

#[test]
fn descriptions_and_policies_are_bounded() {
    let dir = Scratch::new("bombs-text");
    let prof = dir.join("a.prof");
    let mut writer = Writer::create(&prof).unwrap();
    [Record::Header(header()), Record::Threads(vec![thread(0, "x", None)])]
        .iter()
        .for_each(|r| writer.append(r).unwrap());
    let prof = prof.to_str().unwrap();
    let node = "<object type=\"NUMANode\" os_index=\"1\" cpuset=\"0xf...f\"/>";
    let entity = "<!DOCTYPE t [<!ENTITY a \"xxxxxxxxxxxxxxxx\">".to_owned()
        + &(b'b'..b'k')
            .map(|c| format!("<!ENTITY {} \"{}\">", c as char, format!("&{};", (c - 1) as char).repeat(10)))
            .collect::<String>()
        + "]><topology version=\"2.0\">&j;</topology>";
    let xml = [
        format!("<topology version=\"2.0\">{}</topology>", node.repeat(200_000)),
        format!("<topology version=\"2.0\">{}", "<object>".repeat(2_000_000)),
        entity,
    ];
    for text in &xml {
        let file = dir.write("m.xml", text);
        bounded("an hwloc file", &["advise", "--target", file.to_str().unwrap(), prof]);
    }
    for text in [
        "pack:1000000 core:1000000",
        "pack:4294967295 numa:18446744073709551615",
        "numa:1024 core:8",
        "[numa] [numa] pu:8192",
    ] {
        bounded("a description", &["advise", "--target", text, prof]);
    }
    bounded("brackets", &["advise", "--target", &format!("pack:2 {}", "[numa]".repeat(10_000)), prof]);
    bounded("levels", &["advise", "--target", &"core:1 ".repeat(10_000), prof]);
    let head = "version = 1\n";
    let place = "place = { policy = \"interleave\" }\n";
    let rule = |key: &str, place: &str| format!("{head}[[object]]\nglobal = \"x\"\n{key}\n{place}");
    let policies = [
        rule("instances = \"1-18446744073709551615\"", place),
        rule("", "place = { policy = \"bind\", nodes = \"0-4000000000\" }\n"),
        rule("", "place = { policy = \"map\", map = \"18446744073709551615x0,1x0\" }\n"),
        rule("", "place = { policy = \"map\", map = \"65536x0,65535x0\" }\n"),
        rule("", "place = { policy = \"block-cyclic\", block = \"1\" }\n"),
        format!("{head}[threads]\ncount = 4000000000\nbind = [\"0-4000000000\"]\n"),
        format!("{head}x = {}\n", "[".repeat(1_000_000)),
        format!("{head}x = {}1\n", "{ a = ".repeat(100_000)),
        format!("{head}{}", "[[object]]\n".repeat(1_000_000)),
        format!("{head}[{}]\n", vec!["a"; 500_000].join(".")),
        format!("{head}# {}\n", "x".repeat(20 << 20)),
    ];
    for text in &policies {
        let file = dir.write("p.toml", text);
        bounded("a policy", &["predict", "--nodes", "2", "--policy", file.to_str().unwrap(), prof]);
    }
    for device in ["/dev/zero", "/dev/urandom"] {
        for args in [
            &["report", device][..],
            &["predict", "--nodes", "2", "--policy", device, prof],
            &["advise", "--target", device, prof],
        ] {
            bounded(device, args);
        }
    }
}
