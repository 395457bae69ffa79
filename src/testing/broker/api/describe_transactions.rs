//! DescribeTransactions: what transactional ids are at (KIP-664).

use std::collections::BTreeMap;

use kafka_protocol::messages::describe_transactions_response::{TopicData, TransactionState};
use kafka_protocol::messages::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, ProducerId, TopicName, TransactionalId,
};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::record::Topic;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, text};

impl Serve for DescribeTransactionsRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let states = self.transactional_ids.into_iter().map(|id| match core.check_transaction_coordinator(call, &id) {
            Ok(()) => described(core, id),
            Err(code) => failed(id, code),
        });
        Step::Answer(DescribeTransactionsResponse::default().with_transaction_states(states.collect()))
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> DescribeTransactionsResponse {
        let states = self.transactional_ids.into_iter().map(|id| failed(id, code));
        DescribeTransactionsResponse::default().with_transaction_states(states.collect())
    }

    fn throttle(answer: &mut DescribeTransactionsResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }
}

fn described(core: &Core, id: TransactionalId) -> TransactionState {
    let Some((_, transaction)) = core.transactions.iter().find(|(known, _)| **known == **id) else {
        return failed(id, ErrorCode::TRANSACTIONAL_ID_NOT_FOUND);
    };
    let mut by_topic: BTreeMap<&Topic, Vec<i32>> = BTreeMap::new();
    for at in transaction.partitions() {
        by_topic.entry(&at.topic).or_default().push(at.partition);
    }
    let topics = by_topic.into_iter().map(|(name, partitions)| {
        TopicData::default().with_topic(TopicName(text(name.as_str()))).with_partitions(partitions)
    });
    let (producer, timeout) = (transaction.producer(), transaction.timeout().as_millis());
    TransactionState::default()
        .with_transactional_id(id)
        .with_transaction_state(text(transaction.state_name()))
        .with_transaction_timeout_ms(i32::try_from(timeout).unwrap_or(i32::MAX))
        .with_transaction_start_time_ms(transaction.began().map_or(-1, |began| core.wall(began).0))
        .with_producer_id(ProducerId(producer.id))
        .with_producer_epoch(producer.epoch)
        .with_topics(topics.collect())
}

fn failed(id: TransactionalId, code: ErrorCode) -> TransactionState {
    TransactionState::default().with_transactional_id(id).with_error_code(code.0)
}
