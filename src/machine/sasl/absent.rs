//! What stands for the mechanisms where none is built in: types without a value.

use super::{Reply, SaslViolation};

/// How a login is made: in no way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mechanism {}

/// One run of a mechanism: of none.
#[derive(Debug)]
pub(crate) enum Exchange {}

impl Mechanism {
    pub(crate) fn name(self) -> &'static str {
        match self {}
    }

    pub(crate) fn is_asked_anew(self) -> bool {
        match self {}
    }
}

impl Exchange {
    pub(crate) fn mechanism(&self) -> Mechanism {
        match *self {}
    }

    pub(crate) fn first(&mut self) -> Vec<u8> {
        match *self {}
    }

    pub(crate) fn complaint(&self) -> Option<&str> {
        match *self {}
    }

    pub(crate) fn handle(&mut self, _: &[u8]) -> Result<Reply, SaslViolation> {
        match *self {}
    }
}
