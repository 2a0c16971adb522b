//! What the ways to a sample agree on.

use super::access;
use super::path::Path;
use super::state::State;
use super::types::{CodeSource, ReplayAccess};
use super::ways::{End, Found};
use crate::profile::PAGE;
use crate::profile::perf::Regs;
use crate::profile::records::Certainty;

/// Nothing is mapped below (vm.mmap_min_addr's default): an expected address there is the end of a list.
const NULL_PAGES: u64 = 64 << 10;

/// An end with its address, or the one that the same instruction is expected to use next.
#[derive(Debug, Clone, Copy)]
struct Place {
    end: End,
    addr: u64,
    ahead: bool,
}

/// Charges the sample to what all ways agree on, in place of an access that was only expected. False when they do not
/// agree, or when the end is lost of as many as are known and it is not the `last` try.
pub(super) fn settle(
    found: &Found,
    last: bool,
    (path, regs): (&Path, &Regs),
    code: &mut dyn CodeSource,
    out: &mut Vec<ReplayAccess>,
) -> bool {
    let Some((Place { end, addr, ahead }, certainty)) = agreed(found, last, (path, regs), code) else { return false };
    out.iter_mut().for_each(|a| a.carries_cost = false);
    let (size, write) = (end.mem.size, end.mem.write);
    let carrier = ReplayAccess { ip: end.ip, addr, size, write, certainty, carries_cost: true, ahead };
    match out.iter_mut().find(|a| (a.ip, a.addr, a.write) == (carrier.ip, carrier.addr, carrier.write)) {
        Some(listed) => *listed = carrier,
        None => out.push(carrier),
    }
    true
}

/// The end to charge, and how much of it is certain.
fn agreed(
    found: &Found,
    last: bool,
    (path, regs): (&Path, &Regs),
    code: &mut dyn CodeSource,
) -> Option<(Place, Certainty)> {
    let mut places = Vec::with_capacity(found.ends.len());
    let mut lost = 0;
    for &end in &found.ends {
        match end.addr.map(|addr| Place { end, addr, ahead: false }).or_else(|| expected(end, path, regs, code)) {
            Some(place) => places.push(place),
            None => lost += 1,
        }
    }
    if !last && (lost > 0 || places.iter().any(|p| p.ahead)) {
        return None;
    }
    let first = *places.iter().find(|p| !p.ahead).or(places.first())?;
    let complete = found.open == 0 && lost == 0 && places.iter().all(|p| !p.ahead);
    if complete && !found.assumed && places.iter().all(|p| (p.end.ip, p.addr) == (first.end.ip, first.addr)) {
        return Some((first, Certainty::Exact));
    }
    if complete && !last && places.iter().all(|p| p.addr / PAGE == first.addr / PAGE) {
        return Some((first, Certainty::Page));
    }
    let object = code.object_at(first.addr);
    let mut same =
        |p: &Place| p.addr / PAGE == first.addr / PAGE || object.is_some() && code.object_at(p.addr) == object;
    places.iter().all(&mut same).then_some((first, Certainty::ObjectOnly))
}

/// Where the instruction of a lost address is expected to access next: decided by the branches ahead, or by the
/// sampled registers in place of those that are lost, when they lead to an object.
fn expected(end: End, path: &Path, regs: &Regs, code: &mut dyn CodeSource) -> Option<Place> {
    let inst = end.inst?;
    let at = |state: &State| access::next(&end.mem, state, regs).filter(|&a| a >= NULL_PAGES);
    let ahead = path.ahead.iter().find(|(i, _)| *i == inst).and_then(|(_, pre)| at(pre));
    let addr = match ahead {
        Some(addr) => addr,
        None => at(&path.states[0]).filter(|&a| code.object_at(a).is_some())?,
    };
    Some(Place { end, addr, ahead: true })
}
