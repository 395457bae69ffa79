//! Produce requests and answers. A request is written by hand, so that the batches in it are not copied.
//!
//! ```text
//! | transactional id | acks | timeout | topics: | name or id | partitions: | number | length | batch | tags | .. tags | .. tags |
//! '----------------------------- head ------------------------------------------------' '-----' '------ next head ------'
//! ```

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::produce_response::{NodeEndpoint, PartitionProduceResponse};
use kafka_protocol::messages::{ProduceRequest as Wire, ProduceResponse};
use uuid::Uuid;

use super::TransactionHead;
use crate::machine::connection::RequestError;
use crate::machine::metadata::{BrokerAddress, LeaderHint};
use crate::machine::produce::{Acks, PartitionAnswer, PartitionBatch, PartitionIndex, RecordError, TopicId};
use crate::protocol::api::{ApiKey, VersionRange};
use crate::protocol::error_code::ErrorCode;
use crate::protocol::request::EncodedRequest;
use crate::protocol::response::decode_body;
use crate::protocol::versions::{NegotiatedVersions, UnsupportedVersion};
use crate::record::{LeaderEpoch, NodeId, Topic, TopicPartition};

/// The API.
pub(super) const PRODUCE: ApiKey = ApiKey::of::<Wire>();

/// What a Produce request says besides its batches.
#[derive(Debug, Clone)]
pub(super) struct Head {
    pub(super) acks: Acks,
    pub(super) timeout_ms: i32,
    pub(super) transaction: Option<TransactionHead>,
}

impl Head {
    /// The request in the newest version that the broker knows, and that all these batches can go in. Batches of a topic are
    /// next to each other.
    pub(super) fn encode(
        self,
        batches: Vec<PartitionBatch>,
        versions: &NegotiatedVersions,
    ) -> Result<EncodedRequest, RequestError> {
        let ids = batches.iter().all(|batch| batch.topic_id.is_some());
        let max = if ids { i16::MAX } else { FIRST_WITH_TOPIC_IDS - 1 };
        let max = match self.transaction {
            Some(TransactionHead { implicit: false, .. }) => max.min(FIRST_ENLISTING - 1),
            _ => max,
        };
        let version = versions.choose_up_to(PRODUCE, max)?;
        if version < FIRST_ENLISTING && self.transaction.as_ref().is_some_and(|transaction| transaction.implicit) {
            let ours = PRODUCE.versions().map(|known| VersionRange { min: FIRST_ENLISTING, ..known });
            return Err(UnsupportedVersion { api: PRODUCE, ours, broker: versions.broker_range(PRODUCE) }.into());
        }
        Ok(EncodedRequest::from_segments::<Wire>(version, self.segments(batches, version))?)
    }

    fn segments(self, batches: Vec<PartitionBatch>, version: i16) -> Vec<Bytes> {
        let form = Form { flexible: version >= FIRST_FLEXIBLE, topic_ids: version >= FIRST_WITH_TOPIC_IDS };
        let mut segments = Vec::with_capacity(2 * batches.len() + 1);
        let mut out = BytesMut::with_capacity(64 * (batches.len() + 1));
        form.put_nullable_string(&mut out, self.transaction.as_ref().map(|transaction| &*transaction.id));
        out.put_i16(self.acks.wire());
        out.put_i32(self.timeout_ms);
        let topics: Vec<&[PartitionBatch]> = batches.chunk_by(|a, b| a.topic == b.topic).collect();
        form.put_count(&mut out, topics.len());
        for topic in topics {
            form.put_topic(&mut out, &topic[0]);
            form.put_count(&mut out, topic.len());
            for batch in topic {
                out.put_i32(batch.partition);
                form.put_count(&mut out, batch.bytes.len());
                segments.push(out.split().freeze());
                segments.push(batch.bytes.clone());
                form.put_no_tags(&mut out);
            }
            form.put_no_tags(&mut out);
        }
        form.put_no_tags(&mut out);
        if !out.is_empty() {
            segments.push(out.freeze());
        }
        segments
    }
}

/// How a version writes lengths.
#[derive(Debug, Clone, Copy)]
struct Form {
    flexible: bool,
    topic_ids: bool,
}

impl Form {
    /// The length of an array or of bytes.
    fn put_count(self, out: &mut BytesMut, count: usize) {
        match self.flexible {
            true => put_unsigned(out, count as u64 + 1),
            false => out.put_i32(i32::try_from(count).expect("a request is bounded far below 2 GiB")),
        }
    }

    fn put_nullable_string(self, out: &mut BytesMut, text: Option<&str>) {
        match (self.flexible, text) {
            (true, None) => out.put_u8(0),
            (false, None) => out.put_i16(-1),
            (true, Some(text)) => put_unsigned(out, text.len() as u64 + 1),
            (false, Some(text)) => out.put_i16(i16::try_from(text.len()).expect("ids are checked to be this short")),
        }
        out.put_slice(text.unwrap_or_default().as_bytes());
    }

    fn put_topic(self, out: &mut BytesMut, batch: &PartitionBatch) {
        match batch.topic_id {
            Some(id) if self.topic_ids => out.put_slice(&id),
            _ => {
                let name = batch.topic.as_str().as_bytes();
                match self.flexible {
                    true => put_unsigned(out, name.len() as u64 + 1),
                    false => out.put_i16(i16::try_from(name.len()).expect("a broker knows no topic above 249 bytes")),
                }
                out.put_slice(name);
            }
        }
    }

    fn put_no_tags(self, out: &mut BytesMut) {
        if self.flexible {
            out.put_u8(0);
        }
    }
}

fn put_unsigned(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// Which partitions a request was about, to read its answer by.
#[derive(Debug)]
pub(super) struct Layout(Vec<Place>);

#[derive(Debug)]
struct Place {
    index: PartitionIndex,
    topic: Topic,
    topic_id: Option<TopicId>,
    partition: i32,
}

/// An answer.
pub(super) struct Answer {
    /// By the producer's own numbers.
    pub(super) partitions: Vec<(PartitionIndex, PartitionAnswer)>,
    /// What it says of leaders that moved (KIP-951).
    pub(super) leaders: Vec<LeaderHint>,
}

impl Place {
    fn leader_hint(&self, answer: &PartitionProduceResponse, endpoints: &[NodeEndpoint]) -> Option<LeaderHint> {
        let (leader, epoch) = (answer.current_leader.leader_id.0, answer.current_leader.leader_epoch);
        if ErrorCode(answer.error_code) != ErrorCode::NOT_LEADER_OR_FOLLOWER || leader < 0 || epoch < 0 {
            return None;
        }
        let endpoint = endpoints.iter().find(|endpoint| endpoint.node_id.0 == leader);
        let address = endpoint.and_then(|at| Some(BrokerAddress::new(&*at.host, u16::try_from(at.port).ok()?)));
        Some(LeaderHint {
            partition: TopicPartition::new(self.topic.clone(), self.partition),
            topic_id: self.topic_id.map_or(Uuid::nil(), Uuid::from_bytes),
            leader: NodeId(leader),
            epoch: LeaderEpoch(epoch),
            address,
        })
    }
}

impl Layout {
    pub(super) fn of(batches: &[PartitionBatch]) -> Self {
        let place = |batch: &PartitionBatch| Place {
            index: batch.index,
            topic: batch.topic.clone(),
            topic_id: batch.topic_id,
            partition: batch.partition,
        };
        Self(batches.iter().map(place).collect())
    }

    /// Reads an answer. Partitions that were not asked for are left out.
    pub(super) fn read(&self, version: i16, body: Bytes) -> Result<Answer, RequestError> {
        let response: ProduceResponse = decode_body::<Wire>(body, version)?;
        let by_id = version >= FIRST_WITH_TOPIC_IDS;
        let mut partitions = Vec::with_capacity(self.0.len());
        let mut leaders = Vec::new();
        // Brokers answer in the order of the request, so the next place is the one looked for, nearly always.
        let mut next = 0;
        for topic in response.responses {
            let is_topic = |place: &Place| match by_id {
                true => place.topic_id == Some(topic.topic_id.into_bytes()),
                false => place.topic == *topic.name.as_str(),
            };
            for partition in topic.partition_responses {
                let is_place = |place: &Place| place.partition == partition.index && is_topic(place);
                let found = match self.0.get(next).is_some_and(is_place) {
                    true => Some(next),
                    false => self.0.iter().position(is_place),
                };
                if let Some(at) = found {
                    next = at + 1;
                    leaders.extend(self.0[at].leader_hint(&partition, &response.node_endpoints));
                    partitions.push((self.0[at].index, PartitionAnswer::from(partition)));
                }
            }
        }
        Ok(Answer { partitions, leaders })
    }
}

impl From<PartitionProduceResponse> for PartitionAnswer {
    fn from(response: PartitionProduceResponse) -> Self {
        let record_errors = response.record_errors.into_iter().map(|error| RecordError {
            batch_index: error.batch_index,
            message: error.batch_index_error_message.map(|message| message.to_string()),
        });
        Self {
            code: ErrorCode(response.error_code),
            base_offset: response.base_offset,
            log_append_time: response.log_append_time_ms,
            log_start_offset: response.log_start_offset,
            record_errors: record_errors.collect(),
            message: response.error_message.map(|message| message.to_string()),
        }
    }
}

/// The first version with compact lengths and tags.
const FIRST_FLEXIBLE: i16 = 9;

/// The first version that adds its partitions to the transaction (KIP-890).
const FIRST_ENLISTING: i16 = 12;

/// The first version that names topics by their ids (KIP-516).
const FIRST_WITH_TOPIC_IDS: i16 = 13;

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
    use kafka_protocol::messages::produce_response::TopicProduceResponse;
    use kafka_protocol::messages::{ProduceRequest as Wire, TopicName, TransactionalId};
    use kafka_protocol::protocol::{Encodable, StrBytes};
    use uuid::Uuid;

    use super::*;

    fn batches() -> Vec<PartitionBatch> {
        let batch = |index, topic: &str, id, partition, size| PartitionBatch {
            index: PartitionIndex(index),
            topic: topic.into(),
            topic_id: Some([id; 16]),
            partition,
            bytes: Bytes::from(vec![index as u8; size]),
        };
        vec![batch(0, "a", 1, 0, 10), batch(1, "a", 1, 5, 200), batch(2, "longer.name", 2, 3, 70_000)]
    }

    fn head(transaction: Option<&str>) -> Head {
        let transaction = transaction.map(|id| TransactionHead { id: id.into(), implicit: false });
        Head { acks: Acks::All, timeout_ms: 30_000, transaction }
    }

    /// The same request by the generated encoder.
    fn generated(version: i16, transaction: Option<&'static str>) -> Vec<u8> {
        let batches = batches();
        let topics = batches.chunk_by(|a, b| a.topic == b.topic).map(|topic| {
            let partition = |b: &PartitionBatch| {
                PartitionProduceData::default().with_index(b.partition).with_records(Some(b.bytes.clone()))
            };
            let data = TopicProduceData::default().with_partition_data(topic.iter().map(partition).collect());
            match version >= FIRST_WITH_TOPIC_IDS {
                true => data.with_topic_id(Uuid::from_bytes(topic[0].topic_id.unwrap())),
                false => data.with_name(TopicName(StrBytes::from_string(topic[0].topic.to_string()))),
            }
        });
        let id = transaction.map(|id| TransactionalId(StrBytes::from_static_str(id)));
        let request = Wire::default()
            .with_transactional_id(id)
            .with_acks(-1)
            .with_timeout_ms(30_000)
            .with_topic_data(topics.collect::<Vec<_>>());
        let mut out = BytesMut::new();
        request.encode(&mut out, version).unwrap();
        out.to_vec()
    }

    #[test]
    fn requests_are_those_of_the_generated_encoder_in_every_version() {
        for version in 3..=13 {
            for transaction in [None, Some("transfers")] {
                let segments = head(transaction).segments(batches(), version);
                assert_eq!(segments.concat(), generated(version, transaction), "version {version}");
            }
        }
    }

    #[test]
    fn batches_are_not_copied() {
        let batches = batches();
        let pointers: Vec<_> = batches.iter().map(|batch| batch.bytes.as_ptr()).collect();
        let segments = head(None).segments(batches, 12);
        let sent: Vec<_> = segments.iter().skip(1).step_by(2).map(|segment| segment.as_ptr()).collect();
        assert_eq!(sent, pointers);
    }

    #[test]
    fn an_answer_in_any_order_finds_its_partitions_and_no_others() {
        let answer = |version: i16| {
            let partition = |index, offset| {
                PartitionProduceResponse::default().with_index(index).with_base_offset(offset).with_error_code(0)
            };
            let topic = |name: &'static str, id, partitions| {
                let topic = TopicProduceResponse::default().with_partition_responses(partitions);
                match version >= FIRST_WITH_TOPIC_IDS {
                    true => topic.with_topic_id(Uuid::from_bytes([id; 16])),
                    false => topic.with_name(TopicName(StrBytes::from_static_str(name))),
                }
            };
            let response = ProduceResponse::default().with_responses(vec![
                topic("longer.name", 2, vec![partition(3, 33)]),
                topic("other", 9, vec![partition(0, 99)]),
                topic("a", 1, vec![partition(5, 55), partition(7, 77), partition(0, 11)]),
            ]);
            let mut out = BytesMut::new();
            response.encode(&mut out, version).unwrap();
            out.freeze()
        };
        for version in 3..=13 {
            let read = Layout::of(&batches()).read(version, answer(version)).unwrap();
            let found: Vec<_> = read.partitions.iter().map(|(index, answer)| (index.0, answer.base_offset)).collect();
            assert_eq!(found, [(2, 33), (1, 55), (0, 11)], "version {version}");
        }
    }

    #[test]
    fn an_answer_that_lies_about_its_length_is_an_error() {
        let body = Bytes::from_static(b"\xff\xff\xff\xff\x0f");
        assert!(matches!(Layout::of(&batches()).read(9, body), Err(RequestError::Decode(_))));
    }
}
