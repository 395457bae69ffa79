//! Peers that act by a script, over streams in memory.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    ApiKey as Key, ApiVersionsRequest, ApiVersionsResponse, BrokerId, MetadataRequest, MetadataResponse, RequestHeader,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use uuid::Uuid;

use super::transport::{Connecting, Connector, Stream};
use super::{Client, ClientBuilder};
use crate::machine::metadata::BrokerAddress;
use crate::protocol::api::{ApiKey, KNOWN_APIS};
use crate::protocol::error_code::ErrorCode;

/// Brokers in memory, by address. Each request goes to the broker's script, which tells the answer.
#[derive(Clone, Default)]
pub(crate) struct Brokers(Arc<Shared>);

#[derive(Default)]
struct Shared {
    scripts: Mutex<HashMap<String, Script>>,
    connections: AtomicUsize,
    log: Mutex<Vec<String>>,
}

type Script = Arc<dyn Fn(&Exchange) -> Act + Send + Sync>;

/// One request, as a broker got it.
pub(crate) struct Exchange {
    /// Counts connections over all brokers, from 1.
    pub(crate) connection: usize,
    pub(crate) api: ApiKey,
    pub(crate) version: i16,
    pub(crate) client_id: Option<String>,
    correlation_id: i32,
    body: Bytes,
}

/// What a broker does with a request.
pub(crate) enum Act {
    /// Sends these bytes.
    Send(Bytes),
    /// Nothing, and goes on reading.
    Silence,
    /// Closes the connection.
    Close,
    /// Answers ApiVersions as a broker that knows every API in every version; anything else is a fault in the test.
    Usual,
}

impl Exchange {
    /// The request's body.
    pub(crate) fn request<R: Request>(&self) -> R {
        assert_eq!(self.api, ApiKey::of::<R>());
        R::decode(&mut self.body.clone(), self.version).unwrap()
    }

    /// This answer.
    pub(crate) fn answer<R: Request>(&self, response: &R::Response) -> Act {
        self.answer_in::<R>(response, self.version)
    }

    /// This answer, in the form of another version.
    pub(crate) fn answer_in<R: Request>(&self, response: &R::Response, version: i16) -> Act {
        let mut frame = BytesMut::new();
        frame.put_i32(0);
        frame.put_i32(self.correlation_id);
        if R::Response::header_version(version) > 0 {
            frame.put_u8(0);
        }
        response.encode(&mut frame, version).unwrap();
        let length = frame.len() as i32 - 4;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        Act::Send(frame.freeze())
    }
}

impl Brokers {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A broker at this address; replaces the one that was there, for new connections.
    pub(crate) fn at(&self, address: &str, script: impl Fn(&Exchange) -> Act + Send + Sync + 'static) {
        self.0.scripts.lock().unwrap().insert(address.to_owned(), Arc::new(script));
    }

    /// Nobody listens there any more.
    pub(crate) fn remove(&self, address: &str) {
        self.0.scripts.lock().unwrap().remove(address);
    }

    /// What happened, in order: `connect ADDRESS`, `refused ADDRESS`, `ADDRESS API`.
    pub(crate) fn log(&self) -> Vec<String> {
        self.0.log.lock().unwrap().clone()
    }

    /// How many entries of the log are this one.
    pub(crate) fn count(&self, entry: &str) -> usize {
        self.log().iter().filter(|logged| *logged == entry).count()
    }

    /// Options of a client of these brokers.
    pub(crate) fn client(&self, bootstrap: &str, options: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Client {
        options(Client::builder([bootstrap])).connector(Arc::new(self.clone())).build().unwrap()
    }

    fn note(&self, entry: String) {
        self.0.log.lock().unwrap().push(entry);
    }

    async fn serve(
        self,
        address: String,
        connection: usize,
        script: Script,
        mut stream: DuplexStream,
    ) -> io::Result<()> {
        loop {
            let length = stream.read_i32().await?;
            let mut message = vec![0; length as usize];
            stream.read_exact(&mut message).await?;
            let mut body = Bytes::from(message);
            let (key, version) = (i16::from_be_bytes([body[0], body[1]]), i16::from_be_bytes([body[2], body[3]]));
            let api = Key::try_from(key).unwrap();
            let header = RequestHeader::decode(&mut body, api.request_header_version(version)).unwrap();
            let exchange = Exchange {
                connection,
                api: ApiKey(key),
                version,
                client_id: header.client_id.map(|id| id.to_string()),
                correlation_id: header.correlation_id,
                body,
            };
            self.note(format!("{address} {}", exchange.api));
            let act = match script(&exchange) {
                Act::Usual => exchange.answer::<ApiVersionsRequest>(&every_version()),
                act => act,
            };
            match act {
                Act::Send(bytes) => stream.write_all(&bytes).await?,
                Act::Silence => {}
                Act::Close | Act::Usual => return Ok(()),
            }
        }
    }
}

impl Connector for Brokers {
    fn connect<'a>(&'a self, address: &'a BrokerAddress) -> Connecting<'a> {
        Box::pin(async move {
            let address = address.to_string();
            let Some(script) = self.0.scripts.lock().unwrap().get(&address).cloned() else {
                self.note(format!("refused {address}"));
                return Err(io::ErrorKind::ConnectionRefused.into());
            };
            self.note(format!("connect {address}"));
            let (here, there) = tokio::io::duplex(8 << 20);
            let connection = self.0.connections.fetch_add(1, Ordering::Relaxed) + 1;
            tokio::spawn(self.clone().serve(address, connection, script, there));
            Ok(Box::new(here) as Box<dyn Stream>)
        })
    }
}

impl std::fmt::Debug for Brokers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Brokers")
    }
}

/// The answer of a broker that knows everything that this client knows.
pub(crate) fn every_version() -> ApiVersionsResponse {
    let ranges = KNOWN_APIS.iter().map(|known| {
        let range = ApiVersion::default().with_api_key(known.key.0);
        range.with_min_version(known.versions.min).with_max_version(known.versions.max)
    });
    ApiVersionsResponse::default().with_api_keys(ranges.collect())
}

/// An answer to a metadata request: brokers as node id and address, topics as name, id and leaders.
pub(crate) fn metadata(
    exchange: &Exchange,
    brokers: &[(i32, &'static str)],
    topics: &[(&'static str, u128, &[i32])],
) -> Act {
    let broker = |&(node, address): &(i32, &'static str)| {
        let (host, port) = address.split_once(':').unwrap();
        MetadataResponseBroker::default()
            .with_node_id(BrokerId(node))
            .with_host(StrBytes::from_static_str(host))
            .with_port(port.parse().unwrap())
    };
    let asked = exchange.request::<MetadataRequest>().topics.unwrap_or_default();
    let topic = |name: StrBytes| match topics.iter().find(|(known, ..)| *known == name.as_str()) {
        Some((_, id, leaders)) => {
            let partition = |(index, leader): (i32, &i32)| {
                MetadataResponsePartition::default()
                    .with_partition_index(index)
                    .with_leader_id(BrokerId(*leader))
                    .with_leader_epoch(1)
            };
            MetadataResponseTopic::default()
                .with_topic_id(Uuid::from_u128(*id))
                .with_partitions((0..).zip(*leaders).map(partition).collect())
        }
        None => MetadataResponseTopic::default().with_error_code(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0),
    };
    let topics = asked.into_iter().filter_map(|asked| {
        let name = asked.name?;
        Some(topic(name.0.clone()).with_name(Some(name)))
    });
    let response = MetadataResponse::default()
        .with_brokers(brokers.iter().map(broker).collect())
        .with_controller_id(BrokerId(brokers.first().map_or(-1, |(node, _)| *node)))
        .with_topics(topics.collect());
    exchange.answer::<MetadataRequest>(&response)
}
