//! What is known of the cluster, and when to ask again.
//!
//! ```text
//!      want, invalidate, age                    poll_request
//!   Quiet ──────────────────► Quiet, due sooner ────────────► Asking
//!     ▲                                                         │
//!     └──── handle_response: new view  /  handle_failure: wait ─┘
//! ```
//!
//! Demands that come while a request is under way wait for the next one, so any number of them costs one request.

mod address;
mod refresh;
mod view;

pub use address::{BrokerAddress, InvalidAddress};
pub(crate) use refresh::{Event, Metadata, Pace, Round};
pub(crate) use view::{ClusterView, LeaderHint};
