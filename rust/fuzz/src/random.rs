//! Random numbers that a seed and the number of a case give back, the same everywhere.

/// SplitMix64: Steele, Lea & Flood (2014).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// Those of one case: cases do not depend on one another.
    pub(crate) fn of_case(seed: u64, case: u64) -> Self {
        let mut outer = Self(seed);
        let mixed = outer.next() ^ case.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut this = Self(mixed);
        this.next();
        this
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`, which is not 0.
    #[allow(clippy::cast_possible_truncation)] // the remainder is below a usize
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    /// True once in `n` times.
    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// Uniform in [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// About normal: the sum of twelve uniform numbers.
    pub(crate) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    /// A power of ten between `10^low` and `10^high`.
    pub(crate) fn magnitude(&mut self, low: f64, high: f64) -> f64 {
        10.0_f64.powf(low + (high - low) * self.unit())
    }

    /// A number that breaks code: zeros, denormals, the largest and the smallest, NaN, infinities, any bits.
    pub(crate) fn wild(&mut self) -> f64 {
        const WILD: [f64; 16] = [
            0.0,
            -0.0,
            5e-324,
            -5e-324,
            2.2e-308,
            1e-300,
            1e-160,
            1e160,
            1e300,
            f64::MAX,
            f64::MIN,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            1.0,
            -1.0,
        ];
        if self.one_in(4) {
            f64::from_bits(self.next())
        } else {
            *self.pick(&WILD)
        }
    }

    /// The same, but finite.
    pub(crate) fn wild_and_finite(&mut self) -> f64 {
        let wild = self.wild();
        if wild.is_finite() { wild } else { 0.0 }
    }
}
