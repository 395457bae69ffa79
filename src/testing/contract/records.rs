//! Checks of brokers that keep the state of each record.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::adapter::{
    Adapter, AdapterErrorKind, Event, JoinOptions, Membership, RecordSettlement, Start, TopicSubscription,
};
use crate::testing::contract::Fixture;
use crate::testing::contract::fixture::{connected, new_topic, skip, unique, within};
use crate::testing::contract::publishing::{counted, publish};

/// Each record is accepted, released, rejected or renewed by its receipt; what is released comes again with its count, and nothing
/// else does. Skipped unless the adapter declares [`Capabilities::settle_by_record`](crate::adapter::Capabilities).
///
/// # Panics
/// When the adapter does otherwise.
///
/// # Cancel safety
/// Dropping the future leaves the check's topic and group behind.
pub async fn records_are_settled_one_by_one(fixture: &dyn Fixture) {
    let adapter = connected(fixture).await;
    if !adapter.capabilities().settle_by_record {
        return skip("records_are_settled_one_by_one", "the adapter keeps positions, not records");
    }
    let topic = new_topic(fixture, &adapter, 1).await;
    let mut member = Member::join(fixture, &adapter, &topic).await;
    member.warm_up(&adapter, &topic).await;
    publish(fixture, &adapter, counted(&topic, 0, 0..4)).await;
    let first = member.until(&["0", "1", "2", "3"]).await;
    assert!(first.values().all(|(count, _)| *count == member.first_count), "{first:?}");

    let settle = |value: &str, settlement| (first[value].1.clone(), settlement);
    let settlements = vec![
        settle("0", RecordSettlement::Accept),
        settle("1", RecordSettlement::Release(None)),
        settle("2", RecordSettlement::Reject),
    ];
    member.settle(settlements).await.expect("each is settled");
    let again = member.until(&["1"]).await;
    assert_eq!(again.len(), 1, "what was not released comes again: {again:?}");
    if member.first_count > 0 {
        assert_eq!(again["1"].0, 2);
    }
    match member.settle(vec![settle("3", RecordSettlement::Renew)]).await {
        Ok(()) => {}
        Err(kind) => assert_eq!(kind, (AdapterErrorKind::Unsupported, false), "a record that is held can be renewed"),
    }
    let later = RecordSettlement::Release(Some(Duration::from_millis(1)));
    let released = member.settle(vec![settle("3", later)]).await;
    let third = match released {
        Ok(()) => member.until(&["3"]).await.remove("3").expect("it came").1,
        Err(kind) => {
            assert_eq!(kind, (AdapterErrorKind::Unsupported, false), "who cannot wait says so");
            first["3"].1.clone()
        }
    };
    let rest = vec![(third, RecordSettlement::Accept), (again["1"].1.clone(), RecordSettlement::Accept)];
    member.settle(rest).await.expect("both are settled");
    let twice = member.settle(vec![settle("0", RecordSettlement::Accept)]).await;
    assert!(matches!(twice, Err((_, true))), "a receipt is used once: {twice:?}");
    assert_eq!(member.during_quiet().await, BTreeMap::new());
    within(fixture, "leaving", member.membership.handle.leave(fixture.patience())).await.expect("left");
}

/// Delivery count and receipt of each value.
type Delivered = BTreeMap<String, (u32, Bytes)>;

struct Member<'a> {
    fixture: &'a dyn Fixture,
    membership: Membership,
    /// What a first delivery counts as: 1, or 0 where nothing is counted.
    first_count: u32,
}

impl<'a> Member<'a> {
    async fn join(fixture: &'a dyn Fixture, adapter: &Arc<dyn Adapter>, topic: &str) -> Self {
        let topics = vec![TopicSubscription { topic: topic.into(), start: Start::Earliest }];
        let joining = adapter.join(JoinOptions::new(unique("group"), topics));
        let membership = within(fixture, "joining", joining).await.expect("the group can be joined");
        let first_count = u32::from(adapter.capabilities().delivery_count);
        Self { fixture, membership, first_count }
    }

    /// Publishes until something comes: a group may begin at the end, whatever was asked for.
    async fn warm_up(&mut self, adapter: &Arc<dyn Adapter>, topic: &str) {
        let deadline = tokio::time::Instant::now() + self.fixture.patience();
        let mut got = Delivered::new();
        for n in 1_000.. {
            if !got.is_empty() {
                break;
            }
            assert!(tokio::time::Instant::now() < deadline, "nothing comes");
            publish(self.fixture, adapter, counted(topic, 0, n..n + 1)).await;
            let _ = tokio::time::timeout(Duration::from_secs(1), self.take(&mut got)).await;
        }
        self.accept(got).await;
        let rest = self.during_quiet().await;
        self.accept(rest).await;
    }

    async fn accept(&mut self, got: Delivered) {
        let all = got.into_values().map(|(_, receipt)| (receipt, RecordSettlement::Accept));
        self.settle(all.collect()).await.expect("accepted");
    }

    /// What comes until these values have.
    async fn until(&mut self, values: &[&str]) -> Delivered {
        let mut got = Delivered::new();
        while !values.iter().all(|value| got.contains_key(*value)) {
            let what = format!("{values:?} ({got:?} so far)");
            within(self.fixture, &what, self.take(&mut got)).await;
        }
        got
    }

    async fn during_quiet(&mut self) -> Delivered {
        let mut got = Delivered::new();
        let until = tokio::time::Instant::now() + self.fixture.quiet();
        while tokio::time::timeout_at(until, self.take(&mut got)).await.is_ok() {}
        got
    }

    async fn take(&mut self, got: &mut Delivered) {
        match self.membership.events.next().await.expect("the membership goes on") {
            Event::Delivered(batch) => {
                for delivered in batch.iter() {
                    let delivered = delivered.expect("a sound record");
                    let value = delivered.record.value.expect("a value").to_vec();
                    let receipt = batch.receipt(delivered.record.offset);
                    let value = String::from_utf8(value).expect("text");
                    got.insert(value, (delivered.delivery_count, receipt));
                }
            }
            Event::Fault(error) => assert!(error.retryable, "{error}"),
            event => panic!("{event:?}"),
        }
    }

    /// Settles; kind and loss of the first that was not.
    async fn settle(&self, records: Vec<(Bytes, RecordSettlement)>) -> Result<(), (AdapterErrorKind, bool)> {
        let settled = within(self.fixture, "settling", self.membership.handle.settle_records(records)).await;
        settled.map_err(|error| (error.failures[0].error.kind.clone(), error.failures[0].lost))
    }
}
