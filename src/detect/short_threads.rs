//! Threads that end before samples of the timer can tell much of them.

use crate::profile::summary::Summary;

/// Threads that lived for less than so many sampling periods count as short. A new thread's first sample comes after a
/// whole period, and what is left at its end is lost: at ten periods that is a twentieth of its work.
const SHORT_PERIODS: f64 = 10.0;
/// Share of the program's CPU time that short threads may have lived for before the shares of the cost are in doubt.
const SHORT_SHARE: f64 = 0.1;
/// Samples a second that are proposed for them; a few thousand are what the kernel's timers bear.
const FAST_HZ: u64 = 4000;

/// Short threads that make the shares of the cost rough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShortThreads {
    /// How many there are.
    pub count: u64,
    /// Their mean life, ns.
    pub mean_ns: u64,
    /// CPU time between two samples of a thread, ns.
    pub period_ns: u64,
}

impl ShortThreads {
    /// What follows for what is derived from the profile.
    pub fn remark(&self) -> String {
        let ms = |ns: u64| ns as f64 / 1e6;
        format!(
            "The {} threads that lived for {:.1} ms on average are hardly seen by a sample every {:.1} ms: the shares of \
             objects and threads, the serial part and the predicted times are rough{}.",
            self.count,
            ms(self.mean_ns),
            ms(self.period_ns),
            self.remedy()
        )
    }

    /// What to do, after "so ... are rough".
    pub fn remedy(&self) -> String {
        match self.period_ns * FAST_HZ > 1_000_000_000 {
            true => format!("; sample faster (-F {FAST_HZ})"),
            false => ", even at this rate".into(),
        }
    }
}

/// The threads whose first work is not seen, if they lived for a good part of the CPU time.
pub fn short_threads(summary: &Summary) -> Option<ShortThreads> {
    let period_ns = summary.header.sampling.period_ns;
    let lives = summary.threads.iter().filter_map(|t| Some(t.end_ns?.saturating_sub(t.start_ns)));
    let short: Vec<u64> = lives.filter(|ns| (*ns as f64) < SHORT_PERIODS * period_ns as f64).collect();
    let lived: f64 = short.iter().map(|ns| *ns as f64).sum();
    if short.is_empty() || lived < SHORT_SHARE * summary.stats.cpu_ns as f64 {
        return None;
    }
    let count = short.len() as u64;
    Some(ShortThreads { count, mean_ns: (lived / count as f64) as u64, period_ns })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::records::Thread;

    /// A program of 2 s of CPU time with `count` threads of `life_ns`, a sample every `period_ns`.
    fn run(count: u32, life_ns: u64, period_ns: u64) -> Summary {
        let mut summary = crate::detect::roles::tests::Run::new().summary();
        summary.header.sampling.period_ns = period_ns;
        summary.stats.cpu_ns = 2_000_000_000;
        let thread = |id| Thread { id, start_ns: 5, end_ns: Some(5 + life_ns), ..Thread::default() };
        summary.threads = (0..count).map(thread).collect();
        summary
    }

    #[test]
    fn threads_of_less_than_ten_periods_are_short_where_they_did_much() {
        let found = short_threads(&run(1000, 1_000_000, 2_000_000));
        assert_eq!(found, Some(ShortThreads { count: 1000, mean_ns: 1_000_000, period_ns: 2_000_000 }));
        assert_eq!(short_threads(&run(1000, 20_000_000, 2_000_000)), None, "ten samples each");
        assert_eq!(short_threads(&run(100, 1_000_000, 2_000_000)), None, "a twentieth of the time");
    }

    #[test]
    fn no_faster_rate_is_proposed_than_the_kernel_bears() {
        let remedy = |period_ns| short_threads(&run(1000, 1_000_000, period_ns)).expect("short threads").remedy();
        assert_eq!([remedy(2_000_000), remedy(250_000)], ["; sample faster (-F 4000)", ", even at this rate"]);
    }
}
