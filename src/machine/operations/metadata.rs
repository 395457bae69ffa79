//! The view of the cluster, and brokers that say anything of it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{BrokerId, MetadataResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::machine::metadata::{BrokerAddress, LeaderHint, Metadata, Pace, Round};
use crate::protocol::choices::Choices;
use crate::protocol::shape::sample::Source;
use crate::record::{LeaderEpoch, NodeId, Topic, TopicPartition};

pub(super) fn run(choices: &mut Choices<'_>) {
    let mut client = Client::new(choices);
    while let Some(operation) = client.choices.operation(12) {
        client.act(operation);
        client.check();
    }
    client.end();
}

struct Client<'c, 'a> {
    choices: &'c mut Choices<'a>,
    metadata: Metadata,
    now: Instant,
    asking: bool,
    rounds: Vec<Round>,
    /// The largest epoch of a partition, while its topic has this id.
    epochs: BTreeMap<(Topic, Uuid, usize), LeaderEpoch>,
    /// The most entries that any answer had.
    most: usize,
}

impl<'c, 'a> Client<'c, 'a> {
    fn new(choices: &'c mut Choices<'a>) -> Self {
        let pace = Pace {
            max_age: Duration::from_secs(300),
            max_idle: Duration::from_secs(600),
            backoff: Duration::from_millis(100),
            backoff_max: Duration::from_secs(1),
        };
        let (metadata, now) = (Metadata::new(pace), Instant::now());
        Self { choices, metadata, now, asking: false, rounds: Vec::new(), epochs: BTreeMap::new(), most: 0 }
    }

    fn act(&mut self, operation: u32) {
        let topic: Topic = self.choices.pick(&["t", "u"]).into();
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
            4 => self.hint(topic),
            5 => {
                let address = BrokerAddress::new("h", self.choices.below(1 << 16) as u16);
                self.metadata.learn_broker(NodeId(self.choices.below(4) as i32), address);
            }
            6 => {
                self.metadata.forget(&topic);
                self.epochs.retain(|(known, _, _), _| *known != topic);
            }
            7 => {
                let time = self.choices.pick(&[1, 100, 1_000, 301_000, 601_000]);
                self.now += Duration::from_millis(time);
            }
            8 if self.asking => {
                self.asking = false;
                self.metadata.handle_failure(self.now, 0.5);
            }
            9 if self.asking && self.choices.once_in(3) => {
                self.asking = false;
                self.metadata.abandon(self.now);
            }
            _ => self.exchange(),
        }
    }

    fn hint(&mut self, topic: Topic) {
        let hint = LeaderHint {
            partition: TopicPartition::new(topic, self.choices.number() as i32),
            topic_id: Uuid::from_u128(u128::from(self.choices.below(3))),
            leader: NodeId(self.choices.number() as i32),
            epoch: LeaderEpoch(self.choices.number() as i32),
            address: self.choices.once_in(2).then(|| BrokerAddress::new("h", 9092)),
        };
        self.metadata.learn_leaders(&[hint]);
    }

    /// Asks if it is time to, or is answered.
    fn exchange(&mut self) {
        if !self.asking {
            self.asking = self.metadata.poll_request(self.now).is_some();
            return;
        }
        self.asking = false;
        let answer = self.response();
        self.most = self.most.max(answer.topics.iter().map(|topic| topic.partitions.len()).max().unwrap_or(0));
        self.metadata.handle_response(self.now, answer, 0.5);
    }

    fn response(&mut self) -> MetadataResponse {
        let brokers = (0..self.choices.below(4)).map(|_| {
            MetadataResponseBroker::default()
                .with_node_id(BrokerId(self.choices.number() as i32))
                .with_host(StrBytes::from_static_str(self.choices.pick(&["h", "", "::1", "a b"])))
                .with_port(self.choices.pick(&[9092, 0, -1, 65_535, 65_536, i32::MAX]))
        });
        let brokers = brokers.collect();
        let topics = (0..self.choices.below(4)).map(|_| self.topic()).collect();
        MetadataResponse::default()
            .with_brokers(brokers)
            .with_controller_id(BrokerId(self.choices.number() as i32))
            .with_topics(topics)
    }

    fn topic(&mut self) -> MetadataResponseTopic {
        let partitions = (0..self.choices.below(4)).map(|_| {
            MetadataResponsePartition::default()
                .with_error_code(self.choices.code().0)
                .with_partition_index(self.choices.number() as i32)
                .with_leader_id(BrokerId(self.choices.number() as i32))
                .with_leader_epoch(self.choices.number() as i32)
        });
        let partitions = partitions.collect();
        let name = self.choices.pick(&[Some("t"), Some("u"), Some("v"), Some(""), None]);
        MetadataResponseTopic::default()
            .with_error_code(self.choices.code().0)
            .with_name(name.map(|name| TopicName(StrBytes::from_static_str(name))))
            .with_topic_id(Uuid::from_u128(u128::from(self.choices.below(3))))
            .with_partitions(partitions)
    }

    fn check(&mut self) {
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
    fn end(mut self) {
        for _ in 0..4 {
            if self.asking {
                self.asking = false;
                self.metadata.handle_response(self.now, MetadataResponse::default(), 0.5);
            }
            self.check();
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
