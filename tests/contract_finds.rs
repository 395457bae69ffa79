//! The contract finds what is wrong with an adapter: each flaw here is one that a check must fail on.

#![cfg(feature = "testing")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use kafka_harbor::adapter::memory::{MemoryAdapter, MemoryBroker};
use kafka_harbor::adapter::{
    Acknowledged, Adapter, AdapterError, Assigned, BoxFuture, CommittedOffset, Event, EventSource, JoinOptions,
    Membership, MembershipHandle, Position, PublishError, Publisher, PublisherOptions, RecordSet, Release, ResumeFrom,
    SettleError, Start, TopicDescription,
};
use kafka_harbor::record::{Header, NewTopic, Offset, Record, Timestamp, Topic};
use kafka_harbor::retry::RetryPolicy;
use kafka_harbor::testing::contract::{self, Fixture};
use support::pass_on::pass_on;

/// How the adapter under test is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    NullKeysBecomeEmpty,
    TombstonesBecomeEmpty,
    TimesAreThrownAway,
    HeadersAreAMap,
    NullHeadersBecomeEmpty,
    PublishesInReverse,
    DelaysEveryOtherCall,
    PublishesAgainAfterALostAnswer,
    CallsEveryFailureTransient,
    HidesThatARecordIsTooLarge,
    LosesLargeRecords,
    SettlesByItself,
    SettlesOneTooFar,
    ForgetsNotes,
    DropsEveryOtherBatch,
    IgnoresPause,
    PausesAll,
    ForgetsWhatCameDuringAPause,
    ResumesWhereItStood,
    ReadsTooFarBack,
    AlwaysStartsAtTheEnd,
    ReleasesAtOnce,
    IgnoresEpochs,
    StaysWhenDropped,
    RefusesTopicsThatExist,
    InventsTopics,
    InventsCommittedOffsets,
    FlushesAtOnce,
    FlushesAfterItsEnd,
    StaysOpen,
}

#[derive(Debug, Clone)]
struct Broken {
    broker: MemoryBroker,
    flaw: Flaw,
}

impl Fixture for Broken {
    fn adapter(&self) -> Arc<dyn Adapter> {
        Arc::new(BrokenAdapter { inner: MemoryAdapter::new(&self.broker), flaw: self.flaw })
    }

    fn lose_next_answer(&self, topic: &str) -> bool {
        self.broker.lose_next_acknowledgement(topic);
        true
    }
}

/// Runs each check on an adapter with its flaw, and tells which of them passed all the same.
macro_rules! missed {
    ($($flaw:ident by $check:ident;)+) => {{
        let mut missed = Vec::new();
        $(
            let broken = Broken { broker: MemoryBroker::new(), flaw: Flaw::$flaw };
            // A task of its own, so that a check that fails ends there.
            let check = tokio::task::spawn_local(async move { contract::$check(&broken).await });
            if check.await.is_ok() {
                missed.push((stringify!($flaw), stringify!($check)));
            }
        )+
        missed
    }};
}

#[tokio::test(start_paused = true)]
async fn every_flaw_is_found() {
    let flaws = tokio::task::LocalSet::new();
    let missed = flaws.run_until(async {
        missed! {
            NullKeysBecomeEmpty by bytes_are_faithful;
            TimesAreThrownAway by bytes_are_faithful;
            TombstonesBecomeEmpty by tombstone_is_not_empty;
            HeadersAreAMap by headers_are_bytes_repeat_and_may_be_null;
            NullHeadersBecomeEmpty by headers_are_bytes_repeat_and_may_be_null;
            PublishesInReverse by order_holds_within_a_partition;
            DelaysEveryOtherCall by calls_keep_their_order;
            PublishesAgainAfterALostAnswer by lost_answer_makes_no_duplicate;
            CallsEveryFailureTransient by one_refused_record_is_told_from_the_others;
            HidesThatARecordIsTooLarge by one_refused_record_is_told_from_the_others;
            LosesLargeRecords by large_records_pass;
            SettlesByItself by unsettled_records_come_again;
            SettlesOneTooFar by settled_position_is_found_again;
            SettlesOneTooFar by offsets_are_read_back;
            ForgetsNotes by settled_position_is_found_again;
            DropsEveryOtherBatch by batches_continue_each_other;
            IgnoresPause by paused_partition_is_silent;
            ForgetsWhatCameDuringAPause by paused_partition_is_silent;
            PausesAll by partitions_come_independently;
            PausesAll by stale_epoch_is_refused;
            ResumesWhereItStood by resume_at_an_offset_goes_there;
            ReadsTooFarBack by resume_at_an_offset_goes_there;
            AlwaysStartsAtTheEnd by start_decides_without_a_position;
            ReleasesAtOnce by revocation_is_awaited;
            IgnoresEpochs by stale_epoch_is_refused;
            StaysWhenDropped by dropped_membership_leaves;
            RefusesTopicsThatExist by topics_are_created_once;
            InventsTopics by topics_are_created_once;
            InventsCommittedOffsets by offsets_are_read_back;
            FlushesAtOnce by flush_waits_and_fails_once_closed;
            FlushesAfterItsEnd by flush_waits_and_fails_once_closed;
            StaysOpen by closed_adapter_refuses;
        }
    });
    assert_eq!(missed.await, []);
}

#[derive(Debug)]
struct BrokenAdapter {
    inner: MemoryAdapter,
    flaw: Flaw,
}

impl Adapter for BrokenAdapter {
    pass_on!(inner: capabilities connect watermarks);

    fn name(&self) -> &'static str {
        "broken"
    }

    fn close(&self, timeout: Duration) -> BoxFuture<'_, Result<(), AdapterError>> {
        match self.flaw {
            Flaw::StaysOpen => Box::pin(async { Ok(()) }),
            _ => self.inner.close(timeout),
        }
    }

    fn publisher(&self, options: PublisherOptions) -> Result<Arc<dyn Publisher>, AdapterError> {
        let once = RetryPolicy { attempts: 1, ..RetryPolicy::default() };
        let options = match self.flaw {
            Flaw::PublishesAgainAfterALostAnswer => PublisherOptions::with_retry(once),
            _ => options,
        };
        Ok(Arc::new(BrokenPublisher {
            inner: self.inner.publisher(options)?,
            flaw: self.flaw,
            calls: AtomicUsize::new(0),
        }))
    }

    fn join(&self, mut options: JoinOptions) -> BoxFuture<'_, Result<Membership, AdapterError>> {
        Box::pin(async move {
            if self.flaw == Flaw::AlwaysStartsAtTheEnd {
                options.topics.iter_mut().for_each(|topic| topic.start = Start::Latest);
            }
            let membership = self.inner.join(options).await?;
            let handle: Arc<dyn MembershipHandle> =
                Arc::new(BrokenHandle { inner: membership.handle, flaw: self.flaw, paused: AtomicBool::new(false) });
            let events =
                BrokenEvents { inner: Some(membership.events), handle: handle.clone(), flaw: self.flaw, batches: 0 };
            Ok(Membership { events: Box::new(events), handle })
        })
    }

    fn create_topics<'a>(&'a self, topics: &'a [NewTopic]) -> BoxFuture<'a, Result<(), AdapterError>> {
        Box::pin(async move {
            if self.flaw == Flaw::RefusesTopicsThatExist {
                let names: Vec<Topic> = topics.iter().map(|topic| topic.topic.clone()).collect();
                if self.inner.describe_topics(&names).await?.iter().any(Option::is_some) {
                    let kind = kafka_harbor::adapter::AdapterErrorKind::Refused;
                    return Err(AdapterError::new("broken", kind, "exists"));
                }
            }
            self.inner.create_topics(topics).await
        })
    }

    fn describe_topics<'a>(
        &'a self,
        topics: &'a [Topic],
    ) -> BoxFuture<'a, Result<Vec<Option<TopicDescription>>, AdapterError>> {
        Box::pin(async move {
            let mut told = self.inner.describe_topics(topics).await?;
            if self.flaw == Flaw::InventsTopics {
                let any = told.iter().flatten().next().cloned();
                told.iter_mut().for_each(|topic| *topic = topic.take().or_else(|| any.clone()));
            }
            Ok(told)
        })
    }

    fn committed<'a>(
        &'a self,
        group: &'a str,
        topics: &'a [Topic],
    ) -> BoxFuture<'a, Result<Vec<CommittedOffset>, AdapterError>> {
        Box::pin(async move {
            let mut told = self.inner.committed(group, topics).await?;
            if self.flaw == Flaw::InventsCommittedOffsets {
                for mark in self.inner.watermarks(topics).await? {
                    if told.iter().all(|committed| committed.partition != mark.partition) {
                        told.push(CommittedOffset { partition: mark.partition, offset: Offset(0), note: None });
                    }
                }
            }
            Ok(told)
        })
    }
}

#[derive(Debug)]
struct BrokenPublisher {
    inner: Arc<dyn Publisher>,
    flaw: Flaw,
    calls: AtomicUsize,
}

impl Publisher for BrokenPublisher {
    fn publish(&self, mut records: Vec<Record>) -> BoxFuture<'_, Result<Vec<Acknowledged>, PublishError>> {
        for record in &mut records {
            spoil(record, self.flaw);
        }
        if self.flaw == Flaw::PublishesInReverse {
            records.reverse();
        }
        Box::pin(async move {
            if self.flaw == Flaw::DelaysEveryOtherCall && self.calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            if self.flaw == Flaw::FlushesAtOnce {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
            let published = self.inner.publish(records.clone()).await;
            match (published, self.flaw) {
                (Err(_), Flaw::PublishesAgainAfterALostAnswer) => self.inner.publish(records).await,
                (Err(error), Flaw::CallsEveryFailureTransient) => Err(retold(error, true)),
                (Err(error), Flaw::HidesThatARecordIsTooLarge) => Err(retold(error, false)),
                (published, _) => published,
            }
        })
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), AdapterError>> {
        match self.flaw {
            Flaw::FlushesAtOnce => Box::pin(async { Ok(()) }),
            Flaw::FlushesAfterItsEnd => Box::pin(async { self.inner.flush().await.or(Ok(())) }),
            _ => self.inner.flush(),
        }
    }
}

fn spoil(record: &mut Record, flaw: Flaw) {
    match flaw {
        Flaw::NullKeysBecomeEmpty => record.key = Some(record.key.take().unwrap_or_default()),
        Flaw::TombstonesBecomeEmpty => record.value = Some(record.value.take().unwrap_or_default()),
        Flaw::TimesAreThrownAway => record.timestamp = Some(Timestamp(0)),
        Flaw::HeadersAreAMap => {
            let mut names = std::collections::HashSet::new();
            record.headers.retain(|header| names.insert(header.name.clone()));
        }
        Flaw::NullHeadersBecomeEmpty => {
            for Header { value, .. } in &mut record.headers {
                *value = Some(value.take().unwrap_or_default());
            }
        }
        Flaw::LosesLargeRecords if record.value.as_ref().is_some_and(|value| value.len() > 500_000) => {
            record.value = record.value.take().map(|value| value.slice(..500_000));
        }
        _ => {}
    }
}

fn retold(error: PublishError, retryable: bool) -> PublishError {
    let outcomes = error.outcomes.into_iter().map(|outcome| {
        outcome.map_err(|failure| {
            Arc::new(kafka_harbor::adapter::RecordFailure::new(failure.outcome, retryable, failure.to_string()))
        })
    });
    PublishError::new(outcomes.collect(), error.attempts)
}

struct BrokenEvents {
    inner: Option<Box<dyn EventSource>>,
    handle: Arc<dyn MembershipHandle>,
    flaw: Flaw,
    batches: usize,
}

impl EventSource for BrokenEvents {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        loop {
            let Some(inner) = self.inner.as_mut() else { return Poll::Ready(None) };
            let Poll::Ready(event) = inner.poll_next(cx) else { return Poll::Pending };
            match (event, self.flaw) {
                (Some(Event::Batch(batch)), Flaw::SettlesByItself) => {
                    let offset = batch.records.next_offset();
                    let position = Position { assigned: batch.assigned.clone(), offset, note: None };
                    let handle = self.handle.clone();
                    tokio::task::spawn_local(async move { handle.settle(vec![position]).await });
                    return Poll::Ready(Some(Event::Batch(batch)));
                }
                (Some(Event::Batch(_)), Flaw::DropsEveryOtherBatch) if self.batches % 2 == 1 => self.batches += 1,
                (Some(Event::Batch(mut batch)), flaw) => {
                    self.batches += 1;
                    if flaw == Flaw::ReadsTooFarBack {
                        batch.records = RecordSet::new(batch.records.batches().to_vec(), Offset(0));
                    }
                    return Poll::Ready(Some(Event::Batch(batch)));
                }
                (Some(Event::Revoked(going, release)), Flaw::ReleasesAtOnce) => {
                    release.send();
                    return Poll::Ready(Some(Event::Revoked(going, Release::new().0)));
                }
                (event, _) => return Poll::Ready(event),
            }
        }
    }
}

impl Drop for BrokenEvents {
    fn drop(&mut self) {
        if self.flaw == Flaw::StaysWhenDropped {
            std::mem::forget(self.inner.take());
        }
    }
}

#[derive(Debug)]
struct BrokenHandle {
    inner: Arc<dyn MembershipHandle>,
    flaw: Flaw,
    paused: AtomicBool,
}

impl MembershipHandle for BrokenHandle {
    fn settle(&self, mut positions: Vec<Position>) -> BoxFuture<'_, Result<(), SettleError>> {
        for position in &mut positions {
            match self.flaw {
                Flaw::SettlesOneTooFar => position.offset = position.offset.next(),
                Flaw::ForgetsNotes => position.note = None,
                _ => {}
            }
        }
        Box::pin(async move {
            match self.inner.settle(positions).await {
                Err(_) if self.flaw == Flaw::IgnoresEpochs => Ok(()),
                settled => settled,
            }
        })
    }

    fn pause(&self, assigned: &Assigned) {
        match self.flaw {
            Flaw::IgnoresPause => {}
            Flaw::PausesAll => {
                for partition in 0..8 {
                    for epoch in 0..64 {
                        let mut all = assigned.clone();
                        (all.partition.partition, all.epoch.0) = (partition, epoch);
                        self.inner.pause(&all);
                    }
                }
            }
            _ => self.inner.pause(assigned),
        }
        self.paused.store(true, Ordering::Relaxed);
    }

    fn resume(&self, assigned: &Assigned, from: ResumeFrom) {
        let from = match self.flaw {
            Flaw::ResumesWhereItStood => ResumeFrom::Here,
            Flaw::ForgetsWhatCameDuringAPause if self.paused.load(Ordering::Relaxed) => ResumeFrom::Offset(Offset(15)),
            _ => from,
        };
        self.inner.resume(assigned, from);
    }

    fn leave(&self, timeout: Duration) -> BoxFuture<'_, Result<(), AdapterError>> {
        self.inner.leave(timeout)
    }
}
