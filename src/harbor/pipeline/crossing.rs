//! A hop on its way.

use std::sync::Arc;

use tokio::time::Instant;

use crate::adapter::PublishError;
use crate::harbor::error::HarborError;
use crate::harbor::pipeline::lane::Lane;
use crate::harbor::pipeline::note::{Note, Stop};
use crate::harbor::pipeline::report;
use crate::harbor::pipeline::setup::Setup;
use crate::observe::{HopRemedy, ProduceKind, StopReason};
use crate::record::{Header, Offset, Record, Topic};

/// A failed record on its way to its next topic: offered there until it is taken, or nothing is left to do with it.
///
/// ```text
///   to the level: whole ──too large──► bare ──too large──► to the dead letters: whole ──too large──► bare ──too large──┐
///     taken │                 │ taken                                  │ taken               │ taken                   ▼
///           └─────────────────┴─────► acknowledged ◄───────────────────┴─────────────────────┘          the consumer stops
/// ```
///
/// What does not fit is never offered without end, and never dropped: each step leaves out more, or goes further.
pub(super) struct Crossing {
    pub(super) setup: Arc<Setup>,
    pub(super) lane: Arc<Lane>,
    pub(super) offset: Offset,
    pub(super) record: Record,
    pub(super) kind: ProduceKind,
    /// Where it goes if its next level does not take it.
    pub(super) dead_letter: Option<Topic>,
}

impl Crossing {
    /// Goes its way, and tells the lane how it ended.
    pub(super) async fn run(mut self) {
        let unanswered = Unanswered(Some((self.lane.clone(), self.offset)));
        let refused = self.through().await.err();
        unanswered.answered();
        let Some(error) = refused else { return self.lane.hop_acknowledged(self.offset) };
        self.lane.hop_failed(self.offset);
        // Where the partition was lost, whoever has it now delivers the record again.
        if !self.lane.gate.is_cut() {
            let stop = Stop { reason: StopReason::Crash, error, topic: Some(self.record.topic) };
            self.lane.tell(Note::Stop(Box::new(stop)));
        }
    }

    async fn through(&mut self) -> Result<(), HarborError> {
        let mut whole = None;
        loop {
            let Err(error) = self.offer().await else { return Ok(()) };
            if !error.is_too_large() || self.lane.gate.is_cut() {
                return Err(HarborError::NotPublished(error));
            }
            let (to, kind) = (self.record.topic.clone(), self.kind);
            let remedy = self.shrink(&mut whole);
            self.setup.report_hop_too_large(&self.lane, self.offset, &to, kind, &error, remedy);
            if remedy == HopRemedy::Stop {
                let (partition, source) = (self.lane.assigned.partition.clone(), Box::new(error));
                return Err(HarborError::HopTooLarge { partition, offset: self.offset, to, source });
            }
        }
    }

    async fn offer(&self) -> Result<(), PublishError> {
        let started = Instant::now();
        match self.setup.publisher.publish(vec![self.record.clone()]).await {
            Ok(_) => {
                self.setup.report_produced(&self.record.topic, self.kind, started);
                Ok(())
            }
            Err(error) => {
                self.setup.report_not_produced(&self.record.topic, self.kind, &error);
                Err(error)
            }
        }
    }

    /// Makes ready what is offered next. `whole` holds the headers as they were while what only informs is left out.
    fn shrink(&mut self, whole: &mut Option<Vec<Header>>) -> HopRemedy {
        let headers = &mut self.record.headers;
        if whole.is_none() {
            let before = headers.clone();
            self.setup.stamper.strip(headers);
            let shrank = headers.len() < before.len();
            *whole = Some(before);
            if shrank {
                return HopRemedy::WithoutTrail;
            }
        }
        let Some(to) = self.dead_letter.take() else { return HopRemedy::Stop };
        *headers = whole.take().unwrap_or_default();
        self.setup.stamper.at(self.setup.clock.now()).dead_lettered(headers);
        self.lane.hop_set_aside(self.offset, &to);
        (self.record.topic, self.kind) = (to, ProduceKind::DeadLetter);
        HopRemedy::DeadLetters
    }
}

/// A hop that ends without an answer, by a panic, would hold its partition back for ever and tell nobody.
struct Unanswered(Option<(Arc<Lane>, Offset)>);

impl Unanswered {
    fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some((lane, offset)) = self.0.take() {
            lane.hop_failed(offset);
            lane.tell(Note::Stop(report::hop_died(&lane, offset)));
        }
    }
}
