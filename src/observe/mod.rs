//! The events that every layer reports, and who listens.
//!
//! An [`Observer`] implements the methods of the events that it wants. It watches and decides nothing: one that panics
//! is logged, and the record goes its way. Events of a record follow the commit that covers it, so what is told has
//! happened; those of a commit that failed are withheld. Every event is also a `tracing` event of this module.
//!
//! ```
//! use kafka_harbor::observe::{MessageDeadLettered, Observer};
//!
//! /// Wakes somebody.
//! struct Pager;
//!
//! impl Observer for Pager {
//!     fn message_dead_lettered(&self, event: &MessageDeadLettered<'_>) {
//!         eprintln!("{}: {} after {} attempts", event.dead_letter_topic, event.error.text, event.attempts);
//!     }
//! }
//! ```

mod events;
mod span;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

pub use events::{
    AssignorChanged, CircuitState, CircuitStateChanged, CommitFailed, Connected, ConsumerStopped, Disconnected,
    ErrorInfo, ErrorReported, ErrorScope, FailureOutcome, ForeignPartitions, HopRemedy, HopTooLarge,
    MessageDeadLettered, MessageFailed, MessageProcessed, MessageProduced, MessageRedriven, MessageRetried,
    MessageSkipped, PossiblyWritten, ProduceKind, RedriveProgress, StopReason, Throttled, TopicWarning,
};
pub(crate) use span::{DeliverySpan, send_span};

macro_rules! events {
    ($($(#[$doc:meta])* $method:ident: $event:ident;)*) => {
        /// Listens to events. Every method does nothing unless it is implemented.
        ///
        /// Called from the tasks that do the work: what takes long belongs elsewhere.
        pub trait Observer: Send + Sync + 'static {
            $($(#[$doc])*
            fn $method(&self, event: &$event<'_>) {
                let _ = event;
            })*
        }

        impl<O: Observer + ?Sized> Observer for Arc<O> {
            $(fn $method(&self, event: &$event<'_>) {
                (**self).$method(event);
            })*
        }

        impl Observers {
            $(
                #[doc = concat!("Logs the event and tells every observer: [`Observer::", stringify!($method), "`].")]
                pub(crate) fn $method(&self, event: &$event<'_>) {
                    event.log();
                    self.tell(stringify!($method), |observer| observer.$method(event));
                }
            )*
        }
    };
}

events! {
    /// The broker was reached.
    connected: Connected;
    /// Every connection was let go.
    disconnected: Disconnected;
    /// A handler succeeded, and its record is committed.
    message_processed: MessageProcessed;
    /// A handler failed. Told after the commit where there is one, and before what became of the record.
    message_failed: MessageFailed;
    /// A record was written to the next level of its ladder, and committed where it was.
    message_retried: MessageRetried;
    /// A record was set aside, and committed where it was.
    message_dead_lettered: MessageDeadLettered;
    /// A retry that another group failed was passed over, and committed.
    message_skipped: MessageSkipped;
    /// Records of one topic were acknowledged.
    message_produced: MessageProduced;
    /// Records were not acknowledged, but may be in the log.
    possibly_written: PossiblyWritten;
    /// A dead letter was brought back, and committed where it was.
    message_redriven: MessageRedriven;
    /// How far a redrive is: at most once a second, and when it ends.
    redrive_progress: RedriveProgress;
    /// Positions could not be committed. What they cover is done, and is done again if the process ends now.
    commit_failed: CommitFailed;
    /// A consumer stopped.
    consumer_stopped: ConsumerStopped;
    /// The group runs another assignor than the one that was offered first.
    assignor_changed: AssignorChanged;
    /// The group's leader gave us partitions of topics that we never asked for. They are left alone.
    foreign_partitions: ForeignPartitions;
    /// A failed record was refused by its next topic for its size. Told at once.
    hop_too_large: HopTooLarge;
    /// A topic's circuit opened, closed, or was opened for probes.
    circuit_state_changed: CircuitStateChanged;
    /// A topic is set up in a way that can lose records.
    topic_warning: TopicWarning;
    /// A broker asked this client for silence, because a quota is used up.
    throttled: Throttled;
    /// Something went wrong.
    error: ErrorReported;
}

/// Those who listen. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Observers(Arc<[Arc<dyn Observer>]>);

impl Observers {
    /// These, told in this order.
    pub(crate) fn new(observers: Vec<Arc<dyn Observer>>) -> Self {
        Self(observers.into())
    }

    /// Whether nobody listens: what only an event needs need not be looked up.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn tell(&self, event: &str, tell: impl Fn(&dyn Observer)) {
        for observer in &*self.0 {
            if catch_unwind(AssertUnwindSafe(|| tell(&**observer))).is_err() {
                tracing::error!(event, "an observer panicked; nothing else changes");
            }
        }
    }
}

impl Default for Observers {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} observer(s)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Counting(Mutex<u32>);

    impl Observer for Counting {
        fn connected(&self, _event: &Connected<'_>) {
            *self.0.lock().unwrap() += 1;
        }
    }

    struct Panicking;

    impl Observer for Panicking {
        fn connected(&self, _event: &Connected<'_>) {
            panic!("a listener that throws");
        }
    }

    #[test]
    fn an_observer_that_panics_keeps_the_event_from_nobody() {
        let counting = Arc::new(Counting::default());
        let observers = Observers::new(vec![counting.clone(), Arc::new(Panicking), counting.clone()]);
        observers.connected(&Connected { adapter: "memory" });
        observers.disconnected(&Disconnected { adapter: "memory" });
        assert_eq!(*counting.0.lock().unwrap(), 2);
        assert!(!observers.is_empty() && Observers::default().is_empty());
    }
}
