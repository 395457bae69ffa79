//! The nodes of a cluster.

use std::collections::BTreeMap;

use super::settings::Settings;
use crate::machine::metadata::BrokerAddress;

/// A way into the cluster. Each names its own addresses of the nodes, as Kafka's listeners do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Listener {
    /// Streams within the process.
    InProcess,
    /// Sockets.
    Tcp,
}

/// One node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: i32,
    pub(super) rack: Option<String>,
    /// Whether it runs.
    pub(super) is_up: bool,
    /// Whether it reads and answers; one that does not keeps its connections and its place in the cluster.
    pub(super) is_paused: bool,
    /// Whether its replicas follow their leaders.
    pub(super) follows: bool,
    addresses: BTreeMap<Listener, BrokerAddress>,
}

impl Node {
    /// Where it is found by who came in this way.
    pub(super) fn address(&self, listener: Listener) -> BrokerAddress {
        let given = self.addresses.get(&listener).cloned();
        given.unwrap_or_else(|| BrokerAddress::new(format!("node-{}.dev", self.id), DEFAULT_PORT))
    }
}

/// All nodes, by id.
#[derive(Debug)]
pub(super) struct Nodes(BTreeMap<i32, Node>);

impl Nodes {
    pub(super) fn new(settings: &Settings) -> Self {
        let node = |id: i32| Node {
            id,
            rack: settings.racks.get(id as usize - 1).cloned(),
            is_up: true,
            is_paused: false,
            follows: true,
            addresses: BTreeMap::new(),
        };
        Self((1..=settings.nodes.clamp(1, MAX_NODES)).map(|id| (id, node(id))).collect())
    }

    pub(super) fn get(&self, id: i32) -> Option<&Node> {
        self.0.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: i32) -> Option<&mut Node> {
        self.0.get_mut(&id)
    }

    pub(super) fn is_up(&self, id: i32) -> bool {
        self.get(id).is_some_and(|node| node.is_up)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Node> {
        self.0.values()
    }

    /// Those that run.
    pub(super) fn up(&self) -> impl Iterator<Item = &Node> {
        self.0.values().filter(|node| node.is_up)
    }

    pub(super) fn ids(&self) -> Vec<i32> {
        self.0.keys().copied().collect()
    }

    /// The first that runs.
    pub(super) fn controller(&self) -> i32 {
        self.up().next().map_or(-1, |node| node.id)
    }

    pub(super) fn advertise(&mut self, id: i32, listener: Listener, address: BrokerAddress) {
        if let Some(node) = self.get_mut(id) {
            node.addresses.insert(listener, address);
        }
    }
}

/// A bound on memory.
const MAX_NODES: i32 = 100;
const DEFAULT_PORT: u16 = 9092;
