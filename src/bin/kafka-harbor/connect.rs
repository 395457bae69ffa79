//! Which cluster, and a client for it.

use std::time::Duration;

use clap::Args;
use kafka_harbor::adapter::kafka::{KafkaAdapter, KafkaAdapterBuilder};
use kafka_harbor::client::Client;

use crate::door::{Door, DoorArgs};
use crate::failure::Failure;

/// What every command needs to reach a cluster.
#[derive(Debug, Args)]
pub(crate) struct ConnectArgs {
    /// Brokers to ask first, host:port, comma-separated
    #[arg(long, visible_alias = "brokers", global = true, env = "KAFKA_BOOTSTRAP", value_name = "HOST:PORT,...")]
    bootstrap: Option<String>,
    /// Name that the brokers log [default: kafka-harbor-tool]
    #[arg(long, global = true, value_name = "NAME")]
    client_id: Option<String>,
    /// How long a request, tries included, may take, in seconds
    #[arg(long, global = true, default_value_t = 15, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    #[command(flatten)]
    door: DoorArgs,
}

impl ConnectArgs {
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let door = self.door.open()?;
        let mut client = Client::builder([self.bootstrap(&door)?]).client_id(self.client_id(&door));
        if let Some(tls) = door.tls {
            client = client.tls(tls);
        }
        if let Some(login) = door.login {
            client = client.login(login);
        }
        // A broker that does not answer leaves time to ask another one.
        Ok(client.request_timeout(self.timeout() / 2).build()?)
    }

    /// Options of an adapter, and the client's name.
    pub(crate) fn adapter(&self) -> Result<(KafkaAdapterBuilder, String), Failure> {
        let door = self.door.open()?;
        let client_id = self.client_id(&door);
        let mut adapter = KafkaAdapter::builder([self.bootstrap(&door)?]).client_id(&client_id);
        if let Some(tls) = door.tls {
            adapter = adapter.tls(tls);
        }
        if let Some(login) = door.login {
            adapter = adapter.login(login);
        }
        Ok((adapter.admin_timeout(self.timeout()), client_id))
    }

    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    fn bootstrap(&self, door: &Door) -> Result<String, Failure> {
        self.bootstrap.clone().or_else(|| door.bootstrap.clone()).ok_or_else(|| {
            Failure::usage(
                "which cluster? give --bootstrap HOST:PORT, set KAFKA_BOOTSTRAP, or bootstrap.servers in --command-config",
            )
        })
    }

    fn client_id(&self, door: &Door) -> String {
        let id = self.client_id.clone().or_else(|| door.client_id.clone());
        id.unwrap_or_else(|| "kafka-harbor-tool".to_owned())
    }
}
