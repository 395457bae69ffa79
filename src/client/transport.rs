//! Streams to brokers, and how they are made. The seam where TLS, proxies and in-memory streams come in.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};

use crate::error::BoxError;
use crate::machine::metadata::BrokerAddress;

/// A stream to a broker.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Makes streams to brokers.
pub(crate) trait Connector: fmt::Debug + Send + Sync + 'static {
    /// Connects. The caller bounds the time, and drops the future at the bound.
    fn connect<'a>(&'a self, address: &'a BrokerAddress) -> Connecting<'a>;
}

/// A stream on its way.
pub(crate) type Connecting<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send + 'a>>;

/// Plain TCP.
///
/// The name is resolved anew for each connection, so that a broker that moved is found, and all its addresses are
/// tried in turn. Nagle's algorithm is off: a small request that waits for the acknowledgement of the one before costs 40 ms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TcpConnector;

impl TcpConnector {
    async fn connect_tcp(&self, address: &BrokerAddress) -> io::Result<TcpStream> {
        // A name with a trailing dot is absolute; resolvers take it as it is.
        let addresses = lookup_host((address.host(), address.port())).await?;
        let stream = connect_any(addresses).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

impl Connector for TcpConnector {
    fn connect<'a>(&'a self, address: &'a BrokerAddress) -> Connecting<'a> {
        Box::pin(async move { Ok(Box::new(self.connect_tcp(address).await?) as Box<dyn Stream>) })
    }
}

async fn connect_any(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut last = None;
    for address in addresses {
        match tokio::time::timeout(PER_ADDRESS, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = Some(explain(error, address)),
            Err(_) => last = Some(explain(io::ErrorKind::TimedOut.into(), address)),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address")))
}

fn explain(error: io::Error, address: SocketAddr) -> io::Error {
    io::Error::new(error.kind(), BoxError::from(format!("{address}: {error}")))
}

/// A dead address of a host must leave time for the host's others within
/// [`setup_timeout`](super::ClientBuilder::setup_timeout).
const PER_ADDRESS: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    /// librdkafka#4986: with Nagle left on, each small request waits for the last one's acknowledgement.
    #[tokio::test]
    async fn nagle_is_off() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        assert!(!stream.nodelay().unwrap(), "the system's default is on, so the next line proves something");
        let stream = TcpConnector.connect_tcp(&BrokerAddress::new("localhost", port)).await.unwrap();
        assert!(stream.nodelay().unwrap());
    }

    #[tokio::test]
    async fn every_address_of_a_host_is_tried() {
        // Bound to IPv4 alone; `localhost` often has ::1 first.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpConnector.connect(&BrokerAddress::new("localhost", port)).await.map(drop).unwrap();
        let dead = SocketAddr::from(([127, 0, 0, 2], port));
        let alive = listener.local_addr().unwrap();
        assert_eq!(connect_any([dead, alive].into_iter()).await.unwrap().peer_addr().unwrap(), alive);
        let error = connect_any([dead].into_iter()).await.unwrap_err();
        assert!(error.to_string().starts_with(&format!("{dead}: ")), "{error}");
    }
}
