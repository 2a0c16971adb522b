//! The descriptors of a program whose arrays are placed: a file that this library opens while threads of the program
//! run gets the lowest number that is free, which one of them may have closed to put something else in its place. The
//! program is tests/hostile/stress/descriptors.c and says at its top what it does.

use crate::common::{self, Policy, Scratch, placed, run};

#[test]
fn no_descriptor_of_the_program_is_taken_or_closed() {
    let dir = Scratch::new("descriptors");
    let flags = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"];
    let path = common::compile("cc", "hostile/stress/descriptors.c", dir.join("descriptors"), &flags);
    let sites = "function = [\"site\"]\nplace";
    let phases = "[[phase]]\nname = \"later\"\nafter = 0.2\n[[phase]]\nname = \"last\"\nafter = 0.6";
    let moved = format!(
        "{phases}\n[[object]]\n{sites} = {{ policy = \"block\" }}\nphases = {{ later = {{ policy = \"interleave\" }}, \
         last = {{ policy = \"block-cyclic\", block = \"64KiB\" }} }}"
    );
    let rules = |place: &str| {
        let both = ["site", "resize"];
        both.iter().fold(Policy::new(), |all, function| all.rule(&format!("function = [\"{function}\"]"), place))
    };
    let cases = [
        ("interleave", rules("policy = \"interleave\"")),
        ("cyclic", rules("policy = \"block-cyclic\", block = \"64KiB\"")),
        ("bound", rules("policy = \"bind-block\"")),
        ("phases", Policy::new().lines(&moved)),
    ];
    for (name, policy) in cases {
        let policy = policy.write(&dir, &format!("{name}.toml"));
        for how in ["opens", "replaces", "closes", "alone"] {
            let ran = run(placed(&path, &policy).arg(how)).success();
            assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("wrong 0\n", ""), "{name}: {how}");
        }
    }
}
