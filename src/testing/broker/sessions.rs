//! Fetch sessions: what a client reads, remembered from request to request (KIP-227).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::random::Random;
use crate::protocol::error_code::ErrorCode;
use crate::record::Topic;

/// A partition by what the request names it by: a name up to version 12, an id from 13 on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wanted {
    pub(super) topic: TopicRef,
    pub(super) partition: i32,
}

/// A topic as a request names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TopicRef {
    Name(Topic),
    Id(Uuid),
}

/// Where a client stands in a partition, and what it was told last.
#[derive(Debug, Clone)]
pub(super) struct Position {
    pub(super) fetch_offset: i64,
    pub(super) current_leader_epoch: i32,
    pub(super) last_fetched_epoch: i32,
    pub(super) max_bytes: i32,
    /// High watermark and log start as last told; `None` before the first answer.
    told: Option<(i64, i64)>,
    /// Who was served longest ago comes first.
    turn: u64,
}

impl Position {
    pub(super) fn new(fetch_offset: i64, current_leader_epoch: i32, last_fetched_epoch: i32, max_bytes: i32) -> Self {
        Self { fetch_offset, current_leader_epoch, last_fetched_epoch, max_bytes, told: None, turn: 0 }
    }
}

/// A session.
#[derive(Debug)]
struct Session {
    node: i32,
    /// What the next request has to say.
    epoch: i32,
    by_id: bool,
    last_used: Instant,
    partitions: BTreeMap<Wanted, Position>,
    next_turn: u64,
}

/// The sessions of all nodes.
#[derive(Debug, Default)]
pub(super) struct FetchSessions {
    sessions: BTreeMap<i32, Session>,
}

/// What one request is about.
#[derive(Debug, Clone)]
pub(super) struct Context {
    /// 0 without a session.
    pub(super) session: i32,
    /// Whether partitions without news are left out.
    pub(super) incremental: bool,
    pub(super) partitions: Vec<(Wanted, Position)>,
}

/// What a request says of its session.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) node: i32,
    pub(super) session: i32,
    pub(super) epoch: i32,
    pub(super) by_id: bool,
    pub(super) partitions: Vec<(Wanted, Position)>,
    pub(super) forgotten: Vec<Wanted>,
}

impl FetchSessions {
    /// Takes a request into its session.
    ///
    /// # Errors
    /// `FETCH_SESSION_ID_NOT_FOUND`, `INVALID_FETCH_SESSION_EPOCH`, `FETCH_SESSION_TOPIC_ID_ERROR`.
    pub(super) fn enter(
        &mut self,
        asked: Asked,
        limits: Limits,
        random: &mut Random,
        now: Instant,
    ) -> Result<Context, ErrorCode> {
        if asked.epoch == FINAL_EPOCH || asked.epoch == INITIAL_EPOCH {
            self.close(asked.session, asked.node);
            let session = match asked.epoch {
                INITIAL_EPOCH if !asked.partitions.is_empty() => self.open(&asked, limits, random, now),
                _ => 0,
            };
            return Ok(Context { session, incremental: false, partitions: asked.partitions });
        }
        self.resume(asked, now)
    }

    fn resume(&mut self, asked: Asked, now: Instant) -> Result<Context, ErrorCode> {
        let found = self.sessions.get_mut(&asked.session).filter(|session| session.node == asked.node);
        let session = found.ok_or(ErrorCode::FETCH_SESSION_ID_NOT_FOUND)?;
        if session.epoch != asked.epoch {
            return Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        }
        if session.by_id != asked.by_id {
            return Err(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        session.last_used = now;
        session.epoch = next_epoch(session.epoch);
        session.update(asked.partitions, &asked.forgotten);
        let partitions = session.in_turn();
        let mut context = Context { session: asked.session, incremental: true, partitions };
        if context.partitions.is_empty() {
            // A session of nothing is none (`FetchManager.newContext`).
            self.sessions.remove(&asked.session);
            context = Context { session: 0, incremental: false, partitions: Vec::new() };
        }
        Ok(context)
    }

    /// What the session of a request reads, for who wants to know its partitions.
    pub(super) fn partitions(&self, session: i32) -> impl Iterator<Item = &Wanted> {
        let session = self.sessions.get(&session);
        session.into_iter().flat_map(|session| session.partitions.keys())
    }

    /// Whether a partition's answer has news: it was not told the same before. Remembers it as told; `moves` puts it behind
    /// the others, so that all get their turn.
    pub(super) fn tell(&mut self, session: i32, wanted: &Wanted, marks: (i64, i64), moves: bool) -> bool {
        let Some(session) = self.sessions.get_mut(&session) else { return true };
        let Some(position) = session.partitions.get_mut(wanted) else { return true };
        let news = position.told != Some(marks);
        position.told = Some(marks);
        if moves {
            session.next_turn += 1;
            position.turn = session.next_turn;
        }
        news || moves
    }

    /// Makes the next answer tell this partition though nothing has changed: an error was told.
    pub(super) fn forget_told(&mut self, session: i32, wanted: &Wanted) {
        let Some(session) = self.sessions.get_mut(&session) else { return };
        if let Some(position) = session.partitions.get_mut(wanted) {
            position.told = None;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Forgets the sessions of a node.
    pub(super) fn forget_node(&mut self, node: i32) {
        self.sessions.retain(|_, session| session.node != node);
    }

    fn close(&mut self, id: i32, node: i32) {
        if self.sessions.get(&id).is_some_and(|session| session.node == node) {
            self.sessions.remove(&id);
        }
    }

    /// A new session's id; 0 where there is no room and none is old enough to go.
    fn open(&mut self, asked: &Asked, limits: Limits, random: &mut Random, now: Instant) -> i32 {
        let of_node = || self.sessions.iter().filter(|(_, session)| session.node == asked.node);
        if of_node().count() >= limits.sessions {
            let oldest = of_node().min_by_key(|(_, session)| session.last_used);
            let idle = oldest.filter(|(_, session)| now >= session.last_used + limits.idle).map(|(id, _)| *id);
            match idle {
                Some(id) => self.sessions.remove(&id),
                None => return 0,
            };
        }
        let id = std::iter::repeat_with(|| random.positive()).find(|id| !self.sessions.contains_key(id));
        let id = id.expect("an endless source of ids, and fewer sessions than ids");
        let mut session = Session {
            node: asked.node,
            epoch: next_epoch(INITIAL_EPOCH),
            by_id: asked.by_id,
            last_used: now,
            partitions: BTreeMap::new(),
            next_turn: 0,
        };
        session.update(asked.partitions.clone(), &[]);
        self.sessions.insert(id, session);
        id
    }
}

impl Session {
    fn update(&mut self, changed: Vec<(Wanted, Position)>, forgotten: &[Wanted]) {
        for (wanted, mut position) in changed {
            match self.partitions.get(&wanted) {
                Some(known) => (position.told, position.turn) = (known.told, known.turn),
                None => {
                    self.next_turn += 1;
                    position.turn = self.next_turn;
                }
            }
            self.partitions.insert(wanted, position);
        }
        for wanted in forgotten {
            self.partitions.remove(wanted);
        }
    }

    fn in_turn(&self) -> Vec<(Wanted, Position)> {
        let mut partitions: Vec<_> = self.partitions.iter().map(|(wanted, at)| (wanted.clone(), at.clone())).collect();
        partitions.sort_by_key(|(_, position)| position.turn);
        partitions
    }
}

/// Bounds of the sessions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) sessions: usize,
    pub(super) idle: Duration,
}

fn next_epoch(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(1)
}

/// Opens a session.
const INITIAL_EPOCH: i32 = 0;
/// Closes the session that is named, and wants none.
const FINAL_EPOCH: i32 = -1;
