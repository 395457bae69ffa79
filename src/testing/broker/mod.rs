//! Kafka's wire protocol over logs in memory: brokers for tests and demonstrations, that can be told to fail.
//!
//! ```text
//!   clients ──streams or sockets──► server ──frames──► Cluster ──► api: one file an API ──► Core
//!                                     ▲                  │           ▲                      ├─ topics: partitions: replicas' logs
//!                                     └───── answers ────┘           │                      ├─ fetch sessions
//!                                                        faults ─────┘                      └─ coordinators
//! ```
//!
//! [`Cluster`] is a machine: no sockets, no clock, no tasks. It takes frames and the time and gives answers, and does the
//! same for the same seed.
//!
//! Its records lie in the logs of [`crate::memory`], with that module's rules of what a broker refuses. Several nodes are
//! one process; replication is immediate unless a node is told not to follow, controllers and coordinators agree by
//! construction. What differs from Kafka is said where it is done.
//!
//! Not for production: nothing is kept beyond the process, and who logs in may do everything.
//!
//! # Examples
//!
//! A write whose answer is lost is sent again, and is in the log once:
//!
//! ```
//! use kafka_harbor::protocol::api::ApiKey;
//! use kafka_harbor::record::{Record, TopicPartition};
//! use kafka_harbor::testing::broker::{DevBroker, Effect, Rule};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
//! # runtime.block_on(async {
//! let broker = DevBroker::builder().nodes(3).topic("orders", 1).start().await?;
//! broker.order(Rule::new(ApiKey(0), Effect::CloseAfter));
//! let producer = broker.client_config().build()?.producer().build()?;
//! producer.send(Record::new("orders", "first")).await?;
//! let state = broker.act(|cluster, _| cluster.partition(&TopicPartition::new("orders", 0)));
//! assert_eq!(state.map(|state| state.high_watermark.0), Some(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! From the shell, for clients in any language: `kafka-harbor dev-broker --nodes 3 --topic orders:6 --control 127.0.0.1:9990`, and
//! the orders that [`control`] tells of.
//!
//! # How to add an API
//!
//! A file under `api/` with an `impl Serve for XRequest`, and a line in the table `APIS` of `api/mod.rs`. State that outlives a
//! request is a field of `Core` (`core.rs`), in a file of its own; its timers are asked by `Core::poll_timeout` and served by
//! `Core::handle_timeout`. An answer that has to wait is a `Step::wait`: it is asked again whenever `Core::changed`
//! was called.

mod acls;
mod acts;
mod api;
mod call;
mod classic_group;
mod cluster;
mod configs;
mod consumer_group;
pub mod control;
mod core;
mod expression;
mod faults;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod groups;
#[cfg(feature = "sasl")]
mod logins;
#[cfg(feature = "kafka")]
mod network;
mod node;
mod partition;
mod random;
mod server;
mod sessions;
mod settings;
mod share_group;
mod telemetry;
mod topics;
mod transactions;

#[cfg(test)]
mod tests;

pub use self::acts::PartitionState;
pub use self::call::ConnectionId;
pub use self::cluster::{Cluster, Output};
pub use self::faults::{Effect, Rule, RuleId};
#[cfg(feature = "sasl")]
pub use self::logins::{Sasl, SaslMechanism};
#[cfg(feature = "kafka")]
pub use self::network::Network;
pub use self::node::Listener;
pub use self::server::{DevBroker, DevBrokerBuilder, StartError};
pub use self::settings::Settings;
pub use self::telemetry::PushedMetrics;
