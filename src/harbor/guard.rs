//! Code of the application and of adapters, run so that a panic of it ends nothing but itself.
//!
//! A callback runs on tasks that others depend on: a worker that dies of one stops its consumer, an attempt to connect
//! that dies leaves those who wait for it waiting.

use std::any::Any;
use std::fmt::{self, Write};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use crate::adapter::{Adapter, AdapterError, AdapterErrorKind, BoxFuture};
use crate::clock::{Clock, SystemClock};
use crate::record::Timestamp;

/// What a panic was raised with.
pub(crate) struct Panic(Box<dyn Any + Send>);

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(message(&*self.0))
    }
}

impl fmt::Debug for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Panic").field(&message(&*self.0)).finish()
    }
}

impl std::error::Error for Panic {}

/// The text that a panic was raised with.
fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&'static str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("a value that is no text")
}

/// What the call gives.
///
/// # Errors
/// When it panics.
pub(crate) fn call<T>(call: impl FnOnce() -> T) -> Result<T, Panic> {
    catch_unwind(AssertUnwindSafe(call)).map_err(Panic)
}

/// What the call gives, or, where it panics, `instead`; `what` tells the log who panicked.
pub(crate) fn call_or<T>(what: &str, instead: T, callback: impl FnOnce() -> T) -> T {
    call(callback).unwrap_or_else(|panic| {
        tracing::error!(%panic, "{what} panicked");
        instead
    })
}

/// What the future comes to. `make` is guarded with it.
///
/// # Errors
/// When either panics.
pub(crate) async fn run<F: Future>(make: impl FnOnce() -> F) -> Result<F::Output, Panic> {
    let mut future = pin!(Some(call(make)?));
    let done = poll_fn(|cx| match future.as_mut().as_pin_mut() {
        Some(polled) => match call(|| polled.poll(cx)) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        },
        // It is taken out below alone.
        None => Poll::Pending,
    })
    .await;
    let_go("a future", future);
    done
}

/// What a call on an adapter comes to. A panic of it is a failure like others.
pub(crate) async fn port<'a, T>(
    adapter: &'a dyn Adapter,
    what: &str,
    make: impl FnOnce(&'a dyn Adapter) -> BoxFuture<'a, Result<T, AdapterError>>,
) -> Result<T, AdapterError> {
    run(|| make(adapter)).await.unwrap_or_else(|panic| {
        let what = format_args!("{what} panicked: {panic}");
        Err(AdapterError::new(adapter.name(), AdapterErrorKind::Panicked, what))
    })
}

/// Drops what is pinned; what that panics with changes nothing.
pub(crate) fn let_go<T>(what: &str, mut held: Pin<&mut Option<T>>) {
    call_or(what, (), || held.set(None));
}

/// The text of what may panic, or fail, while it is written.
pub(crate) fn text(shown: &(impl fmt::Display + ?Sized)) -> String {
    let mut text = String::new();
    // A text that cannot be had is written as such, so that this does not fail.
    let _ = write!(text, "{}", Shown(shown));
    text
}

/// Shows what may panic, or fail, while it is shown.
pub(crate) struct Shown<'a, T: ?Sized>(pub(crate) &'a T);

impl<T: fmt::Display + ?Sized> fmt::Display for Shown<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = call(|| fmt::Display::fmt(self.0, f));
        told(shown, f)
    }
}

impl<T: fmt::Debug + ?Sized> fmt::Debug for Shown<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = call(|| fmt::Debug::fmt(self.0, f));
        told(shown, f)
    }
}

fn told(shown: Result<fmt::Result, Panic>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match shown {
        Ok(Ok(())) => Ok(()),
        // Where it is the writer that fails, so does this.
        Ok(Err(fmt::Error)) => f.write_str(" (its text cannot be had)"),
        Err(_) => f.write_str(" (its text panicked)"),
    }
}

/// A clock whose panics give way to the system's time.
#[derive(Debug)]
pub(crate) struct GuardedClock(Arc<dyn Clock>);

impl GuardedClock {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self(clock)
    }
}

impl Clock for GuardedClock {
    fn now(&self) -> Timestamp {
        call(|| self.0.now()).unwrap_or_else(|panic| {
            tracing::error!(%panic, "the clock panicked; the system's time is taken");
            SystemClock.now()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_by_its_text() {
        assert_eq!(call(|| 7).unwrap(), 7);
        assert_eq!(call(|| panic!("as text")).unwrap_err().to_string(), "as text");
        let number = 7;
        assert_eq!(call(|| panic!("number {number}")).unwrap_err().to_string(), "number 7");
        let no_text = call(|| std::panic::panic_any(number)).unwrap_err();
        assert_eq!(no_text.to_string(), "a value that is no text");
        assert_eq!(call_or("it", 1, || panic!("as text")), 1);
    }

    #[tokio::test]
    async fn a_future_is_guarded_when_it_is_made_polled_and_dropped() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("dropped");
            }
        }
        struct Ready(Option<Bomb>);
        impl Future for Ready {
            type Output = u32;
            fn poll(self: Pin<&mut Self>, _: &mut std::task::Context<'_>) -> Poll<u32> {
                assert!(self.0.is_some(), "polled");
                Poll::Ready(7)
            }
        }
        assert_eq!(run(|| std::future::ready(7)).await.unwrap(), 7);
        assert_eq!(run(|| -> std::future::Ready<u32> { panic!("made") }).await.unwrap_err().to_string(), "made");
        assert_eq!(run(|| Ready(None)).await.unwrap_err().to_string(), "polled");
        assert_eq!(run(|| Ready(Some(Bomb))).await.unwrap(), 7);
    }
}
