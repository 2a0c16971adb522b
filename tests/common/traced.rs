//! Programs compiled for the `trace` sampler.

use std::path::PathBuf;

use super::{NUMAMMA, Ran, Scratch, compile, plain, preload, root, run};

/// The libraries of this build as they are installed, and a place for programs and profiles.
pub struct Tracing {
    pub dir: Scratch,
}

impl Tracing {
    pub fn new(name: &str) -> Tracing {
        let dir = Scratch::new(&format!("traced-{name}"));
        for kind in ["profile", "apply"] {
            let installed = dir.join(format!("libnumamma-{kind}.so"));
            std::os::unix::fs::symlink(preload(kind), installed).expect("a link in an empty directory");
        }
        let hooks = preload("profile").with_file_name("libnumamma_trace.so");
        run(plain(root().join("scripts/trace-directory")).arg(hooks).arg(dir.join("numamma-trace"))).success();
        Tracing { dir }
    }

    /// `numamma ARGS`, in the directory.
    pub fn numamma(&self, args: &[&str]) -> Ran {
        run(plain(NUMAMMA).current_dir(&*self.dir).env("NUMAMMA_LIB", &*self.dir).args(args))
    }

    /// Compiles `source`, relative to tests/, as `out` with the flags that are printed for `flags_of`.
    pub fn compile(&self, flags_of: &str, compiler: &str, source: &str, out: &str, more: &[&str]) -> PathBuf {
        let flags = self.numamma(&["trace-flags", flags_of]).success();
        let script = format!("{}\nprintf '%s\\n' $CFLAGS $LDFLAGS", flags.stdout);
        let words = run(plain("sh").args(["-c", &script]).env_remove("CFLAGS").env_remove("LDFLAGS")).success();
        let flags: Vec<&str> = words.stdout.lines().chain(more.iter().copied()).collect();
        compile(compiler, source, self.dir.join(out), &flags)
    }
}
