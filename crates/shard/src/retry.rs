//! How long to wait before something that failed is tried again.

const FIRST_MS: u64 = 100;
const LONGEST_MS: u64 = 60_000;

/// The wait after the `attempts`-th failure: doubles with each further one.
pub(crate) fn retry_wait_ms(attempts: u32) -> u64 {
    let doublings = attempts.saturating_sub(1).min(20);
    (FIRST_MS << doublings).min(LONGEST_MS)
}
