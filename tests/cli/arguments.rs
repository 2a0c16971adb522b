//! Options as they are typed: with their value attached, misspelt, behind the program.

use crate::common::{Scratch, numamma, run, wait};

/// What a command says on standard error; it must end with `code`.
fn says(dir: &Scratch, args: &[&str], code: i32) -> String {
    let ran = run(numamma(args).current_dir(dir)).ended(code);
    assert_eq!(ran.stdout, "", "{args:?}");
    ran.stderr
}

#[test]
fn values_may_be_attached_to_short_options() {
    let dir = Scratch::new("arguments-attached");
    assert!(says(&dir, &["profile", "-F500", "-oattached.prof", "--", "true"], 0).contains("wrote attached.prof"));
    assert!(says(&dir, &["profile", "-qF", "500", "-ox.prof", "true", "-F3", "--help"], 0).is_empty());
    assert!(dir.join("x.prof").exists());
    assert!(says(&dir, &["compare", "-n1", "--", "./none"], 127).contains("./none"));
    assert!(says(&dir, &["run", "-pnone.toml", "--", "true"], 2).contains("none.toml"));
}

#[test]
fn an_unknown_option_is_no_program() {
    let dir = Scratch::new("arguments-unknown");
    let misspelt = says(&dir, &["profile", "--folow", "--", "true"], 2);
    assert!(misspelt.contains("--folow") && misspelt.contains("'--follow'"), "{misspelt}");
    assert!(says(&dir, &["compare", "--polices", "x", "--", "true"], 2).contains("--policies"));
    assert!(says(&dir, &["run", "-X", "-p", "p.toml", "--", "true"], 2).contains("-X"));
    assert!(says(&dir, &["profile", "--", "-x"], 127).contains("./-x"), "behind -- it is one");
}

#[test]
fn all_memory_is_placed_without_a_policy_file() {
    let dir = Scratch::new("arguments-all-memory");
    let maps = |args: &[&str]| {
        let args = [&["run"], args, &["--", "cat", "/proc/self/numa_maps"]].concat();
        run(numamma(&args).current_dir(&dir)).success().stdout
    };
    for (option, policy) in [("--interleave", "interleave:"), ("--interleave=0", "interleave:0")] {
        let maps = maps(&[option]);
        assert!(maps.lines().all(|line| line.contains(policy)), "{option}: {maps}");
    }
    assert!(maps(&["--preferred", "0"]).lines().all(|line| line.contains("prefer")));
    assert!(says(&dir, &["run", "--preferred", "99", "--", "true"], 2).contains("node 99 does not exist"));
    assert!(says(&dir, &["run", "--interleave", "-p", "p.toml", "--", "true"], 2).contains("cannot be used with"));
}

#[test]
fn a_policy_that_is_no_policy_is_answered_with_what_to_write() {
    let dir = Scratch::new("arguments-policies");
    let answer = |text: &str| {
        std::fs::write(dir.join("p.toml"), text).expect("the scratch directory is writable");
        says(&dir, &["run", "-p", "p.toml", "--", "true"], 2)
    };
    assert!(answer("").contains("empty"));
    let rule = "version = 1\n[[object]]\nglobal = \"a\"\n";
    assert!(answer(&format!("{rule}plase = {{ policy = \"bind\" }}\n")).contains("did you mean `place`?"));
    assert!(answer(&format!("{rule}place = {{ policy = \"interlave\" }}\n")).contains("did you mean `interleave`?"));
}

#[test]
fn the_name_of_a_profile_is_not_empty() {
    let dir = Scratch::new("arguments-empty");
    assert!(says(&dir, &["profile", "-o", "", "--", "true"], 2).contains("name of the profile is empty"));
}

#[test]
fn a_help_that_cannot_be_written_is_an_error() {
    for option in ["--help", "--version"] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("the device");
        let mut child = numamma(&[option]);
        let child = child.stdout(full).stderr(std::process::Stdio::piped()).spawn().expect("numamma starts");
        let ran = wait(child).ended(1);
        assert!(ran.stderr.contains("stdout: "), "{}", ran.stderr);
    }
}
