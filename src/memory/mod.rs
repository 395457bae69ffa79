//! Broker behaviour in memory.
