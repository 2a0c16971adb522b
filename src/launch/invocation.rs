//! A program with its arguments and changes of the environment, and the ways to start it.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use super::signals;

/// A program about to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// The file that execve(2) is given.
    pub path: PathBuf,
    /// Its arguments, `argv[0]` first.
    pub argv: Vec<OsString>,
    /// Variables that are added to this process's environment or replaced in it.
    pub env: Vec<(OsString, OsString)>,
}

impl Invocation {
    /// The same for [`std::process`], to be spawned. The signals of the program are those that this process was started
    /// with; std empties the mask and resets SIGPIPE before that.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        if let Some((name, arguments)) = self.argv.split_first() {
            command.arg0(name).args(arguments);
        }
        command.envs(self.env.iter().map(|(key, value)| (key, value)));
        with_signals_at_start(&mut command);
        command
    }

    /// Replaces this process by the program; returns only the error of a failure.
    ///
    /// Differs from [`CommandExt::exec`], which also empties the signal mask.
    pub fn exec(&self) -> io::Error {
        match self.arguments() {
            Ok(arguments) => io::Error::from_raw_os_error(arguments.exec()),
            Err(e) => e,
        }
    }

    /// The strings of execve(2), made beforehand: nothing may be allocated between fork and exec.
    ///
    /// # Errors
    /// When an argument holds a NUL byte.
    pub(super) fn arguments(&self) -> io::Result<Arguments> {
        let kept = std::env::vars_os().filter(|(key, _)| !self.env.iter().any(|(changed, _)| changed == key));
        let pair = |(mut pair, value): (OsString, OsString)| {
            pair.push("=");
            pair.push(value);
            pair
        };
        let env: Vec<OsString> = kept.chain(self.env.iter().cloned()).map(pair).collect();
        Ok(Arguments {
            file: c_string(self.path.as_os_str())?,
            argv: Strings::new(&self.argv)?,
            env: Strings::new(&env)?,
        })
    }
}

/// Lets a command start with the signals that this process was started with.
pub fn with_signals_at_start(command: &mut Command) {
    let restore = || {
        signals::restore_for_program();
        Ok(())
    };
    // SAFETY: the function is async-signal-safe.
    unsafe { command.pre_exec(restore) };
}

/// What execve(2) is given.
pub(super) struct Arguments {
    file: CString,
    argv: Strings,
    env: Strings,
}

impl Arguments {
    /// Executes the program; returns only the errno of a failure. Async-signal-safe.
    pub(super) fn exec(&self) -> i32 {
        signals::restore_for_program();
        // SAFETY: both arrays end in a null pointer, and the strings they point to live as long as `self`.
        unsafe {
            libc::execve(self.file.as_ptr(), self.argv.pointers.as_ptr(), self.env.pointers.as_ptr());
            *libc::__errno_location()
        }
    }
}

/// Strings with the null-terminated array of pointers to them.
struct Strings {
    pointers: Vec<*const libc::c_char>,
    /// What `pointers` point to; a CString keeps its bytes where they are when it is moved.
    _owned: Vec<CString>,
}

impl Strings {
    fn new(list: &[OsString]) -> io::Result<Strings> {
        let owned = list.iter().map(|s| c_string(s)).collect::<io::Result<Vec<_>>>()?;
        let pointers = owned.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect();
        Ok(Strings { pointers, _owned: owned })
    }
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "an argument holds a NUL byte"))
}
