//! A member's share sessions, and brokers that acquire, answer and refuse anything.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kafka_protocol::messages::share_fetch_response::{AcquiredRecords, PartitionData};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::Operated;
use super::fetch::records;
use crate::machine::fetch::Leader;
use crate::machine::share::{
    AcknowledgeType, Acquired, Answer, Next, NoAnswer, Outcome, PartAnswer, Plan, SessionConfig, Sessions, open,
};
use crate::protocol::batch::ReadOptions;
use crate::protocol::choices::Choices;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::shape::sample::Source;
use crate::record::{LeaderEpoch, NodeId, Offset, TopicPartition};

pub(super) struct Consumer {
    sessions: Sessions,
    now: Instant,
    plans: Vec<Plan>,
    /// Handed over and not dropped.
    held: Vec<Acquired>,
    /// Offsets of each call whose fate is not known yet.
    unsettled: BTreeMap<u64, BTreeSet<i64>>,
    last_ticket: u64,
}

impl Operated for Consumer {
    const OPERATIONS: u32 = 16;

    fn new(_: &mut Choices<'_>) -> Self {
        let config = SessionConfig { max_bytes: 1 << 14, budget_bytes: 1 << 14, ..SessionConfig::default() };
        let sessions = Sessions::new(config, "g", StrBytes::from_static_str("m"));
        let (plans, held, unsettled) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self { sessions, now: Instant::now(), plans, held, unsettled, last_ticket: 0 }
    }

    fn act(&mut self, choices: &mut Choices<'_>, operation: u32) {
        match operation {
            0 => self.assign(choices),
            1 => self.lead(choices),
            2 | 3 => self.sessions.want(operation == 2 || choices.once_in(2)),
            4..=7 => self.answer(choices),
            8 => self.fail(choices),
            9 | 10 => self.take(),
            11 | 12 => self.acknowledge(choices),
            13 => {
                if let Some(at) = choices.index(self.held.len()) {
                    self.held.remove(at);
                }
            }
            14 => {
                if choices.once_in(12) {
                    self.sessions.close();
                }
            }
            _ => {
                let time = choices.pick(&[1, 30, 500, 6_000, 31_000]);
                self.now += Duration::from_millis(time);
            }
        }
    }

    fn settle(&mut self, _: &mut Choices<'_>) {
        for node in self.sessions.nodes() {
            match self.sessions.poll(self.now, node) {
                Next::Send(plan) => {
                    assert!(self.plans.iter().all(|other| other.node != node), "two at once");
                    check(&plan);
                    self.plans.push(plan);
                }
                Next::Wait(next) => assert!(next.is_none_or(|at| at > self.now), "a wake-up that is past"),
                Next::Gone => assert!(!self.sessions.nodes().contains(&node), "gone, and spoken of"),
            }
        }
        self.told();
    }

    /// It closes, and whatever brokers say, every call has its verdict and all memory is given back.
    fn end(mut self, choices: &mut Choices<'_>) {
        self.sessions.close();
        for round in 0.. {
            self.settle(choices);
            if self.sessions.is_closed() {
                break;
            }
            assert!(round < 8, "it does not close: {:?}", self.sessions);
            for plan in std::mem::take(&mut self.plans) {
                let (lock_timeout, throttle) = (Duration::from_secs(30), Duration::ZERO);
                let answer = Answer { code: ErrorCode::NONE, lock_timeout, throttle, partitions: Vec::new() };
                self.sessions.handle_answer(self.now, &plan, answer);
            }
        }
        self.told();
        assert!(self.unsettled.is_empty(), "calls without a verdict: {:?}", self.unsettled);
        self.held.clear();
        assert_eq!(self.sessions.budget().used(), 0, "memory that nobody holds is not given back");
    }
}

impl Consumer {
    fn assign(&mut self, choices: &mut Choices<'_>) {
        let all = (0..PARTITIONS).filter(|_| !choices.once_in(3)).collect::<Vec<_>>();
        let topic = choices.pick(&[1, 1, 1, 2]);
        self.sessions.assign(&all.into_iter().map(|at| (partition(at), Uuid::from_u128(topic))).collect());
        self.lead(choices);
    }

    fn lead(&mut self, choices: &mut Choices<'_>) {
        let (node, epoch) = (NodeId(choices.below(2) as i32), choices.below(4) as i32);
        let topic_id = Uuid::from_u128(choices.pick(&[1, 1, 2]));
        let epoch = (epoch > 0).then_some(LeaderEpoch(epoch));
        let only = choices.below(PARTITIONS + 1);
        self.sessions.update_leaders(|asked| {
            (only == PARTITIONS || *asked == partition(only)).then_some(Leader { node, epoch, topic_id })
        });
    }

    fn answer(&mut self, choices: &mut Choices<'_>) {
        let Some(at) = choices.index(self.plans.len()) else { return };
        let plan = self.plans.remove(at);
        let mut partitions: Vec<PartAnswer> = Vec::new();
        for _ in 0..choices.below(5) {
            let part = self.part(choices, &plan);
            // A partition that is named twice counts once.
            if partitions.iter().all(|other| other.id != part.id) {
                partitions.push(part);
            }
        }
        let answer = Answer {
            code: if choices.once_in(8) { choices.code() } else { ErrorCode::NONE },
            lock_timeout: Duration::from_millis(choices.pick(&[30_000, 30_000, 0, 1, 2_147_483_647])),
            throttle: Duration::from_millis(choices.pick(&[0, 0, 0, 50, 30_000])),
            partitions,
        };
        self.sessions.handle_answer(self.now, &plan, answer);
        if choices.once_in(8) {
            // Said again, of a request that is answered.
            let code = choices.code();
            let again = Answer { code, lock_timeout: Duration::ZERO, throttle: Duration::ZERO, partitions: Vec::new() };
            self.sessions.handle_answer(self.now, &plan, again);
        }
    }

    fn part(&mut self, choices: &mut Choices<'_>, plan: &Plan) -> PartAnswer {
        let topic = Uuid::from_u128(choices.pick(&[1, 1, 1, 2, 3]));
        let number = if choices.once_in(8) { choices.number() as i32 } else { choices.below(2) as i32 };
        let code = |choices: &mut Choices<'_>| match choices.below(6) {
            0 => choices.code(),
            1 => ErrorCode::INVALID_RECORD_STATE,
            _ => ErrorCode::NONE,
        };
        let (fetch, acknowledge) = (code(choices), code(choices));
        let opened = (plan.fetch.is_some() && fetch.is_ok()).then(|| {
            let mut data = data(choices);
            open(&mut data, &ReadOptions::default(), self.sessions.budget())
        });
        PartAnswer { id: (topic, number), fetch, acknowledge, opened }
    }

    fn fail(&mut self, choices: &mut Choices<'_>) {
        let Some(at) = choices.index(self.plans.len()) else { return };
        let plan = self.plans.remove(at);
        let failure = match choices.below(3) {
            0 if plan.renews() => NoAnswer::CannotRenew,
            1 => NoAnswer::NotSent,
            _ => NoAnswer::Unknown { what: "lost".to_owned() },
        };
        self.sessions.handle_failure(self.now, &plan, &failure);
    }

    fn take(&mut self) {
        let Some(acquired) = self.sessions.poll_batch(self.now) else { return };
        assert!(acquired.deadline > self.now, "handed over, and locked no more");
        let present: BTreeSet<i64> =
            acquired.batches.iter().flat_map(|view| view.records()).flatten().map(|record| record.offset.0).collect();
        let mut end = -1;
        assert!(!acquired.ranges.is_empty(), "handed over, and empty");
        for range in &acquired.ranges {
            assert!(end < range.first.0 && range.first <= range.last, "out of order: {:?}", acquired.ranges);
            assert!((range.first.0..=range.last.0).all(|offset| present.contains(&offset)), "acquired, and not there");
            end = range.last.0;
        }
        if self.held.len() < 4 {
            self.held.push(acquired);
        }
    }

    fn acknowledge(&mut self, choices: &mut Choices<'_>) {
        let Some(at) = choices.index(self.held.len()) else { return };
        let acquired = &self.held[at];
        let Some(range) = choices.index(acquired.ranges.len()).map(|at| acquired.ranges[at]) else { return };
        let kinds =
            [AcknowledgeType::Accept, AcknowledgeType::Release, AcknowledgeType::Reject, AcknowledgeType::Renew];
        let kind = choices.pick(&kinds);
        let first = if choices.once_in(4) { range.last } else { range.first };
        let last = if choices.once_in(8) { Offset(choices.number()) } else { range.last };
        self.last_ticket += 1;
        if self.sessions.acknowledge(self.last_ticket, &acquired.lock, (first, last), kind).is_ok() {
            assert!(last.0 - first.0 < 100, "more than was ever held");
            self.unsettled.insert(self.last_ticket, (first.0..=last.0).collect());
        }
    }

    fn told(&mut self) {
        while self.sessions.poll_event().is_some() {}
        while let Some(outcome) = self.sessions.poll_outcome() {
            let Outcome { ticket, first, last, kind, result, .. } = outcome;
            let renewed = result.as_ref().is_ok_and(|deadline| deadline.is_some());
            assert!(!renewed || kind == AcknowledgeType::Renew, "a deadline of what is done");
            let left = self.unsettled.get_mut(&ticket).expect("the fate of a call that nobody made");
            for offset in first.0..=last.0 {
                assert!(left.remove(&offset), "{offset} of call {ticket} has two fates");
            }
            if left.is_empty() {
                self.unsettled.remove(&ticket);
            }
        }
    }
}

fn data(choices: &mut Choices<'_>) -> PartitionData {
    let base = i64::from(choices.below(12));
    let acquired = (0..choices.below(4)).map(|_| {
        let first = if choices.once_in(6) { choices.number() } else { base };
        let last = if choices.once_in(6) { choices.number() } else { base + 1 };
        let count = choices.number() as i16;
        AcquiredRecords::default().with_first_offset(first).with_last_offset(last).with_delivery_count(count)
    });
    let acquired = acquired.collect();
    let records: Vec<u8> = (0..choices.below(3)).flat_map(|_| records(choices, base)).collect();
    PartitionData::default().with_acquired_records(acquired).with_records(Some(records.into()))
}

fn check(plan: &Plan) {
    let said = plan.acknowledge_request().body;
    let ranges = said.topics.iter().flat_map(|topic| &topic.partitions).flat_map(|at| &at.acknowledgement_batches);
    let mut count = 0;
    for range in ranges {
        assert!(0 <= range.first_offset && range.first_offset <= range.last_offset, "{range:?} cannot be");
        count += 1;
    }
    if let Some(fetch) = &plan.fetch {
        assert!(plan.epoch >= 0 && !plan.renews(), "fetched with what cannot be");
        let _ = plan.fetch_request(fetch);
    } else {
        assert!(count > 0 || plan.epoch == -1, "it says nothing");
    }
}

fn partition(number: u32) -> TopicPartition {
    TopicPartition::new(if number < 2 { "t" } else { "u" }, (number % 2) as i32)
}

const PARTITIONS: u32 = 3;
