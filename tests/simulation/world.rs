//! A run: the cluster, who lives in it, and how it ends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use kafka_harbor::client::{Client, ClientBuilder};
use kafka_harbor::protocol::batch::{BatchView, ReadOptions};
use kafka_harbor::record::{Offset, Timestamp, TopicPartition};
use kafka_harbor::testing::broker::{DevBroker, Network};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::history::{History, Recorder, Value, What};
use super::{member, misfortune, producer};

pub(crate) const TOPIC: &str = "orders";
pub(crate) const GROUP: &str = "billing";
pub(crate) const PARTITIONS: i32 = 3;
pub(crate) const NODES: i32 = 3;
pub(crate) const PRODUCERS: usize = 2;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// What can hold things up after the storm, one after the other: a delivery (30 s), a session, a rebalance, each with requests that
/// were silent before.
const DRAINS_WITHIN: Duration = Duration::from_secs(120);

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Everything may happen.
    Storm,
    /// Nothing happens any more; producers have ended, members read on and commit everything.
    Calm,
    /// Everybody goes home.
    Over,
}

/// What all who live in a run share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) broker: DevBroker,
    pub(crate) recorder: Recorder,
    phase: Arc<(Mutex<Phase>, Notify)>,
    /// The network of each client that ever was.
    networks: Arc<Mutex<Vec<Network>>>,
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
        self.networks.lock().unwrap().push(network);
        builder.client_id(name).request_timeout(3 * SECOND).metadata_max_age(30 * SECOND).build().unwrap()
    }

    /// The networks, the newest last.
    pub(crate) fn networks(&self) -> Vec<Network> {
        self.networks.lock().unwrap().clone()
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
    let broker = DevBroker::builder().nodes(NODES).topic(TOPIC, PARTITIONS).seed(seed).settings(|settings| {
        settings.wall = Timestamp(1_700_000_000_000);
        settings.replica_lag_time_max = 5 * SECOND;
        settings.min_insync_replicas = 1 + usize::from(rng.bool());
    });
    let broker = broker.start().await.unwrap();
    let phase = Arc::new((Mutex::new(Phase::Storm), Notify::new()));
    let world = World { broker, recorder: Recorder::new(), phase, networks: Arc::default() };

    let mut producers = JoinSet::new();
    for index in 0..PRODUCERS {
        producers.spawn(producer::live(world.clone(), index, rng.fork()));
    }
    let mut members = JoinSet::new();
    for index in 0..rng.usize(2..=3) {
        members.spawn(member::live(world.clone(), index, rng.fork()));
    }
    misfortune::storm(&world, &mut rng).await;
    world.recorder.misfortune("calm");
    world.enter(Phase::Calm);
    let deadline = Instant::now() + DRAINS_WITHIN;
    while Instant::now() < deadline && !(producers.is_empty() && is_drained(&world)) {
        sleep(SECOND / 10).await;
        while let Some(ended) = producers.try_join_next() {
            ended.unwrap();
        }
    }
    let history = end(&world);
    world.enter(Phase::Over);
    producers.abort_all();
    let home = async {
        while let Some(ended) = members.join_next().await {
            ended.unwrap();
        }
    };
    timeout(60 * SECOND, home).await.expect("members end in time");
    history
}

fn is_drained(world: &World) -> bool {
    world.broker.act(|cluster, _| {
        (0..PARTITIONS).all(|partition| {
            let partition = at(partition);
            let end = cluster.partition(&partition).map(|state| state.high_watermark);
            end == cluster.committed(GROUP, &partition).or(Some(Offset(0)))
        })
    })
}

/// What there is in the end.
fn end(world: &World) -> History {
    let events = world.recorder.take();
    let (mut logs, mut committed) = (BTreeMap::new(), BTreeMap::new());
    world.broker.act(|cluster, _| {
        for index in 0..PARTITIONS {
            let partition = at(index);
            let state = cluster.partition(&partition).unwrap();
            let of = |node| {
                let batches = cluster.batches(&partition, node);
                let views = batches.iter().map(|batch| batch.open(&ReadOptions::default()).unwrap());
                views.flat_map(|view| values(&view, Offset(0))).collect::<Vec<_>>()
            };
            let log = of(state.leader.expect("all nodes run"));
            for node in 1..=NODES {
                assert_eq!(of(node), log, "replicas of partition {index} are the same after the calm");
            }
            logs.insert(index, log);
            committed.extend(cluster.committed(GROUP, &partition).map(|offset| (index, offset.0)));
        }
    });
    History { events, logs, committed }
}

/// The records of a batch from this offset on.
pub(crate) fn values(view: &BatchView, from: Offset) -> Vec<(i64, Value)> {
    let records = view.records().map(|record| record.unwrap()).filter(|record| record.offset >= from);
    let value = |bytes: Option<&[u8]>| std::str::from_utf8(bytes.unwrap()).unwrap().parse().unwrap();
    records.map(|record| (record.offset.0, value(record.value))).collect()
}

pub(crate) fn at(partition: i32) -> TopicPartition {
    TopicPartition::new(TOPIC, partition)
}

/// A fault that a client tells, for the history: its text, which may not hold what differs between runs.
pub(crate) fn fault(name: &str, error: &dyn std::error::Error) -> What {
    What::Fault(format!("{name}: {error}"))
}
