//! Thresholds of the detectors, each with the reason for its value.

/// Share of the run's cost from which an object is hot, whatever the others are. Placing an object cannot save more
/// than its share of the cost times (1 - 1 / NUMA factor); below 1 % this is less than the variation between runs of
/// one program.
pub const HOT_SHARE: f64 = 0.01;

/// Part of the cost of all objects that a placement can reach which those that get a verdict have together. The advice
/// places objects until it has 95 % of the gain; gain and cost are in different orders, hence the margin.
pub const COVERED: f64 = 0.99;

/// Share of the accesses one thread must have for `private` (the figure stated in the project's contract).
pub const PRIVATE_SHARE: f64 = 0.90;

/// Smallest share of the accesses, corrected for chance, that slices must explain. Design figure: a spectrum of
/// 0.51 was measured with 50 % noise, so 0.4 leaves room for unequal slices and halo exchange; below it, placement by
/// slices would make more accesses remote than local.
pub const STRUCTURE_MIN: f64 = 0.40;

/// Evidence required beyond the cost of describing the pattern, in nats. exp(-12) is a chance of 6e-6 per object, well
/// under the tolerated one false block-cyclic in a thousand.
pub const EVIDENCE_NATS: f64 = 12.0;

/// Slices per thread that takes part up to which an object counts as "one slice per thread": noise cuts slices in two.
/// One more is accepted for a slice that wraps around the period.
pub const SLICES_PER_THREAD: f64 = 1.5;

/// Share of the samples in slices that slices beyond one for each thread may hold: a thread with few samples makes
/// slices of its stray ones wherever two of them are neighbours. An object with two real slices for some threads has
/// more in the second ones.
pub const STRAY_SLICES: f64 = 0.05;

/// Accesses that one sample of the timer sampler yields on one object, at the median of the measured kernels
/// (2.0 to 10.4 for the whole sample). Accesses of one sample are not independent.
pub const ACCESSES_PER_SAMPLE: f64 = 5.0;

/// Noise (share of accesses that ignore the slices) at which `samples_needed` must still find the slices.
pub const DESIGN_NOISE: f64 = 0.40;

/// Margin of `samples_needed` over the mean, because slices get unequal numbers of samples (Poisson).
pub const NEEDED_MARGIN: f64 = 1.4;

/// Fewest independent samples for `private`: an object shared evenly by two threads shows one thread in all of
/// ten samples once in 500 (2 x 2^-10).
pub const PRIVATE_SAMPLES: f64 = 10.0;

/// Standard deviations of a page's number of samples (Poisson) above the mean of all pages up to which all of them
/// count: a page with more differs from the others by what it holds, not by chance.
pub const HOT_SIGMA: f64 = 4.0;

/// Threads with less than this part of an equal share do not take part in the object.
pub const TAKES_PART: f64 = 0.05;

/// Evidence in nats that a run of time slots belongs to one thread alone: one chance in 10,000.
pub const SERIAL_NATS: f64 = 9.2;

/// Share of the compute part from which one thread's use alone, later than initialisation, is a phase: shorter ones (a
/// check of the result, output, the thread that finishes last) do not pay for moving pages there and back.
pub const SERIAL_PHASE: f64 = 0.15;

/// Share of a serial time slot that other threads may have (stray accesses, slot edges).
pub const SERIAL_STRAY: f64 = 0.01;

/// Loss of log-likelihood within which two periods cannot be told apart: two nats, the 95 % interval of one
/// parameter (chi-square(1) / 2 = 1.92).
pub const PERIOD_TOLERANCE: f64 = 2.0;

/// Loss of log-likelihood up to which a whole number of pages replaces a fractional period. Edges fall between samples,
/// so the best of many trial periods exceeds the true one by several nats. Of 12,000 generated traces, 18 of the 1,952
/// periods that the samples determine came out inexact with ten nats; in a third of them 7 of 665, with six nats 9.
pub const WHOLE_TOLERANCE: f64 = 10.0;

/// Misplaced samples from which a period is told from its neighbour. Each costs about two nats: three are odds of 400
/// to one.
pub const MISPLACED: f64 = 3.0;

/// Longest period searched for, as a part of the used part of the object: a second repeat shorter than a third of a
/// period is no evidence.
pub const LONGEST_PERIOD: f64 = 1.0 / 1.3;

/// Standard deviations by which early and late samples of a page must agree beyond chance for `irregular`: one chance
/// in 10^9 for normal deviates, with room for accesses that come in bursts.
pub const AFFINITY_SIGMA: f64 = 6.0;

/// Agreeing pairs of an early and a late sample beyond chance that affinity requires: for fewer pairs the normal
/// approximation does not hold.
pub const AFFINITY_PAIRS: f64 = 20.0;

/// Mean number of samples per slice that is required: with fewer, samples of one thread that are neighbours by chance
/// among hundreds of threads pass for slices (two of 2,000 random traces).
pub const SAMPLES_PER_SLICE: f64 = 2.0;

/// Share of an object's samples that a phase must have: a shorter one cannot pay for moving the pages twice.
pub const PHASE_SHARE: f64 = 0.05;

/// Sightings of each page that a phase must have where each is seen once in a window (fault sampler): the order in
/// which pages are first used in a window is that of one pass over the object, and which thread is first there says
/// nothing of other passes. A second sighting is the first one that can agree.
pub const SIGHTINGS: f64 = 2.0;

/// Evidence in nats with which further sightings of pages must tell that these belong to threads, or that they do not,
/// where each page is seen once in a window: odds of a hundred to one.
pub const REPEAT_NATS: f64 = 4.6;

/// Share of writes that "only read" tolerates: skid can charge a neighbouring store, and a copy per node that is
/// discarded once in 200 accesses still pays.
pub const READ_ONLY_STRAY: f64 = 0.005;

/// Fewest independent samples for "only read": none of a hundred being a write bounds the writes to 3 % (95 %, rule of
/// three).
pub const READ_ONLY_SAMPLES: f64 = 100.0;

/// Highest recommended sampling rate, Hz: at rates beyond a few kHz the timer sampler has stopped machines, and the
/// recorder refuses them.
pub const HIGHEST_RATE: f64 = 4000.0;

/// Share of an object's accesses that must come after its last write: copies cost a pass over the object per node,
/// which a quarter of its use outweighs.
pub const READ_ONLY_SHARE: f64 = 0.25;

/// Part of the share that a phase's own pattern explains from which the pattern of the whole run counts as equally good
/// for this phase.
pub const AS_GOOD: f64 = 0.75;
