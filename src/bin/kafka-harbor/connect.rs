//! Which cluster, and a client for it.

use std::time::Duration;

use clap::Args;
use kafka_harbor::client::Client;

use crate::failure::Failure;

/// What every command needs to reach a cluster.
#[derive(Debug, Args)]
pub(crate) struct ConnectArgs {
    /// Brokers to ask first, host:port, comma-separated
    #[arg(long, visible_alias = "brokers", global = true, env = "KAFKA_BOOTSTRAP", value_name = "HOST:PORT,...")]
    pub(crate) bootstrap: Option<String>,
    /// Name that the brokers log
    #[arg(long, global = true, default_value = "kafka-harbor-tool")]
    pub(crate) client_id: String,
    /// How long a request, tries included, may take, in seconds
    #[arg(long, global = true, default_value_t = 15, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

impl ConnectArgs {
    pub(crate) fn bootstrap(&self) -> Result<&str, Failure> {
        self.bootstrap
            .as_deref()
            .ok_or_else(|| Failure::usage("which cluster? give --bootstrap HOST:PORT or set KAFKA_BOOTSTRAP"))
    }

    pub(crate) fn client(&self) -> Result<Client, Failure> {
        // A broker that does not answer leaves time to ask another one.
        let client = Client::builder(self.bootstrap()?.split(',').map(str::trim)).client_id(&self.client_id);
        Ok(client.request_timeout(self.timeout() / 2).build()?)
    }

    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}
