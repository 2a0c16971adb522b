//! `numamma advise --static ./app`: a policy from the program's file and the machine alone.

use std::path::Path;

use numamma_kernel::input_file::{self, MOST_MACHINE};
use numamma_plan::policy::Size;

use super::target_options::TargetArgs;
use crate::advise::Target;
use crate::advise::unprofiled::{self, StaticAdvice};
use crate::launch::executable;
use crate::profile::space::static_data::StaticData;
use crate::report::units;
use crate::topology::{Topology, hardware, last_level_cache};

/// The advice for `app`; objects count from `min_size` on, or from the size of the last-level cache.
///
/// # Errors
/// A line for the user: why the program or the target cannot be used.
pub fn advice(app: &Path, target: &TargetArgs, min_size: Option<Size>) -> Result<StaticAdvice, String> {
    let program = program(app)?;
    let here = Topology::this_machine();
    let thp = hardware::Hardware::this().thp;
    let cpus = target.threads.unwrap_or(here.cpu_count() as u32);
    let machine = target.resolve(&here, cpus, &thp)?;
    let (least, source) = threshold(target, &machine, min_size);
    let data = StaticData::read(&program, least)?;
    let mut advice = unprofiled::advise(&data, &machine, target.threads);
    let size = format!("Objects of at least {} count ({source}).", units::bytes(least));
    let found = match data.objects.len() {
        0 => "none".to_owned(),
        n => units::plural(n as u64, "object"),
    };
    advice.remarks.insert(1, format!("{size} {} has {found} of that size; --min-size changes it.", data.program));
    Ok(advice)
}

/// The file to read; programs that could not be run placed are refused with the message of `numamma run`.
fn program(app: &Path) -> Result<std::path::PathBuf, String> {
    // A bare name is a file here and not searched in PATH.
    let path = if app.components().count() == 1 && app.exists() { Path::new(".").join(app) } else { app.to_owned() };
    let found = executable::check(path.as_os_str()).map_err(|e| e.message)?;
    if found.elf != found.path {
        return Err(format!(
            "{} is a script run by {}; name the program whose memory is to be placed",
            found.path.display(),
            found.elf.display()
        ));
    }
    if found.is_static {
        return Err(format!(
            "{} is statically linked: no library can be preloaded, so a policy could not be applied; link it \
             dynamically",
            found.elf.display()
        ));
    }
    Ok(found.elf)
}

/// Bytes from which an object counts, and where the figure comes from.
fn threshold(args: &TargetArgs, machine: &Target, min_size: Option<Size>) -> (u64, String) {
    if let Some(size) = min_size {
        return (size.0, "--min-size".into());
    }
    let described = args.target.as_ref().and_then(|file| input_file::text(file.as_ref(), MOST_MACHINE).ok());
    if let Some(size) = described.and_then(|text| last_level_cache::of_hwloc_xml(&text)) {
        return (size, "the last-level cache of the target".into());
    }
    let elsewhere = args.target.is_some() || args.nodes.is_some() || machine.portable;
    match last_level_cache::of_this_machine() {
        Some(size) if elsewhere => (size, "the last-level cache of this machine, as the target's is not known".into()),
        Some(size) => (size, "the last-level cache".into()),
        None => (last_level_cache::DEFAULT, "a usual last-level cache, as this machine does not show its own".into()),
    }
}
