//! Which frame names an object, what is divided by size, and names that differ.

use super::*;

const LARGE: u64 = 1 << 20;

/// A stack of (function, line), innermost first, and the size, birth and death of the object that it allocates.
type Allocated<'a> = (&'a [(&'a str, u32)], u64, u64, Option<u64>);

/// A program in which every stack allocates one object.
fn program(stacks: &[Allocated<'_>]) -> Summary {
    let mut symbols: Vec<Symbol> = Vec::new();
    let mut frame = |function: &str, line: u32| {
        let locations =
            vec![Location { function: Some(function.into()), file: Some("/src/a.c".into()), line: Some(line) }];
        let known = symbols.iter().find(|s: &&Symbol| s.locations == locations).map(|s| s.frame);
        known.unwrap_or_else(|| {
            let frame = Frame { module: 0, offset: 16 + symbols.len() as u64 };
            symbols.push(Symbol { frame, locations });
            frame
        })
    };
    let libc = Frame { module: 1, offset: 7 };
    let sites: Vec<CallSite> = (0..)
        .zip(stacks)
        .map(|(id, (stack, ..))| CallSite {
            id,
            frames: stack.iter().map(|(f, line)| frame(f, *line)).chain([libc]).collect(),
        })
        .collect();
    let objects: Vec<Object> = (0..)
        .zip(stacks)
        .map(|(id, (_, size, born_ns, died_ns))| {
            let mut o = object(id, ObjectKind::Heap, "", 0x1000_0000 * u64::from(id + 1), *size);
            o.site = Some(id);
            (o.instance.born_ns, o.instance.died_ns) = (*born_ns, *died_ns);
            o
        })
        .collect();
    let accesses = (0..stacks.len() as u32).map(|i| access(i, 0, 1, 0x1000_0000 * u64::from(i + 1))).collect();
    let module = |id, path: &str| Module { id, path: path.into(), build_id: None, read_only: vec![] };
    load(&[
        header(),
        Record::Modules(vec![module(0, "/bin/app"), module(1, "/lib/libc.so.6")]),
        Record::Sites(sites),
        Record::Symbols(symbols),
        Record::Objects(objects),
        Record::Accesses(accesses),
        end(),
    ])
}

fn names(summary: &Summary) -> Vec<&str> {
    let mut names: Vec<&str> = summary.entries.iter().map(|e| e.name.as_str()).collect();
    names.sort_unstable();
    names
}

#[test]
fn functions_that_serve_several_callers_are_passed() {
    let found = program(&[
        (&[("get", 1), ("make", 2), ("solve", 3), ("main", 9)], LARGE, 1, None),
        (&[("get", 1), ("make", 2), ("setup", 4), ("main", 8)], LARGE, 2, None),
        (&[("get", 1), ("make", 2), ("main", 7)], LARGE, 3, None),
    ]);
    assert_eq!(names(&found), ["main a.c:7", "setup a.c:4", "solve a.c:3"]);
}

/// Two matrices that shared pointers own: the functions that make these differ, and the program's do.
#[test]
fn callers_in_the_program_tell_equal_names_apart() {
    let made = |by: &'static str, line, library: &'static str| {
        [("Matrix", 4), (library, 119), ("std::make_shared<Matrix>", 862), (by, line), ("main", 40)]
    };
    let (int, long) = (made("input", 10, "std::_Construct<int>"), made("output", 20, "std::_Construct<long>"));
    // A thread that starts with the function, so that this names its objects.
    let thread = [("Matrix", 4)];
    let summary = program(&[(&int, LARGE, 0, None), (&long, LARGE * 64, 1, None), (&thread, LARGE, 2, None)]);
    assert_eq!(names(&summary), ["Matrix a.c:4 < input a.c:10", "Matrix a.c:4 < output a.c:20"]);
}

#[test]
fn a_function_with_its_own_arrays_names_them() {
    // Two grids with two arrays each: the arrays are what the program distinguishes.
    let init = program(&[
        (&[("init", 1), ("main", 7)], LARGE, 1, None),
        (&[("init", 2), ("main", 7)], LARGE, 2, None),
        (&[("init", 1), ("main", 8)], LARGE, 3, None),
        (&[("init", 2), ("main", 8)], LARGE, 4, None),
    ]);
    assert_eq!(names(&init), ["init a.c:1", "init a.c:2"]);
    // One array again and again, from wherever the function is called.
    let solve = program(&[
        (&[("solve", 1), ("main", 7)], LARGE, 1, Some(10)),
        (&[("solve", 1), ("step", 3), ("main", 8)], LARGE, 20, Some(30)),
    ]);
    assert_eq!(names(&solve), ["solve a.c:1"]);
    // Trees allocate in recursion, and threads in their start routines.
    let tree = program(&[
        (&[("build", 1), ("build", 2), ("main", 7)], LARGE, 1, None),
        (&[("build", 1), ("main", 7)], LARGE, 2, None),
        (&[("work", 5)], LARGE, 2, None),
        (&[("work", 5), ("main", 9)], LARGE, 2, None),
    ]);
    assert_eq!(names(&tree), ["build a.c:1", "work a.c:5"]);
}

#[test]
fn sizes_divide_what_exists_side_by_side() {
    let sizes = |list: &[(u64, u64, Option<u64>)]| {
        let stack: &[(&str, u32)] = &[("read", 1), ("main", 7)];
        let all: Vec<_> = list.iter().map(|&(size, born, died)| (stack, size, born, died)).collect();
        let summary = program(&all);
        let mut found: Vec<(u64, u64)> = summary.entries.iter().map(|e| (e.size, e.instances)).collect();
        found.sort_unstable();
        assert_eq!(summary.entries.iter().filter(|e| e.size_class.is_some()).count(), found.len() * (found.len() / 2));
        (found, names(&summary).into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    let (found, names) = sizes(&[(LARGE, 1, None), (64 * LARGE, 2, None), (65 * LARGE, 3, None)]);
    assert_eq!(found, [(LARGE, 1), (65 * LARGE, 2)]);
    assert_eq!(names, ["read a.c:1 (1MiB)", "read a.c:1 (65MiB)"]);
    // A buffer that grows, of which a few steps were seen, and sizes that are close.
    assert_eq!(sizes(&[(LARGE, 1, Some(50)), (16 * LARGE, 50, Some(100)), (256 * LARGE, 100, None)]).0.len(), 1);
    assert_eq!(sizes(&[(LARGE, 1, None), (2 * LARGE, 2, None), (4 * LARGE, 3, None)]).0.len(), 1);
}

#[test]
fn inlined_functions_and_tail_calls_are_on_the_stack() {
    let location = |f: &str, line| Location { function: Some(f.into()), file: Some("a.c".into()), line: Some(line) };
    let (outer, libc) = (Frame { module: 0, offset: 16 }, Frame { module: 1, offset: 7 });
    let module = |id, path: &str| Module { id, path: path.into(), build_id: None, read_only: vec![] };
    let mut o = object(0, ObjectKind::Heap, "", 0x1000_0000, LARGE);
    o.site = Some(0);
    let found = load(&[
        header(),
        Record::Modules(vec![module(0, "/bin/app"), module(1, "/lib/libc.so.6")]),
        Record::Sites(vec![CallSite { id: 0, frames: vec![outer, libc] }]),
        Record::Symbols(vec![Symbol { frame: outer, locations: vec![location("part", 3), location("main", 4)] }]),
        Record::LostFrames(vec![LostFrames {
            inner: None,
            outer,
            locations: vec![location("operator new(unsigned long)", 1), location("make", 2)],
        }]),
        Record::Objects(vec![o]),
        Record::Accesses(vec![access(0, 0, 1, 0x1000_0000)]),
        end(),
    ]);
    let site = found.entries[0].site.as_ref().expect("a call site");
    let (steps, naming) = found.steps(site);
    let functions: Vec<_> = steps.iter().map(|s| (s.function().unwrap_or("?"), s.how, s.index)).collect();
    assert_eq!(
        functions,
        [
            ("operator new(unsigned long)", How::TailCalled, 0),
            ("make", How::TailCalled, 0),
            ("part", How::Inlined, 0),
            ("main", How::Called, 0),
            ("?", How::Called, 1)
        ]
    );
    assert_eq!((naming, found.entries[0].name.as_str(), found.user_frame(site)), (1, "make a.c:2", 0));
}

/// Line tables alone have functions of Rust's library without their crate.
#[test]
fn functions_from_the_sources_of_a_library_are_passed() {
    for (directory, name) in [
        ("/rustc/0f1e2d/library/alloc/src/raw_vec", "solve a.rs:3"),
        ("/home/me/src/raw_vec", "with_capacity_in mod.rs:9"),
    ] {
        let mut records = site_records(["main", "with_capacity_in", "solve", "main"]);
        for symbol in
            records.iter_mut().filter_map(|r| if let Record::Symbols(s) = r { Some(s) } else { None }).flatten()
        {
            for location in symbol.locations.iter_mut().filter(|l| l.function.as_deref() == Some("with_capacity_in")) {
                (location.file, location.line) = (Some(format!("{directory}/mod.rs")), Some(9));
            }
        }
        let o = Object { site: Some(1), ..object(0, ObjectKind::Heap, "", 0x1000_0000, LARGE) };
        records.extend([Record::Objects(vec![o]), Record::Accesses(vec![access(0, 0, 1, 0x1000_0000)]), end()]);
        assert_eq!(names(&load(&records)), [name]);
    }
}

#[test]
fn equal_names_are_made_to_differ() {
    // Two allocations on one line, and one line reached over two ways.
    let mut records = site_records(["make", "make", "left", "main"]);
    let objects = (0..2).map(|i| Object { site: Some(i), ..object(i, ObjectKind::Heap, "", 0x10_0000 << i, LARGE) });
    let global = |id, vaddr| Object { vaddr, ..object(id, ObjectKind::Global, "buffer", 0x100_0000 << id, 4096) };
    records.push(Record::Objects(objects.chain([global(2, 64), global(3, 8192)]).collect()));
    records.push(Record::Accesses(
        [0x10_0000, 0x20_0000, 0x400_0000, 0x800_0000].iter().zip(0..).map(|(&a, i)| access(i, 0, 1, a)).collect(),
    ));
    records.push(end());
    let found = load(&records);
    assert_eq!(names(&found), ["buffer #1", "buffer #2", "make a.rs:3 #1", "make a.rs:3 #2"]);
}
