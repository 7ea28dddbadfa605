//! The source of a walk's choices: random numbers, or the bytes of a fuzzer.

use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};

/// The choices of a walk, under the names that `fastrand` has for them.
#[derive(Debug)]
pub(super) struct Choices {
    bytes: VecDeque<u8>,
    /// The choices after the last byte.
    random: fastrand::Rng,
}

impl Choices {
    /// Makes random choices.
    pub(super) fn random(seed: u64) -> Self {
        Self::of_bytes(&[], seed)
    }

    /// Makes the choices that `bytes` say, and random ones after them.
    pub(super) fn of_bytes(bytes: &[u8], seed: u64) -> Self {
        Self { bytes: bytes.iter().copied().collect(), random: fastrand::Rng::with_seed(seed) }
    }

    /// Returns true if there are bytes left.
    pub(super) fn has_bytes(&self) -> bool {
        !self.bytes.is_empty()
    }

    pub(super) fn bool(&mut self) -> bool {
        self.bytes.pop_front().map_or_else(|| self.random.bool(), |byte| byte % 2 == 1)
    }

    pub(super) fn f64(&mut self) -> f64 {
        self.bytes.pop_front().map_or_else(|| self.random.f64(), |byte| f64::from(byte) / 256.0)
    }

    pub(super) fn u8(&mut self, range: impl RangeBounds<u8>) -> u8 {
        let (low, high) = ends(&range, u8::MAX);
        self.between(low.into(), high.into(), |random| random.u8(range).into()) as u8
    }

    pub(super) fn u64(&mut self, range: impl RangeBounds<u64>) -> u64 {
        let (low, high) = ends(&range, u64::MAX);
        self.between(low, high, |random| random.u64(range))
    }

    pub(super) fn usize(&mut self, range: impl RangeBounds<usize>) -> usize {
        let (low, high) = ends(&range, usize::MAX);
        self.between(low as u64, high as u64, |random| random.usize(range) as u64) as usize
    }

    /// Chooses by one byte, or by two where there are more than 256 possibilities.
    fn between(&mut self, low: u64, high: u64, draw: impl FnOnce(&mut fastrand::Rng) -> u64) -> u64 {
        let Some(byte) = self.bytes.pop_front() else { return draw(&mut self.random) };
        let span = high - low;
        let second = if span > 255 { self.bytes.pop_front().unwrap_or_default() } else { 0 };
        low + u64::from(u16::from_le_bytes([byte, second])) % span.saturating_add(1)
    }
}

/// Returns the least and the greatest value of a range.
fn ends<T: Copy + Default + std::ops::Add<Output = T> + std::ops::Sub<Output = T> + From<u8>>(
    range: &impl RangeBounds<T>,
    max: T,
) -> (T, T) {
    let low = match range.start_bound() {
        Bound::Included(low) => *low,
        Bound::Excluded(below) => *below + T::from(1),
        Bound::Unbounded => T::default(),
    };
    let high = match range.end_bound() {
        Bound::Included(high) => *high,
        Bound::Excluded(above) => *above - T::from(1),
        Bound::Unbounded => max,
    };
    (low, high)
}
