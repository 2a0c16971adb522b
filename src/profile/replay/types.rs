//! What the caller provides to a replay, and what it returns.

use crate::profile::records::Certainty;

/// Code bytes and function bounds of the sampled process.
pub trait CodeSource {
    /// The function that holds `ip`: its first address and its bytes (runtime addresses). None when the code
    /// cannot be read. The answer for one function is cached by the caller under `(key, start)`.
    fn function_at(&mut self, ip: u64) -> Option<Function<'_>>;

    /// The object at an address, as a number; None when it is not known. Ways that differ in the address agree when
    /// they agree in this.
    fn object_at(&mut self, _addr: u64) -> Option<u64> {
        None
    }

    /// `bytes.len()` bytes of memory that the program does not change while it runs: read-only data and addresses that
    /// the dynamic linker has filled in. False when they are not of that kind.
    fn constant(&mut self, _addr: u64, _bytes: &mut [u8]) -> bool {
        false
    }

    /// Memory of the program as it is by now, which may be other than it was. False when it cannot be read.
    fn memory_now(&mut self, _addr: u64, _bytes: &mut [u8]) -> bool {
        false
    }
}

/// An integer of memory as it is by now.
pub(super) fn now(code: &mut dyn CodeSource, addr: u64, size: u8) -> Option<u64> {
    let mut bytes = [0; 8];
    let part = bytes.get_mut(..usize::from(size))?;
    code.memory_now(addr, part).then(|| u64::from_le_bytes(bytes))
}

/// An integer of memory that does not change.
pub(super) fn constant(code: &mut dyn CodeSource, addr: u64, size: u8) -> Option<u64> {
    let mut bytes = [0; 8];
    let part = bytes.get_mut(..usize::from(size))?;
    code.constant(addr, part).then(|| u64::from_le_bytes(bytes))
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
    /// The waiting access is a gather or scatter whose indices are lost: object only.
    Vsib,
    /// The waiting access goes to TLS through fs or gs.
    Tls,
    /// The code could not be read or decoded.
    Undecoded,
}
