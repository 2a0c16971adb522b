//! The reader on programs that the compilers of this machine make.

use std::path::Path;
use std::process::Command;

use super::*;
use crate::profile::space::elf::ElfFile;

const FORTRAN: &str = r#"
module shapes
  type cell
    double precision rho(20000), e(30000)
  end type
  type(cell) :: mesh
end module
program t
  integer, parameter :: n = 40000
  double precision a(n), b(0:n-1)
  integer first, last, idx(2, n)
  common /grid/ a, first, last, idx, b
  call init
  print *, a(1) + b(3) + idx(1, 2)
end program
subroutine init
  use shapes
  double precision all(120000)
  common /grid/ all
  all = 0; mesh%e = 1; mesh%rho = 2
end subroutine
"#;

const C: &str = r#"
typedef double real;
struct pair { int low, high; };
struct inner { real u[20000]; char flag; real v[20000]; };
typedef const volatile struct { real head[10]; struct inner in; struct pair pairs[50000]; unsigned bit : 3;
  union { int i; float f; } one; void *next; real tail[16384]; } grid_t;
struct wrapped { real only[100000]; };
struct outer { struct wrapped w; real more[9000]; };
volatile struct outer boxed;
static grid_t grid;
int main(int argc, char **argv) {
  static volatile struct inner hidden;
  hidden.u[argc]++;
  return (int)grid.in.u[argc] + boxed.more[argc] + hidden.flag;
}
"#;

const CPP: &str = r#"
#include <array>
struct base { double field[20000]; static double not_here[5]; };
namespace ns {
class grid : public base {
public:
  virtual ~grid() {}
  std::array<double, 30000> x, y;
  struct { int count; } meta;
private:
  double secret[2][10000];
};
extern grid g;
grid g;
}
int main(int argc, char **) { return (int)(ns::g.x[argc] + ns::g.field[argc]); }
"#;

const RUST: &str = r#"
pub struct Grid { pub a: [f64; 50000], pub b: [[u32; 100]; 1000], pub n: u64 }
#[no_mangle]
pub static mut GRID: Grid = Grid { a: [0.0; 50000], b: [[0; 100]; 1000], n: 0 };
fn main() { unsafe { GRID.n = 1; println!("{:p}", &raw const GRID); } }
"#;

/// Compiles `source` with `command` and reads the members of the variables with these symbols; none when there is no
/// such compiler.
fn members(name: &str, source: &str, command: &[&str], symbols: &[&str]) -> Option<Vec<Vec<Member>>> {
    let dir = std::env::temp_dir().join(format!("numamma-members-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let extension = match command[0] {
        "gfortran" => "f90",
        "rustc" => "rs",
        "g++" | "clang++" => "cc",
        _ => "c",
    };
    let (file, program) = (dir.join(format!("t.{extension}")), dir.join("app"));
    std::fs::write(&file, source).unwrap();
    let mut compiler = Command::new(command[0]);
    compiler.args(&command[1..]).arg("-o").arg(&program).arg(&file).current_dir(&dir);
    let status = compiler.output().ok()?;
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    let found = read(&program, symbols);
    std::fs::remove_dir_all(&dir).unwrap();
    Some(found)
}

fn read(program: &Path, symbols: &[&str]) -> Vec<Vec<Member>> {
    let mut file = ModuleFile::new(ElfFile::open(program, "app").unwrap());
    let of = |g: &crate::profile::space::globals::Globals, name: &&str| {
        let o = g.objects.iter().find(|o| o.name.split('.').any(|part| part == *name));
        o.map(|o| (o.vaddr, o.size)).unwrap_or_else(|| panic!("no {name}"))
    };
    let globals = file.globals();
    let variables: Vec<Variable> = symbols.iter().map(|s| of(globals, s)).collect();
    find(&mut file, &variables)
}

fn words(members: &[Member]) -> Vec<(&str, u64, u64)> {
    members.iter().map(|m| (m.name.as_str(), m.offset, m.size)).collect()
}

#[test]
fn of_common_blocks_and_derived_types() {
    for options in
        [&["gfortran", "-g", "-O0", "-w"][..], &["gfortran", "-g", "-O2", "-w"], &["gfortran", "-g", "-gdwarf-4", "-w"]]
    {
        let symbols = ["grid_", "__shapes_MOD_mesh"];
        let Some(found) = members(&options.join(""), FORTRAN, options, &symbols) else { return };
        let grid = [("a", 0, 320_000), ("first", 320_000, 4), ("last", 320_004, 4), ("idx", 320_008, 320_000)];
        assert_eq!(words(&found[0])[..4], grid, "not the description that covers less");
        assert_eq!(words(&found[0])[4..], [("b", 640_008, 320_000)]);
        assert_eq!(words(&found[1]), [("rho", 0, 160_000), ("e", 160_000, 240_000)]);
    }
}

#[test]
fn of_structs() {
    for options in [
        &["gcc", "-g", "-O0"][..],
        &["gcc", "-g", "-O2", "-gdwarf-4"],
        &["gcc", "-g", "-O1", "-gz", "-flto"],
        &["clang", "-g", "-O0"],
    ] {
        let Some(found) = members(&options.join(""), C, options, &["grid", "boxed", "hidden"]) else { continue };
        let inner = 80;
        let u = 160_000;
        let expected = [
            ("head", 0, 80),
            ("in.u", inner, u),
            ("in.flag", inner + u, 1),
            ("in.v", inner + u + 8, u),
            ("pairs", inner + 2 * u + 8, 400_000),
        ];
        assert_eq!(words(&found[0])[..5], expected, "{options:?}");
        let rest: Vec<&str> = found[0][5..].iter().map(|m| m.name.as_str()).collect();
        assert_eq!(rest, ["one", "next", "tail"], "{options:?}");
        assert_eq!(words(&found[1]), [("w", 0, 800_000), ("more", 800_000, 72_000)], "{options:?}");
        assert_eq!(words(&found[2]), [("u", 0, u), ("flag", u, 1), ("v", u + 8, u)], "{options:?}");
    }
}

#[test]
fn of_classes_with_their_bases() {
    for compiler in ["g++", "clang++"] {
        let Some(found) = members(compiler, CPP, &[compiler, "-g", "-O1"], &["_ZN2ns1gE"]) else { continue };
        let names = found[0].iter().map(|m| (m.name.as_str(), m.size));
        // Not all compilers describe the pointer to the table of virtual functions.
        let names: Vec<(&str, u64)> = names.filter(|(name, _)| !name.starts_with("_vptr")).collect();
        let expected = [("field", 160_000), ("x", 240_000), ("y", 240_000), ("meta", 4), ("secret", 160_000)];
        assert_eq!(names, expected, "{compiler}");
    }
}

#[test]
fn of_rust_statics() {
    let Some(found) = members("rust", RUST, &["rustc", "-g", "-O", "-A", "warnings"], &["GRID"]) else { return };
    let mut names: Vec<(&str, u64)> = found[0].iter().map(|m| (m.name.as_str(), m.size)).collect();
    names.sort_unstable();
    assert_eq!(names, [("a", 400_000), ("b", 400_000), ("n", 8)]);
}

#[test]
fn overlapping_and_impossible_members_are_left_out() {
    let member = |name: &str, offset, size| Member { name: name.into(), offset, size };
    let found = vec![
        member("small", 10, 5),
        member("large", 0, 100),
        member("next", 100, 20),
        member("outside", 110, u64::MAX - 50),
        member("beyond", 118, 3),
        member("none", 50, 0),
    ];
    let description = Description::new(found, 120);
    assert_eq!(words(&description.members), [("large", 0, 100), ("next", 100, 20)]);
    assert_eq!(description.covered, 120);
}

/// Whatever stands in the debug information, it is read or refused, soon.
#[test]
fn damaged_debug_information_is_read_to_an_end() {
    use object::{Object, ObjectSection};
    let dir = std::env::temp_dir().join(format!("numamma-members-{}-damaged", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (source, program) = (dir.join("t.cc"), dir.join("app"));
    std::fs::write(&source, CPP).unwrap();
    let compiled = Command::new("g++").args(["-g", "-o"]).arg(&program).arg(&source).status();
    if !compiled.is_ok_and(|s| s.success()) {
        return;
    }
    let whole = std::fs::read(&program).unwrap();
    let ranges: Vec<(u64, u64)> = {
        let parsed = object::File::parse(&*whole).unwrap();
        [".debug_info", ".debug_abbrev"]
            .iter()
            .map(|n| parsed.section_by_name(n).unwrap().file_range().unwrap())
            .collect()
    };
    let variables: Vec<Variable> = {
        let mut file = ModuleFile::new(ElfFile::open(&program, "app").unwrap());
        file.globals().objects.iter().filter(|o| o.size > PART_LEAST).map(|o| (o.vaddr, o.size)).collect()
    };
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    for round in 0..300 {
        let mut bytes = whole.clone();
        for _ in 0..1 + round % 20 {
            let (at, len) = ranges[next(2) as usize];
            // Single bits, small numbers such as tags and forms, and copies of what stands elsewhere.
            let (to, from) = (at + next(len), at + next(len));
            bytes[to as usize] = match next(3) {
                0 => bytes[to as usize] ^ 1 << next(8),
                1 => next(64) as u8,
                _ => bytes[from as usize],
            };
        }
        let damaged = dir.join(format!("app{round}"));
        std::fs::write(&damaged, bytes).unwrap();
        let mut file = ModuleFile::new(ElfFile::open(&damaged, "app").unwrap());
        for (list, (_, size)) in find(&mut file, &variables).iter().zip(&variables) {
            assert!(list.iter().all(|m| m.offset + m.size <= *size), "{list:?}");
        }
        std::fs::remove_file(&damaged).unwrap();
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn members_of_an_array_of_structs_have_its_index() {
    let source = "struct counter { long hits, misses; } counters[3]; struct counter table[2][2]; \
                  int main(int n, char **v) { counters[n].hits++; return (int)table[n][0].misses; }";
    let dir = std::env::temp_dir().join(format!("numamma-members-{}-items", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (file, program) = (dir.join("t.c"), dir.join("app"));
    std::fs::write(&file, source).unwrap();
    let compiled = Command::new("gcc").args(["-g", "-o"]).arg(&program).arg(&file).status();
    if compiled.is_ok_and(|status| status.success()) {
        let mut file = ModuleFile::new(ElfFile::open(&program, "app").unwrap());
        let place = |file: &mut ModuleFile, name: &str| {
            file.globals().objects.iter().find(|o| o.name == name).map(|o| (o.vaddr, o.size)).unwrap()
        };
        let counters = place(&mut file, "counters");
        let found = find_with_items(&mut file, counters);
        let names: Vec<&str> = found.iter().map(|m| m.name.as_str()).collect();
        assert_eq!(names, ["[0].hits", "[0].misses", "[1].hits", "[1].misses", "[2].hits", "[2].misses"]);
        assert_eq!((found[3].offset, found[3].size), (24, 8));
        assert!(find(&mut file, &[counters])[0].is_empty(), "parts of objects are not divided so far");
        let table = place(&mut file, "table");
        assert!(find_with_items(&mut file, table).is_empty(), "the index of two dimensions is not known");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
