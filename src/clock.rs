//! What time it is. A seam, so that tests can move time and see records' timestamps move with it.

use std::fmt;

use crate::record::Timestamp;

/// Tells wall-clock time.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time now. May step back where the system's clock is set back.
    fn now(&self) -> Timestamp;
}

/// The system's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// Wall-clock time that moves with tokio's: under a paused runtime it stands still and jumps as timers fire.
///
/// All clocks of a process agree: they count from one reading of the system's clock, taken at the first use. A later
/// correction of the system's clock is not seen, so a service that compares its time with other machines' takes
/// [`SystemClock`].
#[cfg(feature = "harbor")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokioClock;

#[cfg(feature = "harbor")]
impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        use std::sync::OnceLock;
        use std::time::Instant;

        static ANCHOR: OnceLock<(Timestamp, Instant)> = OnceLock::new();
        let (wall, instant) = *ANCHOR.get_or_init(|| (Timestamp::now(), Instant::now()));
        let now = tokio::time::Instant::now().into_std();
        // A paused runtime may have frozen its time before the anchor was taken. Rounding towards the past on both
        // sides keeps the distance of two readings exact to the millisecond.
        let millis = match now.checked_duration_since(instant) {
            Some(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
            None => -i64::try_from((instant - now).as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX),
        };
        Timestamp(wall.0.saturating_add(millis))
    }
}

#[cfg(all(test, feature = "harbor"))]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn paused_time_moves_the_wall_clock_by_exactly_what_was_slept() {
        let before = TokioClock.now();
        std::thread::sleep(Duration::from_millis(3));
        assert_eq!(TokioClock.now(), before, "real time passes, paused time does not");
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(TokioClock.now().0 - before.0, 3_600_000);
    }

    #[test]
    fn without_pause_it_follows_the_system() {
        let apart = TokioClock.now().0 - SystemClock.now().0;
        assert!(apart.abs() < 1_000, "{apart} ms apart");
    }
}
