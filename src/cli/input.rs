//! Reading the profile that a command line names.

use std::path::Path;

use crate::launch::exit::say;
use crate::profile::summary::Summary;

/// Reads a profile and prints its notes unless `quiet`. When only profiles of MPI ranks exist, the message names one.
///
/// # Errors
/// Why the profile cannot be read.
pub fn load(path: &Path, quiet: bool) -> Result<Summary, String> {
    let rank_0 = || Some(path.with_extension(format!("0.{}", path.extension()?.to_str()?))).filter(|p| p.exists());
    let summary = Summary::load(path).map_err(|e| match rank_0().filter(|_| !path.exists()) {
        Some(rank) => {
            format!("{}: there is one profile for each MPI rank; name one: {}", path.display(), rank.display())
        }
        None => e.to_string(),
    })?;
    if !quiet {
        summary.notes.iter().for_each(say);
    }
    Ok(summary)
}
