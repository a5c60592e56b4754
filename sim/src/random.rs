//! The one source of chance: a seed, and numbers drawn from it.

use std::sync::Mutex;

use millrace_io::Random;

/// SplitMix64: small, and the same on every machine and in every version, so that a seed written
/// in a bug report still replays.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Numbers that depend on `seed` only.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }

    /// An index of something with `length` elements.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("below a usize")
    }

    /// True `numerator` times in `denominator`.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// An independent source.
    pub fn fork(&mut self) -> Rng {
        Rng(self.draw())
    }
}

/// Bits that look random to everybody, and depend on `value` only.
#[must_use]
pub fn mix(value: u64) -> u64 {
    let mut bits = value;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// The random numbers that the log salts its segments with.
pub struct SimRandom(Mutex<Rng>);

impl SimRandom {
    /// Numbers that depend on `seed` only.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(Rng::new(seed)))
    }
}

impl Random for SimRandom {
    fn fill(&self, bytes: &mut [u8]) {
        let mut rng = self.0.lock().expect("the simulator has one thread");
        for chunk in bytes.chunks_mut(8) {
            let word = rng.draw().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}
