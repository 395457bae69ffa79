//! What the targets share.

/// Runs it, and asserts that it never held more than so many bytes at once: nothing that a peer says sizes an allocation.
///
/// Memory is counted where Rust allocates it; what a C library takes is not.
pub fn within<T>(most: u64, run: impl FnOnce() -> T) -> T {
    let mut out = None;
    let taken = allocation_counter::measure(|| out = Some(run()));
    assert!(taken.bytes_max <= most, "{} bytes at once, and {most} is the most", taken.bytes_max);
    out.expect("it ran")
}

/// The fuzzer's bytes as numbers below a bound, until they are at an end.
pub fn choices(input: &[u8]) -> impl FnMut(u32) -> Option<u32> + '_ {
    let mut input = libfuzzer_sys::arbitrary::Unstructured::new(input);
    move |bound| if input.is_empty() { None } else { input.int_in_range(0..=bound - 1).ok() }
}

/// So many times the input, and something besides.
pub fn ceiling(times: u64, input: &[u8], besides: u64) -> u64 {
    times * input.len() as u64 + besides
}
