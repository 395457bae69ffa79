//! Lines of a stream, read beside the runtime.

use std::io::{self, BufRead, Read as _};
use std::thread;

use tokio::sync::mpsc;

/// Reads the lines on a thread of their own, few ahead of who takes them. A last line without an end counts; the ends are
/// taken off. A line of more than 64 MiB is an error, and the last that is told.
pub(crate) fn lines(source: impl BufRead + Send + 'static) -> mpsc::Receiver<io::Result<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel(AHEAD);
    thread::spawn(move || {
        let mut source = source;
        // Nobody takes lines any more: the rest stays unread.
        while let Some(line) = next(&mut source).transpose() {
            let failed = line.is_err();
            if sender.blocking_send(line).is_err() || failed {
                break;
            }
        }
    });
    receiver
}

fn next(source: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    if source.take(MAX_LINE + 1).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
    } else if line.len() as u64 > MAX_LINE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a line of more than {MAX_LINE} bytes")));
    }
    Ok(Some(line))
}

const AHEAD: usize = 1000;
const MAX_LINE: u64 = 64 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &'static [u8]) -> Vec<Vec<u8>> {
        let mut lines = lines(text);
        std::iter::from_fn(|| lines.blocking_recv()).map(Result::unwrap).collect()
    }

    #[test]
    fn ends_are_taken_off_and_empty_lines_and_the_last_one_count() {
        assert_eq!(read(b"a\n\nb\r\n\xffc"), [&b"a"[..], b"", b"b", b"\xffc"]);
        assert_eq!(read(b""), [&b""[..]; 0]);
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut lines = lines(io::BufReader::new(io::repeat(b'x')));
        assert_eq!(lines.blocking_recv().unwrap().unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(lines.blocking_recv().is_none());
    }
}
