//! Handlers: plain async functions over a typed payload.

use std::future::Future;

use crate::harbor::context::Context;
use crate::harbor::failure::Failure;
use crate::harbor::outcome::IntoOutcome;

/// Handles one record at a time.
///
/// Not to be implemented by hand: any `async fn(T) -> Result<(), E>` or `async fn(T, Context) -> Result<(), E>` is
/// one, closures too, where `E` is an error of any type (see [`IntoFailure`](super::IntoFailure)). `Ok` commits the record; an error
/// sends it to the next retry level or to the dead letters. One that decides by itself returns an [`Outcome`](super::Outcome)
/// instead. A handler of a tombstone's topic takes `Option<T>`. `Args` only keeps the shapes apart and is inferred.
///
/// The future is polled where it is made and never moved to another partition: records of a partition are handled one
/// after another, in order. It may be dropped at an await, after its [cancel signal](Context::cancel) has fired.
///
/// ```
/// use kafka_harbor::harbor::{Context, Failure, Handler};
///
/// # #[derive(serde::Deserialize)]
/// # struct Order { sku: String }
/// async fn reserve(order: Order, context: Context) -> Result<(), Failure> {
///     if order.sku.is_empty() {
///         return Err(Failure::permanent("no such product"));
///     }
///     println!("attempt {} for {}", context.attempt(), order.sku);
///     Ok(())
/// }
///
/// fn check<T, Args>(_: impl Handler<T, Args>) {}
/// check(reserve);
/// check(|order: Order| async move { println!("{}", order.sku); Ok::<_, std::io::Error>(()) });
/// ```
pub trait Handler<T, Args>: Send + Sync + 'static {
    /// Handles a payload. The context is made only if it is asked for.
    fn call(
        &self,
        payload: T,
        context: impl FnOnce() -> Context + Send,
    ) -> impl Future<Output = Result<(), Failure>> + Send;
}

impl<F, Fut, T, R, Kind> Handler<T, (Kind,)> for F
where
    F: Fn(T) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = R> + Send,
    R: IntoOutcome<Kind>,
{
    #[inline]
    fn call(&self, payload: T, _: impl FnOnce() -> Context + Send) -> impl Future<Output = Result<(), Failure>> + Send {
        let handling = self(payload);
        async move { handling.await.into_outcome() }
    }
}

impl<F, Fut, T, R, Kind> Handler<T, (Kind, Context)> for F
where
    F: Fn(T, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = R> + Send,
    R: IntoOutcome<Kind>,
{
    #[inline]
    fn call(
        &self,
        payload: T,
        context: impl FnOnce() -> Context + Send,
    ) -> impl Future<Output = Result<(), Failure>> + Send {
        let handling = self(payload, context());
        async move { handling.await.into_outcome() }
    }
}
