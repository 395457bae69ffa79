//! What spreads retries.

/// Uniform numbers in `[0, 1)` from a seed (xorshift64*): enough to spread retries.
#[derive(Debug)]
pub(crate) struct Jitter(u64);

impl Jitter {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) fn next(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
        // 53 bits fit a double exactly.
        bits as f64 / (1_u64 << 53) as f64
    }
}
