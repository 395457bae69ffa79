//! Which letters are brought back.

use std::future::Future;
use std::sync::Arc;

use crate::adapter::BoxFuture;
use crate::harbor::failure::{Classifiers, Failure, IntoFailure};
use crate::harbor::guard;
use crate::harbor::redrive::DeadLetter;
use crate::harbor::serializer::{self, Deserializer};

/// What a filter may answer with: a `bool`, or a `Result` of one. `Kind` only keeps these apart and is inferred.
pub trait IntoVerdict<Kind> {
    /// Whether the letter is wanted.
    ///
    /// # Errors
    /// When the filter failed.
    fn into_verdict(self) -> Result<bool, Failure>;
}

impl IntoVerdict<()> for bool {
    fn into_verdict(self) -> Result<bool, Failure> {
        Ok(self)
    }
}

impl<E: IntoFailure<Kind>, Kind> IntoVerdict<(Kind,)> for Result<bool, E> {
    fn into_verdict(self) -> Result<bool, Failure> {
        self.map_err(IntoFailure::into_failure)
    }
}

/// A filter of whatever shape; without one every letter is wanted.
#[derive(Clone, Default)]
pub(super) struct Filter(Option<Ask>);

type Ask = Arc<dyn Fn(DeadLetter) -> BoxFuture<'static, Result<bool, Failure>> + Send + Sync>;

impl Filter {
    pub(super) fn new<F>(ask: impl Fn(DeadLetter) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<bool, Failure>> + Send + 'static,
    {
        Self(Some(Arc::new(move |letter| Box::pin(ask(letter)))))
    }

    /// Asks with the payload. It is read under the topic where the letter was first, as its consumer read it.
    pub(super) fn of_payload<T, D, F, V, Kind>(
        deserializer: Arc<D>,
        ask: impl Fn(T, DeadLetter) -> F + Send + Sync + 'static,
    ) -> Self
    where
        D: Deserializer<T>,
        T: Send + 'static,
        F: Future<Output = V> + Send + 'static,
        V: IntoVerdict<Kind>,
    {
        let ask = Arc::new(ask);
        Self::new(move |letter| {
            let (deserializer, ask) = (deserializer.clone(), ask.clone());
            async move {
                let topic = letter.retry.as_ref().map_or(&letter.partition.topic, |retry| &retry.original_topic);
                let value = letter.value.as_deref();
                let payload = serializer::read(&*deserializer, topic, value, &Classifiers::default()).await?;
                let verdict = ask(payload, letter);
                verdict.await.into_verdict()
            }
        })
    }

    /// Whether there is a filter to ask.
    pub(super) fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Whether the letter is wanted. A filter that panics has failed.
    pub(super) async fn wants(&self, letter: DeadLetter) -> Result<bool, Failure> {
        let Some(ask) = &self.0 else { return Ok(true) };
        guard::run(|| ask(letter)).await.unwrap_or_else(|panic| Err(Failure::panicked(&panic)))
    }
}
