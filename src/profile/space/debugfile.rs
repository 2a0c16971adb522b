//! Finds the separate debug file of a stripped file.

use std::path::{Path, PathBuf};

use numamma_plan::callsite::debug_file::{by_build_id, by_link};
use object::Object;

use super::elf::{ElfFile, hex};

/// The debug file of `file`: by build-id, else by `.gnu_debuglink` in the places where gdb looks. None when the file
/// has its own debug information or none is installed.
pub fn find(file: &ElfFile) -> Option<ElfFile> {
    let object = file.object()?;
    if object.section_by_name(".debug_info").is_some() || object.section_by_name(".zdebug_info").is_some() {
        return None;
    }
    if let Ok(Some(id)) = object.build_id()
        && let Some(found) = with_build_id(id, &file.path)
    {
        return Some(found);
    }
    let (name, crc) = object.gnu_debuglink().ok()??;
    let name = Path::new(std::str::from_utf8(name).ok()?);
    let directory = Path::new(&file.path).parent()?;
    by_link(directory, name).into_iter().find_map(|path| {
        let found = ElfFile::open(&path, &file.path)?;
        (crc32fast::hash(found.data()) == crc).then_some(found)
    })
}

fn with_build_id(id: &[u8], path: &str) -> Option<ElfFile> {
    ElfFile::open(&by_build_id(id)?, path).filter(|f| f.build_id == Some(hex(id)))
}

/// The supplementary file that `dwz` moved shared debug information to, if `object` names one and it is there.
pub fn supplementary(object: &object::File<'_>, beside: &Path) -> Option<PathBuf> {
    let (name, id) = object.gnu_debugaltlink().ok()??;
    let named = beside.parent()?.join(std::str::from_utf8(name).ok()?);
    let by_id = by_build_id(id);
    [Some(named), by_id].into_iter().flatten().find(|p| p.is_file())
}
