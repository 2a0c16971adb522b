//! Compiles the test programs, runs them as a recorder would, and resolves addresses of the program.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use numamma_channel::reader::Channel;
use numamma_channel::{Event, EventKind};
use object::{Object, ObjectSymbol};

use crate::common::{Scratch, alone, compile, plain, preload};

/// Flags of every compiler call: each call of an allocation function must be in the program, with its frame.
const ALWAYS: [&str; 8] = [
    "-g",
    "-Wall",
    "-fno-optimize-sibling-calls",
    "-fno-builtin-malloc",
    "-fno-builtin-free",
    "-fno-builtin-realloc",
    "-fno-builtin-calloc",
    "-Wno-alloc-size-larger-than",
];

/// One compiler call.
pub struct Build {
    source: String,
    flags: Vec<String>,
    name: Option<String>,
    libraries: Vec<PathBuf>,
}

impl Build {
    pub fn new(source: &str) -> Build {
        Build { source: source.into(), flags: vec!["-O2".into()], name: None, libraries: Vec::new() }
    }

    pub fn flags(mut self, flags: &[&str]) -> Build {
        self.flags = flags.iter().map(|f| (*f).to_string()).collect();
        self
    }

    /// A shared library of that name instead of a program.
    pub fn library(mut self, name: &str) -> Build {
        self.name = Some(name.into());
        self
    }

    pub fn link(mut self, library: &Path) -> Build {
        self.libraries.push(library.into());
        self
    }

    pub fn build(self) -> PathBuf {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        static DIR: OnceLock<Scratch> = OnceLock::new();
        let dir = DIR.get_or_init(|| Scratch::new("preload-profile"));
        let dir = dir.join(COUNT.fetch_add(1, Ordering::Relaxed).to_string());
        std::fs::create_dir_all(&dir).unwrap();
        let compiler = if self.source.ends_with(".cpp") { "c++" } else { "cc" };
        let (out, kind) = match &self.name {
            // Not position independent: addresses in events are those of the symbol table.
            None => (dir.join("program"), ["-no-pie", "-fno-pie"]),
            Some(name) => (dir.join(format!("lib{name}.so")), ["-shared", "-fPIC"]),
        };
        let mut flags = self.flags;
        flags.extend(ALWAYS.iter().chain(&kind).map(|f| (*f).to_string()));
        for library in &self.libraries {
            let (file, dir) = (library.display(), library.parent().unwrap().display());
            flags.extend([file.to_string(), format!("-Wl,-rpath,{dir}")]);
        }
        flags.extend(["-lpthread", "-ldl"].map(String::from));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        compile(compiler, &format!("preloads/preload_profile/{}", self.source), out, &flags)
    }
}

/// What the recorder does besides waiting.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// Drains, and never says that a thread has gone.
    Keep,
    /// Drains, and says so for every thread that is not in /proc any more.
    Report,
    /// Drains only when the program has ended.
    DrainAtEnd,
}

/// What came of a run.
pub struct Run {
    pub pid: u32,
    pub events: Vec<Event>,
    pub stacks: BTreeMap<u32, Vec<u64>>,
    pub stdout: String,
    pub lost: u64,
    /// Allocations that the program left out as it was asked to.
    pub skipped: u64,
    /// Bytes of the channel at its end.
    pub memory: u64,
    pub images: u32,
    symbols: Vec<(Range<u64>, String)>,
}

pub fn run(program: &Path, args: &[&str]) -> Run {
    run_with(program, args, false, Gone::Keep)
}

pub fn run_with(program: &Path, args: &[&str], follow: bool, gone: Gone) -> Run {
    run_prepared(program, args, follow, gone, |_| {})
}

/// As [`run_with`]; `prepare` is called with the channel before the program starts.
pub fn run_prepared(program: &Path, args: &[&str], follow: bool, gone: Gone, prepare: impl FnOnce(&Channel)) -> Run {
    // The recorder must get CPU time to keep up with the program.
    let _alone = alone();
    let mut channel = Channel::create(follow).unwrap();
    prepare(&channel);
    let mut command = plain(program);
    command.args(args).envs(channel.env()).env("LD_PRELOAD", preload("profile"));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    channel.set_target(child.id());
    let mut events = Vec::new();
    let mut seen = BTreeSet::new();
    let status = loop {
        let ended = child.try_wait().unwrap();
        if gone != Gone::DrainAtEnd || ended.is_some() {
            let before = events.len();
            channel.drain(&mut events);
            seen.extend(events[before..].iter().map(|e| (e.pid, e.tid)));
        }
        if let Some(status) = ended {
            break status;
        }
        if gone == Gone::Report {
            seen.retain(|&(pid, tid)| {
                let alive = Path::new(&format!("/proc/{pid}/task/{tid}")).exists();
                if !alive {
                    channel.thread_gone(pid, tid);
                }
                alive
            });
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    };
    let mut stdout = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut stdout).unwrap();
    assert!(status.success(), "{status} {stdout}");
    assert!(channel.attached());
    let stacks = events.iter().map(stack).map(|id| (id, channel.stack(id).to_vec())).collect();
    let (pid, lost, images) = (child.id(), channel.lost(), channel.images());
    let (skipped, memory) = (channel.skipped(), channel.memory());
    Run { pid, events, stacks, stdout, lost, skipped, memory, images, symbols: symbols(program) }
}

fn symbols(program: &Path) -> Vec<(Range<u64>, String)> {
    let data = std::fs::read(program).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let functions = file.symbols().filter(|s| s.kind() == object::SymbolKind::Text && s.size() > 0);
    functions.map(|s| (s.address()..s.address() + s.size(), s.name().unwrap().to_string())).collect()
}

impl Run {
    pub fn allocations(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(|e| matches!(e.what, EventKind::Alloc { .. }))
    }

    /// Function of the program that a return address lies in; `?` elsewhere.
    pub fn function(&self, return_address: u64) -> String {
        let at = return_address - 1;
        self.symbols.iter().find(|(range, _)| range.contains(&at)).map_or("?".into(), |(_, name)| {
            // gcc's clones: f.constprop.0, f.part.0
            name.split('.').next().unwrap().to_string()
        })
    }

    pub fn functions(&self, event: &Event) -> Vec<String> {
        self.stacks[&stack(event)].iter().map(|&ra| self.function(ra)).collect()
    }

    /// Thread starts with their routine and stack.
    pub fn thread_starts(&self) -> Vec<(Event, u64, Range<u64>)> {
        let start = |e: &Event| match e.what {
            EventKind::ThreadStart { start_routine, stack_low, stack_high, .. } => {
                Some((*e, start_routine, stack_low..stack_high))
            }
            _ => None,
        };
        self.events.iter().filter_map(start).collect()
    }
}

/// Two words of what a thread of std::thread runs: thread, index of the first, words.
pub fn task_words(event: &Event) -> Option<(u32, u32, [u64; 2])> {
    match event.what {
        EventKind::ThreadTask { first, words } => Some((event.tid, first, words)),
        _ => None,
    }
}

/// Whether the program says that it wants samples.
pub fn switched(event: &Event) -> Option<bool> {
    match event.what {
        EventKind::Sampling { on } => Some(on),
        _ => None,
    }
}

/// Bytes of an allocation.
pub fn size(event: &Event) -> u64 {
    match event.what {
        EventKind::Alloc { size, .. } => size,
        _ => 0,
    }
}

/// Stack id of an allocation.
pub fn stack(event: &Event) -> u32 {
    match event.what {
        EventKind::Alloc { stack, .. } => stack,
        _ => 0,
    }
}
