//! Random schedules: loads and faults by a seed, then calm, then everything must have drained and add up.

use super::broker::Fault;
use super::*;

#[test]
fn nothing_acknowledged_is_lost_repeated_or_reordered_and_doubt_is_told() {
    for seed in 0..100 {
        let outcome = std::panic::catch_unwind(|| run(seed));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

fn run(seed: u64) {
    let mut random = Random(seed);
    let settings = ProduceSettings {
        linger: Duration::from_millis([0, 5][random.below(2) as usize]),
        batch_bytes: [200, 1_000, 20_000][random.below(3) as usize],
        delivery_timeout: Duration::from_millis([400, 3_000, 120_000][random.below(3) as usize]),
        requests_in_flight: 1 + random.below(5) as usize,
        ..ProduceSettings::default()
    };
    let partitions = 1 + random.below(3) as usize;
    let mut world = World::seeded(partitions as i32, settings, seed);
    let ghosts = random.chance(50);
    let harsh = 1 + random.below(10);
    for _ in 0..300 {
        for _ in 0..random.below(12) {
            let partition = random.below(partitions as u64) as usize;
            let id = world.send_padded(partition, random.below(60) as usize);
            if random.chance(1) {
                world.cluster.partition(partition).poison.push(id);
            }
        }
        if random.chance(harsh) {
            disturb(&mut world, &mut random, partitions, ghosts);
        }
        let time = Duration::from_micros(random.below(4_000));
        world.run(time);
    }
    for partition in 0..partitions {
        world.cluster.partition(partition).faults.clear();
        world.cluster.partition(partition).max_batch_bytes = None;
    }
    world.metadata = true;
    world.drain();
    world.check();
}

fn disturb(world: &mut World, random: &mut Random, partitions: usize, ghosts: bool) {
    let partition = random.below(partitions as u64) as usize;
    let before = [
        ErrorCode::NOT_ENOUGH_REPLICAS,
        ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ErrorCode::CORRUPT_MESSAGE,
        ErrorCode::TOPIC_AUTHORIZATION_FAILED,
        ErrorCode::UNKNOWN_TOPIC_ID,
        ErrorCode(9_999),
    ];
    let after = [
        ErrorCode::REQUEST_TIMED_OUT,
        ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ErrorCode::KAFKA_STORAGE_ERROR,
    ];
    let log = world.cluster.partition(partition);
    match random.below(9) {
        0 => log.faults.push_back(Fault::Before(before[random.below(before.len() as u64) as usize])),
        1 => log.faults.push_back(Fault::After(after[random.below(after.len() as u64) as usize])),
        2 => log.faults.push_back(Fault::Unmentioned),
        3 => log.faults.extend([Fault::Pass, Fault::Before(ErrorCode::NOT_ENOUGH_REPLICAS), Fault::Pass]),
        4 => log.max_batch_bytes = Some(150 + random.below(1_000) as usize),
        5 => log.max_batch_bytes = None,
        6 => world.cluster.move_leader(partition, 1 + random.below(3) as i32),
        7 => world.metadata = random.chance(80),
        _ => {
            let node = NodeId(1 + random.below(3) as i32);
            let haunted = ghosts && random.chance(50);
            if random.chance(25) {
                world.lock_out(node, haunted);
            } else {
                world.cut(node, haunted);
            }
        }
    }
}
