//! Runs a model with all orders of its threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Switches between threads that are not forced, in one execution, at most: errors that need more are rare (Musuvathi
/// and Qadeer, "Iterative context bounding for systematic testing of multithreaded programs", 2007), and the orders
/// become too many.
pub const SWITCHES: usize = 3;

/// Runs `model` with all orders of its threads; of those with more than `switches` none, if it is given.
///
/// loom ends the program where an assertion of the model fails, where two threads access memory at once that is not
/// atomic, and where a thread waits for ever.
pub fn explore(name: &str, switches: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let (orders, begin) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = switches;
    let counter = Arc::clone(&orders);
    builder.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let bound = switches.map_or(String::new(), |switches| format!(" with at most {switches} switches"));
    println!("{name}: {} executions{bound}, {:.1} s", orders.load(Ordering::Relaxed), begin.elapsed().as_secs_f64());
}
