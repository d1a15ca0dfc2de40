//! Numbers that look like chance and are the same for the same seed.

/// A sequence of numbers (SplitMix64). Not for secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed(u64);

impl Seed {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 when `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // The bias is far below what a search can notice: `end` is small.
        if end == 0 { 0 } else { self.next_number() % end }
    }
}
