//! Brokers that stop, die and hang while a harbor consumes with a ladder and a producer produces.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "live_failures/feed.rs"]
mod feed;
#[path = "live_failures/memberships.rs"]
mod memberships;
#[path = "live_failures/share.rs"]
mod share;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as SyncMutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_harbor::adapter::kafka::KafkaAdapter;
use kafka_harbor::adapter::{Assignment, Event};
use kafka_harbor::client::{Client, ConsumerEvent, OffsetReset, Producer};
use kafka_harbor::error::WriteOutcome;
use kafka_harbor::harbor::{Consumer, ConsumerStatus, Context, Failure, Harbor, Raw};
use kafka_harbor::record::{NodeId, Offset, Record, TopicPartition};
use protocol_tests::{Account, Cluster, Desk, Entry, Interruption, Watched, What, kafka_with, unique};
use tokio::sync::{Mutex, OnceCell, watch};

const SECOND: Duration = Duration::from_secs(1);

/// Readers that say where they are read there (KIP-392); node `n` is in `rack-n`.
const NEARER_REPLICA: &str = "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector";

/// Held by each test: two cores do not carry two of these clusters at work.
static ALONE: Mutex<()> = Mutex::const_new(());

/// One cluster of three for the tests that need one, each of which leaves it whole.
async fn three() -> Option<&'static Cluster> {
    static THREE: OnceCell<Option<Cluster>> = OnceCell::const_new();
    let start = || kafka_with(3, &["broker.session.timeout.ms=3000", "min.insync.replicas=2", NEARER_REPLICA], None);
    THREE.get_or_init(|| async { tokio::task::block_in_place(start) }).await.as_ref()
}

/// A harbor that consumes, a producer that produces, and what both know.
struct Load {
    desk: Desk,
    client: Client,
    harbor: Harbor<Raw>,
    consumer: Consumer,
    topic: String,
    group: String,
    account: Arc<SyncMutex<Account>>,
    stop: watch::Sender<bool>,
    load: tokio::task::JoinHandle<Produced>,
}

/// What became of the records that were sent.
struct Produced {
    acknowledged: Vec<String>,
    doubtful: Vec<String>,
}

impl Load {
    async fn start(cluster: &Cluster) -> Self {
        let desk = Desk::at(cluster).await;
        let (topic, group) = (unique("orders"), unique("group"));
        desk.create(&topic, 6).await;
        let account = Arc::new(SyncMutex::new(Account::default()));
        let adapter = KafkaAdapter::builder(cluster.bootstrap.split(',')).build().unwrap();
        let adapter = Watched::new(adapter, {
            let account = account.clone();
            move |event| {
                if let Event::Assigned(assignments) = event {
                    assigned(&mut account.lock().unwrap(), assignments);
                }
            }
        });
        let harbor = Harbor::builder("orders-service", adapter).serializer(Raw).build().unwrap();
        let consumer = harbor
            .consumer(&group)
            .retry_levels(["300ms"])
            .auto_create_topics(true)
            .from_beginning(true)
            .concurrency(3)
            .subscribe(topic.as_str(), {
                let account = account.clone();
                move |value: Bytes, context: Context| std::future::ready(handle(&account, &value, &context))
            })
            .build()
            .unwrap();
        consumer.start().await.unwrap();
        let client = Client::builder(cluster.bootstrap.split(',')).build().unwrap();
        let (stop, stopped) = watch::channel(false);
        let load = tokio::spawn(produce(client.producer().build().unwrap(), topic.clone(), stopped));
        let load = Self { desk, client, harbor, consumer, topic, group, account, stop, load };
        load.goes_on(1_500).await;
        load.in_sync().await;
        load
    }

    /// Waits until every replica has caught up, so that one node may go.
    async fn in_sync(&self) {
        let (topics, deadline) =
            ([self.topic.as_str().into(), "__consumer_offsets".into()], Instant::now() + 60 * SECOND);
        loop {
            let described = self.client.admin().describe_topics(&topics).await;
            let mut partitions = described.iter().flat_map(|(_, described)| &described.as_ref().unwrap().partitions);
            if partitions.all(|partition| partition.in_sync.len() == partition.replicas.len()) {
                return;
            }
            assert!(Instant::now() < deadline, "not in sync: {described:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// A node that leads a partition of the topic.
    async fn leader(&self) -> u32 {
        let described = self.client.admin().describe_topics(&[self.topic.as_str().into()]).await.remove(0).1.unwrap();
        u32::try_from(described.partitions[0].leader.expect("a leader").0).unwrap()
    }

    /// The node that keeps the group.
    async fn coordinator(&self) -> u32 {
        let described = self.client.admin().describe_groups(std::slice::from_ref(&self.group)).await.remove(0).1;
        u32::try_from(described.unwrap().coordinator.0).unwrap()
    }

    /// Waits until so many more deliveries have ended.
    async fn goes_on(&self, deliveries: usize) {
        let entries = || self.account.lock().unwrap().entries.len();
        let (began, deadline) = (entries(), Instant::now() + 60 * SECOND);
        while entries() < began + 2 * deliveries {
            assert!(Instant::now() < deadline, "{} entries in a minute; {:?}", entries() - began, self.harbor.health());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Ends the load, and checks all that was to hold.
    async fn check(self) {
        self.goes_on(1_500).await;
        self.stop.send(true).unwrap();
        let produced = tokio::time::timeout(150 * SECOND, self.load).await.expect("every send ends").unwrap();
        let (retry, dead) = (format!("{}-retry-1", self.topic), format!("{}-dlq", self.topic));
        let topics = [&*self.topic, &*retry];
        self.desk.drained(&self.group, &topics, 60 * SECOND).await;
        assert_eq!(self.consumer.status(), ConsumerStatus::Running);
        assert!(self.harbor.health().healthy, "{:?}", self.harbor.health());
        self.harbor.shutdown(30 * SECOND).await.unwrap();

        let stored = self.desk.read(&self.topic).await;
        let mut in_log = BTreeSet::new();
        for record in &stored {
            assert!(in_log.insert(record.text()), "{} is written twice", record.text());
        }
        let lost: Vec<_> = produced.acknowledged.iter().filter(|value| !in_log.contains(value.as_str())).collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
        assert!(in_log.len() <= produced.acknowledged.len() + produced.doubtful.len());

        let account = std::mem::take(&mut *self.account.lock().unwrap());
        let balance = account.balance(&self.desk.ends(&topics).await).unwrap();
        eprintln!("{} acknowledged, {} in doubt; {balance:?}", produced.acknowledged.len(), produced.doubtful.len());
        account.hops(&self.topic, &self.desk.read(&retry).await).unwrap();
        let letters = self.desk.read(&dead).await;
        account.hops(&retry, &letters).unwrap();
        let done = account.entries.iter().filter(|entry| entry.what == What::Done).map(|entry| entry.value.as_str());
        let mut settled: BTreeSet<&str> = done.collect();
        settled.extend(letters.iter().map(|letter| letter.text()));
        assert_eq!(settled, in_log, "what is in the log is done or set aside");
    }
}

/// A partition that comes again may begin at what was committed; all others go on as they were.
fn assigned(account: &mut Account, assignments: &[Assignment]) {
    let after = account.entries.len();
    let mut committed: BTreeMap<_, _> = account
        .entries
        .iter()
        .map(|entry| (TopicPartition::new(entry.topic.as_str(), entry.partition), Offset(i64::MAX)))
        .collect();
    for assignment in assignments {
        committed.insert(assignment.assigned.partition.clone(), assignment.position);
    }
    account.interruptions.push(Interruption { pid: 0, after, committed });
}

/// A twentieth fails for ever, another twentieth once.
fn handle(account: &SyncMutex<Account>, value: &Bytes, context: &Context) -> Result<(), Failure> {
    let value = std::str::from_utf8(value).expect("text").to_owned();
    let number: usize = value.parse().expect("a number");
    let fails = number.is_multiple_of(20) || (number % 20 == 1 && context.attempt() == 1);
    let entry = |what| Entry {
        what,
        pid: 0,
        topic: context.topic().to_string(),
        partition: context.partition(),
        offset: context.offset().0,
        attempt: context.attempt(),
        value: value.clone(),
    };
    let end = entry(if fails { What::Failed } else { What::Done });
    account.lock().unwrap().entries.extend([entry(What::Begin), end]);
    if fails { Err(Failure::new("out of stock").named("StockError")) } else { Ok(()) }
}

/// Sends numbered records, a thousand a second, until it is told to stop.
async fn produce(producer: Producer, topic: String, stop: watch::Receiver<bool>) -> Produced {
    let mut deliveries = Vec::new();
    let mut tick = tokio::time::interval(Duration::from_millis(10));
    while !*stop.borrow() {
        tick.tick().await;
        for _ in 0..10 {
            let value = deliveries.len().to_string();
            let record = Record::new(topic.as_str(), value.clone()).with_key(format!("k{}", deliveries.len() % 100));
            deliveries.push((value, producer.enqueue(record).await.unwrap()));
        }
    }
    let mut produced = Produced { acknowledged: Vec::new(), doubtful: Vec::new() };
    for (value, delivery) in deliveries {
        match delivery.await {
            Ok(_) => produced.acknowledged.push(value),
            Err(error) if error.outcome == WriteOutcome::PossiblyWritten => produced.doubtful.push(value),
            Err(error) => panic!("record {value}: {error}"),
        }
    }
    produced
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_broker_is_restarted_and_killed_under_load() {
    let _alone = ALONE.lock().await;
    let Some(cluster) = kafka_with(1, &[], None) else { return };
    let load = Load::start(&cluster).await;
    tokio::task::block_in_place(|| {
        cluster.terminate(1);
        cluster.start(1);
    });
    load.goes_on(1_500).await;
    tokio::task::block_in_place(|| {
        cluster.kill(1);
        cluster.start(1);
    });
    load.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_of_a_partition_is_killed_under_load() {
    let _alone = ALONE.lock().await;
    let Some(cluster) = three().await else { return };
    let load = Load::start(cluster).await;
    let leader = load.leader().await;
    tokio::task::block_in_place(|| cluster.kill(leader));
    load.goes_on(3_000).await;
    tokio::task::block_in_place(|| cluster.start(leader));
    load.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_coordinator_of_the_group_is_killed_under_load() {
    let _alone = ALONE.lock().await;
    let Some(cluster) = three().await else { return };
    let load = Load::start(cluster).await;
    let coordinator = load.coordinator().await;
    tokio::task::block_in_place(|| cluster.kill(coordinator));
    load.goes_on(3_000).await;
    tokio::task::block_in_place(|| cluster.start(coordinator));
    load.check().await;
}

/// Its sockets stay open and nothing answers: only a deadline tells that it is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_hangs_for_fifteen_seconds_under_load() {
    let _alone = ALONE.lock().await;
    let Some(cluster) = three().await else { return };
    let load = Load::start(cluster).await;
    let leader = load.leader().await;
    tokio::task::block_in_place(|| cluster.pause(leader));
    tokio::time::sleep(15 * SECOND).await;
    tokio::task::block_in_place(|| cluster.resume(leader));
    load.check().await;
}

/// Stands before each node and counts what it sends.
fn counted(cluster: &Cluster) -> Option<(Vec<Arc<AtomicUsize>>, String)> {
    let (addresses, targets) = (cluster.env.get("PROXIED")?.clone(), cluster.env.get("PROXY_TARGET")?.clone());
    let counts = addresses.split(',').zip(targets.split(',')).map(|(address, target)| {
        let (listener, target) = (TcpListener::bind(address).unwrap(), target.to_owned());
        let count = Arc::new(AtomicUsize::new(0));
        let sent = count.clone();
        std::thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                let Ok(mut node) = TcpStream::connect(&target) else { continue };
                let (mut from_client, mut to_node) = (client.try_clone().unwrap(), node.try_clone().unwrap());
                let sent = sent.clone();
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from_client, &mut to_node);
                    let _ = to_node.shutdown(Shutdown::Both);
                });
                std::thread::spawn(move || {
                    let mut buffer = [0; 16 << 10];
                    while let Ok(read @ 1..) = node.read(&mut buffer) {
                        sent.fetch_add(read, Ordering::SeqCst);
                        if client.write_all(&buffer[..read]).is_err() {
                            break;
                        }
                    }
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
        });
        count
    });
    Some((counts.collect(), addresses))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_reads_from_the_replica_in_its_rack() {
    let _alone = ALONE.lock().await;
    let Some(cluster) = three().await else { return };
    let Some((sent, bootstrap)) = counted(cluster) else { return };
    let desk = Desk::at(cluster).await;
    let topic = unique("racks");
    desk.create(&topic, 1).await;
    let client = Client::builder(bootstrap.split(',')).build().unwrap();
    let producer = client.producer().build().unwrap();
    let record = |number: usize| Record::new(topic.as_str(), vec![number as u8; 10_000]);
    producer.send_all((0..600).map(record).collect()).await.unwrap();
    producer.close(10 * SECOND).await.unwrap();
    let described = client.admin().describe_topics(&[topic.as_str().into()]).await.remove(0).1.unwrap();
    let partition = &described.partitions[0];
    let leader = partition.leader.expect("a leader");
    let nearer = *partition.replicas.iter().find(|replica| **replica != leader).expect("three replicas");

    let before: Vec<_> = sent.iter().map(|sent| sent.load(Ordering::SeqCst)).collect();
    let group = unique("group");
    let builder = client.consumer(&group).topic(topic.as_str(), OffsetReset::Earliest);
    let mut consumer = builder.rack(format!("rack-{}", nearer.0)).build().unwrap();
    let mut bytes = 0;
    while bytes < 600 * 10_000 {
        let event = tokio::time::timeout(60 * SECOND, consumer.next()).await.expect("in time").expect("not ended");
        if let ConsumerEvent::Batch(batch) = event {
            let records = batch.batches.iter().flat_map(|batch| batch.records()).map(Result::unwrap);
            bytes +=
                records.filter(|record| record.offset >= batch.from).map(|r| r.value.unwrap().len()).sum::<usize>();
        }
    }
    let of = |node: NodeId| {
        let at = usize::try_from(node.0).unwrap() - 1;
        sent[at].load(Ordering::SeqCst) - before[at]
    };
    // The leader serves while it checks where to begin.
    assert!(of(nearer) > 4_000_000 && of(leader) < 2_000_000, "{} of {nearer}, {} of {leader}", of(nearer), of(leader));
    consumer.close(10 * SECOND).await.unwrap();
}
