//! A set of connections: one a broker, for one purpose.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::Connection;
use crate::client::cluster::{Inner, connection_to};
use crate::client::config::ClientConfig;
use crate::record::NodeId;

/// Connections for one purpose, made as they are asked for.
///
/// A broker answers one connection in turn, so what waits by its nature (a long poll, a join) has a set of its own.
#[derive(Clone)]
pub(crate) struct Connections(Arc<Set>);

struct Set {
    cluster: Weak<Inner>,
    config: Arc<ClientConfig>,
    by_node: Mutex<HashMap<NodeId, Connection>>,
}

impl Connections {
    pub(in crate::client) fn new(cluster: Weak<Inner>, config: Arc<ClientConfig>) -> Self {
        Self(Arc::new(Set { cluster, config, by_node: Mutex::default() }))
    }

    /// The connection to this broker. Nothing is connected to before its first request.
    pub(crate) fn to(&self, node: NodeId) -> Connection {
        // The map holds handles alone; a panic cannot leave it half changed.
        let mut by_node = self.0.by_node.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = by_node.get(&node) {
            return connection.clone();
        }
        let connection = connection_to(&self.0.cluster, &self.0.config, node);
        by_node.insert(node, connection.clone());
        connection
    }

    /// Keeps this one no longer than others hold it.
    pub(crate) fn forget(&self, node: NodeId) {
        self.0.by_node.lock().unwrap_or_else(PoisonError::into_inner).remove(&node);
    }
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections").finish_non_exhaustive()
    }
}
