//! Randomness.

use rustix::io::retry_on_intr;
use rustix::rand::{GetRandomFlags, getrandom};

/// A source of random bytes.
pub trait Random: Send + Sync {
    /// Fills `bytes` with random bytes.
    fn fill(&self, bytes: &mut [u8]);

    /// A random number.
    fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// The kernel's random numbers, fit for secrets. Each call is one system call.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealRandom;

impl Random for RealRandom {
    fn fill(&self, bytes: &mut [u8]) {
        let mut filled = 0;
        while filled < bytes.len() {
            let drawn = retry_on_intr(|| getrandom(&mut bytes[filled..], GetRandomFlags::empty()));
            filled += drawn.expect("Linux has had random numbers since 3.17");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_buffers_are_filled_to_the_end() {
        // 1 MiB is more than one getrandom call may return.
        let mut bytes = vec![0; 1 << 20];
        RealRandom.fill(&mut bytes);
        assert!(bytes.chunks(64).all(|chunk| chunk.iter().any(|byte| *byte != 0)));
        assert_ne!(RealRandom.next_u64(), RealRandom.next_u64());
    }
}
