//! ListTransactions: the transactional ids that a node coordinates (KIP-664, KIP-994).

use kafka_protocol::messages::list_transactions_response::TransactionState;
use kafka_protocol::messages::{ListTransactionsRequest, ListTransactionsResponse, ProducerId, TransactionalId};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, text};
use crate::testing::broker::transactions::STATE_NAMES;

impl Serve for ListTransactionsRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        if self.transactional_id_pattern.as_deref().is_some_and(|pattern| !pattern.is_empty()) {
            return Step::Answer(refused(ErrorCode::INVALID_REGULAR_EXPRESSION));
        }
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
                let age = it.began().map(|began| wall.saturating_sub(core.wall(began).0));
                self.duration_filter < 0 || age.is_some_and(|age| age > self.duration_filter)
            })
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
