//! One socket to a broker: requests and answers as structs, nothing of our client in between.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use kafka_protocol::messages::{ApiVersionsRequest, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable as _, Encodable as _, HeaderVersion, Request, StrBytes};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A connection.
pub(crate) struct Wire {
    stream: TcpStream,
    correlation: i32,
}

/// What came instead of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Silence {
    /// The broker closed the connection.
    Closed,
    /// Nothing, for long.
    NoAnswer,
}

/// The versions of each API, by its key.
pub(crate) type Versions = BTreeMap<i16, (i16, i16)>;

impl Wire {
    pub(crate) async fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, correlation: 0 }
    }

    pub(crate) async fn send<R: Request + std::fmt::Debug>(&mut self, version: i16, request: &R) {
        self.send_as(version, version, request).await;
    }

    /// Sends a request in the form of one version under the name of another.
    pub(crate) async fn send_as<R: Request + std::fmt::Debug>(&mut self, form: i16, version: i16, request: &R) {
        self.correlation += 1;
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation)
            .with_client_id(Some(StrBytes::from_static_str("differential")));
        let mut frame = BytesMut::new();
        frame.put_i32(0);
        header.encode(&mut frame, R::header_version(form)).unwrap();
        let encoded = request.encode(&mut frame, form);
        encoded.unwrap_or_else(|error| panic!("API {} in version {form}: {error}: {request:?}", R::KEY));
        let length = i32::try_from(frame.len() - 4).unwrap();
        frame[..4].copy_from_slice(&length.to_be_bytes());
        // A connection that the broker has closed is told of by what is received.
        let _ = self.stream.write_all(&frame).await;
    }

    /// The answer to the request before.
    pub(crate) async fn receive<R: Request>(&mut self, version: i16) -> Result<R::Response, Silence> {
        let frame = tokio::time::timeout(PATIENCE, self.frame()).await.map_err(|_| Silence::NoAnswer)?;
        let mut frame = frame.ok_or(Silence::Closed)?;
        let header = ResponseHeader::decode(&mut frame, R::Response::header_version(version)).unwrap();
        assert_eq!(header.correlation_id, self.correlation);
        let answer = R::Response::decode(&mut frame, version).unwrap();
        assert!(!frame.has_remaining(), "bytes are left behind the answer");
        Ok(answer)
    }

    async fn frame(&mut self) -> Option<Bytes> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).await.ok()?;
        let mut frame = vec![0; usize::try_from(i32::from_be_bytes(length)).unwrap()];
        self.stream.read_exact(&mut frame).await.ok()?;
        Some(frame.into())
    }
}

/// The versions that the broker at this address serves.
pub(crate) async fn versions(address: &str) -> Versions {
    let mut wire = Wire::connect(address).await;
    let software = ApiVersionsRequest::default()
        .with_client_software_name(StrBytes::from_static_str("differential"))
        .with_client_software_version(StrBytes::from_static_str("1"));
    wire.send(3, &software).await;
    let answer = wire.receive::<ApiVersionsRequest>(3).await.expect("every broker tells its versions");
    answer.api_keys.iter().map(|api| (api.api_key, (api.min_version, api.max_version))).collect()
}

/// Far above what any request here waits for.
const PATIENCE: Duration = Duration::from_secs(30);
