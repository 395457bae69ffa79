//! Checks of how records are handed over.

use crate::adapter::{ResumeFrom, Start};
use crate::record::Offset;
use crate::testing::contract::Fixture;
use crate::testing::contract::fixture::{connected, new_topic, unique};
use crate::testing::contract::publishing::{counted, numbers, publish};
use crate::testing::contract::reader::{Got, Reader, read};

/// Each batch of a partition begins where the one before it ended, whether that was let go or is still held.
///
/// # Panics
/// When the adapter does otherwise.
///
/// # Cancel safety
/// Dropping the future leaves the check's topic and group behind.
pub async fn batches_continue_each_other(fixture: &dyn Fixture) {
    let adapter = connected(fixture).await;
    let topic = new_topic(fixture, &adapter, 1).await;
    let mut reader = Reader::alone(fixture, &adapter, &unique("group"), &topic, 1).await;
    let (mut held, mut read_so_far, mut next) = (None, Vec::new(), Offset(0));
    for publishes in 0..4 {
        publish(fixture, &adapter, counted(&topic, 0, publishes * 10..publishes * 10 + 10)).await;
        while read_so_far.len() < (publishes + 1) * 10 {
            let batch = reader.batch().await;
            let got = read(&batch);
            assert_eq!(batch.assigned, reader.has(0));
            assert_eq!(got[0].offset, next, "no gap and no repetition");
            next = batch.records.next_offset();
            read_so_far.extend(texts(got));
            // Let go of one late: it must not hold up the next.
            held = Some(batch);
        }
    }
    drop(held);
    assert_eq!(read_so_far, numbers(0..40));
}

/// A partition that is held up, with its batch in hand, holds up no other.
///
/// # Panics
/// When the adapter does otherwise.
///
/// # Cancel safety
/// Dropping the future leaves the check's topic and group behind.
pub async fn partitions_come_independently(fixture: &dyn Fixture) {
    let adapter = connected(fixture).await;
    let topic = new_topic(fixture, &adapter, 3).await;
    for partition in 0..3 {
        publish(fixture, &adapter, counted(&topic, partition, 0..5)).await;
    }
    let mut reader = Reader::alone(fixture, &adapter, &unique("group"), &topic, 3).await;
    let held = reader.batch().await;
    reader.handle().pause(&held.assigned);
    let partition = held.assigned.partition.partition;
    // What had been read ahead of the pause may still come.
    let mut others = reader.records_beside(partition, 10).await;
    for free in (0..3).filter(|free| *free != partition) {
        publish(fixture, &adapter, counted(&topic, free, 5..10)).await;
    }
    others.extend(reader.records_beside(partition, 10).await);
    drop(held);
    for free in (0..3).filter(|free| *free != partition) {
        let all = others.iter().filter(|got| got.partition == free);
        assert_eq!(all.map(|got| got.text().to_owned()).collect::<Vec<_>>(), numbers(0..10));
    }
}

/// A paused partition hands over nothing that is published meanwhile; resumed, it goes on where it stood.
///
/// # Panics
/// When the adapter does otherwise.
///
/// # Cancel safety
/// Dropping the future leaves the check's topic and group behind.
pub async fn paused_partition_is_silent(fixture: &dyn Fixture) {
    let adapter = connected(fixture).await;
    let topic = new_topic(fixture, &adapter, 1).await;
    publish(fixture, &adapter, counted(&topic, 0, 0..5)).await;
    let mut reader = Reader::alone(fixture, &adapter, &unique("group"), &topic, 1).await;
    let mut got = reader.records(5).await;

    reader.handle().pause(&reader.has(0));
    // A batch under way may still come; after that, nothing does.
    got.extend(reader.during_quiet().await);
    for round in 1..3 {
        publish(fixture, &adapter, counted(&topic, 0, round * 5..round * 5 + 5)).await;
        assert_eq!(reader.during_quiet().await, []);
    }
    reader.handle().resume(&reader.has(0), ResumeFrom::Here);
    got.extend(reader.records(10).await);
    assert_eq!(texts(got), numbers(0..15));
    assert_eq!(reader.during_quiet().await, []);
}

/// A pause ends with its membership: the next one of the group is not paused.
///
/// # Panics
/// When the adapter does otherwise.
///
/// # Cancel safety
/// Dropping the future leaves the check's topic and group behind.
pub async fn pause_ends_with_the_membership(fixture: &dyn Fixture) {
    let adapter = connected(fixture).await;
    let topic = new_topic(fixture, &adapter, 1).await;
    let group = unique("group");
    let reader = Reader::alone(fixture, &adapter, &group, &topic, 1).await;
    reader.handle().pause(&reader.has(0));
    reader.leave().await;
    publish(fixture, &adapter, counted(&topic, 0, 0..3)).await;
    let mut next = Reader::alone(fixture, &adapter, &group, &topic, 1).await;
    assert_eq!(texts(next.records(3).await), numbers(0..3));
}

/// Resumed at an offset, a partition goes on there, back or forth; what was read ahead is dropped.
///
/// # Panics
/// When the adapter does otherwise.
///
/// # Cancel safety
/// Dropping the future leaves the check's topic and group behind.
pub async fn resume_at_an_offset_goes_there(fixture: &dyn Fixture) {
    let adapter = connected(fixture).await;
    let topic = new_topic(fixture, &adapter, 1).await;
    // Two publishes, so that one offset lies within a batch.
    publish(fixture, &adapter, counted(&topic, 0, 0..10)).await;
    publish(fixture, &adapter, counted(&topic, 0, 10..20)).await;
    let mut reader = Reader::alone(fixture, &adapter, &unique("group"), &topic, 1).await;
    assert_eq!(texts(reader.records(20).await), numbers(0..20));

    let assigned = reader.has(0);
    reader.handle().pause(&assigned);
    reader.handle().resume(&assigned, ResumeFrom::Offset(Offset(4)));
    assert_eq!(texts(reader.records(16).await), numbers(4..20));
    publish(fixture, &adapter, counted(&topic, 0, 20..30)).await;
    reader.handle().pause(&assigned);
    reader.during_quiet().await;
    reader.handle().resume(&assigned, ResumeFrom::Offset(Offset(28)));
    assert_eq!(texts(reader.records(2).await), numbers(28..30));
    assert_eq!(reader.during_quiet().await, []);
}

/// Without a settled position, the subscription's start decides; the assignment tells where that is.
///
/// # Panics
/// When the adapter does otherwise.
///
/// # Cancel safety
/// Dropping the future leaves the check's topic and group behind.
pub async fn start_decides_without_a_position(fixture: &dyn Fixture) {
    let adapter = connected(fixture).await;
    let topic = new_topic(fixture, &adapter, 1).await;
    publish(fixture, &adapter, counted(&topic, 0, 0..3)).await;
    let mut latest = Reader::join(fixture, &adapter, &unique("group"), &topic, Start::Latest).await;
    latest.until_assigned(1).await;
    let mut earliest = Reader::join(fixture, &adapter, &unique("group"), &topic, Start::Earliest).await;
    earliest.until_assigned(1).await;
    let told = |reader: &Reader<'_>| {
        reader.assigned.values().map(|assignment| (assignment.committed, assignment.position)).collect::<Vec<_>>()
    };
    assert_eq!(told(&latest), [(None, Offset(3))]);
    assert_eq!(told(&earliest), [(None, Offset(0))]);

    publish(fixture, &adapter, counted(&topic, 0, 3..5)).await;
    assert_eq!(texts(latest.records(2).await), numbers(3..5));
    assert_eq!(texts(earliest.records(5).await), numbers(0..5));
}

fn texts(got: Vec<Got>) -> Vec<String> {
    got.iter().map(|got| got.text().to_owned()).collect()
}
