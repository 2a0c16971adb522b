//! The detectors against generated page x thread traces with known truth: every class, 2 to 64 threads, 64 to
//! 200,000 pages, 300 to 50,000 samples, up to 40 % noise, permuted thread orders, missing threads, unequal
//! slices, initialisation by thread 0. Seeded: a failure names the trace that failed.
//!
//! `NUMAMMA_TRUTH_TRACES` sets the number of traces, `NUMAMMA_TRUTH_SEED` the first seed.

use numamma::detect::{ObjectView, PageAccess, Pattern, PatternKind, classify, samples_needed};

const PAGE: u64 = 4096;
const SLOTS: u64 = 64;

/// xorshift64*: small, seeded and the same everywhere.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        let mut r = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        (0..8).for_each(|_| {
            r.draw();
        });
        r
    }

    fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// In 0 .. n.
    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(n)) >> 64) as u64
    }

    /// In [0, 1).
    fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Between a and b, equally likely on a logarithmic scale.
    fn log(&mut self, a: f64, b: f64) -> f64 {
        (a.ln() + self.unit() * (b.ln() - a.ln())).exp()
    }

    fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    fn shuffle<T>(&mut self, list: &mut [T]) {
        for i in (1..list.len()).rev() {
            list.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

/// What was planted.
#[derive(Debug, Clone)]
struct Trace {
    seed: u64,
    kind: PatternKind,
    threads: u32,
    /// Ranks of the threads that take part, in the order of their slices.
    order: Vec<u32>,
    pages: u32,
    samples: u32,
    noise: f64,
    /// Whole pages.
    period: Option<u32>,
    permuted: bool,
    unequal: bool,
    initialised: bool,
    instances: u32,
}

impl Trace {
    fn plan(seed: u64) -> (Trace, Random) {
        let mut r = Random::new(seed);
        let kinds = [
            PatternKind::Block,
            PatternKind::BlockCyclic,
            PatternKind::BlockCyclic,
            PatternKind::Random,
            PatternKind::Private,
        ];
        let kind = kinds[(seed % 5) as usize];
        let mut threads = r.log(2.0, 64.99) as u32;
        if r.chance(0.3) {
            threads = 1 << (1 + r.below(6));
        }
        let mut order: Vec<u32> = (0..threads).collect();
        if r.chance(0.2) && threads > 3 {
            let keep = 2 + r.below(u64::from(threads) - 2) as usize;
            r.shuffle(&mut order);
            order.truncate(keep.max(2));
            order.sort_unstable();
        }
        let permuted = r.chance(0.25);
        if permuted {
            r.shuffle(&mut order);
        }
        let part = order.len() as u32;
        let pages = (r.log(64.0, 200_000.0) as u32).max(2 * part + 2);
        let noise = if r.chance(0.3) { 0.0 } else { 0.4 * r.unit() };
        let samples = r.log(300.0, 50_000.0) as u32;
        // Slices of at least two pages, at least one and a half repeats.
        let (kind, period) = match kind {
            PatternKind::BlockCyclic => {
                let (low, high) = (f64::from(2 * part), f64::from(pages) / 1.5);
                if low > high { (PatternKind::Block, None) } else { (kind, Some(r.log(low, high + 0.99) as u32)) }
            }
            _ => (kind, None),
        };
        let instances = if kind == PatternKind::Private && r.chance(0.5) { 2 + r.below(30) as u32 } else { 1 };
        let trace = Trace {
            seed,
            kind,
            threads,
            order,
            pages,
            samples,
            noise,
            period: period.map(|p| p.min((f64::from(pages) / 1.5) as u32)),
            permuted,
            unequal: r.chance(0.3),
            initialised: r.chance(0.35),
            instances,
        };
        (trace, r)
    }

    /// Edges of the slices of a whole (period or object), as fractions.
    fn edges(&self, r: &mut Random) -> Vec<f64> {
        let part = self.order.len();
        let mut widths: Vec<f64> = (0..part).map(|_| if self.unequal { 0.5 + r.unit() } else { 1.0 }).collect();
        let total: f64 = widths.iter().sum();
        let mut at = 0.0;
        widths.iter_mut().for_each(|w| {
            at += *w / total;
            *w = at;
        });
        widths
    }

    fn view(&self, r: &mut Random) -> ObjectView {
        let edges = self.edges(r);
        let part = self.order.len();
        let slots_of_init = 2 + r.below(20);
        let share_of_init = 0.05 + 0.5 * r.unit();
        let init = self.initialised && self.kind != PatternKind::Private;
        // Well above 90 % so that chance does not cross the stated bar.
        let owner_noise = self.noise.min(0.05);
        let mut accesses = Vec::with_capacity(self.samples as usize);
        for _ in 0..self.samples {
            let page = r.below(u64::from(self.pages)) as u32;
            let slot = r.below(SLOTS - slots_of_init) + slots_of_init;
            let instance = r.below(u64::from(self.instances)) as u32;
            let any = self.order[r.below(part as u64) as usize];
            let thread = match self.kind {
                PatternKind::Random => any,
                PatternKind::Private if r.chance(owner_noise) => any,
                PatternKind::Private => self.order[instance as usize % part],
                _ if r.chance(self.noise) => any,
                _ => {
                    let whole = f64::from(self.period.unwrap_or(self.pages));
                    let place = (f64::from(page) + r.unit()) % whole / whole;
                    self.order[edges.iter().position(|e| place < *e).unwrap_or(part - 1)]
                }
            };
            accesses.push(PageAccess { instance, page, thread, slot: slot as u16, weight: 1.0 });
        }
        if init {
            let extra = (f64::from(self.samples) * share_of_init / (1.0 - share_of_init)) as u64;
            for _ in 0..extra {
                let page = r.below(u64::from(self.pages)) as u32;
                let slot = r.below(slots_of_init) as u16;
                accesses.push(PageAccess { instance: 0, page, thread: 0, slot, weight: 1.0 });
            }
        }
        ObjectView {
            size: u64::from(self.pages) * PAGE,
            skew: 0,
            page_size: PAGE,
            threads: self.threads,
            instances: self.instances,
            cost_share: 0.5,
            accesses: merged(accesses),
        }
    }

    /// Samples that a period wrong by one page would misplace, seen from the middle: from about a dozen the data can
    /// tell.
    fn period_is_determined(&self) -> bool {
        const ENOUGH: f64 = 12.0;
        let period = f64::from(self.period.unwrap_or(1));
        let repeats = f64::from(self.pages) / period;
        f64::from(self.samples) * (1.0 - self.noise) * self.order.len() as f64 * repeats / (4.0 * period) >= ENOUGH
    }
}

/// One cell per (instance, page, thread, slot), as profiles are folded.
fn merged(mut accesses: Vec<PageAccess>) -> Vec<PageAccess> {
    accesses.sort_by_key(|a| (a.instance, a.page, a.thread, a.slot));
    accesses.dedup_by(|b, a| {
        let same = (a.instance, a.page, a.thread, a.slot) == (b.instance, b.page, b.thread, b.slot);
        if same {
            a.weight += b.weight;
        }
        same
    });
    accesses
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

fn short(trace: &Trace, got: &Pattern) -> String {
    format!(
        "seed {} {:?} T={}/{} pages={} n={} noise={:.2} period={:?}{}{}{} x{} -> {:?} {:.2} period={:?}: {}",
        trace.seed,
        trace.kind,
        trace.order.len(),
        trace.threads,
        trace.pages,
        trace.samples,
        trace.noise,
        trace.period,
        if trace.permuted { " permuted" } else { "" },
        if trace.unequal { " unequal" } else { "" },
        if trace.initialised { " init" } else { "" },
        trace.instances,
        got.kind,
        got.confidence,
        got.period.map(|p| p as f64 / PAGE as f64),
        got.evidence
    )
}

#[test]
fn generated_traces() {
    let (traces, first) = (number("NUMAMMA_TRUTH_TRACES", 300), number("NUMAMMA_TRUTH_SEED", 1));
    let (mut wrong, mut inexact) = (Vec::new(), Vec::new());
    let (mut determined, mut unsure, mut false_cyclic, mut randoms) = (0, 0, 0, 0);
    let mut slow = (std::time::Duration::ZERO, 0);
    for seed in first..first + traces {
        let (trace, mut r) = Trace::plan(seed);
        let view = trace.view(&mut r);
        let start = std::time::Instant::now();
        let got = classify(&view);
        slow = slow.max((start.elapsed(), seed));
        randoms += u32::from(trace.kind == PatternKind::Random);
        false_cyclic += u32::from(trace.kind == PatternKind::Random && got.kind == PatternKind::BlockCyclic);
        let few = f64::from(trace.samples) < samples_needed(trace.order.len());
        if few && got.kind == PatternKind::Unsure {
            unsure += 1;
        } else if got.kind != trace.kind {
            wrong.push(short(&trace, &got));
        } else if trace.period.is_some() && trace.period_is_determined() {
            determined += 1;
            if got.period != trace.period.map(|p| u64::from(p) * PAGE) {
                inexact.push(short(&trace, &got));
            }
        }
    }
    eprintln!(
        "{traces} traces: {} of the wrong class, {unsure} unsure for want of samples, {} of {determined} periods inexact, \
         {false_cyclic} of {randoms} random ones called block-cyclic; slowest {:?} (seed {})",
        wrong.len(),
        inexact.len(),
        slow.0,
        slow.1
    );
    wrong.iter().chain(&inexact).for_each(|w| eprintln!("  {w}"));
    let bar = |bad: usize, of: u64| bad as f64 <= 0.01 * of as f64;
    assert!(bar(wrong.len(), traces), "{} of {traces} traces of the wrong class", wrong.len());
    assert!(bar(inexact.len(), determined), "{} of {determined} periods inexact", inexact.len());
    assert!(f64::from(false_cyclic) <= 0.001 * f64::from(randoms), "{false_cyclic} of {randoms}");
    assert!(unsure as f64 <= 0.03 * traces as f64, "{unsure} of {traces} unsure");
}

/// A view of `pages` pages with `samples` samples; `touch` gives the pages and threads one sample sees.
fn traced(pages: u32, threads: u32, samples: u32, touch: impl Fn(&mut Random, &mut Vec<(u32, u32)>)) -> ObjectView {
    let mut r = Random::new(u64::from(pages) ^ u64::from(samples) << 20);
    let (mut accesses, mut seen) = (Vec::new(), Vec::new());
    for _ in 0..samples {
        seen.clear();
        touch(&mut r, &mut seen);
        let slot = r.below(SLOTS) as u16;
        for &(page, thread) in &seen {
            accesses.push(PageAccess { instance: 0, page, thread, slot, weight: 1.0 });
        }
    }
    ObjectView {
        size: u64::from(pages) * PAGE,
        skew: 0,
        page_size: PAGE,
        threads,
        instances: 1,
        cost_share: 0.5,
        accesses: merged(accesses),
    }
}

/// Systems.md: `cvar` of LU class C, 558 MiB, split every 160 MiB over 32 threads; 500 samples are enough for the
/// class, 10,000 for the exact page.
#[test]
fn lu_of_the_paper() {
    for (samples, exact) in [(500, false), (10_000, true)] {
        let cvar = traced(142_848, 32, samples, |r, seen| {
            let page = r.below(142_848) as u32;
            let thread = if r.chance(0.1) { r.below(32) as u32 } else { page % 40_960 * 32 / 40_960 };
            seen.push((page, thread));
        });
        let got = classify(&cvar);
        assert_eq!(got.kind, PatternKind::BlockCyclic, "{}", got.evidence);
        let period = got.period.unwrap_or(0) / PAGE;
        assert!(period.abs_diff(40_960) <= if exact { 0 } else { 400 }, "{period} pages");
        assert!(got.confidence > 0.8, "{}", got.confidence);
    }
}

/// A stencil: one sample sees ten accesses in three planes, the outer ones reach into the neighbour's slice.
#[test]
fn a_stencil_with_halo_is_block() {
    let got = classify(&traced(8192, 16, 400, |r, seen| {
        let page = r.below(8192) as u32;
        let thread = page * 16 / 8192;
        for plane in [0, 64, 128] {
            let at = (page + plane).saturating_sub(64).min(8191);
            seen.extend([(at, thread); 3]);
        }
    }));
    assert_eq!(got.kind, PatternKind::Block, "{}", got.evidence);
    assert_eq!(got.slices.len(), 16);
    assert!(got.slices.iter().enumerate().all(|(i, s)| s.thread == i as u32 && s.start < s.end));
}

/// A gather: the index array is block, the gathered one random, although samples come in bursts.
#[test]
fn a_gathered_array_is_random() {
    let got = classify(&traced(20_000, 8, 500, |r, seen| {
        let thread = r.below(8) as u32;
        (0..5).for_each(|_| seen.push((r.below(20_000) as u32, thread)));
    }));
    assert_eq!(got.kind, PatternKind::Random, "{}", got.evidence);
}

/// Dynamic scheduling: chunks of 16 pages, each time by another thread; neighbours agree for a while, but no part
/// belongs to anyone.
#[test]
fn chunks_handed_out_dynamically_are_not_slices() {
    let got = classify(&traced(16_384, 8, 3000, |r, seen| {
        let (chunk, thread) = (r.below(1024) as u32, r.below(8) as u32);
        (0..6).for_each(|_| seen.push((chunk * 16 + r.below(16) as u32, thread)));
    }));
    assert!(matches!(got.kind, PatternKind::Random | PatternKind::Unsure), "{:?} {}", got.kind, got.evidence);
}

/// Hot pages common to all threads, at a period of their own, are no slices.
#[test]
fn periodic_hot_pages_are_random() {
    let got = classify(&traced(65_536, 16, 20_000, |r, seen| {
        let page = r.below(1024) as u32 * 64 + r.below(4) as u32;
        seen.push((page, r.below(16) as u32));
    }));
    assert_eq!(got.kind, PatternKind::Random, "{}", got.evidence);
}

/// The design's size for later: 256 threads over a million pages, and still seconds for thousands of objects.
#[test]
fn a_million_pages_and_256_threads() {
    let start = std::time::Instant::now();
    let got = classify(&traced(1 << 20, 256, 30_000, |r, seen| {
        let page = r.below(1 << 20) as u32;
        let thread = if r.chance(0.2) { r.below(256) as u32 } else { (page % 70_000 * 256 / 70_000 * 77) % 256 };
        seen.push((page, thread));
    }));
    assert_eq!((got.kind, got.period), (PatternKind::BlockCyclic, Some(70_000 * PAGE)), "{}", got.evidence);
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

#[test]
fn few_samples_are_unsure_and_say_how_many_are_needed() {
    let got = classify(&traced(10_000, 16, 60, |r, seen| seen.push((r.below(10_000) as u32, r.below(16) as u32))));
    assert_eq!(got.kind, PatternKind::Unsure);
    assert!(got.evidence.contains(&format!("{:.0} needed", samples_needed(16))), "{}", got.evidence);
    let mut empty = traced(10, 2, 1, |_, _| {});
    assert_eq!(classify(&empty).kind, PatternKind::Unsure);
    empty.size = 100;
    assert_eq!(classify(&empty).kind, PatternKind::Small);
    empty.size = 10 * PAGE;
    empty.cost_share = 0.001;
    assert_eq!(classify(&empty).kind, PatternKind::Cold);
}

mod end_to_end {
    //! The command itself on a profile file: stdout is a policy, stderr is for people.

    use std::path::{Path, PathBuf};
    use std::process::{Command, Output};

    use numamma::profile::file::Writer;
    use numamma::profile::model::{
        Access, Certainty, Ending, Frame, Header, Module, Object, ObjectKind, Record, Stats, Thread,
    };
    use numamma::topology::Topology;
    use numamma_plan::policy::{Block, PolicyKind, Size};

    use super::{PAGE, Random};

    const THREADS: u32 = 8;
    const PERIOD: u64 = 512 * PAGE;
    const BASE: u64 = 0x60_0000;

    fn header() -> Header {
        Header {
            numamma: "0.1.0".into(),
            program: "/opt/app".into(),
            argv: vec!["app".into()],
            build_id: Some("5f1c".into()),
            host: "here".into(),
            started_unix: 0,
            pid: 1,
            sampler: "timer".into(),
            sampler_reason: "no PMU".into(),
            period_ns: 4_000_000,
            sample_cost_ns: 0,
            max_overhead: 0.03,
            page_size: PAGE,
            thp: "never".into(),
            topology: Topology::uniform(1, 2),
            allocations: true,
        }
    }

    fn thread(id: u32) -> Thread {
        Thread {
            id,
            pid: 1,
            tid: id + 1,
            name: "app".into(),
            start_routine: None,
            start_ns: 0,
            end_ns: None,
            cpus: vec![],
            migrations: 0,
            samples: 500,
        }
    }

    /// A profile of a global `field` that `THREADS` threads share out every `PERIOD`.
    fn record(dir: &Path, samples: u64) -> PathBuf {
        let path = dir.join("numamma.prof");
        let mut writer = Writer::create(&path).unwrap();
        let object = Object {
            id: 0,
            kind: ObjectKind::Global,
            name: "field".into(),
            module: Some(0),
            vaddr: BASE,
            site: None,
            pid: 1,
            base: BASE,
            size: 20 * PERIOD,
            born_ns: 0,
            died_ns: None,
            thread: None,
        };
        let mut r = Random::new(7);
        let access = |i: u64, r: &mut Random| {
            let at = r.below(20 * PERIOD);
            Access {
                time_ns: i * 1_000_000,
                thread: (at % PERIOD * u64::from(THREADS) / PERIOD) as u32,
                cpu: 0,
                object: 0,
                addr: BASE + at,
                size: 8,
                write: false,
                certainty: Certainty::Exact,
                cost_ns: 4_000_000,
                node: 0,
                ip: Frame { module: 0, offset: 0x1000 },
            }
        };
        let accesses = (0..samples).map(|i| access(i, &mut r)).collect();
        let stats = Stats { duration_ns: samples * 1_000_000, samples, resolved: samples, ..Stats::default() };
        for record in [
            Record::Header(header()),
            Record::Modules(vec![Module { id: 0, path: "/opt/app".into(), build_id: None, read_only: vec![] }]),
            Record::Threads((0..THREADS).map(thread).collect()),
            Record::Objects(vec![object]),
            Record::Accesses(accesses),
            Record::Stats(stats),
            Record::End(Ending::Exited(0)),
        ] {
            writer.append(&record).unwrap();
        }
        path
    }

    fn advise(dir: &Path, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_numamma")).arg("advise").args(args).current_dir(dir).output().unwrap()
    }

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("numamma-advise-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn stdout_is_the_policy_and_nothing_else() {
        let dir = scratch("policy");
        let path = record(&dir, 4000);
        let out = advise(&dir, &["--nodes", "4"]);
        let (text, words) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap());
        assert!(out.status.success(), "{words}");
        let policy = numamma_plan::check::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let [rule] = policy.objects.as_slice() else { panic!("{text}") };
        assert_eq!(rule.global.as_deref(), Some("field"));
        assert_eq!(rule.address, Some(BASE));
        assert_eq!(rule.place.policy, PolicyKind::BlockCyclic);
        assert_eq!(rule.place.block, Some(Block::Size(Size(PERIOD / 4))));
        assert!(words.contains("block-cyclic") && words.contains("field"), "{words}");

        let quiet = advise(&dir, &["-q", "--nodes", "4", "-o", "policy.toml", path.to_str().unwrap()]);
        assert!(quiet.status.success() && quiet.stdout.is_empty() && quiet.stderr.is_empty(), "{quiet:?}");
        assert_eq!(std::fs::read_to_string(dir.join("policy.toml")).unwrap(), text);

        let json: serde_json::Value = serde_json::from_slice(&advise(&dir, &["--json"]).stdout).unwrap();
        assert_eq!(json["objects"][0]["pattern"]["kind"], "block-cyclic");
        assert_eq!(json["objects"][0]["pattern"]["period"], PERIOD);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn unusable_profiles_are_one_clear_message() {
        let dir = scratch("bad");
        let none = advise(&dir, &[]);
        assert_eq!((none.status.code(), none.stdout.len()), (Some(2), 0));
        assert!(String::from_utf8_lossy(&none.stderr).contains("numamma profile -- ./app"));
        record(&dir, 0);
        let empty = advise(&dir, &[]);
        assert_eq!((empty.status.code(), empty.stdout.len()), (Some(2), 0));
        assert!(String::from_utf8_lossy(&empty.stderr).contains("-F"), "{empty:?}");
        let path = record(&dir, 4000);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 5]).unwrap();
        let torn = advise(&dir, &["--nodes", "2"]);
        assert!(torn.status.success(), "{torn:?}");
        assert!(
            String::from_utf8_lossy(&torn.stderr).contains("cut short"),
            "{}",
            String::from_utf8_lossy(&torn.stderr)
        );
        numamma_plan::check::parse(&String::from_utf8(torn.stdout).unwrap()).unwrap();
        std::fs::remove_dir_all(dir).unwrap();
    }
}
