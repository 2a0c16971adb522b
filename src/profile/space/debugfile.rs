//! Finds the separate debug file of a stripped file.

use std::path::{Path, PathBuf};

use object::Object;

use super::elf::{ElfFile, hex};

/// Root of installed debug files (gdb's default `debug-file-directory`).
const DEBUG_ROOT: &str = "/usr/lib/debug";

/// The debug file of `file`: by build-id, else by `.gnu_debuglink` in the places where gdb looks. None when the file
/// has its own debug information or none is installed.
pub fn find(file: &ElfFile) -> Option<ElfFile> {
    let object = file.object()?;
    if object.section_by_name(".debug_info").is_some() || object.section_by_name(".zdebug_info").is_some() {
        return None;
    }
    if let Some(id) = &file.build_id
        && let Some(found) = by_build_id(id, &file.path)
    {
        return Some(found);
    }
    let (name, crc) = object.gnu_debuglink().ok()??;
    let name = Path::new(std::str::from_utf8(name).ok()?);
    let directory = Path::new(&file.path).parent()?;
    link_candidates(directory, name).into_iter().find_map(|path| {
        let found = ElfFile::open(&path, &file.path)?;
        (crc32fast::hash(found.data()) == crc).then_some(found)
    })
}

fn link_candidates(directory: &Path, name: &Path) -> Vec<PathBuf> {
    let below_root = directory.strip_prefix("/").unwrap_or(directory);
    vec![directory.join(name), directory.join(".debug").join(name), Path::new(DEBUG_ROOT).join(below_root).join(name)]
}

fn build_id_path(id: &str) -> Option<PathBuf> {
    let (first, rest) = (id.get(..2)?, id.get(2..)?);
    Some(PathBuf::from(format!("{DEBUG_ROOT}/.build-id/{first}/{rest}.debug")))
}

fn by_build_id(id: &str, path: &str) -> Option<ElfFile> {
    ElfFile::open(&build_id_path(id)?, path).filter(|f| f.build_id.as_deref() == Some(id))
}

/// The supplementary file that `dwz` moved shared debug information to, if `object` names one and it is there.
pub fn supplementary(object: &object::File<'_>, beside: &Path) -> Option<PathBuf> {
    let (name, id) = object.gnu_debugaltlink().ok()??;
    let named = beside.parent()?.join(std::str::from_utf8(name).ok()?);
    let by_id = build_id_path(&hex(id));
    [Some(named), by_id].into_iter().flatten().find(|p| p.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_files_are_looked_for_where_gdb_does() {
        let found = link_candidates(Path::new("/usr/bin"), Path::new("app.debug"));
        let expected = ["/usr/bin/app.debug", "/usr/bin/.debug/app.debug", "/usr/lib/debug/usr/bin/app.debug"];
        assert_eq!(found, expected.map(PathBuf::from));
        assert_eq!(build_id_path("5f1c0a"), Some("/usr/lib/debug/.build-id/5f/1c0a.debug".into()));
        assert_eq!(build_id_path("5"), None);
    }
}
