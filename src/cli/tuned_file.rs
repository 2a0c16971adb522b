//! What `numamma tune` measured, kept beside the profile, `numamma.prof.tuned`: the correction of the model for this
//! program on this machine, which `advise` and `predict` use.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use numamma_kernel::input_file::{self, MOST_MACHINE};
use serde::{Deserialize, Serialize};

use super::output;
use crate::advise::{Correction, Target};
use crate::launch::exit::say;
use crate::profile::records::Program;

/// The file.
#[derive(Debug, Serialize, Deserialize)]
struct TunedFile {
    /// GNU build-id of the program.
    build_id: Option<String>,
    /// Its arguments, without its name.
    args: Vec<String>,
    correction: Correction,
}

/// The file of a profile.
pub fn path_of(profile: &Path) -> PathBuf {
    let mut name: OsString = profile.as_os_str().to_owned();
    name.push(".tuned");
    name.into()
}

fn args_of(program: &Program) -> &[String] {
    program.argv.get(1..).unwrap_or_default()
}

/// Corrects the target by the file of a profile, if there is one for the same program, arguments and machine, and says
/// so unless `quiet`.
pub fn correct(target: &mut Target, profile: &Path, program: &Program, quiet: bool) {
    let path = path_of(profile);
    let Ok(text) = input_file::text(&path, MOST_MACHINE) else { return };
    let note = match serde_json::from_str::<TunedFile>(&text) {
        Err(e) => format!("{}: not what `numamma tune` writes, so it is not used: {e}", path.display()),
        Ok(file)
            if program.build_id.is_none() || file.build_id != program.build_id || file.args != args_of(program) =>
        {
            return;
        }
        Ok(file) if !file.correction.is_of(target) => return,
        Ok(file) => {
            target.waiting = file.correction.waiting;
            format!("corrected by the times that `numamma tune` measured: {} (remove it to undo)", path.display())
        }
    };
    if !quiet {
        say(note);
    }
}

/// Writes the file of a profile; without a correction, an older one is removed.
///
/// # Errors
/// When it cannot be written.
pub fn keep(correction: Option<&Correction>, profile: &Path, program: &Program) -> Result<(), String> {
    let path = path_of(profile);
    let Some(correction) = correction else {
        let _ = std::fs::remove_file(&path);
        return Ok(());
    };
    let (build_id, args) = (program.build_id.clone(), args_of(program).to_vec());
    output::file(&path, &output::json("the correction", &TunedFile { build_id, args, correction: correction.clone() })?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;

    #[test]
    fn it_is_used_for_the_same_program_arguments_and_machine() {
        let profile = std::env::temp_dir().join(format!("numamma-tuned-{}.prof", std::process::id()));
        let of = |build_id: &str, arg: &str| {
            let argv = vec!["./app".to_owned(), arg.to_owned()];
            Program { path: "/app".into(), argv, build_id: Some(build_id.to_owned()) }
        };
        let target = |nodes| Target::new(Some(nodes), Some(8), &Topology::uniform(1, 2), 8, "never");
        let machine = Correction::machine_of(&target(4));
        let correction = Correction { machine, waiting: 0.5, left: 0.01, runs: 20 };
        let waiting = |program: &Program, nodes| {
            let mut target = target(nodes);
            correct(&mut target, &profile, program, true);
            target.waiting
        };
        let own = of("ab", "9");
        assert_eq!(waiting(&own, 4), 1.0, "no file");
        keep(Some(&correction), &profile, &own).unwrap();
        assert_eq!(waiting(&own, 4), 0.5);
        assert_eq!([waiting(&own, 8), waiting(&of("cd", "9"), 4), waiting(&of("ab", "10"), 4)], [1.0; 3]);
        std::fs::write(path_of(&profile), "{").unwrap();
        assert_eq!(waiting(&own, 4), 1.0, "a broken file");
        keep(None, &profile, &own).unwrap();
        assert!(!path_of(&profile).exists());
    }
}
