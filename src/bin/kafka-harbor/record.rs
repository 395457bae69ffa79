//! A record from the command line.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use clap::Args;
use kafka_harbor::record::{Header, Record, Timestamp};

/// What `produce` takes to make records. Everything a Kafka record can hold can be given.
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// Key as text; without it and --key-base64 the key is null
    #[arg(long, value_name = "TEXT", conflicts_with = "key_base64")]
    key: Option<String>,
    /// Key as base64
    #[arg(long, value_name = "BASE64", value_parser = base64)]
    key_base64: Option<Bytes>,
    /// Value as text; without it and --value-base64 the value is null, a tombstone
    #[arg(long, value_name = "TEXT", conflicts_with = "value_base64")]
    value: Option<String>,
    /// Value as base64
    #[arg(long, value_name = "BASE64", value_parser = base64)]
    value_base64: Option<Bytes>,
    /// Values from standard input, one a line, until it ends
    #[arg(long, conflicts_with_all = ["value", "value_base64", "count"])]
    pub(crate) stdin: bool,
    /// Header, repeatable: name=text, name:=base64, or name alone for a null value
    #[arg(long = "header", value_name = "HEADER", value_parser = header)]
    headers: Vec<Header>,
    /// Partition; else the key decides, or the client
    #[arg(long)]
    partition: Option<i32>,
    /// Creation time in milliseconds since 1970; else now
    #[arg(long, value_name = "MS", allow_negative_numbers = true)]
    timestamp: Option<i64>,
    /// How many records to send; with more than one, an n in braces in key and value stands for the number
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: u64,
}

impl RecordArgs {
    /// Whether neither key, value nor header was given: sent by mistake more often than not.
    pub(crate) fn is_blank(&self) -> bool {
        let given =
            self.key.is_some() || self.key_base64.is_some() || self.value.is_some() || self.value_base64.is_some();
        !given && self.headers.is_empty() && !self.stdin
    }

    /// A record with this value.
    pub(crate) fn with_value(&self, topic: &str, value: Vec<u8>) -> Record {
        let mut record = self.record(topic, 0);
        record.value = Some(value.into());
        record
    }

    /// The `n`-th of the records, from 0.
    pub(crate) fn record(&self, topic: &str, n: u64) -> Record {
        let mut record = Record::tombstone(topic);
        record.key = self.fill(given(self.key.as_deref(), self.key_base64.as_ref()), n);
        record.value = self.fill(given(self.value.as_deref(), self.value_base64.as_ref()), n);
        record.headers = self.headers.clone();
        record.partition = self.partition;
        record.timestamp = self.timestamp.map(Timestamp);
        record
    }

    fn fill(&self, bytes: Option<Bytes>, n: u64) -> Option<Bytes> {
        let bytes = bytes?;
        if self.count == 1 {
            return Some(bytes);
        }
        Some(replace(&bytes, b"{n}", n.to_string().as_bytes()).into())
    }
}

fn given(text: Option<&str>, encoded: Option<&Bytes>) -> Option<Bytes> {
    encoded.cloned().or_else(|| text.map(|text| Bytes::copy_from_slice(text.as_bytes())))
}

fn replace(bytes: &[u8], what: &[u8], with: &[u8]) -> Vec<u8> {
    let mut filled = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, tail)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(what) {
            filled.extend_from_slice(with);
            rest = after;
        } else {
            filled.push(first);
            rest = tail;
        }
    }
    filled
}

fn base64(text: &str) -> Result<Bytes, String> {
    BASE64.decode(text).map(Bytes::from).map_err(|error| format!("not base64: {error}"))
}

fn header(text: &str) -> Result<Header, String> {
    let Some((name, value)) = text.split_once('=') else { return Ok(Header::null(text.to_owned())) };
    match name.strip_suffix(':') {
        Some(name) => Ok(Header::new(name.to_owned(), base64(value)?)),
        None => Ok(Header::new(name.to_owned(), value.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        record: RecordArgs,
    }

    fn parse(args: &[&str]) -> RecordArgs {
        Line::try_parse_from([&["produce"], args].concat()).expect("arguments parse").record
    }

    #[test]
    fn headers_are_text_binary_or_null_and_repeat() {
        let record = parse(&["--header", "a=1=2", "--header", "a:=/w==", "--header", "b"]).record("t", 0);
        assert_eq!(record.headers, [Header::new("a", "1=2"), Header::new("a", vec![0xff]), Header::null("b")]);
        assert!(Line::try_parse_from(["produce", "--header", "a:=!"]).is_err());
    }

    #[test]
    fn absent_is_null_and_empty_is_empty() {
        let record = parse(&["--value", ""]).record("t", 0);
        assert_eq!((record.key, record.value), (None, Some(Bytes::new())));
    }

    #[test]
    fn a_record_of_nothing_is_told_from_one_with_something() {
        assert!(parse(&["--partition", "1"]).is_blank());
        for args in [&["--key", "k"][..], &["--value", ""], &["--value-base64", ""], &["--header", "h"], &["--stdin"]] {
            assert!(!parse(args).is_blank(), "{args:?}");
        }
    }

    #[test]
    fn the_number_replaces_n_only_among_several() {
        assert_eq!(parse(&["--key", "k{n}"]).record("t", 7).key.as_deref(), Some(&b"k{n}"[..]));
        assert_eq!(parse(&["--key", "k{n}-{n}", "--count", "9"]).record("t", 7).key.as_deref(), Some(&b"k7-7"[..]));
    }
}
