//! Whether memory that is given back can help a call of the program that asks for much: one that asks for more than the
//! process can ever have fails without and with it, and each such call would give back what comes again.

use numamma_hook::{errno, sandbox};
use numamma_kernel::overcommit::{self, ADDRESS_SPACE};
use numamma_kernel::{mappings, statm};

use super::sum;
use crate::rules::heap_account;

/// Bytes that are not worth a look.
const LITTLE: usize = 32 << 20;

/// Whether private memory of `bytes` can be had once all is given back that this library keeps.
#[inline]
pub fn can_be_had(bytes: usize) -> bool {
    can_be_mapped(bytes) && (bytes < LITTLE || !is_refused(bytes))
}

/// As [`can_be_had`], for mappings of any kind, which need not count as memory.
#[inline]
pub fn can_be_mapped(bytes: usize) -> bool {
    bytes < LITTLE || ((bytes as u64) < ADDRESS_SPACE && fits_limits(bytes))
}

#[cold]
#[inline(never)]
fn is_refused(bytes: usize) -> bool {
    let _errno = errno::Saved::now();
    sandbox::entered() || overcommit::is_never_mapped(bytes as u64)
}

/// Whether the limits of address space and data (`ulimit -v`, `-d`) leave room for `bytes`.
#[cold]
#[inline(never)]
fn fits_limits(bytes: usize) -> bool {
    let _errno = errno::Saved::now();
    if sandbox::entered() {
        return false; // nothing is given back any more
    }
    let limits = mappings::limits();
    if limits == [u64::MAX; 2] {
        return true;
    }
    let Some(now) = statm::read() else { return true };
    let own = sum::bytes().saturating_add(heap_account::extents());
    let fits = |limit: u64, used: usize| used.saturating_sub(own).saturating_add(bytes) as u64 <= limit;
    fits(limits[0], now.size) && fits(limits[1], now.data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_process_can_have_is_told() {
        assert!(can_be_had(0) && can_be_had(LITTLE) && !can_be_had(1 << 62) && !can_be_had(usize::MAX));
        assert!(can_be_mapped(1 << 40) && !can_be_mapped(1 << 62), "this process has no limit");
    }
}
