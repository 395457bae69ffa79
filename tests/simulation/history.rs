//! What everybody in a run saw, in the order in which it happened.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kafka_harbor::error::WriteOutcome;
use tokio::time::Instant;

/// What a record holds: who wrote it, as its how-manieth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Value {
    pub(crate) producer: usize,
    pub(crate) number: u32,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.producer, self.number)
    }
}

impl FromStr for Value {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('-').and_then(|(p, n)| Some((p.parse().ok()?, n.parse().ok()?)));
        let (producer, number) = parts.ok_or_else(|| format!("no value of ours: {text}"))?;
        Ok(Self { producer, number })
    }
}

/// One assignment of one partition to one member.
pub(crate) type Stint = u64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// A producer queues a record; next it is told its end.
    Queued {
        value: Value,
        partition: i32,
    },
    /// A resend of what was there already may be acknowledged without an offset.
    Acknowledged {
        value: Value,
        partition: i32,
        offset: Option<i64>,
    },
    Failed {
        value: Value,
        outcome: WriteOutcome,
    },
    /// A partition came to a member.
    Assigned {
        stint: Stint,
        partition: i32,
        committed: Option<i64>,
        position: i64,
    },
    /// A member was given all there is from `from` to before `next`.
    Handed {
        stint: Stint,
        partition: i32,
        from: i64,
        next: i64,
        records: Vec<(i64, Value)>,
    },
    /// A partition went from a member.
    Gone {
        stint: Stint,
        partition: i32,
    },
    Committing {
        stint: Stint,
        partition: i32,
        offset: i64,
    },
    Committed {
        stint: Stint,
        partition: i32,
        offset: i64,
    },
    NotCommitted {
        stint: Stint,
        partition: i32,
        offset: i64,
    },
    /// What a member was told besides.
    Fault(String),
    /// What was done to the cluster or the network, or what a member does of itself.
    Misfortune(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// Since the beginning.
    pub(crate) at: Duration,
    pub(crate) what: What,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct History {
    pub(crate) events: Vec<Event>,
    /// What each partition holds at the end.
    pub(crate) logs: BTreeMap<i32, Vec<(i64, Value)>>,
    /// What the group has committed at the end.
    pub(crate) committed: BTreeMap<i32, i64>,
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Event { at, what } in &self.events {
            writeln!(f, "{:9.3} {what:?}", at.as_secs_f64())?;
        }
        for (partition, log) in &self.logs {
            writeln!(f, "partition {partition}: {} records, committed {:?}", log.len(), self.committed.get(partition))?;
        }
        Ok(())
    }
}

/// Takes down what happens. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Recorder {
    began: Instant,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), events: Arc::default() }
    }

    pub(crate) fn note(&self, what: What) {
        self.events.lock().unwrap().push(Event { at: self.began.elapsed(), what });
    }

    pub(crate) fn misfortune(&self, what: impl fmt::Display) {
        self.note(What::Misfortune(what.to_string()));
    }

    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events.lock().unwrap())
    }
}
