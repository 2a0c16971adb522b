//! The model against real programs: compiled here with gcc, g++ and gfortran, stopped at a read, mapped from
//! /proc/PID/maps. Each program prints `name hex` lines of what it knows about itself.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use super::tests::mapped;
use super::*;
use crate::profile::records::{Module, Object, ObjectKind};
use crate::profile::replay::CodeSource;

const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
int big[100000];
static char hidden[5000];
int start[1000] = {1};
const int table[500] = {1, 2};
extern int lib_data[3000];
int cpp_work(int);
long cpp_address(void);
int common[3000];
__attribute__((noinline)) void *here(void) { return __builtin_return_address(0); }
static inline __attribute__((always_inline)) void *inner(int x) {
    void *p = here(); /* in inner */
    big[x]++;
    return p;
}
__attribute__((noinline)) void *outer(int x) {
    void *p = inner(x); /* in outer */
    big[x] += 2;
    return p;
}
int main(void) {
    char *jit = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(jit, 0xc3, 16);
    int local = 0;
    char *block = malloc(100000);
    printf("big %lx\nhidden %lx\nstart %lx\ntable %lx\nlib %lx\ncommon %lx\n", (long)big, (long)hidden, (long)start,
           (long)table, (long)lib_data, (long)common);
    printf("stdout %lx\njit %lx\nlocal %lx\nblock %lx\n", (long)stdout, (long)jit, (long)&local, (long)block);
    printf("outer %lx\ninlined %lx\nwork %lx\nready 0\n", (long)outer, (long)outer(cpp_work(3)), cpp_address());
    fflush(stdout);
    return getchar() + hidden[local] + start[3] + table[4];
}
"#;

const LIBRARY: &str = r#"
int lib_data_cpp[3000] asm("lib_data");
namespace ns { __attribute__((noipa)) static int work(int x) { return x * 3 + lib_data_cpp[x]; } }
extern "C" int cpp_work(int x) { return ns::work(x) + 1; }
extern "C" long cpp_address() { return (long)ns::work; }
"#;

const FORTRAN: &str = r#"
module grid
  real(8), save :: field(5000)
end module
program t
  use grid
  real(8) :: u(4000)
  common /cvar/ u
  field(1) = 1; u(2) = 2
  write(*, '(a,z0)') 'field ', loc(field)
  write(*, '(a,z0)') 'cvar ', loc(u)
  write(*, '(a)') 'ready 0'
  flush(6)
  read(*,*) u(1)
end program
"#;

/// A directory of this test, removed at its end.
struct Workshop(PathBuf);

impl Workshop {
    fn new(name: &str) -> Workshop {
        let dir = std::env::temp_dir().join(format!("numamma-space-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Workshop(dir)
    }

    fn run(&self, tool: &str, args: &[&str]) {
        let out = Command::new(tool).args(args).current_dir(&self.0).output();
        let out = out.unwrap_or_else(|e| panic!("{tool}: {e}; install it to run this test"));
        assert!(out.status.success(), "{tool} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
    }

    /// The library without debug information, and the program linked to it as `app`.
    fn build(&self, options: &[&str]) {
        self.write("lib.cc", LIBRARY);
        self.run("g++", &["-O2", "-shared", "-fPIC", "-o", "libx.so", "lib.cc"]);
        self.write("app.c", PROGRAM);
        let fixed = ["-O2", "-fcommon", "-o", "app", "app.c", "-L.", "-lx", "-Wl,-rpath,$ORIGIN"];
        self.run("gcc", &[options, &fixed].concat());
    }

    fn start(&self) -> Running {
        Running::start(&self.0.join("app"))
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A program that waits at its read.
struct Running {
    child: Child,
    _stdin: ChildStdin,
    said: HashMap<String, u64>,
}

impl Running {
    fn start(path: &Path) -> Running {
        let mut child = Command::new(path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let _stdin = child.stdin.take().unwrap();
        let mut said = HashMap::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let (name, value) = line.trim().split_once(' ').unwrap();
            if name == "ready" {
                break;
            }
            said.insert(name.to_string(), u64::from_str_radix(value.trim(), 16).unwrap());
        }
        Running { child, _stdin, said }
    }

    fn at(&self, name: &str) -> u64 {
        self.said[name]
    }

    fn space(&self) -> Space {
        let pid = self.child.id();
        let mut space = Space::new(pid, false);
        for line in std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap().lines() {
            let mut fields = line.splitn(6, ' ');
            let mut next = || fields.next().unwrap_or_default();
            let (low, high) = next().split_once('-').unwrap();
            let hex = |s| u64::from_str_radix(s, 16).unwrap();
            let rights = next().as_bytes();
            let prot = [b'r', b'w', b'x'].iter().enumerate().map(|(i, r)| u32::from(rights[i] == *r) << i).sum();
            let offset = hex(next());
            let path = [next(), next(), next()][2].trim();
            let path = if path.is_empty() { "//anon" } else { path };
            space.mmap(1, pid, &mapped(hex(low), hex(high) - hex(low), offset, prot, path));
        }
        space
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Default)]
struct Known {
    modules: Vec<Module>,
    objects: Vec<Object>,
}

impl Known {
    /// Kind, name and module file of what lies at `addr`; and the object.
    fn what(&mut self, space: &mut Space, pid: u32, addr: u64) -> (ObjectKind, String, String, Object) {
        let id = space.attribute(2, pid, 0, 0, addr);
        for record in space.take_records() {
            match record {
                Record::Modules(m) => self.modules.extend(m),
                Record::Objects(changed) => {
                    for o in changed {
                        self.objects.retain(|old| old.id != o.id);
                        self.objects.push(o);
                    }
                }
                _ => {}
            }
        }
        let o = self.objects.iter().find(|o| o.id == id).unwrap().clone();
        let path = o.module.map(|m| self.modules[m as usize].path.clone()).unwrap_or_default();
        (o.kind, o.name.clone(), path.rsplit('/').next().unwrap_or_default().to_string(), o)
    }
}

fn expect(run: &Running, space: &mut Space, expected: &[(&str, u64, ObjectKind, &str, &str)]) {
    let mut known = Known::default();
    for &(at, offset, kind, name, module) in expected {
        let got = known.what(space, run.child.id(), run.at(at) + offset);
        assert_eq!((got.0, got.1.as_str(), got.2.as_str()), (kind, name, module), "{at} + {offset}");
        if kind == ObjectKind::Global {
            assert_eq!(got.3.instance.base, run.at(at), "base of {name}");
        }
    }
}

use ObjectKind::{Global, Mapping, Section};

fn check_data(run: &Running) {
    let expected = [
        ("big", 0, Global, "big", "app"),
        ("big", 399_999, Global, "big", "app"),
        ("hidden", 4999, Global, "hidden", "app"),
        ("start", 40, Global, "start", "app"),
        ("table", 1999, Global, "table", "app"),
        ("common", 11_999, Global, "common", "app"),
        ("stdout", 8, Global, "_IO_2_1_stdout_", "libc.so.6"),
        ("block", 10, Mapping, "[heap]", ""),
    ];
    expect(run, &mut run.space(), &expected);
}

/// Function bounds and code bytes are those of the running program.
fn check_code(run: &Running) {
    let (mut space, pid) = (run.space(), run.child.id());
    let mut code = space.code(pid);
    for name in ["outer", "work"] {
        let f = code.function_at(run.at(name) + 1).unwrap();
        assert_eq!(f.start, run.at(name), "{name}");
        assert!((8..200).contains(&f.code.len()), "{name}: {}", f.code.len());
        let mut memory = vec![0; f.code.len()];
        let file = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut memory, f.start).unwrap();
        assert_eq!(f.code, memory, "{name}");
    }
    let mut id = |name| code.function_at(run.at(name)).map(|f| (f.key, f.start)).unwrap();
    let ids = [id("outer"), id("work")];
    assert_ne!(ids[0], ids[1]);
    let jit = code.function_at(run.at("jit") + 3).unwrap();
    assert_eq!((jit.start, jit.code[15]), (run.at("jit"), 0xc3));
    assert!(ids.iter().all(|id| id.0 != jit.key));
    assert!(code.function_at(0x10).is_none());
    assert_eq!(space.frame(pid, run.at("jit")).module, NO_MODULE);
}

fn names(space: &mut Space, frame: Frame) -> Vec<(Option<String>, Option<String>, Option<u32>)> {
    let symbols = space.symbols();
    let symbol = symbols.into_iter().find(|s| s.frame == frame);
    let short = |f: Option<String>| f.map(|f| f.rsplit('/').next().unwrap_or_default().to_string());
    symbol.map_or_else(Vec::new, |s| s.locations.into_iter().map(|l| (l.function, short(l.file), l.line)).collect())
}

fn check_inlined_call(run: Running) {
    let (mut space, pid) = (run.space(), run.child.id());
    space.alloc(3, pid, 0, run.at("block"), 100_000, &[run.at("inlined")], Origin::Heap);
    let frame = space.frame(pid, run.at("inlined"));
    drop(run); // names must not need the process
    let line = |function: &str| {
        let line = PROGRAM.lines().position(|l| l.contains(&format!("in {function} */"))).unwrap() as u32 + 1;
        (Some(function.to_string()), Some("app.c".to_string()), Some(line))
    };
    assert_eq!(names(&mut space, frame), [line("inner"), line("outer")]);
    assert!(space.symbols().is_empty(), "each frame is named once");
}

#[test]
fn a_position_independent_program_with_debug_information() {
    let w = Workshop::new("pie");
    w.build(&["-g", "-pie", "-fPIC"]);
    let run = w.start();
    check_data(&run);
    check_code(&run);
    expect(&run, &mut run.space(), &[("lib", 8, Global, "lib_data", "libx.so")]);
    let (mut space, pid) = (run.space(), run.child.id());
    // Without debug information the demangled symbol is all.
    let work = space.frame(pid, run.at("work") + 1);
    assert_eq!(names(&mut space, work), [(Some("ns::work(int)".into()), None, None)]);
    check_inlined_call(run);
}

/// Symbol addresses by name, for the expectations.
struct ElfNames(HashMap<String, u64>);

impl ElfNames {
    fn of(path: &Path) -> ElfNames {
        use object::{Object as _, ObjectSymbol};
        let data = std::fs::read(path).unwrap();
        let file = object::File::parse(&*data).unwrap();
        ElfNames(file.symbols().map(|s| (s.name().unwrap().to_string(), s.address())).collect())
    }

    fn address(&self, name: &str) -> u64 {
        self.0[name]
    }
}

#[test]
fn a_fixed_program_with_debug_information() {
    let w = Workshop::new("fixed");
    w.build(&["-g", "-no-pie", "-fno-pie"]);
    let run = w.start();
    assert!(run.at("big") < 1 << 32);
    check_data(&run);
    check_code(&run);
    // The copy relocation puts the library's variable into the program.
    expect(&run, &mut run.space(), &[("lib", 8, Global, "lib_data", "app")]);
    check_inlined_call(run);
}

#[test]
fn a_stripped_program_has_sections_and_function_bounds_only() {
    let w = Workshop::new("stripped");
    w.build(&["-g", "-pie", "-fPIC"]);
    w.run("strip", &["app"]);
    let run = w.start();
    let expected = [
        ("big", 0, Section, ".bss", "app"),
        ("start", 0, Section, ".data", "app"),
        ("table", 0, Section, ".rodata", "app"),
        ("lib", 8, Global, "lib_data", "libx.so"),
    ];
    expect(&run, &mut run.space(), &expected);
    check_code(&run);
    let mut space = run.space();
    let frame = space.frame(run.child.id(), run.at("outer"));
    assert_eq!(names(&mut space, frame), []);
}

#[test]
fn separate_debug_files_give_everything_back() {
    let w = Workshop::new("debuglink");
    w.build(&["-g", "-pie", "-fPIC", "-Wl,--build-id=none"]);
    std::fs::create_dir(w.0.join(".debug")).unwrap();
    w.run("objcopy", &["--only-keep-debug", "app", ".debug/app.debug"]);
    w.run("strip", &["app"]);
    w.run("objcopy", &["--add-gnu-debuglink=.debug/app.debug", "app"]);
    let run = w.start();
    check_data(&run);
    check_code(&run);
    check_inlined_call(run);
}

#[test]
fn a_deleted_program_is_still_read() {
    let w = Workshop::new("deleted");
    w.build(&["-g", "-pie", "-fPIC"]);
    let run = w.start();
    std::fs::remove_file(w.0.join("app")).unwrap();
    check_data(&run);
    check_code(&run);
    check_inlined_call(run);
}

#[test]
fn compressed_debug_information_is_read() {
    let w = Workshop::new("compressed");
    w.build(&["-g", "-gz=zlib", "-pie", "-fPIC"]);
    check_inlined_call(w.start());
}

#[test]
fn a_static_program_shows_its_own_libc() {
    let w = Workshop::new("static");
    w.write("lib.cc", LIBRARY);
    w.write("app.c", PROGRAM);
    w.run("g++", &["-O2", "-c", "lib.cc"]);
    w.run("gcc", &["-g", "-O2", "-fcommon", "-static", "-o", "app", "app.c", "lib.o"]);
    let run = w.start();
    let (mut space, pid) = (run.space(), run.child.id());
    expect(&run, &mut space, &[("big", 4, Global, "big", "app"), ("stdout", 4, Global, "_IO_2_1_stdout_", "app")]);
    let stack = space.attribute(3, pid, 0, run.at("local"), run.at("local"));
    let Some(Record::Objects(objects)) = space.take_records().pop() else { panic!() };
    let object = objects.iter().find(|o| o.id == stack).unwrap();
    assert_eq!((object.kind, object.name.as_str()), (ObjectKind::Stack, "stack of thread 0"));
    check_code(&run);
}

#[test]
fn fortran_common_blocks_and_module_variables() {
    let w = Workshop::new("fortran");
    w.write("t.f90", FORTRAN);
    w.run("gfortran", &["-O1", "-g", "-o", "app", "t.f90"]);
    let run = w.start();
    let expected = [("field", 39_999, Global, "__grid_MOD_field", "app"), ("cvar", 31_999, Global, "cvar_", "app")];
    expect(&run, &mut run.space(), &expected);
}

/// Subroutines outside of modules, the program, and a parallel loop of each.
const PROCEDURES: &str = r#"
subroutine stats(x)
  real(8) :: x(100)
  !$omp parallel do
  do i = 1, 100
    x(i) = 1
  end do
end subroutine
program weather
  real(8) :: u(100)
  call stats(u)
  !$omp parallel do
  do i = 1, 100
    u(i) = u(i) + 1
  end do
  print *, u(1)
end program
"#;

/// The symbol comes behind the name: rules are matched by it.
#[test]
fn fortran_procedures_have_their_names_of_the_source() {
    let w = Workshop::new("procedures");
    w.write("t.f90", PROCEDURES);
    let names = |flag: &str| {
        w.run("gfortran", &["-O1", "-fopenmp", flag, "-o", "app", "t.f90"]);
        let path = w.0.join("app");
        let file = elf::ElfFile::open(&path, path.to_str().unwrap()).unwrap();
        let namer = symbols::Namer::new(&file, None);
        let of = |symbol: &str| -> Vec<String> {
            let at = ElfNames::of(&path).address(symbol);
            namer.locations(at + 1).into_iter().filter_map(|l| l.function).collect()
        };
        ["MAIN__", "MAIN__._omp_fn.0", "stats_", "stats_._omp_fn.0"].map(of)
    };
    let (program, stats) = (["weather", "MAIN__"], ["stats", "stats_"]);
    assert_eq!(names("-g"), [program, program, stats, stats]);
    let (program, stats) = (vec!["main_program", "MAIN__"], vec!["stats_"]);
    assert_eq!(names("-g0"), [program.clone(), program, stats.clone(), stats]);
}

#[test]
fn libraries_come_and_go() {
    const PID: u32 = 0x7fff_fff0; // above every pid_max
    const BASE: u64 = 0x7f00_0000_0000;
    let w = Workshop::new("dlopen");
    w.build(&["-g"]);
    let path = w.0.join("libx.so");
    let data = std::fs::read(&path).unwrap();
    let path = path.to_str().unwrap();
    let elf = ElfNames::of(Path::new(path));
    let file = elf::ElfFile::open(Path::new(path), path).unwrap();
    let code = *file.segments.iter().find(|s| s.executable).unwrap();
    let (_, end) = file.extent().unwrap();
    let load = |s: &mut Space, time: u64, base: u64| {
        s.mmap(time, PID, &mapped(base, end, 0, 1, path));
        s.mmap(time, PID, &mapped(base + code.vaddr, code.memory_size, code.offset, 5, path));
        let bss = file.bss_start().unwrap();
        s.mmap(time, PID, &mapped(base + bss, end - bss, 0, 3, "//anon"));
    };
    let mut s = Space::new(PID, false);
    let mut known = Known::default();
    let at = elf.address("lib_data") + 100;
    load(&mut s, 1, BASE);
    let first = known.what(&mut s, PID, BASE + at);
    assert_eq!((first.0, first.1.as_str(), first.3.instance.born_ns), (Global, "lib_data", 1));
    assert_eq!(s.frame(PID, BASE + code.vaddr + 8), Frame { module: 0, offset: code.vaddr + 8 });
    // Its text is remapped to huge pages: still the module. Then something else takes the place.
    s.mmap(2, PID, &mapped(BASE + code.vaddr, code.memory_size, 0, 7, "//anon"));
    assert_eq!(known.what(&mut s, PID, BASE + at).3.id, first.3.id);
    s.mmap(3, PID, &mapped(BASE, end, 0, 3, "//anon"));
    let gone = known.what(&mut s, PID, BASE + at);
    assert_eq!((gone.0, gone.1.as_str()), (Mapping, "//anon"));
    assert_eq!(known.objects.iter().find(|o| o.id == first.3.id).unwrap().instance.died_ns, Some(3));
    load(&mut s, 4, BASE + (1 << 30));
    let moved = s.attribute(5, PID, 0, 0, BASE + (1 << 30) + at);
    assert_ne!(moved, first.3.id);
    assert!(data.len() > 4096);
}
