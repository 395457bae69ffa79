use kafka_protocol::messages::create_acls_response::AclCreationResult;
use kafka_protocol::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use kafka_protocol::messages::{
    CreateAclsRequest, CreateAclsResponse, DescribeClusterRequest, DescribeClusterResponse, ElectLeadersRequest,
    ElectLeadersResponse, TopicName,
};

use super::*;

const CREATE_ACLS: ApiKey = ApiKey(30);
const ELECT_LEADERS: ApiKey = ApiKey(43);
const DESCRIBE_CLUSTER: ApiKey = ApiKey(60);

/// What a later answer left out kept the error of an earlier one, and was asked for until the time was up.
#[tokio::test(start_paused = true)]
async fn electing_asks_the_new_controller_when_the_old_one_says_no() {
    let controller = Arc::new(AtomicUsize::new(0));
    let brokers = Brokers::new();
    for (address, index) in [("a:1", 0), ("b:1", 1)] {
        let controller = controller.clone();
        brokers.at(address, move |exchange| match exchange.api {
            METADATA if controller.load(Ordering::Relaxed) == 0 => metadata(exchange, &BOTH, &[("t", 7, &[1])]),
            METADATA => metadata(exchange, &[BOTH[1], BOTH[0]], &[("t", 7, &[1])]),
            ELECT_LEADERS if index == 0 => {
                controller.store(1, Ordering::Relaxed);
                let refused = ElectLeadersResponse::default().with_error_code(ErrorCode::NOT_CONTROLLER.0);
                exchange.answer::<ElectLeadersRequest>(&refused)
            }
            ELECT_LEADERS => {
                let name = TopicName(StrBytes::from_static_str("t"));
                let result = ReplicaElectionResult::default().with_topic(name);
                let result = result.with_partition_result(vec![PartitionResult::default().with_partition_id(0)]);
                let answer = ElectLeadersResponse::default().with_replica_election_results(vec![result]);
                exchange.answer::<ElectLeadersRequest>(&answer)
            }
            _ => Act::Usual,
        });
    }
    let asked = [TopicPartition::new("t", 0), TopicPartition::new("t", 1)];
    let outcomes = admin(&brokers).elect_leaders(Election::Preferred, &asked).await;
    assert_eq!(outcomes[0].1.as_ref().unwrap(), &Elected::Elected);
    assert!(matches!(outcomes[1].1, Err(ClientError::LeftOut { .. })), "{outcomes:?}");
    assert_eq!(brokers.count("b:1 ElectLeaders"), 1, "what is left out is not asked for again");
}

/// Answers have no names: a short one must not pass for a whole one.
#[tokio::test(start_paused = true)]
async fn rules_that_an_answer_has_no_place_for_are_told_as_left_out() {
    let brokers = Brokers::new();
    brokers.at("a:1", |exchange| match exchange.api {
        METADATA => metadata(exchange, &BOTH[..1], &[]),
        CREATE_ACLS => {
            let denied = AclCreationResult::default().with_error_code(ErrorCode::CLUSTER_AUTHORIZATION_FAILED.0);
            let results = vec![AclCreationResult::default(), denied];
            exchange.answer::<CreateAclsRequest>(&CreateAclsResponse::default().with_results(results))
        }
        _ => Act::Usual,
    });
    let rule = |user: &str| AclBinding::allow(format!("User:{user}"), AclOperation::Read, AclResource::topic("t"));
    let outcomes = admin(&brokers).create_acls(&["a", "b", "c"].map(rule)).await;
    outcomes[0].1.as_ref().unwrap();
    let denied = outcomes[1].1.as_ref().unwrap_err();
    assert!(
        denied.to_string().starts_with("create acl allow User:b from * to read topic t: CLUSTER_AUTHORIZATION"),
        "{denied}"
    );
    assert!(matches!(outcomes[2].1, Err(ClientError::LeftOut { .. })), "{outcomes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_with_one_outcome_is_tried_again_until_its_time_is_up() {
    let tries = Arc::new(AtomicUsize::new(0));
    let brokers = Brokers::new();
    let count = tries.clone();
    brokers.at("a:1", move |exchange| match exchange.api {
        METADATA => metadata(exchange, &BOTH[..1], &[]),
        DESCRIBE_CLUSTER => {
            count.fetch_add(1, Ordering::Relaxed);
            let answer = DescribeClusterResponse::default().with_error_code(ErrorCode::REQUEST_TIMED_OUT.0);
            exchange.answer::<DescribeClusterRequest>(&answer)
        }
        _ => Act::Usual,
    });
    let start = Instant::now();
    let error = admin(&brokers).with_timeout(Duration::from_secs(5)).describe_cluster().await.unwrap_err();
    assert!(start.elapsed() <= Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!((error.code(), error.is_retriable()), (Some(ErrorCode::REQUEST_TIMED_OUT), true), "{error}");
    assert!(tries.load(Ordering::Relaxed) > 2, "{tries:?}");
}
