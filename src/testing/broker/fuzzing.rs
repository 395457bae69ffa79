//! What the fuzz target calls: clients that send a cluster anything, while things happen to it. Built for fuzzing and tests.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{
    ApiKey as Key, ConsumerGroupHeartbeatRequest, FetchRequest, InitProducerIdRequest, JoinGroupRequest,
    MetadataRequest,
};

use super::api::{APIS, Api};
use super::{Cluster, ConnectionId, Effect, Listener, Output, Rule, Settings};
use crate::memory::TopicConfig;
use crate::protocol::api::ApiKey;
use crate::protocol::batch::{BatchWriter, Closing, ProducerStamp};
use crate::protocol::choices::Choices;
use crate::protocol::compression::Compression;
use crate::protocol::frame::PREFIX_BYTES;
use crate::protocol::response::decode_response;
use crate::protocol::shape::sample::{self, Source};
use crate::protocol::shape::{self};
use crate::record::{Offset, Timestamp, TopicPartition};

/// A run: what is sent, when, and what happens besides is decided by these numbers.
///
/// Every answer has the shape of its message, nobody spins, and what the settings bound stays within bounds.
pub fn requests(choose: &mut dyn FnMut(u32) -> Option<u32>) {
    let mut clients = Clients::new(choose);
    while let Some(operation) = clients.choices.operation(OPERATIONS) {
        clients.act(operation);
        clients.settle();
    }
    clients.end();
}

struct Clients<'a> {
    choices: Choices<'a>,
    cluster: Cluster,
    now: Instant,
    /// What is open, and what was asked on it.
    open: Vec<(ConnectionId, Waiting)>,
    next_correlation_id: i32,
    /// Whether answers may be cut short.
    cut: bool,
    heard: Heard,
}

/// What was asked, by the number that its answer will have.
type Waiting = BTreeMap<i32, (ApiKey, i16)>;

/// What the cluster gave out, to be said again.
#[derive(Default)]
struct Heard {
    members: Vec<Vec<u8>>,
    producer: Option<(i64, i16)>,
    session: i32,
    epoch: i32,
    topic_ids: Vec<[u8; 16]>,
}

/// A request's content: what the cluster knows, mostly.
struct Words<'w, 'a> {
    choices: &'w mut Choices<'a>,
    heard: &'w Heard,
}

impl<'a> Clients<'a> {
    fn new(choose: &'a mut dyn FnMut(u32) -> Option<u32>) -> Self {
        let now = Instant::now();
        let mut choices = Choices::new(choose);
        let mut cluster = Cluster::new(settings(&mut choices), now);
        for (topic, partitions) in [("t", 2), ("u", 1)] {
            cluster.create_topic(topic, partitions, 2, TopicConfig::default(), now).expect("there is room");
        }
        Self { choices, cluster, now, open: Vec::new(), next_correlation_id: 0, cut: false, heard: Heard::default() }
    }

    fn act(&mut self, operation: u32) {
        match operation {
            0 => self.connect(),
            1 => self.disconnect(),
            2 => {
                let bytes = self.choices.bytes(48);
                self.send(bytes.into(), None);
            }
            3 | 4 => {
                let (api, version) = self.api();
                let mut bytes = self.request(api, version).to_vec();
                self.damage(&mut bytes);
                self.send(bytes.into(), None);
            }
            5 => self.pass(),
            6 => self.happen(),
            7 => self.order(),
            _ => {
                let (api, version) = self.api();
                let request = self.request(api, version);
                self.send(request, Some((api.key, version)));
            }
        }
    }

    fn connect(&mut self) {
        let node = self.choices.below(3) as i32;
        if let Some(connection) = self.cluster.connect(node, Listener::InProcess, self.now) {
            assert!(self.open.len() < CONNECTIONS, "more connections than there may be");
            self.open.push((connection, BTreeMap::new()));
        }
    }

    fn disconnect(&mut self) {
        if let Some(at) = self.choices.index(self.open.len()) {
            let (connection, _) = self.open.remove(at);
            self.cluster.disconnect(connection, self.now);
        }
    }

    fn api(&mut self) -> (&'static Api, i16) {
        let api = &APIS[self.choices.below(APIS.len() as u32) as usize];
        let versions = u32::from((api.versions.max - api.versions.min) as u16);
        (api, api.versions.max - self.choices.below(versions + 1) as i16)
    }

    fn request(&mut self, api: &Api, version: i16) -> Bytes {
        self.next_correlation_id += 1;
        let mut frame = BytesMut::new();
        frame.put_i16(api.key.0);
        frame.put_i16(version);
        frame.put_i32(self.next_correlation_id);
        frame.put_i16(-1);
        if Key::try_from(api.key.0).is_ok_and(|key| key.request_header_version(version) >= 2) {
            frame.put_u8(0);
        }
        let mut words = Words { choices: &mut self.choices, heard: &self.heard };
        frame.extend_from_slice(&sample::request(api.key, version, &mut words));
        frame.freeze()
    }

    fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.choices.below(4) {
            let Some(at) = self.choices.index(bytes.len()) else { return };
            match self.choices.below(4) {
                0 => bytes[at] = self.choices.pick(&[0, 1, 0x7f, 0x80, 0xff]),
                1 => bytes.truncate(at),
                2 => bytes.insert(at, self.choices.below(256) as u8),
                _ => bytes[at] ^= 1 << self.choices.below(8),
            }
        }
    }

    fn send(&mut self, frame: Bytes, asked: Option<(ApiKey, i16)>) {
        if self.open.is_empty() {
            self.connect();
        }
        let Some(at) = self.choices.index(self.open.len()) else { return };
        let (connection, waiting) = &mut self.open[at];
        if let Some(asked) = asked {
            waiting.insert(self.next_correlation_id, asked);
        }
        self.cluster.handle(*connection, frame, self.now);
    }

    fn pass(&mut self) {
        let time = self.choices.pick(&[1, 100, 3_000, 10_000, 60_000, 1_200_000]);
        self.now += Duration::from_millis(time);
    }

    fn happen(&mut self) {
        let node = 1 + self.choices.below(2) as i32;
        let partition = TopicPartition::new(self.choices.pick(&["t", "u"]), self.choices.below(3) as i32);
        let (cluster, now) = (&mut self.cluster, self.now);
        match self.choices.below(12) {
            0 => cluster.crash(node, now),
            1 => cluster.restart(node, now),
            2 => cluster.pause(node, now),
            3 => cluster.resume(node, now),
            4 => cluster.hide_topic("u", self.choices.once_in(2), now),
            5 => cluster.set_following(node, self.choices.once_in(2), now),
            other => {
                // What cannot be is refused, and that is right too.
                let _ = match other {
                    6 => cluster.move_leader(&partition, node, now),
                    7 => cluster.bump_leader_epoch(&partition, now),
                    8 => cluster.lose_producer_state(&partition, now),
                    9 => cluster.delete_records(&partition, Offset(self.choices.number()), now).map(drop),
                    10 => cluster.move_coordinator("g", node, now),
                    _ => {
                        let member = cluster.members("g").first().cloned().unwrap_or_default();
                        cluster.expire_member("g", &member, now)
                    }
                };
            }
        }
    }

    fn order(&mut self) {
        let time = Duration::from_millis(u64::from(self.choices.below(2_000)));
        let effect = match self.choices.below(10) {
            0 => Effect::Fail(self.choices.code()),
            1 => Effect::Silence,
            2 => Effect::Delay(time),
            3 => Effect::DelayAnswer(time),
            4 => Effect::DropAnswer,
            5 => Effect::Close,
            6 => Effect::CloseAfter,
            7 => {
                self.cut = true;
                Effect::Cut(self.choices.below(64) as usize)
            }
            8 => Effect::FailAfter(self.choices.code()),
            _ => Effect::Throttle(time),
        };
        let rule = if self.choices.once_in(2) { Rule::any(effect) } else { Rule::new(self.api().0.key, effect) };
        self.cluster.order(if self.choices.once_in(3) { rule.topic("t") } else { rule });
        if self.cluster.rules_left() > 16 {
            self.cluster.withdraw_all();
        }
    }

    /// Lets the cluster act until it waits, and listens.
    fn settle(&mut self) {
        self.cluster.poll(self.now);
        while let Some(output) = self.cluster.poll_output() {
            match output {
                Output::Send { connection, frame } => self.hear(connection, &frame),
                Output::Close { connection } => self.open.retain(|(open, _)| *open != connection),
            }
        }
        let next = self.cluster.poll_timeout();
        assert!(next.is_none_or(|next| next > self.now), "a wake-up that is past would spin");
    }

    fn hear(&mut self, connection: ConnectionId, frame: &Bytes) {
        let Some((_, waiting)) = self.open.iter_mut().find(|(open, _)| *open == connection) else { return };
        let whole = frame.first_chunk().is_some_and(|length| u32::from_be_bytes(*length) as usize + 4 == frame.len());
        if self.cut && !whole {
            return;
        }
        assert!(whole, "the frame's length is not its own");
        let message = frame.slice(PREFIX_BYTES..);
        let id = i32::from_be_bytes(*message.first_chunk().expect("a correlation id"));
        // What was asked by chance is answered as well.
        let Some((api, version)) = waiting.remove(&id) else { return };
        let tags = Key::try_from(api.0).map_or(0, |key| key.response_header_version(version)).min(1) as usize;
        let body = message.slice(4 + tags..);
        let walked = shape::check_response(api, version, &body);
        assert!(walked.as_ref().is_ok_and(|walked| *walked == body.len()), "{api} {version}: {walked:?}");
        self.heard.take(api, version, &message);
    }

    /// Whatever happened, the bounds held.
    fn end(self) {
        let core = &self.cluster.core;
        assert!(self.cluster.connections().len() <= CONNECTIONS);
        assert!(core.topics.iter().count() <= TOPICS, "more topics than there may be");
    }
}

impl Heard {
    fn take(&mut self, api: ApiKey, version: i16, message: &Bytes) {
        if api == ApiKey::of::<JoinGroupRequest>() {
            let Ok((_, answer)) = decode_response::<JoinGroupRequest>(message, version) else { return };
            self.member(answer.member_id.as_bytes());
            self.epoch = answer.generation_id;
        } else if api == ApiKey::of::<ConsumerGroupHeartbeatRequest>() {
            let Ok((_, answer)) = decode_response::<ConsumerGroupHeartbeatRequest>(message, version) else { return };
            self.member(answer.member_id.as_ref().map_or(&[][..], |id| id.as_bytes()));
            self.epoch = answer.member_epoch;
        } else if api == ApiKey::of::<InitProducerIdRequest>() {
            let Ok((_, answer)) = decode_response::<InitProducerIdRequest>(message, version) else { return };
            self.producer = Some((answer.producer_id.0, answer.producer_epoch));
        } else if api == ApiKey::of::<FetchRequest>() {
            let Ok((_, answer)) = decode_response::<FetchRequest>(message, version) else { return };
            self.session = answer.session_id;
        } else if api == ApiKey::of::<MetadataRequest>() {
            let Ok((_, answer)) = decode_response::<MetadataRequest>(message, version) else { return };
            self.topic_ids = answer.topics.iter().map(|topic| topic.topic_id.into_bytes()).collect();
        }
    }

    fn member(&mut self, id: &[u8]) {
        if !id.is_empty() && self.members.len() < 4 {
            self.members.push(id.to_vec());
        }
    }
}

impl Source for Words<'_, '_> {
    fn below(&mut self, bound: u32) -> u32 {
        Source::below(self.choices, bound)
    }

    fn most_tags(&self) -> u32 {
        1
    }

    fn content(&mut self, field: &'static str) -> Option<Vec<u8>> {
        if self.choices.once_in(16) {
            return None;
        }
        let number = self.choices.number();
        let epoch = i64::from(self.heard.epoch);
        let producer = self.heard.producer.unwrap_or((-1, -1));
        let text = |text: &str| Some(text.as_bytes().to_vec());
        let int = |number: i64| Some((number as i32).to_be_bytes().to_vec());
        let long = |number: i64| Some(number.to_be_bytes().to_vec());
        match field {
            "Name" | "Topic" | "TopicNames" | "SubscribedTopicNames" => text(self.choices.pick(&["t", "u", "t", "v"])),
            "GroupId" | "GroupsNames" | "GroupIds" | "Groups" | "Key" | "CoordinatorKeys" => {
                text(self.choices.pick(&["g", "g", "h", "x", ""]))
            }
            "TransactionalId" => text(self.choices.pick(&["x", "y"])),
            "MemberId" => match self.choices.index(self.heard.members.len() + 1) {
                Some(at) if at > 0 => self.heard.members.get(at - 1).cloned(),
                _ => Some(Vec::new()),
            },
            "GroupInstanceId" | "InstanceId" => text(self.choices.pick(&["i", "j"])),
            "ProtocolType" => text(self.choices.pick(&["consumer", "consumer", "connect"])),
            "ProtocolName" | "ServerAssignor" => text(self.choices.pick(&["range", "uniform", "t"])),
            "TopicId" => self.choices.index(self.heard.topic_ids.len()).map(|at| self.heard.topic_ids[at].to_vec()),
            "PartitionIndex" | "PartitionIndexes" | "Partitions" | "Partition" | "Index" => int(match number {
                0..=7 => number % 3,
                wild => wild,
            }),
            "ProducerId" if number < 6 => long(producer.0),
            "ProducerEpoch" if number < 6 => Some(producer.1.to_be_bytes().to_vec()),
            "SessionId" if number < 6 => int(i64::from(self.heard.session)),
            "GenerationId" | "GenerationIdOrMemberEpoch" | "MemberEpoch" if number < 6 => int(epoch),
            "MemberEpoch" | "SessionEpoch" | "CurrentLeaderEpoch" | "LeaderEpoch" | "LastFetchedEpoch" => int(number),
            "TimeoutMs" | "MaxWaitMs" | "MinBytes" | "MaxBytes" | "PartitionMaxBytes" | "Count" => {
                int(number.wrapping_mul(100))
            }
            "RebalanceTimeoutMs" | "SessionTimeoutMs" | "TransactionTimeoutMs" => int(number.wrapping_mul(3_000)),
            "NumPartitions" => int(number),
            "FetchOffset" | "Offset" | "CommittedOffset" | "Timestamp" => long(number),
            "Acks" => Some(self.choices.pick(&[-1_i16, 1, 0, 2]).to_be_bytes().to_vec()),
            "KeyType" => Some(vec![self.choices.below(3) as u8]),
            "Mechanism" => text(self.choices.pick(&["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "X"])),
            "AuthBytes" => text(self.choices.pick(&LOGINS)),
            "Records" => Some(self.records(producer, number)),
            _ => None,
        }
    }
}

impl Words<'_, '_> {
    fn records(&mut self, (id, epoch): (i64, i16), number: i64) -> Vec<u8> {
        let mut writer = BatchWriter::new(Compression::NONE);
        for _ in 0..=self.choices.below(3) {
            writer.append(Timestamp(number), Some(b"k"), Some(b"v"), []).expect("it is small");
        }
        let producer =
            (id >= 0 && epoch >= 0).then(|| ProducerStamp { id, epoch, base_sequence: number.max(0) as i32 });
        let is_transactional = producer.is_some() && self.choices.once_in(2);
        let batch = writer.close(Closing { producer, is_transactional, ..Closing::default() }).expect("it has records");
        let mut bytes = batch.into_bytes().to_vec();
        if self.choices.once_in(4)
            && let Some(at) = self.choices.index(bytes.len())
        {
            bytes[at] ^= 1 << self.choices.below(8);
        }
        bytes
    }
}

/// One cluster in eight asks for logins.
fn settings(choices: &mut Choices<'_>) -> Settings {
    #[cfg(feature = "sasl")]
    let sasl = choices.once_in(8).then(|| {
        use super::SaslMechanism::{OAuthBearer, Plain, ScramSha256, ScramSha512};
        let sasl = super::Sasl::new([Plain, ScramSha256, ScramSha512, OAuthBearer]).user("u", "p");
        sasl.session(Duration::from_secs(60))
    });
    #[cfg(not(feature = "sasl"))]
    let _ = choices.once_in(8);
    Settings {
        #[cfg(feature = "sasl")]
        sasl,
        nodes: 2,
        wall: Timestamp(1_700_000_000_000),
        auto_create_topics: true,
        max_connections: CONNECTIONS,
        max_queued_requests: 16,
        max_topics: TOPICS,
        max_log_bytes: 1 << 16,
        max_groups: 4,
        max_group_members: 4,
        max_transactional_ids: 4,
        max_fetch_sessions: 3,
        rack_aware_reads: true,
        racks: vec!["a".to_owned(), "b".to_owned()],
        ..Settings::default()
    }
}

/// What clients say in the messages of each mechanism, right and wrong.
const LOGINS: [&str; 7] = [
    "\0u\0p",
    "\0u\0wrong",
    "n,,n=u,r=abc",
    "c=biws,r=abc,p=AAAA",
    "n,a=u,\x01auth=Bearer e30.e30.\x01\x01",
    "n,,\x01auth=Bearer \x01\x01",
    "",
];

/// Requests that are meant well are half of it.
const OPERATIONS: u32 = 16;
const CONNECTIONS: usize = 6;
const TOPICS: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::choices::seeded;

    /// A request whose answer cannot be written, a timer that is past, a state that nobody thought of: found here before a client does.
    #[test]
    fn whatever_is_sent_the_cluster_answers_in_shape_within_its_bounds_and_never_panics() {
        for seed in 0..400 {
            requests(&mut seeded(seed, 3_000));
        }
    }
}
