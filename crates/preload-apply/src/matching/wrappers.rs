//! Addresses of the wrappers around the allocator in the loaded modules; [`wrapper`] decides which functions are
//! wrappers.

use numamma_plan::callsite::wrapper;

use crate::matching::call_sites::{Ranges, merged};
use crate::matching::elf::Elf;
use crate::matching::modules::{FileCache, Loaded};

/// Half-open ranges of addresses, as in the file.
pub type FileRanges = Vec<(u64, u64)>;

/// Return addresses in wrappers: disjoint, ascending. The symbols of a file are read once.
pub fn find(known: &mut FileCache<FileRanges>, modules: &[Loaded]) -> Ranges {
    let mut out = Ranges::new();
    for module in modules {
        let own = known.of(module, || in_file(module));
        out.extend(own.iter().map(|&range| module.return_addresses(range)));
    }
    known.keep(modules);
    merged(out)
}

fn in_file(module: &Loaded) -> FileRanges {
    let mut out = FileRanges::new();
    let in_library = wrapper::is_library_module(module.file_name());
    // The allocator's functions are exported: the debug files of runtime libraries would only cost time.
    let elf = if in_library { Elf::open(&module.path) } else { Elf::with_symbols(&module.path) };
    if let Some(elf) = elf {
        elf.functions(|name, symbol| {
            if wrapper::is_passed_linkage(in_library, name) {
                out.push((symbol.address, symbol.address.saturating_add(symbol.size)));
            }
        });
    }
    out
}
