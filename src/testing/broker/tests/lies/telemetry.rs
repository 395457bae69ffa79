//! Lies to a client that pushes metrics.

use std::time::Duration;

use kafka_protocol::messages::{GetTelemetrySubscriptionsRequest, PushTelemetryRequest};
use tokio::time::sleep;
use uuid::Uuid;

use super::fields::{NO_CODE, text};
use super::{Liar, Lie, frames, tell_while};
use crate::client::{ConfigChange, ConfigResource};

/// Pushes for some minutes what an operator wants.
async fn push(liar: &Liar) -> Result<(), String> {
    let operator = liar.honest();
    let wanted = vec![ConfigChange::set("interval.ms", "5000"), ConfigChange::set("metrics", "*")];
    let of = ConfigResource::ClientMetrics("all".to_owned());
    operator.admin().alter_configs(&[(of, wanted)]).await.remove(0).1.expect("a sound change");
    let client = liar.client();
    let telemetry = client.push_telemetry();
    sleep(if liar.ends() { MINUTES } else { MINUTES / 5 }).await;
    let _ = telemetry.close(Duration::from_secs(10)).await;
    let _ = client.close(Duration::from_secs(5)).await;
    let _ = operator.close(Duration::from_secs(5)).await;
    match liar.is_pushed_to() || !liar.must_recover() {
        true => Ok(()),
        false => Err("nothing is pushed, and the broker is sound again".to_owned()),
    }
}

#[tokio::test(start_paused = true)]
async fn subscriptions_that_cannot_be_are_asked_for_again() {
    type Of = GetTelemetrySubscriptionsRequest;
    let lies = vec![
        // Pushes without an id are refused as nonsense, which is not said again.
        Lie::field::<Of>("no id", |answer| answer.client_instance_id = Uuid::nil()).fatal(),
        Lie::field::<Of>("another subscription", |answer| answer.subscription_id = -9),
        Lie::field::<Of>("no interval", |answer| answer.push_interval_ms = 0),
        Lie::field::<Of>("a negative interval", |answer| answer.push_interval_ms = -9),
        Lie::field::<Of>("codecs that nobody knows", |answer| answer.accepted_compression_types = vec![-1, 9, 127]),
        // A subscription is believed for as long as pushes are not refused for it.
        Lie::field::<Of>("an interval of 24 days", |answer| answer.push_interval_ms = i32::MAX).fatal(),
        Lie::field::<Of>("no room", |answer| answer.telemetry_max_bytes = 0).fatal(),
        Lie::field::<Of>("less than no room", |answer| answer.telemetry_max_bytes = -9).fatal(),
        Lie::field::<Of>("nothing is wanted", |answer| answer.requested_metrics.clear()),
        Lie::field::<Of>("a name of 32 KB", |answer| answer.requested_metrics = vec!["m".repeat(32_000).into()])
            .fatal(),
        Lie::field::<Of>("a name that is none", |answer| answer.requested_metrics = vec![text("\u{1b}[2J\r\n")])
            .fatal(),
        Lie::field::<Of>("a code that nobody knows", |answer| answer.error_code = NO_CODE),
        Lie::field::<Of>("a silence of 24 days", |answer| answer.throttle_time_ms = i32::MAX),
    ];
    tell_while(push, lies).await;
}

#[tokio::test(start_paused = true)]
async fn pushes_that_are_refused_go_on_at_the_interval() {
    type Of = PushTelemetryRequest;
    let code = |name: &str, code: i16| Lie::field::<Of>(name, move |answer| answer.error_code = code);
    let lies = vec![
        code("another subscription", 117),
        code("too large", 118),
        code("too early", 89),
        code("another codec", 76),
        code("a code that nobody knows", NO_CODE),
        // What is said not to be understood is not said again.
        code("it cannot be read", 87).fatal(),
    ];
    tell_while(push, lies).await;
}

#[tokio::test(start_paused = true)]
async fn frames_that_lie_to_one_who_pushes_cost_time() {
    tell_while(push, frames::lies(&[71, 72])).await;
}

const MINUTES: Duration = Duration::from_secs(300);
