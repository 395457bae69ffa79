//! Members and a coordinator in virtual time: latency, lost answers, dead members, slow handlers.

mod coordinator;
mod scenarios;
mod world;
