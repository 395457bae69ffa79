//! OpenTelemetry's metrics as bytes, as far as clients push them (KIP-714): sums and gauges, in protobuf.
//!
//! Written only, and by hand: five kinds of message with a dozen fields (`opentelemetry/proto/metrics/v1/metrics.proto`).

/// What is known at one time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Snapshot<'a> {
    /// What is said of the sender: names and texts.
    pub(crate) resource: &'a [(&'a str, &'a str)],
    /// Since when sums count, in nanoseconds since 1970.
    pub(crate) since: u64,
    /// The time, in nanoseconds since 1970.
    pub(crate) at: u64,
    /// Whether sums count from the push before, not from the beginning.
    pub(crate) delta: bool,
    pub(crate) metrics: Vec<Metric>,
}

/// One metric with one value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Metric {
    pub(crate) name: String,
    /// Attributes of the value.
    pub(crate) attributes: Vec<(&'static str, String)>,
    pub(crate) value: Value,
}

/// A value, and what it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value {
    /// What only grows.
    Sum(u64),
    /// What goes up and down.
    Gauge(f64),
}

impl Snapshot<'_> {
    /// The bytes of a `MetricsData`.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let resource = message(|resource| {
            for (name, value) in self.resource {
                bytes_field(resource, 1, &attribute(name, value));
            }
        });
        let scope = message(|scope| {
            bytes_field(scope, 1, &message(|scope| bytes_field(scope, 1, SCOPE.as_bytes())));
            for metric in &self.metrics {
                bytes_field(scope, 2, &self.metric(metric));
            }
        });
        let of_resource = message(|of_resource| {
            bytes_field(of_resource, 1, &resource);
            bytes_field(of_resource, 2, &scope);
        });
        message(|data| bytes_field(data, 1, &of_resource))
    }

    fn metric(&self, metric: &Metric) -> Vec<u8> {
        let point = message(|point| {
            if matches!(metric.value, Value::Sum(_)) {
                fixed_field(point, 2, self.since);
            }
            fixed_field(point, 3, self.at);
            match metric.value {
                Value::Gauge(value) => fixed_field(point, 4, value.to_bits()),
                Value::Sum(value) => fixed_field(point, 6, value),
            }
            for (name, value) in &metric.attributes {
                bytes_field(point, 7, &attribute(name, value));
            }
        });
        message(|bytes| {
            bytes_field(bytes, 1, metric.name.as_bytes());
            match metric.value {
                Value::Gauge(_) => bytes_field(bytes, 5, &message(|gauge| bytes_field(gauge, 1, &point))),
                Value::Sum(_) => {
                    let sum = message(|sum| {
                        bytes_field(sum, 1, &point);
                        varint_field(sum, 2, if self.delta { DELTA } else { CUMULATIVE });
                        varint_field(sum, 3, 1);
                    });
                    bytes_field(bytes, 7, &sum);
                }
            }
        })
    }
}

fn attribute(name: &str, value: &str) -> Vec<u8> {
    message(|attribute| {
        bytes_field(attribute, 1, name.as_bytes());
        bytes_field(attribute, 2, &message(|any| bytes_field(any, 1, value.as_bytes())));
    })
}

fn message(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes);
    bytes
}

fn bytes_field(into: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    varint(into, u64::from((number << 3) | LENGTH));
    varint(into, bytes.len() as u64);
    into.extend_from_slice(bytes);
}

fn varint_field(into: &mut Vec<u8>, number: u32, value: u64) {
    varint(into, u64::from((number << 3) | VARINT));
    varint(into, value);
}

fn fixed_field(into: &mut Vec<u8>, number: u32, value: u64) {
    varint(into, u64::from((number << 3) | FIXED));
    into.extend_from_slice(&value.to_le_bytes());
}

fn varint(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// Wire types.
const VARINT: u32 = 0;
const FIXED: u32 = 1;
const LENGTH: u32 = 2;

/// `AggregationTemporality`.
const DELTA: u64 = 1;
const CUMULATIVE: u64 = 2;

const SCOPE: &str = "kafka-harbor";

#[cfg(test)]
mod tests {
    use super::*;

    /// As `protoc --encode=opentelemetry.proto.metrics.v1.MetricsData` writes it, taken apart by hand.
    #[test]
    fn a_sum_and_a_gauge_are_written_as_the_schema_says() {
        let sum = Metric { name: "s".to_owned(), attributes: vec![("k", "v".to_owned())], value: Value::Sum(300) };
        let gauge = Metric { name: "g".to_owned(), attributes: Vec::new(), value: Value::Gauge(1.5) };
        let resource = [("r", "x")];
        let snapshot = Snapshot { resource: &resource, since: 1, at: 2, delta: true, metrics: vec![sum, gauge] };
        let mut point_of_sum = vec![0x11, 1, 0, 0, 0, 0, 0, 0, 0, 0x19, 2, 0, 0, 0, 0, 0, 0, 0];
        point_of_sum.extend([0x31, 0x2c, 1, 0, 0, 0, 0, 0, 0, 0x3a, 8, 0x0a, 1, b'k', 0x12, 3, 0x0a, 1, b'v']);
        let mut sum = vec![0x0a, 1, b's', 0x3a, point_of_sum.len() as u8 + 6, 0x0a, point_of_sum.len() as u8];
        sum.extend(point_of_sum);
        sum.extend([0x10, 1, 0x18, 1]);
        let mut gauge = vec![0x0a, 1, b'g', 0x2a, 20, 0x0a, 18, 0x19, 2, 0, 0, 0, 0, 0, 0, 0, 0x21];
        gauge.extend(1.5f64.to_le_bytes());
        let mut scope = vec![0x0a, 14, 0x0a, 12];
        scope.extend(b"kafka-harbor");
        for metric in [sum, gauge] {
            scope.extend([0x12, metric.len() as u8]);
            scope.extend(metric);
        }
        let mut of_resource = vec![0x0a, 10, 0x0a, 8, 0x0a, 1, b'r', 0x12, 3, 0x0a, 1, b'x'];
        of_resource.extend([0x12, scope.len() as u8]);
        of_resource.extend(scope);
        assert!(of_resource.len() < 128, "its length takes one byte");
        let mut expected = vec![0x0a, of_resource.len() as u8];
        expected.extend(&of_resource);
        assert_eq!(snapshot.encode(), expected);
    }

    #[test]
    fn numbers_of_any_size_are_written() {
        for (value, expected) in [
            (0, &[0][..]),
            (127, &[127]),
            (128, &[0x80, 1]),
            (u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        ] {
            let mut bytes = Vec::new();
            varint(&mut bytes, value);
            assert_eq!(bytes, expected, "{value}");
        }
    }
}
