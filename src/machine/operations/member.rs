//! A member of a group of any kind, and a coordinator that says anything.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::Operated;
use crate::machine::group::{CommitReaction, CommitTarget, Failure};
use crate::protocol::choices::Choices;
use crate::protocol::shape::sample::Source;
use crate::record::{NodeId, Topic};

/// A member's machine, with what its application was told.
pub(super) trait Membership: Debug + Sized {
    /// Names a request.
    type Id: Copy;
    /// Times that pass at once, in milliseconds.
    const TIMES: &'static [u64];
    /// Whether what is taken away has to be given back before another gets it.
    const GIVES_BACK: bool;

    fn new(choices: &mut Choices<'_>, now: Instant) -> Self;

    /// The next request, which has to be one that such a member may send.
    fn poll_transmit(&mut self, now: Instant) -> Option<(Self::Id, Asked)>;

    /// Takes what is told, which has to agree with what was told before.
    fn hear(&mut self);

    fn poll_timeout(&self) -> Option<Instant>;

    fn handle_timeout(&mut self, now: Instant);

    fn handle_coordinator(&mut self, now: Instant, id: Self::Id, found: Result<NodeId, Failure>);

    fn handle_failure(&mut self, now: Instant, id: Self::Id, failure: Failure);

    /// Any answer to anything but the search for the coordinator.
    fn handle_answer(&mut self, choices: &mut Choices<'_>, now: Instant, id: Self::Id, asked: Asked);

    /// What was taken away is given back.
    fn released(&mut self, _now: Instant) {}

    /// What others than the coordinator have to say.
    fn tell(&mut self, choices: &mut Choices<'_>, now: Instant);

    fn leave(&mut self);

    fn is_ended(&self) -> bool;

    /// Whether its application was told that it is over.
    fn has_told_its_end(&self) -> bool;

    /// Whether it waits for what its driver has to find out.
    fn waits_for_its_driver(&self) -> bool {
        false
    }
}

/// What a coordinator, or who knows it, is asked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Asked {
    Find,
    Describe,
    Join,
    Sync,
    Heartbeat,
    Leave,
}

/// A member and its driver.
pub(super) struct Member<M: Membership> {
    machine: M,
    now: Instant,
    asked: Vec<(M::Id, Asked)>,
    /// Requests since time passed.
    at_once: u32,
}

impl<M: Membership> Operated for Member<M> {
    const OPERATIONS: u32 = 12;

    fn new(choices: &mut Choices<'_>) -> Self {
        let now = Instant::now();
        Self { machine: M::new(choices, now), now, asked: Vec::new(), at_once: 0 }
    }

    fn act(&mut self, choices: &mut Choices<'_>, operation: u32) {
        match operation {
            0..=5 => self.answer(choices),
            6 => self.fail(choices),
            7 => self.pass(Duration::from_millis(choices.pick(M::TIMES))),
            9 if M::GIVES_BACK => self.machine.released(self.now),
            8 | 9 => self.pass_to_the_next(),
            10 => self.machine.tell(choices, self.now),
            _ => {
                if choices.once_in(6) {
                    self.machine.leave();
                }
            }
        }
    }

    /// Sends what is to be sent, hears what is told, and looks whether somebody is left waiting.
    fn settle(&mut self, _: &mut Choices<'_>) {
        self.machine.handle_timeout(self.now);
        loop {
            let transmit = self.machine.poll_transmit(self.now);
            self.machine.hear();
            let Some((id, asked)) = transmit else { break };
            // A second one of a kind means that the first is given up.
            self.asked.retain(|(_, other)| *other != asked);
            self.asked.push((id, asked));
            self.at_once += 1;
            assert!(self.at_once < STORM, "asks and asks, and no time passes");
        }
        let next = self.machine.poll_timeout();
        if self.machine.is_ended() {
            assert!(self.machine.has_told_its_end() && next.is_none(), "over, and not told or still waiting");
            return;
        }
        assert!(next.is_none_or(|at| at > self.now), "a wake-up that is past would spin: {:?}", self.machine);
        let waits = !self.asked.is_empty() || self.machine.waits_for_its_driver();
        assert!(next.is_some() || waits, "nothing will ever happen: {:?}", self.machine);
    }

    /// It leaves, and nothing is answered any more.
    fn end(mut self, choices: &mut Choices<'_>) {
        self.machine.leave();
        for _ in 0..100 {
            self.settle(choices);
            if self.machine.is_ended() {
                return;
            }
            match self.asked.pop() {
                Some((id, Asked::Find)) => self.machine.handle_coordinator(self.now, id, Ok(NodeId(1))),
                Some((id, _)) => {
                    let failure = Failure { fatal: false, silent: true, what: "lost".to_owned() };
                    self.machine.handle_failure(self.now, id, failure);
                }
                None => self.pass_to_the_next(),
            }
        }
        panic!("it does not leave: {:?}", self.machine);
    }
}

impl<M: Membership> Member<M> {
    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.at_once = 0;
        self.machine.handle_timeout(self.now);
    }

    fn pass_to_the_next(&mut self) {
        if let Some(at) = self.machine.poll_timeout() {
            self.pass(at.saturating_duration_since(self.now));
        }
    }

    /// Something of what was asked, not always the first, is answered, not always once.
    fn answer(&mut self, choices: &mut Choices<'_>) {
        let Some(at) = choices.index(self.asked.len()) else { return };
        let (id, asked) = if choices.once_in(8) { self.asked[at] } else { self.asked.remove(at) };
        match asked {
            Asked::Find => {
                let node = NodeId(choices.below(3) as i32 - 1);
                self.machine.handle_coordinator(self.now, id, Ok(node));
            }
            asked => self.machine.handle_answer(choices, self.now, id, asked),
        }
    }

    fn fail(&mut self, choices: &mut Choices<'_>) {
        let Some(at) = choices.index(self.asked.len()) else { return };
        let (id, asked) = self.asked.remove(at);
        let failure = Failure { fatal: choices.once_in(12), silent: choices.once_in(2), what: "lost".to_owned() };
        match asked {
            Asked::Find => self.machine.handle_coordinator(self.now, id, Err(failure)),
            _ => self.machine.handle_failure(self.now, id, failure),
        }
    }
}

/// What a coordinator assigns that names topics by id: nothing new, or partitions of some of them.
pub(super) fn assignment(choices: &mut Choices<'_>) -> Option<Vec<(Uuid, Vec<i32>)>> {
    let topics = choices.once_in(2).then(|| choices.below(3))?;
    let topics = (0..topics).map(|_| {
        let partitions = (0..choices.below(3)).map(|_| choices.pick(&[0, 1, -1, i32::MAX])).collect();
        (Uuid::from_u128(u128::from(choices.below(4))), partitions)
    });
    Some(topics.collect())
}

/// The topics by their ids, as far as they are known. Two ids have one name, as after a topic was created anew.
pub(super) fn name(id: Uuid, known: u32) -> Option<Topic> {
    let id = id.as_u128() as u32;
    (id < known).then(|| ["t", "u", "t", "v"][id as usize % 4].into())
}

/// What a commit's answer says of the membership that it was made by, or of the one before.
pub(super) fn reaction(choices: &mut Choices<'_>, mut target: CommitTarget) -> CommitReaction {
    if choices.once_in(3) {
        target.generation = choices.number() as i32;
    }
    CommitReaction {
        moved: choices.once_in(3),
        rebalance: choices.once_in(3),
        fenced: Some(choices.code()).filter(|code| !code.is_ok()),
        target: Some(target),
    }
}

/// More requests than a member has reason for while no time passes, however its coordinator answers.
const STORM: u32 = 64;
