//! What tests of users and of this crate share.

pub mod broker;
pub mod contract;
