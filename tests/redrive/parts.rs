//! Parts of a dead-letter topic, how fast and how often its letters are brought back, and what a dry run tells.

use super::*;
use kafka_harbor::record::Timestamp;

fn reasons(report: &RedriveReport) -> Vec<(&str, u64)> {
    report.reasons.iter().map(|reason| (reason.reason.as_str(), reason.letters)).collect()
}

fn failed_by(value: &str, error: &str) -> Record {
    let mut letter = letter(value);
    letter.headers.retain(|header| header.name != "x-last-error");
    letter.with_header("x-last-error", error.to_owned())
}

/// Ten letters in one partition, `0` to `9`.
async fn ten() -> Scene {
    let scene = Scene::new(1);
    scene.letters(&["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]).await;
    scene
}

#[tokio::test(start_paused = true)]
async fn letters_outside_of_a_range_are_left_for_later_runs_and_none_comes_twice() {
    let scene = ten().await;
    let began = Instant::now();
    let range = Offset(6)..Offset(8);
    let report = scene.harbor.redrive(DLQ).offsets(range.clone()).run().await.unwrap();
    assert_eq!((counts(&report), scene.back()), ((2, 0), vec!["6".to_owned(), "7".to_owned()]));
    assert!(began.elapsed() < SECOND, "where the range ends nothing is waited for: {:?}", began.elapsed());
    assert_eq!(scene.committed(), Some(0), "what lies before the range is not passed");

    // The same range again is done; one that overlaps brings the rest of it.
    let report = scene.harbor.redrive(DLQ).offsets(range).run().await.unwrap();
    assert_eq!(counts(&report), (0, 0));
    let report = scene.harbor.redrive(DLQ).offsets(Offset(2)..=Offset(6)).run().await.unwrap();
    assert_eq!(counts(&report), (4, 0));
    let report = scene.harbor.redrive(DLQ).run().await.unwrap();
    assert_eq!((counts(&report), scene.committed()), ((4, 0), Some(10)));
    assert_eq!(scene.back(), ["6", "7", "2", "3", "4", "5", "0", "1", "8", "9"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_over_a_range_goes_on_where_it_stood() {
    let scene = ten().await;
    let run = || scene.harbor.redrive(DLQ).offsets(Offset(3)..).only_present(true);
    assert_eq!(counts(&run().max(2).run().await.unwrap()), (2, 0));
    assert_eq!(counts(&run().max(2).run().await.unwrap()), (2, 0));
    assert_eq!((scene.back(), scene.committed()), (["3", "4", "5", "6"].map(str::to_owned).to_vec(), Some(0)));
    // A range that nothing has been written to yet is no reason to begin anew.
    let beyond = scene.harbor.redrive(DLQ).offsets(Offset(50)..).run().await.unwrap();
    assert_eq!(counts(&beyond), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn letters_of_a_time_are_brought_back_in_whatever_order_their_times_are() {
    let scene = Scene::new(1);
    let at = |value, time| Record { timestamp: Some(Timestamp(time)), ..letter(value) };
    scene.put(vec![at("a", 100), at("b", 300), at("c", 200), at("d", 400)]).await;
    let run = |times| scene.harbor.redrive(DLQ).times(times).only_present(true);
    let report = run(Timestamp(200)..Timestamp(400)).run().await.unwrap();
    assert_eq!((counts(&report), scene.back()), ((2, 0), vec!["b".to_owned(), "c".to_owned()]));
    let report = run(Timestamp(0)..Timestamp(1_000)).run().await.unwrap();
    assert_eq!((counts(&report), scene.committed()), ((2, 0), Some(4)));
    assert_eq!(scene.back(), ["b", "c", "a", "d"]);
}

/// The note beside a commit is bounded. Without that bound the broker would refuse the commit, and the run go on without one.
#[tokio::test(start_paused = true)]
async fn a_run_that_leaves_more_gaps_than_can_be_remembered_says_so_and_loses_none() {
    let scene = Scene::new(1);
    let odd = |n: i64| Record { timestamp: Some(Timestamp(n % 2)), ..letter(&n.to_string()) };
    scene.put((0..400).map(odd).collect()).await;
    let error = scene.harbor.redrive(DLQ).times(Timestamp(1)..).run().await.unwrap_err();
    assert_eq!(error.source.code(), code::CONFIG_INVALID, "{error}");
    assert!(error.to_string().contains("orders-dlq-0") && error.to_string().contains("offset"), "{error}");
    assert!((64..80).contains(&error.report.reprocessed), "{error}");
    assert!(scene.told.all().iter().all(|told| !told.starts_with("not committed")));
    let report = scene.harbor.redrive(DLQ).only_present(true).run().await.unwrap();
    assert_eq!(error.report.reprocessed + report.reprocessed, 400);
    assert_eq!((scene.back().len(), scene.committed()), (400, Some(400)));
}

#[tokio::test(start_paused = true)]
async fn one_partition_alone_is_redriven_and_one_that_is_missing_is_named() {
    let scene = Scene::new(3);
    scene.put((0..3).map(|n| Record { partition: Some(n), ..letter(&n.to_string()) }).collect()).await;
    let report = scene.harbor.redrive(DLQ).partition(1).only_present(true).run().await.unwrap();
    assert_eq!((counts(&report), scene.back()), ((1, 0), vec!["1".to_owned()]));
    let error = scene.harbor.redrive(DLQ).partition(1).partition(7).run().await.unwrap_err();
    assert!(error.to_string().contains("orders-dlq has no partition 7"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn options_of_parts_that_make_no_sense_are_named_together() {
    let scene = Scene::new(1);
    let run = scene.harbor.redrive(DLQ).offsets(Offset(5)..Offset(5)).times(..Timestamp(i64::MIN));
    let error = run.rate(0, "1s").parallel(0).max_redrives(0).run().await.unwrap_err();
    let HarborError::Config(config) = &error.source else { panic!("{error}") };
    let options: Vec<_> = config.problems().iter().map(|problem| problem.option.as_str()).collect();
    assert_eq!(options, ["rate", "parallel", "max_redrives", "offsets", "times"]);
}

#[tokio::test(start_paused = true)]
async fn a_rate_is_kept_evenly_over_all_partitions() {
    let scene = Scene::new(2);
    scene.put((0..100).map(|n| Record { partition: Some(n % 2), ..letter(&n.to_string()) }).collect()).await;
    let began = Instant::now();
    let report = scene.harbor.redrive(DLQ).rate(10, "1s").only_present(true).run().await.unwrap();
    let took = began.elapsed();
    assert_eq!(counts(&report), (100, 0));
    assert!((9 * SECOND..11 * SECOND).contains(&took), "{took:?}");
    let told = scene.told.1.lock().unwrap().clone();
    assert!((9..=12).contains(&told.len()), "progress is told once a second: {told:?}");
    assert!(told.is_sorted() && told.iter().filter(|(_, done)| *done).eq([&(100, true)]), "{told:?}");
}

/// The group's events waited for the end of a batch, for hours at such a rate; the group went on without the member.
#[tokio::test(start_paused = true)]
async fn a_slow_run_lets_a_partition_go_at_once() {
    let scene = Scene::new(2);
    scene.put((0..10).map(|n| Record { partition: Some(n % 2), ..letter(&n.to_string()) }).collect()).await;
    let cancel = CancelSignal::new();
    let run = tokio::spawn(scene.harbor.redrive(DLQ).rate(1, "1h").cancel(cancel.clone()).run());
    tokio::time::sleep(SECOND).await;
    assert_eq!((scene.back(), scene.committed()), (vec!["0".to_owned()], Some(1)));
    let began = Instant::now();
    let other = scene.harbor.redrive(DLQ).idle_timeout("1s").run().await.unwrap();
    assert!(began.elapsed() < 3 * SECOND, "{:?}", began.elapsed());
    assert_eq!((counts(&other), scene.back()), ((5, 0), ["0", "1", "3", "5", "7", "9"].map(str::to_owned).to_vec()));
    cancel.cancel();
    let report = run.await.unwrap().unwrap();
    assert_eq!((counts(&report), report.cancelled), ((1, 0), true));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_its_rate_ends_when_it_is_told_to() {
    let scene = ten().await;
    let cancel = CancelSignal::new();
    let run = tokio::spawn(scene.harbor.redrive(DLQ).rate(1, "1h").cancel(cancel.clone()).run());
    tokio::time::sleep(SECOND).await;
    let began = Instant::now();
    cancel.cancel();
    let report = run.await.unwrap().unwrap();
    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
    assert_eq!((counts(&report), report.cancelled, scene.committed()), ((1, 0), true, Some(1)));
}

#[tokio::test(start_paused = true)]
async fn partitions_are_worked_on_at_once_and_each_in_order() {
    for (parallel, takes) in [(1, 8), (2, 4), (4, 2)] {
        let scene = Scene::new(4);
        scene.put((0..8).map(|n| Record { partition: Some(n % 4), ..letter(&n.to_string()) }).collect()).await;
        let began = Instant::now();
        let slowly = |_| async {
            tokio::time::sleep(SECOND).await;
            true
        };
        let run = scene.harbor.redrive(DLQ).parallel(parallel).only_present(true).filter_async(slowly);
        assert_eq!(counts(&run.run().await.unwrap()), (8, 0));
        assert_eq!(began.elapsed().as_secs(), takes, "{parallel} at once");
        let back = scene.back();
        let place = |value: i32| back.iter().position(|back| *back == value.to_string()).unwrap();
        assert!((0..4).all(|n| place(n) < place(n + 4)), "{back:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn max_is_one_number_for_all_partitions_at_work() {
    let scene = Scene::new(4);
    scene.put((0..40).map(|n| Record { partition: Some(n % 4), ..letter(&n.to_string()) }).collect()).await;
    let slowly = |_| async {
        tokio::time::sleep(SECOND).await;
        true
    };
    let report = scene.harbor.redrive(DLQ).filter_async(slowly).max(7).run().await.unwrap();
    assert_eq!((counts(&report), scene.back().len()), ((7, 0), 7));
    let report = scene.harbor.redrive(DLQ).only_present(true).run().await.unwrap();
    assert_eq!(counts(&report), (33, 0));
}

#[tokio::test(start_paused = true)]
async fn a_letter_that_was_brought_back_too_often_stays_and_is_counted() {
    let scene = Scene::new(1);
    let by_node = letter("node").with_header("x-redriven-from", DLQ);
    let often = |count: &str| letter(count).with_header("x-redrive-count", count.to_owned());
    scene.put(vec![by_node, often("4"), often("5"), often("6")]).await;
    let report = scene.harbor.redrive(DLQ).only_present(true).run().await.unwrap();
    assert_eq!((counts(&report), report.exhausted, scene.committed()), ((2, 0), 2, Some(4)));
    let counted: Vec<_> = scene
        .broker
        .records("orders")
        .iter()
        .map(|record| record.header("x-redrive-count").map(<[u8]>::to_vec))
        .collect();
    assert_eq!(counted, [Some(b"2".to_vec()), Some(b"5".to_vec())]);
    // They are there still, for a group that allows more.
    let more = scene.harbor.redrive(DLQ).group("once-more").max_redrives(7).only_present(true);
    let only = |letter: &DeadLetter| letter.redrives >= 5;
    let report = more.filter(only).run().await.unwrap();
    assert_eq!((counts(&report), report.exhausted), ((2, 2), 0));
}

/// A handler that never succeeds and a redrive that is run every night are a loop, which nobody sees.
#[tokio::test(start_paused = true)]
async fn a_letter_that_always_fails_comes_back_five_times_and_then_no_more() {
    let scene = Scene::new(1);
    let consumer = scene.harbor.consumer("shipping").serializer(kafka_harbor::harbor::Text).from_beginning(true);
    let fails = |_: String| async { Err::<(), _>(Failure::permanent("never").named("NeverError")) };
    start(consumer.subscribe("orders", fails)).await;
    scene.letters(&["a"]).await;
    for night in 1..=8 {
        let report = scene.harbor.redrive(DLQ).run().await.unwrap();
        let brought = u64::from(night <= 5);
        let exhausted = u64::from(night == 6);
        assert_eq!((report.reprocessed, report.exhausted), (brought, exhausted), "night {night}");
        tokio::time::sleep(SECOND).await;
    }
    assert_eq!(scene.back().len(), 5);
    scene.harbor.shutdown(SECOND).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_tells_what_a_run_would_do_and_does_nothing() {
    let scene = Scene::new(2);
    let mut lost = failed_by("lost", "E: x");
    lost.headers.retain(|header| header.name != "x-original-topic");
    let often = letter("often").with_header("x-redrive-count", "5");
    let letters = vec![
        failed_by("a", "TimeoutError: 5 s"),
        failed_by("b", "order 17 is gone"),
        failed_by("c", "order 4711 is gone"),
        failed_by("d", "TimeoutError: 9 s"),
        failed_by("e", "order 1 is gone"),
        failed_by("f", "IoError: not wanted"),
        lost,
        often,
    ];
    scene.put(letters).await;
    let wanted = |letter: &DeadLetter| letter.value.as_deref() != Some(b"f");
    let began = Instant::now();
    let report = scene.harbor.redrive(DLQ).filter(wanted).dry_run(true).run().await.unwrap();
    assert!(report.dry_run && began.elapsed() < SECOND);
    assert_eq!((counts(&report), report.exhausted, report.without_target), ((5, 1), 1, 1));
    assert_eq!(reasons(&report), [("order # is gone", 3), ("TimeoutError", 2)]);
    assert_eq!((scene.back().len(), scene.committed(), scene.told.all().len()), (0, None, 0));
    let did = |call: &Call| matches!(call, Call::Settle { .. } | Call::Publish { .. });
    assert_eq!(scene.broker.calls().iter().filter(|call| did(call)).count(), 1, "the letters' own publish");

    // It begins where the group stands, ranges that are done among it.
    scene.harbor.redrive(DLQ).to("orders").offsets(Offset(1)..Offset(2)).run().await.unwrap();
    let report = scene.harbor.redrive(DLQ).filter(wanted).dry_run(true).run().await.unwrap();
    assert_eq!(report.reprocessed + report.skipped + report.exhausted + report.without_target, 6);
    assert!(scene.committed().is_none_or(|offset| offset == 0));
}

/// A look at the letters took partitions from the run that was at work, and a rebalance each time.
#[tokio::test(start_paused = true)]
async fn a_dry_run_does_not_disturb_one_that_is_at_work() {
    let scene = ten().await;
    let slowly = |_| async {
        tokio::time::sleep(SECOND).await;
        true
    };
    let run = tokio::spawn(scene.harbor.redrive(DLQ).filter_async(slowly).only_present(true).run());
    tokio::time::sleep(SECOND).await;
    let looks = [(); 2].map(|()| scene.harbor.redrive(DLQ).dry_run(true).run());
    let [first, second] = looks;
    let (first, second) = tokio::join!(first, second);
    assert_eq!((counts(&first.unwrap()), counts(&second.unwrap())), ((10, 0), (10, 0)), "neither has part of it only");
    assert_eq!(counts(&run.await.unwrap().unwrap()), (10, 0));
    let joined = |call: &&Call| matches!(call, Call::Join { group, .. } if group == GROUP);
    assert_eq!(scene.broker.calls().iter().filter(joined).count(), 1);
}

/// A crash between the copy and its commit repeats, and never loses.
#[tokio::test(start_paused = true)]
async fn a_crash_before_the_commit_brings_letters_back_again_and_loses_none() {
    let scene = ten().await;
    scene.broker.fault(Fault::new(Operation::Settle, Effect::Hang).for_group(GROUP));
    let run = scene.harbor.redrive(DLQ).offsets(Offset(2)..Offset(5)).run();
    assert!(tokio::time::timeout(SECOND, run).await.is_err());
    assert_eq!((scene.back(), scene.committed().unwrap_or(0)), (["2", "3", "4"].map(str::to_owned).to_vec(), 0));
    tokio::time::sleep(SECOND).await;
    scene.broker.clear_faults();
    let report = scene.harbor.redrive(DLQ).only_present(true).run().await.unwrap();
    let mut back = scene.back();
    back.sort();
    assert_eq!((counts(&report), back), ((10, 0), "0122334456789".chars().map(String::from).collect()));
}

#[tokio::test(start_paused = true)]
async fn a_letter_that_may_have_been_written_is_not_committed_and_comes_again() {
    let scene = ten().await;
    scene.broker.fault(Fault::new(Operation::Publish, Effect::LoseAnswer).on_topic("orders").times(5));
    let error = scene.harbor.redrive(DLQ).run().await.unwrap_err();
    assert!(error.source.is_possibly_written(), "{error}");
    assert_eq!((error.report.reprocessed, scene.committed().unwrap_or(0)), (0, 0));
    // One that comes through at a later try is written once.
    scene.broker.lose_next_acknowledgement("orders");
    let before = scene.back().len();
    let report = scene.harbor.redrive(DLQ).only_present(true).run().await.unwrap();
    assert_eq!((counts(&report), scene.back().len() - before), ((10, 0), 10));
}

#[tokio::test(start_paused = true)]
async fn what_retention_takes_while_a_run_is_at_work_holds_up_nothing() {
    let scene = ten().await;
    scene.harbor.redrive(DLQ).offsets(Offset(8)..Offset(9)).run().await.unwrap();
    scene.broker.delete_records(DLQ, 0, Offset(4)).unwrap();
    let report = scene.harbor.redrive(DLQ).only_present(true).run().await.unwrap();
    assert_eq!((counts(&report), scene.committed()), ((5, 0), Some(10)));
    assert_eq!(scene.back(), ["8", "4", "5", "6", "7", "9"]);
}
