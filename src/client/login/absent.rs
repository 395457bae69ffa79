//! What stands for logins where no mechanism is built in: a type without a value.

use std::time::Duration;

use super::Preparing;
use crate::client::Problems;
use crate::machine::sasl::Mechanism;

/// A login: none can be made.
#[derive(Debug, Clone)]
pub(crate) enum Login {}

impl Login {
    pub(crate) fn mechanism(&self) -> Mechanism {
        match *self {}
    }

    pub(crate) fn warn_if_bare(&self) {
        match *self {}
    }

    pub(crate) fn check(&self, _: &mut Problems) {
        match *self {}
    }

    pub(crate) fn prepare(&self, _: Duration) -> Preparing {
        match *self {}
    }

    pub(crate) fn handle_refused(&self) {
        match *self {}
    }
}
