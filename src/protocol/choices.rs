//! What a fuzzed or seeded run decides by. Built for fuzzing and tests.

use super::error_code::ErrorCode;
use super::shape::sample::Source;

/// Decisions one after the other, as the fuzzer's input or a seed has them.
pub(crate) struct Choices<'a> {
    /// A number below the bound; `None` once there are no more.
    choose: &'a mut dyn FnMut(u32) -> Option<u32>,
}

impl<'a> Choices<'a> {
    pub(crate) fn new(choose: &'a mut dyn FnMut(u32) -> Option<u32>) -> Self {
        Self { choose }
    }

    /// The next thing to do, of so many; `None` once the run is over.
    pub(crate) fn operation(&mut self, of: u32) -> Option<u32> {
        (self.choose)(of)
    }

    /// Whether something happens that does so once in so many times.
    pub(crate) fn once_in(&mut self, times: u32) -> bool {
        self.below(times) == times - 1
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u32) as usize].clone()
    }

    /// A place in what has so many, if it has any.
    pub(crate) fn index(&mut self, of: usize) -> Option<usize> {
        (of > 0).then(|| self.below(of as u32) as usize)
    }

    /// Success half of the time, else any code, also one that nobody knows.
    pub(crate) fn code(&mut self) -> ErrorCode {
        if self.once_in(2) {
            return ErrorCode::NONE;
        }
        let known: Vec<ErrorCode> = ErrorCode::known().collect();
        match self.below(known.len() as u32 + 1) as usize {
            at if at < known.len() => known[at],
            _ => ErrorCode(self.below(1 << 16) as u16 as i16),
        }
    }

    /// Numbers around which things go wrong, and small ones.
    pub(crate) fn number(&mut self) -> i64 {
        let wild = [i64::MIN, -2, -1, i64::from(i32::MAX), i64::MAX - 1, i64::MAX];
        if self.once_in(3) { self.pick(&wild) } else { i64::from(self.below(8)) }
    }

    pub(crate) fn bytes(&mut self, at_most: u32) -> Vec<u8> {
        (0..self.below(at_most + 1)).map(|_| self.below(256) as u8).collect()
    }
}

impl Source for Choices<'_> {
    fn below(&mut self, bound: u32) -> u32 {
        // What is over decides for the smallest.
        (self.choose)(bound).unwrap_or_default()
    }
}

/// So many decisions from a seed.
#[cfg(test)]
pub(crate) fn seeded(seed: u64, mut decisions: u32) -> impl FnMut(u32) -> Option<u32> {
    let mut random = super::shape::sample::Random::new(seed);
    move |bound| {
        decisions = decisions.checked_sub(1)?;
        Some(random.below(bound))
    }
}
