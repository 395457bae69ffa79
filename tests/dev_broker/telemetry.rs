//! Metrics that a client pushes (KIP-714), over the dev broker.

use kafka_harbor::client::{ConfigChange, ConfigResource};
use kafka_harbor::testing::broker::PushedMetrics;

use super::*;

const GET_SUBSCRIPTIONS: ApiKey = ApiKey(71);
const PUSH: ApiKey = ApiKey(72);

async fn subscribe(client: &Client, changes: Vec<ConfigChange>) {
    let metrics = ConfigResource::ClientMetrics("all".to_owned());
    client.admin().alter_configs(&[(metrics, changes)]).await.remove(0).1.unwrap();
}

fn every_second(metrics: &str) -> Vec<ConfigChange> {
    vec![ConfigChange::set("interval.ms", "1000"), ConfigChange::set("metrics", metrics)]
}

fn pushed(broker: &DevBroker) -> Vec<PushedMetrics> {
    broker.act(|cluster, _| cluster.pushed_metrics())
}

/// Whether a name stands among the bytes.
fn names(pushed: &PushedMetrics, name: &str) -> bool {
    pushed.metrics.windows(name.len()).any(|window| window == name.as_bytes())
}

async fn wait_for(broker: &DevBroker, pushes: usize) -> Vec<PushedMetrics> {
    let looks = async {
        while pushed(broker).len() < pushes {
            tokio::time::sleep(SECOND / 10).await;
        }
    };
    tokio::time::timeout(600 * SECOND, looks).await.expect("it is pushed");
    pushed(broker)
}

#[tokio::test(start_paused = true)]
async fn what_is_wanted_is_pushed_at_its_time_and_once_more_at_the_end() {
    let broker = three().await;
    let client = broker.client_config().build().unwrap();
    subscribe(&client, every_second("org.apache.kafka.producer.")).await;
    let telemetry = client.push_telemetry();
    produce(&client, 0, 100).await;
    let start = tokio::time::Instant::now();
    let first = wait_for(&broker, 3).await;
    assert!(start.elapsed() >= 2 * SECOND, "three pushes take two intervals: {:?}", start.elapsed());
    assert!(names(&first[0], "org.apache.kafka.producer.request.total"), "{first:?}");
    assert!(names(&first[0], "org.apache.kafka.producer.request.latency.avg"), "{first:?}");
    assert!(!first.iter().any(|pushed| names(pushed, "org.apache.kafka.consumer")), "not asked for");
    assert!(
        first.iter().all(|pushed| !pushed.terminating && Some(pushed.client_instance_id) == telemetry.instance_id())
    );
    telemetry.close(10 * SECOND).await.unwrap();
    let all = pushed(&broker);
    assert!(all.last().unwrap().terminating && all.iter().filter(|pushed| pushed.terminating).count() == 1);
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(pushed(&broker).len(), all.len(), "nothing after the end");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_pushed_unless_it_is_asked_for_by_both() {
    let broker = three().await;
    let client = broker.client_config().build().unwrap();
    subscribe(&client, every_second("*")).await;
    produce(&client, 0, 10).await;
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(pushed(&broker), [], "the client does not push by itself");

    subscribe(&client, vec![ConfigChange::set("match", "client_id=somebody-else")]).await;
    let telemetry = client.push_telemetry();
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(pushed(&broker), [], "the subscription is for others");
    drop(telemetry);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_changed_is_asked_for_again() {
    let broker = three().await;
    let client = broker.client_config().build().unwrap();
    subscribe(&client, every_second("org.apache.kafka.producer.request.total")).await;
    let telemetry = client.push_telemetry();
    produce(&client, 0, 10).await;
    let before = wait_for(&broker, 1).await.len();
    subscribe(&client, vec![ConfigChange::set("metrics", "org.apache.kafka.producer.connection")]).await;
    let after = wait_for(&broker, before + 2).await;
    assert!(names(after.last().unwrap(), "org.apache.kafka.producer.connection.creation.total"), "{after:?}");
    assert!(!names(after.last().unwrap(), "org.apache.kafka.producer.request.total"), "{after:?}");
    telemetry.close(10 * SECOND).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn refusals_end_or_delay_it_and_nothing_else() {
    let broker = three().await;
    let client = broker.client_config().build().unwrap();
    subscribe(&client, every_second("*")).await;
    for code in [ErrorCode::TELEMETRY_TOO_LARGE, ErrorCode::THROTTLING_QUOTA_EXCEEDED] {
        broker.order(Rule::new(PUSH, Effect::Fail(code)).times(1));
    }
    let telemetry = client.push_telemetry();
    produce(&client, 0, 10).await;
    wait_for(&broker, 2).await;
    broker.order(Rule::new(PUSH, Effect::Fail(ErrorCode::INVALID_RECORD)));
    tokio::time::sleep(5 * SECOND).await;
    let ended = pushed(&broker).len();
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(pushed(&broker).len(), ended, "the broker does not read what we write");
    telemetry.close(10 * SECOND).await.unwrap();
    assert_eq!(pushed(&broker).len(), ended);
    produce(&client, 10, 20).await;
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_is_silent_holds_the_end_up_no_longer_than_told() {
    let broker = three().await;
    let client = broker.client_config().build().unwrap();
    subscribe(&client, every_second("*")).await;
    let telemetry = client.push_telemetry();
    produce(&client, 0, 10).await;
    wait_for(&broker, 1).await;
    broker.order(Rule::new(PUSH, Effect::Silence).always());
    broker.order(Rule::new(GET_SUBSCRIPTIONS, Effect::Silence).always());
    let start = tokio::time::Instant::now();
    telemetry.close(3 * SECOND).await.unwrap_err();
    assert!(start.elapsed() <= 3 * SECOND, "{:?}", start.elapsed());
    assert!(pushed(&broker).iter().all(|pushed| !pushed.terminating));
}
