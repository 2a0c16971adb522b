//! Numbers for tests, the same in each run.

/// Numbers below what it is asked for (Marsaglia, Xorshift RNGs, 2003).
pub fn random() -> impl FnMut(u64) -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    }
}
