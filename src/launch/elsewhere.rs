//! Launchers whose programs run elsewhere: as processes of a daemon, or on another machine. No recording of the
//! launcher reaches them, so `numamma profile` has to stand behind it.

use std::ffi::OsStr;
use std::path::Path;

use numamma_kernel::terminal::shell_word;

use super::executable;

/// Names of such launchers: of Slurm, ALPS, LSF and Flux jobs, of containers, of services, of other machines.
const NAMES: [&str; 9] = ["srun", "sbatch", "aprun", "jsrun", "flux", "docker", "systemd-run", "ssh", "rsh"];

/// The command that records what the launcher `argv` starts; none for other commands.
pub fn behind(argv: &[String]) -> Option<String> {
    let name = Path::new(argv.first()?).file_name()?.to_str()?;
    if !NAMES.contains(&name) {
        return None;
    }
    let words: Vec<String> = argv.iter().map(|word| shell_word(word)).collect();
    Some(match program(argv) {
        Some(at) => format!("{} numamma profile -- {}", words[..at].join(" "), words[at..].join(" ")),
        None => format!("{} ... numamma profile -- PROGRAM", words[0]),
    })
}

/// Where the program stands in `argv`: the first executable file that is no value of an option, as far as that shows
/// without knowing the options.
fn program(argv: &[String]) -> Option<usize> {
    (1..argv.len()).find(|&at| {
        let may_be_value = argv[at - 1].starts_with('-') && !argv[at].contains('/') && argv[at - 1] != "--";
        !argv[at].starts_with('-') && !may_be_value && executable::check(OsStr::new(&argv[at])).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(command: &str) -> Option<String> {
        behind(&command.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_command_stands_before_the_program() {
        for (typed, answer) in [
            ("srun -n 2 /bin/true 60", "srun -n 2 numamma profile -- /bin/true 60"),
            ("srun --exclusive /bin/true", "srun --exclusive numamma profile -- /bin/true"),
            ("/usr/bin/srun -J test -n 2 true x", "/usr/bin/srun -J test -n 2 numamma profile -- true x"),
            ("ssh -p 22 host true", "ssh -p 22 host numamma profile -- true"),
            ("docker run image ./no-such-file", "docker ... numamma profile -- PROGRAM"),
            ("srun --exclusive true", "srun ... numamma profile -- PROGRAM"),
        ] {
            assert_eq!(of(typed).as_deref(), Some(answer), "{typed}");
        }
        for other in ["mpirun -n 2 /bin/true", "./srun.sh", "/bin/sh srun", ""] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
