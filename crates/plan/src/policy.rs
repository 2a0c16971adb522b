//! The policy file: TOML, version 1.
//!
//! Plain data, the schema of the file: `numamma advise` makes values of these types, and
//! [`crate::check::parse`] reads and validates a file and locates errors. An `Option` that is `None` is left out of the file:
//! serde reads a missing one as `None`, and TOML has no other notation for it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::size::{Auto, Block, Size};

/// The only schema version so far.
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
    /// The machine it was computed for; informative.
    pub machine: Option<MachineNote>,
    /// Thread binding.
    pub threads: Option<Threads>,
    /// Parts of the run in which objects may be placed differently; in the order of the file.
    #[serde(default, rename = "phase", skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
    /// One rule per object.
    #[serde(default, rename = "object", skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectRule>,
}

/// A part of the run. It begins when the program calls `numamma_phase("name")`, and besides, if given, after a time or at
/// an allocation; the part before the first one has no name. The latest one to begin holds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Phase {
    /// What [`ObjectRule::phases`] and `numamma_phase` call it.
    pub name: String,
    /// Begins this many seconds after the program started.
    pub after: Option<f64>,
    /// Begins at the n-th allocation, from 1, of the call site that `callsite`, `function` or `line` names (as in
    /// [`ObjectRule`]). As for `instances`, a realloc of a placed object that keeps its rule is none.
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
    /// How the n-th created thread is bound. Never overrides OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY
    /// or an affinity mask smaller than the machine.
    pub bind: Bind,
    /// Threads the program will create, the main thread included: what `compact` spreads over the nodes.
    pub count: Option<u32>,
}

/// Thread binding policy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Bind {
    /// Leave threads alone.
    #[default]
    None,
    /// Threads in creation order fill node after node, evenly: thread t of T on node floor(t * nodes / T)
    /// when T (see `count`) is known, else one thread per CPU in node order.
    Compact,
    /// Thread t on node t mod nodes.
    Scatter,
    /// Thread t on the CPUs of list t mod lists, in numactl's words: `["0-3", "4-7"]`.
    #[serde(untagged)]
    Explicit(Vec<String>),
}

// By hand: serde's untagged error says only that nothing matched.
impl<'de> Deserialize<'de> for Bind {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Bind, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Bind;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("\"none\", \"compact\", \"scatter\", or a list of CPU lists such as [\"0-3\", \"4-7\"]")
            }

            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<Bind, E> {
                match word {
                    "none" => Ok(Bind::None),
                    "compact" => Ok(Bind::Compact),
                    "scatter" => Ok(Bind::Scatter),
                    _ => Err(E::custom(format!(
                        "unknown variant `{word}`, expected one of `none`, `compact`, `scatter`, or a list of CPU lists such as [\"0-3\", \"4-7\"]"
                    ))),
                }
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<Bind, A::Error> {
                let mut lists = Vec::new();
                while let Some(list) = items.next_element()? {
                    lists.push(list);
                }
                Ok(Bind::Explicit(lists))
            }
        }
        d.deserialize_any(Visitor)
    }
}

/// One object and where it goes. Exactly one of `global` and `callsite`/`function`/`line` names the object.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ObjectRule {
    /// Linkage name of a global variable, or `.bss`/`.data` for a section's unnamed remainder.
    pub global: Option<String>,
    /// File name of the module that holds the global; the program itself when absent.
    pub module: Option<String>,
    /// ELF virtual address of the global in the build the policy was made from: tells two locals of
    /// one name apart. Only believed when the build-id agrees.
    pub address: Option<u64>,
    /// Innermost return addresses of the allocation's call stack, `module+0xvaddr`, innermost first.
    /// A stack matches when it begins with these.
    pub callsite: Option<Vec<String>>,
    /// Functions of the same frames, for another build of the program.
    pub function: Option<Vec<String>>,
    /// `file:line` of the call: names the call site when neither `callsite` nor `function` does (the program then needs
    /// debugging information), informative beside them.
    pub line: Option<String>,
    /// Which allocations of the call site are meant, counted from 1 among those that fit the rest of the rule: `"3"`,
    /// `"1-4,7"`, `"5-"`. All when absent.
    pub instances: Option<String>,
    /// Allocations of which sizes are meant, both ends included: `"1MiB-64MiB"`, `"4KiB-"`, `"-2MiB"`, `"640KiB"`.
    pub sizes: Option<String>,
    /// MPI ranks the rule is for: `"0"`, `"0-1,4"`, `"8-"`. Every process when absent.
    pub ranks: Option<String>,
    /// Bytes of the object (of one instance).
    pub size: Option<u64>,
    /// The pattern that was seen.
    pub pattern: Option<PatternNote>,
    /// Where it goes.
    pub place: Place,
    /// Where it goes once a [`Phase`] has begun, by the phase's name. In phases that are not listed it stays where it is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub phases: BTreeMap<String, Place>,
    /// Why, in words.
    pub why: Option<String>,
}

impl ObjectRule {
    /// How messages and reports call the object: the global, or the innermost function or frame, or the line.
    pub fn name(&self) -> &str {
        if let Some(global) = &self.global {
            return global;
        }
        self.function
            .as_ref()
            .and_then(|l| l.iter().find(|n| !n.is_empty()))
            .or_else(|| self.callsite.as_ref()?.first())
            .or(self.line.as_ref())
            .map_or("?", String::as_str)
    }

    /// [`ObjectRule::name`] with what tells rules of one call site apart: `make_grid, instances 1-4`.
    pub fn title(&self) -> Cow<'_, str> {
        let filters = [("instances", &self.instances), ("sizes", &self.sizes)];
        filters.into_iter().fold(Cow::Borrowed(self.name()), |title, (word, filter)| match filter {
            Some(filter) => Cow::Owned(format!("{title}, {word} {filter}")),
            None => title,
        })
    }

    /// The line that names the call site because nothing else does.
    pub fn line_alone(&self) -> Option<&str> {
        let otherwise = self.global.is_some() || self.callsite.is_some() || self.function.is_some();
        self.line.as_deref().filter(|_| !otherwise)
    }
}

impl Phase {
    /// The line that names the call site because nothing else does.
    pub fn line_alone(&self) -> Option<&str> {
        let otherwise = self.callsite.is_some() || self.function.is_some();
        self.line.as_deref().filter(|_| !otherwise)
    }
}

impl PolicyKind {
    /// The word of the policy file.
    pub fn word(self) -> &'static str {
        match self {
            PolicyKind::Default => "default",
            PolicyKind::Bind => "bind",
            PolicyKind::Preferred => "preferred",
            PolicyKind::PreferredMany => "preferred-many",
            PolicyKind::Interleave => "interleave",
            PolicyKind::WeightedInterleave => "weighted-interleave",
            PolicyKind::Block => "block",
            PolicyKind::BlockCyclic => "block-cyclic",
            PolicyKind::BindBlock => "bind-block",
            PolicyKind::Skew => "skew",
            PolicyKind::Prime => "prime",
            PolicyKind::Random => "random",
            PolicyKind::RandomBlock => "random-block",
            PolicyKind::Map => "map",
            PolicyKind::Local => "local",
        }
    }

    /// Whether it distributes blocks, each on a node of its own.
    pub fn by_blocks(self) -> bool {
        use PolicyKind::{BindBlock, Map, Random};
        self.takes_block() || matches!(self, BindBlock | Map | Random)
    }

    /// Whether a block size may be given with it.
    pub fn takes_block(self) -> bool {
        use PolicyKind::{Block, BlockCyclic, Prime, RandomBlock, Skew};
        matches!(self, Block | BlockCyclic | Skew | Prime | RandomBlock)
    }
}

/// The pattern an object was seen to have.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PatternNote {
    /// `private`, `block`, `block-cyclic`, `random`, ...
    pub kind: String,
    /// Period in bytes of a block-cyclic object; what `block = "auto"` divides by the node count.
    pub period: Option<Size>,
    /// 0 to 1.
    pub confidence: Option<f64>,
}

/// Where an object goes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The distribution.
    pub policy: PolicyKind,
    /// Block size of block, block-cyclic, random-block (required there), skew and prime (a page when absent).
    pub block: Option<Block>,
    /// Node list as numactl's (`0-3,5`, `all`, `!2`, `+0`); `all`, see [`crate::machine::Machine::own`], when absent.
    pub nodes: Option<String>,
    /// Seed of random and random-block; 0 when absent.
    pub seed: Option<u64>,
    /// Page map of `map`: runs of 4 KiB pages with their node number, `"640x0,128x3"`; starts over after the last.
    pub map: Option<String>,
    /// What to do about huge pages.
    pub huge: Option<Huge>,
    /// How the kernel is told.
    pub mode: Option<Mode>,
}

/// How pages come to their nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// A memory policy for each block (mbind): pages come when they are touched, and whatever happens to them later
    /// follows the policy. Costs one mapping per block.
    #[default]
    Policy,
    /// Every page is made to exist at once on its node: costs no mapping, but all of the object's memory, and pages that
    /// are swapped out, copied on write or collapsed into huge pages come back anywhere.
    Populate,
}

/// Transparent huge pages of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Huge {
    /// As the system and the program want it.
    #[default]
    Keep,
    /// None: blocks smaller than a huge page are then exact (MADV_NOHUGEPAGE).
    Split,
    /// Wherever a block holds one (MADV_HUGEPAGE).
    Want,
}

/// Distribution of an object's pages over nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PolicyKind {
    /// Leave it to the kernel (first touch).
    #[default]
    Default,
    /// Only on the listed nodes (MPOL_BIND).
    Bind,
    /// On the one listed node, elsewhere when it is full (MPOL_PREFERRED).
    Preferred,
    /// On the listed nodes, elsewhere when they are full (MPOL_PREFERRED_MANY, Linux 5.15).
    PreferredMany,
    /// Page i on node i mod M (MPOL_INTERLEAVE).
    Interleave,
    /// The same by the weights in /sys/kernel/mm/mempolicy/weighted_interleave (MPOL_WEIGHTED_INTERLEAVE, Linux 6.9;
    /// plain interleaving before).
    WeightedInterleave,
    /// One contiguous slice per node: block = size / nodes, rounded up to pages, unless given.
    Block,
    /// Block i on node i mod M; `auto` is period / nodes.
    BlockCyclic,
    /// One block per thread, on the node where that thread runs: as seen, as the user's OpenMP lists or the binding say, else
    /// as if bound compactly.
    BindBlock,
    /// Block i on node (i + floor(i / M) + 1) mod M, see [`crate::block_order::Order`].
    Skew,
    /// Blocks over a prime number of virtual nodes.
    Prime,
    /// Each page on a random node.
    Random,
    /// Each block on a random node.
    RandomBlock,
    /// As the page map says.
    Map,
    /// Each instance on the node of the thread that allocates it.
    Local,
}
