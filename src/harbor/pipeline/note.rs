//! What workers tell the driver.

use std::time::Duration;

use crate::harbor::error::HarborError;
use crate::harbor::failure::Failure;
use crate::harbor::pipeline::lane::LaneId;
use crate::observe::StopReason;
use crate::record::{Offset, Topic};

/// A word from a worker. At most a few a partition are under way: one of progress, one that it ended, one a hop.
#[derive(Debug)]
pub(crate) enum Note {
    /// Something finished since the driver last collected.
    Progress(LaneId),
    /// The worker ended: nothing is left in the inbox, or the gate closed.
    Ended,
    /// The worker ended at a record that has still this long to wait.
    Parked(LaneId, Offset, Duration),
    /// The worker ended for others to have its room.
    Aside(LaneId),
    /// The consumer has to stop.
    Stop(Box<Stop>),
}

/// Why a consumer has to stop, as the worker that found it tells.
#[derive(Debug)]
pub(crate) struct Stop {
    pub(crate) reason: StopReason,
    pub(crate) error: HarborError,
    /// The topic at fault, where it is one.
    pub(crate) topic: Option<Topic>,
}

/// What became of a delivery, to be told once its offset is committed.
#[derive(Debug)]
pub(crate) enum Settled {
    /// The handler succeeded, or had before.
    Processed { took: Duration, correlation_id: Option<Box<str>>, replayed: bool },
    /// Another group's retry was passed over.
    Skipped { group: Option<Box<str>> },
    /// The handler failed, and the record was written to another topic.
    Moved(Box<Moved>),
}

/// A record that was written to another topic.
#[derive(Debug)]
pub(crate) struct Moved {
    pub(crate) error: Failure,
    pub(crate) took: Duration,
    pub(crate) correlation_id: Option<Box<str>>,
    pub(crate) to: Topic,
    /// The level that it went to; `None` for the dead letters.
    pub(crate) level: Option<u32>,
    /// The attempt that failed.
    pub(crate) attempt: u32,
}

/// Why a worker leaves a batch before its end.
#[derive(Debug)]
pub(crate) enum Halt {
    /// The gate closed.
    Closed,
    /// The record here has to wait this long.
    Parked(Offset, Duration),
    /// Others are to have its room at the level.
    Aside,
    /// The consumer has to stop; the record at hand stays uncommitted.
    Stop(Box<Stop>),
}
