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
//! Not for production: nothing is kept beyond the process, and nobody is asked who they are.
//!
//! # How to add an API
//!
//! A file under `api/` with an `impl Serve for XRequest`, and a line in the table `APIS` of `api/mod.rs`. State that outlives a
//! request is a field of `Core` (`core.rs`), in a file of its own; its timers are asked by `Core::poll_timeout` and served by
//! `Core::handle_timeout`. An answer that has to wait is a `Step::wait`: it is asked again whenever `Core::changed`
//! was called.

mod acts;
mod api;
mod call;
mod classic_group;
mod cluster;
mod core;
mod faults;
mod groups;
mod node;
mod partition;
mod random;
mod server;
mod sessions;
mod settings;
mod topics;

#[cfg(test)]
mod tests;

pub use self::acts::PartitionState;
pub use self::call::ConnectionId;
pub use self::cluster::{Cluster, Output};
pub use self::faults::{Effect, Rule, RuleId};
pub use self::node::Listener;
pub use self::server::{DevBroker, DevBrokerBuilder, StartError};
pub use self::settings::Settings;
