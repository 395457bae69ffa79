use super::*;
use proptest::prelude::*;
use serde_json::Value;

fn partitions(list: &[(&str, i32)]) -> Vec<TopicPartition> {
    list.iter().map(|(topic, partition)| TopicPartition::new(*topic, *partition)).collect()
}

#[test]
fn each_version_writes_the_fields_it_has() {
    let subscription = Subscription {
        topics: vec![Topic::from("a")],
        user_data: Some(Bytes::from_static(b"u")),
        owned_partitions: Some(partitions(&[("a", 1)])),
        generation: Some(7),
        rack: Some("r".into()),
    };
    let v0: &[u8] = b"\0\0\0\0\0\x01\0\x01a\0\0\0\x01u";
    let owned: &[u8] = b"\0\0\0\x01\0\x01a\0\0\0\x01\0\0\0\x01";
    let with_version = |version: u8, tail: &[u8]| [&[0, version], &v0[2..], owned, tail].concat();
    assert_eq!(subscription.encode(0).unwrap(), v0);
    assert_eq!(subscription.encode(1).unwrap(), with_version(1, b""));
    assert_eq!(subscription.encode(2).unwrap(), with_version(2, b"\0\0\0\x07"));
    assert_eq!(subscription.encode(3).unwrap(), with_version(3, b"\0\0\0\x07\0\x01r"));
}

#[test]
fn a_newer_version_is_read_as_the_newest_known() {
    let subscription = Subscription { topics: vec![Topic::from("a")], rack: Some("r".into()), ..Default::default() };
    let mut bytes = BytesMut::from(&subscription.encode(3).unwrap()[..]);
    bytes[1] = 9;
    bytes.extend_from_slice(b"fields of the future");
    let read = Subscription::decode(&bytes.freeze()).unwrap();
    assert_eq!(read.topics, subscription.topics);
    assert_eq!(read.rack, subscription.rack);
}

/// platformatic's client writes version 1 without owned partitions; strict readers (segmentio/kafka-go#1156) took the
/// whole member for broken.
#[test]
fn a_subscription_may_end_before_any_field_after_the_topics() {
    let whole = Subscription {
        topics: vec![Topic::from("a")],
        user_data: Some(Bytes::new()),
        owned_partitions: Some(Vec::new()),
        generation: Some(2),
        rack: Some("r".into()),
    };
    let bytes = whole.encode(3).unwrap();
    let ends = [(9, 0), (13, 1), (17, 2), (21, 3), (24, 4)];
    for (end, fields) in ends {
        let read = Subscription::decode(&bytes.slice(..end)).unwrap();
        assert_eq!(read.user_data.is_some(), fields >= 1, "end {end}");
        assert_eq!(read.owned_partitions.is_some(), fields >= 2, "end {end}");
        assert_eq!(read.generation.is_some(), fields >= 3, "end {end}");
        assert_eq!(read.rack.is_some(), fields >= 4, "end {end}");
    }
    let within = (0..bytes.len()).filter(|end| !ends.iter().any(|(good, _)| good == end));
    for end in within {
        let error = Subscription::decode(&bytes.slice(..end)).unwrap_err();
        assert!(matches!(error, MembershipError::TooShort { .. }), "end {end}: {error}");
    }
}

#[test]
fn an_empty_assignment_is_nothing_assigned() {
    assert_eq!(Assignment::decode(&Bytes::new()).unwrap(), Assignment::default());
    assert_eq!(Assignment::decode(&Bytes::from_static(b"\0\0\0\0\0\0")).unwrap(), Assignment::default());
}

#[test]
fn counts_that_lie_are_told_with_their_place() {
    let decode = |bytes: &'static [u8]| Subscription::decode(&Bytes::from_static(bytes)).unwrap_err();
    assert_eq!(
        decode(b"\0\x01\x7f\xff\xff\xff"),
        MembershipError::TooShort { position: 6, wanted: 0xffff_fffe, left: 0 }
    );
    assert_eq!(decode(b"\0\x01\xff\xff\xff\xff"), MembershipError::Negative { position: 2, value: -1 });
    assert_eq!(decode(b"\xff\xff\0\0\0\0"), MembershipError::Negative { position: 0, value: -1 });
    assert_eq!(decode(b"\0\0\0\0\0\x01\0\x01\xff"), MembershipError::NotUtf8 { position: 6 });
    assert_eq!(decode(b"\0\0\0\0\0\x01\xff\xff"), MembershipError::Negative { position: 6, value: -1 });
    let error = Assignment::decode(&Bytes::from_static(b"\0\0\0\0\0\x01\0\x01a\0\0\0\x03\0\0\0\x01")).unwrap_err();
    assert_eq!(error, MembershipError::TooShort { position: 13, wanted: 6, left: 4 });
}

#[test]
fn names_that_the_wire_cannot_say_are_refused() {
    let long = "x".repeat(40_000);
    let subscription = Subscription { topics: vec![Topic::from(long.as_str())], ..Default::default() };
    assert_eq!(subscription.encode(1), Err(MembershipError::TooLong { length: 40_000 }));
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        topics in proptest::collection::vec("[a-z]{0,5}", 0..5),
        user_data in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..20)),
        owned in proptest::collection::btree_set(("[a-z]{0,3}", any::<i32>()), 0..20),
        generation in proptest::option::of(0..i32::MAX),
        rack in proptest::option::of("[a-z]{1,5}"),
    ) {
        let owned: Vec<_> = owned.into_iter().map(|(topic, partition)| TopicPartition::new(topic, partition)).collect();
        let subscription = Subscription {
            topics: topics.into_iter().map(Topic::from).collect(),
            user_data: user_data.map(Bytes::from),
            owned_partitions: Some(owned.clone()),
            generation,
            rack,
        };
        prop_assert_eq!(&Subscription::decode(&subscription.encode(3).unwrap()).unwrap(), &subscription);
        let assignment = Assignment { partitions: owned, user_data: subscription.user_data };
        prop_assert_eq!(&Assignment::decode(&assignment.encode(0).unwrap()).unwrap(), &assignment);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let bytes = Bytes::from(bytes);
        let _ = Subscription::decode(&bytes);
        let _ = Assignment::decode(&bytes);
    }
}

/// What librdkafka, Java, kafkajs, platformatic and Node's kafka-harbor wrote on real brokers.
#[test]
fn the_bytes_of_other_clients_are_read() {
    let golden: Value =
        serde_json::from_str(include_str!("../../../scripts/interop/golden/group-metadata.json")).unwrap();
    let mut subscriptions = 0;
    for case in golden["cases"].as_array().unwrap() {
        for member in case["members"].as_array().unwrap() {
            if let Some(expected) = member["subscription"].as_object() {
                subscriptions += 1;
                let read = Subscription::decode(&base64(&member["metadata"]).unwrap()).unwrap();
                let topics: Vec<&str> = read.topics.iter().map(Topic::as_str).collect();
                assert_eq!(serde_json::json!(topics), expected["topics"], "{}", case["case"]);
                assert_eq!(read.user_data, base64(&expected["user_data"]));
                let owned = expected.get("owned_partitions").map(topic_partitions);
                assert_eq!(read.owned_partitions, owned, "{}", case["case"]);
                let generation = expected.get("generation_id").and_then(Value::as_i64).filter(|id| *id >= 0);
                assert_eq!(read.generation.map(i64::from), generation);
                let rack = expected.get("rack_id").and_then(Value::as_str).filter(|rack| !rack.is_empty());
                assert_eq!(read.rack.as_deref(), rack);
            }
            if let Some(expected) = member["assigned"].as_object() {
                let read = Assignment::decode(&base64(&member["assignment"]).unwrap()).unwrap();
                assert_eq!(read.partitions, topic_partitions(&expected["partitions"]), "{}", case["case"]);
                assert_eq!(read.user_data, base64(&expected["user_data"]));
            }
        }
    }
    assert!(subscriptions > 20, "only {subscriptions} subscriptions were looked at");
}

fn topic_partitions(value: &Value) -> Vec<TopicPartition> {
    let topics = value.as_array().unwrap().iter();
    topics
        .flat_map(|topic| {
            let name = topic[0].as_str().unwrap();
            let numbers = topic[1].as_array().unwrap().iter();
            numbers.map(move |number| TopicPartition::new(name, i32::try_from(number.as_i64().unwrap()).unwrap()))
        })
        .collect()
}

/// `None` for JSON's null.
fn base64(value: &Value) -> Option<Bytes> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = BytesMut::new();
    let digits = value.as_str()?.bytes().filter(|byte| *byte != b'=');
    let digits: Vec<u32> =
        digits.map(|byte| ALPHABET.iter().position(|known| *known == byte).unwrap() as u32).collect();
    for group in digits.chunks(4) {
        let bits = group.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - group.len()));
        out.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(out.freeze())
}
