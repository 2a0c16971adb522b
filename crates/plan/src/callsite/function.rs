//! What a function name means: in the `function` of a rule, in a profile and in a symbol table.
//!
//! A rule may give the linkage name, or the demangled name with or without parameters, and without parameters also
//! without template arguments; name spaces are always written out. Compilers and demanglers spell one function in
//! several ways; [`FunctionName`] is the spelling in which names are compared:
//!
//! | written | compared as |
//! | --- | --- |
//! | `std::vector<int> make<int>(int, char)` | `make`, arguments `<int>`, parameters `(int,char)` |
//! | `Grid::fill(int) const [clone .cold]` | `Grid::fill`, parameters `(int)const` |
//! | `app::make::h0123456789abcdef`, `app::make::<f64>` | `app::make`, and arguments `<f64>` |
//! | `<app::Grid<f64>>::fill`, `app::Grid<T>::fill` | `app::Grid::fill` |
//! | `app::main::{closure#0}`, `app::main::{{closure}}` | `app::main::{closure}` |
//! | `__solver_MOD_setup`, `solver::setup` | `solver::setup` |
//! | `work.constprop.0`, `inner.0` | `work`, `inner` |

use std::borrow::Cow;

use super::demangle::{self, function_name};

/// Classes of the C++ library that are abbreviated in mangled names, with the typedefs that demanglers write for them.
const ABBREVIATED: [&str; 6] = ["allocator", "basic_string", "string", "istream", "ostream", "iostream"];

/// Mark of a function in a rule whose code the compiler inlined into the function that follows in the list.
pub const INLINED: &str = " (inlined)";
/// Mark of a function in a rule that left by a tail call, so that its caller follows in the list.
pub const TAIL_CALL: &str = " (tail call)";

/// Whether a function of a rule has no frame of its own on the call stack.
pub fn is_frameless(function: &str) -> bool {
    function.ends_with(INLINED) || function.ends_with(TAIL_CALL)
}

/// A function of a rule without its mark.
pub fn without_mark(function: &str) -> &str {
    let unmarked = function.strip_suffix(INLINED).or_else(|| function.strip_suffix(TAIL_CALL));
    unmarked.unwrap_or(function)
}

/// A function name taken apart.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FunctionName {
    /// Name spaces and name, without template arguments and parameters.
    plain: String,
    /// The same with template arguments, when there are any.
    with_arguments: Option<String>,
    /// The list of parameters and what follows it (`const`), without spaces that separate nothing.
    parameters: Option<String>,
}

impl FunctionName {
    /// Reads a linkage name or a demangled one. Every text is a name: one without structure stands for itself.
    pub fn parse(text: &str) -> FunctionName {
        let text = text.trim();
        let spelled = if has_structure(text) { Cow::Borrowed(text) } else { function_name(text) };
        if !has_structure(&spelled) {
            return FunctionName { plain: spelled.into_owned(), ..FunctionName::default() };
        }
        let clone = spelled.find(" [clone ").unwrap_or(spelled.len());
        let mut reader = Reader::new(&spelled[..clone], 0);
        let parameters = reader.read();
        let Reader { mut plain, mut full, .. } = reader;
        for name in [&mut plain, &mut full] {
            if let Some((head, hash)) = name.rsplit_once("::h")
                && demangle::is_hash(hash)
            {
                name.truncate(head.len());
            }
        }
        FunctionName { with_arguments: (full != plain).then_some(full), plain, parameters }
    }

    /// Whether this name, of a rule, means `function`. With parameters it means the one overload and instance of a
    /// template, without them all overloads, and without template arguments all instances.
    pub fn means(&self, function: &FunctionName) -> bool {
        self.plain == function.plain
            && match &self.parameters {
                Some(_) => self.parameters == function.parameters && self.with_arguments == function.with_arguments,
                None => self.with_arguments.is_none() || self.with_arguments == function.with_arguments,
            }
    }

    /// Name spaces and name, without template arguments and parameters: equal for a rule and all functions it means.
    pub fn plain(&self) -> &str {
        &self.plain
    }

    /// It has a list of parameters, so it is a C++ function.
    pub fn has_parameters(&self) -> bool {
        self.parameters.is_some()
    }

    /// The last part of the name that every mangling spells out, as `<length><identifier>`; none when there is no such
    /// part: global operators, the C++ library's name space and the oldest of its classes, which are abbreviated.
    pub fn identifier(&self) -> Option<&str> {
        let is_identifier = |part: &&str| {
            !part.is_empty()
                && !part.starts_with("operator")
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        };
        let in_library = self.plain.strip_prefix("std::");
        let parts = in_library.unwrap_or(&self.plain).rsplit("::");
        let found = parts.map(|part| part.trim_start_matches('~').trim_matches(['<', '>'])).find(is_identifier);
        found.filter(|name| in_library.is_none() || !ABBREVIATED.contains(name))
    }

    /// gfortran's linkage name, where this can be a procedure of a module.
    pub fn fortran_linkage(&self) -> Option<String> {
        let (module, name) = self.plain.split_once("::")?;
        (!name.contains("::") && self.parameters.is_none()).then(|| format!("__{module}_MOD_{name}"))
    }
}

/// Whether a name has more parts than one identifier: name spaces, template arguments, parameters or a return type.
fn has_structure(name: &str) -> bool {
    name.bytes().any(|b| matches!(b, b' ' | b'(' | b'<' | b':'))
}

/// The beginning of a demangled name up to its parameters and without its return type, as it is written.
pub fn without_parameters(function: &str) -> &str {
    if !has_structure(function) {
        return function;
    }
    let mut reader = Reader::new(function, 0);
    let (start, end) = reader.bounds();
    function.get(start..end).unwrap_or(function)
}

/// Reads a demangled name from left to right.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    plain: String,
    full: String,
    /// Rust types around this part of the name.
    depth: u32,
    /// The name stands inside its return type: `int (*f(int))(char)`.
    inside_type: bool,
}

/// Rust types inside one another that are read; deeper ones stay as they are written, since every level is a call.
const MAX_DEPTH: u32 = 8;

impl<'a> Reader<'a> {
    fn new(text: &'a str, depth: u32) -> Reader<'a> {
        Reader { text, at: 0, plain: String::new(), full: String::new(), depth, inside_type: false }
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// At the beginning of a part of the name.
    fn begins_part(&self) -> bool {
        self.full.is_empty() || self.full.ends_with("::")
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let taken = self.rest().get(..bytes).unwrap_or(self.rest());
        self.at += taken.len();
        taken
    }

    fn push(&mut self, text: &str) {
        self.plain.push_str(text);
        self.full.push_str(text);
    }

    /// Reads to the end; the parameters, if there are any.
    fn read(&mut self) -> Option<String> {
        self.bounds();
        let rest = self.rest();
        let parameters = if self.inside_type { &rest[..balanced(rest)] } else { rest };
        (!parameters.is_empty()).then(|| squeezed(parameters))
    }

    /// Reads up to the parameters: where the name begins behind its return type, and where it ends.
    fn bounds(&mut self) -> (usize, usize) {
        let mut start = 0;
        while let Some(first) = self.rest().chars().next() {
            let rest = self.rest();
            match first {
                'o' if self.begins_part() && operator(rest) > 0 => {
                    let token: String = self.take(operator(rest)).split_whitespace().collect::<Vec<_>>().join(" ");
                    self.push(&token);
                    // `operator<< <int>`
                    if self.rest().starts_with(" <") {
                        self.take(1);
                    }
                }
                '<' => {
                    let arguments = self.take(balanced(rest));
                    self.angle(arguments);
                }
                '(' if rest.starts_with("(anonymous namespace)") => {
                    let space = self.take("(anonymous namespace)".len());
                    self.push(space);
                }
                '(' if self.full.is_empty() && (rest.starts_with("(*") || rest.starts_with("(&")) => {
                    self.take(2);
                    start = self.at;
                    self.inside_type = true;
                }
                '(' => {
                    let end = balanced(rest);
                    let after = rest.get(end..).unwrap_or_default();
                    // `decltype (a+b) f(int)`
                    if matches!(self.full.as_str(), "" | "decltype") && after.starts_with(' ') {
                        self.take(end);
                        continue;
                    }
                    // Parameters of an enclosing function: `main(int)::Local::work()`.
                    let qualifier = after.len() - after.trim_start_matches(" const").len();
                    if !after.get(qualifier..).unwrap_or_default().starts_with("::") {
                        return (start, self.at);
                    }
                    self.take(end + qualifier);
                }
                '{' => {
                    let part = self.take(balanced(rest));
                    let is_closure = part.starts_with("{closure") || part.starts_with("{{closure");
                    self.push(if is_closure { "{closure}" } else { part });
                }
                '[' => drop(self.take(balanced(rest))),
                // What came so far was the return type, or words such as `virtual thunk to`.
                ' ' => {
                    self.take(1);
                    start = self.at;
                    self.plain.clear();
                    self.full.clear();
                }
                _ => {
                    let piece = self.take(first.len_utf8());
                    self.push(piece);
                }
            }
        }
        (start, self.at)
    }

    /// Template arguments, or the type a Rust path begins with: `<Vec<T>>::push`, `<A as B>::f`.
    fn angle(&mut self, arguments: &str) {
        let inner = arguments.strip_prefix('<').and_then(|a| a.strip_suffix('>')).unwrap_or(arguments);
        if self.full.is_empty() && arguments.len() < self.text.len() {
            let depth = self.depth + 1;
            let part = |text: &str| {
                let mut reader = Reader::new(text, depth);
                reader.bounds();
                (reader.plain, reader.full)
            };
            if depth > MAX_DEPTH {
                self.push(arguments);
            } else if let Some((of, by)) = split_as(inner) {
                let ((plain_of, full_of), (plain_by, full_by)) = (part(of), part(by));
                self.plain.push_str(&format!("<{plain_of} as {plain_by}>"));
                self.full.push_str(&format!("<{full_of} as {full_by}>"));
            } else {
                let (plain, full) = part(inner);
                self.plain.push_str(&plain);
                self.full.push_str(&full);
            }
            return;
        }
        // Rust's `make::<f64>` is spelled like C++'s `make<f64>`.
        for name in [&mut self.plain, &mut self.full] {
            if name.ends_with("::") {
                name.truncate(name.len() - 2);
            }
        }
        let arguments = squeezed(arguments);
        // An empty pack.
        if arguments != "<>" {
            self.full.push_str(&arguments);
        }
    }
}

/// `A as B` outside all brackets.
fn split_as(inner: &str) -> Option<(&str, &str)> {
    let mut at = 0;
    while let Some(first) = inner.get(at..).and_then(|rest| rest.chars().next()) {
        let rest = &inner[at..];
        if let Some(by) = rest.strip_prefix(" as ") {
            return Some((&inner[..at], by));
        }
        at += if matches!(first, '<' | '(' | '[' | '{') { balanced(rest) } else { first.len_utf8() };
    }
    None
}

/// Operators of C++; one that another one begins with comes after it.
const SYMBOLS: [&str; 40] = [
    "()", "[]", "->*", "->", "<=>", "<<=", ">>=", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "++", "--", "+=",
    "-=", "*=", "/=", "%=", "&=", "|=", "^=", "+", "-", "*", "/", "%", "&", "|", "^", "~", "!", "=", "<", ">", ",",
    "co_await",
];

/// Length of the operator that `text` begins with, 0 when it begins with none: `operator()`, `operator<<`,
/// `operator new[]`, `operator unsigned long`.
fn operator(text: &str) -> usize {
    const WORD: &str = "operator";
    let Some(rest) = text.strip_prefix(WORD) else { return 0 };
    let symbol = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol));
    let token = match rest.chars().next() {
        _ if symbol.is_some() => symbol.map_or(0, |s| s.len()),
        Some('"') => rest.find('(').unwrap_or(rest.len()),
        Some(' ') => {
            // `operator new`, or a conversion, whose type ends at the parameters.
            let mut at = 0;
            while let Some(c) = rest.get(at..).and_then(|r| r.chars().next()).filter(|c| *c != '(') {
                at += if c == '<' { balanced(&rest[at..]) } else { c.len_utf8() };
            }
            at
        }
        _ => return 0,
    };
    WORD.len() + token
}

/// Length of the brackets that `text` begins with, with all that is between them; all of it where they do not close.
fn balanced(text: &str) -> usize {
    let mut depth = 0_u32;
    let mut before = b' ';
    for (i, b) in text.bytes().enumerate() {
        match b {
            b'<' | b'(' | b'[' | b'{' => depth += 1,
            b'>' if before == b'-' => {} // Rust's `fn() -> T`
            b'>' | b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return i + 1;
                }
            }
            _ => {}
        }
        before = b;
    }
    text.len()
}

/// `text` without spaces, but for those between two words, and with constants and empty packs in one spelling.
fn squeezed(text: &str) -> String {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let mut out = String::with_capacity(text.len());
    for piece in text.split_whitespace() {
        if out.chars().next_back().is_some_and(word) && piece.chars().next().is_some_and(word) {
            out.push(' ');
        }
        out.push_str(piece);
    }
    let out = without_casts(&out);
    // An empty pack at the end of a list.
    if out.contains(",>") || out.contains(",)") { out.replace(",>", ">").replace(",)", ")") } else { out }
}

/// Constants of demanglers without their type: `8ul` and `(unsigned long)8` are `8`, `(bool)1` is `true`.
fn without_casts(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    // Behind these a template argument begins.
    while let Some(at) = rest.find(['<', ',']).map(|at| at + 1) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let cast = if rest.starts_with('(') { balanced(rest) } else { 0 };
        let value = &rest[cast..];
        let digits = value.trim_start_matches('-').bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            continue;
        }
        let number = &value[..value.len() - value.trim_start_matches('-').len() + digits];
        let after = value[number.len()..].trim_start_matches(['u', 'l']);
        if !after.starts_with([',', '>']) {
            continue;
        }
        out.push_str(match (&rest[..cast], number) {
            ("(bool)", "0") => "false",
            ("(bool)", "1") => "true",
            _ => number,
        });
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_in_one_spelling() {
        for (text, plain, arguments, parameters) in [
            ("work", "work", "", ""),
            ("work.constprop.0", "work", "", ""),
            ("_Z4workP7PStreamlll", "work", "", "(PStream*,long,long,long)"),
            ("work(PStream*, long, long,long)", "work", "", "(PStream*,long,long,long)"),
            ("double* make<double>(int)", "make", "make<double>", "(int)"),
            ("_Z4makeIdEPT_i", "make", "make<double>", "(int)"),
            ("_ZN12_GLOBAL__N_13hidEi", "(anonymous namespace)::hid", "", "(int)"),
            ("_ZZ4mainENKUliE_clEi", "main::{lambda(int)#1}::operator()", "", "(int)const"),
            ("_ZN1SC2Ei", "S::S", "", "(int)"),
            ("_Znwm", "operator new", "", "(unsigned long)"),
            ("_Znam", "operator new[]", "", "(unsigned long)"),
            ("S::operator unsigned long() const", "S::operator unsigned long", "", "()const"),
            ("S::operator<(S const&)", "S::operator<", "", "(S const&)"),
            ("main(int)::L::f(char) const", "main::L::f", "", "(char)const"),
            ("f[abi:cxx11](int) [clone .cold]", "f", "", "(int)"),
            ("app::make::h0123456789abcdef", "app::make", "", ""),
            ("_ZN3app4make17h0123456789abcdefE.llvm.77", "app::make", "", ""),
            ("app::make::<fn() -> i32>", "app::make", "app::make<fn()->i32>", ""),
            ("<app::Grid<f64>>::fill", "app::Grid::fill", "app::Grid<f64>::fill", ""),
            (
                "<app::Grid<f64> as app::Fill<u8>>::fill",
                "<app::Grid as app::Fill>::fill",
                "<app::Grid<f64> as app::Fill<u8>>::fill",
                "",
            ),
            ("app::main::{{closure}}", "app::main::{closure}", "", ""),
            ("app::main::{closure#0}", "app::main::{closure}", "", ""),
            ("__solver_MOD_setup", "solver::setup", "", ""),
            ("inner.0", "inner", "", ""),
            ("", "", "", ""),
        ] {
            let name = FunctionName::parse(text);
            let found = (name.plain(), name.with_arguments.as_deref(), name.parameters.as_deref());
            let some = |text: &'static str| Some(text).filter(|t| !t.is_empty());
            assert_eq!(found, (plain, some(arguments), some(parameters)), "{text}");
        }
    }

    #[test]
    fn rules_may_leave_out_parameters_and_arguments() {
        let means = |rule: &str, linkage: &str| FunctionName::parse(rule).means(&FunctionName::parse(linkage));
        for rule in ["make", "make<double>", "make<double>(int)", "_Z4makeIdEPT_i", "double* make<double>(int)"] {
            assert!(means(rule, "_Z4makeIdEPT_i"), "{rule}");
        }
        for rule in ["make<int>", "make(int)", "make<double>(long)", "a::make", "mak"] {
            assert!(!means(rule, "_Z4makeIdEPT_i"), "{rule}");
        }
        assert!(means("fill(int)", "_Z4filli") && !means("fill(int)", "_Z4filld") && means("fill", "_Z4filld"));
        assert!(means("app::make", "_ZN3app4make17h0123456789abcdefE"));
        assert!(means("_ZN3app4make17h0123456789abcdefE", "_ZN3app4make17hfedcba9876543210E"));
    }

    /// What nm -C writes, which is GNU's demangler, for linkage names whose demangled form differs between demanglers.
    #[test]
    fn names_of_other_demanglers_mean_the_same() {
        for (linkage, gnu, short) in [
            // cpp_demangle loses the references of the parameters of a pack: `(int&, long)`.
            ("_Z2fwIJRilEEvDpOT_.isra.0", "fw<int&, long>", "fw"),
            ("_Z2mkILm8EEvv", "void mk<8ul>()", "mk<8ul>"),
            ("_Z2mkILin5EEvv", "void mk<-5>()", "mk<-5>"),
            ("_Z3arrRSt5arrayIdLm8EE", "arr(std::array<double, 8ul>&)", "arr"),
            ("_Z4flagILb1EEvv", "void flag<true>()", "flag<true>"),
            ("_Z5packfIJEEv4PackIJiDpT_EE", "void packf<>(Pack<int>)", "packf"),
            ("_ZN4GridIdLm3EE4fillEv", "Grid<double, 3ul>::fill()", "Grid<double, 3ul>::fill"),
            ("_Z4rowsILi128EEPAT__di", "double (*rows<128>(int)) [128]", "rows<128>"),
            ("_Z5getfpIiEPFiiET_", "int (*getfp<int>(int))(int)", "getfp"),
            (
                "_Z7addgridIidEDTplfp_fp0_ET_T0_",
                "decltype ({parm#1}+{parm#2}) addgrid<int, double>(int, double)",
                "addgrid",
            ),
            ("_ZN1V4dedtIiEEDcT_", "decltype(auto) V::dedt<int>(int)", "V::dedt"),
            ("_ZN1VcvPT_IdEEv", "V::operator double*<double>()", "V::operator double*<double>"),
            ("_ZN1VgtEi", "V::operator>(int)", "V::operator>"),
            ("_ZN1VixEi", "V::operator[](int)", "V::operator[]"),
            ("_ZlsIiE1MRKS0_T_", "M operator<< <int>(M const&, int)", "operator<<"),
            ("_ZmlIdE1MT_RKS0_", "M operator*<double>(double, M const&)", "operator*"),
            ("_ZplRK1MS1_", "operator+(M const&, M const&)", "operator+"),
        ] {
            let function = FunctionName::parse(linkage);
            for name in [gnu, short] {
                assert!(
                    FunctionName::parse(name).means(&function),
                    "{name}\n{:?}\n{function:?}",
                    FunctionName::parse(name)
                );
            }
        }
    }

    #[test]
    fn every_mangling_spells_out_the_identifier() {
        let identifier = |text: &str| FunctionName::parse(text).identifier().map(str::to_owned);
        for (text, expected) in [
            ("work(int)", "work"),
            ("a::Grid<int>::~Grid()", "Grid"),
            ("main::{lambda(int)#1}::operator()(int) const", "main"),
            ("app::main::{{closure}}", "main"),
            ("<app::Grid as app::Fill>::fill", "fill"),
            ("mem::allocator(unsigned long)", "allocator"),
            ("app::std", "std"),
        ] {
            assert_eq!(identifier(text).as_deref(), Some(expected), "{text}");
        }
        for none in ["operator new(unsigned long)", "std::operator<<", "std::string::string"] {
            assert_eq!(identifier(none), None, "{none}");
        }
        assert_eq!(FunctionName::parse("m::p").fortran_linkage().as_deref(), Some("__m_MOD_p"));
    }

    #[test]
    fn hostile_names_end_in_a_name() {
        let mut seed = 7_u64;
        let pieces = [
            "<", ">", "(", ")", "{", "[", "]", "operator", " ", "::", "a", " as ", "->", "é", "_ZN", "3foo", "E", "_R",
            "Cs_", "17h", ".", "I", "S_", "_MOD_",
        ];
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..(seed >> 33) % 24 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.push_str(pieces[(seed >> 33) as usize % pieces.len()]);
            }
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let name = FunctionName::parse(&text);
            assert!(name.means(&name.clone()), "{text}");
            let _ = (name.identifier(), name.fortran_linkage(), without_parameters(&text));
        }
    }
}
