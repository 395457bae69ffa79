//! A group whose members are different clients: who has which partition, and what became of every record.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_harbor::record::{Header, Offset, TopicPartition};
use serde_json::Value;

use crate::{Peer, Stored};

/// Members of one group, each a program of its own.
#[derive(Debug, Default)]
pub struct Mixed {
    members: BTreeMap<&'static str, Peer>,
    left: Vec<(&'static str, Peer)>,
}

impl Mixed {
    /// Adds a member, by a name of its own.
    ///
    /// # Panics
    /// When the name is taken.
    pub fn join(&mut self, name: &'static str, peer: Peer) -> &mut Peer {
        assert!(self.members.insert(name, peer).is_none(), "{name} is there already");
        self.member(name)
    }

    /// A member that is there.
    ///
    /// # Panics
    /// When it is not.
    pub fn member(&mut self, name: &str) -> &mut Peer {
        self.members.get_mut(name).unwrap_or_else(|| panic!("no member {name}"))
    }

    /// The names of those that are there.
    pub fn names(&self) -> Vec<&'static str> {
        self.members.keys().copied().collect()
    }

    /// Ends a member by SIGTERM; its exit code.
    ///
    /// # Panics
    /// When it does not end.
    pub fn leave(&mut self, name: &'static str) -> Option<i32> {
        let mut peer = self.members.remove(name).unwrap_or_else(|| panic!("no member {name}"));
        peer.terminate();
        let code = peer.finish(20 * SECOND);
        self.left.push((name, peer));
        code
    }

    /// Ends a member by SIGKILL.
    ///
    /// # Panics
    /// When it is not there.
    pub fn crash(&mut self, name: &'static str) {
        let mut peer = self.members.remove(name).unwrap_or_else(|| panic!("no member {name}"));
        peer.kill();
        peer.finish(20 * SECOND);
        self.left.push((name, peer));
    }

    /// Waits until every partition has exactly one owner, and every member has at least one partition.
    ///
    /// # Panics
    /// When that does not come to pass in time.
    pub async fn settled(&mut self, partitions: &BTreeSet<TopicPartition>, patience: Duration) {
        let deadline = Instant::now() + patience;
        loop {
            self.members.values_mut().for_each(Peer::drain);
            let shares: BTreeMap<_, _> = self.members.iter().map(|(name, peer)| (*name, owned(peer))).collect();
            let all: BTreeSet<_> = shares.values().flatten().cloned().collect();
            let count: usize = shares.values().map(BTreeSet::len).sum();
            if all == *partitions && count == all.len() && shares.values().all(|share| !share.is_empty()) {
                return;
            }
            let unowned: Vec<_> = partitions.difference(&all).collect();
            assert!(
                Instant::now() < deadline,
                "not settled within {patience:?}: unowned {unowned:?}, shares {shares:?}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Whether the owner of the partition is a plain client that handled everything before `end`, and whose last word on
    /// it is that its commit was refused.
    pub fn was_refused_last(&mut self, partition: &TopicPartition, end: Offset) -> bool {
        self.members.values_mut().for_each(Peer::drain);
        let Some(owner) = self.members.values().find(|peer| owned(peer).contains(partition)) else { return false };
        let is_last = |event: &Value| {
            event["event"] == "record"
                && event["topic"] == partition.topic.as_str()
                && number(&event["partition"]) == i64::from(partition.partition)
                && number(&event["offset"]) == end.0 - 1
        };
        let mut after = owner.events.iter().skip_while(|event| !is_last(event)).skip(1);
        after.next().is_some_and(|event| event["error"].as_str().is_some_and(|error| error.starts_with("commit: ")))
    }

    /// Events of every member there is or was, with its name, in the order of each.
    pub fn events(&mut self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.members.values_mut().for_each(Peer::drain);
        let members = self.members.iter().map(|(name, peer)| (*name, peer));
        let left = self.left.iter().map(|(name, peer)| (*name, peer));
        members.chain(left).flat_map(|(name, peer)| peer.events.iter().map(move |event| (name, event)))
    }

    /// Where the records of a topic were that somebody is done with: what a plain client was handed over, and what a
    /// member of ours has committed and told.
    pub fn done(&mut self, topic: &str) -> BTreeSet<(i64, i64)> {
        let ours: BTreeSet<_> =
            self.events().filter(|(_, e)| e["event"] == "processed").map(|(name, _)| name).collect();
        let is_done = |name: &str, event: &Value| match event["event"].as_str() {
            Some("record") => !ours.contains(name),
            Some("processed" | "retried" | "deadLettered") => true,
            _ => false,
        };
        let done: BTreeSet<_> = self
            .events()
            .filter(|(name, event)| event["topic"] == topic && is_done(name, event))
            .map(|(_, event)| (number(&event["partition"]), number(&event["offset"])))
            .collect();
        done
    }

    /// That every record of the topic was handled by somebody.
    ///
    /// # Panics
    /// When one was not.
    pub fn assert_all_done(&mut self, topic: &str, ends: &BTreeMap<TopicPartition, Offset>) {
        let done = self.done(topic);
        for (partition, end) in ends.iter().filter(|(partition, _)| partition.topic.as_str() == topic) {
            let number = i64::from(partition.partition);
            let missing: Vec<_> = (0..end.0).filter(|offset| !done.contains(&(number, *offset))).collect();
            assert!(missing.is_empty(), "{partition}: nobody handled {missing:?} of {end}");
        }
    }
}

/// All partitions of topics, given with their numbers of partitions.
pub fn partitions(topics: &[(&str, i32)]) -> BTreeSet<TopicPartition> {
    let all = topics.iter().flat_map(|(topic, count)| (0..*count).map(|number| TopicPartition::new(*topic, number)));
    all.collect()
}

/// A `record` event's topic, and the record.
///
/// # Panics
/// When it is none.
pub fn stored(event: &Value) -> (String, Stored) {
    let header = |pair: &Value| Header { name: bytes(&pair[0]).expect("a name"), value: bytes(&pair[1]) };
    let stored = Stored {
        partition: i32::try_from(number(&event["partition"])).expect("a partition"),
        offset: number(&event["offset"]),
        timestamp: number(&event["timestamp"]),
        key: bytes(&event["key"]),
        value: bytes(&event["value"]),
        headers: event["headers"].as_array().expect("a list").iter().map(header).collect(),
    };
    (event["topic"].as_str().expect("a topic").to_owned(), stored)
}

/// What a program has by its last word. One of Node speaks for several members, each of which tells all that it has.
fn owned(peer: &Peer) -> BTreeSet<TopicPartition> {
    let mut shares: BTreeMap<Option<u64>, &Value> = BTreeMap::new();
    for event in &peer.events {
        match event["consumer"].as_u64() {
            Some(consumer) if event["event"] == "assigned" => shares.insert(Some(consumer), &event["partitions"]),
            None if event["owned"].is_array() => shares.insert(None, &event["owned"]),
            _ => continue,
        };
    }
    let pair = |pair: &Value| {
        let partition = i32::try_from(number(&pair[1])).expect("a partition");
        TopicPartition::new(pair[0].as_str().expect("a topic"), partition)
    };
    shares.values().flat_map(|share| share.as_array().expect("a list")).map(pair).collect()
}

/// A number, or the digits of one.
fn number(value: &Value) -> i64 {
    let number = value.as_i64().or_else(|| value.as_str()?.parse().ok());
    number.unwrap_or_else(|| panic!("no number: {value}"))
}

/// Null, text, or `{"base64": ...}`.
fn bytes(value: &Value) -> Option<Bytes> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(Bytes::copy_from_slice(text.as_bytes())),
        other => Some(decode(other["base64"].as_str().expect("bytes in base64")).into()),
    }
}

fn decode(base64: &str) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |text: u8| DIGITS.iter().position(|digit| *digit == text).expect("a digit of base64") as u32;
    let digits = base64.trim_end_matches('=').as_bytes();
    let group = |group: &[u8]| {
        let word = group.iter().fold(0, |word, text| word << 6 | digit(*text)) << (6 * (4 - group.len()));
        word.to_be_bytes()[1..group.len()].to_vec()
    };
    digits.chunks(4).flat_map(group).collect()
}

const SECOND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of RFC 4648, section 10.
    #[test]
    fn base64_is_read() {
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYg==", "foob")] {
            assert_eq!(decode(text), bytes.as_bytes());
        }
        assert_eq!(decode("//4="), [0xff, 0xfe]);
    }
}
