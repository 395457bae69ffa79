//! Every kind of membership at work on three nodes at once, through all that happens to nodes: one is killed and comes back,
//! one hangs and goes on, then all are restarted one after another.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex as SyncMutex, MutexGuard};
use std::time::{Duration, Instant};

use kafka_harbor::client::{
    Assigned, Client, CommitPosition, Consumer, ConsumerBuilder, ConsumerEvent, ConsumerHandle, Ended, GroupMetadata,
    GroupOffset, GroupProtocol, OffsetReset, PartitionBatch, TransactionalProducer,
};
use kafka_harbor::error::WriteOutcome;
use kafka_harbor::record::{NewTopic, Offset, RecordRef, Topic, TopicPartition};
use protocol_tests::{Cluster, Desk, unique};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::feed::Feed;
use super::share::ShareGroup;
use super::{ALONE, SECOND, three};

pub(super) const PARTITIONS: i32 = 6;
/// The patience that a slow machine needs; on a quick one nothing takes so long.
pub(super) const PATIENCE: Duration = Duration::from_secs(240);
const MEMBERS: [&str; 2] = ["first", "second"];

/// What the members of one group saw and did, and what is against it.
#[derive(Default)]
struct Account {
    /// How often each value was handed over.
    read: BTreeMap<usize, u32>,
    /// Where each partition goes on, by what the broker acknowledged.
    committed: BTreeMap<TopicPartition, Offset>,
    /// By member.
    owned: BTreeMap<String, BTreeSet<i32>>,
    /// Assignments, revocations and losses of any member.
    moves: usize,
    /// Commits and transactions that failed, as the caller sees it.
    errors: Vec<String>,
    /// What was told and survived: a coordinator that is gone is looked for.
    faults: Vec<String>,
    /// What must not be.
    wrong: Vec<String>,
}

impl Account {
    fn count(&mut self, values: &[usize]) {
        values.iter().for_each(|value| *self.read.entry(*value).or_default() += 1);
    }
}

/// Without what was read.
impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account")
            .field("committed", &self.committed)
            .field("owned", &self.owned)
            .field("errors", &self.errors)
            .field("faults", &self.faults)
            .finish_non_exhaustive()
    }
}

/// Records that come in, and a group that reads them.
struct Group {
    name: String,
    topic: Topic,
    account: Arc<SyncMutex<Account>>,
    members: BTreeMap<&'static str, Member>,
    /// Taken when the group finishes.
    feed: Option<Feed>,
}

struct Member {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// What a member does with a batch.
enum Work {
    Commit,
    /// Writes it on, in transactions.
    Transform {
        producer: Box<TransactionalProducer>,
        to: Topic,
    },
}

impl Group {
    async fn new(client: &Client, kind: &str) -> Self {
        let (name, topic) = (unique(kind), create(client, kind).await);
        let feed = Some(Feed::start(client.producer().delivery_timeout(PATIENCE).build().unwrap(), topic.clone()));
        Self { name, topic, account: Arc::default(), members: BTreeMap::new(), feed }
    }

    fn builder(&self, client: &Client) -> ConsumerBuilder {
        client.consumer(&self.name).topic(&self.topic, OffsetReset::Earliest).heartbeat_interval(SECOND)
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap()
    }

    fn join(&mut self, member: &'static str, consumer: Consumer, work: Work) {
        let (stop, stopped) = watch::channel(false);
        let run = Run { member, account: self.account.clone(), at: HashMap::new(), work };
        self.members.insert(member, Member { stop, task: tokio::spawn(run.run(consumer, stopped)) });
    }

    async fn leave(&mut self, member: &str) {
        let Member { stop, task } = self.members.remove(member).unwrap();
        stop.send(true).unwrap();
        task.await.unwrap();
    }

    /// Waits until so many more records are read.
    async fn goes_on(&self, records: usize) {
        let count = || self.account().read.len();
        let (begun, deadline) = (count(), Instant::now() + PATIENCE);
        while count() < begun + records {
            self.nothing_is_wrong();
            let late = || format!("{}: {} records in {PATIENCE:?}; {:?}", self.name, count() - begun, self.account());
            assert!(Instant::now() < deadline, "{}", late());
            tokio::time::sleep(SECOND / 20).await;
        }
    }

    async fn shared_out(&self) {
        let deadline = Instant::now() + PATIENCE;
        let half = PARTITIONS as usize / MEMBERS.len();
        while self.account().owned.len() < MEMBERS.len() || self.account().owned.values().any(|own| own.len() != half) {
            assert!(Instant::now() < deadline, "{}: {:?}", self.name, self.account().owned);
            tokio::time::sleep(SECOND / 20).await;
        }
    }

    fn nothing_is_wrong(&self) {
        assert!(self.account().wrong.is_empty(), "{}: {:?}", self.name, self.account().wrong);
        assert!(self.members.values().all(|member| !member.task.is_finished()), "{}: a member ended", self.name);
    }

    /// Ends the feed, waits until all is read and committed, ends the members. How many records there were.
    async fn finish(mut self, desk: &Desk) -> (usize, Account) {
        let fed = self.feed.take().expect("it is fed until here").end().await;
        desk.drained(&self.name, &[&self.topic], PATIENCE).await;
        self.nothing_is_wrong();
        for member in MEMBERS {
            self.leave(member).await;
        }
        let account = std::mem::take(&mut *self.account());
        assert!(account.wrong.is_empty(), "{}: {:?}", self.name, account.wrong);
        let values: Vec<_> = account.read.keys().copied().collect();
        let left: Vec<_> = (0..fed).filter(|value| !account.read.contains_key(value)).collect();
        assert!(left.is_empty() && values.len() == fed, "{}: not read: {left:?}; {account:?}", self.name);
        let (moves, errors) = (account.moves, account.errors.len());
        eprintln!("{}: {fed} fed, {moves} moves, {errors} commits failed", self.name);
        (fed, account)
    }
}

/// One member at work.
struct Run {
    member: &'static str,
    account: Arc<SyncMutex<Account>>,
    /// Where each assignment goes on.
    at: HashMap<Assigned, Offset>,
    work: Work,
}

impl Run {
    async fn run(mut self, mut consumer: Consumer, mut stopped: watch::Receiver<bool>) {
        loop {
            let event = tokio::select! {
                () = is_set(&mut stopped) => break,
                event = consumer.next() => event,
            };
            match event {
                Some(event) => self.take(consumer.handle(), event).await,
                None => return self.account().wrong.push(format!("{}: the membership has ended", self.member)),
            }
        }
        if let Err(error) = consumer.close(30 * SECOND).await {
            self.account().wrong.push(format!("{}: {error}", self.member));
        }
        if let Work::Transform { producer, .. } = self.work {
            producer.close(30 * SECOND).await.unwrap();
        }
    }

    async fn take(&mut self, handle: &ConsumerHandle, event: ConsumerEvent) {
        match event {
            ConsumerEvent::Assigned(assignments) => {
                let mut account = self.account.lock().unwrap();
                account.moves += usize::from(!assignments.is_empty());
                for assignment in assignments {
                    let partition = &assignment.assigned.partition;
                    let committed = account.committed.get(partition).copied().unwrap_or(Offset(0));
                    if assignment.position < committed {
                        let told = format!("{partition} begins at {}, {committed} was committed", assignment.position);
                        account.wrong.push(told);
                    }
                    account.owned.entry(self.member.to_owned()).or_default().insert(partition.partition);
                    self.at.insert(assignment.assigned, assignment.position);
                }
            }
            ConsumerEvent::Revoked(gone, release) => {
                self.let_go(&gone);
                release.send();
            }
            ConsumerEvent::Lost(gone) => self.let_go(&gone),
            ConsumerEvent::Fault(error) => {
                let told = format!("{}: {error}", self.member);
                if error.is_fatal() { self.account().wrong.push(told) } else { self.account().faults.push(told) }
            }
            ConsumerEvent::Batch(batch) => self.work(handle, batch).await,
            _ => {}
        }
    }

    async fn work(&mut self, handle: &ConsumerHandle, batch: PartitionBatch) {
        // As of now: the offsets are this member's to commit as long as this is who it is.
        let group = handle.group_metadata();
        let (assigned, from, next) = (batch.assigned.clone(), batch.from, batch.next_offset);
        let expected = self.at.insert(assigned.clone(), next);
        if expected != Some(from) {
            self.account().wrong.push(format!("{assigned:?} goes on at {from}, not at {expected:?}"));
        }
        let values = values(&batch);
        drop(batch);
        let done = match &mut self.work {
            Work::Commit => {
                // Handed over is handed over: a commit that fails may have been made, and then nobody reads these again.
                self.account().count(&values);
                let committed = handle.commit(vec![CommitPosition::new(assigned.clone(), next)]).await;
                committed.map_err(|error| error.to_string())
            }
            Work::Transform { producer, to } => {
                let offset = (assigned.partition.clone(), GroupOffset::new(next));
                let records: Vec<String> = values.iter().map(ToString::to_string).collect();
                transform(producer, to, &records, group, offset).await
            }
        };
        let once = matches!(self.work, Work::Transform { .. });
        let mut account = self.account.lock().unwrap();
        if let Err(error) = done {
            account.errors.push(format!("{}: {error}", self.member));
            // The same again, if the partition is still here.
            self.at.insert(assigned.clone(), from);
            return handle.seek(&assigned, from);
        }
        let committed = account.committed.entry(assigned.partition).or_insert(next);
        *committed = next.max(*committed);
        if once {
            account.count(&values);
        }
    }

    fn let_go(&mut self, gone: &[Assigned]) {
        let mut account = self.account.lock().unwrap();
        account.moves += 1;
        for assigned in gone {
            account.owned.entry(self.member.to_owned()).or_default().remove(&assigned.partition.partition);
            self.at.remove(assigned);
        }
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap()
    }
}

pub(super) async fn is_set(flag: &mut watch::Receiver<bool>) {
    // Its sender is kept until it is set.
    let _ = flag.wait_for(|set| *set).await;
}

/// Values and position, together or not at all.
async fn transform(
    producer: &mut TransactionalProducer,
    to: &Topic,
    values: &[String],
    group: Option<GroupMetadata>,
    offset: (TopicPartition, GroupOffset),
) -> Result<(), String> {
    let Some(group) = group else { return Err("owns nothing any more".to_owned()) };
    let transaction = producer.begin().await.map_err(|error| error.to_string())?;
    let records: Vec<_> =
        values.iter().map(|value| RecordRef::new(value.as_bytes()).with_key(value.as_bytes())).collect();
    // Dropped on an error, it is aborted.
    transaction.send_batch(to, records).await.map_err(|error| error.to_string())?;
    transaction.send_offsets(&group, [offset]).await.map_err(|error| error.to_string())?;
    match transaction.commit().await {
        Ok(()) => Ok(()),
        Err(error) if error.outcome == WriteOutcome::PossiblyWritten => loop {
            match producer.resolve().await {
                Some(Ok(Ended::Committed)) => break Ok(()),
                Some(Ok(Ended::Aborted)) => break Err(error.to_string()),
                Some(Err(error)) if error.is_fatal() => panic!("{error}"),
                Some(Err(error)) if error.outcome != WriteOutcome::PossiblyWritten => break Err(error.to_string()),
                // It is not decided yet.
                Some(Err(_)) | None => tokio::time::sleep(SECOND / 20).await,
            }
        },
        Err(error) => Err(error.to_string()),
    }
}

fn values(batch: &PartitionBatch) -> Vec<usize> {
    let records = batch.batches.iter().flat_map(|batch| batch.records()).map(|record| record.unwrap());
    let records = records.filter(|record| record.offset >= batch.from);
    records.map(|record| std::str::from_utf8(record.value.unwrap()).unwrap().parse().unwrap()).collect()
}

pub(super) async fn create(client: &Client, kind: &str) -> Topic {
    let topic = Topic::from(unique(kind));
    let new = NewTopic::new(&topic).with_partitions(PARTITIONS);
    client.admin().create_topics(&[new]).await.remove(0).1.unwrap();
    topic
}

/// One group of each kind, at work.
struct Groups {
    cluster: &'static Cluster,
    client: Client,
    desk: Desk,
    /// The coordinator assigns (KIP-848).
    assigned: Group,
    /// The members have names of their own (KIP-345).
    named: Group,
    /// Reads and writes on, exactly once (KIP-447), to `copies`.
    exact: Group,
    copies: Topic,
    shared: ShareGroup,
}

impl Groups {
    async fn start(cluster: &'static Cluster) -> Self {
        // What hangs costs those who wait for it that long.
        let client = Client::builder(cluster.bootstrap.split(',')).request_timeout(10 * SECOND).build().unwrap();
        let copies = create(&client, "copies").await;
        let mut assigned = Group::new(&client, "assigned").await;
        let mut named = Group::new(&client, "named").await;
        let mut exact = Group::new(&client, "exact").await;
        let shared = ShareGroup::new(&client).await;
        for member in MEMBERS {
            let builder = assigned.builder(&client).group_protocol(GroupProtocol::Consumer);
            assigned.join(member, builder.build().unwrap(), Work::Commit);
            named.join(member, named.builder(&client).instance_id(member).build().unwrap(), Work::Commit);
            let transactional = client.producer().transactional(unique(member)).transaction_timeout(PATIENCE);
            let producer = Box::new(transactional.init().await.unwrap());
            let builder = exact.builder(&client).group_protocol(GroupProtocol::Consumer);
            exact.join(member, builder.build().unwrap(), Work::Transform { producer, to: copies.clone() });
        }
        let groups = Self { cluster, client, desk: Desk::at(cluster).await, assigned, named, exact, copies, shared };
        for group in groups.read() {
            group.shared_out().await;
        }
        groups.go_on().await;
        groups.in_sync().await;
        groups
    }

    /// The groups that read partitions of their own.
    fn read(&self) -> [&Group; 3] {
        [&self.assigned, &self.named, &self.exact]
    }

    /// Waits until all have taken three seconds' records more.
    async fn go_on(&self) {
        let [assigned, named, exact] = self.read().map(|group| group.goes_on(300));
        tokio::join!(assigned, named, exact, self.shared.goes_on(300));
    }

    /// Waits until every replica of everything has caught up, so that one node may go.
    async fn in_sync(&self) {
        let topics = self.client.admin().list_topics().await.unwrap();
        let topics: Vec<_> = topics.into_iter().map(|described| described.topic).collect();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let described = self.client.admin().describe_topics(&topics).await;
            let known = described.iter().filter_map(|(_, described)| described.as_ref().ok());
            let mut partitions = known.flat_map(|topic| &topic.partitions);
            let whole = partitions.all(|partition| partition.in_sync.len() == partition.replicas.len());
            if whole && described.iter().all(|(_, described)| described.is_ok()) {
                return;
            }
            assert!(Instant::now() < deadline, "not in sync: {described:?}");
            tokio::time::sleep(SECOND / 5).await;
        }
    }

    /// Does it to a node, aside from the tasks at work.
    fn node(&self, act: impl FnOnce(&Cluster)) {
        tokio::task::block_in_place(|| act(self.cluster));
    }

    /// Ends everything, and checks all that was to hold.
    async fn check(self) {
        let Self { cluster, desk, assigned, named, exact, copies, shared, .. } = self;
        shared.finish(cluster).await;
        for group in [assigned, named] {
            group.finish(&desk).await;
        }
        let (fed, account) = exact.finish(&desk).await;
        let twice: Vec<_> = account.read.iter().filter(|(_, times)| **times != 1).collect();
        assert!(twice.is_empty(), "handed over again after its transaction: {twice:?}");
        let copies = desk.read(&copies).await;
        let mut numbers: Vec<usize> = copies.iter().map(|copy| copy.text().parse().unwrap()).collect();
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(0..fed), "{} committed copies of {fed} records", numbers.len());
    }
}

async fn coordinator(client: &Client, group: &str) -> u32 {
    let described = client.admin().describe_groups(&[group.to_owned()]).await.remove(0).1.unwrap();
    u32::try_from(described.coordinator.0).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_membership_outlives_a_kill_a_hang_and_a_rolling_restart() {
    let _alone = ALONE.lock().await;
    let Some(cluster) = three().await else { return };
    let begun = Instant::now();
    let told = |what: &str| eprintln!("{:?}: {what}", begun.elapsed());
    let groups = Groups::start(cluster).await;
    told("at work");
    let node = coordinator(&groups.client, &groups.exact.name).await;
    groups.node(|cluster| cluster.kill(node));
    groups.go_on().await;
    told("one is gone");
    groups.node(|cluster| cluster.start(node));
    groups.in_sync().await;
    groups.go_on().await;
    told("it is back");

    let node = coordinator(&groups.client, &groups.assigned.name).await;
    groups.node(|cluster| cluster.pause(node));
    groups.go_on().await;
    told("one hangs");
    groups.node(|cluster| cluster.resume(node));
    groups.in_sync().await;
    told("it goes on");

    for node in 1..=3 {
        groups.node(|cluster| cluster.terminate(node));
        groups.node(|cluster| cluster.start(node));
        groups.in_sync().await;
        told("one is restarted");
    }
    groups.go_on().await;
    groups.check().await;
    told("all is right");
}
