use std::time::Duration;

use super::*;
use crate::adapter::{AdapterError, AssignmentEpoch, BoxFuture, Position, RecordSet, SettleError};
use crate::harbor::headers::HeaderNames;
use crate::protocol::batch::{BatchWriter, Closing, ReadOptions, batches};
use crate::protocol::compression::Compression;
use crate::record::{Timestamp, TopicPartition};

/// Where reading was told to go on.
#[derive(Debug, Default)]
struct Handle(Mutex<Vec<ResumeFrom>>);

impl MembershipHandle for Handle {
    fn settle(&self, _: Vec<Position>) -> BoxFuture<'_, Result<(), SettleError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn pause(&self, _: &Assigned) {}

    fn resume(&self, _: &Assigned, from: ResumeFrom) {
        self.0.lock().unwrap().push(from);
    }

    fn leave(&self, _: Duration) -> BoxFuture<'_, Result<(), AdapterError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

fn lane() -> Lane {
    let partition = TopicPartition::new("orders-retry-1", 0);
    let assigned = Assigned { partition: partition.clone(), epoch: AssignmentEpoch(1) };
    let assignment = Assignment { assigned, committed: None, position: Offset(0), note: None };
    let source = Source { group: "g".into(), partition, names: HeaderNames::default() };
    let route = Route { level: 1, owners: vec![0] };
    Lane::new(LaneId(1), &assignment, route, Arc::new(source), mpsc::unbounded_channel().0)
}

/// One record at this offset.
fn batch(lane: &Lane, offset: i64) -> PartitionBatch {
    let mut writer = BatchWriter::new(Compression::NONE);
    writer.append(Timestamp(0), None, Some(b"tea"), []).unwrap();
    let encoded = writer.close(Closing::default()).unwrap().with_base_offset(Offset(offset)).unwrap();
    let views = batches(encoded.into_bytes(), &ReadOptions::default()).map(Result::unwrap).collect();
    PartitionBatch { assigned: lane.assigned.clone(), records: RecordSet::new(views, Offset(offset)), hold: None }
}

/// A worker that steps aside before it comes to the record that has waited took that knowledge along: the record waited for
/// its whole delay once more, and by a writer whose clock is ahead for ever.
#[test]
fn a_record_that_has_waited_is_due_also_after_its_partition_stood_aside() {
    let (lane, handle) = (lane(), Handle::default());
    let due = Some(Offset(5));
    assert_eq!(lane.push(batch(&lane, 4), true, &handle), Pushed::Start);
    lane.take(&handle).unwrap();
    lane.finish(Offset(5));
    lane.park();
    lane.unpark(Offset(5), &handle);
    // Without room it stands aside before it has a worker.
    assert_eq!(lane.push(batch(&lane, 5), false, &handle), Pushed::Aside);
    lane.call_in(&handle);
    assert_eq!(lane.push(batch(&lane, 5), true, &handle), Pushed::Start);
    assert_eq!(lane.take(&handle).map(|(_, due)| due), Some(due));
    // Its worker knows of it now, and is to make room for others.
    lane.step_aside(due, &handle);
    lane.call_in(&handle);
    assert_eq!(lane.push(batch(&lane, 5), true, &handle), Pushed::Start);
    assert_eq!(lane.take(&handle).map(|(_, due)| due), Some(due));
    assert_eq!(*handle.0.lock().unwrap(), [ResumeFrom::Offset(Offset(5)); 3]);
    // One that knows of none forgets none.
    lane.step_aside(None, &handle);
    lane.call_in(&handle);
    assert_eq!(lane.push(batch(&lane, 5), true, &handle), Pushed::Start);
    assert_eq!(lane.take(&handle).map(|(_, due)| due), Some(None));
}
