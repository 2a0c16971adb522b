//! The profiles, or the policy and the program, that a command line names.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use numamma_kernel::terminal::shell_word;

use super::progress;
use crate::detect;
use crate::launch::exit::{EXIT_FAILURE, Failure, say};
use crate::launch::placed::{self, Prepared};
use crate::merge::{self, LeftOut, Many};
use crate::profile::file::FileError;
use crate::profile::summary::Summary;

/// Name of a profile when none is given, as `numamma profile` writes it.
const DEFAULT_PROFILE: &str = "numamma.prof";
/// Longest words for profiles in a command that is suggested.
const LONGEST_WORDS: usize = 80;

/// The profiles to read.
#[derive(Debug, Clone, clap::Args)]
pub struct Profiles {
    /// Profiles to read, or directories of *.prof: several runs of one program, or the ranks of an MPI job, count
    /// as one
    #[arg(value_name = "PROF", default_value = DEFAULT_PROFILE)]
    profiles: Vec<PathBuf>,
}

/// Profiles that were read, and the exit status that says whether all were.
pub struct Loaded {
    /// The profiles.
    pub many: Many,
    /// 0, or [`EXIT_FAILURE`] when some were left out.
    pub status: u8,
}

impl Default for Profiles {
    fn default() -> Profiles {
        Profiles::of(Path::new(DEFAULT_PROFILE))
    }
}

impl Profiles {
    /// One profile.
    pub fn of(path: &Path) -> Profiles {
        Profiles { profiles: vec![path.to_owned()] }
    }

    /// Several profiles that count as one.
    pub fn all(paths: &[PathBuf]) -> Profiles {
        Profiles { profiles: paths.to_vec() }
    }

    /// Reads them with their objects undivided, for parts that are found in the samples differ from run to run. What is
    /// left out is said, and makes the exit status [`EXIT_FAILURE`] instead of 0.
    ///
    /// # Errors
    /// Why nothing can be read.
    pub fn load_undivided(&self) -> Result<(Many, u8), String> {
        let loaded = progress::while_reading(&self.profiles, || merge::load(&self.profiles));
        let many = loaded.map_err(|mut why| {
            let last = why.pop().map_or_else(|| "no profile was named".to_owned(), |last| last.why);
            why.iter().for_each(say);
            self.only().and_then(of_ranks).unwrap_or(last)
        })?;
        many.left_out.iter().for_each(say);
        let status = if many.left_out.is_empty() { 0 } else { EXIT_FAILURE };
        Ok((many, status))
    }

    /// Reads them, finds the parts of their objects and prints their notes unless `quiet`. What is left out is always
    /// said.
    ///
    /// # Errors
    /// Why nothing can be read.
    pub fn load(&self, quiet: bool) -> Result<Loaded, String> {
        let (mut many, status) = self.load_undivided()?;
        many.groups.iter_mut().map(|group| &mut group.summary).chain([&mut many.whole]).for_each(divide);
        if !quiet {
            many.whole.notes.iter().for_each(say);
        }
        Ok(Loaded { many, status })
    }

    /// Calls `each` with every profile by itself, with the parts of its objects. What is left out is said, and makes
    /// the exit status [`EXIT_FAILURE`] instead of 0; so are the notes of one that is alone.
    ///
    /// # Errors
    /// Why nothing can be read, and those of `each`.
    pub fn each(&self, mut each: impl FnMut(&Path, &Summary) -> Result<(), String>) -> Result<u8, String> {
        let (files, mut left_out) = merge::listed(&self.profiles);
        let mut read = 0;
        for file in &files {
            match load(file, files.len() > 1) {
                Ok(summary) => {
                    each(file, &summary)?;
                    read += 1;
                }
                Err(why) => left_out.push(LeftOut { why }),
            }
        }
        if read == 0 {
            let last = left_out.pop().map_or_else(|| "no profile was named".to_owned(), |last| last.why);
            left_out.iter().for_each(say);
            return Err(last);
        }
        left_out.iter().for_each(say);
        Ok(if left_out.is_empty() { 0 } else { EXIT_FAILURE })
    }

    /// The profile, if one name was given and it is no directory.
    pub fn only(&self) -> Option<&Path> {
        match &self.profiles[..] {
            [one] if !one.is_dir() => Some(one),
            _ => None,
        }
    }

    /// What a message calls them: the file, or how many.
    pub fn name(&self) -> String {
        match &self.profiles[..] {
            [one] => one.display().to_string(),
            several => format!("{} profiles", several.len()),
        }
    }

    /// The words that name them in a command; none for the default.
    pub fn words(&self) -> Option<String> {
        if self.profiles.len() == 1 && self.profiles[0].as_os_str() == DEFAULT_PROFILE {
            return None;
        }
        let words: Vec<String> = self.profiles.iter().map(|p| shell_word(&p.to_string_lossy())).collect();
        Some(words.join(" ")).filter(|words| self.profiles.len() == 1 || words.len() <= LONGEST_WORDS).or_else(|| {
            let first = self.profiles.first().map(|p| shell_word(&p.to_string_lossy()));
            first.map(|first| format!("{first} ... (all {})", self.profiles.len()))
        })
    }
}

/// What an advice from several profiles says of them; none for one.
pub fn remark(many: &Many) -> Option<String> {
    let others: Vec<String> = (1..many.groups.len()).map(|group| many.words(group)).collect();
    let differ = if many.unlike {
        "; they use their objects in many different ways, and the advice is for all together".to_owned()
    } else if others.is_empty() {
        "; none uses its objects in another way than the others".to_owned()
    } else if many.ranks().is_some() {
        format!("; otherwise than most do: {}", others.join("; "))
    } else {
        format!(
            "; otherwise than most do: {}. Each object is placed for the runs in which it costs most, which are named \
             if they are others than {}",
            others.join("; "),
            many.words(0)
        )
    };
    let profiles = many.members.len();
    (profiles > 1).then(|| format!("From {profiles} profiles{differ}. `numamma report` says how."))
}

/// Finds the objects that a program takes from one allocation, or from one call site.
fn divide(summary: &mut Summary) {
    detect::divide(summary);
    detect::tell_apart(summary);
}

/// Reads a profile, finds the parts of its objects and prints its notes unless `quiet`. When only profiles of MPI ranks
/// exist, the message names them.
///
/// # Errors
/// Why the profile cannot be read.
pub fn load(path: &Path, quiet: bool) -> Result<Summary, String> {
    let read = || {
        let mut summary = Summary::load(path)?;
        divide(&mut summary);
        Ok::<_, FileError>(summary)
    };
    let summary = progress::while_reading(&[path.to_owned()], read);
    let summary = summary.map_err(|e| of_ranks(path).unwrap_or_else(|| e.to_string()))?;
    if !quiet {
        summary.notes.iter().for_each(say);
    }
    Ok(summary)
}

/// What to do when there is no profile of a name, but one for each MPI rank.
fn of_ranks(path: &Path) -> Option<String> {
    let ending = path.extension()?.to_str()?;
    let rank_0 = path.with_extension(format!("0.{ending}"));
    (!path.exists() && rank_0.exists()).then(|| {
        format!(
            "{}: there is one profile for each MPI rank; name all ({}) or one ({})",
            path.display(),
            path.with_extension(format!("*.{ending}")).display(),
            rank_0.display()
        )
    })
}

/// A program and the policy to run it under.
#[derive(Debug, clap::Args)]
pub struct PlacedProgram {
    /// Policy file, as `numamma advise` writes it
    #[arg(short, long, value_name = "FILE")]
    pub policy: PathBuf,
    /// Program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM [ARGS]")]
    command: Vec<OsString>,
}

impl PlacedProgram {
    /// Checks both and prints the warnings unless `quiet`.
    ///
    /// # Errors
    /// When the policy, the program or the apply library cannot be used.
    pub fn prepare(&self, quiet: bool) -> Result<Prepared, Failure> {
        let prepared = placed::prepare(&self.policy, &self.command)?;
        if !quiet {
            prepared.warning.iter().for_each(say);
        }
        Ok(prepared)
    }
}
