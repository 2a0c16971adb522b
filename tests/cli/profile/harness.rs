//! Compiles programs, profiles them with the real command and reads the profile back.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use numamma::profile::file::Reader;
use numamma::profile::records::*;

use crate::common;
pub use crate::common::{NUMAMMA, Ran, Scratch, heeding, numamma, plain, run, text, wait};

/// Rate that gives some hundred samples in half a second and costs little in a slow virtual machine.
pub const RATE: &str = "500";

pub fn scratch(name: &str) -> Scratch {
    Scratch::new(&format!("profile-{name}"))
}

/// `tests/cli/profile/<name>.c` compiled with `flags`, into `dir`.
pub fn compile(dir: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let flags = [&["-O2", "-g", "-pthread", "-w"], flags].concat();
    common::compile("gcc", &format!("cli/profile/{name}.c"), dir.join(name), &flags)
}

/// `numamma profile -F RATE -o <dir>/t.prof <options> -- <command>`, not started.
pub fn profile(dir: &Path, options: &[&str], command: &[&str]) -> Command {
    let output: &[&str] = if options.contains(&"-o") { &[] } else { &["-o", "t.prof"] };
    let mut c = numamma(&["profile", "-F", RATE]);
    c.current_dir(dir).args(output).args(options).arg("--").args(command);
    c.stdin(Stdio::null());
    heeding(c)
}

/// A profile, read record by record and checked for definitions before use.
#[derive(Debug, Default)]
pub struct Profile {
    pub header: Option<Header>,
    pub headers: usize,
    pub modules: Vec<Module>,
    pub threads: Vec<Thread>,
    pub objects: Vec<Object>,
    pub sites: Vec<CallSite>,
    pub counts: HashMap<SiteId, SiteCount>,
    pub accesses: Vec<Access>,
    pub touches: Vec<Touch>,
    /// Those of the time in which not all page faults were recorded.
    pub sampled_touches: Vec<Touch>,
    pub symbols: Vec<Symbol>,
    pub notes: Vec<String>,
    pub stats: Stats,
    pub ending: Option<Ended>,
    pub damage: Option<String>,
}

fn put<T>(table: &mut Vec<T>, items: Vec<T>, id: impl Fn(&T) -> u32) {
    for item in items {
        match table.iter_mut().find(|t| id(t) == id(&item)) {
            Some(old) => *old = item,
            None => {
                assert_eq!(id(&item) as usize, table.len(), "ids are dense and in order");
                table.push(item);
            }
        }
    }
}

impl Profile {
    pub fn read(path: &Path) -> Profile {
        let mut reader = Reader::open(path).expect("the profile opens");
        let mut p = Profile::default();
        for record in reader.by_ref() {
            p.add(record);
        }
        p.damage = reader.damage.clone();
        p
    }

    fn add(&mut self, record: Record) {
        assert!(self.ending.is_none(), "nothing follows the end");
        assert!(self.header.is_some() || matches!(record, Record::Header(_)), "the header comes first");
        match record {
            Record::Header(h) => {
                self.headers += 1;
                self.header = Some(h);
            }
            Record::Modules(m) => put(&mut self.modules, m, |m| m.id),
            Record::Threads(t) => put(&mut self.threads, t, |t| t.id),
            Record::Objects(o) => put(&mut self.objects, o, |o| o.id),
            Record::Sites(s) => put(&mut self.sites, s, |s| s.id),
            Record::Accesses(a) => {
                let (objects, threads) = (self.objects.len() as u32, self.threads.len() as u32);
                assert!(a.iter().all(|a| a.object < objects && a.thread < threads), "definitions before use");
                assert!(a.is_sorted_by_key(|a| a.time_ns), "accesses are in time order");
                self.accesses.extend(a);
            }
            Record::Touches(t) => {
                let (objects, threads) = (self.objects.len() as u32, self.threads.len() as u32);
                assert!(t.iter().all(|t| t.object < objects && t.thread < threads), "definitions before use");
                self.touches.extend(t);
            }
            Record::Symbols(s) => self.symbols.extend(s),
            Record::Notes(n) => self.notes.extend(n),
            Record::Code(_) | Record::AccessCode(_) => {}
            Record::LostFrames(_) | Record::Members(_) | Record::ThreadTasks(_) | Record::Rank(_) => {}
            Record::ThreadWaits(list) => {
                let threads = self.threads.len() as u32;
                assert!(list.iter().all(|waits| waits.thread < threads), "definitions before use");
            }
            Record::Resized(_) | Record::SharedLines(_) => {}
            Record::SampledTouches(t) => self.sampled_touches.extend(t),
            Record::EventCounts(c) => self.stats.events = c,
            Record::Stats(s) => self.stats = s,
            Record::End(e) => self.ending = Some(e),
            Record::Folded(_) | Record::Like(_) => panic!("only files of long runs are compacted"),
            Record::SiteCounts(c) => self.counts.extend(c.into_iter().map(|c| (c.site, c))),
            Record::SiteFrees(list) => {
                let sites = self.sites.len() as u32;
                assert!(list.iter().all(|frees| frees.site < sites), "definitions before use");
                let counts = list.iter().flat_map(|frees| [frees.small, frees.large]);
                assert!(counts.into_iter().all(|count| count.by_others <= count.all), "{list:?}");
            }
        }
    }

    pub fn header(&self) -> &Header {
        self.header.as_ref().expect("a header")
    }

    pub fn global(&self, name: &str) -> Vec<&Object> {
        self.objects.iter().filter(|o| o.kind == ObjectKind::Global && o.name == name).collect()
    }

    pub fn thread(&self, name: &str) -> &Thread {
        self.threads.iter().find(|t| t.name == name).unwrap_or_else(|| panic!("no thread {name}"))
    }

    /// Accesses to objects, as (object, thread).
    pub fn accesses_to<'a>(&'a self, objects: &[&Object]) -> impl Iterator<Item = &'a Access> {
        let ids: HashSet<ObjectId> = objects.iter().map(|o| o.id).collect();
        self.accesses.iter().filter(move |a| ids.contains(&a.object))
    }

    /// Pages of objects touched first, by thread.
    pub fn touched(&self, objects: &[&Object], thread: Option<ThreadId>) -> u64 {
        let of = |t: &&Touch| objects.iter().any(|o| o.id == t.object) && thread.is_none_or(|id| id == t.thread);
        self.touches.iter().filter(of).map(|t| t.pages).sum()
    }

    /// Functions of a call stack, innermost first.
    pub fn functions(&self, site: SiteId) -> Vec<String> {
        let frames = &self.sites[site as usize].frames;
        let named = |f: &Frame| self.symbols.iter().find(|s| s.frame == *f);
        frames
            .iter()
            .flat_map(|f| named(f).map_or(Vec::new(), |s| s.locations.clone()))
            .filter_map(|l| l.function)
            .collect()
    }

    /// Heap objects of exactly `size` bytes.
    pub fn heap(&self, size: u64) -> Vec<&Object> {
        self.objects.iter().filter(|o| o.kind == ObjectKind::Heap && o.instance.size == size).collect()
    }

    /// Every complete profile: the counters of samples add up and agree with the threads'.
    pub fn check_sums(&self) {
        let s = &self.stats;
        let parts = s.resolved + s.no_access + s.unresolved + s.vsib + s.tls + s.undecoded + s.own;
        assert_eq!(s.samples, parts, "every sample is in one class: {s:?}");
        assert_eq!(s.samples, self.threads.iter().map(|t| t.samples).sum::<u64>(), "threads have all samples");
        let cost: u64 = self.accesses.iter().map(|a| u64::from(a.cost_ns)).sum();
        assert!(
            cost >= s.resolved * self.header().sampling.period_ns.min(u64::from(u32::MAX)),
            "resolved samples carry cost"
        );
    }
}
