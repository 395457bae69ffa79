//! What tests of users and of this crate share.

pub mod contract;
