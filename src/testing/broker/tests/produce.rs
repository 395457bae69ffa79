use super::*;

#[test]
fn records_get_offsets_and_every_version_is_answered() {
    let mut rig = Rig::new(1).topic("t", 1);
    for (index, version) in (3..=12).enumerate() {
        let answer = rig.ask_node(1, version, &produce("t", 0, batch_of(&["a", "b"]).into_bytes(), 1));
        let answer = &answer.responses[0].partition_responses[0];
        assert_eq!((answer.error_code, answer.base_offset), (0, index as i64 * 2), "version {version}");
    }
    assert_eq!(values(&rig.fetch(1, "t", 0, 18)), ["a", "b"]);
}

#[test]
fn a_topic_is_named_by_its_id_from_version_13_on() {
    let mut rig = Rig::new(1).topic("t", 1);
    let (_, topic) = rig.cluster.core.topics.get("t").expect("there");
    let id = topic.id;
    let mut request = produce("t", 0, batch_of(&["a"]).into_bytes(), 1);
    request.topic_data[0] = std::mem::take(&mut request.topic_data[0]).with_name(name("")).with_topic_id(id);
    let answer = rig.ask_node(1, 13, &request);
    assert_eq!((answer.responses[0].topic_id, answer.responses[0].partition_responses[0].error_code), (id, 0));
    request.topic_data[0].topic_id = uuid::Uuid::from_u128(1);
    let answer = rig.ask_node(1, 13, &request);
    let refused = code(answer.responses[0].partition_responses[0].error_code);
    assert_eq!(refused, ErrorCode::UNKNOWN_TOPIC_ID);
}

#[test]
fn a_resend_is_answered_with_its_first_offset() {
    let mut rig = Rig::new(1).topic("t", 1);
    for sequence in 0..3 {
        assert_eq!(rig.produce(1, "t", 0, numbered(&["x"], 5, 0, sequence)).base_offset, i64::from(sequence));
    }
    let again = rig.produce(1, "t", 0, numbered(&["x"], 5, 0, 1));
    assert_eq!((again.error_code, again.base_offset), (0, 1));
    assert_eq!(rig.cluster.partition(&at("t", 0)).expect("there").high_watermark.0, 3);
}

#[test]
fn gaps_and_old_epochs_are_refused_by_their_codes() {
    let mut rig = Rig::new(1).topic("t", 1);
    let cases = [
        (numbered(&["x"], 5, 1, 7), ErrorCode::NONE, "an unknown producer begins anywhere"),
        (numbered(&["x"], 5, 1, 9), ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, "a gap"),
        (numbered(&["x"], 5, 0, 8), ErrorCode::INVALID_PRODUCER_EPOCH, "an old epoch"),
        (numbered(&["x"], 5, 2, 8), ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, "a new epoch begins at 0"),
        (numbered(&["x"], 5, 2, 0), ErrorCode::NONE, "a new epoch"),
    ];
    for (batch, expected, what) in cases {
        assert_eq!(code(rig.produce(1, "t", 0, batch).error_code), expected, "{what}");
    }
    rig.cluster.lose_producer_state(&at("t", 0), rig.now).expect("there");
    assert_eq!(rig.produce(1, "t", 0, numbered(&["x"], 5, 2, 40)).error_code, 0, "its state is lost");
}

#[test]
fn what_is_no_batch_is_refused_and_the_rest_of_the_request_is_not() {
    let mut rig = Rig::new(1).topic("t", 2);
    let two = [batch_of(&["a"]).into_bytes(), batch_of(&["b"]).into_bytes()].concat();
    let mut broken = batch_of(&["a"]).into_bytes().to_vec();
    *broken.last_mut().expect("bytes") ^= 1;
    for (records, expected) in [
        (Vec::new(), ErrorCode::INVALID_RECORD),
        (two, ErrorCode::INVALID_RECORD),
        (broken, ErrorCode::CORRUPT_MESSAGE),
        (b"abc".to_vec(), ErrorCode::INVALID_RECORD),
        (
            closed(&["x"], Closing { is_control: true, ..Closing::default() }).into_bytes().to_vec(),
            ErrorCode::INVALID_RECORD,
        ),
    ] {
        let mut request = produce("t", 0, records.into(), -1);
        let good = PartitionProduceData::default().with_index(1).with_records(Some(batch_of(&["ok"]).into_bytes()));
        request.topic_data[0].partition_data.push(good);
        let answer = rig.ask_node(1, 9, &request);
        let codes: Vec<_> = answer.responses[0].partition_responses.iter().map(|it| code(it.error_code)).collect();
        assert_eq!(codes, [expected, ErrorCode::NONE]);
    }
}

#[test]
fn without_acks_nothing_is_answered_and_a_failure_closes_the_connection() {
    let mut rig = Rig::new(1).topic("t", 1);
    let connection = rig.connect(1);
    rig.send(connection, 9, &produce("t", 0, batch_of(&["a"]).into_bytes(), 0));
    assert_eq!(rig.next(connection), None);
    assert_eq!(values(&rig.fetch(1, "t", 0, 0)), ["a"]);
    rig.send(connection, 9, &produce("t", 7, batch_of(&["a"]).into_bytes(), 0));
    assert!(rig.is_closed(connection));
    let answer = rig.ask_node(1, 9, &produce("t", 0, batch_of(&["a"]).into_bytes(), 2));
    assert_eq!(code(answer.responses[0].partition_responses[0].error_code), ErrorCode::INVALID_REQUIRED_ACKS);
}

#[test]
fn append_times_are_the_clusters_wall_clock() {
    let mut rig = Rig::new(1);
    let config = TopicConfig { log_append_time: true, ..TopicConfig::default() };
    rig.cluster.create_topic("t", 1, 1, config, rig.now).expect("created");
    rig.pass(Duration::from_secs(3));
    assert_eq!(rig.produce(1, "t", 0, batch_of(&["a"])).log_append_time_ms, WALL.0 + 3_000);
    rig.cluster.set_wall(Timestamp(WALL.0 - 60_000), rig.now);
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.produce(1, "t", 0, batch_of(&["a"])).log_append_time_ms, WALL.0 - 59_000, "it was set back");
}

/// Kafka answers a resend with the latest time of what is there, whoever gave it.
#[test]
fn a_resend_is_answered_with_the_time_that_is_there() {
    let mut rig = Rig::new(1).topic("given", 1);
    let config = TopicConfig { log_append_time: true, ..TopicConfig::default() };
    rig.cluster.create_topic("stamped", 1, 1, config, rig.now).expect("created");
    for (topic, first, again) in [("given", -1, WALL.0), ("stamped", WALL.0, WALL.0)] {
        let batch = numbered(&["a"], 7, 0, 0);
        assert_eq!(rig.produce(1, topic, 0, batch.clone()).log_append_time_ms, first);
        rig.cluster.poll(rig.now);
        assert_eq!(rig.produce(1, topic, 0, batch).log_append_time_ms, again, "{topic}");
    }
}

#[test]
fn times_that_a_topic_does_not_let_producers_say_are_refused() {
    let mut rig = Rig::new(1).topic("t", 1);
    let config = TopicConfig { timestamp_before_max_ms: 1_000, ..TopicConfig::default() };
    rig.cluster.create_topic("recent", 1, 1, config, rig.now).expect("created");
    let stamped = TopicConfig { log_append_time: true, timestamp_after_max_ms: 0, ..TopicConfig::default() };
    rig.cluster.create_topic("stamped", 1, 1, stamped, rig.now).expect("created");
    let hour = 3_600_000;
    for (topic, ahead, expected) in [
        ("t", hour, ErrorCode::NONE),
        ("t", hour + 1, ErrorCode::INVALID_TIMESTAMP),
        ("t", -1_000 * hour, ErrorCode::NONE),
        ("recent", -1_000, ErrorCode::NONE),
        ("recent", -1_001, ErrorCode::INVALID_TIMESTAMP),
        ("stamped", 2 * hour, ErrorCode::NONE),
    ] {
        let mut writer = BatchWriter::new(Compression::NONE);
        for time in [WALL, Timestamp(WALL.0 + ahead)] {
            writer.append(time, None, Some(b"v"), []).expect("fits");
        }
        let answer = rig.produce(1, topic, 0, writer.close(Closing::default()).expect("has records"));
        assert_eq!(code(answer.error_code), expected, "{topic} {ahead}");
    }
}

#[test]
fn logs_do_not_outgrow_their_bound() {
    let mut rig = Rig::with(1, |settings| settings.max_log_bytes = 200).topic("t", 1);
    assert_eq!(rig.produce(1, "t", 0, batch_of(&["a"])).error_code, 0);
    assert_eq!(rig.produce(1, "t", 0, batch_of(&["a"])).error_code, 0);
    assert_eq!(code(rig.produce(1, "t", 0, batch_of(&["a"])).error_code), ErrorCode::KAFKA_STORAGE_ERROR);
}
