use std::fmt;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::{DnsName, ServerName};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::client::TlsStream;

use super::Tls;
use super::failure::{Stage, failure};
use crate::client::transport::{Connecting, Connector, Stream};
use crate::machine::connection::{TlsFailure, TlsFault};
use crate::machine::metadata::BrokerAddress;

/// TLS over the streams of another connector.
pub(crate) struct TlsConnector {
    tls: Tls,
    beneath: Arc<dyn Connector>,
}

impl TlsConnector {
    pub(crate) fn new(tls: Tls, beneath: Arc<dyn Connector>) -> Self {
        Self { tls, beneath }
    }

    async fn secure(&self, address: &BrokerAddress) -> io::Result<Box<dyn Stream>> {
        let fault = |failure| TlsFault { address: address.to_string(), failure };
        let name = server_name(address.host()).ok_or_else(|| fault(invalid_name(address)))?;
        let config = self.tls.current().await;
        let certificate_sent = config.client_auth_cert_resolver.has_certs();
        let tell = Tell { address: address.clone(), certificate_sent };
        let stream = self.beneath.connect(address).await?;
        let connecting = tokio_rustls::TlsConnector::from(config).connect(name, stream);
        let stream = connecting.await.map_err(|error| tell.translate(error, Stage::Handshake))?;
        Ok(Box::new(Secured { stream, tell }))
    }
}

impl Connector for TlsConnector {
    fn connect<'a>(&'a self, address: &'a BrokerAddress) -> Connecting<'a> {
        Box::pin(self.secure(address))
    }
}

impl fmt::Debug for TlsConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConnector").field("tls", &self.tls).field("beneath", &self.beneath).finish()
    }
}

/// A stream under TLS, whose errors say what failed.
struct Secured {
    stream: TlsStream<Box<dyn Stream>>,
    tell: Tell,
}

/// What a failure is told with.
struct Tell {
    address: BrokerAddress,
    certificate_sent: bool,
}

impl Tell {
    fn translate(&self, error: io::Error, stage: Stage) -> io::Error {
        match failure(&error, stage, self.address.host(), self.certificate_sent) {
            Some(failure) => TlsFault { address: self.address.to_string(), failure }.into(),
            None => error,
        }
    }

    fn poll<T>(&self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        polled.map_err(|error| self.translate(error, Stage::Data))
    }
}

impl AsyncRead for Secured {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.tell.poll(polled)
    }
}

impl AsyncWrite for Secured {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.tell.poll(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.tell.poll(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.tell.poll(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.tell.poll(polled)
    }
}

/// The name that a certificate has to be for, and that SNI tells.
///
/// A name goes without the dot that makes it absolute: no certificate has it, and RFC 6066 forbids it. Addresses are not told
/// by SNI; a zone is no part of an address that a certificate could be for.
fn server_name(host: &str) -> Option<ServerName<'static>> {
    let address = host.split('%').next().unwrap_or(host);
    if let Ok(address) = address.parse::<IpAddr>() {
        return Some(ServerName::IpAddress(address.into()));
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    DnsName::try_from(name.to_owned()).ok().map(ServerName::DnsName)
}

fn invalid_name(address: &BrokerAddress) -> TlsFailure {
    TlsFailure::InvalidName { name: address.host().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// kafkajs#512, librdkafka#4348, krafka 0.28.1: no SNI, or one with the trailing dot, and brackets around IPv6.
    #[test]
    fn names_go_without_their_dot_and_addresses_as_addresses() {
        let name = |host| server_name(host).map(|name| name.to_str().into_owned());
        assert_eq!(name("kafka.example.com"), Some("kafka.example.com".to_owned()));
        assert_eq!(name("kafka.example.com."), Some("kafka.example.com".to_owned()));
        assert!(matches!(server_name("::1"), Some(ServerName::IpAddress(_))));
        assert!(matches!(server_name("fe80::1%eth0"), Some(ServerName::IpAddress(_))));
        assert!(matches!(server_name("127.0.0.1"), Some(ServerName::IpAddress(_))));
        assert_eq!(name("b-1.my_cluster.x"), Some("b-1.my_cluster.x".to_owned()));
        for wrong in ["", ".", "a b", "a..b", "k\u{e4}fka"] {
            assert_eq!(name(wrong), None, "{wrong:?}");
        }
    }
}
