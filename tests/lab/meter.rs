//! The meter itself, on scenes whose traffic is known line by line (`meter/truth.c`). One boot.

use crate::common::lab::Lab;
use crate::common::meter::{Metered, named, printed};
use crate::common::{Scratch, compile, source};

const NODES: usize = 4;
const KIB: u64 = 1024;
const LINE: u64 = 64;
/// What a small program accesses besides its objects (loader, libraries, stacks), in lines; most are read once.
const REST: u64 = 4000;
/// The meter's own defaults (`struct model` of meter.h): a CPU's memory bandwidth in bytes a ns, and ns of an access at
/// distance 10.
const CPU_BANDWIDTH: f64 = 6.4;

fn close(what: &str, got: f64, truth: f64, error: f64) {
    assert!((got / truth - 1.0).abs() <= error, "{what}: {got}, truth {truth}");
}

#[test]
fn known_traffic_is_metered_line_by_line() {
    let dir = Scratch::new("lab-meter");
    let out = dir.join("counts.json");
    let Some(lab) = Lab::metered(NODES as u64, 2, &out) else { return };
    let flags = ["-O2", "-g", "-pthread", "-fno-optimize-sibling-calls"];
    let program = compile("cc", "lab/meter/truth.c", dir.join("truth"), &flags);
    let lab = lab.options(&["--memory-per-node", "128", "--meter-options", "l2=64K,llc=64K,llc-ways=16"]);
    let text = lab.add(program).add(source("lab/meter/truth.sh")).run(&["./truth.sh"]).success().stdout;
    let runs = Metered::read(&out);
    assert!(runs.iter().all(|r| r.complete), "{text}");
    let scene = |name: &str| text.split("=== ").find_map(|s| s.strip_prefix(name)).expect("a scene").to_owned();
    check_matrix(named(&runs, "matrix"));
    check_resident(named(&runs, "resident"), &scene("resident\n"));
    ["window", "during"].iter().for_each(|name| check_window(named(&runs, name)));
    check_objects(named(&runs, "objects"), &scene("objects\n"));
    check_ping(named(&runs, "ping"), &scene("ping\n"));
    check_clock(&runs);
    assert!(text.contains("=== status 7\n"), "the command's own exit status: {text}");
    let only = named(&runs, "only").all().lines;
    // `window` in full: 2 MiB stored to, 512 KiB loaded, 2 MiB stored to.
    close("lines of the one program asked for", only as f64, (4608 * KIB / LINE) as f64, 0.05);
}

/// Each cell has a size of its own. Only the cells of the diagonal and those of the nodes where libraries happen to lie
/// can have more than the program's own lines.
fn check_matrix(run: &Metered) {
    let lines = run.lines();
    for (j, (all, stores)) in lines.iter().zip(&run.by_stores).enumerate() {
        for k in 0..NODES {
            let once = (4 * j + k + 4) as u64 * 64 * KIB / LINE;
            assert!((once..once + REST / 10).contains(&stores[k]), "stores {j} -> {k}: {} of {once}", stores[k]);
            assert!((3 * once..3 * once + REST).contains(&all[k]), "lines {j} -> {k}: {} of {}", all[k], 3 * once);
        }
    }
    let sum: u64 = lines.iter().flatten().sum();
    let truth = 3 * (4..20).sum::<u64>() * 64 * KIB / LINE;
    assert!((truth..truth + REST).contains(&sum), "{sum} lines, truth {truth}");
}

/// What stays in a cache is fetched once.
fn check_resident(run: &Metered, said: &str) {
    for (name, bytes, times) in [("small", 16 * KIB, 500), ("large", 96 * KIB, 100)] {
        let sum = run.range(printed(said, name));
        assert_eq!(sum.accesses, bytes / LINE * times, "{name}: {sum:?}");
        assert!((bytes / LINE..=bytes / LINE * 11 / 10).contains(&sum.lines), "{name}: {sum:?}");
    }
}

/// From the first instruction of one function to the first of another, and nothing else.
fn check_window(run: &Metered) {
    let lines = run.lines();
    let truth = 512 * KIB / LINE;
    assert!((truth..truth + 50).contains(&lines[0][2]), "{lines:?}");
    assert!(lines.iter().flatten().sum::<u64>() < truth + 100, "{lines:?}");
}

/// By object, with another process at work beside it.
fn check_objects(run: &Metered, said: &str) {
    let truth = 3072 * KIB / LINE;
    for (name, times) in [("often", 3), ("once", 1)] {
        let sum = run.range(printed(said, name));
        assert_eq!(sum.accesses, truth * times, "{name}");
        close(name, sum.lines as f64, (truth * times) as f64, 0.001);
        close(name, sum.local_share(), 1.0 / 3.0, 0.002);
        close(name, sum.busiest(), 2.0 / 3.0, 0.002);
        assert_eq!(sum.best_local_share(), 1.0, "one CPU alone: every page could be local");
    }
    let all: u64 = run.lines().iter().flatten().sum();
    assert!(all < 4 * truth + REST, "the other process was counted: {all}");
}

/// A line that two nodes store to in turn goes from cache to cache, not from memory.
fn check_ping(run: &Metered, said: &str) {
    const TURNS: u64 = 400;
    let crossed = run.forwarded[0][3].min(run.forwarded[3][0]);
    assert!((TURNS / 2..=TURNS + TURNS / 10).contains(&crossed), "{:?}", run.forwarded);
    // Node 1 has the line; what an unmapped file had at this address before was elsewhere.
    let line = run.range(printed(said, "line"));
    assert!((1..TURNS / 10).contains(&line.at[1]), "{line:?}");
}

/// Times that follow from the program, the distances and the modelled machine. In which order the emulator runs the
/// CPUs, and when the guest's scheduler interrupts them, depends on the host: 17 % more were seen on a loaded one,
/// and once 27 %.
fn check_clock(runs: &[Metered]) {
    const ORDER: f64 = 0.35;
    let time = |name: &str| named(runs, name).time_ns;
    // 16 rounds: a thread's own work is 2 of 10 units and 14 of one; with a barrier, each round takes 10.
    close("rounds that wait for the slowest", time("turns") / time("alone"), 160.0 / 34.0, ORDER);
    let bytes = (8 * 4 * 2048 * KIB) as f64;
    close("eight CPUs at one controller", time("queue"), bytes / (2.0 * CPU_BANDWIDTH), ORDER);
    // 90 ns over 10 lines in flight are a little less than the bandwidth.
    close("eight CPUs at four controllers", time("own"), bytes / (8.0 * CPU_BANDWIDTH), ORDER);
    // Distance 20 against 10; the difference is the loop's own instructions. One CPU alone.
    close("pointers followed far and near", time("far") / time("near"), 2.0, 0.06);
}
