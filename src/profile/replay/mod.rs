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
//! object where their indices are lost; thread-local accesses need `fs_base`.
//!
//! `inst` describes one instruction, `decode` lowers to it, `cfg` keeps decoded functions, `state`, `eval` and `flags`
//! know what one instruction does, `path` finds the instructions executed around the sample, `access` lists the
//! accesses and charges one of them, `operand` finds what an instruction with a constant operand waited for, `vector`
//! and `gather` know the lanes of gathers, and `recover` the addresses whose registers are overwritten. `ways` follows
//! all ways to a sample, and `agree` says what they have in common. `loops` finds the loops of a function, `addresses`
//! how the addresses in them come about.

mod access;
mod addresses;
mod agree;
mod cfg;
mod decode;
mod eval;
mod fill;
mod flags;
mod gather;
mod inst;
mod loops;
mod operand;
mod path;
mod recover;
mod spins;
mod state;
#[cfg(test)]
mod tests;
mod types;
mod vector;
mod ways;

use super::perf::Regs;

pub use addresses::Addresses;
pub use loops::Loops;
pub use types::{CodeSource, Function, Outcome, ReplayAccess};

/// Replays samples; keeps the functions it has decoded (bounded, about 40 MiB at most).
#[derive(Debug, Default)]
pub struct Replayer {
    cache: cfg::Cache,
    path: path::Path,
    marks: access::Marks,
    ways: ways::Ways,
}

impl Replayer {
    /// An empty cache.
    pub fn new() -> Replayer {
        Replayer::default()
    }

    /// The accesses around a sample, into `out` (cleared first). At most one of them carries the cost; with
    /// [`Outcome::Resolved`] exactly one does, with [`Outcome::Vsib`] one if the base register is known.
    pub fn replay(
        &mut self,
        regs: &Regs,
        stack: &[u8],
        code: &mut dyn CodeSource,
        out: &mut Vec<ReplayAccess>,
    ) -> Outcome {
        out.clear();
        let Some(fun) = self.cache.get(regs.ip, code) else { return Outcome::Undecoded };
        let Some(ip) = fun.at(regs.ip) else { return Outcome::Undecoded };
        let stop = path::find(&fun, ip, &regs.gpr, regs.flags, &mut self.path);
        let charged = access::collect(&fun, &self.path, stop, (ip, regs), &mut self.marks, code, out);
        let outcome = charged.outcome;
        if outcome == Outcome::Vsib && gather::resolve(&fun, &self.path, regs, code, out) {
            return Outcome::Resolved;
        }
        if !charged.weak {
            return outcome;
        }
        let sample = fill::Sample { regs, stack };
        if charged.lost.is_some_and(|k| recover::resolve((&fun, &self.path), k, sample, code, out)) {
            return Outcome::Resolved;
        }
        // First by what is certain, then by what the program's memory holds by now.
        for now in [false, true] {
            let found = self.ways.follow(&fun, ip, now, sample, &mut self.cache, code);
            if agree::settle(found, now, (&self.path, regs), code, out) {
                return Outcome::Resolved;
            }
        }
        if outcome == Outcome::Unresolved
            && charged.lost.is_some_and(|k| recover::by_base((&fun, &self.path), k, code, out))
        {
            return Outcome::Resolved;
        }
        outcome
    }

    /// Whether the instruction at `ip` writes to memory. `None` where its code cannot be read, or has operands of both
    /// kinds.
    pub fn writes(&mut self, ip: u64, code: &mut dyn CodeSource) -> Option<bool> {
        let fun = self.cache.get(ip, code)?;
        let (first, others) = fun.operands(&fun.insts[fun.at(ip)? as usize]).split_first()?;
        others.iter().all(|other| other.write == first.write).then_some(first.write)
    }

    /// What the last search for the ways to a sample found, to be printed.
    pub fn last_search(&self) -> String {
        self.ways.to_string()
    }
}
