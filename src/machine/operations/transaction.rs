//! Transactions, and coordinators that say anything.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Operated;
use crate::error::WriteOutcome;
use crate::machine::produce::{PartitionIndex, ProduceError, ProduceErrorKind, ProducerId};
use crate::machine::transaction::{
    Ask, GroupMetadata, NoReply, Order, Reply, TransactionErrorKind, TransactionOffset, Transactions, Version,
};
use crate::protocol::choices::Choices;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::shape::sample::Source;
use crate::record::{Offset, TopicPartition};
use crate::retry::ExponentialFullJitter;

pub(super) struct Producer {
    machine: Transactions,
    now: Instant,
    /// What the coordinator was asked and has not answered.
    asked: Option<Ask>,
    /// Whether the producer was told that nothing more is added, and has not said that it is quiet.
    draining: bool,
    open: bool,
    /// What the end of this transaction was asked to be, once a try of it may have been acted on.
    doubted: Option<bool>,
}

impl Operated for Producer {
    const OPERATIONS: u32 = 12;

    fn new(_: &mut Choices<'_>) -> Self {
        let backoff = ExponentialFullJitter { first: Duration::from_millis(100), max: Duration::from_secs(1) };
        let machine = Transactions::new("x".to_owned(), backoff, Box::new(|| 0.5));
        Self { machine, now: Instant::now(), asked: None, draining: false, open: false, doubted: None }
    }

    fn act(&mut self, choices: &mut Choices<'_>, operation: u32) {
        match operation {
            0 => self.begin(),
            1 => {
                let partition = choices.below(3);
                let name = TopicPartition::new("t", partition as i32);
                self.machine.handle_wanted([(PartitionIndex(partition as usize), name)]);
            }
            2 => self.add_offsets(choices),
            3 => {
                let commit = choices.once_in(2);
                self.machine.end(commit);
            }
            4 => {
                if std::mem::take(&mut self.draining) {
                    let sent = choices.once_in(2);
                    self.machine.handle_quiet(sent);
                }
            }
            5 => self.fail(choices),
            6 => {
                let error = self.machine.give_up("commit", Duration::from_secs(1));
                let _ = error.to_string();
            }
            7 => self.now += Duration::from_millis(u64::from(choices.below(2_000))),
            8 => self.lose(choices),
            _ => self.reply(choices),
        }
    }

    fn settle(&mut self, _: &mut Choices<'_>) {
        if self.asked.is_none()
            && let Some(call) = self.machine.poll_call(self.now)
        {
            if let Ask::End { commit } = call.ask {
                assert!(self.doubted.is_none_or(|before| before == commit), "an end in doubt is asked otherwise");
                assert!(!self.draining, "the end leaves before the producer is quiet");
            }
            self.asked = Some(call.ask);
        }
        assert!(self.asked.is_none() || self.machine.poll_call(self.now).is_none(), "two at once");
        let orders: VecDeque<Order> = std::iter::from_fn(|| self.machine.poll_order()).collect();
        for order in orders {
            match order {
                Order::End { .. } => self.draining = true,
                Order::Begin { .. } => assert!(!self.draining, "begun while the one before is not quiet"),
                _ => {}
            }
        }
        if self.machine.ended().is_some() {
            self.open = false;
        }
        if self.asked.is_none() {
            let next = self.machine.poll_timeout();
            assert!(next.is_none_or(|at| at > self.now), "a wake-up that is past would spin: {:?}", self.machine);
        }
    }

    /// The application ends its transaction, and everything is answered from now on.
    fn end(mut self, choices: &mut Choices<'_>) {
        self.machine.end(false);
        for _ in 0..200 {
            self.settle(choices);
            if std::mem::take(&mut self.draining) {
                self.machine.handle_quiet(true);
            } else if self.asked.take().is_some() {
                let producer = Some(ProducerId { id: 1, epoch: 1 });
                let codes = vec![ErrorCode::NONE];
                self.machine.handle_reply(self.now, Reply { seen: None, codes, producer });
            } else if self.machine.is_at_rest() {
                return;
            } else {
                self.now += Duration::from_millis(100);
            }
        }
        panic!("it does not end: {:?}", self.machine);
    }
}

impl Producer {
    fn begin(&mut self) {
        if !self.open && self.machine.is_decided() && self.machine.begin().is_ok_and(|begun| begun) {
            self.open = true;
            self.doubted = None;
        }
    }

    fn add_offsets(&mut self, choices: &mut Choices<'_>) {
        if !self.open {
            return;
        }
        let offset = TransactionOffset {
            partition: TopicPartition::new("in", 0),
            offset: Offset(choices.number()),
            leader_epoch: None,
            note: String::new(),
        };
        let _ = self.machine.add_offsets(GroupMetadata::without_member(choices.pick(&["g", "h"])), vec![offset]);
    }

    fn fail(&mut self, choices: &mut Choices<'_>) {
        let code = choices.code();
        if code.is_ok() {
            return self.machine.fail(TransactionErrorKind::Closed);
        }
        let kind = ProduceErrorKind::Refused { code, message: None };
        let outcome = WriteOutcome::NotWritten;
        let error = ProduceError { topic: "t".into(), partition: Some(0), outcome, kind, source: None };
        self.machine.handle_send_failed(&Arc::new(error));
    }

    fn lose(&mut self, choices: &mut Choices<'_>) {
        let Some(ask) = self.asked.take() else { return };
        let why = choices.pick(&[NoReply::NotSent, NoReply::Unanswered, NoReply::Unanswered]);
        let why = match choices.below(24) {
            22 => NoReply::Unsupported,
            23 => NoReply::Closed,
            _ => why,
        };
        if let (Ask::End { commit }, NoReply::Unanswered) = (&ask, why) {
            self.doubted = Some(*commit);
        }
        self.machine.handle_no_reply(self.now, why);
    }

    fn reply(&mut self, choices: &mut Choices<'_>) {
        if self.asked.take().is_none() {
            return;
        }
        let codes = (0..choices.below(4)).map(|_| choices.code()).collect();
        let producer = choices.once_in(2).then(|| {
            let (id, epoch) = (choices.number(), choices.number() as i16);
            ProducerId { id, epoch }
        });
        let seen = choices.pick(&[None, Some(Version::One), Some(Version::Two)]);
        self.machine.handle_reply(self.now, Reply { seen, codes, producer });
    }
}
