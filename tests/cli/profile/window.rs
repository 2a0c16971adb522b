//! The part of a run that is sampled: `--delay`, `--duration`.

use numamma::profile::records::*;

use super::harness::*;

const MS: u64 = 1_000_000;

#[test]
fn samples_begin_after_the_delay_and_objects_have_their_names() {
    let dir = scratch("delay");
    let program = compile(&dir, "slices", &[]);
    let out = run(profile(&dir, &["--delay", "600ms"], &[program.to_str().unwrap(), "1.2"])).ended(7);
    assert_eq!(out.stdout, "ready\ndone 1\n");
    let p = Profile::read(&dir.join("t.prof"));
    p.check_sums();
    assert_eq!(p.ending, Some(Ended::Exited(7)));
    let first = p.accesses.first().expect("accesses").time_ns;
    assert!(first >= 600 * MS, "{first}");
    // Allocated and touched during the delay.
    let heap = p.heap(4 << 20);
    assert_eq!(p.functions(heap[0].site.expect("a call site"))[0], "main");
    assert!(p.accesses_to(&heap).count() > 5);
    assert!(p.touched(&p.global("sliced"), Some(0)) + p.touched(&heap, Some(0)) >= 1024, "first touches");
    assert!((0.2..1.5).contains(&p.stats.achieved), "of the time that is sampled: {:?}", p.stats);
    assert!(p.notes.iter().any(|n| n.contains("--delay")), "{:?}", p.notes);
}

#[test]
fn a_duration_ends_the_recording_and_the_program_goes_on() {
    let dir = scratch("duration");
    let program = compile(&dir, "slices", &[]);
    let started = std::time::Instant::now();
    let command = [program.to_str().unwrap(), "3"];
    let out = run(profile(&dir, &["--delay", "300ms", "--duration", "500ms"], &command)).ended(7);
    assert!(started.elapsed().as_secs_f64() > 3.0, "the program is awaited");
    assert_eq!(out.stdout, "ready\ndone 1\n");
    assert!(out.stderr.contains("goes on"), "{}", out.stderr);
    let p = Profile::read(&dir.join("t.prof"));
    p.check_sums();
    assert_eq!((p.ending, p.damage.clone()), (Some(Ended::Runs), None));
    let end = p.stats.duration_ns;
    assert!((800 * MS..3000 * MS).contains(&end), "{:?}", p.stats);
    assert!(p.accesses.iter().all(|a| (300 * MS..=end).contains(&a.time_ns)));
    assert!(p.sites.iter().any(|site| p.functions(site.id).contains(&"main".to_owned())) && p.header().allocations);
}

#[test]
fn a_program_that_ends_before_is_recorded_to_its_end() {
    let dir = scratch("short");
    let program = compile(&dir, "behave", &[]);
    let command = [program.to_str().unwrap(), "spin", "200", "exit", "3"];
    run(profile(&dir, &["--duration", "10m"], &command)).ended(3);
    let p = Profile::read(&dir.join("t.prof"));
    assert_eq!(p.ending, Some(Ended::Exited(3)));
    assert!(p.accesses_to(&p.global("cells")).count() > 20);
    // The delay is longer than the program: everything but samples.
    run(profile(&dir, &["--delay", "10m"], &command)).ended(3);
    let p = Profile::read(&dir.join("t.prof"));
    assert_eq!((p.ending, p.stats.samples), (Some(Ended::Exited(3)), 0));
}

/// After the recording the library in the program only forwards, whatever the program does.
#[test]
fn a_program_allocates_threads_and_forks_on_after_the_recording() {
    let dir = scratch("afterwards");
    let program = compile(&dir, "family", &[]);
    let loops = format!("for i in 1 2 3; do {} deep || s=$?; done; exit $s", program.display());
    let out = run(profile(&dir, &["--follow", "--duration", "20ms"], &["sh", "-c", &loops]));
    assert_eq!(out.code(), Some(7), "{}", out.stderr);
    assert_eq!(Profile::read(&dir.join("t.prof")).ending, Some(Ended::Runs));
}

fn switched(dir: &Scratch, flags: &[&str]) -> String {
    let include = format!("-I{}", crate::common::root().join("include").display());
    compile(dir, "switched", &[&[include.as_str()], flags].concat()).to_str().unwrap().to_owned()
}

fn uses(p: &Profile, name: &str) -> usize {
    p.accesses_to(&p.global(name)).count()
}

#[test]
fn the_program_says_which_part_is_sampled() {
    let dir = scratch("switched");
    // Its own call finds the library from an executable at a fixed address, too.
    for flags in [&[][..], &["-no-pie"]] {
        let program = switched(&dir, flags);
        run(plain(&program).arg("10")).ended(4);
        run(profile(&dir, &["--start-paused"], &[&program, "300"])).ended(4);
        let p = Profile::read(&dir.join("t.prof"));
        p.check_sums();
        assert_eq!((uses(&p, "first"), uses(&p, "third")), (0, 0), "{flags:?}");
        assert!(uses(&p, "second") > 20, "{:?}", p.stats);
        assert!(p.touched(&p.global("first"), Some(0)) >= 127, "first touches are those of the whole run");
        assert!((0.2..1.5).contains(&p.stats.achieved), "{:?}", p.stats);
        assert!(p.notes.iter().any(|n| n.contains("numamma_profile")), "{:?}", p.notes);
        run(profile(&dir, &[], &[&program, "300"])).ended(4);
        let p = Profile::read(&dir.join("t.prof"));
        assert!(uses(&p, "first") > 20 && uses(&p, "second") > 20 && uses(&p, "third") == 0, "{:?}", p.stats);
    }
}

#[test]
fn children_begin_with_the_switch_of_their_parent() {
    let dir = scratch("switched-child");
    let program = switched(&dir, &[]);
    run(profile(&dir, &["--start-paused", "--follow"], &[&program, "400", "fork"])).ended(4);
    let p = Profile::read(&dir.join("t.prof"));
    assert!(uses(&p, "second") > 10 && uses(&p, "fourth") > 10, "{:?}", p.stats);
    assert_eq!((uses(&p, "first"), uses(&p, "third")), (0, 0));
}

#[test]
fn a_run_that_is_never_switched_on_says_so() {
    let dir = scratch("never-on");
    let program = compile(&dir, "behave", &[]);
    let command = [program.to_str().unwrap(), "spin", "200", "exit", "3"];
    let out = run(profile(&dir, &["--start-paused"], &command)).ended(3);
    assert_eq!(Profile::read(&dir.join("t.prof")).stats.samples, 0);
    assert!(out.stderr.contains("numamma_profile(1)"), "{}", out.stderr);
    let fixed = compile(&dir, "behave", &["-static"]);
    let out = run(profile(&dir, &["--start-paused"], &[fixed.to_str().unwrap(), "exit", "3"])).ended(2);
    assert!(out.stderr.contains("statically") && out.stderr.contains("--delay"), "{}", out.stderr);
}
