//! The caches of a machine as the cost model needs them: how much one thread has of the second level, and how much the
//! threads share of the last one. What fits into them does not wait for memory, wherever its pages are.

use serde::{Deserialize, Serialize};

/// Bytes of the second level for each CPU where no source gives them: Intel's Xeon Scalable from the first generation
/// on, and AMD's Zen 4 (Intel 64 and IA-32 Optimization Reference Manual, Skylake Server Microarchitecture; AMD,
/// Software Optimization Guide for the Zen 4 Microarchitecture).
pub const DEFAULT_SECOND: u64 = 1 << 20;
/// Bytes of the last level for each CPU of a node where no source gives them: 1.375 MiB, the first two generations of
/// Xeon Scalable (same manual), the least of all current servers.
pub const DEFAULT_LAST: u64 = 1_408 << 10;

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
    /// [`DEFAULT_SECOND`] and [`DEFAULT_LAST`].
    Default,
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
    /// The documented defaults for nodes of up to `cpus` CPUs with one last-level cache each.
    pub fn default_of(cpus: usize) -> Caches {
        let cpus = cpus.max(1) as u32;
        Caches {
            second: Cache { bytes: DEFAULT_SECOND, cpus: 1 },
            last: Cache { bytes: DEFAULT_LAST * u64::from(cpus), cpus },
            source: CacheSource::Default,
        }
    }

    /// A machine without caches: every access is one to memory.
    pub const NONE: Caches = Caches {
        second: Cache { bytes: 0, cpus: 1 },
        last: Cache { bytes: 0, cpus: 1 },
        source: CacheSource::Described,
    };

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

    /// What the kernel lists of this machine.
    pub fn of_kernel(caches: &[super::cpus::Cache]) -> Option<Caches> {
        let data = caches.iter().filter(|c| c.kind != "instruction");
        Caches::of(data.map(|c| (c.level, c.size, c.cpus)), CacheSource::Kernel)
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
        assert_eq!(Caches::default_of(20).last.bytes, 27 * mib + 512 * kib, "the 27.5 MiB of a Xeon Gold 6148");
    }
}
