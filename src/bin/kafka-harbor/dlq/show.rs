//! `kafka-harbor dlq show`.

use std::collections::HashMap;
use std::time::Duration;

use clap::Args;
use kafka_harbor::client::{Client, Consumer, ConsumerEvent, OffsetReset, PartitionBatch};
use kafka_harbor::harbor::instant;
use kafka_harbor::protocol::batch::BatchView;
use kafka_harbor::record::{Offset, RecordView, Timestamp, Topic, TopicPartition};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::parts;
use crate::connect::ConnectArgs;
use crate::consume::throw_away_group;
use crate::failure::{Failure, chain};
use crate::output::{Output, escaped, record};
use crate::when::when;

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The dead-letter topic
    topic: String,
    /// End after this many letters
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    max: u64,
    /// Of this partition alone, repeatable
    #[arg(long = "partition", value_name = "NUMBER", value_parser = clap::value_parser!(i32).range(0..))]
    partitions: Vec<i32>,
    /// Letters at this offset or behind it, in each partition
    #[arg(long, value_name = "OFFSET", value_parser = clap::value_parser!(i64).range(0..))]
    from_offset: Option<i64>,
    /// Letters that were set aside then or later: 2026-12-01T09:30:00Z, milliseconds since 1970, or how long ago (2h)
    #[arg(long, value_name = "INSTANT", value_parser = when)]
    since: Option<Timestamp>,
    /// Letters whose last error contains this text
    #[arg(long, value_name = "TEXT")]
    last_error: Option<String>,
    /// Print at most so many bytes of a key, a header, a value; JSON has them whole
    #[arg(long, default_value_t = 1_024, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    value_bytes: u32,
    /// Prefix of the harbor's headers
    #[arg(long, default_value = "x-")]
    header_prefix: String,
}

pub(crate) async fn run(args: ShowArgs, connect: &ConnectArgs, output: Output) -> Result<(), Failure> {
    let client = connect.client()?;
    let admin = client.admin().with_timeout(connect.timeout());
    let topic = Topic::from(args.topic.as_str());
    let parts = parts(&admin, std::slice::from_ref(&topic), None).await?;
    if let Some(missing) = args.partitions.iter().find(|at| !parts.iter().any(|part| part.partition.partition == **at))
    {
        return Err(Failure::refused(format!("{topic} has no partition {missing}")));
    }
    let from = Offset(args.from_offset.unwrap_or(0));
    let wanted = parts.into_iter().filter(|part| {
        let here = args.partitions.is_empty() || args.partitions.contains(&part.partition.partition);
        here && part.letters() > 0 && from < part.high
    });
    let left = wanted.map(|part| (part.partition, (from.max(part.low), part.high))).collect();
    let mut reader = Reader { args: &args, output, left, shown: 0 };
    if !reader.left.is_empty() {
        read(&client, &mut reader, connect.timeout()).await?;
    }
    let shown = reader.shown;
    output.event("done", json!({ "topic": args.topic, "shown": shown }), || Some(format!("{shown} letters")))?;
    Ok(())
}

/// Reads in a group of its own, which commits nothing and is deleted.
async fn read(client: &Client, reader: &mut Reader<'_>, timeout: Duration) -> Result<(), Failure> {
    let group = throw_away_group();
    let consumer = client.consumer(&group).topic(reader.args.topic.as_str(), OffsetReset::Earliest).build()?;
    let read = reader.through(consumer, timeout).await;
    // Left behind it would only be listed until the broker forgets it, so a failure is not told.
    drop(client.admin().with_timeout(timeout).delete_groups(&[group]).await);
    read
}

struct Reader<'a> {
    args: &'a ShowArgs,
    output: Output,
    /// Where to begin and to end on each partition that is not read to its end.
    left: HashMap<TopicPartition, (Offset, Offset)>,
    shown: u64,
}

impl Reader<'_> {
    async fn through(&mut self, mut consumer: Consumer, timeout: Duration) -> Result<(), Failure> {
        let read = self.read(&mut consumer, timeout).await;
        if let Err(error) = consumer.close(CLOSE_WITHIN).await {
            self.output.progress(|| format!("kafka-harbor: {}", chain(&error)));
        }
        read
    }

    async fn read(&mut self, consumer: &mut Consumer, timeout: Duration) -> Result<(), Failure> {
        while !self.left.is_empty() && self.shown < self.args.max {
            let deadline = Instant::now() + timeout + JOIN_WITHIN;
            let event = timeout_at(deadline, consumer.next()).await;
            match event.map_err(|_| Failure::unreachable("no letter came in time"))? {
                None => return Err(Failure::refused("the membership ended")),
                Some(ConsumerEvent::Assigned(assignments)) => {
                    for assigned in assignments.iter().map(|assignment| &assignment.assigned) {
                        match self.left.get(&assigned.partition) {
                            Some((from, _)) => consumer.handle().seek(assigned, *from),
                            None => consumer.handle().pause(assigned),
                        }
                    }
                }
                Some(ConsumerEvent::Batch(batch)) => self.batch(&batch)?,
                Some(ConsumerEvent::Fault(error)) if error.is_fatal() => return Err(Failure::refused(chain(&error))),
                Some(ConsumerEvent::Fault(error)) => {
                    self.output.progress(|| format!("kafka-harbor: {}", chain(&error)))
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn batch(&mut self, batch: &PartitionBatch) -> Result<(), Failure> {
        let partition = &batch.assigned.partition;
        let Some(&(from, end)) = self.left.get(partition) else { return Ok(()) };
        for letter in batch.batches.iter().flat_map(BatchView::records) {
            let letter = letter.map_err(|error| Failure::of(&error))?;
            if letter.offset < from.max(batch.from) || letter.offset >= end || !self.wants(&letter) {
                continue;
            }
            if self.shown == self.args.max {
                return Ok(());
            }
            self.shown += 1;
            let fields = if self.output.is_json() { record(partition, &letter) } else { Value::Null };
            self.output.event("letter", fields, || Some(self.text(partition, &letter)))?;
        }
        if batch.next_offset >= end {
            self.left.remove(partition);
        }
        Ok(())
    }

    fn wants(&self, letter: &RecordView<'_>) -> bool {
        let young = self.args.since.is_none_or(|since| letter.timestamp >= since);
        young && self.args.last_error.as_ref().is_none_or(|wanted| self.last_error(letter).contains(wanted.as_str()))
    }

    fn last_error(&self, letter: &RecordView<'_>) -> String {
        let name = format!("{}last-error", self.args.header_prefix);
        letter.headers.last(name.as_bytes()).flatten().map(String::from_utf8_lossy).unwrap_or_default().into_owned()
    }

    /// A letter for people: its place and time, its headers, its value.
    fn text(&self, partition: &TopicPartition, letter: &RecordView<'_>) -> String {
        let most = self.args.value_bytes as usize;
        let bytes = |bytes| text_or_hex(bytes, most);
        let mut lines =
            format!("{partition} @{} {} key={}", letter.offset, instant::write(letter.timestamp), bytes(letter.key));
        for (name, value) in letter.headers.iter() {
            lines.push_str(&format!("\n  {}: {}", bytes(Some(name)), bytes(value)));
        }
        lines.push_str(&format!("\n  {}", bytes(letter.value)));
        lines
    }
}

/// Text where it is UTF-8, with control characters escaped; else hex. What is left out is counted.
fn text_or_hex(bytes: Option<&[u8]>, most: usize) -> String {
    let Some(bytes) = bytes else { return "null".to_owned() };
    if bytes.is_empty() {
        return "\"\"".to_owned();
    }
    let kept = &bytes[..bytes.len().min(most)];
    let (mut shown, kept) = match std::str::from_utf8(bytes) {
        Ok(whole) => {
            let kept = &whole[..whole.floor_char_boundary(kept.len())];
            (escaped(kept), kept.len())
        }
        Err(_) => {
            let hex: String = kept.iter().map(|byte| format!("{byte:02x}")).collect();
            (format!("hex:{hex}"), kept.len())
        }
    };
    if kept < bytes.len() {
        shown.push_str(&format!(" ... {} bytes more", bytes.len() - kept));
    }
    shown
}

const CLOSE_WITHIN: Duration = Duration::from_secs(10);

/// A group lets a member in only after a while.
const JOIN_WITHIN: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_hex_and_what_is_long_is_cut_at_a_character() {
        assert_eq!(text_or_hex(None, 9), "null");
        assert_eq!(text_or_hex(Some(b""), 9), "\"\"");
        assert_eq!(text_or_hex(Some(b"a\x1bb"), 9), "a\\u{1b}b");
        assert_eq!(text_or_hex(Some(&[0xff, 0x00, 0x0a]), 2), "hex:ff00 ... 1 bytes more");
        assert_eq!(text_or_hex(Some("aéé".as_bytes()), 4), "aé ... 2 bytes more");
    }
}
