//! Who imports whom, read from the sources: every path that begins with `crate`, `self`, `super`, a module of the same
//! file's folder, or the name of one of our crates.
//!
//! Code under `#[cfg(test)]`, files whose name ends in `tests.rs` and documentation links are left out. A name that a
//! module passes on (`use other::Name` or `pub use child::Name`) is followed to the file that defines it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// How many `use` items a name is followed through; more would be a circle of re-exports.
const MAX_HOPS: usize = 8;

/// Source files by their path below the repository.
pub type Tree = BTreeMap<String, String>;

/// A module: its crate (as imports spell it) and its path inside the crate.
type Module = (String, Vec<String>);

/// One file that takes a name from another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Import {
    /// File with the import.
    pub from: String,
    /// Line of the import, from 1.
    pub line: usize,
    /// The imported path as written.
    pub path: String,
    /// File of the module that the path names.
    pub named: String,
    /// File that defines what is imported; differs from `named` when that module only passes it on.
    pub defined: String,
    /// A module passing on a name of a module below it, which says nothing about what its own code needs.
    pub facade: bool,
}

/// All production sources of the repository at `root`: `src` and `crates/*/src`.
pub fn read(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut folders = vec![root.join("src")];
    let crates = std::fs::read_dir(root.join("crates")).expect("the folder of crates");
    folders.extend(crates.map(|entry| entry.expect("an entry of the folder").path().join("src")));
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.expect("an entry of the folder").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let name = path.strip_prefix(root).expect("a path below the root").to_string_lossy().into_owned();
                tree.insert(name, std::fs::read_to_string(&path).expect("a source file"));
            }
        }
    }
    tree
}

/// False for files that hold tests alone.
pub fn is_production(file: &str) -> bool {
    !file.ends_with("tests.rs") && !file.contains("/tests/")
}

/// The module that `file` is, or nothing for a file outside the layout `src/**`, `crates/NAME/src/**`.
fn module(file: &str) -> Option<Module> {
    let (name, below) = match file.strip_prefix("crates/") {
        Some(rest) => {
            let (name, below) = rest.split_once("/src/")?;
            (format!("numamma_{}", name.replace('-', "_")), below)
        }
        None => ("numamma".to_owned(), file.strip_prefix("src/")?),
    };
    let mut path: Vec<String> = below.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    if matches!(path.last().map(String::as_str), Some("mod")) || path == ["lib"] {
        path.pop();
    }
    Some((name, path))
}

/// A path in a file, with the module it is written in.
struct Found {
    inside: Module,
    path: Vec<String>,
    line: usize,
    is_public_use: bool,
}

/// Names that a module has: its own items, and those that it takes from elsewhere.
#[derive(Default)]
struct Names {
    items: BTreeSet<String>,
    uses: Vec<(String, Vec<String>)>,
    globs: Vec<Vec<String>>,
}

/// Every import of the tree.
///
/// # Panics
/// When a file cannot be parsed.
pub fn imports(tree: &Tree) -> Vec<Import> {
    let mut sources = Sources { files: BTreeMap::new(), names: BTreeMap::new() };
    let mut found = Vec::new();
    for (file, text) in tree.iter().filter(|(file, _)| is_production(file)) {
        let Some(inside) = module(file) else { continue };
        let parsed = syn::parse_file(text).unwrap_or_else(|e| panic!("{file}:{}: {e}", e.span().start().line));
        let mut reader = Reader { inside: inside.clone(), found: Vec::new(), names: Names::default(), depth: 0 };
        reader.visit_file(&parsed);
        sources.files.insert(inside.clone(), file.clone());
        sources.names.insert(inside, reader.names);
        found.push((file.clone(), reader.found));
    }
    let mut all = BTreeSet::new();
    for (from, paths) in found {
        for f in paths {
            let Some((named, defined)) = sources.resolve(&f.inside, &f.path, MAX_HOPS) else { continue };
            let facade = f.is_public_use && named.0 == f.inside.0 && named.1.starts_with(&f.inside.1);
            let (named, defined) = (sources.file(&named), sources.file(&defined));
            if named != from || defined != from {
                all.insert(Import {
                    from: from.clone(),
                    line: f.line,
                    path: f.path.join("::"),
                    named,
                    defined,
                    facade,
                });
            }
        }
    }
    all.into_iter().collect()
}

struct Sources {
    files: BTreeMap<Module, String>,
    names: BTreeMap<Module, Names>,
}

impl Sources {
    fn file(&self, module: &Module) -> String {
        self.files[module].clone()
    }

    /// The module that stands in a file of its own: `module`, or the one that an inline module is written in.
    fn outlined(&self, module: Module) -> Option<Module> {
        let (name, mut path) = module;
        loop {
            let candidate = (name.clone(), path.clone());
            if self.files.contains_key(&candidate) {
                return Some(candidate);
            }
            path.pop()?;
        }
    }

    /// The module that `path`, written in `inside`, names, and the one that defines its item.
    fn resolve(&self, inside: &Module, path: &[String], hops: usize) -> Option<(Module, Module)> {
        let (name, mut at) = inside.clone();
        let mut rest = path;
        let first = path.first()?.as_str();
        let (name, absolute) = match first {
            "crate" => (name, true),
            _ if first.starts_with("numamma") && self.files.contains_key(&(first.to_owned(), Vec::new())) => {
                (first.to_owned(), true)
            }
            _ => (name, false),
        };
        if absolute {
            at.clear();
            rest = &rest[1..];
        } else if first == "self" || first == "super" {
            while let Some((word, after)) = rest.split_first().filter(|(w, _)| *w == "self" || *w == "super") {
                if word == "super" {
                    at.pop()?;
                }
                rest = after;
            }
        } else {
            let child = (name.clone(), [&at[..], &path[..1]].concat());
            self.files.contains_key(&child).then_some(())?;
        }
        while let Some((word, after)) = rest.split_first() {
            let child = (name.clone(), [&at[..], std::slice::from_ref(word)].concat());
            if !self.files.contains_key(&child) {
                break;
            }
            (at, rest) = (child.1, after);
        }
        let named = self.outlined((name, at))?;
        let defined = rest.first().and_then(|word| self.definition(&named, word, hops));
        Some((named.clone(), defined.unwrap_or(named)))
    }

    /// The module that defines `word`, which `module` has or passes on.
    fn definition(&self, module: &Module, word: &str, hops: usize) -> Option<Module> {
        let names = self.names.get(module)?;
        if names.items.contains(word) || hops == 0 {
            return Some(module.clone());
        }
        if let Some((_, path)) = names.uses.iter().find(|(alias, _)| alias == word) {
            return self.resolve(module, path, hops - 1).map(|(_, defined)| defined);
        }
        names.globs.iter().find_map(|glob| {
            let (named, _) = self.resolve(module, glob, hops - 1)?;
            self.names[&named].items.contains(word).then_some(named)
        })
    }
}

/// Collects the paths of one file.
struct Reader {
    inside: Module,
    found: Vec<Found>,
    names: Names,
    /// Inline modules around the present place.
    depth: usize,
}

impl Reader {
    fn add(&mut self, path: Vec<String>, span: Span, is_public_use: bool) {
        self.found.push(Found { inside: self.inside.clone(), path, line: span.start().line, is_public_use });
    }

    fn add_use(&mut self, before: &[String], tree: &syn::UseTree, is_public: bool) {
        let with = |ident: &syn::Ident| -> Vec<String> {
            let word = ident.to_string();
            // `use a::b::{self}` names b.
            if word == "self" && !before.is_empty() { before.to_vec() } else { [before, &[word]].concat() }
        };
        match tree {
            syn::UseTree::Path(p) => self.add_use(&with(&p.ident), &p.tree, is_public),
            syn::UseTree::Group(g) => g.items.iter().for_each(|t| self.add_use(before, t, is_public)),
            syn::UseTree::Glob(g) => {
                if self.depth == 0 {
                    self.names.globs.push(before.to_vec());
                }
                self.add(before.to_vec(), g.star_token.spans[0], is_public);
            }
            syn::UseTree::Name(n) => self.add_name(with(&n.ident), None, n.ident.span(), is_public),
            syn::UseTree::Rename(r) => self.add_name(with(&r.ident), Some(&r.rename), r.ident.span(), is_public),
        }
    }

    fn add_name(&mut self, path: Vec<String>, alias: Option<&syn::Ident>, span: Span, is_public: bool) {
        let alias = alias.map_or_else(|| path.last().cloned(), |a| Some(a.to_string()));
        if let Some(alias) = alias.filter(|_| self.depth == 0) {
            self.names.uses.push((alias, path.clone()));
        }
        self.add(path, span, is_public);
    }

    /// Paths in the arguments of a macro, which are no syntax tree yet.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut start = Span::call_site();
        let mut colons = 0;
        for token in tokens {
            match &token {
                TokenTree::Ident(word) => {
                    if colons != 2 {
                        self.end_path(&mut path, start);
                        start = word.span();
                    }
                    path.push(word.to_string());
                    colons = 0;
                    continue;
                }
                TokenTree::Punct(p) if p.as_char() == ':' && !path.is_empty() && colons < 2 => {
                    colons += 1;
                    continue;
                }
                TokenTree::Group(g) if g.delimiter() != Delimiter::None => self.add_tokens(g.stream()),
                _ => {}
            }
            self.end_path(&mut path, start);
            colons = 0;
        }
        self.end_path(&mut path, start);
    }

    fn end_path(&mut self, path: &mut Vec<String>, start: Span) {
        let path = std::mem::take(path);
        if path.len() > 1 {
            self.add(path, start, false);
        }
    }
}

/// True for `#[cfg(test)]`, alone or within `all(...)`.
fn only_in_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().filter(|a| a.path().is_ident("cfg")).any(|a| match &a.meta {
        syn::Meta::List(list) => {
            let text = list.tokens.to_string();
            text == "test" || (text.starts_with("all") && text.contains("test") && !text.contains("not"))
        }
        _ => false,
    })
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    use syn::Item;
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Union(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

fn name(item: &syn::Item) -> Option<String> {
    use syn::Item;
    let ident = match item {
        Item::Const(i) => &i.ident,
        Item::Enum(i) => &i.ident,
        Item::Fn(i) => &i.sig.ident,
        Item::Macro(i) => i.ident.as_ref()?,
        Item::Static(i) => &i.ident,
        Item::Struct(i) => &i.ident,
        Item::Trait(i) => &i.ident,
        Item::Type(i) => &i.ident,
        Item::Union(i) => &i.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if only_in_tests(attributes(item)) {
            return;
        }
        if self.depth == 0 {
            self.names.items.extend(name(item));
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.content.is_some() {
            self.inside.1.push(item.ident.to_string());
            self.depth += 1;
            visit::visit_item_mod(self, item);
            self.depth -= 1;
            self.inside.1.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_public = !matches!(item.vis, syn::Visibility::Inherited);
        self.add_use(&[], &item.tree, is_public);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !only_in_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let syn::Meta::List(list) = &attribute.meta {
            self.add_tokens(list.tokens.clone());
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if let Some(first) = path.segments.first().filter(|_| path.segments.len() > 1) {
            let words = path.segments.iter().map(|s| s.ident.to_string()).collect();
            self.add(words, first.ident.span(), false);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.visit_path(&mac.path);
        self.add_tokens(mac.tokens.clone());
    }
}
