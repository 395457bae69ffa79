//! The cluster by its wire protocol, in virtual time.

mod admin;
mod consumer_groups;
mod faults;
mod fetch;
mod groups;
mod hostile;
#[cfg(feature = "kafka")]
mod lies;
#[cfg(feature = "sasl")]
mod logins;
mod produce;
mod replicas;
#[cfg(feature = "kafka")]
mod reports;
mod share_groups;
mod transactions;
mod versions;

use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{FetchRequest, FetchResponse, ProduceRequest, TopicName};
use kafka_protocol::protocol::{Request, StrBytes};

use super::*;
use crate::memory::TopicConfig;
use crate::protocol::batch::{self, BatchWriter, Closing, EncodedBatch, ProducerStamp, ReadOptions};
use crate::protocol::compression::Compression;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::request::{ClientId, encode_request};
use crate::protocol::response::decode_response;
use crate::record::{Timestamp, TopicPartition};

/// A cluster and the time.
pub(super) struct Rig {
    pub(super) cluster: Cluster,
    pub(super) now: Instant,
    next_correlation: i32,
    /// What came and was not asked for yet.
    outputs: Vec<Output>,
}

impl Rig {
    pub(super) fn new(nodes: i32) -> Self {
        Self::with(nodes, |_| ())
    }

    pub(super) fn with(nodes: i32, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings { nodes, wall: WALL, ..Settings::default() };
        change(&mut settings);
        let now = Instant::now();
        Self { cluster: Cluster::new(settings, now), now, next_correlation: 0, outputs: Vec::new() }
    }

    /// A topic with a replica on each node, led by node 1, 2, and so on.
    pub(super) fn topic(mut self, name: &str, partitions: i32) -> Self {
        let replicas = self.cluster.nodes().len() as i16;
        let config = TopicConfig::default();
        self.cluster.create_topic(name, partitions, replicas, config, self.now).expect("created");
        self
    }

    pub(super) fn connect(&mut self, node: i32) -> ConnectionId {
        self.cluster.connect(node, Listener::InProcess, self.now).expect("it runs")
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
        self.cluster.poll(self.now);
    }

    /// Sends a request; its answer is taken by [`answer`](Self::answer).
    pub(super) fn send<R: Request>(&mut self, connection: ConnectionId, version: i16, request: &R) {
        self.next_correlation += 1;
        let client = ClientId::new("rig").expect("short");
        let mut frame = encode_request(request, version, self.next_correlation, &client).expect("encodes");
        frame.advance(4);
        self.cluster.handle(connection, frame, self.now);
    }

    /// The next answer on a connection, if it has come.
    pub(super) fn answer<R: Request>(&mut self, connection: ConnectionId, version: i16) -> Option<R::Response> {
        match self.next(connection)? {
            Output::Send { frame, .. } => {
                let (_, answer) = decode_response::<R>(&frame.slice(4..), version).expect("decodes");
                Some(answer)
            }
            Output::Close { .. } => panic!("the connection was closed"),
        }
    }

    /// Sends a request and takes the answer, which has to come at once.
    pub(super) fn ask<R: Request>(&mut self, connection: ConnectionId, version: i16, request: &R) -> R::Response {
        self.send(connection, version, request);
        self.answer::<R>(connection, version).expect("an answer at once")
    }

    /// Sends a request to a node and takes the answer.
    pub(super) fn ask_node<R: Request>(&mut self, node: i32, version: i16, request: &R) -> R::Response {
        let connection = self.connect(node);
        self.ask(connection, version, request)
    }

    pub(super) fn next(&mut self, connection: ConnectionId) -> Option<Output> {
        self.outputs.extend(std::iter::from_fn(|| self.cluster.poll_output()));
        let of = |output: &Output| match output {
            Output::Send { connection: of, .. } | Output::Close { connection: of } => *of == connection,
        };
        let at = self.outputs.iter().position(of)?;
        Some(self.outputs.remove(at))
    }

    pub(super) fn is_closed(&mut self, connection: ConnectionId) -> bool {
        self.next(connection) == Some(Output::Close { connection })
    }

    pub(super) fn produce(
        &mut self,
        node: i32,
        topic: &str,
        partition: i32,
        batch: EncodedBatch,
    ) -> PartitionProduceResponse {
        let answer = self.ask_node(node, 11, &produce(topic, partition, batch.into_bytes(), -1));
        answer.responses[0].partition_responses[0].clone()
    }

    /// What a partition holds from an offset on, as a consumer sees it.
    pub(super) fn fetch(&mut self, node: i32, topic: &str, partition: i32, offset: i64) -> PartitionData {
        let answer = self.ask_node(node, 12, &fetch(topic, &[(partition, offset)]));
        only(answer)
    }
}

pub(super) fn only(answer: FetchResponse) -> PartitionData {
    assert_eq!(answer.error_code, 0);
    answer.responses[0].partitions[0].clone()
}

pub(super) fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

pub(super) fn at(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition::new(topic, partition)
}

pub(super) fn produce(topic: &str, partition: i32, records: Bytes, acks: i16) -> ProduceRequest {
    let data = PartitionProduceData::default().with_index(partition).with_records(Some(records));
    let data = TopicProduceData::default().with_name(name(topic)).with_partition_data(vec![data]);
    ProduceRequest::default().with_acks(acks).with_timeout_ms(1_000).with_topic_data(vec![data])
}

/// A Fetch without a session that does not wait.
pub(super) fn fetch(topic: &str, positions: &[(i32, i64)]) -> FetchRequest {
    let partition = |(partition, offset): &(i32, i64)| {
        FetchPartition::default()
            .with_partition(*partition)
            .with_fetch_offset(*offset)
            .with_partition_max_bytes(1 << 20)
            .with_current_leader_epoch(-1)
    };
    let topic =
        FetchTopic::default().with_topic(name(topic)).with_partitions(positions.iter().map(partition).collect());
    FetchRequest::default()
        .with_max_bytes(1 << 20)
        .with_max_wait_ms(0)
        .with_min_bytes(1)
        .with_session_epoch(-1)
        .with_topics(vec![topic])
}

pub(super) fn batch_of(values: &[&str]) -> EncodedBatch {
    closed(values, Closing::default())
}

/// A batch of an idempotent producer.
pub(super) fn numbered(values: &[&str], id: i64, epoch: i16, base_sequence: i32) -> EncodedBatch {
    closed(values, Closing { producer: Some(ProducerStamp { id, epoch, base_sequence }), ..Closing::default() })
}

pub(super) fn closed(values: &[&str], closing: Closing) -> EncodedBatch {
    let mut writer = BatchWriter::new(Compression::NONE);
    for value in values {
        writer.append(WALL, None, Some(value.as_bytes()), []).expect("fits");
    }
    writer.close(closing).expect("has records")
}

/// The values in a partition's records; a cut last batch is passed over, as clients do.
pub(super) fn values(data: &PartitionData) -> Vec<String> {
    let mut all = Vec::new();
    for view in batch::batches(data.records.clone().unwrap_or_default(), &ReadOptions::default()) {
        let view = view.expect("sound");
        for record in view.records().filter(|_| !view.is_control()) {
            let value = record.expect("sound").value.expect("a value").to_vec();
            all.push(String::from_utf8(value).expect("text"));
        }
    }
    all
}

pub(super) fn code(code: i16) -> ErrorCode {
    ErrorCode(code)
}

pub(super) const WALL: Timestamp = Timestamp(1_700_000_000_000);
