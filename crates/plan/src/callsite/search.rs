//! The functions that rules name, searched in symbol tables.
//!
//! C functions and Fortran procedures have one linkage name each ([`linkages`]), which a hash table finds. Mangled
//! names must be demangled; [`Search::find`] does that only with those that spell out an identifier of a wanted name.

use std::collections::HashMap;

use rustc_hash::FxHashSet;

use super::demangle::{MAX_LINKAGE, any_identifier};
use super::function::FunctionName;
use super::wrapper;

/// Wanted functions; their indices count from 0 in the order of [`Search::add`].
#[derive(Debug, Default)]
pub struct Search {
    names: Vec<FunctionName>,
    /// Indices of the names with these name spaces and name.
    by_plain: HashMap<String, Vec<usize>>,
    identifiers: FxHashSet<Box<[u8]>>,
    /// A bit for each length of identifiers; the last one for all longer ones.
    lengths: u64,
    /// A name has no identifier: every mangled name is demangled that may be a global operator or of the library.
    without_identifier: bool,
}

/// Linkage names under which a C or Fortran compiler knows the function.
pub fn linkages(name: &FunctionName) -> impl Iterator<Item = String> {
    let plain = (!name.has_parameters()).then(|| name.plain().to_owned());
    plain.into_iter().chain(name.fortran_linkage())
}

impl Search {
    /// Wants `name` and returns its index.
    pub fn add(&mut self, name: FunctionName) -> usize {
        let same = self.by_plain.entry(name.plain().to_owned()).or_default();
        if let Some(&known) = same.iter().find(|&&i| self.names.get(i) == Some(&name)) {
            return known;
        }
        same.push(self.names.len());
        match name.identifier().map(str::as_bytes) {
            Some(identifier) => {
                self.lengths |= 1 << identifier.len().min(63);
                self.identifiers.insert(identifier.into());
            }
            None => self.without_identifier = true,
        }
        self.names.push(name);
        self.names.len() - 1
    }

    /// Wanted names by index.
    pub fn names(&self) -> &[FunctionName] {
        &self.names
    }

    /// Whether a wanted function may be in a runtime library.
    pub fn names_library(&self) -> bool {
        self.without_identifier
            || self.names.iter().any(|name| wrapper::of_plain(name.plain(), name.has_parameters()).is_some())
    }

    /// Calls `visit` with the index of every wanted name that means the function of this mangled linkage name.
    pub fn find(&self, linkage: &[u8], visit: impl FnMut(usize)) {
        if self.may_be_wanted(linkage)
            && let Ok(linkage) = core::str::from_utf8(linkage)
        {
            let function = FunctionName::parse(linkage);
            let same = self.by_plain.get(function.plain()).into_iter().flatten();
            same.copied().filter(|&i| self.names.get(i).is_some_and(|name| name.means(&function))).for_each(visit);
        }
    }

    /// Whether a linkage name is mangled and spells out a wanted identifier, as `<length><identifier>`.
    fn may_be_wanted(&self, linkage: &[u8]) -> bool {
        let Some(encoding) = linkage.strip_prefix(b"_Z").or_else(|| linkage.strip_prefix(b"_R")) else { return false };
        if linkage.len() > MAX_LINKAGE {
            return false;
        }
        // `nwm`: operators; `St..`, `NSt..`, `NKSt..`: the library.
        let name = encoding.iter().find(|b| !b"ZNK".contains(b));
        if self.without_identifier && (name == Some(&b'S') || encoding.first().is_some_and(u8::is_ascii_lowercase)) {
            return true;
        }
        any_identifier(encoding, |start, length| {
            self.lengths >> length.min(63) & 1 == 1
                && encoding.get(start..).is_some_and(|rest| self.begins_wanted(rest, length))
        })
    }

    fn begins_wanted(&self, rest: &[u8], length: usize) -> bool {
        // Rust's v0 mangling writes an underscore before an identifier that begins with one or with a digit.
        let after_underscore = rest.strip_prefix(b"_").unwrap_or_default();
        let mut identifiers = [rest, after_underscore].into_iter().filter_map(|rest| rest.get(..length));
        identifiers.any(|identifier| self.identifiers.contains(identifier))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wanted_function_is_found_and_few_others_are_demangled() {
        let mut search = Search::default();
        let wanted = [
            "streamCluster",
            "Grid::fill(int)",
            "main::{lambda(int)#1}::operator()(int) const",
            "app::make",
            "operator new(unsigned long)",
            "app::main::{closure}",
            "_hidden",
            "make<double>",
            "ns::foo1::bar",
        ];
        for name in wanted {
            search.add(FunctionName::parse(name));
        }
        assert_eq!(search.add(FunctionName::parse("app::make")), 3, "one index for one name");
        let found = |linkage: &str| {
            let mut all = Vec::new();
            search.find(linkage.as_bytes(), |index| all.push(wanted[index]));
            all
        };
        for (linkage, name) in [
            ("_Z13streamClusterP7PStreamlll", wanted[0]),
            ("_Z13streamClusterv.constprop.0", wanted[0]),
            ("_ZN4Grid4fillEi", wanted[1]),
            ("_ZZ4mainENKUliE_clEi", wanted[2]),
            ("_ZN3app4make17h0123456789abcdefE", wanted[3]),
            ("_RNvCs1234_3app4make", wanted[3]),
            ("_Znwm", wanted[4]),
            ("_RNCNvCs1234_3app4main0", wanted[5]),
            ("_Z7_hiddenv", wanted[6]),
            ("_Z4makeIdEPT_i", wanted[7]),
            ("_ZN2ns4foo13barEv", wanted[8]),
        ] {
            assert_eq!(found(linkage), [name], "{linkage}");
        }
        for linkage in ["_ZN4Grid4fillEd", "_Z4makeIiEPT_i", "streamCluster", "_Z", "_ZN3app4make", "_Z9999999999a"] {
            assert!(found(linkage).is_empty(), "{linkage}: {:?}", found(linkage));
        }
        assert!(
            !search.may_be_wanted(b"_ZN4Grid5clearEi") && !search.may_be_wanted(b"_ZN3app5touch17h0123456789abcdefE")
        );
        let of = |name: &str| linkages(&FunctionName::parse(name)).collect::<Vec<_>>();
        assert_eq!(of("work"), ["work"]);
        assert_eq!(of("solver::setup"), ["solver::setup", "__solver_MOD_setup"]);
        assert!(of("work(int)").is_empty());
    }
}
