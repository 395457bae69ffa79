use super::*;
use crate::record::Offset;

/// The leader of `t`'s only partition is node 1; 2 and 3 follow.
fn three() -> Rig {
    Rig::new(3).topic("t", 1)
}

#[test]
fn every_node_has_what_was_written_and_the_leader_moves_without_loss() {
    let mut rig = three();
    rig.produce(1, "t", 0, batch_of(&["a"]));
    assert_eq!(
        rig.cluster.partition(&at("t", 0)).expect("there").log_ends,
        [(1, Offset(1)), (2, Offset(1)), (3, Offset(1))]
    );
    rig.cluster.crash(1, rig.now);
    let state = rig.cluster.partition(&at("t", 0)).expect("there");
    assert_eq!((state.leader, state.leader_epoch.0, state.in_sync), (Some(2), 1, vec![2, 3]));
    assert_eq!(values(&rig.fetch(2, "t", 0, 0)), ["a"]);
    rig.cluster.restart(1, rig.now);
    assert_eq!(rig.cluster.partition(&at("t", 0)).expect("there").in_sync, [1, 2, 3]);
}

#[test]
fn the_wrong_node_names_the_leader() {
    let mut rig = three();
    let answer = rig.ask_node(2, 10, &produce("t", 0, batch_of(&["a"]).into_bytes(), -1));
    let refused = &answer.responses[0].partition_responses[0];
    assert_eq!(code(refused.error_code), ErrorCode::NOT_LEADER_OR_FOLLOWER);
    assert_eq!((refused.current_leader.leader_id.0, answer.node_endpoints[0].node_id.0), (1, 1));
}

#[test]
fn a_write_waits_for_a_replica_that_does_not_follow_until_it_is_out_of_sync() {
    let mut rig = three();
    rig.cluster.set_following(3, false, rig.now);
    let writer = rig.connect(1);
    let request = produce("t", 0, batch_of(&["a"]).into_bytes(), -1).with_timeout_ms(60_000);
    rig.send(writer, 9, &request);
    assert_eq!(rig.next(writer), None);
    assert_eq!(values(&rig.fetch(1, "t", 0, 0)), [""; 0], "not on every replica, so nobody reads it");
    rig.pass(Duration::from_secs(30));
    let answer = rig.answer::<ProduceRequest>(writer, 9).expect("node 3 is out of the set");
    assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
    assert_eq!(rig.cluster.partition(&at("t", 0)).expect("there").in_sync, [1, 2]);
    assert_eq!(values(&rig.fetch(1, "t", 0, 0)), ["a"]);
}

#[test]
fn a_write_that_is_not_replicated_in_time_says_so_and_stays() {
    let mut rig = three();
    rig.cluster.set_following(3, false, rig.now);
    let writer = rig.connect(1);
    rig.send(writer, 9, &produce("t", 0, batch_of(&["a"]).into_bytes(), -1));
    rig.pass(Duration::from_secs(1));
    let answer = rig.answer::<ProduceRequest>(writer, 9).expect("its time is over");
    assert_eq!(code(answer.responses[0].partition_responses[0].error_code), ErrorCode::REQUEST_TIMED_OUT);
    rig.cluster.set_following(3, true, rig.now);
    assert_eq!(values(&rig.fetch(1, "t", 0, 0)), ["a"]);
}

#[test]
fn too_few_in_sync_replicas_refuse_a_write_that_wants_all() {
    let mut rig = Rig::with(3, |settings| settings.min_insync_replicas = 2).topic("t", 1);
    rig.cluster.crash(2, rig.now);
    rig.cluster.crash(3, rig.now);
    let refused = rig.produce(1, "t", 0, batch_of(&["a"]));
    assert_eq!(code(refused.error_code), ErrorCode::NOT_ENOUGH_REPLICAS);
    let one = rig.ask_node(1, 9, &produce("t", 0, batch_of(&["a"]).into_bytes(), 1));
    assert_eq!(one.responses[0].partition_responses[0].error_code, 0);
}

/// KIP-320: what an unclean leader lacks is gone from every log, and a reader that had it hears where they part.
#[test]
fn an_unclean_leader_truncates_the_others_and_readers_hear_where() {
    let mut rig = three();
    rig.produce(1, "t", 0, batch_of(&["a"]));
    rig.cluster.set_following(3, false, rig.now);
    rig.pass(Duration::from_secs(1));
    let lost = rig.ask_node(1, 9, &produce("t", 0, numbered(&["lost", "lost too"], 7, 0, 0).into_bytes(), 1));
    assert_eq!(lost.responses[0].partition_responses[0].base_offset, 1);
    rig.pass(Duration::from_secs(30));
    rig.cluster.move_leader(&at("t", 0), 3, rig.now).expect("node 3 runs");
    rig.produce(3, "t", 0, batch_of(&["b"]));
    let state = rig.cluster.partition(&at("t", 0)).expect("there");
    assert_eq!(state.log_ends, [(1, Offset(2)), (2, Offset(2)), (3, Offset(2))]);
    assert_eq!(values(&rig.fetch(3, "t", 0, 0)), ["a", "b"]);

    let mut request = fetch("t", &[(0, 3)]).with_max_wait_ms(10_000);
    request.topics[0].partitions[0].last_fetched_epoch = 0;
    let data = only(rig.ask_node(3, 12, &request));
    assert_eq!((data.error_code, data.diverging_epoch.epoch, data.diverging_epoch.end_offset), (0, 0, 1));
    // The truncated batch is forgotten with its producer's numbers.
    assert_eq!(rig.produce(3, "t", 0, numbered(&["lost", "lost too"], 7, 0, 0)).base_offset, 2);
}

#[test]
fn a_partition_without_replicas_that_run_has_no_leader() {
    let mut rig = Rig::new(2).topic("t", 1);
    rig.cluster.crash(2, rig.now);
    rig.produce(1, "t", 0, batch_of(&["a"]));
    rig.cluster.crash(1, rig.now);
    rig.cluster.restart(2, rig.now);
    let state = rig.cluster.partition(&at("t", 0)).expect("there");
    assert_eq!(state.leader, None, "node 2 lacks what node 1 acknowledged");
    rig.cluster.restart(1, rig.now);
    assert_eq!(values(&rig.fetch(1, "t", 0, 0)), ["a"]);
}

#[test]
fn a_reader_is_sent_to_the_replica_in_its_rack() {
    let mut rig = Rig::with(2, |settings| {
        settings.racks = vec!["east".to_owned(), "west".to_owned()];
        settings.rack_aware_reads = true;
    })
    .topic("t", 1);
    rig.produce(1, "t", 0, batch_of(&["a"]));
    let request = fetch("t", &[(0, 0)]).with_rack_id(StrBytes::from_static_str("west"));
    let data = only(rig.ask_node(1, 12, &request));
    assert_eq!((data.preferred_read_replica.0, values(&data).len()), (2, 0));
    assert_eq!(values(&only(rig.ask_node(2, 12, &request))), ["a"]);
    let old = rig.ask_node(2, 10, &fetch("t", &[(0, 0)]));
    assert_eq!(code(old.responses[0].partitions[0].error_code), ErrorCode::NOT_LEADER_OR_FOLLOWER, "before KIP-392");
}

#[test]
fn a_hung_node_answers_nothing_until_it_goes_on() {
    let mut rig = three();
    let connection = rig.connect(1);
    rig.cluster.pause(1, rig.now);
    rig.send(connection, 12, &fetch("t", &[(0, 0)]));
    rig.pass(Duration::from_secs(60));
    assert_eq!(rig.next(connection), None);
    rig.cluster.resume(1, rig.now);
    assert!(rig.answer::<FetchRequest>(connection, 12).is_some());
}

/// Found by the simulation: the follower left out the batch that the log begins within, and lost it once it led.
#[test]
fn a_follower_that_begins_within_a_batch_has_it_whole() {
    let mut rig = three();
    rig.cluster.crash(3, rig.now);
    rig.produce(1, "t", 0, batch_of(&["a", "b", "c"]));
    rig.produce(1, "t", 0, batch_of(&["d"]));
    rig.cluster.delete_records(&at("t", 0), Offset(1), rig.now).expect("there");
    rig.cluster.restart(3, rig.now);
    assert_eq!(rig.cluster.batches(&at("t", 0), 3), rig.cluster.batches(&at("t", 0), 1));
    for node in [1, 2] {
        rig.cluster.crash(node, rig.now);
    }
    assert_eq!(values(&rig.fetch(3, "t", 0, 1)), ["a", "b", "c", "d"], "the batch of the position, whole");
}

/// Found by the simulation: a leader that came back before it had followed has what it wrote before, up to where the other one's newer
/// records end or beyond. The other one kept those, and had them beside the leader's.
#[test]
fn a_follower_drops_what_it_wrote_in_an_epoch_that_the_leader_does_not_have() {
    let mut rig = Rig::new(2).topic("t", 1);
    let write = |rig: &mut Rig, node, value| {
        let request = produce("t", 0, batch_of(&[value]).into_bytes(), 1);
        assert_eq!(rig.ask_node(node, 9, &request).responses[0].partition_responses[0].error_code, 0);
    };
    rig.cluster.set_following(2, false, rig.now);
    for value in ["a", "b", "c"] {
        write(&mut rig, 1, value);
    }
    rig.cluster.set_following(1, false, rig.now);
    rig.cluster.move_leader(&at("t", 0), 2, rig.now).expect("node 2 runs");
    for value in ["x", "y"] {
        write(&mut rig, 2, value);
    }
    rig.cluster.move_leader(&at("t", 0), 1, rig.now).expect("node 1 runs");
    write(&mut rig, 1, "d");
    rig.cluster.set_following(2, true, rig.now);
    assert_eq!(rig.cluster.batches(&at("t", 0), 2), rig.cluster.batches(&at("t", 0), 1));
    assert_eq!(values(&rig.fetch(1, "t", 0, 0)), ["a", "b", "c", "d"]);
}

/// Found by the simulation: an in-sync follower that has followed the leader before alone was counted by where its log ended, and a
/// record was acknowledged that no other node had.
#[test]
fn what_a_follower_has_from_the_leader_before_counts_for_nothing() {
    let mut rig = three();
    rig.cluster.set_following(2, false, rig.now);
    let lost = rig.ask_node(1, 9, &produce("t", 0, batch_of(&["a", "b"]).into_bytes(), 1));
    assert_eq!(lost.responses[0].partition_responses[0].error_code, 0);
    rig.cluster.set_following(3, false, rig.now);
    rig.cluster.crash(1, rig.now);
    assert_eq!(rig.cluster.partition(&at("t", 0)).expect("there").in_sync, [2, 3], "3 is ahead of its leader");
    let writer = rig.connect(2);
    rig.send(writer, 9, &produce("t", 0, batch_of(&["x"]).into_bytes(), -1).with_timeout_ms(60_000));
    assert_eq!(rig.next(writer), None, "node 3 does not have it");
    assert_eq!(values(&rig.fetch(2, "t", 0, 0)), [""; 0]);
    rig.cluster.set_following(3, true, rig.now);
    let answer = rig.answer::<ProduceRequest>(writer, 9).expect("node 3 has it now");
    assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
    assert_eq!(values(&rig.fetch(2, "t", 0, 0)), ["x"]);
}
