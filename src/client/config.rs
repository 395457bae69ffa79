//! Options of a client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::error::{ConfigError, Problems};
use super::login::Login;
use super::meter::Meter;
#[cfg(feature = "tls")]
use super::tls::{Tls, TlsConnector};
use super::transport::{Connector, TcpConnector};
use crate::client::{Client, Cluster};
use crate::machine::connection::Limits;
use crate::machine::metadata::{BrokerAddress, Pace};
use crate::machine::sasl::Mechanism;
use crate::observe::{Observer, Observers};
use crate::protocol::request::ClientId;
use crate::retry::ExponentialFullJitter;

/// What a client was built with.
#[derive(Debug, Clone)]
pub(crate) struct ClientConfig {
    pub(crate) bootstrap: Vec<BrokerAddress>,
    pub(crate) client_id: String,
    pub(crate) request_timeout: Duration,
    pub(crate) metadata: Pace,
    pub(crate) link: Limits,
    pub(crate) wire_client_id: ClientId,
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) observers: Observers,
    pub(crate) login: Option<Login>,
    pub(crate) meter: Arc<Meter>,
}

impl ClientConfig {
    /// How brokers are logged in to, if they are.
    pub(crate) fn mechanism(&self) -> Option<Mechanism> {
        self.login.as_ref().map(Login::mechanism)
    }

    /// The wait before a lookup that failed so often in a row is made again.
    pub(crate) fn retry_delay(&self, failures: u32) -> Duration {
        self.metadata.delay(failures, fastrand::f64())
    }
}

/// Options of a [`Client`].
///
/// Every option has a default that is meant to be kept. Mistakes are reported together by [`build`](Self::build).
#[derive(Clone)]
#[must_use]
pub struct ClientBuilder {
    bootstrap: Vec<String>,
    client_id: String,
    request_timeout: Duration,
    setup_timeout: Duration,
    reconnect_backoff: (Duration, Duration),
    idle_timeout: Duration,
    metadata_max_age: Duration,
    metadata_max_idle: Duration,
    retry_backoff: (Duration, Duration),
    max_response_bytes: usize,
    max_request_bytes: usize,
    max_in_flight_requests: usize,
    max_queued_requests: usize,
    max_throttle: Duration,
    observers: Vec<Arc<dyn Observer>>,
    login: Option<Login>,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
    connector: Arc<dyn Connector>,
}

impl ClientBuilder {
    /// Options with their defaults. Addresses may also be given as one text with commas.
    pub(crate) fn new<A: Into<String>>(bootstrap: impl IntoIterator<Item = A>) -> Self {
        let texts = bootstrap.into_iter().map(Into::into);
        let split = |text: String| text.split(',').map(|part| part.trim().to_owned()).collect::<Vec<_>>();
        Self {
            bootstrap: texts.flat_map(split).filter(|address| !address.is_empty()).collect(),
            client_id: env!("CARGO_PKG_NAME").to_owned(),
            request_timeout: Duration::from_secs(30),
            setup_timeout: Duration::from_secs(10),
            reconnect_backoff: (Duration::from_millis(50), Duration::from_secs(1)),
            idle_timeout: Duration::from_secs(210),
            metadata_max_age: Duration::from_secs(300),
            metadata_max_idle: Duration::from_secs(300),
            retry_backoff: (Duration::from_millis(100), Duration::from_secs(1)),
            max_response_bytes: crate::protocol::frame::DEFAULT_MAX_FRAME_BYTES,
            max_request_bytes: crate::protocol::frame::DEFAULT_MAX_FRAME_BYTES,
            max_in_flight_requests: 32,
            max_queued_requests: 4096,
            max_throttle: Duration::from_secs(60),
            observers: Vec::new(),
            login: None,
            #[cfg(feature = "tls")]
            tls: None,
            connector: Arc::new(TcpConnector),
        }
    }

    /// How streams to brokers are made.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn connector(mut self, connector: Arc<dyn Connector>) -> Self {
        self.connector = connector;
        self
    }

    /// The name that brokers log, count and limit this client by. Default `kafka-harbor`; at most 249 bytes.
    /// Java: `client.id`.
    pub fn client_id(mut self, id: impl Into<String>) -> Self {
        self.client_id = id.into();
        self
    }

    /// How long a broker may take to answer a request that does not wait by its nature. One that passes it closes its
    /// connection. Default 30 s, from 100 ms to an hour. Java: `request.timeout.ms`.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// How long a connection may take until requests can be sent on it, over all addresses of a host. Default 10 s, from
    /// 100 ms to five minutes. Java: `socket.connection.setup.timeout.ms`.
    pub fn setup_timeout(mut self, timeout: Duration) -> Self {
        self.setup_timeout = timeout;
        self
    }

    /// The longest wait before a broker is connected to again: `first` after one failure, doubled with each further one
    /// up to `max`; a random part of it is waited. Default 50 ms and 1 s; `first` at least 1 ms and at most `max`, `max`
    /// at most a minute. Java: `reconnect.backoff.ms`, `reconnect.backoff.max.ms`.
    pub fn reconnect_backoff(mut self, first: Duration, max: Duration) -> Self {
        self.reconnect_backoff = (first, max);
        self
    }

    /// After how much quiet a connection is closed. Default 3 min 30 s: load balancers close after four minutes (Azure)
    /// and brokers after ten, some without a word, so that the next request is lost on a dead connection. From 1 s to an hour.
    /// Java: `connections.max.idle.ms`.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// The age at which what is known of the cluster is asked for again, though nothing seems wrong. Default 5 min, from
    /// 1 s to a day. Java: `metadata.max.age.ms`.
    pub fn metadata_max_age(mut self, age: Duration) -> Self {
        self.metadata_max_age = age;
        self
    }

    /// After how long a topic that nothing is written to any more is not asked for with the rest; the next record for it looks it up again.
    /// What a consumer subscribed to is never forgotten. Default 5 min, from 1 min to a day. Java: `metadata.max.idle.ms`.
    pub fn metadata_max_idle(mut self, idle: Duration) -> Self {
        self.metadata_max_idle = idle;
        self
    }

    /// The wait before a failed lookup (metadata, coordinator) is made again: `first`, doubled with each failure up to `max`,
    /// give or take a fifth. Default 100 ms and 1 s; bounds as of [`reconnect_backoff`](Self::reconnect_backoff).
    /// Java: `retry.backoff.ms`, `retry.backoff.max.ms`.
    pub fn retry_backoff(mut self, first: Duration, max: Duration) -> Self {
        self.retry_backoff = (first, max);
        self
    }

    /// The largest answer that is read; a larger one closes the connection. Default 100 MiB, from 1 MiB to 1 GiB.
    pub fn max_response_bytes(mut self, bytes: usize) -> Self {
        self.max_response_bytes = bytes;
        self
    }

    /// The largest request that is sent. Default 100 MiB, a broker's own default limit (`socket.request.max.bytes`); from
    /// 1 MiB to 1 GiB.
    pub fn max_request_bytes(mut self, bytes: usize) -> Self {
        self.max_request_bytes = bytes;
        self
    }

    /// Requests that may be under way on one connection; more wait in the client. Default 32, from 1 to 1,000.
    pub fn max_in_flight_requests(mut self, requests: usize) -> Self {
        self.max_in_flight_requests = requests;
        self
    }

    /// Requests that may wait for one connection; more are refused at once. Default 4,096, from 1 to 1,000,000.
    pub fn max_queued_requests(mut self, requests: usize) -> Self {
        self.max_queued_requests = requests;
        self
    }

    /// The longest silence that a broker may ask for when the client has used up a quota; a longer one counts as this.
    /// Default 1 min, from 1 s to 10 min.
    ///
    /// Meanwhile nothing is written on the connection that was throttled, one broker's and one purpose's; the time is no part of
    /// a request's timeout, but it is one of a record's delivery timeout, as in Java. Told to observers as
    /// [`throttled`](Observer::throttled). (KIP-219.)
    pub fn max_throttle(mut self, silence: Duration) -> Self {
        self.max_throttle = silence;
        self
    }

    /// Also tells this observer what connections report: [`throttled`](Observer::throttled). Default none.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.push(Arc::new(observer));
        self
    }

    /// Speaks TLS with every broker. Without it everything goes over the network in plain text. Default: none. Java:
    /// `security.protocol` of `SSL` or `SASL_SSL`, and `ssl.*`.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Logs in to every broker. Default: no login. PLAIN and OAUTHBEARER send what they log in with as it is, so give
    /// [`tls`](Self::tls) too; without it a warning is logged. Java: `security.protocol` of `SASL_PLAINTEXT` or `SASL_SSL`, and
    /// `sasl.*`.
    #[cfg(feature = "sasl")]
    pub fn login(mut self, login: Login) -> Self {
        self.login = Some(login);
        self
    }

    /// The client. Nothing is connected to yet.
    ///
    /// # Errors
    /// Naming every option that cannot be used.
    pub fn build(self) -> Result<Client, ConfigError> {
        Ok(Client::over(Cluster::new(self.check()?)))
    }

    fn check(self) -> Result<ClientConfig, ConfigError> {
        let connector = self.secured(Arc::clone(&self.connector));
        let mut problems = Problems::default();
        let bootstrap = self.check_bootstrap(&mut problems);
        problems.require(self.client_id.len() <= 249, "client_id", "it is longer than 249 bytes");
        let wire_client_id = ClientId::new(&self.client_id).unwrap_or_else(|_| ClientId::none());
        problems.require_within("request_timeout", self.request_timeout, TENTH..=HOUR);
        problems.require_within("setup_timeout", self.setup_timeout, TENTH..=Duration::from_secs(300));
        check_backoff(&mut problems, "reconnect_backoff", self.reconnect_backoff);
        check_backoff(&mut problems, "retry_backoff", self.retry_backoff);
        problems.require_within("idle_timeout", self.idle_timeout, SECOND..=HOUR);
        problems.require_within("metadata_max_age", self.metadata_max_age, SECOND..=24 * HOUR);
        problems.require_within("metadata_max_idle", self.metadata_max_idle, Duration::from_secs(60)..=24 * HOUR);
        problems.require_within("max_response_bytes", self.max_response_bytes, MIB..=1024 * MIB);
        problems.require_within("max_request_bytes", self.max_request_bytes, MIB..=1024 * MIB);
        problems.require_within("max_in_flight_requests", self.max_in_flight_requests, 1..=1_000);
        problems.require_within("max_queued_requests", self.max_queued_requests, 1..=1_000_000);
        problems.require_within("max_throttle", self.max_throttle, SECOND..=Duration::from_secs(600));
        if let Some(login) = &self.login {
            login.check(&mut problems);
        }
        problems.finish()?;
        self.warn_of_bare_secrets();
        let (first, max) = self.reconnect_backoff;
        Ok(ClientConfig {
            bootstrap,
            client_id: self.client_id,
            request_timeout: self.request_timeout,
            metadata: Pace {
                max_age: self.metadata_max_age,
                max_idle: self.metadata_max_idle,
                backoff: self.retry_backoff.0,
                backoff_max: self.retry_backoff.1,
            },
            link: Limits {
                in_flight: self.max_in_flight_requests,
                queued: self.max_queued_requests,
                request_bytes: self.max_request_bytes,
                response_bytes: self.max_response_bytes,
                idle: self.idle_timeout,
                setup: self.setup_timeout,
                throttle: self.max_throttle,
                reconnect: ExponentialFullJitter { first, max },
            },
            wire_client_id,
            observers: Observers::new(self.observers),
            meter: Arc::default(),
            login: self.login,
            connector,
        })
    }

    #[cfg(feature = "tls")]
    fn secured(&self, connector: Arc<dyn Connector>) -> Arc<dyn Connector> {
        match &self.tls {
            Some(tls) => Arc::new(TlsConnector::new(tls.clone(), connector)),
            None => connector,
        }
    }

    #[cfg(not(feature = "tls"))]
    fn secured(&self, connector: Arc<dyn Connector>) -> Arc<dyn Connector> {
        connector
    }

    fn warn_of_bare_secrets(&self) {
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return;
        }
        if let Some(login) = &self.login {
            login.warn_if_bare();
        }
    }

    fn check_bootstrap(&self, problems: &mut Problems) -> Vec<BrokerAddress> {
        problems.require(!self.bootstrap.is_empty(), "bootstrap", "no address is given");
        problems.require(self.bootstrap.len() <= 1_000, "bootstrap", "more than 1,000 addresses are given");
        let mut addresses = Vec::new();
        for text in &self.bootstrap {
            match text.parse() {
                Ok(address) => addresses.push(address),
                Err(error) => problems.add("bootstrap", error),
            }
        }
        addresses
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("bootstrap", &self.bootstrap)
            .field("client_id", &self.client_id)
            .finish_non_exhaustive()
    }
}

fn check_backoff(problems: &mut Problems, option: &'static str, (first, max): (Duration, Duration)) {
    problems.require_within(option, first, Duration::from_millis(1)..=max.max(Duration::from_millis(1)));
    problems.require(max <= Duration::from_secs(60), option, "the longest wait is over a minute");
}

const TENTH: Duration = Duration::from_millis(100);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const MIB: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_reported_all_together_by_name() {
        let error = ClientBuilder::new(["broker", "[::1]:0"])
            .client_id("x".repeat(250))
            .request_timeout(Duration::ZERO)
            .reconnect_backoff(Duration::from_secs(2), Duration::from_secs(1))
            .max_in_flight_requests(0)
            .build()
            .unwrap_err();
        let options: Vec<_> = error.problems.iter().map(|problem| problem.option).collect();
        let expected =
            ["bootstrap", "bootstrap", "client_id", "request_timeout", "reconnect_backoff", "max_in_flight_requests"];
        assert_eq!(options, expected);
        assert!(error.to_string().starts_with("6 option(s) cannot be used: bootstrap: \"broker\" is no"), "{error}");
    }

    #[test]
    fn no_address_at_all_is_a_mistake() {
        for none in ["", " , "] {
            assert_eq!(ClientBuilder::new([none]).build().unwrap_err().problems[0].option, "bootstrap");
        }
    }

    #[test]
    fn addresses_may_be_one_text() {
        let config = ClientBuilder::new(["a:1, b:2", "[::1]:3"]).check().unwrap();
        let addresses: Vec<_> = config.bootstrap.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["a:1", "b:2", "[::1]:3"]);
    }
}
