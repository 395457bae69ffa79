//! What the tool prints: tables for people, one JSON object a line for programs.

use std::io::{self, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use kafka_harbor::record::{RecordView, TopicPartition};
use serde_json::{Value, json};

/// Where results go, and in which form.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    json: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    pub(crate) fn is_json(self) -> bool {
        self.json
    }

    /// One event: a JSON line with `event` and `at` first; for people the line `text`, if there is one.
    pub(crate) fn event(self, event: &str, fields: Value, text: impl FnOnce() -> Option<String>) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.json {
            write!(out, "{{\"event\":{},\"at\":{}", json!(event), now_ms())?;
            if let Value::Object(fields) = fields {
                for (name, value) in fields {
                    write!(out, ",{}:{value}", json!(name))?;
                }
            }
            out.write_all(b"}\n")?;
        } else if let Some(text) = text() {
            writeln!(out, "{text}")?;
        }
        out.flush()
    }

    /// Rows under a heading; as JSON one event a row, named `event`, with the columns as fields.
    pub(crate) fn table(self, event: &str, columns: &[&str], rows: &[Vec<Value>]) -> io::Result<()> {
        if self.json {
            for row in rows {
                let fields = columns.iter().map(|column| (*column).to_owned()).zip(row.iter().cloned());
                self.event(event, Value::Object(fields.collect()), || None)?;
            }
            return Ok(());
        }
        let mut out = io::stdout().lock();
        out.write_all(layout(columns, rows).as_bytes())?;
        out.flush()
    }

    /// A line on stderr that tells how far long work has come. Nothing for programs.
    pub(crate) fn progress(self, text: impl FnOnce() -> String) {
        if !self.json {
            let _ = writeln!(io::stderr().lock(), "{}", text());
        }
    }
}

/// The text of a table: columns as wide as their widest cell, numbers to the right.
fn layout(columns: &[&str], rows: &[Vec<Value>]) -> String {
    let cells: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(cell).collect()).collect();
    let widths: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(index, name)| {
            let widest = cells.iter().map(|row| row.get(index).map_or(0, |text| text.chars().count())).max();
            widest.unwrap_or(0).max(name.chars().count())
        })
        .collect();
    let mut text = String::new();
    let heading: Vec<String> = columns.iter().map(|name| name.to_uppercase().replace('_', " ")).collect();
    push_line(&mut text, &heading, &widths, &[]);
    for (row, values) in cells.iter().zip(rows) {
        push_line(&mut text, row, &widths, values);
    }
    text
}

fn push_line(text: &mut String, cells: &[String], widths: &[usize], values: &[Value]) {
    let mut line = String::new();
    for (index, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
        let right = values.get(index).is_some_and(Value::is_number);
        line.push_str(&if right { format!("{padding}{cell}  ") } else { format!("{cell}{padding}  ") });
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Bytes as a program reads them: null, text where they are UTF-8, else base64.
pub(crate) fn show(bytes: Option<&[u8]>) -> Value {
    match bytes {
        None => Value::Null,
        Some(bytes) => {
            std::str::from_utf8(bytes).map_or_else(|_| json!({ "base64": BASE64.encode(bytes) }), |text| json!(text))
        }
    }
}

/// A record whole: nothing of it is left out or cut.
pub(crate) fn record(partition: &TopicPartition, record: &RecordView<'_>) -> Value {
    let headers: Vec<Value> =
        record.headers.iter().map(|(name, value)| json!([show(Some(name)), show(value)])).collect();
    json!({
        "topic": partition.topic.as_str(),
        "partition": partition.partition,
        "offset": record.offset.to_string(),
        "timestamp": record.timestamp.0,
        "key": show(record.key),
        "value": show(record.value),
        "headers": headers,
    })
}

/// A record for people: its place on one line, then headers, then the value.
pub(crate) fn record_text(partition: &TopicPartition, record: &RecordView<'_>) -> String {
    let mut text = format!("{partition} @{} key={}", record.offset, plain(record.key));
    for (name, value) in record.headers.iter() {
        text.push_str(&format!("\n  {}: {}", plain(Some(name)), plain(value)));
    }
    text.push_str(&format!("\n  {}", plain(record.value)));
    text
}

/// Bytes for people: control characters escaped, `null` told apart from an empty text.
fn plain(bytes: Option<&[u8]>) -> String {
    match bytes {
        None => "null".to_owned(),
        Some([]) => "\"\"".to_owned(),
        Some(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => escaped(text),
            Err(_) => format!("base64:{}", BASE64.encode(bytes)),
        },
    }
}

/// A text with its control characters escaped.
pub(crate) fn escaped(text: &str) -> String {
    text.chars().flat_map(escape_control).collect()
}

/// A terminal must not be steered by what a record holds.
fn escape_control(c: char) -> impl Iterator<Item = char> {
    let escaped: Vec<char> = if c.is_control() { c.escape_default().collect() } else { vec![c] };
    escaped.into_iter()
}

fn now_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_keep_null_empty_text_and_binary_apart() {
        assert_eq!(show(None), Value::Null);
        assert_eq!(show(Some(b"")), json!(""));
        assert_eq!(show(Some("é".as_bytes())), json!("é"));
        assert_eq!(show(Some(&[0xff, 0x00])), json!({ "base64": "/wA=" }));
    }

    #[test]
    fn a_record_cannot_steer_the_terminal() {
        assert_eq!(plain(Some(b"a\x1b[2Jb")), "a\\u{1b}[2Jb");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = vec![vec![json!("orders"), json!(3)], vec![json!("a"), Value::Null]];
        assert_eq!(layout(&["topic", "lag"], &rows), "TOPIC   LAG\norders    3\na       -\n");
    }
}
