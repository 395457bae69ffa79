//! Tokio drivers of the machines.
