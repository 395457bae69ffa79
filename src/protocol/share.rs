//! ShareFetch and ShareAcknowledge in versions 1 and 2.
//!
//! Version 2 adds the renewal of locks (KIP-1222) and the mode of acquiring (KIP-1206); the structs of `kafka-protocol` end at
//! version 1. What was added stands in one place of each message, so these are its structs and the added bytes between them.

use anyhow::{Result, bail, ensure};
use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::{
    ShareAcknowledgeRequest, ShareAcknowledgeResponse, ShareFetchRequest, ShareFetchResponse,
};
use kafka_protocol::protocol::buf::{ByteBuf, ByteBufMut};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Message, Request, VersionRange};

/// A ShareFetch request.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ShareFetch {
    pub(crate) body: ShareFetchRequest,
    /// How records are acquired: 0 in whole batches, 1 up to the limit of records exactly. Version 2.
    pub(crate) acquire_mode: i8,
    /// Whether locks are renewed; nothing is fetched then. Version 2.
    pub(crate) is_renew: bool,
}

/// The answer to a [`ShareFetch`], the same in both versions.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ShareFetched(pub(crate) ShareFetchResponse);

/// A ShareAcknowledge request.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ShareAcknowledge {
    pub(crate) body: ShareAcknowledgeRequest,
    /// Whether locks are among it that are renewed. Version 2.
    pub(crate) is_renew: bool,
}

/// The answer to a [`ShareAcknowledge`].
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ShareAcknowledged {
    pub(crate) body: ShareAcknowledgeResponse,
    /// For how long renewed locks hold. Version 2.
    pub(crate) lock_timeout_ms: i32,
}

impl Request for ShareFetch {
    const KEY: i16 = <ShareFetchRequest as Request>::KEY;
    type Response = ShareFetched;
}

impl Encodable for ShareFetch {
    fn encode<B: ByteBufMut>(&self, buf: &mut B, version: i16) -> Result<()> {
        if version < SECOND {
            ensure!(!self.is_renew, "locks are renewed from version {SECOND} on");
            return self.body.encode(buf, version);
        }
        let first = encoded(&self.body, version)?;
        let at = after_ids(&first)? + FETCH_NUMBERS_BYTES;
        splice(buf, &first, at, &[self.acquire_mode.to_be_bytes()[0], u8::from(self.is_renew)]);
        Ok(())
    }

    fn compute_size(&self, version: i16) -> Result<usize> {
        Ok(self.body.compute_size(FIRST)? + if version < SECOND { 0 } else { 2 })
    }
}

impl Decodable for ShareFetch {
    fn decode<B: ByteBuf>(buf: &mut B, version: i16) -> Result<Self> {
        if version < SECOND {
            return Ok(Self { body: ShareFetchRequest::decode(buf, version)?, ..Self::default() });
        }
        let (body, [acquire_mode, is_renew]) = cut(buf, version, |body| Ok(after_ids(body)? + FETCH_NUMBERS_BYTES))?;
        Ok(Self { body, acquire_mode: i8::from_be_bytes([acquire_mode]), is_renew: is_renew != 0 })
    }
}

impl Encodable for ShareFetched {
    fn encode<B: ByteBufMut>(&self, buf: &mut B, version: i16) -> Result<()> {
        self.0.encode(buf, first_of(version)?)
    }

    fn compute_size(&self, version: i16) -> Result<usize> {
        self.0.compute_size(first_of(version)?)
    }
}

impl Decodable for ShareFetched {
    fn decode<B: ByteBuf>(buf: &mut B, version: i16) -> Result<Self> {
        Ok(Self(ShareFetchResponse::decode(buf, first_of(version)?)?))
    }
}

impl Request for ShareAcknowledge {
    const KEY: i16 = <ShareAcknowledgeRequest as Request>::KEY;
    type Response = ShareAcknowledged;
}

impl Encodable for ShareAcknowledge {
    fn encode<B: ByteBufMut>(&self, buf: &mut B, version: i16) -> Result<()> {
        if version < SECOND {
            ensure!(!self.is_renew, "locks are renewed from version {SECOND} on");
            return self.body.encode(buf, version);
        }
        let first = encoded(&self.body, version)?;
        let at = after_ids(&first)? + EPOCH_BYTES;
        splice(buf, &first, at, &[u8::from(self.is_renew)]);
        Ok(())
    }

    fn compute_size(&self, version: i16) -> Result<usize> {
        Ok(self.body.compute_size(FIRST)? + usize::from(version >= SECOND))
    }
}

impl Decodable for ShareAcknowledge {
    fn decode<B: ByteBuf>(buf: &mut B, version: i16) -> Result<Self> {
        if version < SECOND {
            return Ok(Self { body: ShareAcknowledgeRequest::decode(buf, version)?, is_renew: false });
        }
        let (body, [is_renew]) = cut(buf, version, |body| Ok(after_ids(body)? + EPOCH_BYTES))?;
        Ok(Self { body, is_renew: is_renew != 0 })
    }
}

impl Encodable for ShareAcknowledged {
    fn encode<B: ByteBufMut>(&self, buf: &mut B, version: i16) -> Result<()> {
        if version < SECOND {
            return self.body.encode(buf, version);
        }
        let first = encoded(&self.body, version)?;
        let at = after_error(&first)?;
        splice(buf, &first, at, &self.lock_timeout_ms.to_be_bytes());
        Ok(())
    }

    fn compute_size(&self, version: i16) -> Result<usize> {
        Ok(self.body.compute_size(FIRST)? + if version < SECOND { 0 } else { size_of::<i32>() })
    }
}

impl Decodable for ShareAcknowledged {
    fn decode<B: ByteBuf>(buf: &mut B, version: i16) -> Result<Self> {
        if version < SECOND {
            return Ok(Self { body: ShareAcknowledgeResponse::decode(buf, version)?, lock_timeout_ms: 0 });
        }
        let (body, timeout) = cut(buf, version, after_error)?;
        Ok(Self { body, lock_timeout_ms: i32::from_be_bytes(timeout) })
    }
}

macro_rules! versions_one_and_two {
    ($($name:ty as $of:ty),*) => {
        $(impl Message for $name {
            const VERSIONS: VersionRange = VersionRange { min: FIRST, max: SECOND };
            const DEPRECATED_VERSIONS: Option<VersionRange> = None;
        }

        impl HeaderVersion for $name {
            fn header_version(_version: i16) -> i16 {
                <$of as HeaderVersion>::header_version(FIRST)
            }
        })*
    };
}
versions_one_and_two!(
    ShareFetch as ShareFetchRequest,
    ShareFetched as ShareFetchResponse,
    ShareAcknowledge as ShareAcknowledgeRequest,
    ShareAcknowledged as ShareAcknowledgeResponse
);

/// Version 1, of which there is as much in version 2.
fn first_of(version: i16) -> Result<i16> {
    if !(FIRST..=SECOND).contains(&version) {
        bail!("version {version} is not known");
    }
    Ok(FIRST)
}

fn encoded(body: &impl Encodable, version: i16) -> Result<Bytes> {
    let mut first = BytesMut::new();
    body.encode(&mut first, first_of(version)?)?;
    Ok(first.freeze())
}

fn splice(buf: &mut impl ByteBufMut, first: &[u8], at: usize, added: &[u8]) {
    buf.put_slice(&first[..at]);
    buf.put_slice(added);
    buf.put_slice(&first[at..]);
}

/// Takes the added bytes out, and decodes what is left, without a copy of it.
fn cut<M: Decodable, const N: usize>(
    buf: &mut impl ByteBuf,
    version: i16,
    at: impl FnOnce(&[u8]) -> Result<usize>,
) -> Result<(M, [u8; N])> {
    let first = first_of(version)?;
    let whole = buf.try_get_bytes(buf.remaining())?;
    let at = at(&whole)?;
    let Some(added) = whole.get(at..).and_then(|rest| rest.first_chunk::<N>()) else { bail!("it ends within a field") };
    let mut around = Around { before: whole.slice(..at), after: whole.slice(at + N..) };
    let message = M::decode(&mut around, first)?;
    ensure!(!around.has_remaining(), "{} bytes are left over", around.remaining());
    Ok((message, *added))
}

/// What is before and behind the added bytes, as one. No field reaches from the one into the other.
struct Around {
    before: Bytes,
    after: Bytes,
}

impl Buf for Around {
    fn remaining(&self) -> usize {
        self.before.len() + self.after.len()
    }

    fn chunk(&self) -> &[u8] {
        if self.before.is_empty() { &self.after } else { &self.before }
    }

    fn advance(&mut self, bytes: usize) {
        let before = bytes.min(self.before.len());
        self.before.advance(before);
        self.after.advance(bytes - before);
    }
}

impl ByteBuf for Around {
    fn peek_bytes(&mut self, range: std::ops::Range<usize>) -> Bytes {
        let mut rest = Self { before: self.before.clone(), after: self.after.clone() };
        rest.advance(range.start);
        rest.get_bytes(range.len())
    }

    fn get_bytes(&mut self, bytes: usize) -> Bytes {
        let part = if self.before.is_empty() { &mut self.after } else { &mut self.before };
        if bytes <= part.len() { part.split_to(bytes) } else { self.copy_to_bytes(bytes) }
    }
}

/// Behind the ids of group and member.
fn after_ids(body: &[u8]) -> Result<usize> {
    let member = after_text(body, 0)?;
    after_text(body, member)
}

/// Behind the throttle time, the error code and its message.
fn after_error(body: &[u8]) -> Result<usize> {
    after_text(body, THROTTLE_AND_CODE_BYTES)
}

/// Behind the compact text at `at`: its length plus one in seven bits a byte, or nothing for none.
fn after_text(body: &[u8], at: usize) -> Result<usize> {
    let (mut length, mut position) = (0_usize, at);
    for shift in (0..35).step_by(7) {
        let Some(byte) = body.get(position) else { break };
        position += 1;
        length |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            let end = position + length.saturating_sub(1);
            ensure!(end <= body.len(), "it ends within a text");
            return Ok(end);
        }
    }
    bail!("it ends within a length")
}

const FIRST: i16 = 1;
/// Renewal and the mode of acquiring.
const SECOND: i16 = 2;
/// The session's epoch.
const EPOCH_BYTES: usize = 4;
/// The session's epoch, wait, least and most bytes, most records, size of a batch.
const FETCH_NUMBERS_BYTES: usize = 6 * 4;
const THROTTLE_AND_CODE_BYTES: usize = 4 + 2;

#[cfg(test)]
mod tests {
    use super::*;
    use kafka_protocol::messages::GroupId;
    use kafka_protocol::protocol::StrBytes;

    fn bytes(message: &impl Encodable, version: i16) -> Bytes {
        let mut out = BytesMut::new();
        message.encode(&mut out, version).unwrap();
        assert_eq!(message.compute_size(version).unwrap(), out.len());
        out.freeze()
    }

    #[test]
    fn what_version_two_adds_stands_where_the_schema_has_it() {
        let body = ShareAcknowledgeRequest::default()
            .with_group_id(Some(GroupId(StrBytes::from_static_str("g"))))
            .with_member_id(Some(StrBytes::from_static_str("me")))
            .with_share_session_epoch(3);
        let request = ShareAcknowledge { body, is_renew: true };
        assert_eq!(&bytes(&request, 2)[..], b"\x02g\x03me\0\0\0\x03\x01\x01\0");
        let body = ShareFetchRequest::default().with_group_id(None).with_member_id(None).with_batch_size(7);
        let request = ShareFetch { body, acquire_mode: 1, is_renew: false };
        let expected = b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x7f\xff\xff\xff\0\0\0\0\0\0\0\x07\x01\0\x01\x01\0";
        assert_eq!(&bytes(&request, 2)[..], expected);
        let answer = ShareAcknowledged { body: ShareAcknowledgeResponse::default(), lock_timeout_ms: 5 };
        assert_eq!(&bytes(&answer, 2)[..], b"\0\0\0\0\0\0\0\0\0\0\x05\x01\x01\0");
        assert_eq!(ShareAcknowledged::decode(&mut bytes(&answer, 2), 2).unwrap(), answer);
    }

    /// A renewal that version 1 has no word for would be taken for an acknowledgement of an unknown kind.
    #[test]
    fn a_renewal_is_not_written_in_version_one() {
        let error = ShareAcknowledge { is_renew: true, ..ShareAcknowledge::default() }
            .encode(&mut BytesMut::new(), 1)
            .unwrap_err();
        assert_eq!(error.to_string(), "locks are renewed from version 2 on");
    }
}
