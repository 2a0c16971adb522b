//! Made-up runs whose workers are known.

use std::collections::HashMap;

use super::*;
use crate::profile::records::{Header, Location, Module, ObjectKind, Stats, Task, Waits};
use crate::profile::summary::{Cell, CodePart, Counters};

const MS: u64 = 1_000_000;
/// Modules of the runs.
const PROGRAM: u32 = 0;
const GOMP: u32 = 1;
const STDCXX: u32 = 2;
/// Addresses of a library's constants.
const CONSTANTS: (u64, u64) = (0x8000, 0x28000);

/// A run of 640 ms, whose time slots are 10 ms.
pub(in crate::detect) struct Run {
    threads: Vec<Thread>,
    cells: Vec<Cell>,
    /// Accesses to the constants of a library.
    constants: Vec<Cell>,
    symbols: HashMap<Frame, Vec<Location>>,
}

fn at(module: u32, offset: u64) -> Frame {
    Frame { module, offset }
}

impl Run {
    pub fn new() -> Run {
        let main = Thread { id: 0, pid: 7, tid: 7, samples: 1000, ..Thread::default() };
        Run { threads: vec![main], cells: Vec::new(), constants: Vec::new(), symbols: HashMap::new() }
    }

    /// A thread created by `creator`, alive from `life.0` to `life.1` ms (to the end from 640 on).
    fn thread(&mut self, creator: u32, routine: Frame, life: (u64, u64)) -> u32 {
        let id = self.threads.len() as u32;
        let end_ns = (life.1 < 640).then_some(life.1 * MS);
        let (creator, start_routine) = (Some(creator), Some(routine));
        let (start_ns, tid) = (life.0 * MS, 7 + id);
        self.threads.push(Thread { id, pid: 7, tid, creator, start_routine, start_ns, end_ns, ..Thread::default() });
        id
    }

    pub fn team(&mut self, n: u32, routine: Frame, life: (u64, u64)) -> Vec<u32> {
        (0..n).map(|_| self.thread(0, routine, life)).collect()
    }

    /// `accesses` of a thread in every time slot of a range, on pages of its own.
    pub fn works(&mut self, thread: u32, slots: std::ops::Range<u16>, accesses: u64) {
        let counters = Counters { reads: accesses, ..Counters::default() };
        let cell = |slot| Cell { instance: 0, page: 1 + thread, thread, slot, counters };
        self.cells.extend(slots.map(cell));
    }

    fn roles(&self) -> Roles {
        roles(&self.summary())
    }

    pub fn summary(&self) -> Summary {
        let module = |path: &str| Module { path: path.into(), ..Module::default() };
        let mut cells = self.cells.clone();
        cells.sort_by_key(|c| (c.page, c.thread, c.slot));
        let entry = Entry { kind: ObjectKind::Heap, size: 1 << 30, cells, ..Entry::default() };
        let section = Entry {
            kind: ObjectKind::Section,
            module: Some(STDCXX),
            vaddr: CONSTANTS.0,
            size: CONSTANTS.1 - CONSTANTS.0,
            cells: self.constants.clone(),
            ..Entry::default()
        };
        let mut modules = vec![module("/app/solver"), module("/lib/libgomp.so.1.0.0"), module("/lib/libstdc++.so.6")];
        modules[STDCXX as usize].read_only.push(CONSTANTS);
        Summary {
            header: Header { page_size: 4096, pid: 7, ..Header::default() },
            modules,
            threads: self.threads.clone(),
            symbols: self.symbols.clone(),
            stacks: crate::profile::summary::CallStacks::default(),
            entries: vec![entry, section],
            stays: Vec::new(),
            spinning: Default::default(),
            shared_lines: Vec::new(),
            stats: Stats { duration_ns: 640 * MS, ..Stats::default() },
            ending: None,
            rank: None,
            profiles: 1,
            notes: Vec::new(),
        }
    }
}

/// Rank and team of every thread; none for those that do not work.
fn ranks(roles: &Roles, run: &Run) -> Vec<Option<(u32, u32)>> {
    (0..run.threads.len() as u32).map(|t| roles.rank(t).map(|r| (r.rank, r.of))).collect()
}

fn some(list: &[(u32, u32)]) -> Vec<Option<(u32, u32)>> {
    list.iter().copied().map(Some).collect()
}

const WORKER: Frame = Frame { module: PROGRAM, offset: 0x1000 };

#[test]
fn a_main_that_initialises_and_waits_has_no_rank() {
    let mut run = Run::new();
    // 40 % of the run is initialisation by main, which also touches a little while the workers run.
    run.works(0, 0..26, 1000);
    run.works(0, 30..31, 2);
    for t in run.team(4, WORKER, (255, 640)) {
        run.works(t, 25..64, 100);
    }
    let roles = run.roles();
    let expected = [None, Some((0, 4)), Some((1, 4)), Some((2, 4)), Some((3, 4))];
    assert_eq!(ranks(&roles, &run), expected);
    assert_eq!((roles.workers, roles.number(0, 4)), (4, Some(4)));
    assert!(!roles.kinds[1].creator_works);
}

#[test]
fn a_helper_that_formats_text_while_main_initialises_is_no_worker() {
    let mut run = Run::new();
    run.works(0, 0..20, 100);
    let helper = run.thread(0, at(STDCXX, 0x2000), (10, 640));
    let counters = Counters { reads: 60, ..Counters::default() };
    run.constants.extend((1..12).map(|slot| Cell { instance: 0, page: 3, thread: helper, slot, counters }));
    for t in run.team(4, WORKER, (195, 640)) {
        run.works(t, 20..64, 100);
    }
    let expected = [None, None, Some((0, 4)), Some((1, 4)), Some((2, 4)), Some((3, 4))];
    assert_eq!(ranks(&run.roles(), &run), expected);
}

/// A tree of small nodes that two threads walk, and the heap outside of any allocation, of which main and one of the
/// two have a few samples.
#[test]
fn where_small_objects_are_the_data_samples_of_the_rest_say_nothing() {
    let mut run = Run::new();
    run.works(0, 0..10, 100);
    for t in run.team(2, WORKER, (95, 640)) {
        run.works(t, 10..64, 100);
    }
    let mut summary = run.summary();
    summary.entries[0].kind = ObjectKind::SmallHeap;
    let counters = Counters { reads: 6, ..Counters::default() };
    let cell = |thread, slot| Cell { instance: 0, page: thread, thread, slot, counters };
    let cells = vec![cell(0, 20), cell(0, 40), cell(1, 20), cell(1, 40)];
    summary.entries.push(Entry { kind: ObjectKind::Mapping, size: 1 << 20, cells, ..Entry::default() });
    assert_eq!(ranks(&roles(&summary), &run), [None, Some((0, 2)), Some((1, 2))]);
}

#[test]
fn a_helper_with_a_few_samples_of_the_arrays_is_no_worker() {
    let mut run = Run::new();
    let helper = run.thread(0, at(PROGRAM, 0x90), (0, 640));
    let team = run.team(4, WORKER, (0, 640));
    team.iter().for_each(|t| run.works(*t, 0..64, 100));
    // Two in a hundred of all accesses.
    run.works(helper, 0..64, 8);
    let expected: Vec<_> = [None, None].into_iter().chain(some(&[(0, 4), (1, 4), (2, 4), (3, 4)])).collect();
    assert_eq!(ranks(&run.roles(), &run), expected);
}

/// Too few accesses to large objects to tell, but threads that run have samples.
#[test]
fn a_main_without_samples_that_waits_for_few_is_no_worker() {
    let with = |of_main: u64, of_workers: u64| {
        let mut run = Run::new();
        for worker in run.team(8, WORKER, (10, 640)) {
            run.works(worker, 2..4, 2);
            run.threads[worker as usize].samples = of_workers;
        }
        run.threads[0].samples = of_main;
        (run.roles().rank(0).is_some(), run.roles().workers)
    };
    assert_eq!(with(0, 12), (false, 8));
    assert_eq!(with(0, 2), (true, 9), "a worker may have none by chance");
}

#[test]
fn a_main_that_works_is_worker_0() {
    for (module, own) in [(PROGRAM, 100), (GOMP, 100), (GOMP, 0)] {
        let mut run = Run::new();
        run.works(0, 0..10, 1000);
        run.works(0, 10..64, own);
        for t in run.team(3, at(module, 0x2000), (95, 640)) {
            run.works(t, 10..64, 100);
        }
        // The master of an OpenMP team is its thread 0 even if its part is empty.
        assert_eq!(ranks(&run.roles(), &run), some(&[(0, 4), (1, 4), (2, 4), (3, 4)]), "{module} {own}");
    }
}

#[test]
fn a_main_that_goes_over_what_all_have_done_is_no_worker() {
    // In every step main sums up, for a fifth of the time, or has a part of its own and sums up for a tenth.
    for (own_part, over_all) in [(0u64, 20u64), (90, 10)] {
        let mut run = Run::new();
        let team = run.team(4, WORKER, (0, 640));
        let one = |reads| Counters { reads, ..Counters::default() };
        for page in 0..500u32 {
            for slot in 0..64u16 {
                let owner = page / 100;
                let thread = if owner == 4 { 0 } else { team[owner as usize] };
                let reads = if owner == 4 { own_part / 5 } else { 20 };
                run.cells.push(Cell { instance: 0, page, thread, slot, counters: one(reads) });
                let over = u64::from((page + u32::from(slot)) % 20 < over_all as u32);
                run.cells.push(Cell { instance: 0, page, thread: 0, slot, counters: one(over * 5) });
            }
        }
        let works = run.roles().rank(0).is_some();
        assert_eq!(works, own_part > 0, "{own_part} {over_all}");
    }
}

#[test]
fn the_least_loaded_thread_of_a_triangular_loop_works() {
    for threads in [2u32, 4, 16, 48] {
        let mut run = Run::new();
        let team = run.team(threads - 1, WORKER, (0, 640));
        for (i, t) in std::iter::once(0).chain(team).enumerate() {
            run.works(t, 0..64, 10 * (2 * i as u64 + 1));
        }
        let expected: Vec<(u32, u32)> = (0..threads).map(|t| (t, threads)).collect();
        assert_eq!(ranks(&run.roles(), &run), some(&expected), "{threads}");
    }
}

#[test]
fn pools_made_anew_keep_their_ranks() {
    let mut run = Run::new();
    let mut expected = vec![None];
    for step in 0..16u64 {
        // The kernel records the end of the last thread of a pool only when the next pool has begun.
        let (from, to) = (step * 40, step * 40 + 40);
        for i in 0..4u32 {
            let t = run.thread(0, WORKER, (from, if i == 3 { to + 4 } else { to }));
            run.works(t, (4 * step as u16)..(4 * step as u16 + 4), 100);
            expected.push(Some((i, 4)));
        }
    }
    // A second pool for the end of the run, from another place, hardly touches anything.
    for t in run.team(4, at(PROGRAM, 0x9000), (630, 640)) {
        run.works(t, 63..64, 1);
        expected.push(None);
    }
    assert_eq!(ranks(&run.roles(), &run), expected);
}

#[test]
fn two_teams_one_after_the_other_have_the_same_ranks() {
    let mut run = Run::new();
    for (routine, slots, life) in [(0x1000, 0..32, (0, 320)), (0x3000, 32..64, (321, 640))] {
        for t in run.team(4, at(PROGRAM, routine), life) {
            run.works(t, slots.clone(), 100);
        }
    }
    let four = some(&[(0, 4), (1, 4), (2, 4), (3, 4)]);
    assert_eq!(ranks(&run.roles(), &run)[1..], [four.clone(), four].concat());
}

#[test]
fn of_a_pool_only_those_that_get_work_have_ranks() {
    // A pool of twelve, of which the last three work beside main.
    let mut run = Run::new();
    let pool = run.team(12, WORKER, (0, 640));
    for t in [0, pool[9], pool[10], pool[11]] {
        run.works(t, 0..64, 100);
    }
    let roles = run.roles();
    let found: Vec<_> = ranks(&roles, &run).into_iter().enumerate().filter_map(|(t, r)| Some((t, r?))).collect();
    assert_eq!(found, [(0, (0, 4)), (10, (1, 4)), (11, (2, 4)), (12, (3, 4))]);
    assert_eq!(roles.kinds[1].slots, [9, 10, 11]);
}

#[test]
fn each_kind_of_a_pipeline_has_ranks_of_its_own() {
    let mut run = Run::new();
    let readers = run.team(2, at(PROGRAM, 0x1000), (0, 640));
    let workers = run.team(6, at(PROGRAM, 0x2000), (0, 640));
    let logger = run.team(1, at(PROGRAM, 0x3000), (0, 640));
    for (list, accesses) in [(&readers, 50), (&workers, 100), (&logger, 1)] {
        list.iter().for_each(|t| run.works(*t, 0..64, accesses));
    }
    let roles = run.roles();
    let found = ranks(&roles, &run);
    assert_eq!(found[1..3], some(&[(0, 2), (1, 2)]));
    assert_eq!(found[3..9], some(&[(0, 6), (1, 6), (2, 6), (3, 6), (4, 6), (5, 6)]));
    assert_eq!((found[9], roles.workers), (None, 6));
}

#[test]
fn threads_with_a_routine_each_are_one_team() {
    let mut run = Run::new();
    for i in 0..4 {
        let t = run.thread(0, at(PROGRAM, 0x1000 + 0x100 * i), (0, 640));
        run.works(t, 0..64, 100);
    }
    assert_eq!(ranks(&run.roles(), &run)[1..], some(&[(0, 4), (1, 4), (2, 4), (3, 4)]));
}

fn kinds_of(roles: &Roles) -> Vec<usize> {
    roles.of_thread.iter().map(|role| role.kind).collect()
}

#[test]
fn stages_of_one_thread_each_are_kinds_of_their_own_whatever_they_do() {
    for of_last in [1, 20, 40, 100] {
        let mut run = Run::new();
        for (i, accesses) in [20, 100, of_last].into_iter().enumerate() {
            let stage = run.thread(0, at(PROGRAM, 0x1000 + 0x100 * i as u64), (0, 640));
            run.works(stage, 0..64, accesses);
        }
        let roles = run.roles();
        assert_eq!((kinds_of(&roles), roles.kinds.len()), (vec![0, 1, 2, 3], 4), "{of_last}");
        assert!(roles.kinds[1..].iter().all(|kind| kind.width == 1), "{of_last}");
    }
}

#[test]
fn threads_of_two_lines_that_run_one_function_are_one_kind() {
    let kinds = |functions: [u64; 2]| {
        let mut run = Run::new();
        for (i, function) in functions.into_iter().enumerate() {
            let site = 0x20 + 0x10 * i as u64;
            of_cxx(&mut run, function, &[site]);
            let line = Location { function: None, file: Some("/src/two.cpp".into()), line: Some(14 + i as u32) };
            run.symbols.insert(at(PROGRAM, site), vec![line]);
        }
        let roles = run.roles();
        assert_eq!(ranks(&roles, &run)[1..], some(&[(0, 2), (1, 2)]), "{functions:?}");
        assert_eq!((roles.teams.len(), roles.teams[1].origins.len()), (2, 2), "{functions:?}");
        kinds_of(&roles)
    };
    assert_eq!(kinds([0x100, 0x100]), [0, 1, 1]);
    assert_eq!(kinds([0x100, 0x200]), [0, 1, 2]);
}

/// An outer team of two, each of which works in an inner team of two that is made anew in every step.
fn nested_teams(accesses_of_outer: u64) {
    let mut run = Run::new();
    let start = at(GOMP, 0x2000);
    let outer = run.thread(0, start, (0, 640));
    let (main_region, inner_region) = (at(PROGRAM, 0x10), at(PROGRAM, 0x20));
    run.threads[1].created_at = vec![at(GOMP, 1), at(GOMP, 2), main_region];
    let mut expected = vec![Some((0, 4)), Some((2, 4))];
    for step in 0..4u64 {
        for creator in [0, outer] {
            let t = run.thread(creator, start, (step * 160 + 1, step * 160 + 150));
            let bottom = if creator == 0 { vec![at(GOMP, 2), main_region] } else { vec![at(GOMP, 3)] };
            run.threads[t as usize].created_at = [vec![at(GOMP, 1), at(GOMP, 2), inner_region], bottom].concat();
            run.works(t, (16 * step as u16)..(16 * step as u16 + 15), 100);
            expected.push(Some((if creator == 0 { 1 } else { 3 }, 4)));
        }
    }
    run.works(0, 0..64, 100);
    run.works(outer, 0..64, accesses_of_outer);
    let roles = run.roles();
    assert_eq!(ranks(&roles, &run), expected);
    assert_eq!(roles.workers, 4);
}

#[test]
fn nested_teams_divide_the_part_of_their_master() {
    nested_teams(100);
}

#[test]
fn a_master_without_samples_works_in_the_team_that_it_makes() {
    nested_teams(0);
}

/// Three stages, each of which creates four mappers in each third step, `together` or in turn.
fn stages(together: bool) -> (Roles, Run) {
    let mut run = Run::new();
    let stages = run.team(3, at(PROGRAM, 0x1000), (0, 640));
    for step in 0..12u64 {
        let slot = if together { step / 3 * 3 } else { step };
        let life = (50 * slot + 2, 50 * slot + 48);
        for _ in 0..4 {
            let mapper = run.thread(stages[step as usize % 3], at(PROGRAM, 0x2000), life);
            run.works(mapper, (5 * slot as u16)..(5 * slot as u16 + 4), 100);
        }
    }
    stages.iter().for_each(|stage| run.works(*stage, 0..64, 10));
    (run.roles(), run)
}

#[test]
fn a_team_that_takes_turns_with_others_has_all_of_the_machine() {
    let (roles, run) = stages(false);
    let found = ranks(&roles, &run);
    assert_eq!(found[..4], [None; 4]);
    assert_eq!(found[4..], some(&[(0, 4), (1, 4), (2, 4), (3, 4)]).repeat(12));
    assert_eq!(roles.workers, 4);
    let (roles, _) = stages(true);
    assert_eq!(roles.workers, 15, "three teams at a time divide the machine, each with its creator");
}

/// The counts of each come when it ends, two of them in one time slot.
#[test]
fn traced_threads_work_whenever_their_counts_come() {
    let mut run = Run::new();
    let team: Vec<u32> = [200, 300, 302, 400].map(|end| run.thread(0, WORKER, (0, end))).into();
    for (thread, slot) in team.iter().zip([20, 30, 30, 40]).chain([(&0, 63)]) {
        run.works(*thread, slot..slot + 1, 1000);
    }
    let mut summary = run.summary();
    let ranks_of = |summary: &Summary| ranks(&roles(summary), &run);
    assert_eq!(ranks_of(&summary)[1], None, "samples tell that two threads work together");
    summary.header.sampling.sampler = crate::profile::record::TRACE.into();
    assert_eq!(ranks_of(&summary), some(&[(0, 5), (1, 5), (2, 5), (3, 5), (4, 5)]));
}

/// Main has written all before its team reads it; the counts of both come at the end.
#[test]
fn a_traced_main_that_was_blocked_beside_its_team_is_no_worker() {
    let main_works = |start, blocked_ms: u64, reads_files: bool, code: &[&[u32]]| {
        let mut run = Run::new();
        run.works(0, 63..64, 1000);
        let team = run.team(4, WORKER, (start, 640));
        team.iter().for_each(|t| run.works(*t, 63..64, 1000));
        for t in run.threads.iter_mut() {
            let (is_main, life) = (t.id == 0, 640 * MS - t.start_ns);
            let blocked_ns = if is_main { blocked_ms * MS } else { 0 };
            let (for_threads, otherwise) = if is_main && reads_files { (1, 9) } else { (1, 0) };
            t.waits = Some(Waits { seen_ns: life, blocked_ns, for_threads, otherwise, ..Waits::default() });
        }
        let mut summary = run.summary();
        summary.header.sampling.sampler = crate::profile::record::TRACE.into();
        summary.entries[0].by_code = code.iter().map(|threads| part_of(threads)).collect();
        roles(&summary).rank(0).is_some()
    };
    assert!(!main_works(10, 625, false, &[]));
    assert!(main_works(10, 100, false, &[]));
    assert!(!main_works(300, 340, false, &[]), "it waits for its team");
    assert!(main_works(300, 300, true, &[]), "it may have waited for files");
    let (own_code, same_code): (&[&[u32]], &[&[u32]]) = (&[&[0], &[1, 2, 3, 4]], &[&[0], &[0, 1, 2, 3, 4]]);
    assert!(!main_works(300, 320, true, own_code), "it looks at the progress of its team now and then");
    assert!(main_works(300, 300, true, same_code));
    assert!(main_works(300, 100, true, own_code), "it does something else beside them");
}

/// A loop nest in which these threads access an object.
fn part_of(threads: &[u32]) -> CodePart {
    let counters = Counters { reads: 100, ..Counters::default() };
    let cell = |thread| Cell { instance: 0, page: 0, thread, slot: 0, counters };
    let cells = threads.iter().map(|thread| cell(*thread)).collect();
    CodePart { nest: Some(at(PROGRAM, 0x10)), cells, ..CodePart::default() }
}

#[test]
fn a_team_that_shrinks_and_grows_uses_the_lowest_slots() {
    let mut run = Run::new();
    let first = run.team(4, WORKER, (0, 200));
    // Two of them live on; two new ones come while they live.
    for t in [1usize, 2] {
        run.threads[t].end_ns = None;
    }
    let later = run.team(2, WORKER, (400, 640));
    first.iter().for_each(|t| run.works(*t, 0..20, 100));
    [1, 2].iter().for_each(|t| run.works(*t, 20..64, 100));
    later.iter().for_each(|t| run.works(*t, 40..64, 100));
    let expected = some(&[(0, 4), (1, 4), (2, 4), (3, 4), (2, 4), (3, 4)]);
    assert_eq!(ranks(&run.roles(), &run)[1..], expected);
}

#[test]
fn threads_of_a_language_are_told_apart_by_where_they_are_created() {
    let mut run = Run::new();
    let start = at(STDCXX, 0x500);
    let mut expected = vec![None];
    for (site, count, accesses) in [(0x10, 1, 0), (0x20, 4, 100)] {
        for i in 0..count {
            let t = run.thread(0, start, (0, 640));
            run.threads[t as usize].created_at = vec![at(STDCXX, 0x600), at(PROGRAM, site), at(PROGRAM, 0x1)];
            run.works(t, 0..64, accesses);
            expected.push((accesses > 0).then_some((i, 4)));
        }
    }
    let roles = run.roles();
    assert_eq!(ranks(&roles, &run), expected);
    assert_eq!(roles.kinds[2].origins, [(Some(start), Some(at(PROGRAM, 0x20)))]);
}

#[test]
fn one_line_that_creates_threads_in_several_calls_is_one_place() {
    // A vector of threads: one call creates those for which it grows, another one the rest.
    let mut run = Run::new();
    let line = |function: &str, file: &str, line| Location {
        function: Some(function.into()),
        file: Some(file.into()),
        line: Some(line),
    };
    for (site, number) in [(0x10, 45), (0x20, 49), (0x30, 49), (0x40, 49)] {
        let of_vector = line("emplace_back", "/usr/include/c++/12/bits/vector.tcc", 123);
        run.symbols.insert(at(PROGRAM, site), vec![of_vector, line("main", "/src/crew.cpp", number)]);
    }
    let grows = line("std::vector::_M_realloc_insert", "/usr/include/c++/12/bits/vector.tcc", 462);
    run.symbols.insert(at(PROGRAM, 0x50), vec![grows]);
    let mut expected = vec![None];
    let frames = [vec![0x10], vec![0x20], vec![0x50, 0x30], vec![0x30], vec![0x40]];
    for (i, sites) in frames.iter().enumerate() {
        let t = run.thread(0, at(STDCXX, 0x500), (0, 640));
        run.threads[t as usize].created_at =
            [vec![at(STDCXX, 0x600)], sites.iter().map(|s| at(PROGRAM, *s)).collect()].concat();
        run.works(t, 0..64, if i > 0 { 100 } else { 0 });
        expected.push((i as u32).checked_sub(1).map(|rank| (rank, 4)));
    }
    let roles = run.roles();
    assert_eq!(ranks(&roles, &run), expected);
    let origins: Vec<_> = [0x20, 0x30, 0x40].map(|site| (Some(at(STDCXX, 0x500)), Some(at(PROGRAM, site)))).into();
    assert_eq!(roles.kinds[2].origins, origins);
}

/// A std::thread of main that runs `function`, created by the frames of the program innermost first.
fn of_cxx(run: &mut Run, function: u64, frames: &[u64]) -> u32 {
    let t = run.thread(0, at(STDCXX, 0x500), (0, 640));
    let thread = &mut run.threads[t as usize];
    thread.created_at = [vec![at(STDCXX, 0x600)], frames.iter().map(|f| at(PROGRAM, *f)).collect()].concat();
    thread.task = Some(Task { class: at(PROGRAM, 0x9000), function: Some(at(PROGRAM, function)) });
    run.works(t, 0..64, 100);
    t
}

#[test]
fn one_call_is_one_place_without_debug_information_too() {
    // A vector of threads grows for the first three in a function of the library, and has room for the fourth.
    let mut run = Run::new();
    for frames in [&[0x50, 0x30][..], &[0x50, 0x30], &[0x50, 0x30], &[0x20]] {
        of_cxx(&mut run, 0x100, frames);
    }
    let roles = run.roles();
    assert_eq!(ranks(&roles, &run)[1..], some(&[(0, 4), (1, 4), (2, 4), (3, 4)]));
    let origins: Vec<_> = [0x50, 0x20].map(|site| (Some(at(STDCXX, 0x500)), Some(at(PROGRAM, site)))).into();
    assert_eq!(roles.kinds[1].origins, origins);
}

#[test]
fn threads_that_run_different_functions_are_of_two_kinds() {
    // Two vectors of threads that grow in the same function of the library.
    let mut run = Run::new();
    let (reader, worker) = (0x100, 0x200);
    for (function, frames) in [
        (reader, &[0x50, 0x30][..]),
        (reader, &[0x50, 0x30]),
        (worker, &[0x50, 0x38]),
        (worker, &[0x50, 0x38]),
        (worker, &[0x50, 0x38]),
        (worker, &[0x28]),
    ] {
        of_cxx(&mut run, function, frames);
    }
    let two_and_four = some(&[(0, 2), (1, 2), (0, 4), (1, 4), (2, 4), (3, 4)]);
    let roles = run.roles();
    assert_eq!(ranks(&roles, &run)[1..], two_and_four);
    let sites = |kind: usize| roles.kinds[kind].origins.iter().map(|o| o.1.unwrap().offset).collect::<Vec<_>>();
    assert_eq!((sites(1), sites(2)), (vec![0x30], vec![0x38, 0x28]), "a place is of one team");
    // Both loops on one line of the source.
    let line = |file: &str, line| Location { function: None, file: Some(file.into()), line: Some(line) };
    run.symbols.insert(at(PROGRAM, 0x50), vec![line("/usr/include/c++/12/bits/vector.tcc", 462)]);
    for site in [0x30, 0x38, 0x28] {
        run.symbols.insert(at(PROGRAM, site), vec![line("/src/two.cpp", 14)]);
    }
    assert_eq!(ranks(&run.roles(), &run)[1..], two_and_four);
}

#[test]
fn processes_divide_the_work_and_launchers_do_not() {
    let mut run = Run::new();
    for p in 0..3u32 {
        let (id, pid) = (run.threads.len() as u32, 100 + p);
        run.threads.push(Thread { id, pid, tid: pid, creator: Some(0), ..Thread::default() });
        run.works(id, 0..64, 100);
        let helper = Thread { id: id + 1, pid, tid: 200 + p, creator: Some(id), ..Thread::default() };
        run.threads.push(Thread { start_routine: Some(at(GOMP, 0x2000)), ..helper });
        run.works(id + 1, 0..64, 100);
    }
    run.works(0, 0..1, 5);
    let six: Vec<(u32, u32)> = (0..6).map(|r| (r, 6)).collect();
    let roles = run.roles();
    assert_eq!(ranks(&roles, &run)[0], None);
    assert_eq!(ranks(&roles, &run)[1..], some(&six));
}

#[test]
fn one_thread_works_alone_and_no_samples_say_nothing() {
    let mut run = Run::new();
    run.works(0, 0..64, 10);
    assert_eq!(ranks(&run.roles(), &run), some(&[(0, 1)]));
    let mut silent = Run::new();
    silent.team(3, WORKER, (0, 640));
    assert_eq!(ranks(&silent.roles(), &silent), some(&[(0, 4), (1, 4), (2, 4), (3, 4)]));
}

#[test]
fn strange_profiles_are_quick_and_have_roles() {
    // A chain of threads that create each other, creators that do not exist or come later, ends before starts.
    let mut run = Run::new();
    for i in 0..50_000u32 {
        let t = run.thread(i, at(PROGRAM, u64::from(i % 1000)), (5, 4));
        run.threads[t as usize].creator = [Some(i), Some(u32::MAX), Some(t), None][i as usize % 4].or(Some(i));
    }
    run.works(40_000, 0..64, 10);
    let begin = std::time::Instant::now();
    let roles = run.roles();
    assert!(roles.workers >= 1);
    assert!(begin.elapsed().as_secs() < 20, "{:?}", begin.elapsed());
    assert!(!roles.is_empty());
}
