//! A share group at work while nodes go and come.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use kafka_harbor::client::{
    AcknowledgeCause, AcknowledgeFailed, AcknowledgeType, Client, ConfigChange, ConfigResource, ShareBatch,
    ShareConsumer, ShareEvent,
};
use protocol_tests::{Cluster, unique};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::SECOND;
use super::feed::Feed;
use super::memberships::{PARTITIONS, PATIENCE, create, is_set};

/// Two members that accept all they get.
pub(super) struct ShareGroup {
    name: String,
    accepted: Arc<Mutex<Accepted>>,
    members: Vec<JoinHandle<()>>,
    stop: watch::Sender<bool>,
    feed: Feed,
}

/// What the members have accepted, by partition and offset.
#[derive(Default)]
struct Accepted {
    /// What the broker took, and the record's number.
    sure: BTreeMap<Place, usize>,
    /// What it may have taken.
    doubtful: BTreeMap<Place, usize>,
    /// What surely was not taken, and has to come again, with the reason.
    again: BTreeMap<Place, String>,
    faults: Vec<String>,
    /// What must not be.
    wrong: Vec<String>,
}

type Place = (i32, i64);

impl ShareGroup {
    pub(super) async fn new(client: &Client) -> Self {
        let name = unique("shared");
        // The most deliveries that a broker allows: what a slow machine lets go of again and again is not put away.
        let settings = [("share.auto.offset.reset", "earliest"), ("share.delivery.count.limit", "10")];
        let changes = settings.map(|(key, value)| ConfigChange::set(key, value)).to_vec();
        let altered = client.admin().alter_configs(&[(ConfigResource::Group(name.clone()), changes)]).await;
        altered.into_iter().for_each(|(_, altered)| altered.unwrap());
        // Made after the setting, so that a node which leads a partition of it knows it.
        let topic = create(client, "shared").await;
        let (stop, stopped) = watch::channel(false);
        let accepted = Arc::<Mutex<Accepted>>::default();
        let members = (0..2).map(|_| {
            let consumer = client.share_consumer(&name).topic(&topic).max_records(50).build().unwrap();
            tokio::spawn(accept(consumer, accepted.clone(), stopped.clone()))
        });
        let members = members.collect();
        let feed = Feed::start(client.producer().delivery_timeout(PATIENCE).build().unwrap(), topic.clone());
        Self { name, accepted, members, stop, feed }
    }

    /// Waits until so many more records are accepted.
    pub(super) async fn goes_on(&self, records: usize) {
        let begun = self.accepted().settled();
        self.until(begun + records).await;
    }

    /// Ends the feed, waits until all is accepted, here and by the broker's own word, ends the members.
    pub(super) async fn finish(self, cluster: &Cluster) {
        let Self { name, accepted, members, stop, feed } = self;
        let fed = feed.end().await;
        wait(&name, &accepted, &members, fed).await;
        nothing_is_left(cluster, &name).await;
        stop.send(true).unwrap();
        for member in members {
            member.await.unwrap();
        }
        let accepted = accepted.lock().unwrap();
        assert!(accepted.wrong.is_empty(), "{:?}", accepted.wrong);
        let numbers: BTreeSet<usize> = accepted.sure.values().chain(accepted.doubtful.values()).copied().collect();
        assert!(numbers.into_iter().eq(0..fed), "each record that was written is accepted");
        let Accepted { sure, doubtful, .. } = &*accepted;
        eprintln!("{name}: {fed} fed, {} surely accepted, {} in doubt", sure.len(), doubtful.len());
    }

    async fn until(&self, records: usize) {
        wait(&self.name, &self.accepted, &self.members, records).await;
    }

    fn accepted(&self) -> MutexGuard<'_, Accepted> {
        self.accepted.lock().unwrap()
    }
}

impl Accepted {
    fn settled(&self) -> usize {
        self.sure.len() + self.doubtful.len()
    }

    /// What is not accepted, as far as it is known of.
    fn left(&self) -> String {
        format!("again: {:?}; in doubt: {:?}; {:?}", self.again, self.doubtful.keys(), self.faults)
    }

    fn take(&mut self, records: Vec<(Place, usize)>, cause: impl Fn(i64) -> Option<AcknowledgeCause>) {
        for (place, number) in records {
            match cause(place.1) {
                None => {
                    self.doubtful.remove(&place);
                    self.again.remove(&place);
                    if self.sure.insert(place, number).is_some() {
                        self.wrong.push(format!("{place:?} is accepted twice"));
                    }
                }
                // A node that hung hands over what others accepted meanwhile, until it hears that it leads no more.
                Some(_) if self.sure.contains_key(&place) => {}
                Some(AcknowledgeCause::Unknown { .. } | AcknowledgeCause::Refused(_)) => {
                    self.again.remove(&place);
                    self.doubtful.insert(place, number);
                }
                Some(_) if self.doubtful.contains_key(&place) => {}
                Some(cause) => _ = self.again.insert(place, cause.to_string()),
            }
        }
    }
}

/// Accepts everything, and notes what came of it, until it is told to stop.
async fn accept(mut consumer: ShareConsumer, accepted: Arc<Mutex<Accepted>>, mut stopped: watch::Receiver<bool>) {
    loop {
        let event = tokio::select! {
            () = is_set(&mut stopped) => break,
            event = consumer.next() => event,
        };
        let batch = match event {
            Some(ShareEvent::Batch(batch)) => batch,
            Some(ShareEvent::Fault(error)) if !error.is_fatal() => {
                accepted.lock().unwrap().faults.push(error.to_string());
                continue;
            }
            other => return accepted.lock().unwrap().wrong.push(format!("a membership has ended: {other:?}")),
        };
        let records = records(&batch);
        let done = consumer.handle().acknowledge(batch.acknowledge_all(AcknowledgeType::Accept)).await;
        let failures = done.err().map_or_else(Vec::new, |error| error.failures);
        accepted.lock().unwrap().take(records, |offset| {
            let of = |failed: &&AcknowledgeFailed| {
                let said = &failed.acknowledgement;
                (said.first.0..=said.last.0).contains(&offset)
            };
            failures.iter().find(of).map(|failed| failed.cause.clone())
        });
    }
    if let Err(error) = consumer.close(PATIENCE).await {
        accepted.lock().unwrap().wrong.push(error.to_string());
    }
}

fn records(batch: &ShareBatch) -> Vec<(Place, usize)> {
    let partition = batch.partition().partition;
    let number = |value: &[u8]| std::str::from_utf8(value).unwrap().parse().unwrap();
    let records = batch.records().map(|delivered| delivered.record);
    records.map(|record| ((partition, record.offset.0), number(record.value.unwrap()))).collect()
}

async fn wait(name: &str, accepted: &Mutex<Accepted>, members: &[JoinHandle<()>], records: usize) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (settled, wrong) = {
            let accepted = accepted.lock().unwrap();
            (accepted.settled(), accepted.wrong.clone())
        };
        assert!(wrong.is_empty(), "{name}: {wrong:?}");
        assert!(members.iter().all(|member| !member.is_finished()), "{name}: a member ended");
        if settled >= records {
            return;
        }
        let late = || format!("{name}: {settled} of {records} accepted; {}", accepted.lock().unwrap().left());
        assert!(Instant::now() < deadline, "{}", late());
        tokio::time::sleep(SECOND / 20).await;
    }
}

/// Waits until the group has every record behind it: of one whose acceptance was in doubt the broker knows.
async fn nothing_is_left(cluster: &Cluster, name: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let told =
            tokio::task::block_in_place(|| cluster.tool("share-groups", &["--describe", "--group", name, "--offsets"]));
        let lags = told.lines().filter(|line| line.starts_with(name)).map(|line| line.split_whitespace().last());
        if lags.eq(std::iter::repeat_n(Some("0"), PARTITIONS as usize)) {
            return;
        }
        assert!(Instant::now() < deadline, "{name}: {told}");
    }
}
