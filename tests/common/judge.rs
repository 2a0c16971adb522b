//! What is exactly counted of a program compiled for the `trace` sampler, and what it says of a placement.

mod counts;
mod placed;

pub use counts::{Counts, Object, Page};
pub use placed::{Local, local};

use super::{NUMAMMA, Tracing, plain, run};

impl Tracing {
    /// Compiles a program of tests/ for the `trace` sampler; its path.
    pub fn compile_for_counts(&self, compiler: &str, source: &str, name: &str) -> String {
        let flags = ["-fopenmp", "-pthread", "-fno-optimize-sibling-calls"];
        let flags_of = if compiler == "gfortran" { "gfortran" } else { "gcc" };
        let traced = self.compile(flags_of, compiler, source, name, &flags);
        traced.to_str().expect("a name in UTF-8").to_owned()
    }

    /// Records a program with eight OpenMP threads as `prof`, and reads what was recorded.
    pub fn record(&self, prof: &str, options: &[&str], program: &str, arguments: &[&str]) -> Counts {
        let args = [&["profile", "-q", "-o", prof], options, &["--", program], arguments].concat();
        let mut command = plain(NUMAMMA);
        command.args(&args).current_dir(&*self.dir).env("NUMAMMA_LIB", &*self.dir).env("OMP_NUM_THREADS", "8");
        run(command).success();
        self.read(prof)
    }

    /// The accesses of a profile, by object, page and thread.
    pub fn read(&self, prof: &str) -> Counts {
        self.numamma(&["export", "-f", "csv", "-o", &format!("{prof}.tables"), prof]).success();
        Counts::read(&self.dir.join(format!("{prof}.tables")))
    }
}
