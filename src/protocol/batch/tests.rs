//! Round trips, golden bytes, and bytes that lie.

use bytes::Bytes;

use super::*;
use crate::protocol::compression::Compression;
use crate::record::Timestamp;

#[test]
fn what_is_written_is_read() {
    let mut writer = BatchWriter::new(Compression::NONE);
    let headers = [(&b"a"[..], Some(&b"1"[..])), (&b"a"[..], None), (&[0xff][..], Some(&b""[..]))];
    writer.append(Timestamp(1_000), Some(b"key"), Some(b"value"), headers).unwrap();
    writer.append(Timestamp(999), None, None, []).unwrap();
    let batch = writer.close(Closing::default()).unwrap();
    let views: Vec<_> = batches(batch.into_bytes(), &ReadOptions::default()).map(Result::unwrap).collect();
    let [view] = &views[..] else { panic!("{views:?}") };
    let records: Vec<_> = view.records().map(Result::unwrap).collect();
    assert_eq!(records.len(), 2);
    assert_eq!((records[0].key, records[0].value), (Some(&b"key"[..]), Some(&b"value"[..])));
    assert_eq!(records[0].headers.iter().collect::<Vec<_>>(), headers);
    assert_eq!((records[1].key, records[1].value, records[1].timestamp), (None, None, Timestamp(999)));
    assert_eq!(view.header().max_timestamp, Timestamp(1_000));
    assert_eq!(view.next_offset().0, 2);
    assert_eq!(view.share(records[0].value.unwrap()), Bytes::from("value"));
}
