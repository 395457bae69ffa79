//! One broker as one user of it sees it: requests in, answers in order out, over one transport after another.
//!
//! A [`Link`] outlives its transports. It says when to connect, agrees on versions, numbers requests, matches answers,
//! and fails all that hangs on a transport when that ends; requests are never moved to the next transport, because
//! only their owner knows whether their order still holds.
//!
//! ```text
//!                request             connected              versions agreed
//!       Idle ──────────────► Connecting ───────► Handshaking ──────────────► Ready
//!       ▲  ▲                     │ failed            │ failed                │  │
//!       │  └─────────────────────│───────────────────│─── quiet too long ────┘  │ lost, late answer,
//!       │ wait over,             ▼                   ▼                          │ protocol broken
//!       │ nothing queued      Waiting ◄─────────────────────────────────────────┘
//!       └───────────────────────┘ └─ wait over, requests queued ─► Connecting
//!
//!   with a login:
//!                  versions agreed                 logged in
//!       Handshaking ──────────────► Authenticating ─────────► Ready ─ to be renewed, credentials at hand ─► Draining
//!                                         ▲                                                                    │
//!                                         └────────────────── all that was sent is answered ───────────────────┘
//! ```
//!
//! A login is renewed on the transport that it stands on (KIP-368): nothing new is sent, what is under way is answered,
//! the login is made, and what waited goes on. A broker ends a connection on which a request comes after the session's end,
//! or between the frames of a login. Credentials that come from a source and are refused are asked for anew once, on the
//! next transport, before what waits is told.
//!
//! A broker that throttles answers at once and asks for silence (KIP-219). Then nothing more is written until it is over, on
//! this link alone; what waits or is under way has so much more time.
//!
//! A transport that is reset during the handshake makes the next one try an older version of it at once: some brokers
//! reset instead of refusing (Azure Event Hubs, franz-go 1.19.4).

mod error;
mod frame_reader;
mod link;
mod tls;

pub use error::{ConnectionError, ProtocolViolation, RequestError};
pub use tls::TlsFailure;
pub(crate) use tls::TlsFault;

pub(crate) use frame_reader::FrameReader;
pub(crate) use link::{Answer, Done, Encode, Limits, Link, Request, Step, Throttled};
