//! Checks of what is written, and of what is known of it.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::adapter::{Acknowledged, Adapter, AdapterErrorKind, Publisher, PublisherOptions};
use crate::error::WriteOutcome;
use crate::record::{Header, Offset, Record, Timestamp};
use crate::testing::contract::Fixture;
use crate::testing::contract::fixture::{connected, new_topic, skip, unique, within};
use crate::testing::contract::reader::Reader;

/// Key, value, headers and time come back byte for byte, null and empty told apart; offsets count from 0.
///
/// # Panics
/// When the adapter does otherwise.
///
/// # Cancel safety
/// Dropping the future leaves the check's topic and group behind.
pub async fn bytes_are_faithful(fixture: &dyn Fixture) {
    let adapter = connected(fixture).await;
    let topic = new_topic(fixture, &adapter, 1).await;
    let to = topic.as_str();
    let records = vec![
        Record::new(to, "value")
            .with_key("key")
            .with_header("trace", "7f")
            .with_timestamp(Timestamp(1_700_000_000_123)),
        Record::new(to, ""),
        Record::new(to, "no key, and text: ol\u{e1} \u{1f980}"),
        Record::new(to, &b"\x00\xff\xfe"[..]).with_key(""),
    ];
    let acknowledged = publish(fixture, &adapter, records.clone()).await;
    let offsets: Vec<_> = acknowledged.iter().map(|a| (a.partition.partition, a.offset)).collect();
    assert_eq!(offsets, (0..4).map(|offset| (0, Some(Offset(offset)))).collect::<Vec<_>>());

    let mut reader = Reader::alone(fixture, &adapter, &unique("group"), to, 1).await;
    let got = reader.records(4).await;
    for (index, (got, sent)) in got.iter().zip(&records).enumerate() {
        assert_eq!((got.partition, got.offset), (0, Offset(index as i64)));
        assert_eq!((&got.key, &got.value, &got.headers), (&sent.key, &sent.value, &sent.headers));
        assert!(got.timestamp.0 > 0, "a record without a time gets that of its sending");
    }
    assert_eq!(got[0].timestamp, Timestamp(1_700_000_000_123));
}

/// A null value comes back null, an empty one empty.
///
/// # Panics
/// When the adapter does otherwise.
///
/// # Cancel safety
/// Dropping the future leaves the check's topic and group behind.
pub async fn tombstone_is_not_empty(fixture: &dyn Fixture) {
    let adapter = connected(fixture).await;
    let topic = new_topic(fixture, &adapter, 1).await;
    let to = topic.as_str();
    publish(fixture, &adapter, vec![Record::tombstone(to).with_key("k"), Record::new(to, "").with_key("k")]).await;
    let mut reader = Reader::alone(fixture, &adapter, &unique("group"), to, 1).await;
    let values: Vec<_> = reader.records(2).await.into_iter().map(|got| got.value).collect();
    assert_eq!(values, [None, Some("".into())]);
}

/// Header names and values are bytes; names repeat in order; values may be null. Needs
/// [`headers_as_bytes`](crate::adapter::Capabilities::headers_as_bytes).
///
/// # Panics
/// When the adapter does otherwise.
///
/// # Cancel safety
/// Dropping the future leaves the check's topic and group behind.
pub async fn headers_are_bytes_repeat_and_may_be_null(fixture: &dyn Fixture) {
    let adapter = connected(fixture).await;
    if !adapter.capabilities().headers_as_bytes {
        return skip("headers_are_bytes_repeat_and_may_be_null", "the broker's headers are text");
    }
    let topic = new_topic(fixture, &adapter, 1).await;
    let mut record = Record::new(topic.as_str(), "v");
    record.headers = vec![
        Header::new("twice", "first"),
        Header::null("null"),
        Header::new("twice", "second"),
        Header::new("empty", ""),
        Header::new(&b"\xff\xfe"[..], &b"\x00\x80"[..]),
        Header::null("twice"),
        Header::new("", "a name without letters"),
    ];
    publish(fixture, &adapter, vec![record.clone()]).await;
    let mut reader = Reader::alone(fixture, &adapter, &unique("group"), &topic, 1).await;
    assert_eq!(reader.records(1).await[0].headers, record.headers);
}

/// Records of one partition come in the order they were published, over several publishes.
///
/// # Panics
/// When the adapter does otherwise.
///
/// # Cancel safety
/// Dropping the future leaves the check's topic and group behind.
pub async fn order_holds_within_a_partition(fixture: &dyn Fixture) {
    let adapter = connected(fixture).await;
    let topic = new_topic(fixture, &adapter, 3).await;
    let publisher = adapter.publisher(PublisherOptions::default()).expect("a publisher");
    let record = |n: usize| Record::new(topic.as_str(), n.to_string()).with_key("one key, so one partition");
    let publishes = (0..5).map(|batch| publisher.publish((batch * 5..batch * 5 + 5).map(record).collect()));
    for publish in publishes {
        within(fixture, "publishing", publish).await.expect("acknowledged");
    }
    let mut reader = Reader::alone(fixture, &adapter, &unique("group"), &topic, 3).await;
    let got = reader.records(25).await;
    assert!(got.iter().all(|one| one.partition == got[0].partition));
    assert_eq!(got.iter().map(|got| got.text().to_owned()).collect::<Vec<_>>(), numbers(0..25));
}

/// Calls that are under way at once keep the order in which they were first polled, from the first record of a topic on.
///
/// # Panics
/// When the adapter does otherwise.
///
/// # Cancel safety
/// Dropping the future leaves the check's topic and group behind.
pub async fn calls_keep_their_order(fixture: &dyn Fixture) {
    let adapter = connected(fixture).await;
    let topic = new_topic(fixture, &adapter, 1).await;
    let publisher = adapter.publisher(PublisherOptions::default()).expect("a publisher");
    let mut under_way = JoinSet::new();
    for n in 0..50 {
        let (publisher, record) = (publisher.clone(), Record::new(topic.as_str(), n.to_string()));
        let mut call = Box::pin(async move { publisher.publish(vec![record]).await.map(drop) });
        if poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await.is_pending() {
            under_way.spawn(call);
        }
    }
    while let Some(call) = within(fixture, "publishing", under_way.join_next()).await {
        call.expect("a call does not panic").expect("acknowledged");
    }
    let mut reader = Reader::alone(fixture, &adapter, &unique("group"), &topic, 1).await;
    let got = reader.records(50).await;
    assert_eq!(got.iter().map(|got| got.text().to_owned()).collect::<Vec<_>>(), numbers(0..50));
}

/// Records close to the usual limit of 1 MiB pass whole, alone and together.
///
/// # Panics
/// When the adapter does otherwise.
///
/// # Cancel safety
/// Dropping the future leaves the check's topic and group behind.
pub async fn large_records_pass(fixture: &dyn Fixture) {
    let adapter = connected(fixture).await;
    let topic = new_topic(fixture, &adapter, 1).await;
    let large = |byte: u8| Record::new(topic.as_str(), vec![byte; 900 << 10]);
    publish(fixture, &adapter, vec![large(1), Record::new(topic.as_str(), "small"), large(2), large(3)]).await;
    let mut reader = Reader::alone(fixture, &adapter, &unique("group"), &topic, 1).await;
    let got = reader.records(4).await;
    for (got, byte) in [(&got[0], 1), (&got[2], 2), (&got[3], 3)] {
        let value = got.value.as_deref().expect("a value");
        assert!(value.len() == 900 << 10 && value.iter().all(|b| *b == byte), "record {byte} is whole");
    }
    assert_eq!(got[1].text(), "small");
}

/// A record that the broker refuses for good is told from those of other partitions, which are written.
///
/// # Panics
/// When the adapter does otherwise.
///
/// # Cancel safety
/// Dropping the future leaves the check's topic and group behind.
pub async fn one_refused_record_is_told_from_the_others(fixture: &dyn Fixture) {
    let adapter = connected(fixture).await;
    let topic = new_topic(fixture, &adapter, 2).await;
    let to = topic.as_str();
    // Above what brokers take by default, and what clients send.
    let too_large = Record::new(to, vec![0; 3 << 20]).with_partition(0);
    let fine = Record::new(to, "fine").with_partition(1);
    let publisher = adapter.publisher(PublisherOptions::default()).expect("a publisher");
    let published = within(fixture, "publishing", publisher.publish(vec![too_large, fine])).await;
    let error = published.expect_err("three megabytes are too large");
    let refused = error.outcomes[0].as_ref().expect_err("refused");
    assert_eq!((refused.outcome, refused.retryable), (WriteOutcome::NotWritten, false), "{refused}");
    assert!(refused.too_large, "{refused}");
    assert!(!error.is_retryable());
    assert!(error.outcomes[1].is_ok(), "{:?}", error.outcomes[1]);

    let mut reader = Reader::alone(fixture, &adapter, &unique("group"), to, 2).await;
    assert_eq!(reader.records(1).await[0].text(), "fine");
    assert_eq!(reader.during_quiet().await, []);
}

/// A flush ends when what was handed over is settled, and fails once the adapter is closed.
///
/// # Panics
/// When the adapter does otherwise.
///
/// # Cancel safety
/// Dropping the future leaves the check's topic behind.
pub async fn flush_waits_and_fails_once_closed(fixture: &dyn Fixture) {
    let adapter = connected(fixture).await;
    let topic = new_topic(fixture, &adapter, 1).await;
    let publisher = adapter.publisher(PublisherOptions::default()).expect("a publisher");
    let unused = adapter.publisher(PublisherOptions::default()).expect("a publisher");
    within(fixture, "flushing", unused.flush()).await.expect("nothing to wait for");
    let publish = |value: &str| publisher.publish(vec![Record::new(topic.as_str(), value.to_owned())]);
    within(fixture, "publishing", publish("first")).await.expect("acknowledged");

    // The topic is known, so that one poll hands the record over.
    let mut under_way = publish("second");
    let settled = match poll_fn(|cx| Poll::Ready(under_way.as_mut().poll(cx))).await {
        Poll::Ready(settled) => settled,
        Poll::Pending => {
            within(fixture, "flushing", publisher.flush()).await.expect("flushed");
            let settled = tokio::time::timeout(SETTLED, under_way).await;
            settled.expect("what was handed over is settled when a flush has ended")
        }
    };
    settled.expect("acknowledged");

    within(fixture, "closing", adapter.close(fixture.patience())).await.expect("closed");
    for publisher in [&publisher, &unused] {
        let flushed = within(fixture, "flushing", publisher.flush()).await;
        assert_eq!(flushed.expect_err("closed").kind, AdapterErrorKind::Closed);
    }
}

/// A publish whose answer is lost is tried again, and written once. Needs [`Fixture::lose_next_answer`].
///
/// # Panics
/// When the adapter does otherwise.
///
/// # Cancel safety
/// Dropping the future leaves the check's topic and group behind.
pub async fn lost_answer_makes_no_duplicate(fixture: &dyn Fixture) {
    let adapter = connected(fixture).await;
    let topic = new_topic(fixture, &adapter, 1).await;
    let publisher = adapter.publisher(PublisherOptions::default()).expect("a publisher");
    let record = |value: &str| Record::new(topic.as_str(), value.to_owned());
    within(fixture, "publishing", publisher.publish(vec![record("0")])).await.expect("acknowledged");
    if !fixture.lose_next_answer(&topic) {
        return skip("lost_answer_makes_no_duplicate", "lost answers cannot be ordered of this broker");
    }
    within(fixture, "publishing", publisher.publish(vec![record("1"), record("2")])).await.expect("acknowledged");
    within(fixture, "publishing", publisher.publish(vec![record("3")])).await.expect("acknowledged");

    let mut reader = Reader::alone(fixture, &adapter, &unique("group"), &topic, 1).await;
    let got: Vec<_> = reader.records(4).await.into_iter().map(|got| got.text().to_owned()).collect();
    assert_eq!(got, numbers(0..4));
    assert_eq!(reader.during_quiet().await, []);
}

/// Publishes and expects every record to be acknowledged.
pub(super) async fn publish(
    fixture: &dyn Fixture,
    adapter: &Arc<dyn Adapter>,
    records: Vec<Record>,
) -> Vec<Acknowledged> {
    let publisher: Arc<dyn Publisher> = adapter.publisher(PublisherOptions::default()).expect("a publisher");
    within(fixture, "publishing", publisher.publish(records)).await.expect("every record is acknowledged")
}

/// Records of one partition whose values count up.
pub(super) fn counted(topic: &str, partition: i32, range: std::ops::Range<usize>) -> Vec<Record> {
    range.map(|n| Record::new(topic, n.to_string()).with_partition(partition)).collect()
}

/// The values of [`counted`].
pub(super) fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

/// How long a publish that is settled may take to be told so.
const SETTLED: Duration = Duration::from_secs(1);
