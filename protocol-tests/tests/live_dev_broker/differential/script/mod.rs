//! The script: what is asked, step by step. It asks the same whatever is answered.

mod cluster;
mod consumer_groups;
mod doors;
mod fit;
mod groups;
mod records;
mod shares;
mod topics;
mod transactions;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kafka_harbor::protocol::batch::{BatchWriter, Closing, ProducerStamp};
use kafka_harbor::protocol::compression::Compression;
use kafka_harbor::record::Timestamp;
use kafka_protocol::messages::{ApiVersionsRequest, GroupId, TopicName, TransactionalId};
use kafka_protocol::protocol::{Request, StrBytes};
use uuid::Uuid;

use crate::differential::answer::Names;
use crate::differential::wire::{Silence, Versions, Wire};

/// A request that the script can ask.
trait Ask: Request<Response: Debug + Default> + Clone + Debug + Any {}

impl<R: Request<Response: Debug + Default> + Clone + Debug + Any> Ask for R {}

/// One run of the script against one broker.
pub(crate) struct Run {
    address: String,
    /// The versions that this broker and the one it is compared with serve both.
    versions: Versions,
    wires: BTreeMap<&'static str, Wire>,
    names: Names,
    /// Of topics, as the broker told them.
    ids: BTreeMap<String, Uuid>,
    /// What was answered, by step.
    pub(crate) answers: BTreeMap<&'static str, BTreeMap<String, String>>,
    /// The APIs that were asked.
    pub(crate) asked: std::collections::BTreeSet<i16>,
}

impl Run {
    pub(crate) fn new(address: String, versions: Versions) -> Self {
        Self {
            address,
            versions,
            wires: BTreeMap::new(),
            names: Names::default(),
            ids: BTreeMap::new(),
            answers: BTreeMap::new(),
            asked: std::collections::BTreeSet::new(),
        }
    }

    /// Everything, in order.
    pub(crate) async fn all(&mut self) {
        topics::run(self).await;
        records::run(self).await;
        groups::run(self).await;
        consumer_groups::run(self).await;
        transactions::run(self).await;
        shares::run(self).await;
        cluster::run(self).await;
        doors::open(self).await;
    }

    /// Logins, where the address asks for them.
    pub(crate) async fn doors(&mut self) {
        doors::run(self).await;
    }

    /// Another group begins, with epochs of its own.
    fn forget_epochs(&mut self) {
        self.names.forget_epochs();
    }

    /// Asks in the newest version.
    async fn ask<R: Ask>(&mut self, step: &'static str, request: R) -> R::Response {
        self.ask_in(i16::MAX, step, request).await
    }

    /// Asks in this version, or the one next to it that all have.
    async fn ask_in<R>(&mut self, version: i16, step: &'static str, request: R) -> R::Response
    where
        R: Ask,
    {
        self.until(version, step, request, |_| true).await
    }

    /// Asks until the answer is as it should be at last: what a broker does behind its answers takes its time, and so does
    /// a coordinator that comes up.
    async fn until<R>(
        &mut self,
        version: i16,
        step: &'static str,
        request: R,
        ready: impl Fn(&R::Response) -> bool,
    ) -> R::Response
    where
        R: Ask,
    {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.send_in("main", version, &request).await;
            let answer = self.take::<R>("main", version).await;
            let settled = answer.as_ref().map_or(true, |answer| ready(answer) && !is_coming_up(answer));
            if settled || Instant::now() >= deadline {
                return self.note(step, answer);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Asks until it is done, and compares no answer: for what may have been undone on a machine that is slow.
    async fn once_more<R: Ask>(&mut self, request: R, done: impl Fn(&R::Response) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.send_in("main", NEWEST, &request).await;
            if self.take::<R>("main", NEWEST).await.is_ok_and(|answer| done(&answer)) || Instant::now() >= deadline {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Asks for the versions in one that nobody has: it is answered in the oldest form (KIP-511).
    async fn ask_from_the_future(&mut self, step: &'static str) {
        let mut wire = Wire::connect(&self.address).await;
        wire.send_as(3, 99, &ApiVersionsRequest::default()).await;
        let answer = wire.receive::<ApiVersionsRequest>(0).await;
        self.note(step, answer);
    }

    /// Asks on a connection of its own name; the answer is received apart.
    async fn send_in<R: Ask>(&mut self, wire: &'static str, version: i16, request: &R) {
        self.asked.insert(R::KEY);
        let version = self.version::<R>(version);
        let mut request = request.clone();
        fit::fit(&mut request, version);
        if !self.wires.contains_key(wire) {
            let opened = Wire::connect(&self.address).await;
            self.wires.insert(wire, opened);
        }
        self.wires.get_mut(wire).expect("just opened").send(version, &request).await;
    }

    /// The answer to what was sent there.
    async fn receive<R>(&mut self, wire: &'static str, version: i16, step: &'static str) -> R::Response
    where
        R: Ask,
    {
        let answer = self.take::<R>(wire, version).await;
        self.note(step, answer)
    }

    async fn take<R: Request>(&mut self, wire: &'static str, version: i16) -> Result<R::Response, Silence> {
        let version = self.version::<R>(version);
        let answer = self.wires.get_mut(wire).expect("something was sent").receive::<R>(version).await;
        if answer.is_err() {
            self.wires.remove(wire);
        }
        answer
    }

    fn note<A: Debug + Default>(&mut self, step: &'static str, answer: Result<A, Silence>) -> A {
        let fields = match &answer {
            Ok(answer) => self.names.fields(&format!("{answer:?}")),
            Err(silence) => BTreeMap::from([("connection".to_owned(), format!("{silence:?}"))]),
        };
        assert!(self.answers.insert(step, fields).is_none(), "two steps are called {step:?}");
        answer.unwrap_or_default()
    }

    /// The version to ask in: as wanted, within what both brokers and the structs have.
    fn version<R: Request>(&self, wanted: i16) -> i16 {
        let (min, max) = self.versions.get(&R::KEY).copied().unwrap_or_else(|| panic!("API {} is served", R::KEY));
        wanted.clamp(min.max(R::VERSIONS.min), max.min(R::VERSIONS.max))
    }
}

/// Whether a coordinator is loading, moving, or not there yet: it has done nothing of what it was asked.
fn is_coming_up(answer: &impl Debug) -> bool {
    let answer = format!("{answer:?}");
    let says = |code: i16| [",", " }"].iter().any(|end| answer.contains(&format!("error_code: {code}{end}")));
    // COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, and NOT_ENOUGH_REPLICAS, which writes of a
    // transaction are told instead.
    [14, 15, 16, 19].into_iter().any(says)
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn topic(name: &str) -> TopicName {
    TopicName(text(name))
}

fn group(name: &str) -> GroupId {
    GroupId(text(name))
}

fn transaction(name: &str) -> TransactionalId {
    TransactionalId(text(name))
}

/// A batch of records `key=value`, `=value` without a key, one millisecond apart.
fn batch(records: &[&str], closing: Closing) -> bytes::Bytes {
    timed(records, made_at(), closing)
}

fn timed(records: &[&str], time: i64, closing: Closing) -> bytes::Bytes {
    let mut writer = BatchWriter::new(Compression::NONE);
    for (at, record) in (time..).zip(records) {
        let (key, value) = record.split_once('=').unwrap();
        let key = Some(key.as_bytes()).filter(|key| !key.is_empty());
        writer.append(Timestamp(at), key, Some(value.as_bytes()), []).unwrap();
    }
    writer.close(closing).unwrap().into_bytes()
}

fn plain(records: &[&str]) -> bytes::Bytes {
    batch(records, Closing::default())
}

fn numbered(records: &[&str], id: i64, epoch: i16, base_sequence: i32) -> bytes::Bytes {
    batch(records, Closing { producer: Some(ProducerStamp { id, epoch, base_sequence }), ..Closing::default() })
}

/// When the records of the script were made: yesterday, or retention takes them away.
fn made_at() -> i64 {
    static MADE_AT: OnceLock<i64> = OnceLock::new();
    *MADE_AT.get_or_init(|| now() - 86_400_000)
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is right");
    i64::try_from(since.as_millis()).expect("this is not the year 292,278,994")
}

const PATIENCE: Duration = Duration::from_secs(30);
/// The newest version of an API.
const NEWEST: i16 = i16::MAX;
