//! A run: the cluster, who lives in it, and how it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use kafka_harbor::client::{Client, ClientBuilder};
use kafka_harbor::protocol::batch::EncodedBatch;
use kafka_harbor::record::{Offset, Timestamp, TopicPartition};
use kafka_harbor::testing::broker::{Cluster, DevBroker, Network};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::history::{Group, History, Recorder, What};
use super::log::{self, Fate, Holds, Logged};
use super::{copier, member, misfortune, operator, producer, writer};

pub(crate) const TOPIC: &str = "orders";
/// How many partitions the topic begins with, and how many it may get.
pub(crate) const PARTITIONS: i32 = 3;
pub(crate) const MOST_PARTITIONS: i32 = 5;
/// Partition n of the copies is this and n.
pub(crate) const COPIES: i32 = 100;
const COPIES_TOPIC: &str = "copies";
/// Where transactions keep positions of their own.
pub(crate) const LEDGER: &str = "ledger";
pub(crate) const NODES: i32 = 3;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// What can hold things up after the storm, one after the other: a delivery (30 s), a transaction that nobody ends, a session, a
/// rebalance, each with requests that were silent before.
const DRAINS_WITHIN: Duration = Duration::from_secs(180);

/// Seeds from here on have the harder storm, in which planted bugs are looked for. Those before it are as they always were.
const HARD: u64 = 1_000_000;

/// How long what a storm did may have consequences: a silent join (15 s), and a rebalance that waits for a member which is gone (11 s).
const STORM_LASTS: Duration = Duration::from_secs(40);
/// Longer than a coordinator waits for a member that does not do its part in a rebalance.
const QUIET_LASTS: Duration = Duration::from_secs(25);

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Everything may happen.
    Storm,
    /// Nothing happens any more; producers have ended, members read on and commit everything.
    Calm,
    /// Of a long run: what the storm did has no consequences any more. Everybody writes once more, and all of it has to succeed.
    Quiet,
    /// Everybody goes home.
    Over,
}

/// Who lives in a run, and what happens in it above all. Of the seed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) producers: usize,
    pub(crate) members: usize,
    pub(crate) modern: usize,
    /// Those of the same pair share a transactional id.
    pub(crate) writers: usize,
    pub(crate) copiers: usize,
    pub(crate) has_operator: bool,
    /// Jepsen's finding on Kafka's clients (KAFKA-17754): answers to EndTxn are lost, and not much else happens.
    pub(crate) loses_ends: bool,
    /// Whether much more goes wrong, and everybody does more that is unusual.
    pub(crate) is_hard: bool,
    /// Whether there is a time when all is quiet.
    pub(crate) is_long: bool,
}

impl Plan {
    fn of(seed: u64, rng: &mut Rng) -> Self {
        let is_hard = seed >= HARD;
        let is_long = is_hard && rng.u8(0..3) == 0;
        if seed % 8 == 7 {
            let copiers = rng.usize(0..if is_hard { 3 } else { 2 });
            let (members, modern) = if rng.bool() { (1, 0) } else { (0, 1) };
            let writers = rng.usize(1..=3);
            return Self {
                producers: 0,
                members,
                modern,
                writers,
                copiers,
                has_operator: false,
                loses_ends: true,
                is_hard,
                is_long,
            };
        }
        let (classic, modern) = *rng.choice(&[(2, 0), (3, 0), (0, 2), (0, 3), (2, 1), (2, 2)]).expect("there are some");
        let transactions = *rng.choice(&[(0, 0), (0, 0), (1, 0), (2, 0), (0, 1), (0, 2), (3, 1)]).expect("some");
        let (writers, copiers) = transactions;
        let producers = if writers > 0 { rng.usize(1..=2) } else { 2 };
        Self {
            producers,
            members: classic,
            modern,
            writers,
            copiers,
            has_operator: rng.u8(0..3) == 0,
            loses_ends: false,
            is_hard,
            is_long,
        }
    }

    pub(crate) fn groups(self) -> BTreeSet<Group> {
        let sizes = [(Group::Classic, self.members), (Group::Modern, self.modern), (Group::Copiers, self.copiers)];
        sizes.into_iter().filter(|(_, size)| *size > 0).map(|(group, _)| group).collect()
    }

    pub(crate) fn has_transactions(self) -> bool {
        self.writers + self.copiers > 0
    }
}

/// What all who live in a run share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) broker: DevBroker,
    pub(crate) recorder: Recorder,
    pub(crate) plan: Plan,
    /// The group that reads what is not committed, too.
    pub(crate) uncommitted: Option<Group>,
    phase: Arc<(Mutex<Phase>, Notify)>,
    /// The network of each client that ever was, and whether it stays until the calm.
    networks: Arc<Mutex<Vec<(Network, bool)>>>,
    /// What was deleted, or may have been. As batches: what becomes of a transaction may be told by a marker that comes later.
    deleted: Arc<Mutex<BTreeMap<i32, Vec<EncodedBatch>>>>,
    transactions: Arc<AtomicU64>,
}

impl World {
    pub(crate) fn is(&self, phase: Phase) -> bool {
        *self.phase.0.lock().unwrap() >= phase
    }

    fn enter(&self, phase: Phase) {
        *self.phase.0.lock().unwrap() = phase;
        self.phase.1.notify_waiters();
    }

    /// Waits for the phase.
    pub(crate) async fn until(&self, wanted: Phase) {
        // A watch channel would wake those who wait in an order that is not the seed's.
        while !self.is(wanted) {
            self.phase.1.notified().await;
        }
    }

    /// Waits for a while, at most until the phase.
    pub(crate) async fn pause(&self, time: Duration, phase: Phase) {
        // That the time is over is what is usual.
        let _ = timeout(time, self.until(phase)).await;
    }

    /// A client with a network of its own.
    pub(crate) fn client(&self, rng: &mut Rng, name: String) -> Client {
        let network = Network::new(rng.u64(..));
        network.set_delay(Duration::ZERO..=Duration::from_millis(rng.u64(1..20)));
        let builder: ClientBuilder = self.broker.client_config_over(&network);
        self.networks.lock().unwrap().push((network, name.starts_with("producer")));
        // A producer has to find out by itself who leads.
        let max_age = if self.plan.is_hard && name.starts_with("producer") { 300 * SECOND } else { 30 * SECOND };
        builder.client_id(name).request_timeout(REQUEST_TIMEOUT).metadata_max_age(max_age).build().unwrap()
    }

    /// Where somebody who reads stands: in the harder storm some read from a follower that is near (KIP-392).
    pub(crate) fn rack(&self, rng: &mut Rng) -> Option<String> {
        (self.plan.is_hard && rng.bool()).then(|| rack(rng.i32(1..=NODES)))
    }

    /// Networks that may be in use, with their numbers.
    pub(crate) fn networks(&self) -> Vec<(usize, Network)> {
        let networks = self.networks.lock().unwrap();
        let lately = networks.len().saturating_sub(LATELY);
        let in_use = networks.iter().enumerate().filter(|(number, (_, stays))| *stays || *number >= lately);
        in_use.map(|(number, (network, _))| (number, network.clone())).collect()
    }

    /// The network of each client that ever was.
    pub(crate) fn all_networks(&self) -> Vec<Network> {
        self.networks.lock().unwrap().iter().map(|(network, _)| network.clone()).collect()
    }

    /// How many partitions the topic has now.
    pub(crate) fn partitions(&self) -> i32 {
        self.broker.act(|cluster, _| partitions(cluster))
    }

    /// A number for a transaction.
    pub(crate) fn transaction(&self) -> u64 {
        self.transactions.fetch_add(1, Ordering::Relaxed)
    }

    /// What every group has committed on a partition; nothing before all have.
    pub(crate) fn committed_by_all(&self, partition: i32) -> Option<i64> {
        let groups = self.plan.groups();
        self.broker.act(|cluster, _| {
            let committed = groups.iter().map(|group| cluster.committed(group.id(), &at(partition)));
            committed.min().flatten().map(|offset| offset.0)
        })
    }

    /// Remembers what lies before this offset, because it is about to be deleted.
    pub(crate) fn will_delete(&self, partition: i32, before: i64) {
        let mut batches = self.broker.act(|cluster, _| self.batches(cluster, partition));
        let mut deleted = self.deleted.lock().unwrap();
        // One that was asked for before may yet come to pass.
        let known =
            deleted.get(&partition).and_then(|known| known.last()).map_or(0, |last| last.header().next_offset().0);
        batches.retain(|batch| batch.header().base_offset.0 < before.max(known));
        deleted.insert(partition, batches);
    }

    /// What a partition holds, and held, and what became of it.
    fn log(&self, cluster: &Cluster, partition: i32) -> Vec<Logged> {
        log::read(&self.batches(cluster, partition))
    }

    fn batches(&self, cluster: &Cluster, partition: i32) -> Vec<EncodedBatch> {
        let state = cluster.partition(&at(partition)).expect("it exists");
        // Where nobody leads, those that may lead next have all that anybody was told of.
        let node = state.leader.or_else(|| state.in_sync.first().copied()).expect("some replica is in sync");
        let deleted = self.deleted.lock().unwrap().get(&partition).cloned().unwrap_or_default();
        log::with_deleted(deleted, cluster.batches(&at(partition), node))
    }
}

/// A run on this seed.
///
/// # Panics
/// When somebody in it does.
pub(crate) fn run(seed: u64) -> History {
    // The client's own randomness: backoffs, ids.
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(live(seed))
}

async fn live(seed: u64) -> History {
    let mut rng = Rng::with_seed(seed);
    let plan = Plan::of(seed, &mut rng);
    let broker =
        DevBroker::builder().nodes(NODES).seed(seed).topic(TOPIC, PARTITIONS).topic(COPIES_TOPIC, MOST_PARTITIONS);
    let broker = broker.settings(|settings| {
        settings.wall = Timestamp(1_700_000_000_000);
        settings.replica_lag_time_max = 5 * SECOND;
        settings.min_insync_replicas = 1 + usize::from(rng.bool());
        settings.consumer_group_session = 6 * SECOND;
        settings.consumer_group_heartbeat_interval = SECOND;
        settings.features.insert("transaction.version".to_owned(), rng.i16(1..=2));
        if plan.is_hard {
            settings.racks = (1..=NODES).map(rack).collect();
            settings.rack_aware_reads = true;
        }
    });
    let broker = broker.start().await.unwrap();
    let uncommitted = rng.choice(Group::ALL).filter(|group| rng.u8(0..4) == 0 && *group != Group::Copiers);
    let world = World {
        broker,
        recorder: Recorder::new(),
        plan,
        uncommitted,
        phase: Arc::new((Mutex::new(Phase::Storm), Notify::new())),
        networks: Arc::default(),
        deleted: Arc::default(),
        transactions: Arc::default(),
    };
    world.recorder.misfortune(format_args!("{plan:?}"));

    // These end with the calm.
    let mut writing = JoinSet::new();
    for index in 0..plan.producers {
        writing.spawn(producer::live(world.clone(), index, rng.fork()));
    }
    for index in 0..plan.writers {
        writing.spawn(writer::live(world.clone(), index, rng.fork()));
    }
    if plan.has_operator || plan.is_long {
        writing.spawn(operator::live(world.clone(), rng.fork()));
    }
    // And these when all is over.
    let mut reading = JoinSet::new();
    for index in 0..plan.members {
        reading.spawn(member::live(world.clone(), Group::Classic, index, rng.fork()));
    }
    for index in 0..plan.modern {
        reading.spawn(member::live(world.clone(), Group::Modern, index, rng.fork()));
    }
    for index in 0..plan.copiers {
        reading.spawn(copier::live(world.clone(), index, rng.fork()));
    }
    let down = misfortune::storm(&world, &mut rng).await;
    world.recorder.misfortune("calm");
    world.enter(Phase::Calm);
    let calm = Instant::now();
    let mut is_done = drains(&world, &mut writing, !plan.is_long).await;
    if is_done && plan.is_long {
        sleep((calm + STORM_LASTS).saturating_duration_since(Instant::now())).await;
        world.recorder.note(What::Quiet);
        world.enter(Phase::Quiet);
        let quiet = Instant::now();
        is_done = drains(&world, &mut writing, true).await;
        sleep((quiet + QUIET_LASTS).saturating_duration_since(Instant::now())).await;
    }
    if let Some(node) = down {
        world.broker.act(|cluster, now| cluster.restart(node, now));
    }
    world.recorder.misfortune(if is_done { "it has drained" } else { "it has not drained" });
    let history = end(&world);
    world.enter(Phase::Over);
    writing.abort_all();
    let home = async {
        while let Some(ended) = reading.join_next().await {
            ended.unwrap();
        }
    };
    timeout(60 * SECOND, home).await.expect("members end in time");
    history
}

/// Waits until everything is read and committed, and all who write have ended if they are to; `false` if that takes too long.
async fn drains(world: &World, writing: &mut JoinSet<()>, end: bool) -> bool {
    let deadline = Instant::now() + DRAINS_WITHIN;
    while Instant::now() < deadline {
        while let Some(ended) = writing.try_join_next() {
            ended.unwrap();
        }
        if (!end || writing.is_empty() && is_decided(world)) && is_drained(world) {
            return true;
        }
        sleep(SECOND / 10).await;
    }
    false
}

fn is_drained(world: &World) -> bool {
    let groups = world.plan.groups();
    world.broker.act(|cluster, _| {
        let partitions = (0..MOST_PARTITIONS).map(at);
        let mut ends = partitions.map_while(|at| cluster.partition(&at).map(|state| (at, state.high_watermark)));
        ends.all(|(partition, end)| {
            let committed = |group: &Group| cluster.committed(group.id(), &partition).unwrap_or(Offset(0));
            groups.iter().all(|group| committed(group) == end)
        })
    })
}

/// Whether no transaction is open: one that its producer left is aborted once its time is up, which who reads what is not
/// committed does not wait for.
fn is_decided(world: &World) -> bool {
    world.broker.act(|cluster, _| {
        let all = (0..partitions(cluster)).chain((0..MOST_PARTITIONS).map(|index| COPIES + index));
        all.flat_map(|index| world.log(cluster, index))
            .all(|logged| !matches!(logged.holds, Holds::Record(_, Fate::Open)))
    })
}

/// What there is in the end.
fn end(world: &World) -> History {
    let groups = world.plan.groups();
    let uncommitted = world.uncommitted.into_iter().collect();
    let mut history = History { events: world.recorder.take(), groups, uncommitted, ..History::default() };
    world.broker.act(|cluster, _| {
        let originals = 0..partitions(cluster);
        for index in originals.clone().chain((0..MOST_PARTITIONS).map(|index| COPIES + index)) {
            let partition = at(index);
            let leader = cluster.partition(&partition).and_then(|state| state.leader).expect("all nodes run");
            let of = |node| log::read(&cluster.batches(&partition, node));
            for node in 1..=NODES {
                assert_eq!(of(node), of(leader), "replicas of {partition} are the same after the calm");
            }
            history.logs.insert(index, world.log(cluster, index));
        }
        for index in originals {
            let committed = Group::ALL.map(|group| (group, cluster.committed(group.id(), &at(index))));
            let known = committed.into_iter().filter_map(|(group, offset)| Some(((group, index), offset?.0)));
            history.committed.extend(known);
        }
        let accounts = (0..PARTITIONS).filter_map(|index| Some((index, cluster.committed(LEDGER, &at(index))?.0)));
        history.ledger = accounts.collect();
        let exists = |topic: &&str| cluster.partition(&TopicPartition::new(*topic, 0)).is_some();
        history.topics = operator::TOPICS.into_iter().filter(exists).collect();
    });
    history
}

fn partitions(cluster: &Cluster) -> i32 {
    let more = (PARTITIONS..MOST_PARTITIONS).take_while(|partition| cluster.partition(&at(*partition)).is_some());
    PARTITIONS + more.count() as i32
}

/// Where a node stands.
fn rack(node: i32) -> String {
    format!("rack-{node}")
}

/// The partition of this number.
pub(crate) fn at(partition: i32) -> TopicPartition {
    match partition {
        COPIES.. => TopicPartition::new(COPIES_TOPIC, partition - COPIES),
        _ => TopicPartition::new(TOPIC, partition),
    }
}

/// As many clients as may be in use at once, beside those that stay.
const LATELY: usize = 6;
