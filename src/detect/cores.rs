//! Work on all cores, one object at a time for each: they differ in size.

use std::sync::OnceLock;

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// What `judge` says of each item, in their order. Where no thread can be created, all on this one.
pub(crate) fn on_all<T: Send, R: Send>(items: Vec<T>, judge: impl Fn(T) -> R + Sync + Send) -> Vec<R> {
    static POOL: OnceLock<Option<ThreadPool>> = OnceLock::new();
    match POOL.get_or_init(|| ThreadPoolBuilder::new().build().ok()) {
        Some(pool) => pool.install(|| items.into_par_iter().with_max_len(1).map(judge).collect()),
        None => items.into_iter().map(judge).collect(),
    }
}
