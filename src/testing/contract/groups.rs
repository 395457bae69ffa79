//! Checks of groups: positions, members that come and go, assignments that are over.

use std::time::Duration;

use crate::adapter::{Position, Start};
use crate::record::Offset;
use crate::testing::contract::Fixture;
use crate::testing::contract::fixture::{connected, new_topic, unique, within};
use crate::testing::contract::publishing::{counted, numbers, publish};
use crate::testing::contract::reader::Reader;

/// The next membership begins at the settled position, and gets its note back.
///
/// # Panics
/// When the adapter does otherwise.
///
/// # Cancel safety
/// Dropping the future leaves the check's topic and group behind.
pub async fn settled_position_is_found_again(fixture: &dyn Fixture) {
    let adapter = connected(fixture).await;
    let topic = new_topic(fixture, &adapter, 2).await;
    let group = unique("group");
    for partition in 0..2 {
        publish(fixture, &adapter, counted(&topic, partition, 0..5)).await;
    }
    let mut reader = Reader::alone(fixture, &adapter, &group, &topic, 2).await;
    reader.records(10).await;
    reader.settle(0, 2, None).await;
    reader.settle(0, 3, Some("note: ol\u{e1}")).await;
    reader.settle(1, 5, None).await;
    reader.leave().await;

    let mut next = Reader::alone(fixture, &adapter, &group, &topic, 2).await;
    let told: Vec<_> = next.assigned.values().map(|a| (a.committed, a.position, a.note.as_deref())).collect();
    let expected = [(Some(Offset(3)), Offset(3), Some("note: ol\u{e1}")), (Some(Offset(5)), Offset(5), None)];
    assert_eq!(told, expected);
    let got = next.records(2).await;
    assert!(got.iter().all(|got| got.partition == 0));
    assert_eq!(got.iter().map(|got| got.text().to_owned()).collect::<Vec<_>>(), numbers(3..5));
    assert_eq!(next.during_quiet().await, []);
}

/// What was read and not settled comes again to the next membership: the adapter settles nothing by itself.
///
/// # Panics
/// When the adapter does otherwise.
///
/// # Cancel safety
/// Dropping the future leaves the check's topic and group behind.
pub async fn unsettled_records_come_again(fixture: &dyn Fixture) {
    let adapter = connected(fixture).await;
    let topic = new_topic(fixture, &adapter, 1).await;
    let group = unique("group");
    publish(fixture, &adapter, counted(&topic, 0, 0..4)).await;
    let mut reader = Reader::alone(fixture, &adapter, &group, &topic, 1).await;
    let first = reader.records(4).await;
    // Time enough for an adapter that settles on its own.
    assert_eq!(reader.during_quiet().await, []);
    reader.leave().await;
    let mut next = Reader::alone(fixture, &adapter, &group, &topic, 1).await;
    assert_eq!(next.records(4).await, first);
}

/// A second member gets partitions only once the first has answered their revocation; until then the first settles
/// them, and the second goes on there.
///
/// # Panics
/// When the adapter does otherwise.
///
/// # Cancel safety
/// Dropping the future leaves the check's topic and group behind.
pub async fn revocation_is_awaited(fixture: &dyn Fixture) {
    let adapter = connected(fixture).await;
    let topic = new_topic(fixture, &adapter, 4).await;
    let group = unique("group");
    for partition in 0..4 {
        publish(fixture, &adapter, counted(&topic, partition, 0..5)).await;
    }
    let mut first = Reader::alone(fixture, &adapter, &group, &topic, 4).await;
    first.records(20).await;

    let other = connected(fixture).await;
    // Joining may take as long as the revocation it brings about.
    let joining = Reader::join(fixture, &other, &group, &topic, Start::Earliest);
    let watched = async {
        let (going, release) = first.revoked().await;
        for assigned in &going {
            first.settle(assigned.partition.partition, 2, None).await;
        }
        tokio::time::sleep(fixture.quiet()).await;
        let positions =
            going.iter().map(|assigned| Position { assigned: assigned.clone(), offset: Offset(3), note: None });
        let settled = within(fixture, "settling", first.handle().settle(positions.collect())).await;
        settled.expect("until its release the partition can be settled");
        for assigned in &going {
            first.assigned.remove(&assigned.partition);
        }
        release.send();
        going
    };
    let (mut second, going) = tokio::join!(joining, watched);

    // An eager assignor takes all and gives some back: both are polled until all partitions have an owner again.
    let deadline = tokio::time::Instant::now() + fixture.patience();
    let step = Duration::from_millis(50);
    while first.assigned.len() + second.assigned.len() < 4 || second.assigned.is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "not every partition found an owner");
        first.for_a_while(step).await;
        second.for_a_while(step).await;
    }
    for assignment in second.assigned.values() {
        let partition = &assignment.assigned.partition;
        assert!(going.iter().any(|gone| gone.partition == *partition), "{partition} was never revoked");
        assert!(!first.assigned.contains_key(partition), "{partition} has two owners");
        assert_eq!((assignment.committed, assignment.position), (Some(Offset(3)), Offset(3)));
    }
    let expected = second.assigned.len() * 2;
    let got = second.records(expected).await;
    assert!(got.iter().all(|got| got.offset >= Offset(3)));
}

/// What names an assignment that is over is refused, even once the partition is back.
///
/// # Panics
/// When the adapter does otherwise.
///
/// # Cancel safety
/// Dropping the future leaves the check's topic and group behind.
pub async fn stale_epoch_is_refused(fixture: &dyn Fixture) {
    let adapter = connected(fixture).await;
    let topic = new_topic(fixture, &adapter, 1).await;
    let group = unique("group");
    publish(fixture, &adapter, counted(&topic, 0, 0..5)).await;
    let mut reader = Reader::alone(fixture, &adapter, &group, &topic, 1).await;
    reader.records(5).await;
    reader.settle(0, 1, None).await;
    let current = reader.has(0);
    let mut stale = current.clone();
    stale.epoch.0 = stale.epoch.0.wrapping_sub(1);

    let positions = [(&stale, 5), (&current, 2)].map(|(assigned, offset)| Position {
        assigned: assigned.clone(),
        offset: Offset(offset),
        note: None,
    });
    let [bad, good] = positions;
    let error = within(fixture, "settling", reader.handle().settle(vec![bad.clone()])).await.expect_err("refused");
    assert_eq!(error.failures.len(), 1);
    assert_eq!(error.failures[0].position, bad);
    assert!(error.failures[0].lost, "{error}");
    within(fixture, "settling", reader.handle().settle(vec![good])).await.expect("the current one is settled");
    reader.handle().pause(&stale);
    publish(fixture, &adapter, counted(&topic, 0, 5..6)).await;
    assert_eq!(reader.records(1).await[0].text(), "5", "a pause by an assignment that is over does nothing");
    reader.leave().await;

    let next = Reader::alone(fixture, &adapter, &group, &topic, 1).await;
    assert_eq!(next.assigned.values().next().and_then(|assignment| assignment.committed), Some(Offset(2)));
    assert_ne!(next.has(0), current, "the next assignment has a number of its own");
}

/// A membership whose events are dropped leaves the group: another member gets its partitions.
///
/// # Panics
/// When the adapter does otherwise.
///
/// # Cancel safety
/// Dropping the future leaves the check's topic and group behind.
pub async fn dropped_membership_leaves(fixture: &dyn Fixture) {
    let adapter = connected(fixture).await;
    let topic = new_topic(fixture, &adapter, 2).await;
    let group = unique("group");
    let first = Reader::alone(fixture, &adapter, &group, &topic, 2).await;
    drop(first);
    let mut second = Reader::join(fixture, &adapter, &group, &topic, Start::Earliest).await;
    second.until_assigned(2).await;
}
