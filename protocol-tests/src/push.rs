use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Metrics that a client pushed (KIP-714), as the broker's plugin (`scripts/brokers/kafka/plugin`) wrote them down.
#[derive(Debug, Clone, PartialEq)]
pub struct Push {
    /// The id that the broker gave the client.
    pub instance_id: String,
    /// What the client calls itself.
    pub client_id: String,
    /// Whether it said that it ends.
    pub terminating: bool,
    /// What the broker took it for: `OTLP`.
    pub content_type: String,
    /// What is said of the sender.
    pub resource: BTreeMap<String, String>,
    /// The metrics by their names.
    pub metrics: BTreeMap<String, Measure>,
}

/// The one value of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Measure {
    /// What only grows, counted from the push before, or from the start.
    Sum {
        /// How much.
        value: i64,
        /// Whether since the push before.
        delta: bool,
    },
    /// What goes up and down.
    Gauge(f64),
}

/// All pushes so far, the oldest first.
///
/// # Panics
/// When one is not as the schema (`opentelemetry/proto/metrics/v1/metrics.proto`) says.
pub fn pushes(file: &Path) -> Vec<Push> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    // The last may be half written.
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(push).collect()
}

fn push(line: &str) -> Push {
    let parts: Vec<&str> = line.split(' ').collect();
    let [instance_id, client_id, terminating, content_type, payload] = parts[..] else { panic!("not a push: {line}") };
    let payload = STANDARD.decode(payload).expect("base64");
    let (mut resource, mut metrics) = <(BTreeMap<_, _>, BTreeMap<_, _>)>::default();
    for of_resource in all(&payload, 1) {
        for attributes in all(of_resource, 1) {
            resource.extend(all(attributes, 1).map(attribute));
        }
        for metric in all(of_resource, 2).flat_map(|scope| all(scope, 2)) {
            let before = metrics.insert(text(one(metric, 1)), measure(metric));
            assert!(before.is_none(), "told twice: {line}");
        }
    }
    Push {
        instance_id: instance_id.to_owned(),
        client_id: client_id.to_owned(),
        terminating: terminating.parse().expect("true or false"),
        content_type: content_type.to_owned(),
        resource,
        metrics,
    }
}

fn attribute(bytes: &[u8]) -> (String, String) {
    (text(one(bytes, 1)), text(one(one(bytes, 2), 1)))
}

fn measure(metric: &[u8]) -> Measure {
    let number = |point: &[u8], field| match fields(point).find(|(number, _)| *number == field) {
        Some((_, Field::Fixed(bits))) => bits,
        other => panic!("field {field} is {other:?}"),
    };
    if let Some(gauge) = all(metric, 5).next() {
        return Measure::Gauge(f64::from_bits(number(one(gauge, 1), 4)));
    }
    let sum = one(metric, 7);
    let flag = |field| fields(sum).find_map(|(number, value)| (number == field).then_some(value));
    assert_eq!(flag(3), Some(Field::Varint(1)), "it only grows");
    let temporality = flag(2);
    assert!(matches!(temporality, Some(Field::Varint(1 | 2))), "{temporality:?}");
    let (since, at) = (number(one(sum, 1), 2), number(one(sum, 1), 3));
    assert!(0 < since && since <= at, "from {since} to {at}");
    Measure::Sum { value: number(one(sum, 1), 6) as i64, delta: temporality == Some(Field::Varint(1)) }
}

/// The messages, or texts, of this field.
fn all(message: &[u8], field: u64) -> impl Iterator<Item = &[u8]> {
    fields(message).filter(move |(number, _)| *number == field).map(|(_, value)| match value {
        Field::Bytes(bytes) => bytes,
        other => panic!("{other:?}"),
    })
}

fn one(message: &[u8], field: u64) -> &[u8] {
    let mut of_field = all(message, field);
    let first = of_field.next().unwrap_or_else(|| panic!("no field {field}"));
    assert!(of_field.next().is_none(), "field {field} is there twice");
    first
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// A field's value in protobuf.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Field<'a> {
    Varint(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

fn fields(mut message: &[u8]) -> impl Iterator<Item = (u64, Field<'_>)> {
    std::iter::from_fn(move || {
        if message.is_empty() {
            return None;
        }
        let tag = varint(&mut message);
        let value = match tag & 7 {
            0 => Field::Varint(varint(&mut message)),
            1 => {
                let bits = message.split_off(..8).expect("eight bytes");
                Field::Fixed(u64::from_le_bytes(bits.try_into().expect("eight of them")))
            }
            2 => {
                let len = usize::try_from(varint(&mut message)).expect("a length");
                Field::Bytes(message.split_off(..len).expect("as many bytes as it says"))
            }
            kind => panic!("wire type {kind}"),
        };
        Some((tag >> 3, value))
    })
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first().expect("more bytes");
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
    }
    panic!("a number of more than ten bytes")
}
