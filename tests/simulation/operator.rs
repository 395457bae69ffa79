//! One who administers while all others work.

use std::time::Duration;

use fastrand::Rng;
use kafka_harbor::client::{Admin, GroupOffset, Outcomes};
use kafka_harbor::protocol::error_code::ErrorCode;
use kafka_harbor::record::{NewTopic, Offset, Topic, TopicPartition};
use kafka_harbor::testing::broker::Cluster;

use super::history::What;
use super::world::{MOST_PARTITIONS, Phase, SECOND, TOPIC, World, at};

/// Topics that come and go.
pub(crate) const TOPICS: [&str; 2] = ["scratch-1", "scratch-2"];
/// Its client.
pub(crate) const NAME: &str = "operator";
/// A group without members.
pub(crate) const IDLE: &str = "idle";

/// Administers until the calm.
pub(crate) async fn live(world: World, mut rng: Rng) {
    let client = world.client(&mut rng, NAME.to_owned());
    let mut operator = Operator { admin: client.admin().with_timeout(10 * SECOND), world, rng, position: 0 };
    while operator.world.plan.has_operator && !operator.world.is(Phase::Calm) {
        let is_hard = operator.world.plan.is_hard;
        let wait = Duration::from_millis(operator.rng.u64(0..if is_hard { 3_000 } else { 4_000 }));
        operator.world.pause(wait, Phase::Calm).await;
        match operator.rng.u8(0..if is_hard { 14 } else { 8 }) {
            0 => operator.grow().await,
            1..3 => operator.delete_records().await,
            3..5 | 8 => operator.create().await,
            5 | 9..11 => operator.delete().await,
            6 | 11..14 => operator.set().await,
            _ => operator.read().await,
        }
    }
    if operator.world.plan.is_long {
        operator.world.until(Phase::Quiet).await;
        operator.grow().await;
    }
    // What nobody asks any more ends with it.
    let _ = client.close(10 * SECOND).await;
}

struct Operator {
    world: World,
    rng: Rng,
    admin: Admin,
    position: i64,
}

impl Operator {
    async fn grow(&mut self) {
        let partitions = self.world.partitions() + 1;
        if partitions > MOST_PARTITIONS {
            return;
        }
        self.world.recorder.misfortune(format_args!("{TOPIC} is to have {partitions} partitions"));
        let grown = self.admin.create_partitions(&[(Topic::from(TOPIC), partitions)]).await;
        if self.is_done(grown) == Ok(()) {
            assert!(self.world.partitions() >= partitions, "it was told that there are {partitions}");
        }
    }

    /// What all have read.
    async fn delete_records(&mut self) {
        let partition = self.rng.i32(0..self.world.partitions());
        let Some(committed) = self.world.committed_by_all(partition).filter(|committed| *committed > 0) else { return };
        let before = self.rng.i64(0..=committed);
        self.world.will_delete(partition, before);
        self.world.recorder.note(What::Deleting { partition, before });
        let deleted = self.admin.delete_records(&[(at(partition), Offset(before))]).await;
        if self.is_done(deleted).is_ok() {
            let state = self.world.broker.act(|cluster, _| cluster.partition(&at(partition)).unwrap());
            // Without a leader nobody can say where it begins.
            let is_so = state.leader.is_none() || state.log_start >= Offset(before);
            assert!(is_so, "it was told that {partition} begins at {before}: {state:?}");
        }
    }

    async fn create(&mut self) {
        let name = self.topic();
        let created = self.admin.create_topics(&[NewTopic::new(name).with_partitions(1)]).await;
        let exists = self.is_done(created).ok().map(|_| true);
        self.note(name, exists);
    }

    async fn delete(&mut self) {
        let name = self.topic();
        let deleted = self.admin.delete_topics(&[Topic::from(name)]).await;
        let exists = match self.is_done(deleted) {
            Ok(()) | Err(Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)) => Some(false),
            Err(_) => None,
        };
        self.note(name, exists);
    }

    async fn set(&mut self) {
        self.position += self.rng.i64(1..100);
        let offset = self.position;
        let set = self.admin.set_group_offsets(IDLE, &[(at(0), GroupOffset::new(Offset(offset)))]).await;
        let acknowledged = self.is_done(set).is_ok();
        self.world.recorder.note(What::Set { offset, acknowledged });
        // What it reads later may be what a later try has set.
        let found = self.world.broker.act(|cluster, _| cluster.committed(IDLE, &at(0)));
        self.world.recorder.note(What::Read { offset: found.map(|offset| offset.0) });
    }

    async fn read(&mut self) {
        match self.admin.group_offsets(IDLE, None).await {
            Ok(offsets) => {
                let offset = offsets.first().map(|(_, found)| found.offset.0);
                self.world.recorder.note(What::Read { offset });
            }
            Err(error) => self.world.recorder.fault("operator", &error),
        }
    }

    /// What it was told of a topic, beside what is.
    fn note(&self, name: &'static str, exists: Option<bool>) {
        let there = |cluster: &mut Cluster| cluster.partition(&TopicPartition::new(name, 0)).is_some();
        let really = self.world.broker.act(|cluster, _| there(cluster));
        self.world.recorder.note(What::Topic { name, exists, really });
    }

    fn topic(&mut self) -> &'static str {
        self.rng.choice(TOPICS).expect("there are some")
    }

    /// The outcome for the one that was named; an error is the broker's code, if it told one.
    fn is_done<K, T>(&self, outcomes: Outcomes<K, T>) -> Result<T, Option<ErrorCode>> {
        let (_, outcome) = outcomes.into_iter().next().expect("one outcome for each");
        outcome.map_err(|error| {
            self.world.recorder.fault("operator", &error);
            error.code()
        })
    }
}
