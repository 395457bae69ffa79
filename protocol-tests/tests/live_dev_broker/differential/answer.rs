//! Answers in a form that two brokers share: fields by path, with ids, addresses and times replaced by names.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use kafka_harbor::protocol::batch::{ReadOptions, batches, encoded};

/// What a field of an answer holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Node {
    Leaf(String),
    List(Vec<Node>),
    Struct(Vec<(String, Node)>),
}

/// Names for what is random: the first topic id that appears is `topic_id 1`.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeMap<(&'static str, String), usize>);

impl Names {
    /// The fields of an answer, by the Debug form of its struct.
    pub(crate) fn fields(&mut self, debug: &str) -> BTreeMap<String, String> {
        let mut parser = Parser { rest: debug };
        let node = self.settle("", parser.value());
        assert!(parser.rest.is_empty(), "left of a Debug form: {}", parser.rest);
        let mut fields = BTreeMap::new();
        self.flatten("", "", node, &mut fields);
        fields
    }

    /// Epochs of a group count on from wherever its first one was.
    pub(crate) fn forget_epochs(&mut self) {
        self.0.retain(|(kind, _), _| *kind != EPOCH);
    }

    fn flatten(&mut self, path: &str, field: &str, node: Node, fields: &mut BTreeMap<String, String>) {
        match node {
            Node::Leaf(value) => {
                fields.insert(path.to_owned(), self.named(field, value));
            }
            Node::List(all) if all.is_empty() => {
                fields.insert(path.to_owned(), "[]".to_owned());
            }
            Node::List(all) => {
                for (index, node) in all.into_iter().enumerate() {
                    // A setting is known by its name, wherever it stands.
                    let named = match &node {
                        Node::Struct(of) if field == "configs" => of.iter().find(|(name, _)| name == "name"),
                        _ => None,
                    };
                    let index = match named {
                        Some((_, Node::Leaf(name))) => name.clone(),
                        _ => index.to_string(),
                    };
                    self.flatten(&format!("{path}[{index}]"), field, node, fields);
                }
            }
            Node::Struct(all) => {
                for (name, node) in all {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    self.flatten(&path, &name, node, fields);
                }
            }
        }
    }

    /// Takes out what two brokers never share, and the order of lists.
    fn settle(&self, field: &str, node: Node) -> Node {
        match node {
            Node::Leaf(value) => Node::Leaf(settled(field, value)),
            Node::List(all) => {
                let mut all: Vec<Node> = all.into_iter().map(|node| self.settle(field, node)).collect();
                // Topics that Kafka keeps for itself are not the dev broker's.
                all.retain(|node| !is_internal(node));
                // Ids tell elements apart that nothing else does, once they have names.
                all.sort_by_cached_key(|node| (self.with_ids(field, node, false), self.with_ids(field, node, true)));
                Node::List(all)
            }
            Node::Struct(all) => {
                let kept = all.into_iter().filter(|(name, _)| !PASSED_OVER.contains(&&**name));
                let settle = |(name, node): (String, Node)| (name.clone(), self.settle(&name, node));
                Node::Struct(kept.map(settle).collect())
            }
        }
    }

    /// The node with ids by the names they have, or without them.
    fn with_ids(&self, field: &str, node: &Node, with: bool) -> Node {
        match node {
            Node::Leaf(value) if IDS.contains(&field) => {
                let kind = IDS.iter().find(|id| **id == field).copied().unwrap_or_default();
                let number = self.0.get(&(kind, value.clone())).filter(|_| with).copied();
                Node::Leaf(number.map_or_else(String::new, |number| format!("{number:09}")))
            }
            Node::Leaf(value) => Node::Leaf(value.clone()),
            Node::List(all) => Node::List(all.iter().map(|node| self.with_ids(field, node, with)).collect()),
            Node::Struct(all) => {
                let of = |(name, node): &(String, Node)| (name.clone(), self.with_ids(name, node, with));
                Node::Struct(all.iter().map(of).collect())
            }
        }
    }

    fn named(&mut self, field: &str, value: String) -> String {
        if field == "records" && value.starts_with("b\"") {
            return self.records(&unescaped(&value));
        }
        match IDS.iter().find(|id| **id == field) {
            Some(&"session_id") if value == "0" => value,
            Some(_) if NO_IDS.contains(&&*value) => value,
            // The leader of a group is one of its members.
            Some(&"leader") => self.name("member_id", value),
            Some(&("member_epoch" | "group_epoch" | "assignment_epoch")) if value == "0" => value,
            Some(&("member_epoch" | "group_epoch" | "assignment_epoch")) => self.name(EPOCH, value),
            Some(id) => self.name(id, value),
            None => value,
        }
    }

    fn name(&mut self, kind: &'static str, value: String) -> String {
        let next = self.0.keys().filter(|(of, _)| *of == kind).count() + 1;
        let number = *self.0.entry((kind, value)).or_insert(next);
        format!("<{kind} {number}>")
    }

    /// Batches as a reader sees them.
    fn records(&mut self, bytes: &[u8]) -> String {
        let bytes = bytes::Bytes::copy_from_slice(bytes);
        let mut headers = encoded(bytes.clone());
        let mut all = String::new();
        for view in batches(bytes, &ReadOptions::default()) {
            let (view, encoded) = (view.unwrap(), headers.next().unwrap().unwrap());
            let header = encoded.header();
            let epoch = header.leader_epoch.map_or(-1, |epoch| epoch.0);
            let last = header.next_offset().0 - 1;
            all += &format!("({}..={last} epoch {epoch} {:?}", header.base_offset.0, header.timestamp_type);
            if let Some(producer) = header.producer {
                let id = self.name("producer_id", producer.id.to_string());
                all += &format!(" of {id} {} {}", producer.epoch, producer.base_sequence);
            }
            if header.is_transactional {
                all += " transactional";
            }
            if view.is_control() {
                all += &format!(" {:?})", view.control_kind().unwrap());
                continue;
            }
            for record in view.records() {
                let record = record.unwrap();
                let text = |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
                let time = settled_time(record.timestamp.0.to_string());
                all += &format!(" {:?}={:?}@{time}", text(record.key), text(record.value));
            }
            all += ")";
        }
        if let Some(cut) = headers.cut() {
            all += &format!("({} bytes of one more)", cut.present_bytes);
        }
        all
    }
}

/// The Debug form of structs, read back.
struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    fn value(&mut self) -> Node {
        if self.takes("[") {
            return Node::List(self.all("]", Self::value));
        }
        if self.takes("{") {
            return Node::Struct(self.all("}", Self::entry));
        }
        if self.rest.starts_with('"') || self.rest.starts_with("b\"") {
            return Node::Leaf(self.quoted());
        }
        let end = self.rest.find(|c: char| !(c.is_alphanumeric() || "_-.".contains(c))).unwrap_or(self.rest.len());
        let (token, rest) = self.rest.split_at(end);
        self.rest = rest;
        if self.takes("(") {
            let inner = self.value();
            assert!(self.takes(")"), "a tuple of one: {}", self.rest);
            return inner;
        }
        if self.takes(" {") {
            return Node::Struct(self.all("}", Self::entry));
        }
        Node::Leaf(token.to_owned())
    }

    fn entry(&mut self) -> (String, Node) {
        let (name, rest) = self.rest.split_once(": ").expect("a field's name");
        self.rest = rest;
        (name.to_owned(), self.value())
    }

    fn all<T>(&mut self, end: &str, one: fn(&mut Self) -> T) -> Vec<T> {
        let mut all = Vec::new();
        loop {
            self.rest = self.rest.trim_start_matches([' ', ',']);
            if self.takes(end) {
                return all;
            }
            all.push(one(self));
        }
    }

    fn quoted(&mut self) -> String {
        let open = self.rest.find('"').expect("a quoted text") + 1;
        let mut escaped = false;
        let length = self.rest[open..].find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let (text, rest) = self.rest.split_at(open + length.expect("the end of a quoted text") + 1);
        self.rest = rest;
        text.to_owned()
    }

    fn takes(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }
}

fn settled(field: &str, value: String) -> String {
    match field {
        "host" | "client_host" if value != "\"\"" => "<host>".to_owned(),
        "port" if value.parse::<i32>().is_ok_and(|port| port > 0) => "<port>".to_owned(),
        // Kafka's wording is its own.
        "error_message" | "acknowledge_error_message" | "batch_index_error_message"
            if value != "None" && value != "\"\"" =>
        {
            "<text>".to_owned()
        }
        // Where a node's logs are, and how much room is left there.
        "log_dir" => "<directory>".to_owned(),
        "total_bytes" | "usable_bytes" if value.parse::<i64>().is_ok_and(|bytes| bytes > 0) => "<bytes>".to_owned(),
        "session_lifetime_ms" if value != "0" => "<time>".to_owned(),
        "auth_bytes" => settled_login(value),
        _ => settled_time(value),
    }
}

fn is_internal(node: &Node) -> bool {
    let Node::Struct(of) = node else { return false };
    of.iter().any(|(field, value)| {
        matches!(field.as_str(), "name" | "topic")
            && matches!(value, Node::Leaf(name) if name.trim_start_matches("Some(").starts_with("\"__"))
    })
}

/// What a server says in a run of SCRAM without what it makes up: its part of the nonce, the salt, its signature.
fn settled_login(value: String) -> String {
    let parts =
        value.trim_start_matches("b\"").trim_end_matches('"').split(',').map(|part| match part.split_once('=') {
            Some(("r", nonce)) if nonce.starts_with("differential") => "r=differential<nonce>",
            Some(("s", _)) => "s=<salt>",
            // How many rounds is set for each user.
            Some(("i", rounds)) if rounds.parse::<u32>().is_ok_and(|rounds| rounds >= 4096) => "i=<rounds>",
            Some(("v", _)) => "v=<signature>",
            _ => part,
        });
    parts.collect::<Vec<_>>().join(",")
}

/// A time of today is whatever the broker's clock said.
fn settled_time(value: String) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    match value.parse::<u128>() {
        Ok(time) if time.abs_diff(now) < 3_600_000 => "<now>".to_owned(),
        _ => value,
    }
}

fn unescaped(debug: &str) -> Vec<u8> {
    let inner = &debug.as_bytes()[2..debug.len() - 1];
    let (mut bytes, mut at) = (Vec::new(), 0);
    while at < inner.len() {
        if inner[at] != b'\\' {
            bytes.push(inner[at]);
            at += 1;
            continue;
        }
        let (byte, length) = match inner[at + 1] {
            b'n' => (b'\n', 2),
            b'r' => (b'\r', 2),
            b't' => (b'\t', 2),
            b'0' => (0, 2),
            b'x' => {
                let hex = std::str::from_utf8(&inner[at + 2..at + 4]).expect("two digits");
                (u8::from_str_radix(hex, 16).expect("two digits"), 4)
            }
            other => (other, 2),
        };
        bytes.push(byte);
        at += length;
    }
    bytes
}

/// Fields that hold what each broker makes up.
const IDS: [&str; 8] =
    ["topic_id", "member_id", "leader", "producer_id", "session_id", "member_epoch", "group_epoch", "assignment_epoch"];
/// One row of names for all epochs of a group.
const EPOCH: &str = "epoch";
/// What stands in them where there is none.
const NO_IDS: [&str; 5] = ["None", "\"\"", "-1", "-2", "00000000-0000-0000-0000-000000000000"];
const PASSED_OVER: [&str; 7] = [
    "throttle_time_ms",
    "unknown_tagged_fields",
    "cluster_id",
    "api_keys",
    "supported_features",
    "finalized_features",
    "finalized_features_epoch",
];

#[test]
fn an_answer_is_told_by_paths_and_its_ids_by_their_order() {
    let mut names = Names::default();
    let debug = r#"A { id: Some(T(7)), topics: [B { name: "b\"", member_id: "x-1" }, B { name: "a", member_id: "y" }], none: None, throttle_time_ms: 4, empty: [], raw: b"\0\"" }"#;
    let fields = names.fields(debug);
    let told: Vec<_> = fields.iter().map(|(path, value)| format!("{path}={value}")).collect();
    let expected = [
        "empty=[]",
        "id=7",
        "none=None",
        r#"raw=b"\0\"""#,
        "topics[0].member_id=<member_id 1>",
        r#"topics[0].name="a""#,
        "topics[1].member_id=<member_id 2>",
        r#"topics[1].name="b\"""#,
    ];
    assert_eq!(told, expected);
    assert_eq!(names.fields(r#"A { member_id: "y" }"#)["member_id"], "<member_id 1>", "the same in every answer");
}
