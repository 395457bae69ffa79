//! Who stands between a client and the dev broker.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::protocol::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};

use crate::client::transport::{Connecting, Connector, Stream};
use crate::client::{Client, ConsumerEvent, OffsetReset};
use crate::machine::metadata::BrokerAddress;
use crate::protocol::api::ApiKey;
use crate::protocol::response::decode_response;
use crate::record::Record;
use crate::testing::broker::call;
use crate::testing::broker::tests::at;
use crate::testing::broker::{DevBroker, Listener};

/// One thing that is not so.
#[derive(Clone)]
pub(super) struct Lie {
    pub(super) name: String,
    api: ApiKey,
    /// From version and message, without its length, to what is sent instead, with it.
    tell: Arc<Tell>,
    /// Whether what it kept from being done stays undone when it ends.
    pub(super) is_fatal: bool,
    /// Whether what it is told of is there more than once then.
    pub(super) repeats: bool,
    /// Whether the cluster speaks the first version of transactions.
    first_version: bool,
}

type Tell = dyn Fn(i16, &Bytes) -> Bytes + Send + Sync;

impl Lie {
    /// An answer of another content.
    pub(super) fn field<R: Request>(name: &str, change: impl Fn(&mut R::Response) + Send + Sync + 'static) -> Self {
        let api = ApiKey::of::<R>();
        let tell = move |version, message: &Bytes| {
            let (id, mut answer) = decode_response::<R>(message, version).expect("the dev broker's answer");
            change(&mut answer);
            call::encode::<R>(version, id, &answer).expect("a lie that can be written")
        };
        Self::new(api, name, tell)
    }

    /// Other bytes, from a frame with its length to what is sent instead.
    pub(super) fn bytes(api: ApiKey, name: &str, change: impl Fn(&mut Vec<u8>) + Send + Sync + 'static) -> Self {
        let tell = move |_, message: &Bytes| {
            let mut frame = (message.len() as u32).to_be_bytes().to_vec();
            frame.extend_from_slice(message);
            change(&mut frame);
            Bytes::from(frame)
        };
        Self::new(api, name, tell)
    }

    fn new(api: ApiKey, name: &str, tell: impl Fn(i16, &Bytes) -> Bytes + Send + Sync + 'static) -> Self {
        let (name, tell) = (format!("{api}: {name}"), Arc::new(tell));
        Self { name, api, tell, is_fatal: false, repeats: false, first_version: false }
    }

    /// One that is told where transactions are still added to by requests of their own.
    pub(super) fn in_the_first_version_of_transactions(mut self) -> Self {
        self.first_version = true;
        self
    }

    /// One that a client has to believe, and that keeps it from doing what it was to do.
    pub(super) fn fatal(mut self) -> Self {
        self.is_fatal = true;
        self
    }

    /// One that denies, by a code that says so for certain, what was done: what is written again is there twice, and a commit is told as none.
    pub(super) fn repeats(mut self) -> Self {
        self.repeats = true;
        self
    }
}

/// A cluster of one, and its liar.
#[derive(Clone)]
pub(super) struct Liar(Arc<Shared>);

struct Shared {
    broker: DevBroker,
    lie: Lie,
    times: usize,
    told: AtomicUsize,
    frames: AtomicUsize,
}

impl Liar {
    pub(super) async fn new(lie: Lie, times: usize) -> Self {
        let broker = DevBroker::builder().topic("t", 1).settings(|settings| {
            settings.share_from_earliest = true;
            if lie.first_version {
                settings.features.insert("transaction.version".to_owned(), 1);
            }
        });
        let broker = broker.start().await.expect("it starts");
        let (told, frames) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self(Arc::new(Shared { broker, lie, times, told, frames }))
    }

    pub(super) fn lie(&self) -> &Lie {
        &self.0.lie
    }

    pub(super) fn ends(&self) -> bool {
        self.0.times < usize::MAX
    }

    /// Whether everything is to be as it should when it has ended.
    pub(super) fn must_recover(&self) -> bool {
        self.ends() && !self.0.lie.is_fatal
    }

    pub(super) fn told(&self) -> usize {
        self.0.told.load(Ordering::Relaxed)
    }

    /// How many answers there were.
    pub(super) fn frames(&self) -> usize {
        self.0.frames.load(Ordering::Relaxed)
    }

    pub(super) fn client(&self) -> Client {
        let client = Client::builder([self.0.broker.bootstrap()]).connector(Arc::new(self.clone()));
        let client = client.request_timeout(5 * SECOND);
        client.build().expect("its options are sound")
    }

    /// A client that is not lied to.
    pub(super) fn honest(&self) -> Client {
        self.0.broker.client_config().build().expect("its options are sound")
    }

    /// Writes so many values, and tells them.
    pub(super) async fn write(&self, records: usize) -> BTreeSet<String> {
        let client = self.honest();
        let producer = client.producer().build().expect("its options are sound");
        let values: BTreeSet<String> = (0..records).map(|number| format!("value-{number}")).collect();
        for value in &values {
            producer.send(Record::new("t", value.clone()).with_partition(0)).await.expect("nobody lies to it");
        }
        producer.close(SECOND).await.expect("all is written");
        client.close(SECOND).await.expect("nothing is under way");
        values
    }

    /// The values that can be read, transactions that are still open awaited.
    pub(super) async fn committed(&self) -> Vec<String> {
        const END: &str = "end";
        let client = self.honest();
        let producer = client.producer().build().expect("its options are sound");
        producer.send(Record::new("t", END).with_partition(0)).await.expect("nobody lies to it");
        producer.close(SECOND).await.expect("all is written");
        let mut consumer = client.consumer("reader").topic("t", OffsetReset::Earliest).build().expect("sound options");
        let mut values = Vec::new();
        let read = async {
            while values.last().is_none_or(|last| last != END) {
                if let Some(ConsumerEvent::Batch(batch)) = consumer.next().await {
                    let records = batch.batches.iter().flat_map(|view| view.records());
                    let values_of = records.map(|record| record.expect("sound").value.expect("a value").to_vec());
                    values.extend(values_of.map(|value| String::from_utf8(value).expect("text")));
                }
            }
        };
        tokio::time::timeout(600 * SECOND, read).await.expect("what is open is aborted after its time");
        let _ = consumer.close(SECOND).await;
        let _ = client.close(SECOND).await;
        values
    }

    /// Whether metrics came.
    pub(super) fn is_pushed_to(&self) -> bool {
        self.0.broker.act(|cluster, _| !cluster.pushed_metrics().is_empty())
    }

    /// The values in the log.
    pub(super) fn log(&self) -> Vec<String> {
        let mut values = Vec::new();
        for batch in self.0.broker.act(|cluster, _| cluster.batches(&at("t", 0), 1)) {
            let view = batch.open(&Default::default()).expect("sound");
            let records = view.records().map(|record| record.expect("sound").value.expect("a value"));
            values.extend(records.map(|value| String::from_utf8(value.to_vec()).expect("text")));
        }
        values
    }

    async fn open(&self, address: &BrokerAddress) -> io::Result<DuplexStream> {
        let known = self.0.broker.act(|cluster, _| cluster.address(1, Listener::InProcess));
        if known.as_ref() != Some(address) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (requests, answers) = tokio::io::split(self.0.broker.connect(1)?);
        let (client, here) = tokio::io::duplex(1 << 16);
        let (from_client, to_client) = tokio::io::split(here);
        let asked = Arc::default();
        tokio::spawn(pass_requests(from_client, answers, Arc::clone(&asked)));
        tokio::spawn(self.clone().pass_answers(requests, to_client, asked));
        Ok(client)
    }

    async fn pass_answers(self, mut from: ReadHalf<DuplexStream>, mut to: WriteHalf<DuplexStream>, asked: Asked) {
        while let Some(frame) = frame(&mut from).await {
            // A client that storms is answered nothing more, so that the test ends and says so.
            if self.0.frames.fetch_add(1, Ordering::Relaxed) > MOST_FRAMES {
                return std::future::pending().await;
            }
            let id = i32::from_be_bytes(*frame[4..].first_chunk().expect("a correlation id"));
            let known = asked.lock().expect("nobody panics with it").remove(&id);
            let lied =
                known.filter(|(api, _)| *api == self.0.lie.api).and_then(|(_, version)| self.tell(version, &frame));
            if to.write_all(&lied.unwrap_or(frame)).await.is_err() {
                return;
            }
        }
    }

    fn tell(&self, version: i16, frame: &Bytes) -> Option<Bytes> {
        let told = self.0.told.fetch_add(1, Ordering::Relaxed);
        (told < self.0.times).then(|| (self.0.lie.tell)(version, &frame.slice(4..)))
    }
}

impl Connector for Liar {
    fn connect<'a>(&'a self, address: &'a BrokerAddress) -> Connecting<'a> {
        Box::pin(async move { Ok(Box::new(self.open(address).await?) as Box<dyn Stream>) })
    }
}

impl fmt::Debug for Liar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.lie.name)
    }
}

/// What was asked, by the number that its answer will have.
type Asked = Arc<Mutex<HashMap<i32, (ApiKey, i16)>>>;

async fn pass_requests(mut from: ReadHalf<DuplexStream>, mut to: WriteHalf<DuplexStream>, asked: Asked) {
    while let Some(frame) = frame(&mut from).await {
        let mut head = frame.slice(4..);
        let (api, version, id) = (head.get_i16(), head.get_i16(), head.get_i32());
        asked.lock().expect("nobody panics with it").insert(id, (ApiKey(api), version));
        if to.write_all(&frame).await.is_err() {
            return;
        }
    }
    // The client hung up, and so does who stands between.
    let _ = to.shutdown().await;
}

/// A frame with its length; none once the stream is over.
async fn frame(from: &mut ReadHalf<DuplexStream>) -> Option<Bytes> {
    let length = from.read_u32().await.ok()?;
    let mut frame = BytesMut::from(&length.to_be_bytes()[..]);
    frame.resize(4 + length as usize, 0);
    from.read_exact(&mut frame[4..]).await.ok()?;
    Some(frame.freeze())
}

const SECOND: Duration = Duration::from_secs(1);
const MOST_FRAMES: usize = 20_000;
