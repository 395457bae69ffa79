use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::*;

/// The futures here are ready at once.
fn now<F: Future>(future: F) -> F::Output {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(output) => output,
        std::task::Poll::Pending => panic!("a sync serializer waits"),
    }
}

fn json<T: Serialize + ?Sized>(payload: &T) -> Result<String, String> {
    let written = now(Json::new().serialize("orders", payload));
    written.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap()).map_err(|error| error.to_string())
}

fn read_with<T, D: Deserializer<T>>(deserializer: &D, value: Option<&[u8]>) -> Result<T, Failure> {
    now(read(deserializer, "orders", value, &Classifiers::default()))
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
struct Order {
    id: u64,
    #[serde(default)]
    items: Vec<Item>,
    #[serde(default)]
    note: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Item {
    price: f64,
}

#[derive(Serialize)]
enum Change {
    Nothing,
    Price(f64),
    Both(u8, f64),
    Named { price: f64 },
}

#[test]
fn what_json_can_say_is_written_as_serde_json_writes_it() {
    let order =
        Order { id: 1 << 53, items: vec![Item { price: 0.1 }, Item { price: -0.0 }], note: Some("é\u{2028}".into()) };
    assert_eq!(json(&order), Ok(serde_json::to_string(&order).unwrap()));
    let values = serde_json::json!({"a": [1, null, true, {"b": "c"}], "d": {}, "e": [], "f": -1.5e-7});
    assert_eq!(json(&values), Ok(values.to_string()));
    for change in [Change::Nothing, Change::Price(1.0), Change::Both(1, 2.0), Change::Named { price: 3.0 }] {
        assert_eq!(json(&change), Ok(serde_json::to_string(&change).unwrap()));
    }
    assert_eq!(json("text"), Ok("\"text\"".into()));
    assert_eq!(json(&HashMap::from([(Some('k'), ((), 1_i128))])), Ok("{\"k\":[null,1]}".into()));
}

#[test]
fn what_json_cannot_say_is_refused_with_its_place() {
    struct Binary;
    impl Serialize for Binary {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(b"bytes")
        }
    }

    let order = |price| {
        BTreeMap::from([("order", Order { items: vec![Item { price: 1.0 }, Item { price }], ..Order::default() })])
    };
    let nan = |path: &str| Err(format!("{path} is NaN, which JSON cannot say"));
    assert_eq!(json(&order(f64::NAN)), nan("value.order.items[1].price"));
    assert_eq!(json(&f32::NAN), nan("value"));
    assert_eq!(json(&Some(vec![f64::NAN])), nan("value[0]"));
    assert_eq!(json(&(1, f64::NAN)), nan("value[1]"));
    assert_eq!(json(&Change::Price(f64::NAN)), nan("value.Price"));
    assert_eq!(json(&Change::Both(1, f64::NAN)), nan("value.Both[1]"));
    assert_eq!(json(&Change::Named { price: f64::NAN }), nan("value.Named.price"));
    assert_eq!(json(&f64::NEG_INFINITY), Err("value is -inf, which JSON cannot say".into()));
    let refused = |path: &str, why: &str, result: Result<String, String>| {
        let error = result.unwrap_err();
        assert!(error.starts_with(&format!("{path} ")) && error.contains(why), "{error}");
    };
    refused("value.m", "no strings", json(&BTreeMap::from([("m", BTreeMap::from([(1, 2)]))])));
    refused("value", "no strings", json(&HashMap::from([(true, 2)])));
    refused("value.b[0]", "is bytes", json(&BTreeMap::from([("b", [Binary])])));
    refused("value.id", "beyond 2^53", json(&Order { id: (1 << 53) + 1, ..Order::default() }));
    refused("value", "beyond 2^53", json(&i64::MIN));
    refused("value", "beyond 2^53", json(&u128::MAX));
    refused("value", "tombstone", json(&None::<Order>));
    refused("value", "tombstone", json(&()));
}

#[test]
fn maps_written_key_by_key_are_checked_too() {
    struct Slowly;
    impl Serialize for Slowly {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            use serde::ser::SerializeMap;
            let mut map = serializer.serialize_map(None)?;
            map.serialize_key("k")?;
            map.serialize_value(&f64::NAN)?;
            map.end()
        }
    }
    assert_eq!(json(&Slowly), Err("value.k is NaN, which JSON cannot say".into()));
}

#[test]
fn large_integers_are_a_setting() {
    let relaxed = Json::new().with_large_integers(true);
    assert_eq!(now(relaxed.serialize("orders", &u64::MAX)).unwrap(), "18446744073709551615");
}

#[test]
fn a_tombstone_is_none_where_the_payload_may_be_and_a_failure_elsewhere() {
    assert_eq!(read_with::<Option<Order>, _>(&Json::new(), None).unwrap(), None);
    assert_eq!(read_with::<Option<Bytes>, _>(&Raw, None).unwrap(), None);
    assert_eq!(read_with::<Option<Vec<u8>>, _>(&Raw, None).unwrap(), None);
    assert_eq!(read_with::<Option<String>, _>(&Text, None).unwrap(), None);
    for failure in [
        read_with::<Order, _>(&Json::new(), None).unwrap_err(),
        read_with::<serde_json::Value, _>(&Json::new(), None).unwrap_err(),
        read_with::<(), _>(&Json::new(), None).unwrap_err(),
        read_with::<Bytes, _>(&Raw, None).unwrap_err(),
        read_with::<String, _>(&Text, None).unwrap_err(),
    ] {
        assert!(failure.is_serialization() && !failure.is_retryable(), "{failure:?}");
    }
}

#[test]
fn an_empty_value_is_no_tombstone() {
    assert_eq!(read_with::<Option<Bytes>, _>(&Raw, Some(b"")).unwrap(), Some(Bytes::new()));
    assert_eq!(read_with::<Option<String>, _>(&Text, Some(b"")).unwrap(), Some(String::new()));
    assert!(read_with::<Option<Order>, _>(&Json::new(), Some(b"")).unwrap_err().is_serialization());
}

#[test]
fn values_are_read_back() {
    let order = Order { id: 7, ..Order::default() };
    let bytes = now(write(&Json::new(), "orders", &order)).unwrap();
    assert_eq!(read_with::<Order, _>(&Json::new(), Some(&bytes)).unwrap(), order);
    assert_eq!(read_with::<Option<Order>, _>(&Json::new(), Some(&bytes)).unwrap(), Some(order));
    assert_eq!(read_with::<Vec<u8>, _>(&Raw, Some(b"\xff\0")).unwrap(), b"\xff\0");
    assert!(read_with::<String, _>(&Text, Some(b"\xff")).unwrap_err().is_serialization());
}

/// Fails as it is told.
struct Failing(fn() -> BoxError);

impl Deserializer<()> for Failing {
    async fn deserialize(&self, _topic: &str, _value: &[u8]) -> Result<(), BoxError> {
        Err((self.0)())
    }
}

#[test]
fn a_foreign_error_is_a_serialization_failure_and_keeps_its_cause() {
    let failure = read_with(&Failing(|| "no such schema".into()), Some(b"x")).unwrap_err();
    assert!(failure.is_serialization() && !failure.is_retryable());
    assert_eq!(failure.name(), "SerializationError");
    assert_eq!(failure.to_string(), "cannot deserialize a value of `orders`: no such schema");
    let failure = read_with(&Failing(|| Failure::permanent("bad").into()), Some(b"x")).unwrap_err();
    assert!(failure.is_serialization());
    // A code of its own does not let it up the ladder.
    let failure = read_with(&Failing(|| Failure::new("bad").with_code("E7").into()), Some(b"x")).unwrap_err();
    assert!(failure.is_serialization());
}

#[test]
fn an_error_that_says_it_is_retryable_walks_the_ladder() {
    let failure = read_with(&Failing(|| Failure::retryable("registry down").into()), Some(b"x")).unwrap_err();
    assert!(!failure.is_serialization() && failure.is_retryable());
    assert_eq!(failure.to_string(), "registry down");
}

#[test]
fn any_serializer_can_be_asked_for_tombstones() {
    struct Decimal;
    impl Deserializer<u64> for Decimal {
        async fn deserialize(&self, _topic: &str, value: &[u8]) -> Result<u64, BoxError> {
            Ok(std::str::from_utf8(value)?.parse()?)
        }
    }
    assert_eq!(read_with::<Option<u64>, _>(&Nullable(Decimal), None).unwrap(), None);
    assert_eq!(read_with::<Option<u64>, _>(&Nullable(Decimal), Some(b"7")).unwrap(), Some(7));
    assert!(read_with::<u64, _>(&Decimal, None).unwrap_err().is_serialization());
}
