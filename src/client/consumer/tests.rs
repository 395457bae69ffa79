//! A consumer against a broker that acts by a script, in virtual time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};

use kafka_protocol::messages::fetch_response::{EpochEndOffset, FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use kafka_protocol::messages::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;
use tokio::time::{Instant, sleep};

use super::*;
use crate::client::scripted::{Act, Brokers, Exchange, metadata};
use crate::client::{Client, ClientBuilder};
use crate::protocol::batch::{BatchWriter, Closing};
use crate::protocol::compression::Compression;
use crate::protocol::error_code::ErrorCode;
use crate::record::{NodeId, Timestamp};

const SECOND: Duration = Duration::from_secs(1);

/// One broker that coordinates a group of one member, and has one partition with one record of each offset.
#[derive(Default)]
struct Script {
    /// APIs by name that are not answered.
    silent: Mutex<Vec<&'static str>>,
    refuse_commit: Mutex<Option<ErrorCode>>,
    /// Whether commits are refused, and joins to be tried again.
    rebalancing: AtomicBool,
    end: AtomicI64,
    committed: Mutex<Vec<(i64, i32)>>,
    generation: AtomicU32,
    unstable: AtomicU32,
    left: AtomicBool,
    /// Partitions of the topic. Below 0: the topic does not exist. More than one: none but the first has a commit.
    partitions: AtomicI64,
    /// Whether not even the first has one.
    is_new_group: AtomicBool,
    /// What offsets were asked for: partition and time.
    listed: Mutex<Vec<(i32, i64)>>,
    /// What was fetched: offset, and the epoch before it.
    fetched: Mutex<Vec<(i64, i32)>>,
    /// Whether logins are refused; sessions last ten seconds.
    keeps_out: AtomicBool,
    /// Whether metadata is silent from the first join on.
    blinds_leaders: AtomicBool,
    /// Epoch and end of the log before it was truncated, told to the next who asks with an epoch.
    diverging: Mutex<Option<(i32, i64)>>,
}

impl Script {
    fn new(records: i64) -> Arc<Self> {
        Arc::new(Self { end: AtomicI64::new(records), partitions: AtomicI64::new(1), ..Self::default() })
    }

    fn client(self: &Arc<Self>, options: impl FnOnce(ClientBuilder) -> ClientBuilder) -> (Client, Brokers) {
        let (brokers, script) = (Brokers::new(), self.clone());
        brokers.at("a:1", move |exchange| script.act(exchange));
        (brokers.client("a:1", options), brokers)
    }

    fn silence(&self, apis: &[&'static str]) {
        *self.silent.lock().unwrap() = apis.to_vec();
    }

    fn act(&self, exchange: &Exchange) -> Act {
        let name = exchange.api.name().unwrap();
        if self.silent.lock().unwrap().contains(&name) {
            return Act::Silence;
        }
        match name {
            "Metadata" => match usize::try_from(self.partitions.load(Ordering::SeqCst)) {
                Ok(partitions) => metadata(exchange, &[(1, "a:1")], &[("t", 7, &vec![1; partitions])]),
                Err(_) => metadata(exchange, &[(1, "a:1")], &[]),
            },
            "FindCoordinator" => {
                let coordinator = Coordinator::default()
                    .with_key(StrBytes::from_static_str("g"))
                    .with_node_id(BrokerId(1))
                    .with_host(StrBytes::from_static_str("a"))
                    .with_port(1);
                exchange.answer::<FindCoordinatorRequest>(
                    &FindCoordinatorResponse::default().with_coordinators(vec![coordinator]),
                )
            }
            "JoinGroup" => self.join(exchange),
            "SyncGroup" => {
                let request = exchange.request::<SyncGroupRequest>();
                let assignment = request.assignments[0].assignment.clone();
                exchange.answer::<SyncGroupRequest>(&SyncGroupResponse::default().with_assignment(assignment))
            }
            "Heartbeat" => exchange.answer::<HeartbeatRequest>(&HeartbeatResponse::default()),
            "LeaveGroup" => {
                self.left.store(true, Ordering::SeqCst);
                exchange.answer::<LeaveGroupRequest>(&LeaveGroupResponse::default())
            }
            "SaslHandshake" => exchange.answer::<SaslHandshakeRequest>(&SaslHandshakeResponse::default()),
            "SaslAuthenticate" => {
                let answer = match self.keeps_out.load(Ordering::SeqCst) {
                    true => SaslAuthenticateResponse::default().with_error_code(58),
                    false => SaslAuthenticateResponse::default().with_session_lifetime_ms(10_000),
                };
                exchange.answer::<SaslAuthenticateRequest>(&answer)
            }
            "OffsetFetch" => self.offset_fetch(exchange),
            "OffsetCommit" => self.offset_commit(exchange),
            "ListOffsets" => self.list_offsets(exchange),
            "Fetch" => self.fetch(exchange),
            _ => Act::Usual,
        }
    }

    fn join(&self, exchange: &Exchange) -> Act {
        let request = exchange.request::<JoinGroupRequest>();
        if self.rebalancing.load(Ordering::SeqCst) {
            let response = JoinGroupResponse::default().with_error_code(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS.0);
            return exchange.answer::<JoinGroupRequest>(&response);
        }
        if self.blinds_leaders.load(Ordering::SeqCst) {
            self.silence(&["Metadata"]);
        }
        let generation = self.generation.fetch_add(1, Ordering::SeqCst) as i32 + 1;
        let id = StrBytes::from_string(format!("member-{generation}"));
        let protocol = &request.protocols[0];
        let member =
            JoinGroupResponseMember::default().with_member_id(id.clone()).with_metadata(protocol.metadata.clone());
        let response = JoinGroupResponse::default()
            .with_generation_id(generation)
            .with_protocol_name(Some(protocol.name.clone()))
            .with_leader(id.clone())
            .with_member_id(id)
            .with_members(vec![member]);
        exchange.answer::<JoinGroupRequest>(&response)
    }

    fn offset_fetch(&self, exchange: &Exchange) -> Act {
        let unstable = self.unstable.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        let code = if unstable.is_ok() { ErrorCode::UNSTABLE_OFFSET_COMMIT } else { ErrorCode::NONE };
        let last = self.committed.lock().unwrap().last().copied();
        let (offset, epoch) = if code.is_ok() { last.unwrap_or((0, -1)) } else { (-1, -1) };
        let first = OffsetFetchResponsePartitions::default()
            .with_committed_offset(offset)
            .with_committed_leader_epoch(epoch)
            .with_error_code(code.0);
        let partitions = (0..self.partitions.load(Ordering::SeqCst)).map(|partition| match partition {
            0 if !self.is_new_group.load(Ordering::SeqCst) => first.clone(),
            partition => OffsetFetchResponsePartitions::default()
                .with_partition_index(partition as i32)
                .with_committed_offset(-1),
        });
        let topic = OffsetFetchResponseTopics::default()
            .with_name(StrBytes::from_static_str("t").into())
            .with_partitions(partitions.collect());
        let group = OffsetFetchResponseGroup::default()
            .with_group_id(GroupId(StrBytes::from_static_str("g")))
            .with_topics(vec![topic]);
        exchange.answer::<OffsetFetchRequest>(&OffsetFetchResponse::default().with_groups(vec![group]))
    }

    fn offset_commit(&self, exchange: &Exchange) -> Act {
        let request = exchange.request::<OffsetCommitRequest>();
        let asked = &request.topics[0].partitions[0];
        let code = match self.rebalancing.load(Ordering::SeqCst) {
            true => ErrorCode::REBALANCE_IN_PROGRESS,
            false => self.refuse_commit.lock().unwrap().take().unwrap_or(ErrorCode::NONE),
        };
        if code.is_ok() {
            self.committed.lock().unwrap().push((asked.committed_offset, asked.committed_leader_epoch));
        }
        let partition = OffsetCommitResponsePartition::default()
            .with_partition_index(asked.partition_index)
            .with_error_code(code.0);
        let topic = OffsetCommitResponseTopic::default()
            .with_name(request.topics[0].name.clone())
            .with_partitions(vec![partition]);
        exchange.answer::<OffsetCommitRequest>(&OffsetCommitResponse::default().with_topics(vec![topic]))
    }

    fn list_offsets(&self, exchange: &Exchange) -> Act {
        let request = exchange.request::<ListOffsetsRequest>();
        let partitions = request.topics[0].partitions.iter().map(|asked| {
            self.listed.lock().unwrap().push((asked.partition_index, asked.timestamp));
            let end = self.end.load(Ordering::SeqCst);
            ListOffsetsPartitionResponse::default()
                .with_partition_index(asked.partition_index)
                .with_offset(if asked.timestamp == -2 { 0 } else { end })
        });
        let topic = ListOffsetsTopicResponse::default()
            .with_name(request.topics[0].name.clone())
            .with_partitions(partitions.collect());
        exchange.answer::<ListOffsetsRequest>(&ListOffsetsResponse::default().with_topics(vec![topic]))
    }

    fn fetch(&self, exchange: &Exchange) -> Act {
        let request = exchange.request::<FetchRequest>();
        let Some(topic) = request.topics.first() else { return Act::Silence };
        let partitions = topic.partitions.iter().map(|asked| {
            let mut data = PartitionData::default().with_partition_index(asked.partition);
            self.fetched.lock().unwrap().push((asked.fetch_offset, asked.last_fetched_epoch));
            if asked.last_fetched_epoch >= 0
                && let Some((epoch, end)) = self.diverging.lock().unwrap().take()
            {
                return data.with_diverging_epoch(EpochEndOffset::default().with_epoch(epoch).with_end_offset(end));
            }
            if asked.fetch_offset < self.end.load(Ordering::SeqCst) {
                let mut writer = BatchWriter::new(Compression::NONE);
                writer.append(Timestamp(1), None, Some(b"v"), std::iter::empty()).unwrap();
                let batch = writer.close(Closing::default()).unwrap();
                let batch = batch.with_base_offset(Offset(asked.fetch_offset)).unwrap();
                let batch = batch.with_leader_epoch(Some(crate::record::LeaderEpoch(5)));
                data.records = Some(batch.into_bytes());
            }
            data
        });
        let partitions = partitions.collect();
        let topic = FetchableTopicResponse::default().with_topic_id(topic.topic_id).with_partitions(partitions);
        exchange.answer::<FetchRequest>(&FetchResponse::default().with_responses(vec![topic]))
    }
}

fn consumer(client: &Client) -> Consumer {
    client.consumer("g").topic("t", OffsetReset::Earliest).build().unwrap()
}

async fn next(consumer: &mut Consumer) -> ConsumerEvent {
    timeout(600 * SECOND, consumer.next()).await.expect("an event").expect("not ended")
}

async fn next_batch(consumer: &mut Consumer) -> PartitionBatch {
    loop {
        if let ConsumerEvent::Batch(batch) = next(consumer).await {
            return batch;
        }
    }
}

/// One request that was never answered blocked all that followed on its connection (krafka 0.25.0).
#[tokio::test(start_paused = true)]
async fn a_fetch_that_is_never_answered_is_given_up_and_asked_again() {
    let script = Script::new(1);
    script.silence(&["Fetch"]);
    let (client, brokers) = script.client(|options| options.request_timeout(10 * SECOND));
    let mut consumer = consumer(&client);
    assert!(matches!(next(&mut consumer).await, ConsumerEvent::Assigned(_)));
    sleep(5 * SECOND).await;
    script.silence(&[]);
    let begun = Instant::now();
    assert_eq!(next_batch(&mut consumer).await.next_offset, Offset(1));
    assert!(begun.elapsed() < 20 * SECOND);
    assert!(brokers.count("a:1 Fetch") >= 2);
}

/// The offset of an open transaction was read as "no commit yet" (kafka-python#2428).
#[tokio::test(start_paused = true)]
async fn an_unstable_offset_is_waited_for() {
    let script = Script::new(9);
    script.committed.lock().unwrap().push((6, 5));
    script.unstable.store(3, Ordering::SeqCst);
    let (client, brokers) = script.client(|options| options);
    let mut consumer = consumer(&client);
    let ConsumerEvent::Assigned(assigned) = next(&mut consumer).await else { panic!("not assigned") };
    assert_eq!((assigned[0].committed, assigned[0].position), (Some(Offset(6)), Offset(6)));
    assert_eq!((brokers.count("a:1 OffsetFetch"), brokers.count("a:1 ListOffsets")), (4, 0));
}

async fn next_assigned(consumer: &mut Consumer) -> Vec<(i32, i64)> {
    loop {
        if let ConsumerEvent::Assigned(came) = next(consumer).await
            && !came.is_empty()
        {
            return came.iter().map(|a| (a.assigned.partition.partition, a.position.0)).collect();
        }
    }
}

const EARLIEST: i64 = -2;
const LATEST: i64 = -1;

/// What was written to a partition between its creation and its discovery was skipped (KAFKA-12478).
#[tokio::test(start_paused = true)]
async fn a_partition_that_appears_under_a_membership_is_read_from_its_first_record_and_no_other_is() {
    let script = Script::new(9);
    script.partitions.store(2, Ordering::SeqCst);
    script.is_new_group.store(true, Ordering::SeqCst);
    let (client, _brokers) = script.client(|options| options);
    let mut consumer = client.consumer("g").topic("t", OffsetReset::Latest).build().unwrap();
    assert_eq!(next_assigned(&mut consumer).await, [(0, 9), (1, 9)]);
    script.partitions.store(4, Ordering::SeqCst);
    assert_eq!(next_assigned(&mut consumer).await, [(2, 0), (3, 0)]);
    assert_eq!(*script.listed.lock().unwrap(), [(0, LATEST), (1, LATEST), (2, EARLIEST), (3, EARLIEST)]);
    // Lost and assigned again, both are what they were.
    *script.refuse_commit.lock().unwrap() = Some(ErrorCode::UNKNOWN_MEMBER_ID);
    let batch = next_batch(&mut consumer).await;
    consumer.handle().commit(vec![CommitPosition::new(batch.assigned, Offset(1))]).await.unwrap_err();
    assert_eq!(next_assigned(&mut consumer).await, [(0, 9), (1, 9), (2, 0), (3, 0)]);
}

/// The first records of a topic that is created after its consumer were skipped (librdkafka#1852).
#[tokio::test(start_paused = true)]
async fn a_topic_that_appears_under_a_membership_is_read_from_its_first_record() {
    let script = Script::new(9);
    script.partitions.store(-1, Ordering::SeqCst);
    script.is_new_group.store(true, Ordering::SeqCst);
    let (client, _brokers) = script.client(|options| options);
    let mut consumer = client.consumer("g").topic("t", OffsetReset::Latest).build().unwrap();
    consumer.joined(60 * SECOND).await.unwrap();
    script.partitions.store(1, Ordering::SeqCst);
    assert_eq!(next_assigned(&mut consumer).await, [(0, 0)]);
    assert_eq!(*script.listed.lock().unwrap(), [(0, EARLIEST)]);
}

/// Positions without leader epoch cannot be checked for truncation (librdkafka#5158).
#[tokio::test(start_paused = true)]
async fn a_commit_carries_the_leader_epoch_of_what_was_read() {
    let script = Script::new(2);
    let (client, _brokers) = script.client(|options| options);
    let mut consumer = consumer(&client);
    let batch = next_batch(&mut consumer).await;
    consumer.handle().commit(vec![CommitPosition::new(batch.assigned, batch.next_offset)]).await.unwrap();
    assert_eq!(*script.committed.lock().unwrap(), [(1, 5)]);
}

/// A committed position above a truncation was reset to one end of the log (librdkafka#5158).
#[tokio::test(start_paused = true)]
async fn a_log_truncated_below_the_commit_is_read_from_where_it_diverged_and_that_is_told() {
    let script = Script::new(9);
    script.committed.lock().unwrap().push((6, 3));
    *script.diverging.lock().unwrap() = Some((2, 4));
    let (client, brokers) = script.client(|options| options);
    let mut consumer = consumer(&client);
    assert!(matches!(next(&mut consumer).await, ConsumerEvent::Assigned(_)));
    let ConsumerEvent::Fault(ConsumerError::Truncated { from, to, .. }) = next(&mut consumer).await else {
        panic!("not told")
    };
    assert_eq!((from, to), (Offset(6), Offset(4)));
    let batch = next_batch(&mut consumer).await;
    assert_eq!(batch.from, Offset(4));
    consumer.handle().commit(vec![CommitPosition::new(batch.assigned, batch.next_offset)]).await.unwrap();
    assert_eq!(script.committed.lock().unwrap().last(), Some(&(batch.next_offset.0, 5)));
    assert_eq!(brokers.count("a:1 ListOffsets"), 0);
}

/// Whoever resumes a partition by a seek, as the harbor does, had no epoch from then on: behind a truncation its position was
/// out of range.
#[tokio::test(start_paused = true)]
async fn a_seek_to_what_was_read_carries_its_leader_epoch_and_one_beyond_it_none() {
    let script = Script::new(4);
    let (client, _brokers) = script.client(|options| options);
    let mut consumer = consumer(&client);
    let assigned = loop {
        let batch = next_batch(&mut consumer).await;
        if batch.next_offset > Offset(2) {
            break batch.assigned;
        }
    };
    for (offset, epoch) in [(2, 5), (100, -1)] {
        script.fetched.lock().unwrap().clear();
        consumer.handle().seek(&assigned, Offset(offset));
        sleep(SECOND).await;
        let fetched = script.fetched.lock().unwrap();
        assert_eq!(fetched.iter().find(|(from, _)| *from == offset), Some(&(offset, epoch)), "{fetched:?}");
    }
}

/// A member that went on after such an answer worked as a zombie (kafkajs#1474).
#[tokio::test(start_paused = true)]
async fn a_commit_of_an_expelled_member_is_lost_and_so_is_everything() {
    let script = Script::new(2);
    let (client, _brokers) = script.client(|options| options);
    let mut consumer = consumer(&client);
    let batch = next_batch(&mut consumer).await;
    *script.refuse_commit.lock().unwrap() = Some(ErrorCode::UNKNOWN_MEMBER_ID);
    let position = CommitPosition::new(batch.assigned.clone(), batch.next_offset);
    let error = consumer.handle().commit(vec![position.clone()]).await.unwrap_err();
    assert!(error.failures[0].is_lost(), "{error}");
    let lost = loop {
        match next(&mut consumer).await {
            ConsumerEvent::Lost(lost) => break lost,
            ConsumerEvent::Batch(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(lost, [batch.assigned]);
    let ConsumerEvent::Assigned(again) = next(&mut consumer).await else { panic!("not assigned again") };
    assert_ne!(again[0].assigned, lost[0]);
    let old = consumer.handle().commit(vec![position]).await.unwrap_err();
    assert!(old.failures[0].is_lost());
}

/// In the name of the member that had joined anew the offsets of a batch from before the loss were taken, and what it covered
/// was handed over again.
#[tokio::test(start_paused = true)]
async fn who_has_not_heard_of_a_loss_commits_no_offsets_in_a_transaction() {
    let script = Script::new(1);
    let (client, _brokers) = script.client(|options| options);
    let mut consumer = consumer(&client);
    let batch = next_batch(&mut consumer).await;
    let before = consumer.handle().group_metadata().expect("a member");
    *script.refuse_commit.lock().unwrap() = Some(ErrorCode::UNKNOWN_MEMBER_ID);
    let position = CommitPosition::new(batch.assigned.clone(), batch.next_offset);
    consumer.handle().commit(vec![position]).await.unwrap_err();
    sleep(SECOND).await;
    assert_eq!(script.generation.load(Ordering::SeqCst), 2, "it has joined anew");
    assert_eq!(consumer.handle().group_metadata(), None);
    assert!(matches!(next(&mut consumer).await, ConsumerEvent::Lost(_)));
    assert_ne!(consumer.handle().group_metadata(), Some(before));
    assert!(consumer.handle().group_metadata().is_some());
}

/// Fetching waited for a commit that a rebalance had failed (librdkafka#2933).
#[tokio::test(start_paused = true)]
async fn a_commit_that_finds_no_answer_neither_stops_fetching_nor_waits_for_ever() {
    let script = Script::new(1);
    let (client, _brokers) = script.client(|options| options.request_timeout(5 * SECOND));
    let builder = client.consumer("g").topic("t", OffsetReset::Earliest).commit_timeout(12 * SECOND);
    let mut consumer = builder.build().unwrap();
    let batch = next_batch(&mut consumer).await;
    script.silence(&["OffsetCommit"]);
    let handle = consumer.handle().clone();
    let position = CommitPosition::new(batch.assigned, batch.next_offset);
    let begun = Instant::now();
    let commit = tokio::spawn(async move { handle.commit(vec![position]).await });
    script.end.store(2, Ordering::SeqCst);
    assert_eq!(next_batch(&mut consumer).await.next_offset, Offset(2));
    let error = commit.await.unwrap().unwrap_err();
    assert!(!error.failures[0].is_lost() && begun.elapsed() < 30 * SECOND, "{error} after {:?}", begun.elapsed());
}

/// As above, where the coordinator answers that the group is rebalancing (librdkafka#1605, #1142).
#[tokio::test(start_paused = true)]
async fn a_commit_that_a_rebalance_refuses_is_made_after_it_and_fetching_goes_on() {
    let script = Script::new(1);
    let (client, _brokers) = script.client(|options| options);
    let mut consumer = consumer(&client);
    let batch = next_batch(&mut consumer).await;
    script.rebalancing.store(true, Ordering::SeqCst);
    let handle = consumer.handle().clone();
    let position = CommitPosition::new(batch.assigned, batch.next_offset);
    let commit = tokio::spawn(async move { handle.commit(vec![position]).await });
    sleep(SECOND).await;
    script.end.store(2, Ordering::SeqCst);
    assert_eq!(next_batch(&mut consumer).await.next_offset, Offset(2));
    assert!(!commit.is_finished());
    script.rebalancing.store(false, Ordering::SeqCst);
    commit.await.unwrap().unwrap();
    assert_eq!(*script.committed.lock().unwrap(), [(1, 5)]);
}

/// A fetch loop that waited for a wake-up that was lost waited for ever (platformatic#251).
#[tokio::test(start_paused = true)]
async fn a_wake_up_that_is_lost_costs_seconds_and_no_more() {
    let script = Script::new(1);
    let (client, _brokers) = script.client(|options| options);
    let mut consumer = consumer(&client);
    let assigned = next_batch(&mut consumer).await.assigned;
    consumer.handle().pause(&assigned);
    sleep(SECOND).await;
    script.end.store(2, Ordering::SeqCst);
    // Who wakes the loop wakes one of these instead.
    let (changed, _) = consumer.handle().shared.wakes().of(NodeId(1));
    let thieves: Vec<_> = (0..1_000).map(|_| tokio::spawn(changed.clone().notified_owned())).collect();
    sleep(11 * SECOND).await;
    let begun = Instant::now();
    consumer.handle().resume(&assigned);
    assert_eq!(next_batch(&mut consumer).await.next_offset, Offset(2));
    assert!(!begun.elapsed().is_zero(), "the wake-up was not lost");
    assert!(begun.elapsed() < 11 * SECOND, "{:?}", begun.elapsed());
    assert!(thieves.iter().any(|thief| !thief.is_finished()));
}

#[tokio::test(start_paused = true)]
async fn closing_tells_the_coordinator_and_ends_the_events() {
    let script = Script::new(1);
    let (client, _brokers) = script.client(|options| options);
    let mut consumer = consumer(&client);
    next_batch(&mut consumer).await;
    let handle = consumer.handle().clone();
    handle.leave(5 * SECOND).await.unwrap();
    assert!(script.left.load(Ordering::SeqCst));
    assert!(consumer.next().await.is_none());
    handle.leave(SECOND).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_subscribed_to_is_never_forgotten_however_quiet_it_is() {
    let script = Script::new(1);
    let (client, _brokers) =
        script.client(|options| options.metadata_max_idle(60 * SECOND).metadata_max_age(30 * SECOND));
    let mut consumer = consumer(&client);
    next_batch(&mut consumer).await;
    for _ in 0..10 {
        sleep(60 * SECOND).await;
        assert!(client.cluster().view().topic("t").is_some());
    }
    drop(consumer);
    sleep(200 * SECOND).await;
    assert!(client.cluster().view().topic("t").is_none(), "nobody uses it any more");
}

/// Closing took the whole session timeout when the broker was gone (rust-rdkafka#611).
#[tokio::test(start_paused = true)]
async fn leaving_a_silent_coordinator_ends_at_its_deadline() {
    let script = Script::new(1);
    let (client, _brokers) = script.client(|options| options);
    let mut consumer = consumer(&client);
    next_batch(&mut consumer).await;
    script.silence(&["LeaveGroup", "Heartbeat", "FindCoordinator"]);
    let begun = Instant::now();
    let error = consumer.close(3 * SECOND).await.unwrap_err();
    assert!(matches!(error, ConsumerError::NotInTime { .. }), "{error}");
    assert!(begun.elapsed() <= 3 * SECOND + SECOND / 10);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_consumer_leaves_in_the_background() {
    let script = Script::new(1);
    let (client, _brokers) = script.client(|options| options);
    let mut consumer = consumer(&client);
    next_batch(&mut consumer).await;
    drop(consumer);
    sleep(SECOND).await;
    assert!(script.left.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn a_member_that_cannot_join_says_so_and_goes_on_trying() {
    let script = Script::new(1);
    script.silence(&["FindCoordinator"]);
    let (client, _brokers) = script.client(|options| options.request_timeout(2 * SECOND));
    let mut consumer = consumer(&client);
    assert!(matches!(consumer.joined(SECOND).await, Err(ConsumerError::NotInTime { .. })));
    assert!(matches!(next(&mut consumer).await, ConsumerEvent::Fault(ConsumerError::Unreachable { .. })));
    script.silence(&[]);
    consumer.joined(60 * SECOND).await.unwrap();
}

/// What a leader could not ask for at all, as its client was closed meanwhile, it asked for in a loop: with a core, and a fault a round.
#[tokio::test(start_paused = true)]
async fn a_leader_whose_question_for_partitions_fails_at_once_asks_again_after_a_while() {
    let script = Script::new(1);
    script.blinds_leaders.store(true, Ordering::SeqCst);
    let (client, brokers) = script.client(|options| options);
    let mut consumer = consumer(&client);
    while brokers.count("a:1 JoinGroup") == 0 {
        sleep(SECOND / 10).await;
    }
    sleep(SECOND).await;
    let _ = client.close(Duration::ZERO).await;
    let (begun, mut faults) = (Instant::now(), 0);
    while begun.elapsed() < SECOND && faults < 100 {
        match timeout(SECOND, consumer.next()).await {
            Ok(Some(ConsumerEvent::Fault(ConsumerError::Unreachable { .. }))) => faults += 1,
            Ok(Some(_)) | Err(_) => {}
            Ok(None) => break,
        }
    }
    assert!((2..=12).contains(&faults), "{faults} questions in {:?}", begun.elapsed());
}

/// Withdrawn credentials ended a membership for good, in a process that might have run for weeks, however soon they were good
/// again.
#[cfg(feature = "sasl")]
#[tokio::test(start_paused = true)]
async fn a_member_that_is_locked_out_says_so_at_once_and_goes_on_when_it_is_let_in_again() {
    struct Refusals(AtomicU32);
    impl crate::observe::Observer for Refusals {
        fn error(&self, event: &crate::observe::ErrorReported<'_>) {
            if event.error.code == "LOCKED_OUT" {
                assert!(event.error.text.contains("SASL_AUTHENTICATION_FAILED"), "{}", event.error.text);
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
    let (script, refusals) = (Script::new(1), Arc::new(Refusals(AtomicU32::new(0))));
    let login = crate::client::Login::plain("alice", "secret");
    let (client, _brokers) = script.client(|options| options.login(login).observer(refusals.clone()));
    let mut consumer = consumer(&client);
    let batch = next_batch(&mut consumer).await;
    script.keeps_out.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    let told = next(&mut consumer).await;
    assert!(begun.elapsed() < 10 * SECOND, "within a session, not after {:?}", begun.elapsed());
    let ConsumerEvent::Fault(error @ ConsumerError::LockedOut { .. }) = told else { panic!("{told:?}") };
    assert!(!error.is_fatal() && error.to_string().contains("SASL_AUTHENTICATION_FAILED"), "{error}");
    // Commits have a connection, and a session, of their own.
    let position = CommitPosition::new(batch.assigned.clone(), batch.next_offset);
    let begun = Instant::now();
    let error = loop {
        match consumer.handle().commit(vec![position.clone()]).await {
            Ok(()) => sleep(SECOND / 10).await,
            Err(error) => break error.to_string(),
        }
    };
    assert!(begun.elapsed() < 10 * SECOND && error.contains("SASL_AUTHENTICATION_FAILED"), "{error}");
    let (mut again, mut others) = (0, Vec::new());
    loop {
        match next(&mut consumer).await {
            ConsumerEvent::Fault(ConsumerError::LockedOut { .. }) => again += 1,
            ConsumerEvent::Lost(_) => break,
            other => others.push(other),
        }
    }
    assert!((2..=5).contains(&again) && others.is_empty(), "while the session of 45 s runs out: {again}, {others:?}");
    assert!((3..=12).contains(&refusals.0.load(Ordering::SeqCst)), "{:?}", refusals.0);
    script.keeps_out.store(false, Ordering::SeqCst);
    script.end.store(2, Ordering::SeqCst);
    let begun = Instant::now();
    while next_batch(&mut consumer).await.next_offset < Offset(2) {}
    assert!(begun.elapsed() < 10 * SECOND, "{:?}", begun.elapsed());
}
