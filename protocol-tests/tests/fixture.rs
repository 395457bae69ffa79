//! The fixture itself: a broker comes up, its tools answer, names are unique.

use protocol_tests::{kafka, unique};

#[test]
fn a_broker_is_started_once_and_its_tools_answer() {
    let Some(broker) = kafka() else { return };
    let topic = unique("fixture");
    broker.tool("topics", &["--create", "--topic", &topic, "--partitions", "2"]);
    assert!(broker.tool("topics", &["--list"]).lines().any(|line| line == topic));
    assert_eq!(kafka().map(|again| again.bootstrap.as_str()), Some(broker.bootstrap.as_str()));
}
