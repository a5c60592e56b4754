//! Zipf-distributed ranks without tables: rejection-inversion (Hörmann and Derflinger, 1996).

use super::random::Random;

/// Ranks `0..count`; rank `r` comes with a probability proportional to `1 / (r + 1)^exponent`.
#[derive(Clone, Debug, PartialEq)]
pub struct Zipf {
    count: f64,
    exponent: f64,
    /// The integral of the hat at the left end, at the right end, and the acceptance shortcut.
    left: f64,
    right: f64,
    shortcut: f64,
}

impl Zipf {
    /// The most ranks. Above this number the arithmetic is no longer exact.
    pub const COUNT: u64 = 1 << 40;

    /// `None` unless `count` is in `1..=Zipf::COUNT` and `exponent` in `(0, 10]`.
    #[must_use]
    pub fn new(count: u64, exponent: f64) -> Option<Self> {
        if count == 0 || count > Self::COUNT || !(exponent > 0.0 && exponent <= 10.0) {
            return None;
        }
        let mut zipf = Self { count: count as f64, exponent, left: 0.0, right: 0.0, shortcut: 0.0 };
        zipf.left = zipf.integral(1.5) - 1.0;
        zipf.right = zipf.integral(zipf.count + 0.5);
        zipf.shortcut = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        Some(zipf)
    }

    /// The next rank.
    pub fn sample(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.right + random.unit() * (self.left - self.right);
            let point = self.inverse(area);
            let rank = (point + 0.5).floor().clamp(1.0, self.count);
            if rank - point <= self.shortcut || area >= self.integral(rank + 0.5) - self.density(rank) {
                return rank as u64 - 1;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// The integral of the density up to `x`, in a form that also holds for an exponent of 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        ratio((1.0 - self.exponent) * log, f64::exp_m1) * log
    }

    fn inverse(&self, area: f64) -> f64 {
        // Rounding may push the product below -1, where the logarithm ends.
        let scaled = (area * (1.0 - self.exponent)).max(-1.0);
        (ratio(scaled, f64::ln_1p) * area).exp()
    }
}

/// `function(x) / x`, which tends to 1 at 0 for both functions used here.
fn ratio(x: f64, function: fn(f64) -> f64) -> f64 {
    if x.abs() > 1e-8 { function(x) / x } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_come_as_often_as_the_law_says() {
        for exponent in [0.5, 0.99, 1.0, 1.5, 3.0] {
            let (count, samples) = (100, 400_000);
            let zipf = Zipf::new(count, exponent).unwrap();
            let mut random = Random::new(7);
            let mut seen = vec![0u32; count as usize];
            for _ in 0..samples {
                seen[zipf.sample(&mut random) as usize] += 1;
            }
            let weight = |rank: usize| ((rank + 1) as f64).powf(-exponent);
            let total: f64 = (0..count as usize).map(weight).sum();
            for rank in [0, 1, 2, 9] {
                let expected = f64::from(samples) * weight(rank) / total;
                let off = (f64::from(seen[rank]) - expected).abs();
                assert!(
                    off < 5.0 * expected.sqrt() + 1.0,
                    "exponent {exponent} rank {rank}: {} for {expected}",
                    seen[rank]
                );
            }
        }
    }

    #[test]
    fn stays_in_range_and_refuses_what_it_cannot_do() {
        let mut random = Random::new(1);
        for count in [1, 2, 3, 1_000_000, Zipf::COUNT] {
            let zipf = Zipf::new(count, 0.99).unwrap();
            assert!((0..10_000).all(|_| zipf.sample(&mut random) < count));
        }
        for (count, exponent) in [(0, 1.0), (Zipf::COUNT + 1, 1.0), (10, 0.0), (10, -1.0), (10, f64::NAN), (10, 11.0)] {
            assert_eq!(Zipf::new(count, exponent), None);
        }
        assert!((0..1000).all(|_| random.below(3) < 3) && random.below(0) == 0);
    }
}
