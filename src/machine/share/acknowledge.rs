//! What becomes of records that were acknowledged.

use std::time::{Duration, Instant};

use super::plan::{Piece, Plan, Word};
use super::session::Held;
use super::{AcknowledgeType, CLOSE, MOVED, Outcome, Refusal, Sessions};
use crate::protocol::error_code::ErrorCode;
use crate::record::{NodeId, Offset};

impl Sessions {
    /// What an answer says of what was acknowledged of one partition.
    pub(super) fn acknowledged(
        &mut self,
        now: Instant,
        plan: &Plan,
        lock_timeout: Duration,
        code: Option<ErrorCode>,
        pieces: Vec<Piece>,
    ) {
        match code {
            Some(ErrorCode::NONE) => {
                for piece in pieces {
                    let renewed = piece.word == Word::Of(AcknowledgeType::Renew);
                    let deadline = renewed.then(|| plan.sent + lock_timeout);
                    if let Some(deadline) = deadline {
                        self.hold_again(plan, &piece, deadline, deadline + lock_timeout);
                    }
                    self.conclude(piece, Ok(deadline));
                }
            }
            Some(ErrorCode::INVALID_RECORD_STATE) if plan.epoch != CLOSE => self.ask_in_parts(now, plan.node, pieces),
            Some(ErrorCode::INVALID_RECORD_STATE) => {
                for piece in pieces {
                    self.conclude(piece, Err(Refusal::Lost));
                }
            }
            // A leader repeats what it writes to the group's state until that is answered. Where the group's state was given to the
            // next leader meanwhile, the repeat is refused, though the first may be in it.
            Some(code) if MOVED.contains(&code) => {
                for piece in pieces {
                    self.conclude(piece, Err(Refusal::Unknown { what: code.to_string() }));
                }
            }
            Some(code) => {
                for piece in pieces {
                    self.conclude_held(plan, piece, Refusal::Refused(code));
                }
            }
            None => {
                let what = "the answer leaves the partition out";
                for piece in pieces {
                    self.conclude(piece, Err(Refusal::Unknown { what: what.to_owned() }));
                }
            }
        }
    }

    /// Finds out which of them are lost: one alone is.
    fn ask_in_parts(&mut self, now: Instant, at: NodeId, pieces: Vec<Piece>) {
        let is_one = pieces.len() == 1;
        let mut again = Vec::new();
        for piece in pieces {
            // What this client says by itself nobody waits for, and there is no end to the halves of a gap that a peer made up: the
            // lock's end does the same.
            if piece.ticket.is_none() || now >= piece.deadline || (is_one && piece.first == piece.last) {
                self.conclude(piece, Err(Refusal::Lost));
            } else if is_one {
                let middle = piece.first + (piece.last - piece.first) / 2;
                again.push(Piece { last: middle, alone: true, ..piece.clone() });
                again.push(Piece { first: middle + 1, alone: true, ..piece });
            } else {
                again.push(Piece { alone: true, ..piece });
            }
        }
        if let Some(node) = self.nodes.get_mut(&at) {
            again.into_iter().rev().for_each(|piece| node.waiting.push_front(piece));
        }
    }

    /// Puts a range back: it can be acknowledged again.
    pub(super) fn hold_again(&mut self, plan: &Plan, piece: &Piece, deadline: Instant, forget: Instant) {
        let Some(node) = self.nodes.get_mut(&plan.node) else { return };
        if node.session.id() == Some(plan.session) && plan.epoch != CLOSE {
            let partition = piece.partition.clone();
            let range = Held { last: piece.last, deadline, forget, partition };
            node.held.entry(piece.id).or_default().insert(piece.first, range);
        }
    }

    pub(super) fn conclude_held(&mut self, plan: &Plan, piece: Piece, refusal: Refusal) {
        if piece.ticket.is_some() {
            let forget = piece.deadline + piece.deadline.saturating_duration_since(plan.sent);
            self.hold_again(plan, &piece, piece.deadline, forget);
        }
        self.conclude(piece, Err(refusal));
    }

    pub(super) fn conclude(&mut self, piece: Piece, result: Result<Option<Instant>, Refusal>) {
        // What this client acknowledges by itself nobody waits for: the lock's end does the same.
        if let (Some(ticket), Word::Of(kind)) = (piece.ticket, piece.word) {
            let (first, last) = (Offset(piece.first), Offset(piece.last));
            self.outcomes.push_back(Outcome { ticket, partition: piece.partition, first, last, kind, result });
        }
    }
}
