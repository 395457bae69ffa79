//! Whatever happens, in any order.

use proptest::prelude::*;

use super::*;

/// What may happen to a fetcher.
#[derive(Debug, Clone)]
enum Op {
    Append {
        partition: i32,
        records: i64,
    },
    Emptied {
        partition: i32,
    },
    Ask {
        node: bool,
    },
    Answer {
        newest: bool,
    },
    Fail {
        arrived: bool,
    },
    /// A broker forgets its session, and keeps others from now on or does not.
    Forget {
        node: bool,
        keep: bool,
    },
    Take {
        keep: bool,
    },
    Drop,
    Pause(i32),
    Resume(i32),
    Seek {
        partition: i32,
        part: u8,
    },
    Move(i32),
    Update,
    Trim(i32),
    Reassign(i32),
    Pass(u16),
}

fn op() -> impl Strategy<Value = Op> {
    let partition = 0..3_i32;
    prop_oneof![
        3 => (partition.clone(), 1..20_i64).prop_map(|(partition, records)| Op::Append { partition, records }),
        1 => partition.clone().prop_map(|partition| Op::Emptied { partition }),
        6 => any::<bool>().prop_map(|node| Op::Ask { node }),
        6 => any::<bool>().prop_map(|newest| Op::Answer { newest }),
        1 => any::<bool>().prop_map(|arrived| Op::Fail { arrived }),
        1 => (any::<bool>(), prop::bool::weighted(0.8)).prop_map(|(node, keep)| Op::Forget { node, keep }),
        6 => any::<bool>().prop_map(|keep| Op::Take { keep }),
        2 => Just(Op::Drop),
        1 => partition.clone().prop_map(Op::Pause),
        2 => partition.clone().prop_map(Op::Resume),
        1 => (partition.clone(), any::<u8>()).prop_map(|(partition, part)| Op::Seek { partition, part }),
        1 => partition.clone().prop_map(Op::Move),
        2 => Just(Op::Update),
        1 => partition.clone().prop_map(Op::Trim),
        1 => partition.prop_map(Op::Reassign),
        3 => (0..2_000_u16).prop_map(Op::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever happens, each partition's records are handed over without a gap and without going back, except where
    /// somebody said so; memory stays within the budget and one oversized batch; and after calm all was read.
    #[test]
    fn nothing_is_skipped_and_nothing_comes_twice(ops in prop::collection::vec(op(), 1..200)) {
        let budget = 300 << 10;
        let config = FetchConfig { max_partition_bytes: 4_000, budget_bytes: budget, ..FetchConfig::default() };
        let mut rig = Rig::new(3, config);
        let mut expected = [0_i64; 3];
        let mut epochs = [1_u64; 3];
        let mut in_flight: Vec<FetchPlan> = Vec::new();
        let mut kept = Vec::new();

        for op in ops {
            match op {
                Op::Append { partition, records } => rig.append(partition, records, 300),
                Op::Emptied { partition } => rig.append_emptied(partition, 5),
                Op::Ask { node } => {
                    let node = if node { NODE } else { OTHER };
                    if let NextFetch::Send(plan) = rig.fetcher.poll_request(rig.now, node) {
                        in_flight.push(plan);
                    }
                }
                Op::Answer { newest } => {
                    if let Some(plan) = if newest { in_flight.pop() } else { (!in_flight.is_empty()).then(|| in_flight.remove(0)) } {
                        let response = rig.response(&plan);
                        rig.answer(&plan, response);
                    }
                }
                Op::Forget { node, keep } => {
                    rig.sessions.remove(if node { &NODE } else { &OTHER });
                    rig.keeps_sessions = keep;
                }
                Op::Fail { arrived } => {
                    if let Some(plan) = in_flight.pop() {
                        if arrived {
                            rig.response(&plan);
                        }
                        rig.fetcher.handle_failure(rig.now, &plan);
                    }
                }
                Op::Take { keep } => {
                    if let Some(fetched) = rig.fetcher.poll_batch() {
                        let (partition, offsets) = span(&fetched);
                        prop_assert_eq!(fetched.epoch, epochs[partition as usize]);
                        prop_assert_eq!(offsets.start, expected[partition as usize]);
                        prop_assert!(offsets.end > offsets.start);
                        expected[partition as usize] = offsets.end;
                        if keep {
                            kept.push(fetched);
                        }
                    }
                }
                Op::Drop => drop(kept.pop()),
                Op::Pause(partition) => rig.fetcher.pause(&tp(partition), epochs[partition as usize]),
                Op::Resume(partition) => rig.fetcher.resume(&tp(partition), epochs[partition as usize]),
                Op::Seek { partition, part } => {
                    let log = &rig.logs[&tp(partition)];
                    let offset = log.start + (log.end - log.start) * i64::from(part) / 256;
                    rig.fetcher.seek(&tp(partition), epochs[partition as usize], Offset(offset), None);
                    expected[partition as usize] = offset;
                }
                Op::Move(partition) => {
                    let leader = rig.leaders[&tp(partition)];
                    let node = if leader.node == NODE { OTHER } else { NODE };
                    rig.lead(partition, node, leader.epoch.unwrap().0 + 1);
                }
                Op::Update => rig.update(),
                Op::Trim(partition) => {
                    // Up to where it was handed over: trimming more is a gap that the log itself has.
                    let log = rig.logs.get_mut(&tp(partition)).unwrap();
                    log.start = log.start.max(expected[partition as usize]);
                }
                Op::Reassign(partition) => {
                    rig.fetcher.revoke([&tp(partition)]);
                    epochs[partition as usize] += 1;
                    let offset = rig.logs[&tp(partition)].start.max(expected[partition as usize]);
                    expected[partition as usize] = offset;
                    let epoch = epochs[partition as usize];
                    rig.fetcher.assign(StartAt { epoch, ..start(partition, offset, Some(0)) });
                    rig.update();
                }
                Op::Pass(ms) => rig.now += Duration::from_millis(ms.into()),
            }
            prop_assert!(rig.fetcher.budget().used() <= budget + 10_000);
            for event in std::iter::from_fn(|| rig.fetcher.poll_event()) {
                prop_assert!(matches!(event, FetchEvent::Stale { .. } | FetchEvent::Refused { .. }), "{:?}", event);
            }
        }

        // Calm: everything that is in the logs comes.
        kept.clear();
        for plan in in_flight {
            rig.fetcher.handle_failure(rig.now, &plan);
        }
        rig.update();
        for partition in 0..3 {
            rig.fetcher.resume(&tp(partition), epochs[partition as usize]);
        }
        for _ in 0..200 {
            rig.now += Duration::from_secs(6);
            for node in [NODE, OTHER] {
                if let NextFetch::Send(plan) = rig.fetcher.poll_request(rig.now, node) {
                    let response = rig.response(&plan);
                    rig.answer(&plan, response);
                }
            }
            while let Some(fetched) = rig.fetcher.poll_batch() {
                let (partition, offsets) = span(&fetched);
                prop_assert_eq!(offsets.start, expected[partition as usize]);
                expected[partition as usize] = offsets.end;
            }
        }
        for partition in 0..3 {
            prop_assert_eq!(expected[partition as usize], rig.logs[&tp(partition)].end);
        }
        prop_assert_eq!(rig.fetcher.budget().used(), 0);
    }
}
