//! The view of the cluster, and brokers that say anything of it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{BrokerId, MetadataResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::Operated;
use crate::machine::metadata::{BrokerAddress, LeaderHint, Metadata, Pace, Round};
use crate::protocol::choices::Choices;
use crate::protocol::shape::sample::Source;
use crate::record::{LeaderEpoch, NodeId, Topic, TopicPartition};

pub(super) struct Client {
    metadata: Metadata,
    now: Instant,
    asking: bool,
    rounds: Vec<Round>,
    /// The largest epoch of a partition, while its topic has this id.
    epochs: BTreeMap<(Topic, Uuid, usize), LeaderEpoch>,
    /// The most entries that any answer had.
    most: usize,
}

impl Operated for Client {
    const OPERATIONS: u32 = 12;

    fn new(_: &mut Choices<'_>) -> Self {
        let pace = Pace {
            max_age: Duration::from_secs(300),
            max_idle: Duration::from_secs(600),
            backoff: Duration::from_millis(100),
            backoff_max: Duration::from_secs(1),
        };
        let (metadata, now) = (Metadata::new(pace), Instant::now());
        Self { metadata, now, asking: false, rounds: Vec::new(), epochs: BTreeMap::new(), most: 0 }
    }

    fn act(&mut self, choices: &mut Choices<'_>, operation: u32) {
        let topic: Topic = choices.pick(&["t", "u"]).into();
        match operation {
            0 => self.rounds.extend(self.metadata.want(self.now, &[topic])),
            1 => {
                let round = self.metadata.refresh(self.now, &[topic]);
                self.rounds.push(round);
            }
            2 => self.metadata.invalidate(self.now, Some(&topic)),
            3 => {
                self.metadata.keep(self.now, [&topic]);
            }
            4 => self.hint(choices, topic),
            5 => {
                let address = BrokerAddress::new("h", choices.below(1 << 16) as u16);
                self.metadata.learn_broker(NodeId(choices.below(4) as i32), address);
            }
            6 => {
                self.metadata.forget(&topic);
                self.epochs.retain(|(known, _, _), _| *known != topic);
            }
            7 => {
                let time = choices.pick(&[1, 100, 1_000, 301_000, 601_000]);
                self.now += Duration::from_millis(time);
            }
            8 if self.asking => {
                self.asking = false;
                self.metadata.handle_failure(self.now, 0.5);
            }
            9 if self.asking && choices.once_in(3) => {
                self.asking = false;
                self.metadata.abandon(self.now);
            }
            _ => self.exchange(choices),
        }
    }

    fn settle(&mut self, _: &mut Choices<'_>) {
        let view = self.metadata.view().clone();
        for (name, topic) in &view.topics {
            assert!(["t", "u"].contains(&name.as_str()), "{name} was never asked for");
            assert!(topic.partitions.len() <= self.most, "more partitions than any answer had");
            self.epochs.retain(|(known, id, _), _| known != name || *id == topic.id);
            for (number, partition) in topic.partitions.iter().enumerate() {
                let place = (name.clone(), topic.id, number);
                let Some(epoch) = partition.leader_epoch.filter(|_| !topic.id.is_nil()) else {
                    // A leader whose epoch is not told may be of any.
                    self.epochs.remove(&place);
                    continue;
                };
                let known = self.epochs.entry(place).or_insert(epoch);
                assert!(epoch >= *known, "the leader epoch of {name}-{number} goes back from {known:?} to {epoch:?}");
                *known = epoch;
            }
        }
        let waits = self.rounds.iter().any(|round| !self.metadata.is_over(*round));
        let next = self.metadata.poll_timeout();
        assert!(self.asking || !waits || next.is_some(), "a caller waits for what nobody asks");
        self.rounds.retain(|round| !self.metadata.is_over(*round));
    }

    /// Brokers answer as they should.
    fn end(mut self, choices: &mut Choices<'_>) {
        for _ in 0..4 {
            if self.asking {
                self.asking = false;
                self.metadata.handle_response(self.now, MetadataResponse::default(), 0.5);
            }
            self.settle(choices);
            if self.rounds.is_empty() {
                return;
            }
            if let Some(at) = self.metadata.poll_timeout() {
                self.now = self.now.max(at);
            }
            self.asking = self.metadata.poll_request(self.now).is_some();
        }
        panic!("callers wait for ever: {:?}", self.metadata);
    }
}

impl Client {
    fn hint(&mut self, choices: &mut Choices<'_>, topic: Topic) {
        let hint = LeaderHint {
            partition: TopicPartition::new(topic, choices.number() as i32),
            topic_id: Uuid::from_u128(u128::from(choices.below(3))),
            leader: NodeId(choices.number() as i32),
            epoch: LeaderEpoch(choices.number() as i32),
            address: choices.once_in(2).then(|| BrokerAddress::new("h", 9092)),
        };
        self.metadata.learn_leaders(&[hint]);
    }

    /// Asks if it is time to, or is answered.
    fn exchange(&mut self, choices: &mut Choices<'_>) {
        if !self.asking {
            self.asking = self.metadata.poll_request(self.now).is_some();
            return;
        }
        self.asking = false;
        let answer = response(choices);
        self.most = self.most.max(answer.topics.iter().map(|topic| topic.partitions.len()).max().unwrap_or(0));
        self.metadata.handle_response(self.now, answer, 0.5);
    }
}

fn topic(choices: &mut Choices<'_>) -> MetadataResponseTopic {
    let partitions = (0..choices.below(4)).map(|_| {
        MetadataResponsePartition::default()
            .with_error_code(choices.code().0)
            .with_partition_index(choices.number() as i32)
            .with_leader_id(BrokerId(choices.number() as i32))
            .with_leader_epoch(choices.number() as i32)
    });
    let partitions = partitions.collect();
    let name = choices.pick(&[Some("t"), Some("u"), Some("v"), Some(""), None]);
    MetadataResponseTopic::default()
        .with_error_code(choices.code().0)
        .with_name(name.map(|name| TopicName(StrBytes::from_static_str(name))))
        .with_topic_id(Uuid::from_u128(u128::from(choices.below(3))))
        .with_partitions(partitions)
}

fn response(choices: &mut Choices<'_>) -> MetadataResponse {
    let brokers = (0..choices.below(4)).map(|_| {
        MetadataResponseBroker::default()
            .with_node_id(BrokerId(choices.number() as i32))
            .with_host(StrBytes::from_static_str(choices.pick(&["h", "", "::1", "a b"])))
            .with_port(choices.pick(&[9092, 0, -1, 65_535, 65_536, i32::MAX]))
    });
    let brokers = brokers.collect();
    let topics = (0..choices.below(4)).map(|_| topic(choices)).collect();
    MetadataResponse::default()
        .with_brokers(brokers)
        .with_controller_id(BrokerId(choices.number() as i32))
        .with_topics(topics)
}
