//! What a Produce answer's error code means for the batch.

use crate::error::WriteOutcome;
use crate::protocol::error_code::ErrorCode;

/// What becomes of a batch after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is in the log.
    Written,
    /// The broker has no use for it, now or later.
    Refused,
    /// It is too large for the topic.
    TooLarge,
    /// Its numbers do not continue those that the broker remembers.
    OutOfSequence,
    /// The same bytes may be taken later. The outcome says whether they may have been written already.
    Again(WriteOutcome),
}

impl Verdict {
    /// The verdict on a code. What is not known to be definitive is transient.
    pub(super) fn of(code: ErrorCode) -> Self {
        match code {
            // Older brokers say so of a batch that lies further back than they remember offsets.
            ErrorCode::NONE | ErrorCode::DUPLICATE_SEQUENCE_NUMBER => Self::Written,
            ErrorCode::MESSAGE_TOO_LARGE | ErrorCode::RECORD_LIST_TOO_LARGE => Self::TooLarge,
            ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER
            | ErrorCode::UNKNOWN_PRODUCER_ID
            | ErrorCode::INVALID_PRODUCER_EPOCH
            | ErrorCode::PRODUCER_FENCED
            | ErrorCode::INVALID_PRODUCER_ID_MAPPING => Self::OutOfSequence,
            code if is_definitive(code) => Self::Refused,
            code => Self::Again(outcome(code)),
        }
    }
}

/// Whether the broker refused for good: a later try ends the same way.
///
/// Everything that is not listed is worth another try, [`ErrorCode::UNKNOWN_TOPIC_OR_PARTITION`] too: metadata may lag.
pub(crate) fn is_definitive(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::MESSAGE_TOO_LARGE
            | ErrorCode::INVALID_TOPIC_EXCEPTION
            | ErrorCode::RECORD_LIST_TOO_LARGE
            | ErrorCode::TOPIC_AUTHORIZATION_FAILED
            | ErrorCode::GROUP_AUTHORIZATION_FAILED
            | ErrorCode::CLUSTER_AUTHORIZATION_FAILED
            | ErrorCode::INVALID_TIMESTAMP
            | ErrorCode::UNSUPPORTED_SASL_MECHANISM
            | ErrorCode::UNSUPPORTED_VERSION
            | ErrorCode::INVALID_PARTITIONS
            | ErrorCode::INVALID_CONFIG
            | ErrorCode::INVALID_REQUEST
            | ErrorCode::UNSUPPORTED_FOR_MESSAGE_FORMAT
            | ErrorCode::POLICY_VIOLATION
            | ErrorCode::SASL_AUTHENTICATION_FAILED
            | ErrorCode::INVALID_RECORD
    )
}

/// Whether the batch may be in the log after this answer.
///
/// Only what a broker checks before it appends proves the contrary. NOT_LEADER_OR_FOLLOWER does not: a leader that
/// steps down while it waits for its followers answers so after it has appended (`DelayedProduce.tryComplete`), and so do
/// UNKNOWN_TOPIC_OR_PARTITION and KAFKA_STORAGE_ERROR.
fn outcome(code: ErrorCode) -> WriteOutcome {
    match code {
        ErrorCode::CORRUPT_MESSAGE
        | ErrorCode::NOT_ENOUGH_REPLICAS
        | ErrorCode::INVALID_REQUIRED_ACKS
        | ErrorCode::UNSUPPORTED_COMPRESSION_TYPE
        | ErrorCode::THROTTLING_QUOTA_EXCEEDED
        | ErrorCode::CONCURRENT_TRANSACTIONS
        | ErrorCode::UNKNOWN_TOPIC_ID => WriteOutcome::NotWritten,
        _ => WriteOutcome::PossiblyWritten,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitive_are_those_of_the_delivery_rules_and_no_others() {
        let definitive: Vec<i16> = (-1..=200).filter(|code| is_definitive(ErrorCode(*code))).collect();
        assert_eq!(definitive, [10, 17, 18, 29, 30, 31, 32, 33, 35, 37, 40, 42, 43, 44, 58, 87]);
    }

    #[test]
    fn a_code_of_a_newer_broker_is_worth_another_try_and_proves_nothing() {
        assert_eq!(Verdict::of(ErrorCode(9999)), Verdict::Again(WriteOutcome::PossiblyWritten));
    }

    /// librdkafka#4438, franz-go#1217: an answer that leaves it open was taken for a refusal, and the number reused.
    #[test]
    fn answers_given_after_appending_leave_it_open() {
        for code in [
            ErrorCode::REQUEST_TIMED_OUT,
            ErrorCode::NOT_LEADER_OR_FOLLOWER,
            ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            ErrorCode::KAFKA_STORAGE_ERROR,
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode::UNKNOWN_SERVER_ERROR,
        ] {
            assert_eq!(Verdict::of(code), Verdict::Again(WriteOutcome::PossiblyWritten), "{code}");
        }
        assert_eq!(Verdict::of(ErrorCode::NOT_ENOUGH_REPLICAS), Verdict::Again(WriteOutcome::NotWritten));
    }
}
