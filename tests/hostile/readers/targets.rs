//! The readers of what may come from outside, each as a function of bytes. The fuzzing that is guided by coverage
//! (fuzz/) takes this file, too.

use std::path::Path;

use numamma::advise::{self, Target as Machine};
use numamma::apply::verify::{ReportDir, judge};
use numamma::detect;
use numamma::launch::executable;
use numamma::launch::exit::Ended as Exit;
use numamma::profile::file::{MAGIC, VERSION};
use numamma::profile::perf::Regs;
use numamma::profile::perf::decode::{Source, record};
use numamma::profile::replay::{CodeSource, Function, Replayer};
use numamma::profile::space::static_data::StaticData;
use numamma::profile::summary::{AccessFilter, Summary};
use numamma::report::{Options, Sort, View, find_object, json, object_details, overview, verification};
use numamma::topology::{Topology, synthetic, xml};
use numamma_plan::callsite::demangle::function_name;
use numamma_plan::callsite::{Frame as Place, FunctionName};
use numamma_plan::{check, nodes};

/// A reader: uses the bytes, and says whether it accepted them. Files of its own are made in the directory.
pub type Reader = fn(&[u8], &Path) -> bool;

/// The readers by name.
pub const READERS: [(&str, Reader); 9] = [
    ("profile", profile),
    ("xml", hwloc),
    ("description", description),
    ("report", placement_report),
    ("elf", program),
    ("name", name),
    ("perf", perf),
    ("code", code),
    ("proc", kernel_text),
];

/// A profile of records that are packed here: a length and the encoding of each.
fn profile(data: &[u8], dir: &Path) -> bool {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend([0; 4]);
    let mut rest = data;
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let (plain, behind) = behind.split_at((u32::from_le_bytes(*length) as usize).min(behind.len()));
        rest = behind;
        let payload = lz4_flex::compress_prepend_size(plain);
        bytes.extend(b"CHNK");
        bytes.extend((payload.len() as u32).to_le_bytes());
        bytes.extend(crc32fast::hash(&payload).to_le_bytes());
        bytes.extend(payload);
    }
    let path = dir.join("fuzz.prof");
    std::fs::write(&path, bytes).expect("the scratch directory is writable");
    let Ok(summary) = Summary::load(&path) else { return false };
    let patterns = detect::classify_all(&summary);
    let options = |color, access| Options {
        sort: Sort::Cost,
        top: None,
        access,
        width: 80,
        height: 20,
        color,
        profile: Some("x y".into()),
    };
    for options in [options(false, AccessFilter::All), options(true, AccessFilter::Write)] {
        let view = View::new(&summary, &patterns, &options);
        overview::render(&view);
        json::render(&view, None);
        summary.entries.iter().take(4).for_each(|e| _ = object_details::render(&view, e));
    }
    let _ = find_object::entry(&summary, "a");
    let here = Topology::uniform(1, 4);
    for machine in [Machine::new(Some(3), None, &here, 4, "never"), Machine::new(None, Some(8), &here, 4, "always")] {
        if let Ok(advice) = advise::advise(&summary, &patterns, &machine) {
            let text = advise::toml(&advice).expect("a policy can be written");
            let policy = check::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            let given = advise::Given { name: "given".into(), policy };
            let _ = advise::predict(&summary, &patterns, &machine, &advice, &[given]);
        }
    }
    true
}

fn hwloc(data: &[u8], _: &Path) -> bool {
    xml::parse(&String::from_utf8_lossy(data)).and_then(|machine| machine.model()).is_ok()
}

fn description(data: &[u8], _: &Path) -> bool {
    synthetic::parse(&String::from_utf8_lossy(data)).and_then(|machine| machine.model()).is_ok()
}

fn placement_report(data: &[u8], _: &Path) -> bool {
    let dir = ReportDir::new().expect("a directory in TMPDIR");
    let file = dir.file();
    for process in ["10", "11"] {
        let file = file.to_str().expect("UTF-8").replace("%p", process);
        std::fs::write(file, data).expect("the directory is new");
    }
    let outcome = judge(&file, Exit::Exited(0), None, None);
    verification::text(&outcome, None);
    verification::text(&outcome, Some(60));
    outcome.problem.is_none()
}

fn program(data: &[u8], dir: &Path) -> bool {
    let path = dir.join("fuzz.elf");
    std::fs::write(&path, data).expect("the scratch directory is writable");
    let _ = executable::check(path.as_os_str());
    StaticData::read(&path, 1).is_ok()
}

fn name(data: &[u8], _: &Path) -> bool {
    let text = String::from_utf8_lossy(data);
    let plain = function_name(&text);
    let name = FunctionName::parse(&plain);
    let other = FunctionName::parse("std::vector<int>::push_back(int const&)");
    let _ = (name.means(&other), other.means(&name), name.identifier(), name.fortran_linkage());
    let _ = (text.parse::<Place>().is_ok(), nodes::parse(&text, &[0, 1, 2]).is_ok());
    plain != text
}

fn perf(data: &[u8], _: &Path) -> bool {
    [Source::Timer, Source::Faults].map(|source| record(data, source)).iter().any(Option::is_some)
}

struct Bytes<'a>(&'a [u8]);

impl CodeSource for Bytes<'_> {
    fn function_at(&mut self, _: u64) -> Option<Function<'_>> {
        Some(Function { key: 1, start: 0x1000, code: self.0 })
    }

    fn object_at(&mut self, addr: u64) -> Option<u64> {
        Some(addr >> 24)
    }

    fn constant(&mut self, addr: u64, bytes: &mut [u8]) -> bool {
        let at = addr as usize % self.0.len().max(1);
        self.0.get(at..at + bytes.len()).map(|b| bytes.copy_from_slice(b)).is_some()
    }
}

fn code(data: &[u8], _: &Path) -> bool {
    let mut out = Vec::new();
    for at in 0..data.len().min(12) {
        let regs = Regs { gpr: [0x7000_0000; 16], ip: 0x1000 + at as u64 * 3, flags: 0x246, fs_base: 0x10 };
        Replayer::new().replay(&regs, data, &mut Bytes(data), &mut out);
    }
    !out.is_empty()
}

fn kernel_text(data: &[u8], _: &Path) -> bool {
    let text = String::from_utf8_lossy(data);
    let lists = numamma_kernel::lists::parse_list(&text).len()
        + numamma_kernel::lists::allowed_cpus(&text).map_or(0, |l| l.len());
    let maps = numamma_kernel::maps::parse(data).count();
    let _ = numamma_kernel::meminfo::field(&text, "MemFree");
    lists + maps > 0
}
