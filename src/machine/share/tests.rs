//! Sessions with brokers that answer as the test says, in virtual time.

use kafka_protocol::protocol::StrBytes;

use super::*;
use crate::machine::share::AcknowledgeType::{Accept, Reject, Release, Renew};
use crate::protocol::batch::BatchError;

const SECOND: Duration = Duration::from_secs(1);
const LOCK: Duration = Duration::from_secs(30);
const ORDERS: Uuid = Uuid::from_u128(7);
const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);

struct Rig {
    now: Instant,
    sessions: Sessions,
}

impl Rig {
    /// A member that reads these partitions, all led by broker `A`, and waits for records.
    fn new(partitions: &[i32]) -> Self {
        let mut sessions = Sessions::new(SessionConfig::default(), "g", StrBytes::from_static_str("me"));
        sessions.want(true);
        let mut rig = Self { now: Instant::now(), sessions };
        rig.assign(partitions);
        rig.lead(A, 1);
        rig
    }

    fn assign(&mut self, partitions: &[i32]) {
        let all = partitions.iter().map(|partition| (TopicPartition::new("orders", *partition), ORDERS));
        self.sessions.assign(&all.collect());
    }

    fn lead(&mut self, node: NodeId, epoch: i32) {
        let leader = Leader { node, epoch: Some(LeaderEpoch(epoch)), topic_id: ORDERS };
        self.sessions.update_leaders(|_| Some(leader));
    }

    fn plan(&mut self, at: NodeId) -> Plan {
        match self.sessions.poll(self.now, at) {
            Next::Send(plan) => plan,
            next => panic!("{next:?}"),
        }
    }

    fn waits(&mut self, at: NodeId) -> Option<Instant> {
        match self.sessions.poll(self.now, at) {
            Next::Wait(until) => until,
            next => panic!("{next:?}"),
        }
    }

    fn answer(&mut self, plan: &Plan, code: ErrorCode, partitions: Vec<PartAnswer>) {
        let answer = Answer { code, lock_timeout: LOCK, throttle: Duration::ZERO, partitions };
        self.sessions.handle_answer(self.now, plan, answer);
    }

    /// Fetches, and takes over what was acquired of partition 0.
    fn acquire(&mut self, ranges: &[(i64, i64)]) -> Acquired {
        self.sessions.want(true);
        let plan = self.plan(A);
        assert!(plan.fetch.is_some(), "{plan:?}");
        self.answer(&plan, ErrorCode::NONE, vec![acquired(0, ranges)]);
        self.sessions.poll_batch(self.now).unwrap()
    }

    fn acknowledge(&mut self, of: &Acquired, offsets: (i64, i64), kind: AcknowledgeType) -> Result<(), Refusal> {
        self.sessions.acknowledge(1, &of.lock, (Offset(offsets.0), Offset(offsets.1)), kind)
    }

    /// First and last offset of each outcome, and what it was.
    fn outcomes(&mut self) -> Vec<(i64, i64, Result<(), Refusal>)> {
        let all = std::iter::from_fn(|| self.sessions.poll_outcome());
        all.map(|outcome| (outcome.first.0, outcome.last.0, outcome.result.map(drop))).collect()
    }

    fn events(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.sessions.poll_event())
            .map(|event| match event {
                SessionEvent::Stale(partition) => format!("stale {partition}"),
                SessionEvent::Refused { partition, code } => format!("{partition} {code:?}"),
                SessionEvent::SessionRefused { node, code } => format!("session {node} {code:?}"),
                SessionEvent::Unreadable { partition, offset, .. } => format!("unreadable {partition} {offset}"),
            })
            .collect()
    }
}

fn part(partition: i32, fetch: ErrorCode, acknowledge: ErrorCode) -> PartAnswer {
    PartAnswer { id: (ORDERS, partition), fetch, acknowledge, opened: None }
}

fn acquired(partition: i32, ranges: &[(i64, i64)]) -> PartAnswer {
    let range =
        |(first, last): &(i64, i64)| AcquiredRange { first: Offset(*first), last: Offset(*last), delivery_count: 1 };
    let opened = Opened { acquired: ranges.iter().map(range).collect(), ..Opened::default() };
    PartAnswer { opened: Some(opened), ..part(partition, ErrorCode::NONE, ErrorCode::NONE) }
}

/// First and last offset, and what becomes of them.
type Said = (i64, i64, Vec<i8>);

/// Partition and acknowledged ranges with their types, as the request says them.
fn said(plan: &Plan) -> Vec<(i32, Vec<Said>)> {
    let request = plan.acknowledge_request();
    let partitions = request.body.topics.iter().flat_map(|topic| &topic.partitions);
    partitions
        .map(|partition| {
            let batches = partition.acknowledgement_batches.iter();
            let batches = batches.map(|batch| (batch.first_offset, batch.last_offset, batch.acknowledge_types.clone()));
            (partition.partition_index, batches.collect())
        })
        .collect()
}

/// Partitions of the session that a fetch adds and takes away.
fn changes(plan: &Plan) -> (Vec<i32>, Vec<i32>) {
    let request = plan.fetch_request(plan.fetch.as_ref().unwrap()).body;
    let added = request.topics.iter().flat_map(|topic| &topic.partitions).map(|partition| partition.partition_index);
    let gone = request.forgotten_topics_data.iter().flat_map(|topic| topic.partitions.clone());
    (added.collect(), gone.collect())
}

#[test]
fn a_session_is_opened_and_then_told_of_changes_alone() {
    let mut rig = Rig::new(&[0, 1]);
    let open = rig.plan(A);
    assert_eq!((open.epoch, changes(&open)), (0, (vec![0, 1], vec![])));
    assert_eq!(rig.waits(A), None, "one request at a time");
    rig.answer(&open, ErrorCode::NONE, vec![]);
    let same = rig.plan(A);
    assert_eq!((same.epoch, changes(&same)), (1, (vec![], vec![])));
    rig.answer(&same, ErrorCode::NONE, vec![]);
    rig.assign(&[1, 2]);
    rig.lead(A, 1);
    let changed = rig.plan(A);
    assert_eq!((changed.epoch, changes(&changed)), (2, (vec![2], vec![0])));
    assert_eq!(changed.session, open.session);
}

#[test]
fn nothing_is_fetched_that_nobody_waits_for() {
    let mut rig = Rig::new(&[0]);
    let batch = rig.acquire(&[(0, 1)]);
    assert_eq!(batch.deadline, rig.now + LOCK);
    assert_eq!(rig.waits(A), None);
    rig.sessions.want(true);
    let plan = rig.plan(A);
    assert_eq!(
        plan.fetch.as_ref().unwrap().max_wait,
        Duration::from_millis(100),
        "what is held is about to be acknowledged"
    );
    rig.answer(&plan, ErrorCode::NONE, vec![acquired(0, &[(2, 2)])]);
    assert_eq!(rig.waits(A), None, "what came is still to be taken");
    assert!(rig.sessions.poll_batch(rig.now).is_some());
}

#[test]
fn acknowledgements_ride_on_a_fetch_that_does_not_wait_for_them() {
    let mut rig = Rig::new(&[0]);
    let batch = rig.acquire(&[(0, 9)]);
    rig.acknowledge(&batch, (0, 3), Accept).unwrap();
    rig.acknowledge(&batch, (5, 5), Reject).unwrap();
    rig.acknowledge(&batch, (4, 4), Accept).unwrap();
    rig.sessions.want(true);
    let plan = rig.plan(A);
    assert_eq!((plan.epoch, plan.fetch.as_ref().unwrap().max_wait), (1, Duration::ZERO));
    assert_eq!(said(&plan), [(0, vec![(0, 4, vec![1]), (5, 5, vec![3])])]);
    rig.answer(&plan, ErrorCode::NONE, vec![acquired(0, &[(10, 10)])]);
    assert_eq!(rig.outcomes(), [(0, 3, Ok(())), (5, 5, Ok(())), (4, 4, Ok(()))]);
}

#[test]
fn acknowledgements_go_alone_where_nobody_waits_for_records() {
    let mut rig = Rig::new(&[0]);
    let batch = rig.acquire(&[(0, 9)]);
    rig.acknowledge(&batch, (0, 9), Release).unwrap();
    let plan = rig.plan(A);
    assert!(plan.fetch.is_none());
    assert_eq!((plan.epoch, said(&plan)), (1, vec![(0, vec![(0, 9, vec![2])])]));
    rig.answer(&plan, ErrorCode::NONE, vec![part(0, ErrorCode::NONE, ErrorCode::NONE)]);
    assert_eq!(rig.outcomes(), [(0, 9, Ok(()))]);
    rig.sessions.want(true);
    assert_eq!(rig.plan(A).epoch, 2, "both kinds of requests count");
}

#[test]
fn a_record_is_acknowledged_once_and_only_if_it_is_held() {
    let mut rig = Rig::new(&[0]);
    let batch = rig.acquire(&[(0, 4), (5, 6), (8, 9)]);
    assert_eq!(rig.acknowledge(&batch, (6, 8), Accept), Err(Refusal::Lost), "7 was never acquired");
    rig.acknowledge(&batch, (3, 5), Accept).unwrap();
    assert_eq!(rig.acknowledge(&batch, (3, 3), Accept), Err(Refusal::Lost));
    rig.acknowledge(&batch, (0, 2), Accept).unwrap();
    rig.acknowledge(&batch, (6, 6), Accept).unwrap();
    let other = AcquisitionLock { session: batch.lock.session + 1_000_000, ..batch.lock.clone() };
    assert_eq!(rig.sessions.acknowledge(1, &other, (Offset(8), Offset(8)), Accept), Err(Refusal::Lost));
    let plan = rig.plan(A);
    assert_eq!(said(&plan), [(0, vec![(0, 6, vec![1])])]);
}

#[test]
fn a_renewed_lock_begins_anew_and_its_record_is_still_to_be_acknowledged() {
    let mut rig = Rig::new(&[0]);
    let batch = rig.acquire(&[(0, 1)]);
    rig.now += 20 * SECOND;
    rig.acknowledge(&batch, (0, 1), Renew).unwrap();
    rig.sessions.want(true);
    let plan = rig.plan(A);
    assert!(plan.fetch.is_none(), "a fetch that renews fetches nothing");
    assert!(plan.acknowledge_request().is_renew);
    assert_eq!(said(&plan), [(0, vec![(0, 1, vec![4])])]);
    rig.now += SECOND;
    rig.answer(&plan, ErrorCode::NONE, vec![part(0, ErrorCode::NONE, ErrorCode::NONE)]);
    let outcome = rig.sessions.poll_outcome().unwrap();
    assert_eq!(outcome.result, Ok(Some(plan.sent + LOCK)));
    rig.acknowledge(&batch, (0, 1), Accept).unwrap();
}

/// The session ended, and with it the locks of everything else.
#[test]
fn a_broker_that_cannot_renew_is_asked_for_nothing_and_the_session_goes_on() {
    let mut rig = Rig::new(&[0]);
    let batch = rig.acquire(&[(0, 2)]);
    rig.acknowledge(&batch, (0, 0), Accept).unwrap();
    rig.acknowledge(&batch, (1, 1), Renew).unwrap();
    let plan = rig.plan(A);
    rig.sessions.handle_failure(rig.now, &plan, &NoAnswer::CannotRenew);
    assert_eq!(rig.outcomes(), [(1, 1, Err(Refusal::CannotRenew))]);
    rig.acknowledge(&batch, (1, 2), Accept).unwrap();
    let again = rig.plan(A);
    assert_eq!((again.epoch, said(&again)), (plan.epoch, vec![(0, vec![(0, 2, vec![1])])]));
}

/// One lock that had ended took the acknowledgements of all its neighbours with it.
#[test]
fn a_lost_lock_costs_only_its_own_record() {
    let mut rig = Rig::new(&[0, 1]);
    let batch = rig.acquire(&[(0, 6)]);
    for offset in [0, 1, 2, 3] {
        rig.acknowledge(&batch, (offset, offset), Accept).unwrap();
    }
    rig.acknowledge(&batch, (4, 6), Release).unwrap();
    let (mut asked, mut outcomes) = (0, Vec::new());
    while let Next::Send(plan) = rig.sessions.poll(rig.now, A) {
        asked += 1;
        assert!(asked < 20, "asks for ever");
        let (partition, batches) = &said(&plan)[0];
        let refused = batches.iter().any(|(first, last, _)| (*first..=*last).contains(&5));
        let code = if refused { ErrorCode::INVALID_RECORD_STATE } else { ErrorCode::NONE };
        rig.answer(&plan, ErrorCode::NONE, vec![part(*partition, ErrorCode::NONE, code)]);
        outcomes.extend(rig.outcomes());
    }
    outcomes.sort_by_key(|outcome| outcome.0);
    let expected = [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6)];
    let expected = expected.map(|(first, last)| (first, last, if first == 5 { Err(Refusal::Lost) } else { Ok(()) }));
    assert_eq!(outcomes, expected);
}

/// A broker that refused the acknowledgement of a gap was asked for its halves, and theirs: of one that it made up, by its round trips
/// for as long as it said that the lock holds.
#[test]
fn a_gap_whose_acknowledgement_is_refused_is_left_to_the_end_of_its_lock() {
    let mut rig = Rig::new(&[0]);
    let plan = rig.plan(A);
    let mut answer = acquired(0, &[(0, 0)]);
    answer.opened.as_mut().unwrap().gaps = vec![(1, 1 << 62)];
    rig.answer(&plan, ErrorCode::NONE, vec![answer]);
    let plan = rig.plan(A);
    assert_eq!(said(&plan), [(0, vec![(1, 1 << 62, vec![0])])]);
    rig.answer(&plan, ErrorCode::NONE, vec![part(0, ErrorCode::NONE, ErrorCode::INVALID_RECORD_STATE)]);
    assert_eq!(rig.waits(A), None);
}

#[test]
fn of_locks_that_are_over_nothing_more_is_asked() {
    let mut rig = Rig::new(&[0]);
    let batch = rig.acquire(&[(0, 6)]);
    rig.now += LOCK;
    rig.acknowledge(&batch, (0, 6), Accept).expect("the broker's clock decides");
    let plan = rig.plan(A);
    rig.answer(&plan, ErrorCode::NONE, vec![part(0, ErrorCode::NONE, ErrorCode::INVALID_RECORD_STATE)]);
    assert_eq!(rig.outcomes(), [(0, 6, Err(Refusal::Lost))]);
    assert_eq!(rig.waits(A), None);
}

#[test]
fn what_the_broker_refuses_otherwise_is_still_held() {
    let mut rig = Rig::new(&[0]);
    let batch = rig.acquire(&[(0, 6)]);
    rig.acknowledge(&batch, (0, 6), Accept).unwrap();
    let plan = rig.plan(A);
    rig.answer(&plan, ErrorCode::NONE, vec![part(0, ErrorCode::NONE, ErrorCode::COORDINATOR_NOT_AVAILABLE)]);
    assert_eq!(rig.outcomes(), [(0, 6, Err(Refusal::Refused(ErrorCode::COORDINATOR_NOT_AVAILABLE)))]);
    rig.acknowledge(&batch, (0, 6), Accept).unwrap();
}

#[test]
fn a_session_that_the_broker_forgot_takes_its_locks_with_it_and_is_opened_anew() {
    for code in [ErrorCode::SHARE_SESSION_NOT_FOUND, ErrorCode::INVALID_SHARE_SESSION_EPOCH] {
        let mut rig = Rig::new(&[0]);
        let batch = rig.acquire(&[(0, 6)]);
        rig.acknowledge(&batch, (0, 1), Accept).unwrap();
        let plan = rig.plan(A);
        rig.acknowledge(&batch, (2, 2), Accept).unwrap();
        rig.answer(&plan, code, vec![]);
        assert_eq!(rig.outcomes(), [(0, 1, Err(Refusal::Lost)), (2, 2, Err(Refusal::Lost))]);
        assert_eq!(rig.acknowledge(&batch, (3, 3), Accept), Err(Refusal::Lost));
        rig.sessions.want(true);
        rig.now = rig.waits(A).expect("not at once");
        let again = rig.plan(A);
        assert_eq!((again.epoch, changes(&again)), (0, (vec![0], vec![])));
        assert_ne!(again.session, plan.session);
        assert_eq!(rig.events(), [""; 0], "daily business");
    }
}

#[test]
fn an_acknowledgement_without_an_answer_may_have_happened_and_one_that_was_not_sent_has_not() {
    let mut rig = Rig::new(&[0]);
    let batch = rig.acquire(&[(0, 6)]);
    rig.acknowledge(&batch, (0, 1), Accept).unwrap();
    let plan = rig.plan(A);
    rig.acknowledge(&batch, (2, 2), Accept).unwrap();
    let what = "reset".to_owned();
    rig.sessions.handle_failure(rig.now, &plan, &NoAnswer::Unknown { what: what.clone() });
    assert_eq!(rig.outcomes(), [(0, 1, Err(Refusal::Unknown { what })), (2, 2, Err(Refusal::Lost))]);
    assert_eq!(rig.events(), ["stale orders-0"]);
    rig.answer(&plan, ErrorCode::NONE, vec![part(0, ErrorCode::NONE, ErrorCode::NONE)]);
    assert_eq!(rig.outcomes(), [], "an answer to what is not waited for any more");
}

#[test]
fn closing_acknowledges_what_waits_and_has_the_rest_released() {
    let mut rig = Rig::new(&[0]);
    let batch = rig.acquire(&[(0, 6)]);
    rig.acknowledge(&batch, (0, 1), Accept).unwrap();
    assert!(rig.sessions.close());
    assert!(!rig.sessions.is_closed());
    let plan = rig.plan(A);
    assert_eq!((plan.epoch, said(&plan)), (-1, vec![(0, vec![(0, 1, vec![1])])]));
    rig.answer(&plan, ErrorCode::NONE, vec![part(0, ErrorCode::NONE, ErrorCode::NONE)]);
    assert_eq!(rig.outcomes(), [(0, 1, Ok(()))]);
    assert!(rig.sessions.is_closed());
    assert_eq!(rig.acknowledge(&batch, (2, 2), Accept), Err(Refusal::Lost));
    assert_eq!(rig.waits(A), None);
}

#[test]
fn a_session_that_never_was_needs_no_end() {
    let mut rig = Rig::new(&[0]);
    assert!(rig.sessions.close());
    assert_eq!(rig.waits(A), None);
    assert!(rig.sessions.is_closed());
}

#[test]
fn a_partition_that_is_refused_leaves_the_session_and_comes_back_later() {
    let mut rig = Rig::new(&[0, 1]);
    let open = rig.plan(A);
    let refused = part(1, ErrorCode::TOPIC_AUTHORIZATION_FAILED, ErrorCode::NONE);
    rig.answer(&open, ErrorCode::NONE, vec![refused]);
    assert_eq!(rig.events(), ["stale orders-1", "orders-1 TOPIC_AUTHORIZATION_FAILED (29)"]);
    let without = rig.plan(A);
    assert_eq!(changes(&without), (vec![], vec![1]));
    rig.answer(&without, ErrorCode::NONE, vec![]);
    rig.now += SECOND;
    assert_eq!(changes(&rig.plan(A)), (vec![1], vec![]));
}

#[test]
fn a_new_leader_gets_a_session_of_its_own_and_the_old_one_still_hears_of_what_it_gave() {
    let mut rig = Rig::new(&[0]);
    let batch = rig.acquire(&[(0, 6)]);
    rig.lead(B, 2);
    rig.lead(A, 1);
    rig.sessions.want(true);
    assert_eq!(rig.waits(A), None, "an older view has nothing to say");
    let open = rig.plan(B);
    assert_eq!((open.epoch, changes(&open)), (0, (vec![0], vec![])));
    rig.acknowledge(&batch, (0, 6), Accept).unwrap();
    let plan = rig.plan(A);
    assert!(plan.fetch.is_none());
    rig.answer(&plan, ErrorCode::NONE, vec![part(0, ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::NONE)]);
    assert_eq!(rig.outcomes(), [(0, 6, Ok(()))]);
}

/// What a leader that hung, and led no more, had written to the group's state was told as lost, and never delivered again: of a
/// share group at work on three nodes some records were neither accepted nor came again.
#[test]
fn an_acknowledgement_refused_by_one_that_leads_no_more_may_have_happened() {
    for code in MOVED {
        let mut rig = Rig::new(&[0]);
        let batch = rig.acquire(&[(0, 6)]);
        rig.acknowledge(&batch, (0, 6), Accept).unwrap();
        let plan = rig.plan(A);
        rig.answer(&plan, ErrorCode::NONE, vec![part(0, ErrorCode::NONE, code)]);
        assert_eq!(rig.outcomes(), [(0, 6, Err(Refusal::Unknown { what: code.to_string() }))]);
        assert_eq!(rig.acknowledge(&batch, (0, 6), Accept), Err(Refusal::Lost), "the lock is gone in any case");
    }
}

/// A member of a cluster whose nodes are replaced, day by day, spoke of all that there ever were: a session and a task for each.
#[test]
fn brokers_that_lead_nothing_any_more_are_forgotten() {
    let mut rig = Rig::new(&[0]);
    for (epoch, id) in (1..).zip(10..1_000) {
        let (old, new) = (NodeId(id), NodeId(id + 1));
        rig.lead(old, 2 * epoch);
        rig.sessions.want(true);
        let open = rig.plan(old);
        rig.answer(&open, ErrorCode::NONE, vec![acquired(0, &[(0, 6)])]);
        let batch = rig.sessions.poll_batch(rig.now).unwrap();
        rig.lead(new, 2 * epoch + 1);
        rig.sessions.want(false);
        assert_eq!(rig.waits(old), None, "it is still to hear of the records");
        rig.acknowledge(&batch, (0, 6), Accept).unwrap();
        let last = rig.plan(old);
        rig.answer(&last, ErrorCode::NONE, vec![part(0, ErrorCode::NONE, ErrorCode::NONE)]);
        assert_eq!(rig.outcomes(), [(0, 6, Ok(()))]);
        let close = rig.plan(old);
        assert_eq!((close.epoch, said(&close)), (-1, vec![]));
        match id % 3 {
            0 => rig.answer(&close, ErrorCode::NONE, vec![]),
            1 => rig.answer(&close, ErrorCode::SHARE_SESSION_NOT_FOUND, vec![]),
            _ => {
                rig.sessions.handle_failure(rig.now, &close, &NoAnswer::NotSent);
                rig.now += SECOND;
            }
        }
        rig.now += SECOND;
        assert!(matches!(rig.sessions.poll(rig.now, old), Next::Gone));
        assert_eq!(rig.events(), Vec::<String>::new(), "nobody is told of what nobody needs");
        assert_eq!(rig.sessions.nodes(), [new].into(), "one leads");
    }
}

#[test]
fn a_broker_that_leads_again_before_its_session_has_ended_gets_another() {
    let mut rig = Rig::new(&[0]);
    let open = rig.plan(A);
    rig.answer(&open, ErrorCode::NONE, vec![]);
    rig.lead(B, 2);
    let close = rig.plan(A);
    rig.lead(A, 3);
    assert_eq!(rig.waits(A), None, "one request at a time");
    rig.answer(&close, ErrorCode::NONE, vec![]);
    let again = rig.plan(A);
    assert_eq!((again.epoch, changes(&again)), (0, (vec![0], vec![])));
    assert_ne!(again.session, open.session);
}
#[test]
fn what_waited_until_its_lock_had_ended_is_not_handed_over() {
    let mut rig = Rig::new(&[0]);
    let plan = rig.plan(A);
    rig.answer(&plan, ErrorCode::NONE, vec![acquired(0, &[(0, 6)])]);
    rig.now += LOCK;
    assert!(rig.sessions.poll_batch(rig.now).is_none());
    assert!(rig.plan(A).fetch.is_some(), "and more is fetched");
}

#[test]
fn offsets_without_a_record_are_acknowledged_unasked_and_what_cannot_be_read_is_told() {
    let mut rig = Rig::new(&[0]);
    let plan = rig.plan(A);
    let mut answer = acquired(0, &[(0, 1), (4, 4)]);
    let opened = answer.opened.as_mut().unwrap();
    opened.gaps = vec![(2, 3)];
    opened.missing = vec![(5, 5)];
    opened.flaw = Some((Offset(6), BatchError::UnsupportedMagic { base_offset: 6, magic: 1 }));
    rig.answer(&plan, ErrorCode::NONE, vec![answer]);
    assert_eq!(rig.events(), ["unreadable orders-0 6"]);
    let plan = rig.plan(A);
    assert_eq!(said(&plan), [(0, vec![(2, 3, vec![0]), (5, 5, vec![2])])]);
    rig.answer(&plan, ErrorCode::NONE, vec![part(0, ErrorCode::NONE, ErrorCode::NONE)]);
    assert_eq!(rig.outcomes(), [], "nobody asked");
}

#[test]
fn nothing_is_fetched_beyond_the_memory_there_is() {
    let mut rig = Rig::new(&[0]);
    let limit = SessionConfig::default().budget_bytes;
    let held = rig.sessions.budget().take(limit - 100);
    let plan = rig.plan(A);
    assert_eq!(plan.fetch_request(plan.fetch.as_ref().unwrap()).body.max_bytes, 100);
    rig.answer(&plan, ErrorCode::NONE, vec![]);
    let all = rig.sessions.budget().take(100);
    assert_eq!(rig.waits(A), None);
    drop((held, all));
    assert!(rig.plan(A).fetch.is_some());
}
