//! One request: who asks what, and how it is answered.

use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::protocol::{Encodable, HeaderVersion, Request};

use super::core::Core;
use super::faults::PartitionFailure;
use super::node::Listener;
use crate::protocol::api::ApiKey;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::frame::PREFIX_BYTES;
use crate::protocol::shape::{self, ShapeError};

/// A connection of a client to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub(super) u64);

/// A request's header, and where it came from.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) node: i32,
    pub(super) connection: ConnectionId,
    pub(super) listener: Listener,
    pub(super) api: ApiKey,
    pub(super) version: i16,
    pub(super) correlation_id: i32,
    pub(super) client_id: Option<String>,
    pub(super) now: Instant,
    /// What the answer says that the client is throttled for.
    pub(super) throttle: Duration,
    /// The partitions of this request that were ordered to fail.
    pub(super) failing: Option<PartitionFailure>,
}

impl Call {
    /// The code that this partition was ordered to fail with.
    pub(super) fn failure_of(&self, topic: &str, partition: i32) -> Option<ErrorCode> {
        self.failing.as_ref()?.of(topic, partition)
    }

    /// The client's name for itself, empty where it gives none.
    pub(super) fn client_name(&self) -> &str {
        self.client_id.as_deref().unwrap_or_default()
    }
}

/// How a handler answers.
pub(super) enum Step<R: Request> {
    /// At once.
    Answer(R::Response),
    /// Later: asked again whenever something has changed.
    Wait(Wait<R::Response>),
    /// Not at all (Produce with `acks=0`).
    Nothing,
    /// By closing the connection.
    Close,
    /// At once, and the connection closes behind it.
    #[cfg(feature = "sasl")]
    Last(R::Response),
}

/// An answer that waits for something.
pub(super) struct Wait<A> {
    /// When it is asked again though nothing has changed.
    pub(super) until: Option<Instant>,
    pub(super) poll: Poll<A>,
}

/// Gives the answer once there is one. At [`Wait::until`] and after it there has to be.
pub(super) type Poll<A> = Box<dyn FnMut(&mut Core, Instant) -> Option<A> + Send>;

impl<R: Request> Step<R> {
    /// Waits; asks once right away.
    pub(super) fn wait(
        core: &mut Core,
        now: Instant,
        until: Option<Instant>,
        mut poll: impl FnMut(&mut Core, Instant) -> Option<R::Response> + Send + 'static,
    ) -> Self {
        match poll(core, now) {
            Some(answer) => Self::Answer(answer),
            None => Self::Wait(Wait { until, poll: Box::new(poll) }),
        }
    }
}

/// What the first bytes of a frame say, before its API is known to be one of ours.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) api: ApiKey,
    pub(super) version: i16,
    pub(super) correlation_id: i32,
    /// Client id, tags and body.
    rest: Bytes,
}

impl Head {
    /// Reads what is the same in all requests.
    pub(super) fn read(message: &Bytes) -> Result<Self, Hostile> {
        let Some([k, e, v, w, a, b, c, d]) = message.first_chunk::<8>() else { return Err(Hostile::Short) };
        Ok(Self {
            api: ApiKey(i16::from_be_bytes([*k, *e])),
            version: i16::from_be_bytes([*v, *w]),
            correlation_id: i32::from_be_bytes([*a, *b, *c, *d]),
            rest: message.slice(8..),
        })
    }

    /// Reads the rest of a header of this version: client id and body.
    pub(super) fn split(&self, header_version: i16) -> Result<(Option<String>, Bytes), Hostile> {
        let length = self.rest.first_chunk().map(|bytes| i16::from_be_bytes(*bytes)).ok_or(Hostile::Short)?;
        let (client_id, mut body) = match usize::try_from(length) {
            Err(_) => (None, self.rest.slice(2..)),
            Ok(length) => {
                let text = self.rest.get(2..2 + length).ok_or(Hostile::Short)?;
                let text = std::str::from_utf8(text).map_err(|_| Hostile::ClientId)?;
                (Some(text.to_owned()), self.rest.slice(2 + length..))
            }
        };
        if header_version >= 2 {
            let tags = shape::tags_length(&body).map_err(Hostile::Shape)?;
            body = body.slice(tags..);
        }
        Ok((client_id, body))
    }
}

/// Decodes a body whose shape has been checked.
pub(super) fn decode<R: Request>(version: i16, mut body: Bytes) -> Result<R, Hostile> {
    let walked = shape::check_request(ApiKey::of::<R>(), version, &body).map_err(Hostile::Shape)?;
    if walked < body.len() {
        return Err(Hostile::TrailingBytes(body.len() - walked));
    }
    R::decode(&mut body, version).map_err(|error| Hostile::Undecodable(error.to_string()))
}

/// The frame of an answer.
pub(super) fn encode<R: Request>(version: i16, correlation_id: i32, answer: &R::Response) -> Result<Bytes, String> {
    let size = answer.compute_size(version).map_err(|error| error.to_string())?;
    let mut frame = BytesMut::with_capacity(size + 16);
    frame.put_i32(0);
    frame.put_i32(correlation_id);
    if <R::Response as HeaderVersion>::header_version(version) > 0 {
        frame.put_u8(0);
    }
    answer.encode(&mut frame, version).map_err(|error| error.to_string())?;
    let length = i32::try_from(frame.len() - PREFIX_BYTES).map_err(|_| "an answer above 2 GiB".to_owned())?;
    frame[..PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
    Ok(frame.freeze())
}

/// A request that no sound client sends. Its connection is closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Hostile {
    #[error("the request ends within its header")]
    Short,
    #[error("the client id is not UTF-8")]
    ClientId,
    #[error("api {0} is not one of ours")]
    UnknownApi(i16),
    #[error("{api} has no version {version}")]
    UnknownVersion { api: ApiKey, version: i16 },
    #[error("malformed request: {0}")]
    Shape(ShapeError),
    #[error("{0} bytes are left behind the last field")]
    TrailingBytes(usize),
    #[error("undecodable request: {0}")]
    Undecodable(String),
    #[error("more requests wait than a connection may have")]
    TooManyQueued,
    #[cfg(feature = "sasl")]
    #[error("{0} comes where a login is due")]
    NotLoggedIn(ApiKey),
    #[error("a request of {0} bytes is larger than the limit")]
    TooLarge(usize),
    #[error("the answer cannot be encoded: {0}")]
    Unencodable(String),
}
