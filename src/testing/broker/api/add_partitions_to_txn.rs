//! AddPartitionsToTxn: partitions that a transaction writes to (KIP-98); from version 4 on asked by brokers, several at once.

use kafka_protocol::messages::add_partitions_to_txn_request::{AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction};
use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::{AddPartitionsToTxnRequest, AddPartitionsToTxnResponse};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::record::{Topic, TopicPartition};
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::Core;
use crate::testing::broker::transactions::{Producer, before_fencing};

impl Serve for AddPartitionsToTxnRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let results = asked(self, call).into_iter().map(|of| {
            let topics = one(core, call, &of);
            AddPartitionsToTxnResult::default().with_transactional_id(of.transactional_id).with_topic_results(topics)
        });
        let results = results.collect();
        Step::Answer(answer(call, results))
    }

    fn refuse(self, _core: &mut Core, call: &Call, code: ErrorCode) -> AddPartitionsToTxnResponse {
        let results = asked(self, call).into_iter().map(|of| {
            let topics = told(&of.topics, |_, _| code);
            AddPartitionsToTxnResult::default().with_transactional_id(of.transactional_id).with_topic_results(topics)
        });
        answer(call, results.collect())
    }

    fn throttle(answer: &mut AddPartitionsToTxnResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }

    fn names(&self, _core: &Core, call: &Call) -> Vec<(Topic, i32)> {
        let all = asked(self.clone(), call);
        all.iter().flat_map(|of| partitions(&of.topics)).map(|at| (at.topic, at.partition)).collect()
    }
}

/// The transactions that are asked for; before version 4 there is one.
fn asked(request: AddPartitionsToTxnRequest, call: &Call) -> Vec<AddPartitionsToTxnTransaction> {
    if call.version >= FIRST_WITH_SEVERAL {
        return request.transactions;
    }
    let only = AddPartitionsToTxnTransaction::default()
        .with_transactional_id(request.v3_and_below_transactional_id)
        .with_producer_id(request.v3_and_below_producer_id)
        .with_producer_epoch(request.v3_and_below_producer_epoch)
        .with_topics(request.v3_and_below_topics);
    vec![only]
}

fn one(core: &mut Core, call: &Call, of: &AddPartitionsToTxnTransaction) -> Vec<AddPartitionsToTxnTopicResult> {
    let refusal = |core: &Core, topic: &str, partition: i32| {
        call.failure_of(topic, partition).or_else(|| core.topics.partition(topic, partition).err())
    };
    let asked: Vec<TopicPartition> = partitions(&of.topics).collect();
    if asked.iter().any(|at| refusal(core, &at.topic, at.partition).is_some()) {
        // One that cannot be added holds back the others (`KafkaApis.handleAddPartitionsToTxnRequest`).
        return told(&of.topics, |topic, partition| {
            refusal(core, topic, partition).unwrap_or(ErrorCode::OPERATION_NOT_ATTEMPTED)
        });
    }
    let producer = Producer { id: of.producer_id.0, epoch: of.producer_epoch };
    let done = core.check_transaction_coordinator(call, &of.transactional_id).and_then(|()| match of.verify_only {
        true => asked.iter().try_for_each(|at| core.verify_partition(&of.transactional_id, producer, at)),
        false => core.add_to_transaction(&of.transactional_id, producer, asked, call.now),
    });
    let code = before_fencing(done.err().unwrap_or(ErrorCode::NONE), call.version >= 2);
    told(&of.topics, |_, _| code)
}

fn partitions(topics: &[AddPartitionsToTxnTopic]) -> impl Iterator<Item = TopicPartition> {
    topics.iter().flat_map(|topic| {
        let name = Topic::from(topic.name.as_str());
        topic.partitions.iter().map(move |partition| TopicPartition::new(&name, *partition))
    })
}

fn told(
    topics: &[AddPartitionsToTxnTopic],
    code: impl Fn(&str, i32) -> ErrorCode,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let topic = |topic: &AddPartitionsToTxnTopic| {
        let result = |partition: &i32| {
            AddPartitionsToTxnPartitionResult::default()
                .with_partition_index(*partition)
                .with_partition_error_code(code(&topic.name, *partition).0)
        };
        let results = topic.partitions.iter().map(result).collect();
        AddPartitionsToTxnTopicResult::default().with_name(topic.name.clone()).with_results_by_partition(results)
    };
    topics.iter().map(topic).collect()
}

fn answer(call: &Call, mut results: Vec<AddPartitionsToTxnResult>) -> AddPartitionsToTxnResponse {
    if call.version >= FIRST_WITH_SEVERAL {
        return AddPartitionsToTxnResponse::default().with_results_by_transaction(results);
    }
    let topics = results.pop().map(|only| only.topic_results).unwrap_or_default();
    AddPartitionsToTxnResponse::default().with_results_by_topic_v3_and_below(topics)
}

/// KIP-890.
const FIRST_WITH_SEVERAL: i16 = 4;
