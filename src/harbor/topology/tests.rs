use super::*;

const DELAYS: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(60)];

fn plan(topic: &str, levels: u32, naming: &TopicNaming) -> Plan {
    Plan::new(topic.into(), levels, true, naming)
}

fn topology(plans: Vec<Plan>) -> Result<Topology, ConfigError> {
    Topology::new(plans, DELAYS.to_vec(), NameRules::Kafka)
}

/// The problems of both orders of subscribing, which must agree that there are some, or that there are none.
fn either_way(a: &Plan, b: &Plan) -> Vec<String> {
    let problems = |plans| match topology(plans) {
        Ok(_) => Vec::new(),
        Err(error) => error.problems().iter().map(ToString::to_string).collect::<Vec<_>>(),
    };
    let (there, back) = (problems(vec![a.clone(), b.clone()]), problems(vec![b.clone(), a.clone()]));
    assert_eq!(there.is_empty(), back.is_empty(), "{there:?} / {back:?}");
    there
}

fn shared_retry() -> TopicNaming {
    TopicNaming::default().with_retry(|_, level| format!("shared-retry-{level}"))
}

#[test]
fn names_are_the_node_packages() {
    let plan = plan("orders", 2, &TopicNaming::default());
    assert_eq!(plan.ladder, ["orders-retry-1", "orders-retry-2"]);
    assert_eq!(plan.dead_letter.as_ref().unwrap(), "orders-dlq");
    assert_eq!(plan.retry_topic(1).unwrap(), "orders-retry-1");
    assert_eq!(plan.retry_topic(2).unwrap(), "orders-retry-2");
    assert_eq!(plan.retry_topic(3), None);
}

#[test]
fn within_a_subscription_no_two_things_share_a_name() {
    let default = TopicNaming::default;
    let cases = [
        (default().with_retry(|topic, _| topic.into()), "retry equal to the original, and to a level"),
        (default().with_retry(|topic, _| format!("{topic}-retry")), "two levels alike"),
        (default().with_dead_letter(str::to_owned), "dead letters equal to the original"),
        (default().with_dead_letter(|topic| format!("{topic}-retry-2")), "dead letters equal to a level"),
    ];
    for (naming, what) in cases {
        let error = topology(vec![plan("orders", 2, &naming)]).expect_err(what);
        assert!(error.problems().iter().all(|problem| problem.option == "topics[orders]"), "{what}");
    }
    assert!(topology(vec![plan("orders", 2, &default())]).is_ok());
}

#[test]
fn across_subscriptions_the_verdict_does_not_depend_on_the_order() {
    let default = TopicNaming::default();
    let to = |name: &'static str| TopicNaming::default().with_retry(move |_, level| format!("{name}{level}"));
    let dead = |name: &'static str| TopicNaming::default().with_dead_letter(move |_| name.into());
    let off_by_one = TopicNaming::default().with_retry(|_, level| format!("shared-retry-{}", level + 1));
    let refused = [
        (plan("orders", 1, &default), plan("orders", 1, &default), "one topic twice"),
        (plan("orders", 1, &default), plan("orders-retry-1", 0, &default), "an original that is a level"),
        (plan("a", 2, &shared_retry()), plan("b", 1, &off_by_one), "one name on two levels"),
        (plan("r1", 0, &default), plan("b", 1, &to("r")), "a level that is an original"),
        (plan("a", 0, &dead("b")), plan("b", 0, &default), "dead letters that are read"),
        (plan("a", 0, &dead("b-retry-1")), plan("b", 1, &default), "dead letters that are a level"),
    ];
    for (a, b, what) in refused {
        assert!(!either_way(&a, &b).is_empty(), "{what}");
    }
    let allowed = [
        (plan("a", 2, &default), plan("b", 1, &default), "nothing shared"),
        (plan("a", 2, &shared_retry()), plan("b", 2, &shared_retry()), "a shared ladder"),
        (plan("a", 1, &dead("dlq")), plan("b", 1, &dead("dlq")), "shared dead letters"),
    ];
    for (a, b, what) in allowed {
        assert_eq!(either_way(&a, &b), [""; 0], "{what}");
    }
}

#[test]
fn every_mistake_is_named_at_once() {
    let naming = TopicNaming::default().with_dead_letter(str::to_owned);
    let error = topology(vec![plan("a b", 0, &naming), plan("c", 0, &naming)]).unwrap_err();
    let options: Vec<_> = error.problems().iter().map(|problem| problem.option.as_str()).collect();
    assert_eq!(options, ["topics[a b]", "topics[a b]", "topics[a b]", "topics[c]"]);
}

#[test]
fn derived_names_obey_the_brokers_rules() {
    let longest = "x".repeat(MAX_NAME);
    for name in ["orders", "a.b_c-D9", longest.as_str()] {
        assert_eq!(check_name(name, NameRules::Kafka), Ok(()));
    }
    let too_long = "x".repeat(MAX_NAME + 1);
    for name in ["", ".", "..", "a b", "a/b", "é", "a\0", too_long.as_str()] {
        assert!(check_name(name, NameRules::Kafka).is_err(), "{name}");
    }
    assert!(check_name("persistent://public/default/orders", NameRules::Any).is_ok());
    // 247 characters are a topic, but its dead letters' name is too long.
    let error = topology(vec![plan(&"x".repeat(247), 0, &TopicNaming::default())]).unwrap_err();
    assert!(error.to_string().contains("too long: 251 characters"), "{error}");
    let error = topology(vec![plan("a.b", 0, &TopicNaming::default()), plan("a_b", 0, &TopicNaming::default())]);
    assert!(error.unwrap_err().to_string().contains("clashes with `a.b`"));
}

fn block(topic: &str) -> RetryBlock {
    let headers = [("x-retry-count", "1"), ("x-original-topic", topic), ("x-first-failure-at", "2026-01-01")];
    let mut bytes = Vec::new();
    for (name, value) in headers {
        for field in [name, value] {
            bytes.push(field.len() as u8 * 2);
            bytes.extend_from_slice(field.as_bytes());
        }
    }
    let view = crate::record::HeadersView::take(headers.len(), &mut &bytes[..]).unwrap();
    crate::harbor::HeaderNames::default().read_ladder(view).block.unwrap()
}

#[test]
fn on_a_shared_topic_the_valid_block_names_the_owner() {
    let dead = |name: &'static str| shared_retry().with_dead_letter(move |_| name.into());
    let shared = topology(vec![plan("a", 1, &dead("dlq")), plan("b", 1, &dead("dlq"))]).unwrap();
    let route = shared.route("shared-retry-1").unwrap();
    assert_eq!((route.level, &route.owners[..]), (1, &[0, 1][..]));
    assert_eq!(shared.owner(route, Some(&block("b"))), Owner::Plan(1));
    assert_eq!(shared.owner(route, Some(&block("c"))), Owner::DeadLetter(&"dlq".into()));
    assert_eq!(shared.owner(route, None), Owner::DeadLetter(&"dlq".into()));

    let split = topology(vec![plan("a", 1, &dead("dlq")), plan("b", 1, &shared_retry())]).unwrap();
    assert_eq!(split.owner(split.route("shared-retry-1").unwrap(), None), Owner::Nobody);

    let none = Plan::new("b".into(), 1, false, &shared_retry());
    let half = topology(vec![plan("a", 1, &dead("dlq")), none]).unwrap();
    assert_eq!(half.owner(half.route("shared-retry-1").unwrap(), Some(&block("c"))), Owner::Nobody);
}

#[test]
fn an_only_owner_is_the_owner_whatever_the_headers_say() {
    let one = topology(vec![plan("a", 1, &TopicNaming::default())]).unwrap();
    let route = one.route("a-retry-1").unwrap();
    assert_eq!(one.owner(route, Some(&block("elsewhere"))), Owner::Plan(0));
    assert_eq!(one.route("a-dlq"), None);
}

#[test]
fn retry_topics_are_read_from_their_oldest_record() {
    let topology = topology(vec![plan("a", 1, &TopicNaming::default()), plan("b", 2, &shared_retry())]).unwrap();
    let read: Vec<_> =
        topology.subscriptions(Start::Latest).into_iter().map(|s| (s.topic.to_string(), s.start)).collect();
    let expected = [
        ("a", Start::Latest),
        ("b", Start::Latest),
        ("a-retry-1", Start::Earliest),
        ("shared-retry-1", Start::Earliest),
        ("shared-retry-2", Start::Earliest),
    ];
    assert_eq!(read, expected.map(|(topic, start)| (topic.to_owned(), start)));
}

#[test]
fn derived_topics_come_once_and_in_order() {
    let naming = shared_retry().with_dead_letter(|_| "dlq".into());
    let topology = topology(vec![plan("a", 1, &naming), plan("b", 2, &naming)]).unwrap();
    let derived: Vec<_> =
        topology.derived().into_iter().map(|d| (d.topic.as_str(), d.level, d.sources.len())).collect();
    assert_eq!(derived, [("shared-retry-1", Some(1), 2), ("dlq", None, 2), ("shared-retry-2", Some(2), 1)]);
    assert_eq!(topology.delay(0), Duration::ZERO);
    assert_eq!(topology.delay(2), DELAYS[1]);
}

#[test]
fn a_record_waits_what_is_left_of_its_delay_and_never_more() {
    let delay = Duration::from_secs(5);
    let now = Timestamp(1_796_045_222_502);
    let table = [
        (0, 5_000, "just written"),
        (-2_000, 3_000, "two seconds old"),
        (-5_000, 0, "due"),
        (-3_600_000, 0, "long due"),
        (600_000, 5_000, "its writer's clock is ten minutes ahead"),
    ];
    for (written, left, what) in table {
        let written = Timestamp(now.0 + written);
        assert_eq!(time_left(delay, written, now), Duration::from_millis(left), "{what}");
    }
    for absent in [Timestamp(-1), Timestamp(0), Timestamp(i64::MIN)] {
        assert_eq!(time_left(delay, absent, now), delay);
    }
    assert_eq!(time_left(Duration::ZERO, Timestamp(now.0 + 600_000), now), Duration::ZERO);
    assert_eq!(time_left(delay, Timestamp(i64::MAX), Timestamp(i64::MIN)), delay);
}
