//! ListTransactions: the transactional ids that a node coordinates (KIP-664, KIP-994).

use kafka_protocol::messages::list_transactions_response::TransactionState;
use kafka_protocol::messages::{ListTransactionsRequest, ListTransactionsResponse, ProducerId, TransactionalId};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, text};
use crate::testing::broker::expression::Expression;
use crate::testing::broker::transactions::STATE_NAMES;

impl Serve for ListTransactionsRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let pattern = self.transactional_id_pattern.as_deref().filter(|pattern| !pattern.is_empty());
        let Ok(pattern) = pattern.map(Expression::new).transpose() else {
            return Step::Answer(refused(ErrorCode::INVALID_REGULAR_EXPRESSION));
        };
        let unknown = self.state_filters.iter().filter(|wanted| !STATE_NAMES.contains(&wanted.as_str()));
        let unknown = unknown.cloned().collect();
        let wall = core.wall(call.now).0;
        let own = core.transactions.iter().filter(|(id, _)| core.coordinator_of(id) == Some(call.node));
        let states = own
            .filter(|(_, it)| {
                self.state_filters.is_empty() || self.state_filters.iter().any(|name| name.as_str() == it.state_name())
            })
            .filter(|(_, it)| {
                self.producer_id_filters.is_empty() || self.producer_id_filters.contains(&ProducerId(it.producer().id))
            })
            .filter(|(_, it)| {
                // One that is not open counts as old, as in Kafka: it began at -1.
                let age = wall.saturating_sub(it.began().map_or(-1, |began| core.wall(began).0));
                self.duration_filter < 0 || age > self.duration_filter
            })
            .filter(|(id, _)| pattern.as_ref().is_none_or(|pattern| pattern.fits(id)))
            .map(|(id, it)| {
                TransactionState::default()
                    .with_transactional_id(TransactionalId(text(id)))
                    .with_producer_id(ProducerId(it.producer().id))
                    .with_transaction_state(text(it.state_name()))
            });
        let states = states.collect();
        Step::Answer(
            ListTransactionsResponse::default().with_unknown_state_filters(unknown).with_transaction_states(states),
        )
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> ListTransactionsResponse {
        refused(code)
    }

    fn throttle(answer: &mut ListTransactionsResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }
}

fn refused(code: ErrorCode) -> ListTransactionsResponse {
    ListTransactionsResponse::default().with_error_code(code.0)
}
