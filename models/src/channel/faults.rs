//! The part of the header that the models do not use.

use crate::atomics::{AtomicU32, AtomicU64};

pub struct Faults {
    pub interval_ns: AtomicU64,
    pub budget_ppm: AtomicU32,
}
