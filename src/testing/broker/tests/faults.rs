use super::*;
use crate::protocol::api::ApiKey;
use kafka_protocol::messages::MetadataRequest;

const FETCH: ApiKey = ApiKey(1);
const METADATA: ApiKey = ApiKey(3);

fn failing(rig: &mut Rig, rule: Rule) -> Vec<ErrorCode> {
    rig.cluster.order(rule);
    (0..4).map(|_| code(rig.fetch(1, "t", 0, 0).error_code)).collect()
}

#[test]
fn a_rule_is_used_as_often_as_it_says_after_as_many_as_it_says() {
    let broken = Effect::Fail(ErrorCode::KAFKA_STORAGE_ERROR);
    let (ok, bad) = (ErrorCode::NONE, ErrorCode::KAFKA_STORAGE_ERROR);
    let mut rig = Rig::new(2).topic("t", 2);
    assert_eq!(failing(&mut rig, Rule::new(FETCH, broken.clone())), [bad, ok, ok, ok]);
    assert_eq!(failing(&mut rig, Rule::new(FETCH, broken.clone()).skip(1).times(2)), [ok, bad, bad, ok]);
    assert_eq!(failing(&mut rig, Rule::new(FETCH, broken.clone()).node(2)), [ok; 4]);
    assert_eq!(failing(&mut rig, Rule::new(METADATA, broken.clone())), [ok; 4]);
    assert_eq!(failing(&mut rig, Rule::new(FETCH, broken.clone()).partition(1)), [ok; 4]);
    assert_eq!(failing(&mut rig, Rule::new(FETCH, broken.clone()).client_id("other")), [ok; 4]);
    assert_eq!(rig.cluster.rules_left(), 4, "those that nobody met");
    let id = rig.cluster.order(Rule::new(FETCH, broken).topic("t").always());
    assert_eq!(code(rig.fetch(1, "t", 0, 0).error_code), bad);
    assert_eq!(rig.cluster.withdraw(id), Some(1));
    assert_eq!(code(rig.fetch(1, "t", 0, 0).error_code), ok);
}

#[test]
fn a_rule_for_a_partition_fails_that_one_alone() {
    let mut rig = Rig::new(1).topic("t", 2);
    rig.cluster.order(Rule::new(ApiKey(0), Effect::Fail(ErrorCode::NOT_LEADER_OR_FOLLOWER)).topic("t").partition(1));
    let mut request = produce("t", 0, batch_of(&["a"]).into_bytes(), -1);
    let second = PartitionProduceData::default().with_index(1).with_records(Some(batch_of(&["b"]).into_bytes()));
    request.topic_data[0].partition_data.push(second);
    let answer = rig.ask_node(1, 9, &request);
    let codes: Vec<_> = answer.responses[0].partition_responses.iter().map(|it| code(it.error_code)).collect();
    assert_eq!(codes, [ErrorCode::NONE, ErrorCode::NOT_LEADER_OR_FOLLOWER]);
    assert_eq!(rig.cluster.partition(&at("t", 1)).expect("there").high_watermark.0, 0, "and is not acted on");
}

/// What one effect does to a Produce, and whether the record was written.
fn suffer(effect: Effect) -> (Rig, ConnectionId, bool) {
    let mut rig = Rig::new(1).topic("t", 1);
    rig.cluster.order(Rule::any(effect));
    let connection = rig.connect(1);
    rig.send(connection, 9, &produce("t", 0, batch_of(&["a"]).into_bytes(), 1));
    let written = rig.cluster.partition(&at("t", 0)).expect("there").high_watermark.0 == 1;
    (rig, connection, written)
}

#[test]
fn silence_and_dropped_answers_keep_the_connection_and_say_nothing_more() {
    for (effect, acts) in [(Effect::Silence, false), (Effect::DropAnswer, true)] {
        let (mut rig, connection, written) = suffer(effect);
        assert_eq!(written, acts);
        rig.send(connection, 12, &fetch("t", &[(0, 0)]));
        rig.pass(Duration::from_secs(3600));
        assert_eq!(rig.next(connection), None);
        assert_eq!(rig.cluster.connections().len(), 1);
    }
}

#[test]
fn closing_comes_before_or_after_the_act() {
    for (effect, acts) in [(Effect::Close, false), (Effect::CloseAfter, true)] {
        let (mut rig, connection, written) = suffer(effect);
        assert_eq!(written, acts);
        assert!(rig.is_closed(connection));
    }
}

#[test]
fn a_refusal_comes_instead_of_the_act_or_after_it() {
    let code = ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND;
    for (effect, acts) in [(Effect::Fail(code), false), (Effect::FailAfter(code), true)] {
        let (mut rig, connection, written) = suffer(effect);
        assert_eq!(written, acts);
        let answer = rig.answer::<ProduceRequest>(connection, 9).expect("it is answered");
        assert_eq!(answer.responses[0].partition_responses[0].error_code, code.0);
    }
}

/// What waits for its answer is refused when it would have been answered, not before.
#[test]
fn a_refusal_after_the_act_waits_as_the_answer_would() {
    let mut rig = Rig::new(1).topic("t", 1);
    rig.cluster.order(Rule::new(FETCH, Effect::FailAfter(ErrorCode::NOT_LEADER_OR_FOLLOWER)));
    let reader = rig.connect(1);
    rig.send(reader, 12, &fetch("t", &[(0, 0)]).with_max_wait_ms(60_000));
    assert_eq!(rig.next(reader), None, "nothing is there to read");
    let writer = rig.connect(1);
    rig.send(writer, 9, &produce("t", 0, batch_of(&["a"]).into_bytes(), 1));
    let answer = rig.answer::<FetchRequest>(reader, 12).expect("something is there now");
    assert_eq!(answer.responses[0].partitions[0].error_code, ErrorCode::NOT_LEADER_OR_FOLLOWER.0);
}

#[test]
fn delays_come_before_or_after_the_act() {
    let time = Duration::from_secs(5);
    for (effect, acts) in [(Effect::Delay(time), false), (Effect::DelayAnswer(time), true)] {
        let (mut rig, connection, written) = suffer(effect);
        assert_eq!(written, acts);
        rig.pass(time - Duration::from_millis(1));
        assert_eq!(rig.next(connection), None);
        rig.pass(Duration::from_millis(1));
        let answer = rig.answer::<ProduceRequest>(connection, 9).expect("its time has come");
        assert_eq!(answer.responses[0].partition_responses[0].base_offset, 0);
    }
}

#[test]
fn a_cut_answer_ends_within_its_frame() {
    let (mut rig, connection, written) = suffer(Effect::Cut(7));
    assert!(written);
    let Some(Output::Send { frame, .. }) = rig.next(connection) else { panic!("the first bytes") };
    assert_eq!(frame.len(), 7);
    assert!(rig.is_closed(connection));
}

/// KIP-219: the answer comes at once, then the connection is not read from.
#[test]
fn a_throttled_client_hears_so_at_once_and_waits_for_the_next_answer() {
    let (mut rig, connection, _) = suffer(Effect::Throttle(Duration::from_secs(2)));
    let answer = rig.answer::<ProduceRequest>(connection, 9).expect("at once");
    assert_eq!(answer.throttle_time_ms, 2_000);
    rig.send(connection, 9, &MetadataRequest::default());
    rig.pass(Duration::from_millis(1_999));
    assert_eq!(rig.next(connection), None);
    rig.pass(Duration::from_millis(1));
    assert!(rig.answer::<MetadataRequest>(connection, 9).is_some());
}

#[test]
fn every_api_can_say_every_code_in_every_version() {
    let mut rig = Rig::new(1).topic("t", 1);
    for api in api::APIS {
        for version in api.versions.min..=api.versions.max {
            for seed in 0..4 {
                let mut random = crate::protocol::shape::sample::Random::new(seed);
                let body = crate::protocol::shape::sample::request(api.key, version, &mut random);
                rig.cluster.order(Rule::new(api.key, Effect::Fail(ErrorCode::REQUEST_TIMED_OUT)));
                let connection = rig.connect(1);
                rig.cluster.handle(connection, hostile::framed(api, version, &body), rig.now);
                match rig.next(connection) {
                    Some(Output::Send { .. }) => {}
                    other => panic!("{} {version}: {other:?}", api.key),
                }
            }
        }
    }
}
