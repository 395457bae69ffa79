//! What a coordinator's error code means for the transaction.

use crate::protocol::error_code::ErrorCode;

/// Which request was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Init,
    AddPartitions,
    AddOffsets,
    CommitOffsets,
    End,
}

/// What becomes of the transaction after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is done.
    Done,
    /// The same may succeed later.
    Again,
    /// The same may succeed soon: the end of the transaction before is not written everywhere yet.
    Soon,
    /// The coordinator is another one.
    Elsewhere,
    /// The transaction can only be aborted.
    Abort,
    /// The coordinator knows nothing of it: there is nothing to end, and the producer needs another epoch.
    Renew,
    /// Another producer has taken over.
    Fenced,
    /// No further transaction will do better.
    Over,
}

/// The verdict on a code. What is not known to be definitive is transient; the caller's deadline ends it.
pub(super) fn verdict(asked: Asked, code: ErrorCode) -> Verdict {
    use Asked::{AddPartitions, CommitOffsets, Init};
    match code {
        ErrorCode::NONE => Verdict::Done,
        ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE => Verdict::Elsewhere,
        ErrorCode::REQUEST_TIMED_OUT if asked == CommitOffsets => Verdict::Elsewhere,
        ErrorCode::CONCURRENT_TRANSACTIONS => Verdict::Soon,
        // Only a leader says the epoch is old and means this transaction alone; a coordinator means the producer.
        ErrorCode::PRODUCER_FENCED | ErrorCode::INVALID_PRODUCER_EPOCH => Verdict::Fenced,
        ErrorCode::INVALID_PRODUCER_ID_MAPPING | ErrorCode::UNKNOWN_PRODUCER_ID | ErrorCode::INVALID_TXN_STATE => {
            match asked {
                Init => Verdict::Fenced,
                _ => Verdict::Renew,
            }
        }
        ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        | ErrorCode::CLUSTER_AUTHORIZATION_FAILED
        | ErrorCode::INVALID_TRANSACTION_TIMEOUT
        | ErrorCode::UNSUPPORTED_VERSION
        | ErrorCode::UNSUPPORTED_FOR_MESSAGE_FORMAT
        | ErrorCode::INVALID_REQUEST
        | ErrorCode::SASL_AUTHENTICATION_FAILED => Verdict::Over,
        ErrorCode::TRANSACTION_ABORTABLE if asked != Init => Verdict::Abort,
        ErrorCode::TOPIC_AUTHORIZATION_FAILED | ErrorCode::INVALID_TOPIC_EXCEPTION
            if matches!(asked, AddPartitions | CommitOffsets) =>
        {
            Verdict::Abort
        }
        ErrorCode::GROUP_AUTHORIZATION_FAILED
        | ErrorCode::INVALID_GROUP_ID
        | ErrorCode::ILLEGAL_GENERATION
        | ErrorCode::UNKNOWN_MEMBER_ID
        | ErrorCode::FENCED_INSTANCE_ID
        | ErrorCode::STALE_MEMBER_EPOCH
        | ErrorCode::FENCED_MEMBER_EPOCH
        | ErrorCode::GROUP_ID_NOT_FOUND
        | ErrorCode::OFFSET_METADATA_TOO_LARGE
        | ErrorCode::INVALID_COMMIT_OFFSET_SIZE
            if matches!(asked, Asked::AddOffsets | CommitOffsets) =>
        {
            Verdict::Abort
        }
        _ => Verdict::Again,
    }
}

/// Whether a leader that gives this code to a batch means the producer, and not the transaction alone.
pub(super) fn ends_producer(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::PRODUCER_FENCED
            | ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            | ErrorCode::CLUSTER_AUTHORIZATION_FAILED
            | ErrorCode::UNSUPPORTED_VERSION
            | ErrorCode::UNSUPPORTED_FOR_MESSAGE_FORMAT
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that is not transient, for every request. A code that is missing here is tried again.
    #[test]
    fn every_code_of_every_request_has_its_verdict() {
        use Asked::*;
        let everywhere = [
            (0, Verdict::Done),
            (15, Verdict::Elsewhere),
            (16, Verdict::Elsewhere),
            (31, Verdict::Over),
            (35, Verdict::Over),
            (42, Verdict::Over),
            (43, Verdict::Over),
            (47, Verdict::Fenced),
            (50, Verdict::Over),
            (51, Verdict::Soon),
            (53, Verdict::Over),
            (58, Verdict::Over),
            (90, Verdict::Fenced),
        ];
        let group = [22, 24, 25, 30, 12, 28, 69, 82, 110, 113].map(|code| (code, Verdict::Abort));
        let topics = [(17, Verdict::Abort), (29, Verdict::Abort)];
        let renewed = [48, 49, 59].map(|code| (code, Verdict::Renew));
        let abortable = [(120, Verdict::Abort)];
        let table: [(Asked, Vec<(i16, Verdict)>); 5] = [
            (Init, [48, 49, 59].map(|code| (code, Verdict::Fenced)).to_vec()),
            (AddPartitions, [&topics[..], &renewed, &abortable].concat()),
            (AddOffsets, [&group[..], &renewed, &abortable].concat()),
            (CommitOffsets, [&topics[..], &group, &renewed, &abortable, &[(7, Verdict::Elsewhere)]].concat()),
            (End, [&renewed[..], &abortable].concat()),
        ];
        for (asked, own) in table {
            for code in (-1..200).chain([9999]) {
                let expected = everywhere.iter().chain(&own).find(|(of, _)| *of == code);
                let expected = expected.map_or(Verdict::Again, |(_, verdict)| *verdict);
                assert_eq!(verdict(asked, ErrorCode(code)), expected, "{asked:?} {}", ErrorCode(code));
            }
        }
    }

    /// INVALID_PRODUCER_EPOCH of a leader is an old marker's; of a coordinator it is another producer's.
    #[test]
    fn a_leader_ends_the_producer_by_few_codes() {
        let ends: Vec<_> = (-1..200).filter(|code| ends_producer(ErrorCode(*code))).collect();
        assert_eq!(ends, [31, 35, 43, 53, 90]);
    }
}
