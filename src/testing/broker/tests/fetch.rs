use super::*;
use kafka_protocol::messages::fetch_request::ForgottenTopic;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use kafka_protocol::messages::{ListOffsetsRequest, OffsetForLeaderEpochRequest};

#[test]
fn a_long_poll_waits_for_bytes_and_ends_at_its_time() {
    let mut rig = Rig::new(1).topic("t", 1);
    let reader = rig.connect(1);
    let request = fetch("t", &[(0, 0)]).with_max_wait_ms(500);
    rig.send(reader, 12, &request);
    assert_eq!(rig.next(reader), None, "nothing is there");
    rig.produce(1, "t", 0, batch_of(&["a"]));
    let answer = rig.answer::<FetchRequest>(reader, 12).expect("woken by the append");
    assert_eq!(values(&only(answer)), ["a"]);

    let request = fetch("t", &[(0, 1)]).with_max_wait_ms(500);
    rig.send(reader, 12, &request);
    assert_eq!(rig.cluster.poll_timeout(), Some(rig.now + Duration::from_millis(500)));
    rig.pass(Duration::from_millis(499));
    assert_eq!(rig.next(reader), None);
    rig.pass(Duration::from_millis(1));
    let answer = rig.answer::<FetchRequest>(reader, 12).expect("its time is over");
    assert_eq!((only(answer.clone()).high_watermark, values(&only(answer))), (1, vec![]));
}

#[test]
fn a_long_poll_wants_as_many_bytes_as_it_says() {
    let mut rig = Rig::new(1).topic("t", 1);
    let size = batch_of(&["a"]).bytes().len() as i32;
    let reader = rig.connect(1);
    rig.send(reader, 12, &fetch("t", &[(0, 0)]).with_max_wait_ms(500).with_min_bytes(size + 1));
    rig.produce(1, "t", 0, batch_of(&["a"]));
    assert_eq!(rig.next(reader), None);
    rig.produce(1, "t", 0, batch_of(&["b"]));
    assert_eq!(values(&only(rig.answer::<FetchRequest>(reader, 12).expect("enough"))), ["a", "b"]);
}

/// A broker gives the first batch whole however small the limits, cuts the last at them, and leaves the rest empty (KIP-74).
#[test]
fn limits_cut_the_last_batch_and_never_the_first() {
    let mut rig = Rig::new(1).topic("t", 2);
    for value in ["a", "b", "c"] {
        rig.produce(1, "t", 0, batch_of(&[value]));
        rig.produce(1, "t", 1, batch_of(&[value]));
    }
    let size = batch_of(&["a"]).bytes().len();
    let lengths = |answer: &FetchResponse| -> Vec<usize> {
        answer.responses[0].partitions.iter().map(|data| data.records.as_ref().expect("records").len()).collect()
    };
    let mut request = fetch("t", &[(0, 0), (1, 0)]).with_max_bytes(1);
    assert_eq!(lengths(&rig.ask_node(1, 12, &request)), [size, 0], "one batch in all");
    request.max_bytes = (2 * size + 10) as i32;
    assert_eq!(lengths(&rig.ask_node(1, 12, &request)), [2 * size + 10, 0], "a cut batch at the end");
    request.max_bytes = 1 << 20;
    request.topics[0].partitions[0].partition_max_bytes = 1;
    assert_eq!(lengths(&rig.ask_node(1, 12, &request)), [size, 3 * size], "a partition's own limit");
}

#[test]
fn errors_are_told_at_once_by_partition() {
    let mut rig = Rig::new(1).topic("t", 1);
    rig.cluster.bump_leader_epoch(&at("t", 0), rig.now).expect("there");
    let mut epoch_of = |epoch: i32, offset: i64| {
        let mut request = fetch("t", &[(0, offset)]).with_max_wait_ms(60_000);
        request.topics[0].partitions[0].current_leader_epoch = epoch;
        let data = only(rig.ask_node(1, 12, &request));
        (code(data.error_code), data.current_leader.leader_epoch)
    };
    assert_eq!(epoch_of(0, 0), (ErrorCode::FENCED_LEADER_EPOCH, 1));
    assert_eq!(epoch_of(2, 0).0, ErrorCode::UNKNOWN_LEADER_EPOCH);
    assert_eq!(epoch_of(1, 9).0, ErrorCode::OFFSET_OUT_OF_RANGE);
    assert_eq!(code(rig.fetch(1, "nowhere", 0, 0).error_code), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
}

fn in_session(session: i32, epoch: i32, positions: &[(i32, i64)]) -> FetchRequest {
    let request = fetch("t", positions).with_session_id(session).with_session_epoch(epoch);
    if positions.is_empty() { request.with_topics(Vec::new()) } else { request }
}

fn told(answer: &FetchResponse) -> Vec<i32> {
    answer.responses.iter().flat_map(|topic| &topic.partitions).map(|data| data.partition_index).collect()
}

#[test]
fn a_session_tells_what_changed_and_nothing_else() {
    let mut rig = Rig::new(1).topic("t", 3);
    let reader = rig.connect(1);
    let opened = rig.ask(reader, 12, &in_session(0, 0, &[(0, 0), (1, 0), (2, 0)]));
    let session = opened.session_id;
    assert!(session > 0);
    assert_eq!(told(&opened), [0, 1, 2], "the first answer tells all");
    assert_eq!(told(&rig.ask(reader, 12, &in_session(session, 1, &[]))), [0; 0]);
    rig.produce(1, "t", 1, batch_of(&["a"]));
    assert_eq!(told(&rig.ask(reader, 12, &in_session(session, 2, &[]))), [1]);
    assert_eq!(told(&rig.ask(reader, 12, &in_session(session, 3, &[(1, 1)]))), [0; 0], "moved on, and nothing is new");

    let mut forget = in_session(session, 4, &[]);
    forget.forgotten_topics_data = vec![ForgottenTopic::default().with_topic(name("t")).with_partitions(vec![1])];
    rig.ask(reader, 12, &forget);
    rig.produce(1, "t", 1, batch_of(&["b"]));
    rig.produce(1, "t", 2, batch_of(&["c"]));
    assert_eq!(told(&rig.ask(reader, 12, &in_session(session, 5, &[]))), [2]);
}

#[test]
fn a_session_that_is_unknown_or_out_of_step_is_refused_as_a_whole() {
    let mut rig = Rig::new(1).topic("t", 1);
    let reader = rig.connect(1);
    let session = rig.ask(reader, 12, &in_session(0, 0, &[(0, 0)])).session_id;
    let refused = |answer: FetchResponse| (code(answer.error_code), answer.session_id, answer.responses.len());
    let unknown = rig.ask(reader, 12, &in_session(session ^ 1, 1, &[]));
    assert_eq!(refused(unknown), (ErrorCode::FETCH_SESSION_ID_NOT_FOUND, 0, 0));
    let ahead = rig.ask(reader, 12, &in_session(session, 2, &[]));
    assert_eq!(refused(ahead), (ErrorCode::INVALID_FETCH_SESSION_EPOCH, 0, 0));
    let closing = rig.ask(reader, 12, &in_session(session, -1, &[(0, 0)]));
    assert_eq!((closing.error_code, closing.session_id), (0, 0));
    let closed = rig.ask(reader, 12, &in_session(session, 1, &[]));
    assert_eq!(refused(closed).0, ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
}

#[test]
fn sessions_are_bounded_and_only_idle_ones_make_room() {
    let mut rig = Rig::with(1, |settings| settings.max_fetch_sessions = 1).topic("t", 1);
    let reader = rig.connect(1);
    let first = rig.ask(reader, 12, &in_session(0, 0, &[(0, 0)])).session_id;
    assert_eq!(rig.ask(reader, 12, &in_session(0, 0, &[(0, 0)])).session_id, 0, "no room");
    rig.pass(Duration::from_secs(121));
    let second = rig.ask(reader, 12, &in_session(0, 0, &[(0, 0)])).session_id;
    assert!(second != 0 && second != first);
}

#[test]
fn offsets_are_looked_up_by_place_and_by_time() {
    let mut rig = Rig::new(1).topic("t", 1);
    for time in [10, 30, 20] {
        let mut writer = BatchWriter::new(Compression::NONE);
        writer.append(Timestamp(time), None, Some(b"x"), []).expect("fits");
        writer.append(Timestamp(time + 1), None, Some(b"y"), []).expect("fits");
        rig.produce(1, "t", 0, writer.close(Closing::default()).expect("records"));
    }
    rig.cluster.delete_records(&at("t", 0), crate::record::Offset(1), rig.now).expect("deleted");
    let mut found = |time: i64| {
        let asked = ListOffsetsPartition::default().with_timestamp(time).with_current_leader_epoch(-1);
        let topic = ListOffsetsTopic::default().with_name(name("t")).with_partitions(vec![asked]);
        let request = ListOffsetsRequest::default().with_topics(vec![topic]);
        let answer = rig.ask_node(1, 9, &request).topics[0].partitions[0].clone();
        (answer.error_code, answer.offset, answer.timestamp)
    };
    for (asked, expected) in [
        (-1, (0, 6, -1)),
        (-2, (0, 1, -1)),
        (-3, (0, 3, 31)),
        (-5, (0, -1, -1)),
        (10, (0, 1, 11)),
        (25, (0, 2, 30)),
        (31, (0, 3, 31)),
        (32, (0, -1, -1)),
        (-9, (ErrorCode::UNSUPPORTED_VERSION.0, -1, -1)),
    ] {
        assert_eq!(found(asked), expected, "timestamp {asked}");
    }
}

#[test]
fn an_epoch_ends_where_the_next_begins() {
    let mut rig = Rig::new(1).topic("t", 1);
    rig.produce(1, "t", 0, batch_of(&["a", "b"]));
    rig.cluster.bump_leader_epoch(&at("t", 0), rig.now).expect("there");
    rig.produce(1, "t", 0, batch_of(&["c"]));
    let mut end_of = |epoch: i32| {
        let asked = OffsetForLeaderPartition::default().with_leader_epoch(epoch).with_current_leader_epoch(1);
        let topic = OffsetForLeaderTopic::default().with_topic(name("t")).with_partitions(vec![asked]);
        let answer = rig.ask_node(1, 4, &OffsetForLeaderEpochRequest::default().with_topics(vec![topic]));
        let answer = &answer.topics[0].partitions[0];
        (answer.error_code, answer.leader_epoch, answer.end_offset)
    };
    assert_eq!([end_of(0), end_of(1), end_of(2)], [(0, 0, 2), (0, 1, 3), (0, -1, -1)]);
}
