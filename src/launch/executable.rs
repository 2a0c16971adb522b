//! What the file of a program says before the program is started.
//!
//! A library cannot be preloaded into every program. [`check`] finds out into which it can, so that a run without
//! placement never goes unnoticed. Static programs are reported, not refused: `profile` works without the library.
//! Everything the kernel or the loader would refuse is refused here with the reason.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use numamma_kernel::terminal::shell_word;
use object::elf;
use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol};

use super::exit::Failure;

/// Interpreters of interpreters that the kernel follows (BINPRM_MAX_RECURSION in fs/exec.c).
const MAX_INTERPRETERS: usize = 5;
/// Bytes of a `#!` line the kernel reads (BINPRM_BUF_SIZE).
const SHEBANG_BYTES: usize = 256;
/// What the names of AddressSanitizer's shared runtimes begin with (gcc; clang's is linked statically by default).
const ASAN_RUNTIME: &[u8] = b"libasan.so";
/// What the file names of glibc's loaders begin with: ld-linux-x86-64.so.2, which up to glibc 2.33 is a link to ld-2.33.so.
const GLIBC_LOADERS: [&str; 2] = ["ld-linux", "ld-2."];

/// A program that can be executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executable {
    /// What execve will be given.
    pub path: PathBuf,
    /// The ELF file that will run: `path`, or a script's interpreter.
    pub elf: PathBuf,
    /// Hex GNU build-id of `elf`.
    pub build_id: Option<String>,
    /// True when `elf` has no loader, so that nothing can be preloaded.
    pub is_static: bool,
    /// Its loader.
    pub loader: Option<PathBuf>,
    /// True when `elf` is linked to AddressSanitizer's shared runtime, which wants to be loaded first.
    pub needs_asan: bool,
    /// Whether its accesses call hooks.
    pub hooks: Hooks,
}

/// Whether the code of a program calls hooks before its accesses (`-fsanitize=thread`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hooks {
    /// It does not.
    No,
    /// Those of a library, such as ours.
    OfLibrary,
    /// Those of ThreadSanitizer, which is part of the program.
    Own,
}

/// Checks `program`, a path or a name to be found in PATH.
pub fn check(program: &OsStr) -> Result<Executable, Failure> {
    let path = resolve(program)?;
    check_file(&path)?;
    let elf = follow_interpreters(&path)?;
    inspect(path, elf)
}

fn resolve(program: &OsStr) -> Result<PathBuf, Failure> {
    let not_found = |message: String| Err(Failure::not_found(message));
    if program.is_empty() {
        return not_found("the program's name is empty".to_owned());
    }
    if program.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(program));
    }
    let mut refused = None;
    for dir in std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()) {
        let candidate = if dir.as_os_str().is_empty() { Path::new(".").join(program) } else { dir.join(program) };
        if candidate.is_file() {
            if executable(&candidate) {
                return Ok(candidate);
            }
            refused.get_or_insert(candidate);
        }
    }
    match refused {
        Some(path) => Ok(path),
        None => {
            let name = program.to_string_lossy();
            let advice = mistyped(&name).unwrap_or_else(|| format!("for a program of this directory write ./{name}"));
            not_found(format!("{name}: not found in PATH; {advice}"))
        }
    }
}

/// What to type instead of a name of no program that a shell would have taken for more than that: a variable with its
/// value, or a program with arguments in one pair of quotes.
fn mistyped(name: &str) -> Option<String> {
    let is_variable = |variable: &str| {
        let is_word = variable.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        is_word && variable.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
    };
    if name.split_once('=').is_some_and(|(variable, _)| is_variable(variable)) {
        return Some(format!("variables are set before numamma, or by env: env {} PROGRAM", shell_word(name)));
    }
    let (program, _) = name.split_once(' ')?;
    let is_program = resolve(OsStr::new(program)).is_ok_and(|path| path.is_file());
    is_program.then(|| format!("the program and its arguments are words of their own: -- {name}"))
}

/// Exists, is a file, may be executed, and the loader will honour LD_PRELOAD for it.
fn check_file(path: &Path) -> Result<(), Failure> {
    let show = path.display();
    let meta = fs::metadata(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {
            let advice = mistyped(&path.to_string_lossy()).unwrap_or_else(|| "check the path".to_owned());
            Failure::not_found(format!("{show}: no such file; {advice}"))
        }
        _ => Failure::cannot_execute(format!("{show}: {e}")),
    })?;
    if meta.is_dir() {
        return Err(Failure::cannot_execute(format!("{show} is a directory, not a program")));
    }
    if !meta.is_file() {
        return Err(Failure::cannot_execute(format!("{show} is not a regular file")));
    }
    if !executable(path) {
        let word = shell_word(&show.to_string());
        return Err(Failure::cannot_execute(format!("{show} is not executable; try chmod +x {word}")));
    }
    privileges(path, &meta)
}

fn privileges(path: &Path, meta: &fs::Metadata) -> Result<(), Failure> {
    let kind = match meta.permissions().mode() & 0o6000 {
        0 if has_file_capabilities(path) => "has file capabilities",
        0 => return Ok(()),
        mode if mode & 0o4000 != 0 => "is setuid",
        _ => "is setgid",
    };
    Err(Failure::cannot_execute(format!(
        "{} {kind}: the loader ignores LD_PRELOAD for privileged programs; run an unprivileged copy (cp {} /tmp) \
         instead (file owner {})",
        path.display(),
        shell_word(&path.to_string_lossy()),
        meta.uid()
    )))
}

fn executable(path: &Path) -> bool {
    let Ok(c_path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: `c_path` is a NUL-terminated string that outlives the call; access only reads it.
    unsafe { libc::access(c_path.as_ptr(), libc::X_OK) == 0 }
}

fn has_file_capabilities(path: &Path) -> bool {
    let Ok(c_path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    let name = c"security.capability";
    // SAFETY: both strings are NUL-terminated and outlive the call; a null buffer of size 0 only asks the length.
    unsafe { libc::getxattr(c_path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

fn follow_interpreters(path: &Path) -> Result<PathBuf, Failure> {
    let mut current = path.to_owned();
    for _ in 0..MAX_INTERPRETERS {
        let mut head = Vec::with_capacity(SHEBANG_BYTES);
        File::open(&current).and_then(|f| f.take(SHEBANG_BYTES as u64).read_to_end(&mut head)).map_err(|e| {
            Failure::cannot_execute(format!("{}: cannot read it to check what it is: {e}", current.display()))
        })?;
        if head.starts_with(b"\x7fELF") {
            return Ok(current);
        }
        let Some(interpreter) = shebang(&head) else {
            return Err(Failure::cannot_execute(format!(
                "{}: neither an ELF program nor a script with a #! line, so the kernel cannot execute it; add \
                 #!/bin/sh as its first line or run it as: sh {}",
                current.display(),
                shell_word(&current.to_string_lossy())
            )));
        };
        check_file(&interpreter).map_err(|e| {
            Failure::cannot_execute(format!("{}: its interpreter cannot be used: {}", current.display(), e.message))
        })?;
        current = interpreter;
    }
    Err(Failure::cannot_execute(format!("{}: more than {MAX_INTERPRETERS} interpreters in a row", path.display())))
}

fn shebang(head: &[u8]) -> Option<PathBuf> {
    let line = head.strip_prefix(b"#!")?;
    let line = line.split(|&b| b == b'\n').next()?;
    let word = line.split(|&b| b == b' ' || b == b'\t').find(|w| !w.is_empty())?;
    Some(PathBuf::from(OsString::from_vec(word.to_vec())))
}

fn inspect(path: PathBuf, elf: PathBuf) -> Result<Executable, Failure> {
    let show = elf.display().to_string();
    let image = image(&elf, &show)?;
    if let Some(loader) = &image.loader {
        check_loader(&show, loader)?;
    }
    let Image { loader, build_id, needs_asan, hooks } = image;
    Ok(Executable { path, build_id, is_static: loader.is_none(), loader, needs_asan, hooks, elf })
}

/// What an ELF program says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Its loader; none of a static program.
    pub loader: Option<PathBuf>,
    /// Hex GNU build-id.
    pub build_id: Option<String>,
    /// See [`Executable::needs_asan`].
    pub needs_asan: bool,
    /// See [`Executable::hooks`].
    pub hooks: Hooks,
}

/// Reads the program in the file `elf`, which messages call `show`.
///
/// # Errors
/// Why it is no program of this machine.
pub fn image(elf: &Path, show: &str) -> Result<Image, Failure> {
    let broken = |what: &str| Failure::cannot_execute(format!("{show}: {what}; is the file complete?"));
    let file = File::open(elf).map_err(|e| Failure::cannot_execute(format!("{show}: cannot open it: {e}")))?;
    // SAFETY: the mapping is private and read-only; a program file that is truncated meanwhile could fault, as in every
    // ELF reader.
    let data = unsafe { memmap2::Mmap::map(&file) }
        .map_err(|e| Failure::cannot_execute(format!("{show}: cannot map it: {e}")))?;
    // The class, the byte order and the machine are where the ELF specification puts them in files of every class.
    let class = data.get(4).copied();
    if class != Some(elf::ELFCLASS64.0) && class != Some(elf::ELFCLASS32.0) {
        return Err(broken("its ELF header cannot be read"));
    }
    if class != Some(elf::ELFCLASS64.0) {
        return Err(Failure::cannot_execute(format!(
            "{show} is a 32-bit program; this build of numamma runs 64-bit x86_64 programs"
        )));
    }
    let machine = data.get(18..20).map_or(0, |m| u16::from_le_bytes([m[0], m[1]]));
    if data.get(5) != Some(&elf::ELFDATA2LSB.0) || machine != elf::EM_X86_64.0 {
        return Err(Failure::cannot_execute(format!(
            "{show} is for another architecture (ELF machine {machine}); this build of numamma runs x86_64 programs"
        )));
    }
    let parsed = ElfFile64::<Endianness>::parse(&*data).map_err(|_| broken("its ELF header cannot be read"))?;
    let kind = parsed.elf_header().e_type(parsed.endian());
    if kind != elf::ET_EXEC && kind != elf::ET_DYN {
        return Err(Failure::cannot_execute(format!("{show} is an ELF file but not a program; link it first")));
    }
    let loader = parsed
        .elf_program_headers()
        .iter()
        .find_map(|h| h.interpreter(parsed.endian(), &*data).ok().flatten())
        .map(|name| PathBuf::from(OsStr::from_bytes(name)));
    let build_id = parsed.build_id().ok().flatten().map(hex);
    let needs_asan = needed(&parsed, &data).iter().any(|name| name.starts_with(ASAN_RUNTIME));
    Ok(Image { loader, build_id, needs_asan, hooks: hooks(&parsed) })
}

/// Constructors of all code that calls hooks call this function.
const HOOKED: &[u8] = b"__tsan_init";

fn hooks(parsed: &ElfFile64<'_, Endianness>) -> Hooks {
    let symbol = parsed.dynamic_symbols().find(|symbol| symbol.name_bytes() == Ok(HOOKED));
    match symbol {
        None => Hooks::No,
        Some(symbol) if symbol.is_undefined() => Hooks::OfLibrary,
        Some(_) => Hooks::Own,
    }
}

/// Names of the libraries a program is linked to; none when its dynamic section cannot be read.
fn needed<'d>(parsed: &ElfFile64<'d, Endianness>, data: &'d [u8]) -> Vec<&'d [u8]> {
    let endian = parsed.endian();
    let sections = parsed.elf_section_table();
    let Ok(Some((entries, link))) = sections.dynamic(endian, data) else { return Vec::new() };
    let Ok(strings) = sections.strings(endian, data, link) else { return Vec::new() };
    let names = entries.iter().filter(|e| e.tag(endian) == elf::DT_NEEDED);
    names.filter_map(|e| e.string(endian, strings).ok()).collect()
}

fn check_loader(show: &str, loader: &Path) -> Result<(), Failure> {
    let name = loader.file_name().unwrap_or_default().to_string_lossy();
    if !GLIBC_LOADERS.iter().any(|begin| name.starts_with(begin)) {
        return Err(Failure::cannot_execute(format!(
            "{show} is loaded by {}, not by glibc's loader, and cannot take a library made for glibc; build it \
             against glibc",
            loader.display()
        )));
    }
    if !loader.exists() {
        return Err(Failure::cannot_execute(format!(
            "{show} needs the loader {}, which does not exist here",
            loader.display()
        )));
    }
    Ok(())
}

/// Bytes as lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::exit::{EXIT_CANNOT_EXECUTE, EXIT_NOT_FOUND, Ended};

    #[test]
    fn the_interpreter_of_a_script() {
        assert_eq!(shebang(b"#! /usr/bin/env python3\nx"), Some("/usr/bin/env".into()));
        assert_eq!(shebang(b"#!\n"), None);
        assert_eq!(shebang(b"echo hello\n"), None);
    }

    #[test]
    fn this_test_is_a_dynamic_program() {
        let t = check(std::env::current_exe().unwrap().as_os_str()).unwrap();
        assert!(!t.is_static);
        assert_eq!(t.elf, t.path);
    }

    #[test]
    fn refusals_have_the_shells_status() {
        assert_eq!(check(OsStr::new("/nonexistent/x")).unwrap_err().end, Ended::with(EXIT_NOT_FOUND));
        assert_eq!(check(OsStr::new("numamma-no-such-program")).unwrap_err().end, Ended::with(EXIT_NOT_FOUND));
        assert_eq!(check(OsStr::new("/tmp")).unwrap_err().end, Ended::with(EXIT_CANNOT_EXECUTE));
        assert_eq!(check(OsStr::new("/etc/passwd")).unwrap_err().end, Ended::with(EXIT_CANNOT_EXECUTE));
    }
}
