//! The network between a client within the process and the nodes: delay, lost connections, partitions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::sync::Notify;

use super::random::Random;

/// The network between one client within the process and all nodes. Cheap to clone.
///
/// A client made by [`DevBroker::client_config_over`](super::DevBroker::client_config_over) reaches the nodes through it alone.
/// Without a word it carries bytes at once and loses nothing. Bytes of one stream keep their order whatever happens; streams
/// overtake each other. Its choices come from its seed.
#[derive(Clone)]
pub struct Network(Arc<Inner>);

struct Inner {
    random: Mutex<Random>,
    ways: Mutex<Ways>,
    /// Not a watch channel, which wakes those who wait in an order that is not the seed's.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Ways {
    /// Microseconds, both included.
    delay: (u64, u64),
    cut: BTreeSet<i32>,
    /// How often each node's connections were lost.
    losses: BTreeMap<i32, u64>,
}

impl Network {
    /// A network that delays nothing.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Inner { random: Mutex::new(Random::new(seed)), ways: Mutex::default(), changed: Notify::new() }))
    }

    /// How long bytes, and a new connection, are on their way; each time another time within this. Default: none.
    /// Tokio's clock counts milliseconds.
    pub fn set_delay(&self, delay: RangeInclusive<Duration>) {
        let micros = |time: &Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let delay = (micros(delay.start()), micros(delay.end()).max(micros(delay.start())));
        self.change(|ways| ways.delay = delay);
    }

    /// Nothing passes between the client and this node, and nobody is told: no new connection is made, bytes wait. So it is
    /// with a pulled cable.
    pub fn cut(&self, node: i32) {
        self.change(|ways| {
            ways.cut.insert(node);
        });
    }

    /// What was cut goes on, with all that waited.
    pub fn mend(&self, node: i32) {
        self.change(|ways| {
            ways.cut.remove(&node);
        });
    }

    /// All connections to this node end, at both ends, cut or not; what was on its way is lost.
    pub fn lose_connections(&self, node: i32) {
        self.change(|ways| *ways.losses.entry(node).or_default() += 1);
    }

    /// A stream through this network to what `open` opens, once the way there is passable.
    pub(super) async fn carry(
        &self,
        node: i32,
        open: impl FnOnce() -> io::Result<DuplexStream>,
    ) -> io::Result<DuplexStream> {
        let losses = self.losses(node);
        self.travel(node).await;
        let far = open()?;
        let (near, client) = tokio::io::duplex(STREAM_BYTES);
        tokio::spawn(self.clone().relay(node, losses, near, far));
        Ok(client)
    }

    /// Carries both ways until both have ended, or the connection is lost.
    async fn relay(self, node: i32, losses: u64, near: DuplexStream, far: DuplexStream) {
        let (from_client, to_client) = tokio::io::split(near);
        let (from_node, to_node) = tokio::io::split(far);
        let both = async { tokio::join!(self.pump(node, from_client, to_node), self.pump(node, from_node, to_client)) };
        tokio::select! {
            biased;
            () = self.until(|ways| ways.losses_of(node) != losses) => {}
            _ = both => {}
        }
    }

    async fn pump(&self, node: i32, mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(READ_BYTES);
            let read = from.read_buf(&mut buffer).await;
            self.travel(node).await;
            let ended = !matches!(read, Ok(1..));
            if ended || to.write_all_buf(&mut buffer).await.is_err() {
                break;
            }
        }
        // The other end may be gone; then there is nobody to tell.
        let _ = to.shutdown().await;
    }

    /// The time on the way, and while there is none.
    async fn travel(&self, node: i32) {
        let delay = self.delay();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        self.until(|ways| !ways.cut.contains(&node)).await;
    }

    async fn until(&self, met: impl Fn(&Ways) -> bool) {
        while !met(&self.ways()) {
            let mut changed = pin!(self.0.changed.notified());
            // Before another look, so that no change falls between the two.
            changed.as_mut().enable();
            if met(&self.ways()) {
                return;
            }
            changed.await;
        }
    }

    fn change(&self, change: impl FnOnce(&mut Ways)) {
        change(&mut self.ways());
        self.0.changed.notify_waiters();
    }

    fn ways(&self) -> MutexGuard<'_, Ways> {
        self.0.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn delay(&self) -> Duration {
        let (least, most) = self.ways().delay;
        if most == 0 {
            return Duration::ZERO;
        }
        let mut random = self.0.random.lock().unwrap_or_else(PoisonError::into_inner);
        Duration::from_micros(least + random.next() % (most - least).saturating_add(1))
    }

    fn losses(&self, node: i32) -> u64 {
        self.ways().losses_of(node)
    }
}

impl Ways {
    fn losses_of(&self, node: i32) -> u64 {
        self.losses.get(&node).copied().unwrap_or(0)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Network").field(&*self.ways()).finish()
    }
}

/// What is on its way in one direction and waits to be read.
const STREAM_BYTES: usize = 1 << 16;
const READ_BYTES: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    async fn ends(network: &Network) -> (DuplexStream, DuplexStream) {
        let (far, node) = tokio::io::duplex(STREAM_BYTES);
        (network.carry(1, || Ok(far)).await.unwrap(), node)
    }

    async fn read(stream: &mut DuplexStream) -> Vec<u8> {
        let mut buffer = Vec::new();
        stream.read_buf(&mut buffer).await.unwrap();
        buffer
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_take_their_time_and_keep_their_order() {
        let network = Network::new(7);
        network.set_delay(SECOND..=2 * SECOND);
        let (mut client, mut node) = ends(&network).await;
        let began = Instant::now();
        client.write_all(b"a").await.unwrap();
        assert_eq!(read(&mut node).await, b"a");
        assert!((SECOND..=2 * SECOND + SECOND / 100).contains(&began.elapsed()), "{:?}", began.elapsed());
        client.write_all(b"b").await.unwrap();
        tokio::time::sleep(SECOND / 2).await;
        client.write_all(b"c").await.unwrap();
        drop(client);
        let mut rest = Vec::new();
        node.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"bc");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_cut_is_silent_and_comes_once_it_is_mended() {
        let network = Network::new(7);
        let (mut client, mut node) = ends(&network).await;
        network.cut(1);
        client.write_all(b"late").await.unwrap();
        timeout(60 * SECOND, read(&mut node)).await.unwrap_err();
        timeout(60 * SECOND, ends(&network)).await.map(drop).unwrap_err();
        network.mend(1);
        assert_eq!(read(&mut node).await, b"late");
        network.cut(2);
        node.write_all(b"another node's cut").await.unwrap();
        assert_eq!(read(&mut client).await, b"another node's cut");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_connection_ends_at_both_ends_with_what_was_on_its_way() {
        let network = Network::new(7);
        let (mut client, mut node) = ends(&network).await;
        network.cut(1);
        client.write_all(b"lost").await.unwrap();
        tokio::time::sleep(SECOND).await;
        network.lose_connections(1);
        network.mend(1);
        assert_eq!(read(&mut node).await, b"");
        assert_eq!(read(&mut client).await, b"");
        let (mut client, mut node) = ends(&network).await;
        client.write_all(b"the next one lives").await.unwrap();
        assert_eq!(read(&mut node).await, b"the next one lives");
    }
}
