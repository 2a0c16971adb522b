//! `numamma trace-flags`: the flags with which a program is compiled for the `trace` sampler.

use std::path::Path;
use std::process::{Command, Stdio};

use numamma_kernel::terminal::shell_word;

use super::output::print;
use crate::launch::exit::{Failure, say};
use crate::launch::library::{self, TRACE_HOOKS};

/// What to type before a build.
pub const COMMAND: &str = "eval \"$(numamma trace-flags gcc)\"";

/// Flags of gcc and gfortran. Without -fno-plt a call goes through a table; hooks of function entry count nothing; a
/// copy of up to 8 KiB whose size is constant would be one instruction instead of a call of memcpy.
const GCC: &str = "-fsanitize=thread -fno-plt --param tsan-instrument-func-entry-exit=0 -mstringop-strategy=libcall";
/// Flags of clang. Accesses to vectors of more than 16 bytes have no hook, and a load before a store to the same place
/// has none by default.
const CLANG: &str = "-fsanitize=thread -fno-plt -fno-vectorize -fno-slp-vectorize -mllvm \
    -tsan-instrument-read-before-write=1 -mllvm -tsan-instrument-func-entry-exit=0";
/// Flags of rustc for the same. The standard library that comes with it is compiled without them, which is not allowed
/// otherwise; these hooks take no part in how functions are called.
const RUSTC: &str = "-Zsanitizer=thread -Zexternal-clangrt -Cunsafe-allow-abi-mismatch=sanitizer -Cno-vectorize-loops \
    -Cno-vectorize-slp -Cllvm-args=-tsan-instrument-read-before-write=1 \
    -Cllvm-args=-tsan-instrument-func-entry-exit=0";
/// What the build has without our flags, where its user sets nothing.
const DEFAULT: &str = "-O2 -g";

/// Print the flags with which a program is compiled for `numamma profile --sampler trace`
///
/// The output is for a shell: eval "$(numamma trace-flags gcc)" and then build from scratch. It sets CFLAGS, CXXFLAGS,
/// FFLAGS, FCFLAGS and LDFLAGS, or RUSTFLAGS, and keeps what they hold.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The compiler: gcc, clang, gfortran or rustc, or the command that a build has for it, such as g++-12, cc or
    /// mpicxx
    #[arg(value_parser = compiler, value_name = "COMPILER")]
    compiler: Compiler,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compiler {
    /// gcc, g++ and gfortran
    Gcc,
    /// clang and clang++
    Clang,
    /// rustc, a nightly one
    Rustc,
}

/// The compiler that a command is. One whose name does not tell (cc, mpicc) is asked for its macros.
fn compiler(command: &str) -> Result<Compiler, String> {
    let name = Path::new(command).file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let is_version = |end: &str| end.starts_with(|c: char| c.is_ascii_digit());
    let name = name.rsplit_once('-').filter(|(_, end)| is_version(end)).map_or(name.as_str(), |(name, _)| name);
    match name.rsplit('-').next().unwrap_or(name) {
        "gcc" | "g++" | "gfortran" => return Ok(Compiler::Gcc),
        "clang" | "clang++" => return Ok(Compiler::Clang),
        "rustc" | "cargo" => return Ok(Compiler::Rustc),
        _ => {}
    }
    let unknown = |why: &str| format!("{why}; name the compiler behind it: gcc, clang, gfortran or rustc");
    let asked = Command::new(command)
        .args(["-dM", "-E", "-x", "c", "/dev/null"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let macros = asked.map_err(|e| unknown(&e.to_string()))?.stdout;
    let macros = String::from_utf8_lossy(&macros);
    match () {
        () if macros.contains("#define __clang__ ") => Ok(Compiler::Clang),
        () if macros.contains("#define __GNUC__ ") => Ok(Compiler::Gcc),
        () => Err(unknown("it is neither gcc nor clang")),
    }
}

/// Runs the command.
///
/// # Errors
/// When the library is not there or stdout cannot be written.
pub fn run(args: Args) -> Result<u8, Failure> {
    let dir = library::find_trace().map_err(Failure::usage)?;
    if args.compiler == Compiler::Rustc {
        say("rustc takes these flags in nightly builds only: cargo +nightly build --release --target \
             x86_64-unknown-linux-gnu; with -Zbuild-std (rustup component add rust-src --toolchain nightly) what the \
             standard library itself accesses counts, too");
    }
    print(&lines(args.compiler, &dir), false)?;
    Ok(0)
}

fn lines(compiler: Compiler, dir: &Path) -> String {
    let word = |path: &Path| shell_word(&path.to_string_lossy()).to_string();
    let (here, hooks) = (word(dir), word(&dir.join(TRACE_HOOKS)));
    let set = |name: &str, default: &str, flags: &str| {
        format!("export {name}=\"${{{name}:-{default}}} \"{}\n", quoted(flags))
    };
    // To the linker alone: behind `-x c -` gcc would compile it.
    let link = format!("-L{here} -Wl,-rpath,{here} -Wl,{hooks}");
    let for_gcc = format!("{GCC}{}", inline(dir));
    let (flags, link) = match compiler {
        Compiler::Gcc => (for_gcc.as_str(), format!("-fsanitize=thread {link}")),
        Compiler::Clang => {
            (CLANG, format!("-fsanitize=thread -fno-sanitize-link-runtime {link} -Wl,--no-as-needed -ltsan"))
        }
        Compiler::Rustc => {
            let link = format!("-Clink-arg=-L{here} -Clink-arg=-Wl,-rpath,{here} -Clink-arg={hooks}");
            return set("RUSTFLAGS", "", &format!("{RUSTC} {link} -Clink-arg=-ltsan"));
        }
    };
    let compile = ["CFLAGS", "CXXFLAGS", "FFLAGS", "FCFLAGS"].map(|name| set(name, DEFAULT, flags)).concat();
    compile + &set("LDFLAGS", "", &link)
}

/// The flag with which gcc takes the assembler of the directory, which puts hooks in the place of their calls. A build
/// takes spaces for separators: the hooks are called then.
fn inline(dir: &Path) -> String {
    let dir = dir.to_string_lossy();
    if dir.contains(char::is_whitespace) { String::new() } else { format!(" -B{}", shell_word(&dir)) }
}

/// Text that a shell takes as it is.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_takes_the_lines() {
        let text = lines(Compiler::Gcc, Path::new("/a/numamma-trace"));
        let script = format!("CFLAGS=-O3\n{text}printf '%s\\n' \"$CFLAGS\" \"$FFLAGS\" \"$LDFLAGS\"");
        let out = Command::new("sh").args(["-c", &script]).env_remove("LDFLAGS").output().unwrap();
        let out = String::from_utf8(out.stdout).unwrap();
        let link = "-fsanitize=thread -L/a/numamma-trace -Wl,-rpath,/a/numamma-trace -Wl,/a/numamma-trace/hooks.o";
        let flags = format!("{GCC} -B/a/numamma-trace");
        assert_eq!(out, format!("-O3 {flags}\n-O2 -g {flags}\n {link}\n"));
    }

    #[test]
    fn a_build_names_its_compiler() {
        for (command, expected) in [
            ("g++", Compiler::Gcc),
            ("/usr/bin/x86_64-linux-gnu-gfortran-12", Compiler::Gcc),
            ("clang++-14", Compiler::Clang),
            ("rustc", Compiler::Rustc),
            ("cc", Compiler::Gcc),
        ] {
            assert_eq!(compiler(command), Ok(expected), "{command}");
        }
        for command in ["true", "no-such-command", "", "-"] {
            assert!(compiler(command).is_err_and(|e| e.ends_with("gcc, clang, gfortran or rustc")), "{command}");
        }
    }

    #[test]
    fn hooks_are_called_where_a_build_cannot_name_the_directory() {
        let flags = |dir: &str| lines(Compiler::Gcc, Path::new(dir)).contains("-B");
        assert!(flags("/a/b") && !flags("/a/b c"));
    }
}
