//! A handler's failure: the error that it returned, and what the error says of itself.

use std::any::type_name;
use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::adapter::{AdapterError, PublishError};
use crate::error::BoxError;
use crate::harbor::error::{HarborError, SerializationError, code};
use crate::harbor::guard::{self, Panic, Shown};
use crate::observe::ErrorInfo;

/// Why a delivery failed.
///
/// Any error becomes a failure (see [`IntoFailure`]). What decides about the record are three facts: whether trying
/// again may help, a name, and a code. They come from the outermost place along the error's source chain that tells them:
///
/// - a `Failure` made with [`permanent`](Self::permanent), [`retryable`](Self::retryable), [`abort`](Self::abort),
///   [`named`](Self::named) or [`with_code`](Self::with_code), at any depth of the chain;
/// - an error type of the application that the consumer was told of and that is [`Classify`];
/// - the harbor's own errors.
///
/// Without any, a failure is retryable, has no code, and is named after the error's type.
///
/// ```
/// use kafka_harbor::harbor::Failure;
///
/// fn check(quantity: u32) -> Result<(), Failure> {
///     if quantity == 0 {
///         return Err(Failure::permanent("an order of nothing").named("ValidationError"));
///     }
///     Ok(())
/// }
/// assert_eq!(check(0).unwrap_err().name(), "ValidationError");
/// ```
pub struct Failure(Box<Inner>);

struct Inner {
    cause: Cause,
    /// The cause's type, where it was known.
    type_name: Option<Cow<'static, str>>,
    /// What was said of this failure itself.
    marks: Facts,
    /// What the whole chain comes to.
    facts: Facts,
}

impl Failure {
    /// A failure with this cause.
    pub fn new<E: IntoFailure<Kind>, Kind>(error: E) -> Self {
        error.into_failure()
    }

    /// A failure that trying again cannot mend: it goes to the dead letters at once.
    pub fn permanent<E: IntoFailure<Kind>, Kind>(error: E) -> Self {
        error.into_failure().marked(|marks| marks.retryable = Some(false))
    }

    /// A failure that trying again may mend, whatever its cause says.
    pub fn retryable<E: IntoFailure<Kind>, Kind>(error: E) -> Self {
        error.into_failure().marked(|marks| marks.retryable = Some(true))
    }

    /// Stops the consumer and leaves the record uncommitted: it comes again when the consumer does.
    pub fn abort<E: IntoFailure<Kind>, Kind>(error: E) -> Self {
        error.into_failure().marked(|marks| {
            marks.retryable = Some(true);
            marks.code = Some(code::ABORT_PROCESSING.into());
        })
    }

    /// The same failure under this name, which begins the text of the `last-error` header.
    #[must_use]
    pub fn named(self, name: impl Into<Cow<'static, str>>) -> Self {
        self.marked(|marks| marks.name = Some(name.into()))
    }

    /// The same failure with this code. [`code::ABORT_PROCESSING`] and [`code::SERIALIZATION`] decide what is done.
    #[must_use]
    pub fn with_code(self, code: impl Into<Cow<'static, str>>) -> Self {
        self.marked(|marks| marks.code = Some(code.into()))
    }

    /// The same failure, which a retry of less than this cannot mend: the record goes to the first later level that waits at least as
    /// long, or to the last one if none does. A service that is asked too often says so (`Retry-After`).
    #[must_use]
    pub fn not_before(self, after: Duration) -> Self {
        self.marked(|marks| marks.not_before = Some(after))
    }

    /// Its name: `Error` where nothing tells a better one.
    pub fn name(&self) -> &str {
        self.0.facts.name.as_deref().or(self.0.type_name.as_deref()).unwrap_or(GENERIC_NAME)
    }

    /// Its code, if it has one.
    pub fn code(&self) -> Option<&str> {
        self.0.facts.code.as_deref()
    }

    /// Whether trying again may help. True unless the chain says no.
    pub fn is_retryable(&self) -> bool {
        self.says_retryable() != Some(false)
    }

    /// What the chain says of trying again, if it says anything.
    pub fn says_retryable(&self) -> Option<bool> {
        self.0.facts.retryable
    }

    /// Whether it stops the consumer.
    pub fn is_abort(&self) -> bool {
        self.code() == Some(code::ABORT_PROCESSING)
    }

    /// Whether payload and bytes do not fit: no retry mends that.
    pub fn is_serialization(&self) -> bool {
        self.code() == Some(code::SERIALIZATION)
    }

    /// The least time after which a retry may help, if the chain says one.
    pub fn retry_not_before(&self) -> Option<Duration> {
        self.0.facts.not_before
    }

    /// What the handler has decided, if it has.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        self.0.facts.verdict
    }

    /// The same failure, of which the handler has decided this.
    #[must_use]
    pub(crate) fn judged(self, verdict: Verdict) -> Self {
        self.marked(|marks| marks.verdict = Some(verdict))
    }

    /// The error that the handler returned.
    pub fn cause(&self) -> &(dyn Error + 'static) {
        self.0.cause.as_error()
    }

    /// The outermost error of this type along the chain.
    pub fn downcast_ref<E: Error + Send + Sync + 'static>(&self) -> Option<&E> {
        #[cfg(feature = "anyhow")]
        if let Cause::Anyhow(error) = &self.0.cause
            && let Some(found) = error.downcast_ref::<E>()
        {
            return Some(found);
        }
        let mut next = Some(self.cause());
        for _ in 0..MAX_CHAIN {
            let error = next?;
            if let Some(found) = error.downcast_ref::<E>() {
                return Some(found);
            }
            if let Some(inner) = error.downcast_ref::<Self>() {
                return inner.downcast_ref();
            }
            next = source_of(error);
        }
        None
    }

    /// A delivery that took longer than it may.
    pub(crate) fn timed_out(after: Duration) -> Self {
        ProcessingTimeout { after }.into_failure().marked(|marks| {
            marks.retryable = Some(true);
            marks.code = Some(code::PROCESSING_TIMEOUT.into());
        })
    }

    /// A record that an open circuit held for too long.
    pub(crate) fn hold_expired(topic: &str, held: Duration) -> Self {
        Self::new(format!("circuit for \"{topic}\" stayed open for {}ms", held.as_millis())).marked(|marks| {
            marks.name = Some("HoldExpiredError".into());
            marks.retryable = Some(true);
            marks.code = Some(code::HOLD_EXPIRED.into());
        })
    }

    /// A callback that panicked.
    pub(crate) fn panicked(panic: &Panic) -> Self {
        Self::new(panic.to_string()).marked(|marks| {
            marks.name = Some("Panic".into());
            marks.code = Some(code::PANIC.into());
        })
    }

    /// The same failure, with what the registered types say of its chain.
    #[must_use]
    pub(crate) fn classified(mut self, classifiers: &Classifiers) -> Self {
        if !classifiers.0.is_empty() {
            self.0.facts = self.survey(classifiers, MAX_CHAIN);
        }
        self
    }

    /// What events tell of it. `text` is its [`last_error`](Self::last_error).
    pub(crate) fn told<'a>(&'a self, text: &'a str) -> ErrorInfo<'a> {
        ErrorInfo {
            error: self.cause(),
            name: self.name(),
            code: self.code().unwrap_or(code::HANDLER),
            text,
            retryable: self.is_retryable(),
        }
    }

    /// The text of the `last-error` header: `Name: message`, bounded.
    pub(crate) fn last_error(&self, form: TextForm) -> String {
        let message = match form {
            TextForm::Bytes => self.message_with_sources(),
            TextForm::Node => self.to_string(),
        };
        let name = self.name();
        let text =
            if name == GENERIC_NAME || message.starts_with(name) { message } else { format!("{name}: {message}") };
        form.bounded(text)
    }

    /// The message, and those of its sources that it does not already hold.
    fn message_with_sources(&self) -> String {
        let mut text = self.to_string();
        let mut next = self.source();
        // What does not fit is cut anyway.
        while let Some(error) = next.filter(|_| text.len() <= MAX_ERROR_TEXT) {
            let message = guard::text(error);
            if !message.is_empty() && !text.contains(&message) {
                text.push_str(": ");
                text.push_str(&message);
            }
            next = source_of(error);
        }
        text
    }

    fn from_cause(cause: Cause, type_name: Option<Cow<'static, str>>) -> Self {
        let mut failure = Self(Box::new(Inner { cause, type_name, marks: Facts::default(), facts: Facts::default() }));
        failure.0.facts = failure.survey(&Classifiers::default(), MAX_CHAIN);
        failure
    }

    /// Says something of the failure itself, which goes before what its chain says.
    fn marked(mut self, mark: impl FnOnce(&mut Facts)) -> Self {
        mark(&mut self.0.marks);
        let said = std::mem::take(&mut self.0.facts);
        self.0.facts = self.0.marks.clone();
        self.0.facts.fill(said);
        self
    }

    /// Walks the chain from outside in; the first to tell a fact is believed.
    fn survey(&self, classifiers: &Classifiers, mut depth: usize) -> Facts {
        let mut facts = self.0.marks.clone();
        #[cfg(feature = "anyhow")]
        if let Cause::Anyhow(error) = &self.0.cause {
            // A typed context is not in the chain under its own type.
            classifiers.0.iter().filter_map(|known| (known.of_anyhow)(error)).for_each(|said| facts.fill(said));
        }
        let mut next = Some(self.cause());
        while let Some(error) = next
            && depth > 0
        {
            depth -= 1;
            if let Some(inner) = error.downcast_ref::<Self>() {
                facts.fill(inner.survey(classifiers, depth));
                break;
            }
            classifiers.0.iter().filter_map(|known| (known.of_error)(error)).for_each(|said| facts.fill(said));
            facts.fill(Facts::of_own(error));
            next = source_of(error);
        }
        facts
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Shown(self.cause()), f)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure")
            .field("name", &self.name())
            .field("code", &self.code())
            .field("retryable", &self.says_retryable())
            .field("cause", &Shown(self.cause()))
            .finish()
    }
}

impl Error for Failure {
    // The failure speaks for its cause (`Display` is the cause's), so the chain goes on beneath it.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        source_of(self.cause())
    }
}

/// What can be returned by a handler that fails.
///
/// Any `std::error::Error`; [`BoxError`]; text; with the feature `anyhow`, `anyhow::Error`. `Kind` only keeps
/// these apart and is inferred.
pub trait IntoFailure<Kind> {
    /// The failure with this error as its cause.
    fn into_failure(self) -> Failure;
}

/// The kinds of error that [`IntoFailure`] keeps apart.
pub mod kind {
    /// A type that is `std::error::Error`.
    #[derive(Debug)]
    pub enum Typed {}
    /// A boxed error of any type.
    #[derive(Debug)]
    pub enum Boxed {}
    /// A message without a type.
    #[derive(Debug)]
    pub enum Text {}
    /// `anyhow::Error`.
    #[cfg(feature = "anyhow")]
    #[derive(Debug)]
    pub enum Anyhow {}
}

impl<E: Error + Send + Sync + 'static> IntoFailure<kind::Typed> for E {
    fn into_failure(self) -> Failure {
        match (Box::new(self) as BoxError).downcast::<Failure>() {
            Ok(failure) => *failure,
            Err(error) => {
                let own = error.downcast_ref().map(|own: &HarborError| Cow::Owned(own.name().to_owned()));
                let name = own.unwrap_or_else(|| short_type_name::<E>().into());
                Failure::from_cause(Cause::Boxed(error), Some(name))
            }
        }
    }
}

impl IntoFailure<kind::Boxed> for BoxError {
    fn into_failure(self) -> Failure {
        match self.downcast::<Failure>() {
            Ok(failure) => *failure,
            Err(error) => Failure::from_cause(Cause::Boxed(error), None),
        }
    }
}

impl IntoFailure<kind::Text> for String {
    fn into_failure(self) -> Failure {
        Failure::from_cause(Cause::Boxed(self.into()), None)
    }
}

impl IntoFailure<kind::Text> for &str {
    fn into_failure(self) -> Failure {
        Failure::from_cause(Cause::Boxed(self.into()), None)
    }
}

#[cfg(feature = "anyhow")]
impl IntoFailure<kind::Anyhow> for anyhow::Error {
    fn into_failure(self) -> Failure {
        // Only where it is outermost: `anyhow`'s downcast would drop a context above it.
        let outermost: &(dyn Error + 'static) = &*self;
        if !outermost.is::<Failure>() {
            return Failure::from_cause(Cause::Anyhow(self), None);
        }
        self.downcast().unwrap_or_else(|error| Failure::from_cause(Cause::Anyhow(error), None))
    }
}

/// What an error type of the application says of itself. Told to a consumer by its `classify` option, it is believed
/// wherever such an error stands in a failure's source chain. A method that panics has said nothing.
///
/// ```
/// use kafka_harbor::harbor::Classify;
///
/// #[derive(Debug, thiserror::Error)]
/// enum OrderError {
///     #[error("no such product: {0}")]
///     UnknownProduct(String),
///     #[error("the stock service is down")]
///     StockDown,
/// }
///
/// impl Classify for OrderError {
///     fn retryable(&self) -> Option<bool> {
///         Some(matches!(self, Self::StockDown))
///     }
/// }
/// ```
pub trait Classify: Error + Send + Sync + 'static {
    /// Whether trying again may help; `None` leaves it to the errors beneath.
    fn retryable(&self) -> Option<bool> {
        None
    }

    /// The name that begins the text of the `last-error` header: by default the type's, without path and parameters.
    fn name(&self) -> Cow<'static, str> {
        short_type_name::<Self>().into()
    }

    /// A code. [`code::ABORT_PROCESSING`] stops the consumer, [`code::SERIALIZATION`] skips the ladder.
    fn code(&self) -> Option<Cow<'static, str>> {
        None
    }
}

/// The error types that a consumer was told of.
#[derive(Clone, Default)]
pub(crate) struct Classifiers(Vec<Known>);

#[derive(Clone, Copy)]
struct Known {
    of_error: fn(&(dyn Error + 'static)) -> Option<Facts>,
    #[cfg(feature = "anyhow")]
    of_anyhow: fn(&anyhow::Error) -> Option<Facts>,
}

impl Classifiers {
    /// One more type, asked after those before it.
    pub(crate) fn add<E: Classify>(&mut self) {
        self.0.push(Known {
            of_error: |error| error.downcast_ref::<E>().map(Facts::of_classified),
            #[cfg(feature = "anyhow")]
            of_anyhow: |error| error.downcast_ref::<E>().map(Facts::of_classified),
        });
    }
}

impl fmt::Debug for Classifiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} error type(s)", self.0.len())
    }
}

/// How an error's text is bounded in a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum TextForm {
    /// At most 1,024 bytes, with the messages of the sources.
    #[default]
    Bytes,
    /// As the Node package has it: the outermost message alone, at most 1,024 UTF-16 units.
    Node,
}

impl TextForm {
    /// The text, cut between two characters and ended with `...` where it is too long.
    pub(crate) fn bounded(self, mut text: String) -> String {
        let size = |c: char| match self {
            Self::Bytes => c.len_utf8(),
            Self::Node => c.len_utf16(),
        };
        // A text has at least as many bytes as UTF-16 units.
        if text.len() <= MAX_ERROR_TEXT || text.chars().map(size).sum::<usize>() <= MAX_ERROR_TEXT {
            return text;
        }
        let mut left = MAX_ERROR_TEXT - ELLIPSIS.len();
        let fits = |(_, c): &(usize, char)| match left.checked_sub(size(*c)) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        };
        let cut = text.char_indices().take_while(fits).last().map_or(0, |(at, c)| at + c.len_utf8());
        text.truncate(cut);
        text.push_str(ELLIPSIS);
        text
    }
}

enum Cause {
    Boxed(BoxError),
    /// Kept as it is: boxed, it could not be asked for the type beneath.
    #[cfg(feature = "anyhow")]
    Anyhow(anyhow::Error),
}

impl Cause {
    fn as_error(&self) -> &(dyn Error + 'static) {
        match self {
            Self::Boxed(error) => &**error,
            #[cfg(feature = "anyhow")]
            Self::Anyhow(error) => &**error,
        }
    }
}

/// What is known of a failure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Facts {
    retryable: Option<bool>,
    name: Option<Cow<'static, str>>,
    code: Option<Cow<'static, str>>,
    not_before: Option<Duration>,
    verdict: Option<Verdict>,
}

/// What a handler has decided of a record that it could not handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Retry,
    DeadLetter,
}

impl Facts {
    /// Takes from `other` what is not known yet.
    fn fill(&mut self, other: Self) {
        self.retryable = self.retryable.or(other.retryable);
        self.name = self.name.take().or(other.name);
        self.code = self.code.take().or(other.code);
        self.not_before = self.not_before.or(other.not_before);
        self.verdict = self.verdict.or(other.verdict);
    }

    fn of_classified<E: Classify>(error: &E) -> Self {
        Self {
            retryable: guard::call_or("Classify::retryable", None, || error.retryable()),
            name: guard::call_or("Classify::name", None, || Some(error.name())),
            code: guard::call_or("Classify::code", None, || error.code()),
            ..Self::default()
        }
    }

    /// What the harbor's own errors say. They leave the name to the error that the handler returned.
    fn of_own(error: &(dyn Error + 'static)) -> Self {
        let said = |retryable, code: &str| Self {
            retryable: Some(retryable),
            name: None,
            code: Some(Cow::Owned(code.to_owned())),
            ..Self::default()
        };
        if let Some(error) = error.downcast_ref::<HarborError>() {
            said(error.is_retryable(), error.code())
        } else if error.is::<SerializationError>() {
            said(false, code::SERIALIZATION)
        } else if let Some(error) = error.downcast_ref::<AdapterError>() {
            said(error.retryable, code::ADAPTER)
        } else if let Some(error) = error.downcast_ref::<PublishError>() {
            said(error.is_retryable(), if error.is_retryable() { code::RETRY_EXHAUSTED } else { code::ADAPTER })
        } else {
            Self::default()
        }
    }
}

/// A delivery took longer than `max_processing_time`.
#[derive(Debug, thiserror::Error)]
#[error("the handler was still at work after {after:?}")]
struct ProcessingTimeout {
    after: Duration,
}

/// The error beneath; none where it panics when it is asked.
fn source_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    guard::call_or("Error::source", None, || error.source())
}

/// The type's name without its path and parameters; a box or an `Arc` around it does not count.
fn short_type_name<T: ?Sized>() -> &'static str {
    let mut name = type_name::<T>();
    while let Some(inner) = POINTERS.iter().find_map(|pointer| name.strip_prefix(pointer)) {
        name = inner.strip_suffix('>').unwrap_or(inner);
    }
    let name = name.split_once('<').map_or(name, |(name, _)| name);
    name.rsplit_once("::").map_or(name, |(_, name)| name)
}

const POINTERS: [&str; 2] = ["alloc::boxed::Box<", "alloc::sync::Arc<"];

/// A name that says nothing, and so is left out of texts.
const GENERIC_NAME: &str = "Error";

/// The bound of the `last-error` header, in bytes or UTF-16 units.
const MAX_ERROR_TEXT: usize = 1_024;

const ELLIPSIS: &str = "...";

/// How far a source chain is followed: a cycle must end.
const MAX_CHAIN: usize = 64;

#[cfg(test)]
mod tests;
