//! Where the symbols of a stripped file are: separate debug files, in the places where gdb looks.

use std::path::{Path, PathBuf};

/// Root of installed debug files (gdb's default `debug-file-directory`).
const DEBUG_ROOT: &str = "/usr/lib/debug";

/// `/usr/lib/debug/.build-id/xx/yyyy.debug`; none for a build-id of less than two bytes.
pub fn by_build_id(id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = id.split_first().filter(|(_, rest)| !rest.is_empty())?;
    let rest: String = rest.iter().map(|b| format!("{b:02x}")).collect();
    Some(PathBuf::from(format!("{DEBUG_ROOT}/.build-id/{first:02x}/{rest}.debug")))
}

/// Files that a `.gnu_debuglink` of `name` in a module of `directory` may mean, best first.
pub fn by_link(directory: &Path, name: &Path) -> [PathBuf; 3] {
    let below_root = directory.strip_prefix("/").unwrap_or(directory);
    [directory.join(name), directory.join(".debug").join(name), Path::new(DEBUG_ROOT).join(below_root).join(name)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_files_are_looked_for_where_gdb_does() {
        let found = by_link(Path::new("/usr/bin"), Path::new("app.debug"));
        let expected = ["/usr/bin/app.debug", "/usr/bin/.debug/app.debug", "/usr/lib/debug/usr/bin/app.debug"];
        assert_eq!(found, expected.map(PathBuf::from));
        assert_eq!(by_build_id(&[0xab, 0x01, 0xff]), Some("/usr/lib/debug/.build-id/ab/01ff.debug".into()));
        assert_eq!(by_build_id(&[5]), None);
    }
}
