//! From a register sample to memory accesses: the block replay of the `timer` sampler.
//!
//! A sample is the register file at one instruction boundary. Backwards from there, instructions are undone;
//! forwards, they are evaluated. Every memory operand whose registers are known gives an access with its address.
//! Because of skid the instruction just before the sampled one is the one that waited: it, or the nearest access before
//! it, is charged with the sample's time.
//!
//! The caller provides user-mode registers and, through [`CodeSource`], the code they belong to: bytes as
//! executed, at run-time addresses, whole functions. Refused (and counted in [`Outcome`]): code that cannot be
//! read or decoded, functions above 512 KiB, and paths that the sample does not determine. Gathers give only the
//! object; thread-local accesses need `fs_base`.
//!
//! `inst` describes one instruction, `decode` lowers to it, `cfg` keeps decoded functions, `state`, `eval` and `flags`
//! know what one instruction does, `path` finds the instructions executed around the sample, `access` lists the
//! accesses and charges one of them.

mod access;
mod cfg;
mod decode;
mod eval;
mod flags;
mod inst;
mod path;
mod state;
#[cfg(test)]
mod tests;

use super::model::Certainty;
use super::perf::Regs;

/// Code bytes and function bounds of the sampled process.
pub trait CodeSource {
    /// The function that holds `ip`: its first address and its bytes (runtime addresses). None when the code
    /// cannot be read. The answer for one function is cached by the caller under `(key, start)`.
    fn function_at(&mut self, ip: u64) -> Option<Function<'_>>;
}

/// A function's code.
#[derive(Debug, Clone, Copy)]
pub struct Function<'a> {
    /// Distinguishes address spaces and reloads: same key and start, same code.
    pub key: u64,
    /// Runtime address of the first byte.
    pub start: u64,
    /// Code bytes.
    pub code: &'a [u8],
}

/// One access found by replaying a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayAccess {
    /// Address of the instruction.
    pub ip: u64,
    /// Address accessed (for [`Certainty::ObjectOnly`] the base register's value, or with `ahead` the
    /// address expected for the next iteration).
    pub addr: u64,
    /// Bytes accessed.
    pub size: u8,
    /// Store or read-modify-write.
    pub write: bool,
    /// How the address was found.
    pub certainty: Certainty,
    /// This access waited: it is charged with the sample's time. At most one per sample.
    pub carries_cost: bool,
    /// Executed after the sample. With `carries_cost`: the address of the access that waited is lost, and this is
    /// the next access of the same instruction.
    pub ahead: bool,
}

/// Result of the replay of a sample; the report counts each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The waiting access is among the accesses, with an address.
    Resolved,
    /// No instruction on the path accesses memory.
    NoAccess,
    /// The waiting access lies before a merge of several possible paths, or its address registers are lost.
    Unresolved,
    /// The waiting access is a gather or scatter: object only.
    Vsib,
    /// The waiting access goes to TLS through fs or gs.
    Tls,
    /// The code could not be read or decoded.
    Undecoded,
}

/// Replays samples; keeps the functions it has decoded (bounded, about 40 MiB at most).
#[derive(Debug, Default)]
pub struct Replayer {
    cache: cfg::Cache,
    path: path::Path,
    marks: access::Marks,
}

impl Replayer {
    /// An empty cache.
    pub fn new() -> Replayer {
        Replayer::default()
    }

    /// The accesses around a sample, into `out` (cleared first). At most one of them carries the cost; with
    /// [`Outcome::Resolved`] exactly one does, with [`Outcome::Vsib`] one if the base register is known.
    pub fn replay(&mut self, regs: &Regs, code: &mut dyn CodeSource, out: &mut Vec<ReplayAccess>) -> Outcome {
        out.clear();
        let Some(function) = code.function_at(regs.ip) else { return Outcome::Undecoded };
        let Some(fun) = self.cache.get(&function) else { return Outcome::Undecoded };
        let Some(ip) = fun.at(regs.ip) else { return Outcome::Undecoded };
        let stop = path::find(&fun, ip, &regs.gpr, regs.flags, &mut self.path);
        access::collect(&fun, &self.path, stop, (ip, regs), &mut self.marks, out)
    }
}
