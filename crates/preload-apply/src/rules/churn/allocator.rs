//! What the program's own allocator does with large blocks: whether it maps each by itself and unmaps it when it is
//! freed, or takes it from a heap that keeps what was freed.
//!
//! - glibc maps blocks from M_MMAP_THRESHOLD on, which rises to 32 MiB at most, and gives the end of its heap back
//!   where that is as large as M_TRIM_THRESHOLD, but for M_TOP_PAD bytes. mallopt(3), the variables that it names,
//!   and GLIBC_TUNABLES, which goes before these, change all of it: with M_MMAP_MAX of 0 every block is in the heap,
//!   and with a high M_TRIM_THRESHOLD it stays there. Heaps of other threads than the first are given back; that is
//!   not told apart.
//! - tcmalloc keeps large blocks.
//! - Of other allocators nothing is known (jemalloc and mimalloc, as they are by default, give such blocks back).
//!   Nothing is kept then; what placing costs is charged, and a pause of placing tells, see [`super`].

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use numamma_hook::environment;
use numamma_hook::glibc;
use numamma_hook::real::behind::{self, Provider};
use numamma_plan::machine::Thp;

/// Size from which untuned glibc maps each block: DEFAULT_MMAP_THRESHOLD_MAX.
pub const ALWAYS_MAPPED: usize = 32 << 20;
/// DEFAULT_TRIM_THRESHOLD.
const TRIM_THRESHOLD: usize = 128 << 10;
/// DEFAULT_MMAP_MAX.
const MMAP_MAX: i32 = 65_536;
/// First version of glibc, 2.35, in which M_MMAP_THRESHOLD may be more than [`ALWAYS_MAPPED`], and with glibc.malloc.hugetlb.
const NEWER: u32 = 35;

/// The parameters of mallopt(3) that count: their number, variable and tunable.
const PARAMETERS: [(c_int, &str, &[u8]); 4] = [
    (libc::M_TRIM_THRESHOLD, "MALLOC_TRIM_THRESHOLD_", b"glibc.malloc.trim_threshold"),
    (libc::M_TOP_PAD, "MALLOC_TOP_PAD_", b"glibc.malloc.top_pad"),
    (libc::M_MMAP_THRESHOLD, "MALLOC_MMAP_THRESHOLD_", b"glibc.malloc.mmap_threshold"),
    (libc::M_MMAP_MAX, "MALLOC_MMAP_MAX_", b"glibc.malloc.mmap_max"),
];

/// What glibc was told, or does without.
struct Told {
    trim: AtomicUsize,
    pad: AtomicUsize,
    /// 0: nothing.
    threshold: AtomicUsize,
    mappings: AtomicI32,
}

static TOLD: Told = Told::new();
static HAS_READ: AtomicBool = AtomicBool::new(false);
/// The allocator is not glibc's: the sizes do not follow [`TOLD`].
static IS_FOREIGN: AtomicBool = AtomicBool::new(false);

/// See [`mapped_from`], [`kept_below`] and [`wants_huge_pages`].
static MAPPED_FROM: AtomicUsize = AtomicUsize::new(ALWAYS_MAPPED);
static KEPT_BELOW: AtomicUsize = AtomicUsize::new(ALWAYS_MAPPED);
static WANTS_HUGE: AtomicBool = AtomicBool::new(false);

impl Told {
    const fn new() -> Told {
        Told {
            trim: AtomicUsize::new(TRIM_THRESHOLD),
            pad: AtomicUsize::new(0),
            threshold: AtomicUsize::new(0),
            mappings: AtomicI32::new(MMAP_MAX),
        }
    }

    fn set(&self, parameter: c_int, value: usize) {
        match parameter {
            libc::M_TRIM_THRESHOLD => self.trim.store(value, Ordering::Relaxed),
            libc::M_TOP_PAD => self.pad.store(value, Ordering::Relaxed),
            libc::M_MMAP_THRESHOLD => self.threshold.store(value, Ordering::Relaxed),
            libc::M_MMAP_MAX => self.mappings.store(value as i32, Ordering::Relaxed),
            _ => {}
        }
    }

    /// As [`mapped_from`] and [`kept_below`].
    fn sizes(&self) -> (usize, usize) {
        let threshold = self.threshold.load(Ordering::Relaxed).max(ALWAYS_MAPPED);
        let mapped_from = if self.mappings.load(Ordering::Relaxed) > 0 { threshold } else { usize::MAX };
        let stays = self.trim.load(Ordering::Relaxed).max(self.pad.load(Ordering::Relaxed));
        (mapped_from, mapped_from.min(stays).max(ALWAYS_MAPPED))
    }
}

/// Size from which the allocator maps each block and unmaps it when it is freed, [`ALWAYS_MAPPED`] at least.
#[inline]
pub fn mapped_from() -> usize {
    MAPPED_FROM.load(Ordering::Relaxed)
}

/// Size of blocks below which the allocator keeps what is freed, [`ALWAYS_MAPPED`] at least.
#[inline]
pub fn kept_below() -> usize {
    KEPT_BELOW.load(Ordering::Relaxed)
}

/// Whether the allocator is glibc's and neither maps nor unmaps any block.
pub fn never_maps() -> bool {
    mapped_from() == usize::MAX && !IS_FOREIGN.load(Ordering::Relaxed)
}

/// Whether the allocator is not glibc's, as far as that was found out.
pub fn is_foreign() -> bool {
    IS_FOREIGN.load(Ordering::Relaxed)
}

/// Size up to which glibc may take blocks from its heap because it was told so, and bytes at the heap's end that it
/// keeps. Padding counts as both: a heap that grew by it has room for blocks that would else be mapped.
pub fn told_sizes() -> (usize, usize) {
    let [trim, pad, threshold] = [&TOLD.trim, &TOLD.pad, &TOLD.threshold].map(|told| told.load(Ordering::Relaxed));
    (threshold.max(pad), trim.max(pad))
}

/// Whether the allocator asks for huge pages for what it maps from their size on.
#[inline]
pub fn wants_huge_pages() -> bool {
    WANTS_HUGE.load(Ordering::Relaxed)
}

/// Finds out which allocator it is, once the files behind this library are known.
pub fn start(thp: Thp) {
    read_environment();
    let tcmalloc = match behind::provider() {
        Provider::Libc => {
            // glibc asks for them where the kernel gives them on request alone.
            let is_told = tunables().filter(|(name, _)| *name == b"glibc.malloc.hugetlb").last();
            let asks = is_told.is_some_and(|(_, value)| number(value) == Some(1));
            return WANTS_HUGE.store(asks && is_newer() && thp == Thp::Madvise, Ordering::Relaxed);
        }
        Provider::Other(file) => file.defines(c"tc_malloc"),
        Provider::Unknown => false,
    };
    IS_FOREIGN.store(true, Ordering::Relaxed);
    MAPPED_FROM.store(usize::MAX, Ordering::Relaxed);
    KEPT_BELOW.store(if tcmalloc { usize::MAX } else { ALWAYS_MAPPED }, Ordering::Relaxed);
}

/// Notes that mallopt(3) set `parameter` to `value`. [`kept_below`] before and after.
pub fn told(parameter: c_int, value: c_int) -> (usize, usize) {
    read_environment();
    TOLD.set(parameter, value as usize);
    let before = kept_below();
    follow();
    (before, kept_below())
}

fn follow() {
    if !IS_FOREIGN.load(Ordering::Relaxed) {
        let (mapped_from, kept_below) = TOLD.sizes();
        MAPPED_FROM.store(mapped_from, Ordering::Relaxed);
        KEPT_BELOW.store(kept_below, Ordering::Relaxed);
    }
}

/// Reads what glibc read at its start. Once, and before the first call of mallopt counts.
fn read_environment() {
    if HAS_READ.swap(true, Ordering::Relaxed) {
        return;
    }
    let variables = PARAMETERS.iter().map(|&(parameter, variable, _)| (parameter, environment::value(variable)));
    let of_tunable = |name: &[u8]| PARAMETERS.iter().find(|(_, _, tunable)| *tunable == name).map(|found| found.0);
    let tunables = tunables().filter_map(|(name, value)| Some((of_tunable(name)?, Some(value))));
    for (parameter, value) in variables.chain(tunables) {
        let Some(value) = value.and_then(number) else { continue };
        let is_valid = match parameter {
            libc::M_MMAP_MAX => i32::try_from(value).is_ok(),
            libc::M_MMAP_THRESHOLD => value <= ALWAYS_MAPPED || is_newer(),
            _ => true,
        };
        if is_valid {
            TOLD.set(parameter, value);
        }
    }
    follow();
}

/// Names and values of GLIBC_TUNABLES.
fn tunables() -> impl Iterator<Item = (&'static [u8], &'static [u8])> {
    let all = environment::value("GLIBC_TUNABLES").unwrap_or_default();
    all.split(|&byte| byte == b':').filter_map(|one| {
        let at = one.iter().position(|&byte| byte == b'=')?;
        Some((one.get(..at)?, one.get(at + 1..)?))
    })
}

/// A number as strtoul(3) reads it: decimal, octal after `0`, hexadecimal after `0x`, and negative ones modulo 2^64.
fn number(text: &[u8]) -> Option<usize> {
    let text = core::str::from_utf8(text).ok()?.trim_ascii();
    let (is_negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let value = match (hexadecimal, digits.strip_prefix('0')) {
        (Some(digits), _) => usize::from_str_radix(digits, 16),
        (None, Some(digits)) if !digits.is_empty() => usize::from_str_radix(digits, 8),
        _ => digits.parse(),
    };
    value.ok().map(|value| if is_negative { value.wrapping_neg() } else { value })
}

/// Whether this glibc is [`NEWER`].
fn is_newer() -> bool {
    glibc::is_at_least(NEWER)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn what_glibc_was_told_decides_which_blocks_stay_in_its_heap() {
        let sizes = |told: &[(c_int, usize)]| {
            let all = Told::new();
            told.iter().for_each(|&(parameter, value)| all.set(parameter, value));
            all.sizes()
        };
        let (never, trim) = ((libc::M_MMAP_MAX, 0), libc::M_TRIM_THRESHOLD);
        assert_eq!(sizes(&[]), (32 * MIB, 32 * MIB));
        assert_eq!(sizes(&[(trim, usize::MAX)]), (32 * MIB, 32 * MIB), "it maps them");
        assert_eq!(sizes(&[never]), (usize::MAX, 32 * MIB), "it gives the end of its heap back");
        assert_eq!(sizes(&[never, (trim, usize::MAX)]), (usize::MAX, usize::MAX));
        assert_eq!(sizes(&[never, (libc::M_TOP_PAD, 100 * MIB)]), (usize::MAX, 100 * MIB));
        assert_eq!(sizes(&[(libc::M_MMAP_THRESHOLD, 64 * MIB), (trim, 80 * MIB)]), (64 * MIB, 64 * MIB));
        assert_eq!(sizes(&[(libc::M_MMAP_THRESHOLD, MIB), (trim, 80 * MIB)]), (32 * MIB, 32 * MIB));
    }

    #[test]
    fn numbers_are_read_as_glibc_does() {
        let all = ["0", "65536", "0x100", "010", "-1", " 7 ", "", "-", "1k"].map(|text| number(text.as_bytes()));
        assert_eq!(all, [Some(0), Some(65_536), Some(256), Some(8), Some(usize::MAX), Some(7), None, None, None]);
    }
}
