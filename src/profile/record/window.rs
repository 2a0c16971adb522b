//! The part of a run that is sampled: from a delay after the start on, for a duration.

use std::time::{Duration, Instant};

/// When samples are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// When they begin; none once they have.
    begin: Option<Instant>,
    /// When the recording ends, if it does not end with the program.
    end: Option<Instant>,
}

impl Window {
    /// From `delay` after `now` on, for `duration`, or to the end of the run.
    pub fn new(now: Instant, delay: Option<Duration>, duration: Option<Duration>) -> Window {
        let begin = delay.and_then(|delay| now.checked_add(delay));
        // A time beyond what the clock holds is never.
        let end = duration.and_then(|duration| begin.unwrap_or(now).checked_add(duration));
        Window { begin, end }
    }

    /// Whether samples are to be taken from now on; true once.
    pub fn begins(&mut self, now: Instant) -> bool {
        let begins = self.begin.is_some_and(|begin| begin <= now);
        if begins {
            self.begin = None;
        }
        begins
    }

    /// Whether the recording is to end.
    pub fn is_over(&self, now: Instant) -> bool {
        self.end.is_some_and(|end| end <= now)
    }

    /// The time until the next of the two, milliseconds, rounded up; none without one.
    pub fn next_ms(&self, now: Instant) -> Option<u64> {
        let next = self.begin.into_iter().chain(self.end).min()?;
        Some(next.saturating_duration_since(now).as_micros().div_ceil(1000) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_from_the_end_of_the_delay() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut w = Window::new(start, Some(Duration::from_millis(100)), Some(Duration::from_millis(50)));
        assert_eq!((w.begins(after(99)), w.is_over(after(99)), w.next_ms(after(99))), (false, false, Some(1)));
        assert_eq!((w.begins(after(100)), w.begins(after(101))), (true, false));
        assert_eq!((w.next_ms(after(100)), w.is_over(after(149)), w.is_over(after(150))), (Some(50), false, true));
        assert_eq!(w.next_ms(after(1000)), Some(0));
    }

    #[test]
    fn without_bounds_there_is_nothing_to_wait_for() {
        let start = Instant::now();
        let mut w = Window::new(start, None, None);
        assert_eq!((w.begins(start), w.is_over(start), w.next_ms(start)), (false, false, None));
        assert_eq!(Window::new(start, None, Some(Duration::MAX)).next_ms(start), None);
    }
}
