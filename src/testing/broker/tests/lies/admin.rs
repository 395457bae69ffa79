//! Lies to an operator.

use std::time::Duration;

use kafka_protocol::messages::{
    CreateTopicsRequest, DescribeClusterRequest, DescribeConfigsRequest, ListGroupsRequest, TopicName,
};
use tokio::time::Instant;

use super::fields::{NO_CODE, text};
use super::{Liar, Lie, frames, tell_while};
use crate::client::{Admin, Client, ClientError, ConfigResource, Election, IsolationLevel, OffsetSpec, Outcomes};
use crate::protocol::error_code::ErrorCode;
use crate::record::{NewTopic, Offset, TopicPartition};

/// Asks for everything that is asked for without changing much, as long as it does not succeed. No call passes its limit.
async fn operate(liar: &Liar) -> Result<(), String> {
    let client = liar.client();
    let tries = if liar.ends() { 4 } else { 1 };
    for call in CALLS {
        let mut faults = Vec::new();
        for _ in 0..tries {
            let begun = Instant::now();
            let outcome = call(&client).await;
            // A second for what is done behind the deadline.
            if begun.elapsed() > LIMIT + Duration::from_secs(1) {
                return Err(format!("a call of {LIMIT:?} took {:?}", begun.elapsed()));
            }
            match outcome {
                Err(error) if !is_done(&error) => faults.push(error.to_string()),
                Ok(()) | Err(_) => {
                    faults.clear();
                    break;
                }
            }
        }
        if !faults.is_empty() && liar.must_recover() {
            return Err(format!("the broker is sound again: {faults:?}"));
        }
    }
    let _ = client.close(Duration::from_secs(5)).await;
    Ok(())
}

type Call = fn(&Client) -> std::pin::Pin<Box<dyn Future<Output = Result<(), ClientError>> + Send + '_>>;

#[tokio::test(start_paused = true)]
async fn what_cannot_be_is_an_error_of_the_call_that_asked() {
    let lies = vec![
        Lie::field::<DescribeClusterRequest>("no brokers", |answer| answer.brokers.clear()),
        Lie::field::<DescribeClusterRequest>("a code that nobody knows", |answer| answer.error_code = NO_CODE),
        Lie::field::<CreateTopicsRequest>("nothing", |answer| answer.topics.clear()),
        Lie::field::<CreateTopicsRequest>("another topic", |answer| answer.topics[0].name = TopicName(text("other"))),
        Lie::field::<CreateTopicsRequest>("a code that nobody knows", |answer| answer.topics[0].error_code = NO_CODE),
        Lie::field::<CreateTopicsRequest>("the topic twice, made and refused", |answer| {
            let mut again = answer.topics[0].clone();
            again.error_code = NO_CODE;
            answer.topics.push(again);
        }),
        Lie::field::<DescribeConfigsRequest>("nothing", |answer| answer.results.clear()),
        Lie::field::<DescribeConfigsRequest>("another topic", |answer| answer.results[0].resource_name = text("other")),
        Lie::field::<ListGroupsRequest>("a code that nobody knows", |answer| answer.error_code = NO_CODE),
    ];
    tell_while(operate, lies).await;
}

/// Of every API that an operator's calls here need.
#[tokio::test(start_paused = true)]
async fn frames_that_lie_to_an_operator_are_errors_of_the_call_that_asked() {
    tell_while(operate, frames::lies(&[60, 19, 37, 32, 16, 21, 2, 66, 61, 46, 35, 43, 20])).await;
}

/// The first outcome decides; there is one.
fn first<K, T>(mut outcomes: Outcomes<K, T>) -> Result<(), ClientError> {
    outcomes.pop().expect("one thing was asked for").1.map(drop)
}

const CALLS: &[Call] = &[
    |client| Box::pin(async { admin(client).describe_cluster().await.map(drop) }),
    |client| Box::pin(async { admin(client).list_topics().await.map(drop) }),
    |client| Box::pin(async { first(admin(client).describe_topics(&["t".into()]).await) }),
    |client| Box::pin(async { first(admin(client).create_topics(&[NewTopic::new("made").with_partitions(1)]).await) }),
    |client| Box::pin(async { first(admin(client).create_partitions(&[("t".into(), 2)]).await) }),
    |client| Box::pin(async { first(admin(client).describe_configs(&[ConfigResource::Topic("t".into())]).await) }),
    |client| Box::pin(async { admin(client).list_groups().await.map(drop) }),
    |client| Box::pin(async { first(admin(client).delete_records(&[(at(), Offset(0))]).await) }),
    |client| {
        Box::pin(async {
            let asked = [(at(), OffsetSpec::Latest)];
            first(admin(client).list_offsets(&asked, IsolationLevel::ReadCommitted).await)
        })
    },
    |client| Box::pin(async { admin(client).group_offsets("g", None).await.map(drop) }),
    |client| Box::pin(async { admin(client).list_transactions(None).await.map(drop) }),
    |client| Box::pin(async { first(admin(client).describe_producers(&[at()]).await) }),
    |client| Box::pin(async { admin(client).list_reassignments(None).await.map(drop) }),
    |client| Box::pin(async { admin(client).describe_log_dirs(None).await.map(drop) }),
    |client| Box::pin(async { first(admin(client).elect_leaders(Election::Preferred, &[at()]).await) }),
    |client| Box::pin(async { first(admin(client).delete_topics(&["made".into()]).await) }),
];

fn admin(client: &Client) -> Admin {
    client.admin().with_timeout(LIMIT)
}

fn at() -> TopicPartition {
    TopicPartition::new("t", 0)
}

/// Whether it is refused as what a try whose answer was a lie has done already.
fn is_done(error: &ClientError) -> bool {
    const DONE: [ErrorCode; 3] =
        [ErrorCode::TOPIC_ALREADY_EXISTS, ErrorCode::INVALID_PARTITIONS, ErrorCode::ELECTION_NOT_NEEDED];
    error.is_missing() || error.code().is_some_and(|code| DONE.contains(&code))
}

const LIMIT: Duration = Duration::from_secs(12);
