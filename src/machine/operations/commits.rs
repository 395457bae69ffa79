//! Positions on their way to a coordinator that says anything.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kafka_protocol::messages::OffsetCommitResponse;
use kafka_protocol::messages::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use kafka_protocol::protocol::StrBytes;

use super::Operated;
use crate::machine::group::{CommitGate, CommitRequest, CommitTarget, Commits};
use crate::protocol::choices::Choices;
use crate::protocol::shape::sample::Source;
use crate::record::{NodeId, Offset, TopicPartition};
use crate::retry::ExponentialFullJitter;

pub(super) struct Member {
    commits: Commits,
    now: Instant,
    gate: CommitGate,
    asked: Option<u64>,
    /// Calls without an outcome, and what each gave.
    unsettled: BTreeMap<u64, (TopicPartition, Offset)>,
    last_ticket: u64,
}

impl Operated for Member {
    const OPERATIONS: u32 = 12;

    fn new(choices: &mut Choices<'_>) -> Self {
        let backoff = ExponentialFullJitter { first: Duration::from_millis(100), max: Duration::from_secs(1) };
        let commits = Commits::new("g", TIMEOUT, LINGERING, backoff, u64::from(choices.below(9)));
        let (gate, unsettled) = (CommitGate::Held, BTreeMap::new());
        Self { commits, now: Instant::now(), gate, asked: None, unsettled, last_ticket: 0 }
    }

    fn act(&mut self, choices: &mut Choices<'_>, operation: u32) {
        let partition = partition(choices);
        match operation {
            0..=2 => {
                self.last_ticket += 1;
                let offset = Offset(i64::from(choices.below(20)));
                self.unsettled.insert(self.last_ticket, (partition.clone(), offset));
                let note = choices.once_in(2).then(|| "note".to_owned());
                let request = CommitRequest { partition, offset, leader_epoch: None, note };
                self.commits.commit(self.now, self.last_ticket, request);
            }
            3 => {
                self.commits.forget([&partition]);
                assert!(self.asked.is_some() || !self.commits.is_busy_with(&[partition].into()), "busy, and forgotten");
            }
            4 | 5 => self.turn(choices),
            6..=8 => {
                let Some(id) = self.asked.take() else { return };
                let answer = answer(choices);
                let reaction = self.commits.handle_response(self.now, id, &answer);
                assert!(reaction.target.is_some(), "an answer that nobody asked for");
                let again = self.commits.handle_response(self.now, id, &answer);
                assert!(again.target.is_none(), "one request, answered twice");
            }
            9 => {
                let Some(id) = self.asked.take() else { return };
                self.commits.handle_failure(self.now, id, choices.once_in(6), "lost".to_owned());
            }
            10 => {
                let next = self.commits.poll_timeout();
                self.now = next.unwrap_or(self.now).max(self.now);
            }
            _ => self.now += Duration::from_millis(choices.pick(&[1, 100, 1_000, 6_000])),
        }
    }

    fn settle(&mut self, _: &mut Choices<'_>) {
        self.commits.handle_timeout(self.now);
        if let Some(transmit) = self.commits.poll_transmit(self.now, &self.gate) {
            assert!(self.asked.is_none(), "two at once");
            let named = transmit.request.topics.iter().flat_map(|topic| {
                topic.partitions.iter().map(|at| (topic.name.as_str().to_owned(), at.partition_index))
            });
            let named: Vec<_> = named.collect();
            let once: BTreeSet<_> = named.iter().collect();
            assert!(!named.is_empty() && once.len() == named.len(), "nothing, or one twice: {named:?}");
            self.asked = Some(transmit.id);
        }
        while let Some(outcome) = self.commits.poll_outcome() {
            let given = self.unsettled.remove(&outcome.ticket).expect("one outcome of each call");
            assert_eq!((outcome.partition, outcome.offset), given, "of another call");
        }
        let next = self.commits.poll_timeout();
        assert!(next.is_none_or(|at| at > self.now), "a wake-up that is past would spin: {:?}", self.commits);
        let waits = self.commits.is_idle() || self.asked.is_some() || next.is_some();
        assert!(waits, "nothing will ever happen: {:?}", self.commits);
    }

    /// Nothing is answered any more: each call has its outcome when its time is over.
    fn end(mut self, choices: &mut Choices<'_>) {
        if choices.once_in(2) {
            self.commits.close();
            self.asked = None;
        }
        for _ in 0..100 {
            self.settle(choices);
            if self.commits.is_idle() {
                assert!(self.unsettled.is_empty(), "calls without an outcome: {:?}", self.unsettled);
                return;
            }
            match self.asked.take() {
                Some(id) => drop(self.commits.handle_failure(self.now, id, false, "lost".to_owned())),
                None => self.now = self.commits.poll_timeout().expect("it waits for something"),
            }
        }
        panic!("it does not end: {:?}", self.commits);
    }
}

impl Member {
    fn turn(&mut self, choices: &mut Choices<'_>) {
        let target = CommitTarget {
            node: NodeId(1),
            member_id: StrBytes::from_static_str("m"),
            generation: choices.below(4) as i32,
            instance_id: None,
        };
        self.gate = match choices.below(6) {
            0 => CommitGate::Held,
            1 => CommitGate::Closed,
            _ => CommitGate::Open(target),
        };
    }
}

fn partition(choices: &mut Choices<'_>) -> TopicPartition {
    TopicPartition::new(choices.pick(&["t", "u"]), choices.below(2) as i32)
}

fn answer(choices: &mut Choices<'_>) -> OffsetCommitResponse {
    let topics = (0..choices.below(5)).map(|_| {
        let partitions = (0..choices.below(3)).map(|_| {
            let number = if choices.once_in(6) { choices.number() as i32 } else { partition(choices).partition };
            let code = choices.code().0;
            OffsetCommitResponsePartition::default().with_partition_index(number).with_error_code(code)
        });
        let partitions = partitions.collect();
        let name = StrBytes::from_static_str(choices.pick(&["t", "u", "v", ""]));
        OffsetCommitResponseTopic::default().with_name(name.into()).with_partitions(partitions)
    });
    let topics = topics.collect();
    OffsetCommitResponse::default().with_topics(topics)
}

const LINGERING: Duration = Duration::from_secs(3);
const TIMEOUT: Duration = Duration::from_secs(5);
