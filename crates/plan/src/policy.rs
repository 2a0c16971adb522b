//! The schema of the policy file: TOML, version 1.
//!
//! `numamma advise` makes values of these types; [`crate::check::parse`] parses and validates a file. An `Option`
//! that is `None` is left out of the file, and serde reads a missing key as `None`.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::SeqAccessDeserializer;
use serde::{Deserialize, Serialize};

pub use crate::size::{Auto, Block, Size};
use crate::teams::Team;

/// The schema version; there is only one.
pub const POLICY_VERSION: u32 = 1;

/// A whole policy file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Schema version; [`POLICY_VERSION`].
    pub version: u32,
    /// The program the policy was made for; checked at start.
    pub program: Option<Program>,
    /// The machine the policy was computed for; informative.
    pub machine: Option<MachineNote>,
    /// Thread binding.
    pub threads: Option<Threads>,
    /// Threads between which the work is divided, and which are bound; all threads when there is none.
    #[serde(default, rename = "team", skip_serializing_if = "Vec::is_empty")]
    pub teams: Vec<Team>,
    /// Parts of the run in which objects may be placed differently; in the order of the file.
    #[serde(default, rename = "phase", skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
    /// One rule per object.
    #[serde(default, rename = "object", skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectRule>,
}

/// A part of the run. A phase begins when the program calls `numamma_phase("name")` and, if the rule says so, after a
/// time or at an allocation. It lasts until another phase begins; the part before the first phase has no name.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Phase {
    /// Name by which [`ObjectRule::phases`] and `numamma_phase` refer to the phase.
    pub name: String,
    /// Begins this many seconds after the program started.
    pub after: Option<f64>,
    /// Begins at the n-th allocation, from 1, of the call site that `callsite`, `function` or `line` names (as in
    /// [`ObjectRule`]). As for `instances`, a realloc of a placed object that keeps its rule does not count.
    pub allocation: Option<u64>,
    /// See [`ObjectRule::callsite`].
    pub callsite: Option<Vec<String>>,
    /// See [`ObjectRule::function`].
    pub function: Option<Vec<String>>,
    /// See [`ObjectRule::line`].
    pub line: Option<String>,
}

/// The program a policy was made for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Program {
    /// File name (or path; only the file name is compared).
    pub path: String,
    /// Hex GNU build-id; absent when the program has none.
    pub build_id: Option<String>,
}

/// The machine a policy was computed for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MachineNote {
    /// A synthetic topology string such as `numa:4 core:2`.
    pub topology: String,
}

/// Thread binding.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Threads {
    /// How the n-th created thread, or the n-th worker of a team, is bound. Never overrides OMP_PROC_BIND, OMP_PLACES,
    /// GOMP_CPU_AFFINITY or an affinity mask smaller than the machine.
    pub bind: Bind,
    /// Threads the program will create, the main thread included: what `compact` spreads over the nodes when the policy
    /// has no team. With teams, the workers of the largest.
    pub count: Option<u32>,
}

/// Thread binding policy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Bind {
    /// Threads are not bound.
    #[default]
    None,
    /// Threads in creation order fill node after node, evenly: thread t of T on node floor(t * nodes / T)
    /// when T (see `count`) is known, else one thread per CPU in node order.
    Compact,
    /// Thread t on node t mod nodes.
    Scatter,
    /// Thread t on the CPUs of list t mod lists, in numactl's notation: `["0-3", "4-7"]`.
    #[serde(untagged)]
    Explicit(Vec<String>),
}

// Written by hand, because serde's error for an untagged enum does not name the wrong word.
impl<'de> Deserialize<'de> for Bind {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Bind, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Bind;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"none\", \"compact\", \"scatter\", or a list of CPU lists such as [\"0-3\", \"4-7\"]")
            }

            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<Bind, E> {
                match word {
                    "none" => Ok(Bind::None),
                    "compact" => Ok(Bind::Compact),
                    "scatter" => Ok(Bind::Scatter),
                    _ => Err(E::custom(format!(
                        "unknown variant `{word}`, expected one of `none`, `compact`, `scatter`, or a list of CPU lists \
                         such as [\"0-3\", \"4-7\"]"
                    ))),
                }
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, items: A) -> Result<Bind, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(items)).map(Bind::Explicit)
            }
        }
        d.deserialize_any(Visitor)
    }
}

/// The placement of one object. Either `global` or `callsite`/`function`/`line` names the object.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ObjectRule {
    /// What reports and messages call the object; it selects nothing.
    pub name: Option<String>,
    /// Linkage name of a global variable, or `.bss`/`.data` for a section's unnamed remainder.
    pub global: Option<String>,
    /// File name of the module that holds the global; the program itself when absent.
    pub module: Option<String>,
    /// ELF virtual address of the global in the build the policy was made from: distinguishes two file-local
    /// variables of the same name. Used only if the build-id is the same.
    pub address: Option<u64>,
    /// Innermost return addresses of the allocation's call stack, `module+0xvaddr`, innermost first.
    /// A stack matches when it begins with these.
    pub callsite: Option<Vec<String>>,
    /// Functions of the same frames, for another build of the program. Functions without a frame of their own, marked
    /// with ` (inlined)` or ` (tail call)`, are for the reader and are not compared.
    pub function: Option<Vec<String>>,
    /// `file:line` of the call: names the call site when neither `callsite` nor `function` does (the program then needs
    /// debugging information), informative beside them.
    pub line: Option<String>,
    /// Name of the member of the global that the rule places: of a COMMON block, a struct or a class. For the reader:
    /// `range` says where it is.
    pub member: Option<String>,
    /// Bytes of the object that the rule places, the second number not included: `"40MiB-80MiB"`, `"80MiB-"`,
    /// `"-40MiB"`. The rest is left where it is, or placed by other rules. The ends are rounded to pages. All of the
    /// object when absent. Of a global with another size than `size` nothing is placed.
    pub range: Option<String>,
    /// Numbers of the allocations that the rule selects, from 1 among those that match the rest of the rule: `"3"`,
    /// `"1-4,7"`, `"5-"`; `"1-2/8"` are the first two of every eight. All when absent.
    pub instances: Option<String>,
    /// Sizes of the allocations that the rule selects, both ends included: `"1MiB-64MiB"`, `"4KiB-"`, `"-2MiB"`,
    /// `"640KiB"`. All when absent.
    pub sizes: Option<String>,
    /// MPI ranks that the rule applies to: `"0"`, `"0-1,4"`, `"8-"`. Every process when absent.
    pub ranks: Option<String>,
    /// Bytes of the object (of one instance), also where `range` is a part of it.
    pub size: Option<u64>,
    /// The access pattern that the profile showed.
    pub pattern: Option<PatternNote>,
    /// Where the object goes.
    pub place: Place,
    /// Where the object goes when a [`Phase`] begins, by the name of the phase. Other phases do not move the object.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub phases: BTreeMap<String, Place>,
    /// Reason for the placement, as text for the user.
    pub why: Option<String>,
}

/// By what an object or a phase names its call site. Nothing names that of a global.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site<'a> {
    /// See [`ObjectRule::callsite`].
    pub callsite: Option<&'a [String]>,
    /// See [`ObjectRule::function`].
    pub function: Option<&'a [String]>,
    /// See [`ObjectRule::line`]; only where nothing else names the call site.
    pub line: Option<&'a str>,
}

impl<'a> Site<'a> {
    fn new(callsite: Option<&'a [String]>, function: Option<&'a [String]>, line: Option<&'a str>) -> Site<'a> {
        Site { callsite, function, line: line.filter(|_| callsite.is_none() && function.is_none()) }
    }

    /// Whether anything names the call site.
    pub fn is_named(self) -> bool {
        self.callsite.is_some() || self.function.is_some() || self.line.is_some()
    }
}

impl ObjectRule {
    /// By what the rule names its call site.
    pub fn site(&self) -> Site<'_> {
        let line = self.line.as_deref().filter(|_| self.global.is_none());
        Site::new(self.callsite.as_deref(), self.function.as_deref(), line)
    }
}

impl Phase {
    /// By what the phase names its call site.
    pub fn site(&self) -> Site<'_> {
        Site::new(self.callsite.as_deref(), self.function.as_deref(), self.line.as_deref())
    }
}

/// The word of the policy file.
impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl PolicyKind {
    /// Whether the pages are distributed in blocks, each on one node.
    pub fn by_blocks(self) -> bool {
        use PolicyKind::{BindBlock, Random};
        self.takes_block() || matches!(self, BindBlock | Random)
    }

    /// Whether a placement with this policy may have a block size.
    pub fn takes_block(self) -> bool {
        use PolicyKind::{Block, BlockCyclic, Map, Prime, RandomBlock, Skew};
        matches!(self, Block | BlockCyclic | Skew | Prime | RandomBlock | Map)
    }
}

/// The access pattern of an object in the profile.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PatternNote {
    /// `private`, `block`, `block-cyclic`, `random`, ...
    pub kind: String,
    /// Period in bytes of a block-cyclic object; what `block = "auto"` divides by the node count.
    pub period: Option<Size>,
    /// Confidence in the pattern, 0 to 1.
    pub confidence: Option<f64>,
}

/// Where an object goes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The distribution.
    pub policy: PolicyKind,
    /// Block size of block, block-cyclic, random-block (required there), skew, prime and map (a page when absent). Need
    /// not be whole pages: a page goes with the block that has its middle.
    pub block: Option<Block>,
    /// Node list as numactl's (`0-3,5`, `all`, `!2`, `+0`); `all`, see [`crate::machine::Machine::own`], when absent.
    pub nodes: Option<String>,
    /// Seed of random and random-block; 0 when absent.
    pub seed: Option<u64>,
    /// Page map of `map`: runs of 4 KiB pages with their node number, `"640x0,128x3"`; starts over after the last. Runs
    /// of blocks where `block` says how large these are.
    pub map: Option<String>,
    /// What to do about huge pages.
    pub huge: Option<Huge>,
    /// Whether blocks get a memory policy each or are populated.
    pub mode: Option<Mode>,
    /// Of `bind`: whether the nodes are a limit (MPOL_BIND) and not a preference. When the nodes of a limit are full,
    /// the kernel kills a process, even if other nodes have free memory. False when absent.
    pub strict: Option<bool>,
}

/// How pages come to their nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// A memory policy for each block (mbind): the policy applies whenever the kernel allocates a page, at the first
    /// touch and later. Costs one mapping per block.
    #[default]
    Policy,
    /// Every page is allocated on its node at once. Costs no additional mapping, but all of the object's memory;
    /// pages that are swapped out, copied on write or collapsed into huge pages may return on any node.
    Populate,
}

/// Transparent huge pages of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Huge {
    /// The system and the program decide.
    #[default]
    Keep,
    /// No huge pages (MADV_NOHUGEPAGE), so that blocks smaller than a huge page are exact.
    Split,
    /// Huge pages wherever a block can hold one (MADV_HUGEPAGE).
    Want,
}

/// Distribution of an object's pages over nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PolicyKind {
    /// The kernel decides (first touch).
    #[default]
    Default,
    /// On the listed nodes, elsewhere only when they are full: on one node as `preferred`, on several as
    /// `preferred-many`. Never elsewhere with `strict = true` (MPOL_BIND).
    Bind,
    /// On the one listed node, elsewhere when it is full (MPOL_PREFERRED).
    Preferred,
    /// On the listed nodes, elsewhere when they are full (MPOL_PREFERRED_MANY, Linux 5.15).
    PreferredMany,
    /// Page i on node i mod M (MPOL_INTERLEAVE).
    Interleave,
    /// As `interleave`, by the weights in /sys/kernel/mm/mempolicy/weighted_interleave (MPOL_WEIGHTED_INTERLEAVE,
    /// Linux 6.9; plain interleaving before).
    WeightedInterleave,
    /// One contiguous slice per node: block = size / nodes, rounded up to pages, unless given.
    Block,
    /// Block i on node i mod M; `auto` is period / nodes.
    BlockCyclic,
    /// One block per thread, on the node where that thread runs: as observed, as the user's OpenMP variables or the
    /// policy's binding say, else as if bound compactly.
    BindBlock,
    /// Block i on node (i + floor(i / M) + 1) mod M, see [`crate::block_order::Order`].
    Skew,
    /// Blocks over a prime number of virtual nodes.
    Prime,
    /// Each page on a random node.
    Random,
    /// Each block on a random node.
    RandomBlock,
    /// Nodes from the page map.
    Map,
    /// Each instance on the node of the thread that allocates it.
    Local,
}
