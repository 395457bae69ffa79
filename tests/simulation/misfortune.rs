//! What happens to the cluster and the networks, and the end of it.

use std::time::Duration;

use fastrand::Rng;
use kafka_harbor::protocol::api::ApiKey;
use kafka_harbor::protocol::error_code::ErrorCode;
use kafka_harbor::record::Timestamp;
use kafka_harbor::testing::broker::{Effect, Network, Rule, RuleId};
use tokio::time::{Instant, advance, sleep};

use super::history::{Group, What};
use super::operator::{self, IDLE};
use super::world::{COPIES, LEDGER, NODES, SECOND, World, at};

/// Misfortunes for a while; then all of them are undone. Of a long run a node may stay down: the one that is answered.
pub(crate) async fn storm(world: &World, rng: &mut Rng) -> Option<i32> {
    let mut storm = Storm { world, rng, to_undo: Vec::new(), rules: Vec::new() };
    let ends = Instant::now() + Duration::from_secs(storm.rng.u64(20..60));
    while Instant::now() < ends {
        sleep(Duration::from_millis(storm.rng.u64(0..2_500))).await;
        storm.undo(Instant::now());
        match storm.rng.u8(0..50) {
            0 => storm.stall().await,
            _ if world.plan.loses_ends => storm.strike_ends(),
            _ => storm.strike(),
        }
    }
    storm.end()
}

struct Storm<'a> {
    world: &'a World,
    rng: &'a mut Rng,
    to_undo: Vec<(Instant, Lasting)>,
    rules: Vec<RuleId>,
}

/// What lasts until it is undone.
enum Lasting {
    Down(i32),
    Paused(i32),
    NotFollowing(i32),
    Cut(Network, i32),
}

impl Storm<'_> {
    fn strike(&mut self) {
        let (node, partition) = (self.rng.i32(1..=NODES), self.partition());
        match self.rng.u8(0..28) {
            0..2 => self.crash(node),
            2 => self.hang(node),
            3 => self.stop_following(node),
            4..7 => self.cut(node),
            7..10 => self.lose_connections(node),
            10..13 => self.move_leader(partition, node),
            13 => self.act(format_args!("epoch of {} grows", at(partition)), |cluster, now| {
                cluster.bump_leader_epoch(&at(partition), now).unwrap();
            }),
            14 => self.move_coordinator(node),
            15 => self.expire_member(),
            16 => self.slow_down(400),
            17 => self.move_clock(),
            18 => self.forget_producers(partition),
            _ => self.order(node),
        }
    }

    /// Answers to EndTxn get lost, now before and now after it was acted on; and its coordinator moves.
    fn strike_ends(&mut self) {
        let node = self.rng.i32(1..=NODES);
        match self.rng.u8(0..16) {
            0 => self.move_coordinator(node),
            1 => self.lose_connections(node),
            2 => self.crash(node),
            3 => self.order(node),
            // Longer than a request is waited for: it comes when the next transaction is open.
            4..7 => self.slow_down(5_000),
            7 => self.slow_down(20),
            _ => {
                let (effect, times) = match self.world.plan.is_hard {
                    true => {
                        let before = &[ErrorCode::CONCURRENT_TRANSACTIONS, ErrorCode::NOT_COORDINATOR];
                        // Sometimes for longer than anybody waits.
                        let times = if self.rng.u8(0..4) == 0 { 6 } else { self.rng.u64(1..3) };
                        (self.mishap(before, COORDINATOR_AFTER), times)
                    }
                    false => (self.mishap(COORDINATOR, &[]), self.rng.u64(1..3)),
                };
                self.world.recorder.misfortune(format_args!("{times} of EndTxn: {effect:?}"));
                self.rules.push(self.world.broker.order(Rule::new(ApiKey(26), effect).times(times)));
            }
        }
    }

    fn partition(&mut self) -> i32 {
        let partition = self.rng.i32(0..self.world.partitions());
        let copies = self.world.plan.copiers > 0 && self.rng.u8(0..3) == 0;
        if copies { COPIES + partition } else { partition }
    }

    /// The whole process stands still, and all that was due meanwhile is due at once.
    async fn stall(&mut self) {
        let time = Duration::from_millis(self.rng.u64(1_000..20_000));
        self.world.recorder.misfortune(format_args!("everything stands still for {time:?}"));
        advance(time).await;
    }

    fn move_clock(&mut self) {
        let wall = Timestamp(1_700_000_000_000 + self.rng.i64(-86_400_000..86_400_000));
        self.act(format_args!("it is {wall:?} now"), |cluster, now| cluster.set_wall(wall, now));
    }

    fn forget_producers(&mut self, partition: i32) {
        // Copies are compared one by one.
        if partition >= COPIES {
            return;
        }
        self.world.recorder.note(What::ForgotProducers { partition });
        self.world.broker.act(|cluster, now| cluster.lose_producer_state(&at(partition), now).unwrap());
    }

    fn move_coordinator(&mut self, node: i32) {
        let groups = self.world.plan.groups().into_iter().map(Group::id);
        let transactions = ["till-0", "till-1", "copier-0", "copier-1", LEDGER];
        let transactions = transactions.into_iter().filter(|_| self.world.plan.has_transactions());
        let operators = [IDLE].into_iter().filter(|_| self.world.plan.is_hard && self.world.plan.has_operator);
        let Some(key) = self.rng.choice(groups.chain(transactions).chain(operators).collect::<Vec<_>>()) else {
            return;
        };
        // To one that does not run it cannot move.
        self.act(format_args!("coordinator of {key} moves to {node}"), |cluster, now| {
            let _ = cluster.move_coordinator(key, node, now);
        });
    }

    fn act(
        &self,
        what: impl std::fmt::Display,
        act: impl FnOnce(&mut kafka_harbor::testing::broker::Cluster, std::time::Instant),
    ) {
        self.world.recorder.misfortune(what);
        self.world.broker.act(act);
    }

    fn crash(&mut self, node: i32) {
        if self.is_struck(node) {
            return;
        }
        self.act(format_args!("node {node} crashes"), |cluster, now| cluster.crash(node, now));
        self.lasts(Lasting::Down(node), 10);
    }

    fn hang(&mut self, node: i32) {
        if self.is_struck(node) {
            return;
        }
        self.act(format_args!("node {node} hangs"), |cluster, now| cluster.pause(node, now));
        self.lasts(Lasting::Paused(node), 10);
    }

    fn stop_following(&mut self, node: i32) {
        if self.is_struck(node) {
            return;
        }
        self.act(format_args!("node {node} follows no more"), |cluster, now| cluster.set_following(node, false, now));
        self.lasts(Lasting::NotFollowing(node), 10);
    }

    fn cut(&mut self, node: i32) {
        let Some((client, network)) = self.network() else { return };
        self.world.recorder.misfortune(format_args!("network {client} is cut from node {node}"));
        network.cut(node);
        self.lasts(Lasting::Cut(network, node), 15);
    }

    fn lose_connections(&mut self, node: i32) {
        let Some((client, network)) = self.network() else { return };
        self.world.recorder.misfortune(format_args!("network {client} loses its connections to node {node}"));
        network.lose_connections(node);
    }

    fn slow_down(&mut self, most: u64) {
        let Some((client, network)) = self.network() else { return };
        let most = Duration::from_millis(self.rng.u64(1..most));
        self.world.recorder.misfortune(format_args!("network {client} takes up to {most:?}"));
        network.set_delay(Duration::ZERO..=most);
    }

    /// To one that is in sync: an election that is not clean may lose what is acknowledged, in Kafka too.
    fn move_leader(&mut self, partition: i32, node: i32) {
        if self.is_struck(node) {
            return;
        }
        self.act(format_args!("leader of {} moves to {node}", at(partition)), |cluster, now| {
            let in_sync = cluster.partition(&at(partition)).is_some_and(|state| state.in_sync.contains(&node));
            if in_sync {
                cluster.move_leader(&at(partition), node, now).unwrap();
            }
        });
    }

    fn expire_member(&mut self) {
        let Some(group) = self.rng.choice(self.world.plan.groups()).map(Group::id) else { return };
        let members = self.world.broker.act(|cluster, _| cluster.members(group));
        let Some(member) = self.rng.choice(members) else { return };
        self.act(format_args!("{member} expires"), |cluster, now| cluster.expire_member(group, &member, now).unwrap());
    }

    fn order(&mut self, node: i32) {
        let victims = VICTIMS.iter().chain(MORE_VICTIMS.iter().filter(|_| self.world.plan.is_hard));
        let victims: Vec<&Victim> = victims.collect();
        let victim = loop {
            let victim = *self.rng.choice(&victims).expect("there are some");
            if victim.whose.is_there(self.world) {
                break victim;
            }
        };
        let effect = self.mishap(victim.before, victim.after);
        let (api, times) = (victim.api, self.rng.u64(1..4));
        self.world.recorder.misfortune(format_args!("{times} of {api:?} at node {node}: {effect:?}"));
        let rule = Rule::new(api, effect).times(times);
        let rule = match victim.whose {
            // It asks seldom, whatever node it is.
            Whose::Operators if self.world.plan.is_hard => rule.client_id(operator::NAME),
            _ => rule.node(node),
        };
        self.rules.push(self.world.broker.order(rule));
    }

    /// What may happen to a request, with the codes that it may be answered with before it is acted on, and after.
    fn mishap(&mut self, before: &[ErrorCode], after: &[ErrorCode]) -> Effect {
        let time = Duration::from_millis(self.rng.u64(1..5_000));
        let code = |rng: &mut Rng, codes: &[ErrorCode]| rng.choice(codes.iter().copied());
        match self.rng.u8(0..if self.world.plan.is_hard { 14 } else { 10 }) {
            0..2 => Effect::DropAnswer,
            2 => Effect::CloseAfter,
            3 => Effect::Close,
            4 => Effect::Cut(self.rng.usize(0..60)),
            5 => Effect::Silence,
            6 => Effect::Delay(time),
            7 => Effect::DelayAnswer(time),
            8 => Effect::Throttle(time),
            10..12 => code(self.rng, after).map_or(Effect::DropAnswer, Effect::FailAfter),
            _ => Effect::Fail(code(self.rng, before).expect("there are some")),
        }
    }

    fn network(&mut self) -> Option<(usize, Network)> {
        self.rng.choice(self.world.networks())
    }

    fn lasts(&mut self, lasting: Lasting, seconds: u64) {
        let time = Duration::from_millis(self.rng.u64(200..seconds * 1_000));
        self.to_undo.push((Instant::now() + time, lasting));
    }

    /// Whether something that lasts has met the node itself.
    fn is_struck(&self, node: i32) -> bool {
        self.to_undo.iter().any(|(_, lasting)| match lasting {
            Lasting::Down(other) | Lasting::Paused(other) | Lasting::NotFollowing(other) => *other == node,
            Lasting::Cut(..) => false,
        })
    }

    fn undo(&mut self, until: Instant) {
        let (due, later) = std::mem::take(&mut self.to_undo).into_iter().partition(|(at, _)| *at <= until);
        self.to_undo = later;
        let due: Vec<(Instant, Lasting)> = due;
        for (_, lasting) in due {
            match lasting {
                Lasting::Down(node) => {
                    self.act(format_args!("node {node} restarts"), |cluster, now| cluster.restart(node, now));
                }
                Lasting::Paused(node) => {
                    self.act(format_args!("node {node} goes on"), |cluster, now| cluster.resume(node, now));
                }
                Lasting::NotFollowing(node) => {
                    self.act(format_args!("node {node} follows"), |cluster, now| {
                        cluster.set_following(node, true, now);
                    });
                }
                Lasting::Cut(network, node) => {
                    self.world.recorder.misfortune(format_args!("a cut from node {node} is mended"));
                    network.mend(node);
                }
            }
        }
    }

    fn end(mut self) -> Option<i32> {
        self.undo(Instant::now() + 3600 * SECOND);
        for rule in std::mem::take(&mut self.rules) {
            // It may be used up.
            let _ = self.world.broker.withdraw(rule);
        }
        for network in self.world.all_networks() {
            network.set_delay(Duration::ZERO..=Duration::from_millis(20));
        }
        let node = self.rng.i32(1..=NODES);
        let stays_down = self.world.plan.is_long && self.rng.bool();
        stays_down.then(|| {
            self.act(format_args!("node {node} crashes and stays down"), |cluster, now| cluster.crash(node, now));
            node
        })
    }
}

const COORDINATOR: &[ErrorCode] =
    &[ErrorCode::COORDINATOR_NOT_AVAILABLE, ErrorCode::NOT_COORDINATOR, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS];
const LEADER: &[ErrorCode] = &[ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION];
/// A coordinator says so when the followers of the log that it writes to did not follow in time (`TransactionStateManager`).
const COORDINATOR_AFTER: &[ErrorCode] = &[ErrorCode::COORDINATOR_NOT_AVAILABLE];
const APPENDED: &[ErrorCode] = &[
    ErrorCode::NOT_LEADER_OR_FOLLOWER,
    ErrorCode::REQUEST_TIMED_OUT,
    ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode::KAFKA_STORAGE_ERROR,
];
const CONTROLLER: &[ErrorCode] = &[ErrorCode::NOT_CONTROLLER, ErrorCode::REQUEST_TIMED_OUT];

/// Who asks it.
#[derive(Debug, Clone, Copy)]
enum Whose {
    All,
    Classic,
    Modern,
    Transactional,
    Operators,
}

impl Whose {
    fn is_there(self, world: &World) -> bool {
        match self {
            Self::All => true,
            Self::Classic => world.plan.members + world.plan.copiers > 0,
            Self::Modern => world.plan.modern + world.plan.copiers > 0,
            Self::Transactional => world.plan.has_transactions(),
            Self::Operators => world.plan.has_operator,
        }
    }
}

/// What may suffer.
struct Victim {
    api: ApiKey,
    whose: Whose,
    /// The codes that it may be answered with and not acted on.
    before: &'static [ErrorCode],
    /// Those that it may be answered with when it was acted on: what a broker has appended may be in its log whatever it says.
    after: &'static [ErrorCode],
}

impl Victim {
    const fn of(api: i16, whose: Whose, before: &'static [ErrorCode], after: &'static [ErrorCode]) -> Self {
        Self { api: ApiKey(api), whose, before, after }
    }
}

const VICTIMS: &[Victim] = &[
    Victim::of(
        0,
        Whose::All,
        &[ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::NOT_ENOUGH_REPLICAS, ErrorCode::KAFKA_STORAGE_ERROR],
        APPENDED,
    ),
    Victim::of(0, Whose::All, LEADER, APPENDED),
    Victim::of(
        1,
        Whose::All,
        &[ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::UNKNOWN_LEADER_EPOCH, ErrorCode::FENCED_LEADER_EPOCH],
        &[],
    ),
    Victim::of(1, Whose::All, LEADER, &[]),
    Victim::of(2, Whose::All, LEADER, &[]),
    Victim::of(3, Whose::All, &[ErrorCode::LEADER_NOT_AVAILABLE], &[]),
    Victim::of(8, Whose::All, COORDINATOR, COORDINATOR_AFTER),
    Victim::of(9, Whose::All, COORDINATOR, &[]),
    Victim::of(10, Whose::All, &[ErrorCode::COORDINATOR_NOT_AVAILABLE], &[]),
    Victim::of(11, Whose::Classic, COORDINATOR, &[]),
    Victim::of(12, Whose::Classic, COORDINATOR, &[]),
    Victim::of(14, Whose::Classic, COORDINATOR, &[]),
    Victim::of(68, Whose::Modern, COORDINATOR, COORDINATOR_AFTER),
    Victim::of(68, Whose::Modern, COORDINATOR, COORDINATOR_AFTER),
    Victim::of(22, Whose::All, &[ErrorCode::COORDINATOR_LOAD_IN_PROGRESS], &[]),
    Victim::of(24, Whose::Transactional, COORDINATOR, COORDINATOR_AFTER),
    Victim::of(25, Whose::Transactional, COORDINATOR, COORDINATOR_AFTER),
    Victim::of(
        26,
        Whose::Transactional,
        &[ErrorCode::CONCURRENT_TRANSACTIONS, ErrorCode::NOT_COORDINATOR],
        COORDINATOR_AFTER,
    ),
    Victim::of(26, Whose::Transactional, COORDINATOR, COORDINATOR_AFTER),
    Victim::of(28, Whose::Transactional, COORDINATOR, COORDINATOR_AFTER),
    Victim::of(19, Whose::Operators, CONTROLLER, &[ErrorCode::REQUEST_TIMED_OUT]),
    Victim::of(20, Whose::Operators, CONTROLLER, &[ErrorCode::REQUEST_TIMED_OUT]),
    Victim::of(21, Whose::Operators, LEADER, &[ErrorCode::REQUEST_TIMED_OUT]),
    Victim::of(37, Whose::Operators, CONTROLLER, &[ErrorCode::REQUEST_TIMED_OUT]),
];

/// Of the harder storm alone.
const MORE_VICTIMS: &[Victim] = &[
    Victim::of(0, Whose::All, &[ErrorCode::MESSAGE_TOO_LARGE, ErrorCode::INVALID_RECORD], APPENDED),
    Victim::of(0, Whose::All, &[ErrorCode::MESSAGE_TOO_LARGE, ErrorCode::NOT_ENOUGH_REPLICAS], APPENDED),
    Victim::of(8, Whose::All, COORDINATOR, COORDINATOR_AFTER),
    Victim::of(28, Whose::Transactional, COORDINATOR, COORDINATOR_AFTER),
    Victim::of(8, Whose::Operators, COORDINATOR, COORDINATOR_AFTER),
    Victim::of(19, Whose::Operators, CONTROLLER, &[ErrorCode::REQUEST_TIMED_OUT]),
    Victim::of(20, Whose::Operators, CONTROLLER, &[ErrorCode::REQUEST_TIMED_OUT]),
];
