//! Threads that wait for a slower one in a loop: their time is no cost of what the loop reads.

use crate::common::{Scratch, alone, libomp, numamma, number, objects, program, run};

/// Least share of the samples that wait: of two threads with one and three quarters of the work the first waits for a
/// third of all CPU time, less where the machine is busy and a thread sleeps soon.
const LEAST: f64 = 0.05;
/// Most of the cost that may be left at the runtime's own data; what threads keep on their stacks while they wait is
/// none.
const MOST_OF_RUNTIME: f64 = 0.05;

#[test]
fn waiting_at_a_barrier_is_no_cost_of_the_runtime() {
    let _alone = alone();
    let dir = Scratch::new("truth-spinning");
    let llvm = libomp().map(|path| ("libomp", Some(path)));
    for (runtime, preloaded) in [("libgomp", None)].into_iter().chain(llvm) {
        let prof = dir.join(format!("{runtime}.prof"));
        let mut command = numamma(&["profile", "-q", "-F", "1000", "-o"]);
        command.arg(&prof).arg("--").arg(program("triangle")).arg("2000");
        command.env("OMP_NUM_THREADS", "2").env("OMP_WAIT_POLICY", "active");
        // LLVM's runtime has libgomp's functions, too.
        preloaded.iter().for_each(|path| _ = command.env("LD_PRELOAD", path));
        run(&mut command).success();
        let report = run(numamma(&["report", "--json", "--all"]).arg(&prof)).success().json();
        let samples = &report["samples"];
        let spinning = number(samples, "spinning") as f64 / number(samples, "total") as f64;
        assert!(spinning > LEAST, "{runtime}: {samples}");
        let own = ["lower", "x", "y"];
        let is_runtime =
            |o: &&serde_json::Value| o["kind"] != "stack" && !own.contains(&o["name"].as_str().unwrap_or_default());
        let cost: f64 = objects(&report).iter().filter(is_runtime).filter_map(|o| o["cost_share"].as_f64()).sum();
        assert!(cost < MOST_OF_RUNTIME, "{runtime}: {cost} of the cost is the runtime's: {report:#}");
        let text = run(numamma(&["report", "--color", "never"]).arg(&prof)).success().stdout;
        assert!(text.contains("spinning ") && text.contains(runtime), "{text}");
    }
}
