//! What happens to the cluster and the networks, and the end of it.

use std::time::Duration;

use fastrand::Rng;
use kafka_harbor::protocol::api::ApiKey;
use kafka_harbor::protocol::error_code::ErrorCode;
use kafka_harbor::testing::broker::{Effect, Network, Rule, RuleId};
use tokio::time::{Instant, sleep};

use super::world::{GROUP, NODES, PARTITIONS, PRODUCERS, SECOND, World, at};

/// Misfortunes for a while; then all of them are undone.
pub(crate) async fn storm(world: &World, rng: &mut Rng) {
    let mut storm = Storm { world, rng, to_undo: Vec::new(), rules: Vec::new() };
    let ends = Instant::now() + Duration::from_secs(storm.rng.u64(20..60));
    while Instant::now() < ends {
        sleep(Duration::from_millis(storm.rng.u64(0..2_500))).await;
        storm.undo(Instant::now());
        storm.strike();
    }
    storm.end();
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
        let (node, partition) = (self.rng.i32(1..=NODES), self.rng.i32(0..PARTITIONS));
        match self.rng.u8(0..24) {
            0..2 => self.crash(node),
            2 => self.hang(node),
            3 => self.stop_following(node),
            4..7 => self.cut(node),
            7..10 => self.lose_connections(node),
            10..13 => self.move_leader(partition, node),
            13 => self.act(format_args!("epoch of {partition} grows"), |cluster, now| {
                cluster.bump_leader_epoch(&at(partition), now).unwrap();
            }),
            // One that does not run is refused.
            14 => self.act(format_args!("coordinator moves to {node}"), |cluster, now| {
                let _ = cluster.move_coordinator(GROUP, node, now);
            }),
            15 => self.expire_member(),
            16 => self.slow_down(),
            _ => self.order(node),
        }
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

    fn slow_down(&mut self) {
        let Some((client, network)) = self.network() else { return };
        let most = Duration::from_millis(self.rng.u64(1..400));
        self.world.recorder.misfortune(format_args!("network {client} takes up to {most:?}"));
        network.set_delay(Duration::ZERO..=most);
    }

    /// To one that is in sync: an election that is not clean may lose what is acknowledged, in Kafka too.
    fn move_leader(&mut self, partition: i32, node: i32) {
        if self.is_struck(node) {
            return;
        }
        self.act(format_args!("leader of {partition} moves to {node}"), |cluster, now| {
            let in_sync = cluster.partition(&at(partition)).is_some_and(|state| state.in_sync.contains(&node));
            if in_sync {
                cluster.move_leader(&at(partition), node, now).unwrap();
            }
        });
    }

    fn expire_member(&mut self) {
        let members = self.world.broker.act(|cluster, _| cluster.members(GROUP));
        let Some(member) = self.rng.choice(members) else { return };
        self.act(format_args!("{member} expires"), |cluster, now| cluster.expire_member(GROUP, &member, now).unwrap());
    }

    fn order(&mut self, node: i32) {
        let (api, codes) = self.rng.choice(APIS).expect("there are some");
        let time = Duration::from_millis(self.rng.u64(1..5_000));
        let effect = match self.rng.u8(0..10) {
            0..2 => Effect::DropAnswer,
            2 => Effect::CloseAfter,
            3 => Effect::Close,
            4 => Effect::Cut(self.rng.usize(0..60)),
            5 => Effect::Silence,
            6 => Effect::Delay(time),
            7 => Effect::DelayAnswer(time),
            8 => Effect::Throttle(time),
            _ => Effect::Fail(self.rng.choice(codes.iter().copied()).expect("there are some")),
        };
        let times = self.rng.u64(1..4);
        self.world.recorder.misfortune(format_args!("{times} of {api:?} at node {node}: {effect:?}"));
        self.rules.push(self.world.broker.order(Rule::new(*api, effect).node(node).times(times)));
    }

    fn network(&mut self) -> Option<(usize, Network)> {
        let networks: Vec<_> = self.world.networks().into_iter().enumerate().collect();
        // Producers' stay; of members' only the last may be in use.
        let members = networks.len().saturating_sub(MEMBERS_LATELY).max(PRODUCERS.min(networks.len()));
        let in_use = networks[..PRODUCERS.min(networks.len())].iter().chain(&networks[members..]);
        self.rng.choice(in_use.cloned().collect::<Vec<_>>())
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

    fn end(mut self) {
        self.undo(Instant::now() + 3600 * SECOND);
        for rule in std::mem::take(&mut self.rules) {
            // It may be used up.
            let _ = self.world.broker.withdraw(rule);
        }
        for network in self.world.networks() {
            network.set_delay(Duration::ZERO..=Duration::from_millis(20));
        }
    }
}

const MEMBERS_LATELY: usize = 4;

const COORDINATOR: &[ErrorCode] =
    &[ErrorCode::COORDINATOR_NOT_AVAILABLE, ErrorCode::NOT_COORDINATOR, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS];
const LEADER: &[ErrorCode] = &[ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION];

/// What may suffer, and the codes that it may be answered with and not acted on.
const APIS: &[(ApiKey, &[ErrorCode])] = &[
    (ApiKey(0), &[ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::NOT_ENOUGH_REPLICAS, ErrorCode::KAFKA_STORAGE_ERROR]),
    (ApiKey(0), LEADER),
    (ApiKey(1), &[ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::UNKNOWN_LEADER_EPOCH, ErrorCode::FENCED_LEADER_EPOCH]),
    (ApiKey(1), LEADER),
    (ApiKey(2), LEADER),
    (ApiKey(3), &[ErrorCode::LEADER_NOT_AVAILABLE]),
    (ApiKey(8), COORDINATOR),
    (ApiKey(9), COORDINATOR),
    (ApiKey(10), &[ErrorCode::COORDINATOR_NOT_AVAILABLE]),
    (ApiKey(11), COORDINATOR),
    (ApiKey(12), COORDINATOR),
    (ApiKey(14), COORDINATOR),
    (ApiKey(22), &[ErrorCode::COORDINATOR_LOAD_IN_PROGRESS]),
];
