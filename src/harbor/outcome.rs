//! What a handler says is to become of its record.

use std::time::Duration;

use crate::harbor::failure::{Failure, IntoFailure, Verdict};

/// What is to become of a record, said in so many words by its handler.
///
/// A handler that returns a `Result` leaves it to the consumer: `Ok` commits, and of an error
/// [`retry_if`](super::ConsumerBuilder::retry_if) and the ladder decide. One that knows better returns an `Outcome`.
///
/// ```
/// use kafka_harbor::harbor::{Failure, Outcome};
///
/// # #[derive(serde::Deserialize)]
/// # struct Order { sku: String, quantity: u32 }
/// async fn reserve(order: Order) -> Outcome {
///     match order.quantity {
///         0 => Outcome::dead_letter("an order of nothing"),
///         1..100 => Outcome::Done,
///         _ => Outcome::retry("not in stock yet"),
///     }
/// }
/// ```
#[derive(Debug)]
#[must_use = "an outcome does nothing until it is returned"]
pub enum Outcome {
    /// It is done: commit it.
    Done,
    /// It goes to the next level of its ladder whatever `retry_if` says; to the dead letters behind the last.
    Retry(Failure),
    /// It goes to the dead letters at once.
    DeadLetter(Failure),
    /// It stays where it is, uncommitted, and the consumer stops.
    Abort(Failure),
}

impl Outcome {
    /// To the next level, because of this.
    pub fn retry<E: IntoFailure<Kind>, Kind>(error: E) -> Self {
        Self::Retry(error.into_failure())
    }

    /// To the first later level that waits at least this long, because of this; to the last one if none does.
    pub fn retry_after<E: IntoFailure<Kind>, Kind>(after: Duration, error: E) -> Self {
        Self::Retry(error.into_failure().not_before(after))
    }

    /// To the dead letters, because of this.
    pub fn dead_letter<E: IntoFailure<Kind>, Kind>(error: E) -> Self {
        Self::DeadLetter(error.into_failure())
    }

    /// Stop the consumer, because of this.
    pub fn abort<E: IntoFailure<Kind>, Kind>(error: E) -> Self {
        Self::Abort(error.into_failure())
    }
}

/// What a handler may return: a [`Result`] whose error is any ([`IntoFailure`]), or an [`Outcome`].
///
/// `Kind` only keeps these apart and is inferred.
pub trait IntoOutcome<Kind> {
    /// Whether it is done, or how it failed.
    #[expect(clippy::missing_errors_doc, reason = "the error is what the handler said")]
    fn into_outcome(self) -> Result<(), Failure>;
}

/// The kinds of answer that [`IntoOutcome`] keeps apart.
pub mod answer {
    /// [`Outcome`](super::Outcome).
    #[derive(Debug)]
    pub enum Plain {}
    /// A `Result` of nothing.
    #[derive(Debug)]
    pub enum Fallible<Kind> {
        #[doc(hidden)]
        Never(std::marker::PhantomData<Kind>, std::convert::Infallible),
    }
}

impl IntoOutcome<answer::Plain> for Outcome {
    #[inline]
    fn into_outcome(self) -> Result<(), Failure> {
        match self {
            Self::Done => Ok(()),
            Self::Retry(failure) => Err(failure.judged(Verdict::Retry)),
            Self::DeadLetter(failure) => Err(failure.judged(Verdict::DeadLetter)),
            Self::Abort(failure) => Err(Failure::abort(failure)),
        }
    }
}

impl<E: IntoFailure<Kind>, Kind> IntoOutcome<answer::Fallible<Kind>> for Result<(), E> {
    #[inline]
    fn into_outcome(self) -> Result<(), Failure> {
        self.map_err(IntoFailure::into_failure)
    }
}
