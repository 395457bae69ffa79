//! Taking a redrive back, as far as nobody has read it.

use super::*;
use kafka_harbor::adapter::{CommittedOffset, GroupPositions};
use kafka_harbor::harbor::{Text, UndoObstacle, UndoRedrive, UndoReport};
use kafka_harbor::record::{Timestamp, TopicPartition};

fn orders() -> TopicPartition {
    TopicPartition::new("orders", 0)
}

impl Scene {
    /// Has a group without members stand there.
    async fn stands(&self, group: &str, offset: i64, note: Option<&str>) {
        let place = CommittedOffset { partition: orders(), offset: Offset(offset), note: note.map(str::to_owned) };
        self.broker.set_committed(group, &[place]).await.unwrap();
    }

    fn stood(&self, group: &str) -> Option<i64> {
        self.broker.committed(group, "orders", 0).map(|offset| offset.0)
    }

    fn undo(&self) -> UndoRedrive {
        self.harbor.undo_redrive(DLQ, self.broker.clone()).topic("orders")
    }

    fn dead(&self) -> Vec<String> {
        self.broker.records(DLQ).iter().map(text).collect()
    }
}

/// Three letters that were brought back, behind two orders of others.
async fn brought_back() -> Scene {
    let scene = Scene::new(1);
    scene.put(vec![Record::new("orders", "old-1"), Record::new("orders", "old-2")]).await;
    scene.letters(&["a", "b", "c"]).await;
    scene.harbor.redrive(DLQ).only_present(true).run().await.unwrap();
    scene
}

fn left(report: &UndoReport) -> Option<(Option<u64>, &UndoObstacle)> {
    report.left.get(&orders()).map(|left| (left.letters, &left.why))
}

#[tokio::test(start_paused = true)]
async fn what_nobody_has_read_is_dead_again_and_no_group_reads_it() {
    let scene = Scene::new(1);
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let consume = |harbor: &Harbor<Json>| {
        let seen = seen.clone();
        harbor.consumer("shipping").serializer(Text).from_beginning(true).subscribe("orders", move |order: String| {
            seen.lock().unwrap().push(order);
            async { Ok::<_, Failure>(()) }
        })
    };
    let first = start(consume(&scene.harbor)).await;
    scene.put(vec![Record::new("orders", "old")]).await;
    tokio::time::sleep(SECOND).await;
    first.stop(SECOND).await.unwrap();

    scene.letters(&["a", "b"]).await;
    let redrive = scene.harbor.redrive(DLQ).only_present(true).run().await.unwrap();
    assert_eq!(redrive.targets, ["orders"]);
    let undo = || scene.harbor.undo_redrive(DLQ, scene.broker.clone()).of(&redrive);
    let report = undo().dry_run(true).run().await.unwrap();
    assert_eq!((report.taken_back, report.dry_run, scene.dead().len(), scene.stood("shipping")), (2, true, 2, Some(1)));
    let report = undo().run().await.unwrap();
    assert_eq!((report.taken_back, left(&report)), (2, None));
    assert_eq!((scene.dead(), scene.stood("shipping")), (["a", "b", "a", "b"].map(str::to_owned).to_vec(), Some(3)));
    let letter = &scene.broker.records(DLQ)[2];
    assert_eq!(letter.header("x-original-topic"), Some(&b"orders"[..]));
    assert_eq!(letter.header("x-last-error"), Some(&b"RedriveUndone: taken back from orders-0, offset 1"[..]));
    assert_eq!((letter.header("x-redrive-count"), letter.header("x-redriven-from")), (None, None));
    assert_eq!(letter.header("x-correlation-id"), Some(&b"id-a"[..]));
    assert_eq!(undo().run().await.unwrap().taken_back, 0, "there is nothing more");

    start(consume(&scene.harbor)).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(*seen.lock().unwrap(), ["old"], "what was taken back is not handled");
    let again = scene.harbor.redrive(DLQ).only_present(true).run().await.unwrap();
    tokio::time::sleep(SECOND).await;
    assert_eq!((counts(&again), seen.lock().unwrap().len()), ((2, 0), 3));
    scene.harbor.shutdown(SECOND).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_a_group_has_read_stays_and_only_what_follows_is_taken_back() {
    let scene = brought_back().await;
    scene.stands("shipping", 4, None).await;
    let report = scene.undo().run().await.unwrap();
    assert_eq!((report.taken_back, left(&report), scene.dead()[3..].to_vec()), (1, None, vec!["c".to_owned()]));
    assert_eq!(scene.stood("shipping"), Some(5));
}

/// Copied back, they would be handled as well: nothing passes a single record.
#[tokio::test(start_paused = true)]
async fn letters_behind_a_record_of_others_are_left_and_counted() {
    let scene = brought_back().await;
    scene.stands("shipping", 2, None).await;
    scene.put(vec![Record::new("orders", "new")]).await;
    scene.letters(&["d", "e"]).await;
    scene.harbor.redrive(DLQ).only_present(true).run().await.unwrap();
    let report = scene.undo().run().await.unwrap();
    assert_eq!(report.taken_back, 3);
    assert_eq!(left(&report), Some((Some(2), &UndoObstacle::Others { offset: Offset(5) })));
    assert_eq!(scene.stood("shipping"), Some(5), "it reads `new` next");
    // A group that has an order of others to read first.
    let scene = brought_back().await;
    scene.stands("shipping", 1, None).await;
    let report = scene.undo().run().await.unwrap();
    assert_eq!((report.taken_back, scene.dead().len(), scene.stood("shipping")), (0, 3, Some(1)));
    assert_eq!(left(&report), Some((Some(3), &UndoObstacle::Others { offset: Offset(1) })));
}

#[tokio::test(start_paused = true)]
async fn what_one_of_two_groups_has_read_is_not_taken_from_the_other() {
    let scene = brought_back().await;
    scene.stands("billing", 3, None).await;
    scene.stands("shipping", 2, None).await;
    let report = scene.undo().run().await.unwrap();
    let behind = UndoObstacle::Behind { group: "shipping".to_owned(), offset: Offset(2) };
    assert_eq!((report.taken_back, left(&report)), (0, Some((Some(3), &behind))));
    assert_eq!((scene.stood("billing"), scene.stood("shipping"), scene.dead().len()), (Some(3), Some(2), 3));

    scene.stands("shipping", 3, Some("kafka-harbor/1 partitions=1")).await;
    let report = scene.undo().run().await.unwrap();
    assert_eq!((report.taken_back, left(&report)), (2, None));
    assert_eq!((scene.stood("billing"), scene.stood("shipping")), (Some(5), Some(5)));
}

#[tokio::test(start_paused = true)]
async fn a_group_at_work_is_named_and_nothing_is_taken_back() {
    let scene = brought_back().await;
    let handler = |_: String| std::future::pending::<Result<(), Failure>>();
    start(scene.harbor.consumer("shipping").serializer(Text).from_beginning(true).subscribe("orders", handler)).await;
    let error = scene.undo().run().await.unwrap_err();
    assert_eq!((error.source.code(), error.source.is_retryable()), (code::STILL_READ, true));
    assert!(error.to_string().contains("group `shipping` is at work on `orders` (1 member(s) now)"), "{error}");
    assert_eq!(scene.dead().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn where_it_is_not_clear_who_has_read_what_nothing_is_taken_back() {
    let scene = brought_back().await;
    let report = scene.undo().run().await.unwrap();
    assert_eq!(left(&report), Some((None, &UndoObstacle::NoGroup)));
    let unclear = UndoObstacle::Unclear { group: "shipping".to_owned() };
    scene.stands("shipping", 2, Some("kafka-harbor/1 partitions=1 done=3-5")).await;
    assert_eq!(left(&scene.undo().run().await.unwrap()), Some((None, &unclear)));
    // Where its place is gone, it begins somewhere else.
    scene.stands("shipping", 1, None).await;
    scene.broker.delete_records("orders", 0, Offset(2)).unwrap();
    assert_eq!(left(&scene.undo().run().await.unwrap()), Some((None, &unclear)));
    assert_eq!(scene.dead().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn letters_of_another_redrive_or_another_time_are_others() {
    let scene = brought_back().await;
    scene.stands("shipping", 2, None).await;
    let report = scene.undo().times(..Timestamp(0)).run().await.unwrap();
    assert_eq!((report.taken_back, left(&report)), (0, None));
    let other = scene.harbor.undo_redrive("payments-dlq", scene.broker.clone()).topic("orders");
    assert_eq!(other.run().await.unwrap().taken_back, 0);
    assert_eq!((scene.dead().len(), scene.stood("shipping")), (3, Some(2)));
}

#[tokio::test(start_paused = true)]
async fn no_group_is_moved_past_a_letter_that_was_not_acknowledged() {
    let scene = brought_back().await;
    scene.stands("shipping", 2, None).await;
    scene.broker.fault(Fault::new(Operation::Publish, Effect::LoseAnswer).on_topic(DLQ).times(5));
    let error = scene.undo().run().await.unwrap_err();
    assert!(error.source.is_possibly_written(), "{error}");
    assert_eq!(
        (error.report.taken_back, scene.stood("shipping")),
        (0, Some(2)),
        "it may be dead twice, and is never lost"
    );
    assert_eq!(scene.undo().run().await.unwrap().taken_back, 3);
    assert_eq!(scene.stood("shipping"), Some(5));
}

#[tokio::test(start_paused = true)]
async fn a_group_that_cannot_be_moved_is_named_and_the_others_are_moved() {
    let scene = brought_back().await;
    scene.stands("billing", 2, None).await;
    scene.stands("shipping", 2, None).await;
    scene.broker.fault(Fault::new(Operation::Settle, Effect::refuse(ErrorCode(30))).for_group("billing"));
    let error = scene.undo().run().await.unwrap_err();
    let HarborError::NotPassed { group, partition, offset, .. } = &error.source else { panic!("{error}") };
    assert_eq!((group.as_str(), partition, *offset), ("billing", &orders(), Offset(5)));
    assert_eq!((error.report.taken_back, scene.dead().len()), (3, 6));
    assert_eq!((scene.stood("billing"), scene.stood("shipping")), (Some(2), Some(5)));
}

/// A group that began between two steps would have been set back over what it had read.
#[tokio::test(start_paused = true)]
async fn a_group_that_reads_between_two_steps_ends_the_undo() {
    let scene = Scene::new(1);
    let values: Vec<String> = (0..600).map(|n| n.to_string()).collect();
    scene.letters(&values.iter().map(String::as_str).collect::<Vec<_>>()).await;
    scene.harbor.redrive(DLQ).only_present(true).run().await.unwrap();
    scene.stands("billing", 0, None).await;
    scene.stands("shipping", 0, None).await;
    // While the second of them is moved behind the first step's letters, the first one reads on.
    scene.broker.fault(Fault::new(Operation::Settle, Effect::Delay(2 * SECOND)).for_group("shipping"));
    let undo = tokio::spawn(scene.undo().run());
    tokio::time::sleep(SECOND).await;
    assert_eq!((scene.dead().len(), scene.stood("billing")), (1_100, Some(500)));
    scene.stands("billing", 550, None).await;
    let error = undo.await.unwrap().unwrap_err();
    assert_eq!((error.source.code(), error.report.taken_back), (code::STILL_READ, 500), "{error}");
    assert_eq!((scene.dead().len(), scene.stood("billing"), scene.stood("shipping")), (1_100, Some(550), Some(500)));
}

#[tokio::test(start_paused = true)]
async fn an_undo_that_is_told_to_end_does_the_step_at_hand_whole() {
    for by_shutdown in [false, true] {
        let scene = Scene::new(1);
        let values: Vec<String> = (0..600).map(|n| n.to_string()).collect();
        scene.letters(&values.iter().map(String::as_str).collect::<Vec<_>>()).await;
        scene.harbor.redrive(DLQ).only_present(true).run().await.unwrap();
        scene.stands("shipping", 0, None).await;
        scene.broker.fault(Fault::new(Operation::Settle, Effect::Delay(2 * SECOND)).for_group("shipping"));
        let cancel = CancelSignal::new();
        let undo = tokio::spawn(scene.undo().cancel(cancel.clone()).run());
        tokio::time::sleep(SECOND).await;
        if by_shutdown {
            scene.harbor.shutdown(30 * SECOND).await.unwrap();
        } else {
            cancel.cancel();
        }
        let report = undo.await.unwrap().unwrap();
        assert_eq!((report.taken_back, report.cancelled), (500, true));
        assert_eq!((scene.dead().len(), scene.stood("shipping")), (1_100, Some(500)));
        let members: usize =
            scene.broker.groups_of(&["orders".into()]).await.unwrap().iter().map(|group| group.members).sum();
        assert_eq!(members, 0, "its group is left");
    }
}

#[tokio::test(start_paused = true)]
async fn options_of_an_undo_that_make_no_sense_are_named_together() {
    let scene = Scene::new(1);
    let undo = scene.harbor.undo_redrive(DLQ, scene.broker.clone()).topic(DLQ).times(Timestamp(2)..Timestamp(1));
    let error = undo.idle_timeout("0s").run().await.unwrap_err();
    let HarborError::Config(config) = &error.source else { panic!("{error}") };
    let options: Vec<_> = config.problems().iter().map(|problem| problem.option.as_str()).collect();
    assert_eq!(options, ["idle_timeout", "topic", "times"]);
    let nowhere = scene.harbor.undo_redrive(DLQ, scene.broker.clone()).run().await.unwrap_err();
    assert!(nowhere.to_string().contains("at least one"), "{nowhere}");
}
