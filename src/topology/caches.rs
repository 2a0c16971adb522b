//! The caches of a machine as the cost model needs them: how much one thread has of the second level, and how much the
//! threads share of the last one. What fits into them does not wait for memory, wherever its pages are.
//!
//! Where no source gives sizes, nothing is assumed to be in a cache: an assumed size would leave an object unplaced for
//! which nothing but the assumption says that it is cached. But for what fits into any cache ([`ANYWHERE`]).

use serde::{Deserialize, Serialize};

/// Bytes of an object that fits as a whole into the first level of any CPU of a machine with several nodes, as far as
/// these have one of their own.
pub const ANYWHERE: u64 = 32 << 10;

/// Caches of one level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// Bytes; 0 where the machine has no cache of this level.
    pub bytes: u64,
    /// CPUs that share it; at least 1.
    pub cpus: u32,
}

/// Source of the sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheSource {
    /// The kernel's list under /sys/devices/system/cpu.
    Kernel,
    /// An hwloc file or a synthetic description.
    Described,
    /// No source gives sizes.
    Unknown,
    /// Sizes that the kernel lists of a CPU which an emulator makes up: they are not used.
    Emulated,
}

/// Second and last level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caches {
    /// Level 2.
    pub second: Cache,
    /// The highest level from 3 on.
    pub last: Cache,
    /// Source of the sizes.
    pub source: CacheSource,
}

impl Caches {
    /// A machine of whose caches nothing is known: every access is priced as one to memory.
    pub const UNKNOWN: Caches =
        Caches { second: Cache { bytes: 0, cpus: 1 }, last: Cache { bytes: 0, cpus: 1 }, source: CacheSource::Unknown };
    /// The least that a CPU of a machine with several nodes finds in caches: the second level of Intel's from Nehalem
    /// to Broadwell and of POWER7, 256 KiB; AMD's and later ones have more, and ThunderX has as much for each CPU in
    /// one cache of a node.
    pub const LEAST: Caches = Caches { second: Cache { bytes: 256 << 10, cpus: 1 }, ..Caches::UNKNOWN };
    /// A machine without caches: every access is one to memory.
    pub const NONE: Caches = Caches { source: CacheSource::Described, ..Caches::UNKNOWN };

    /// From the level, the size and the number of CPUs of each data or unified cache; none when there is no second
    /// level among them. Of unequal caches of a level those with the least for each CPU count.
    pub fn of(list: impl IntoIterator<Item = (u32, u64, usize)>, source: CacheSource) -> Option<Caches> {
        let list: Vec<(u32, Cache)> = list
            .into_iter()
            .filter(|(_, bytes, cpus)| *bytes > 0 && *cpus > 0)
            .map(|(level, bytes, cpus)| (level, Cache { bytes, cpus: cpus as u32 }))
            .collect();
        let highest = list.iter().map(|(level, _)| *level).max()?;
        let least = |level: u32| {
            let of_level = list.iter().filter(|(l, _)| *l == level).map(|(_, c)| *c);
            of_level.min_by_key(|c| c.bytes / u64::from(c.cpus))
        };
        let last = if highest > 2 { least(highest) } else { None };
        Some(Caches { second: least(2)?, last: last.unwrap_or(Caches::NONE.last), source })
    }

    /// What the kernel lists of this machine; `made_up` where an emulator makes its CPUs up.
    pub fn of_kernel(caches: &[super::cpus::Cache], made_up: bool) -> Caches {
        if made_up {
            return Caches { source: CacheSource::Emulated, ..Caches::UNKNOWN };
        }
        let data = caches.iter().filter(|c| c.kind != "instruction");
        Caches::of(data.map(|c| (c.level, c.size, c.cpus)), CacheSource::Kernel).unwrap_or(Caches::UNKNOWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_and_last_level_of_a_list() {
        let (kib, mib) = (1u64 << 10, 1u64 << 20);
        let list = [(1, 32 * kib, 2), (2, 512 * kib, 2), (2, 2 * mib, 4), (3, 32 * mib, 16), (3, 96 * mib, 16)];
        let found = Caches::of(list, CacheSource::Kernel).unwrap();
        assert_eq!(found.second, Cache { bytes: 512 * kib, cpus: 2 }, "the least for each CPU");
        assert_eq!(found.last, Cache { bytes: 32 * mib, cpus: 16 });
        let two = Caches::of([(1, 32 * kib, 1), (2, 4 * mib, 2)], CacheSource::Described).unwrap();
        assert_eq!((two.second.bytes, two.last.bytes), (4 * mib, 0));
        assert_eq!(Caches::of([(1, 32 * kib, 1)], CacheSource::Kernel), None);
    }

    #[test]
    fn what_an_emulated_cpu_claims_is_not_used() {
        let claimed =
            [super::super::cpus::Cache { level: 2, kind: "unified".into(), size: 4 << 20, cpus: 1, count: 8 }];
        let of = |made_up| Caches::of_kernel(&claimed, made_up);
        assert_eq!((of(false).second.bytes, of(false).source), (4 << 20, CacheSource::Kernel));
        assert_eq!((of(true).second.bytes, of(true).last.bytes, of(true).source), (0, 0, CacheSource::Emulated));
        assert_eq!(Caches::of_kernel(&[], false), Caches::UNKNOWN);
    }
}
