//! What everybody in a run saw, in the order in which it happened.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kafka_harbor::client::Ended;
use kafka_harbor::error::WriteOutcome;
use tokio::time::Instant;

use super::log::Logged;

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

/// A group of readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    /// Of the classic protocol.
    Classic,
    /// Of the coordinator's (KIP-848).
    Modern,
    /// They copy what they read, in transactions.
    Copiers,
}

impl Group {
    pub(crate) const ALL: [Self; 3] = [Self::Classic, Self::Modern, Self::Copiers];

    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::Classic => "billing",
            Self::Modern => "audit",
            Self::Copiers => "copiers",
        }
    }
}

/// One assignment of one partition to one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stint {
    pub(crate) group: Group,
    pub(crate) number: u64,
}

/// One transaction, told apart over all who have some.
pub(crate) type Txn = u64;

/// Partitions are numbered over the topics: those of the copies come after [`COPIES`](super::world::COPIES).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// A producer queues a record; next it is told its end.
    Queued {
        value: Value,
        partition: i32,
        within: Option<Txn>,
    },
    /// A resend of what was there already may be acknowledged without an offset.
    Acknowledged {
        value: Value,
        partition: i32,
        offset: Option<i64>,
    },
    Failed {
        value: Value,
        partition: i32,
        outcome: WriteOutcome,
    },
    /// A transaction commits this position of the ledger's group, if it commits.
    Entered {
        within: Txn,
        account: i32,
        offset: i64,
    },
    /// What the ledger held of an account when a transaction's commit was known.
    Booked {
        within: Txn,
        account: i32,
        found: Option<i64>,
    },
    /// How a transaction ended, if its producer knows.
    Ended {
        txn: Txn,
        end: Option<Ended>,
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
    /// A member goes back to this offset, or forward to it.
    Sought {
        stint: Stint,
        partition: i32,
        offset: i64,
    },
    /// A partition went from a member. `lost`: it was not asked to give it back.
    Gone {
        stint: Stint,
        partition: i32,
        lost: bool,
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
    /// The records before this offset may be deleted from here on.
    Deleting {
        partition: i32,
        before: i64,
    },
    /// The partition's leader forgot the producers: a batch whose answer is missing may be written again.
    ForgotProducers {
        partition: i32,
    },
    /// What the operator was told of a topic, if it was, and whether it is there.
    Topic {
        name: &'static str,
        exists: Option<bool>,
        really: bool,
    },
    /// The operator set the position of a group without members.
    Set {
        offset: i64,
        acknowledged: bool,
    },
    /// And read it.
    Read {
        offset: Option<i64>,
    },
    /// The storm's last consequences are over: nobody has a reason to fail any more, nor to lose anything.
    Quiet,
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
    /// Who reads.
    pub(crate) groups: BTreeSet<Group>,
    /// Who reads what is not committed, too.
    pub(crate) uncommitted: BTreeSet<Group>,
    /// What each partition holds at the end, with what was deleted.
    pub(crate) logs: BTreeMap<i32, Vec<Logged>>,
    /// What each group has committed at the end.
    pub(crate) committed: BTreeMap<(Group, i32), i64>,
    /// What the transactions' ledger holds at the end.
    pub(crate) ledger: BTreeMap<i32, i64>,
    /// The operator's topics that exist at the end.
    pub(crate) topics: BTreeSet<&'static str>,
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Event { at, what } in &self.events {
            writeln!(f, "{:9.3} {what:?}", at.as_secs_f64())?;
        }
        for (partition, log) in &self.logs {
            writeln!(f, "partition {partition}: {} entries", log.len())?;
            for entry in log {
                writeln!(f, "    {entry}")?;
            }
        }
        writeln!(f, "committed {:?}, ledger {:?}, topics {:?}", self.committed, self.ledger, self.topics)
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

    /// A fault that a client tells: its text, which may not hold what differs between runs.
    pub(crate) fn fault(&self, name: &str, error: &dyn std::error::Error) {
        self.note(What::Fault(format!("{name}: {error}")));
    }

    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events.lock().unwrap())
    }
}
