use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// Headers in the encoding of a record batch, to be read as if they had been fetched.
struct Fetched {
    count: usize,
    bytes: Vec<u8>,
}

impl Fetched {
    fn new(headers: &[Header]) -> Self {
        let mut bytes = Vec::new();
        for header in headers {
            field(&mut bytes, Some(&header.name));
            field(&mut bytes, header.value.as_deref());
        }
        Self { count: headers.len(), bytes }
    }

    fn view(&self) -> HeadersView<'_> {
        HeadersView::take(self.count, &mut &self.bytes[..]).unwrap()
    }
}

fn field(bytes: &mut Vec<u8>, value: Option<&[u8]>) {
    let length = value.map_or(-1, |value| value.len() as i64);
    let mut zigzag = ((length << 1) ^ (length >> 63)) as u64;
    while zigzag >= 0x80 {
        bytes.push(zigzag as u8 | 0x80);
        zigzag >>= 7;
    }
    bytes.push(zigzag as u8);
    bytes.extend_from_slice(value.unwrap_or_default());
}

fn stamper() -> Stamper {
    let ids = CorrelationIds::from_fn(|| Some("minted".into()));
    Stamper::new(HeaderNames::default(), "orders-service", ids)
}

fn block(count: &str, topic: &str, failed_at: &str, error: Option<&str>) -> Option<RetryBlock> {
    let names = HeaderNames::default();
    let mut headers = vec![
        Header::new(names.retry_count().to_owned(), count.to_owned()),
        Header::new(names.original_topic().to_owned(), topic.to_owned()),
        Header::new(names.first_failure_at().to_owned(), failed_at.to_owned()),
    ];
    headers.extend(error.map(|error| Header::new(names.last_error().to_owned(), error.to_owned())));
    names.read_ladder(Fetched::new(&headers).view()).block
}

const INSTANT: &str = "2026-11-30T13:27:02.495Z";

fn hop<'a>(previous: Option<&'a RetryBlock>) -> Hop<'a> {
    Hop {
        previous,
        original_topic: "orders",
        error: "ValidationError: bad sku é",
        failed_at: instant::parse(INSTANT).unwrap(),
        group: "orders-group",
        dead_letter: false,
    }
}

fn named(headers: &[Header]) -> Vec<(String, Option<String>)> {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    headers.iter().map(|header| (text(&header.name), header.value.as_ref().map(text))).collect()
}

#[test]
fn names_are_a_prefix_and_an_ending() {
    assert_eq!(HeaderNames::default().correlation_id(), "x-correlation-id");
    assert_eq!(HeaderNames::with_prefix("").retry_count(), "retry-count");
    assert_eq!(HeaderNames::with_prefix("harbor.").retry_group(), "harbor.retry-group");
}

#[test]
fn a_count_is_one_to_nine_ascii_digits_and_not_nought() {
    for (text, count) in [("1", 1), (" 2 ", 2), ("007", 7), ("123456789", 123_456_789), ("\u{feff}3\u{a0}", 3)] {
        assert_eq!(block(text, "orders", INSTANT, None).map(|block| block.count), Some(count), "{text:?}");
    }
    for text in [
        "",
        " ",
        "abc",
        "-1",
        "+1",
        "1.5",
        "0",
        "000",
        "1e3",
        "1234567890",
        "0000000001",
        "٣",
        "1 2",
        "\u{85}3",
        "3\u{200b}",
        "0x1",
    ] {
        assert_eq!(block(text, "orders", INSTANT, None), None, "{text:?}");
    }
}

#[test]
fn a_block_is_valid_whole_or_not_at_all() {
    let valid = block("2", " orders ", INSTANT, Some("E: bad")).unwrap();
    assert_eq!(valid.original_topic, " orders ");
    assert_eq!(instant::write(valid.first_failure_at), INSTANT);
    assert_eq!(valid.last_error, "E: bad");
    assert_eq!(block("2", "orders", INSTANT, None).unwrap().last_error, "");
    assert!(block("2", "orders", "2020-01-01", None).is_some());
    for (topic, failed_at) in [
        ("", INSTANT),
        (" \u{feff}", INSTANT),
        ("orders", ""),
        ("orders", " "),
        ("orders", "yesterday"),
        ("orders", "1"),
    ] {
        assert_eq!(block("2", topic, failed_at, None), None, "{topic:?} {failed_at:?}");
    }
    let names = HeaderNames::default();
    assert_eq!(names.read_ladder(HeadersView::default()).block, None);
}

#[test]
fn the_last_value_of_a_name_counts_and_null_is_none() {
    let names = HeaderNames::default();
    let mut headers = vec![
        Header::new("x-retry-count", "1"),
        Header::new("x-retry-count", "4"),
        Header::new("x-original-topic", "orders"),
        Header::new("x-first-failure-at", INSTANT),
    ];
    let count = |headers: &[Header]| names.read_ladder(Fetched::new(headers).view()).block.map(|block| block.count);
    assert_eq!(count(&headers), Some(4));
    headers.push(Header::null("x-retry-count"));
    assert_eq!(count(&headers), None);
}

#[test]
fn a_correlation_id_is_kept_unless_it_says_nothing() {
    let stamped = |given: &[Header]| {
        let mut headers = given.to_vec();
        stamper().at(Timestamp(0)).send(&mut headers);
        let names = HeaderNames::default();
        let id = names.correlation_of(Fetched::new(&headers).view()).unwrap().to_vec();
        (id, headers.len())
    };
    let header = |id: &'static [u8]| Header::new("x-correlation-id", id);
    assert_eq!(stamped(&[]), (b"minted".to_vec(), 3));
    assert_eq!(stamped(&[header(b" a ")]), (b" a ".to_vec(), 3));
    assert_eq!(stamped(&[header(b"\xff\xfe")]), (b"\xff\xfe".to_vec(), 3));
    for blank in [header(b""), header(" \u{feff}".as_bytes()), Header::null("x-correlation-id")] {
        assert_eq!(stamped(&[header(b"old"), blank]), (b"minted".to_vec(), 3));
    }
}

#[test]
fn hops_copy_foreign_headers_as_bytes_and_in_place() {
    let given = [
        Header::new("trace", "1"),
        Header::null("nothing"),
        Header::new("trace", "2"),
        Header::new(&b"\xff\xfe"[..], &b"\x80\x00"[..]),
        Header::new("", ""),
        Header::new("__proto__", "kept"),
    ];
    let headers = stamper().at(Timestamp(0)).hop(Fetched::new(&given).view(), &hop(None));
    assert_eq!(headers[..given.len()], given);
}

#[test]
fn our_headers_are_rewritten_in_place_and_never_doubled() {
    let given = [
        Header::new("x-retry-count", "1"),
        Header::new("a", "1"),
        Header::new("x-retry-count", "1"),
        Header::new("x-producer", "another"),
        Header::new("b", "2"),
        Header::null("x-producer"),
    ];
    let headers = named(&stamper().at(Timestamp(0)).hop(Fetched::new(&given).view(), &hop(None)));
    let names: Vec<_> = headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[..4], ["x-retry-count", "a", "x-producer", "b"]);
    assert_eq!(headers[2].1.as_deref(), Some("orders-service"));
    assert_eq!(names.iter().filter(|name| **name == "x-retry-count").count(), 1);
}

/// A billionth failure was written with ten digits, and the block that carried it was read as none: origin and first
/// failure were lost. Found by the fuzz target `retry_headers`.
#[test]
fn a_count_that_is_full_stays_and_keeps_its_block() {
    let previous = block("999999999", "orders-eu", "2020-01-01", None).unwrap();
    let headers = stamper().at(Timestamp(0)).hop(HeadersView::default(), &hop(Some(&previous)));
    let next = HeaderNames::default().read_ladder(Fetched::new(&headers).view()).block.unwrap();
    assert_eq!((next.count, next.original_topic.as_str()), (999_999_999, "orders-eu"));
    assert_eq!(next.first_failure_at, previous.first_failure_at);
}

#[test]
fn what_only_informs_can_go_and_the_ladder_reads_on() {
    let given = [Header::new("trace", "7f"), Header::null("x-producer-id"), Header::new("trace", "80")];
    let stamper = stamper();
    let dead = Hop { dead_letter: true, ..hop(None) };
    let mut headers = stamper.at(Timestamp(0)).hop(Fetched::new(&given).view(), &dead);
    let whole = Fetched::new(&headers);
    stamper.strip(&mut headers);
    let names: Vec<_> = named(&headers).into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            "trace",
            "x-producer-id",
            "trace",
            "x-retry-count",
            "x-original-topic",
            "x-first-failure-at",
            "x-correlation-id",
            "x-retry-group",
        ]
    );
    let (bare, names) = (Fetched::new(&headers), HeaderNames::default());
    let (before, after) = (names.read_ladder(whole.view()), names.read_ladder(bare.view()));
    assert_eq!(after.group, before.group);
    assert_eq!(after.block, before.block.map(|block| RetryBlock { last_error: String::new(), ..block }));
}

#[test]
fn redriving_removes_every_trace_of_the_ladder() {
    let stamper = stamper();
    let stamp = stamper.at(Timestamp(0));
    let dead = stamp.hop(
        Fetched::new(&[Header::new("x-tenant", "acme"), Header::new("x-last-error", "twice")]).view(),
        &Hop { dead_letter: true, ..hop(None) },
    );
    let headers = named(&stamp.redrive(Fetched::new(&dead).view(), &"orders-dlq".into()));
    let names: Vec<_> = headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "x-tenant",
            "x-correlation-id",
            "x-produced-at",
            "x-producer",
            "x-redriven-from",
            "x-redriven-at",
            "x-redrive-count"
        ]
    );
    // A later redrive writes over the earlier one's.
    let again =
        stamp.redrive(Fetched::new(&stamp.redrive(Fetched::new(&dead).view(), &"a".into())).view(), &"b".into());
    assert_eq!(again.len(), 7);
    assert_eq!(again[4], Header::new("x-redriven-from", "b"));
    assert_eq!(again[6], Header::new("x-redrive-count", "2"));
}

#[test]
fn a_letter_that_is_taken_back_is_one_that_can_be_redriven() {
    let stamper = stamper();
    let dead = stamper
        .at(Timestamp(0))
        .hop(Fetched::new(&[Header::new("x-tenant", "acme")]).view(), &Hop { dead_letter: true, ..hop(None) });
    let once = stamper.at(Timestamp(1_000)).redrive(Fetched::new(&dead).view(), &"orders-dlq".into());
    let twice = stamper.at(Timestamp(2_000)).redrive(Fetched::new(&once).view(), &"orders-dlq".into());
    for (brought, count) in [(once, 0), (twice, 1)] {
        let back = stamper.at(Timestamp(3_000)).take_back(Fetched::new(&brought).view(), &"orders".into(), "Undone: x");
        let back = Fetched::new(&back);
        let names = HeaderNames::default();
        let block = names.read_ladder(back.view()).block.unwrap();
        assert_eq!((block.count, block.original_topic.as_str()), (1, "orders"));
        assert_eq!((block.first_failure_at, block.last_error.as_str()), (Timestamp(1_000 * (count + 1)), "Undone: x"));
        assert_eq!(names.redrives_of(back.view()), count as u32, "it was brought back in vain");
        assert_eq!(back.view().last(b"x-redriven-from"), None);
        assert_eq!(back.view().last(b"x-tenant").flatten(), Some(&b"acme"[..]));
    }
}

#[test]
fn redrives_are_counted_also_those_of_the_node_package() {
    let count = |headers: &[Header]| HeaderNames::default().redrives_of(Fetched::new(headers).view());
    assert_eq!(count(&[]), 0);
    let node = Header::new("x-redriven-from", "orders-dlq");
    assert_eq!(count(std::slice::from_ref(&node)), 1);
    assert_eq!(count(&[node.clone(), Header::new("x-redrive-count", "4")]), 4);
    for nonsense in ["0", "-1", "many", "1234567890", ""] {
        assert_eq!(count(&[node.clone(), Header::new("x-redrive-count", nonsense)]), 1, "{nonsense}");
    }
}

#[test]
fn a_record_without_owner_keeps_what_it_tells_of_itself() {
    let given = [Header::new("x-retry-count", "abc"), Header::new("x-last-error", "old")];
    let stamper = stamper();
    let headers = named(&stamper.at(Timestamp(0)).unroutable(Fetched::new(&given).view(), "no owner"));
    let value = |name: &str| headers.iter().find(|(n, _)| n == name).and_then(|(_, value)| value.clone());
    assert_eq!(value("x-retry-count").as_deref(), Some("abc"));
    assert_eq!(value("x-last-error").as_deref(), Some("no owner"));
    assert_eq!(value("x-dead-lettered-at").as_deref(), Some("1970-01-01T00:00:00.000Z"));
    assert_eq!(value("x-original-topic"), None);
    assert_eq!(value("x-retry-group"), None);
}

/// Headers as a peer may write them: ours or others', with text or any bytes, repeated, null.
fn any_headers() -> impl Strategy<Value = Vec<Header>> {
    let ours = proptest::sample::select(vec![
        "x-correlation-id",
        "x-produced-at",
        "x-producer",
        "x-retry-count",
        "x-original-topic",
        "x-first-failure-at",
        "x-last-error",
        "x-dead-lettered-at",
        "x-redriven-from",
        "x-redriven-at",
        "x-redrive-count",
        "x-retry-group",
    ]);
    let name =
        prop_oneof![ours.prop_map(|name| name.as_bytes().to_vec()), proptest::collection::vec(any::<u8>(), 0..4)];
    let sound = proptest::sample::select(vec!["1", " 2 ", "orders", "", " ", INSTANT, "2020-01-01", "yesterday"]);
    let value =
        prop_oneof![sound.prop_map(|text| text.as_bytes().to_vec()), proptest::collection::vec(any::<u8>(), 0..12)];
    let header = (name, proptest::option::weighted(0.9, value))
        .prop_map(|(name, value)| Header { name: name.into(), value: value.map(Into::into) });
    proptest::collection::vec(header, 0..12)
}

proptest! {
    #[test]
    fn a_hop_of_anything_has_a_valid_block_and_loses_no_foreign_header(given in any_headers()) {
        let names = HeaderNames::default();
        let source = Fetched::new(&given);
        let ladder = names.read_ladder(source.view());
        let headers = stamper().at(Timestamp(0)).hop(source.view(), &Hop { previous: ladder.block.as_ref(), ..hop(None) });
        let read = Fetched::new(&headers);
        let next = names.read_ladder(read.view());
        let count = ladder.block.as_ref().map_or(1, |block| block.count + 1);
        prop_assert_eq!(next.block.map(|block| block.count), Some(count));
        prop_assert_eq!(next.group, Some(&b"orders-group"[..]));
        let id = names.correlation_of(read.view()).map(String::from_utf8_lossy);
        prop_assert!(id.is_some_and(|id| !text::is_blank(&id)));
        let foreign = |headers: &[Header]| headers.iter().filter(|h| !h.name.starts_with(b"x-")).cloned().collect::<Vec<_>>();
        prop_assert_eq!(foreign(&headers), foreign(&given));
    }

    #[test]
    fn any_bytes_for_headers_are_an_answer_and_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60), count in 0_usize..4) {
        if let Some(view) = HeadersView::take(count, &mut &bytes[..]) {
            let ladder = HeaderNames::with_prefix("").read_ladder(view);
            stamper().at(Timestamp(0)).hop(view, &Hop { previous: ladder.block.as_ref(), ..hop(None) });
        }
    }

    #[test]
    fn counts_grow_by_one_along_a_chain(first in 1_u32..999_999_998) {
        let stamper = stamper();
        let previous = block(&first.to_string(), "orders", INSTANT, None).unwrap();
        let headers = stamper.at(Timestamp(0)).hop(HeadersView::default(), &hop(Some(&previous)));
        let next = stamper.names().read_ladder(Fetched::new(&headers).view()).block.unwrap();
        prop_assert_eq!(next.count, first + 1);
        prop_assert_eq!(next.first_failure_at, previous.first_failure_at);
    }
}

/// The walks that the Node package wrote on a real broker: ours are the same bytes but for what we add.
mod golden {
    use super::*;

    struct Stage {
        name: String,
        topic: String,
        headers: Vec<Header>,
    }

    impl Stage {
        fn value(&self, name: &str) -> Option<&str> {
            let header = self.headers.iter().rev().find(|header| header.name == name)?;
            std::str::from_utf8(header.value.as_ref()?).ok()
        }

        fn instant(&self, name: &str) -> Timestamp {
            self.value(name).and_then(instant::parse).unwrap()
        }
    }

    /// The test file has header values as text, which all of Node's are.
    fn stages(case: &Value) -> Vec<Stage> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let header = |header: &Value| Header::new(text(&header[0]), text(&header[1]));
        case["records"]
            .as_array()
            .unwrap()
            .iter()
            .map(|record| Stage {
                name: text(&record["stage"]),
                topic: text(&record["topic"]),
                headers: record["headers"].as_array().unwrap().iter().map(header).collect(),
            })
            .collect()
    }

    /// What we write where Node wrote `to`, from what it had read as `from`.
    fn ours(case: &Value, from: &Stage, to: &Stage) -> Vec<Header> {
        let names = HeaderNames::with_prefix(case["prefix"].as_str().unwrap());
        let minted = to.value(names.correlation_id()).unwrap().to_owned();
        let ids = CorrelationIds::from_fn(move || Some(minted.clone()));
        let stamper = Stamper::new(names.clone(), case["client_id"].as_str().unwrap(), ids);
        let stamp = stamper.at(to.instant(names.produced_at()));
        let source = Fetched::new(&from.headers);
        if to.name == "redriven" {
            let mut headers = stamp.redrive(source.view(), &from.topic.as_str().into());
            let count = headers.iter().position(|header| header.name == names.redrive_count()).unwrap();
            assert_eq!(headers.remove(count).value.as_deref(), Some(&b"1"[..]));
            return headers;
        }
        let on_ladder = from.name != "original";
        let previous = on_ladder.then(|| names.read_ladder(source.view()).block).flatten();
        let hop = Hop {
            previous: previous.as_ref(),
            original_topic: case["original_topic"].as_str().unwrap(),
            error: to.value(names.last_error()).unwrap(),
            failed_at: to.instant(names.first_failure_at()),
            group: case["group"].as_str().unwrap(),
            dead_letter: to.name == "dead-letter",
        };
        let mut headers = stamp.hop(source.view(), &hop);
        let group = headers.iter().position(|header| header.name == names.retry_group()).unwrap();
        assert_eq!(headers.remove(group).value.as_deref(), case["group"].as_str().map(str::as_bytes));
        headers
    }

    #[test]
    fn our_hops_are_the_node_packages_byte_for_byte() {
        let cases: Value = serde_json::from_str(include_str!("../../../tests/golden/node-ladder.json")).unwrap();
        let cases = cases["cases"].as_array().unwrap();
        assert!(cases.len() >= 8);
        for case in cases {
            let stages = stages(case);
            for pair in stages.windows(2) {
                let headers = ours(case, &pair[0], &pair[1]);
                assert_eq!(named(&headers), named(&pair[1].headers), "{} at {}", case["case"], pair[1].name);
            }
        }
    }
}
