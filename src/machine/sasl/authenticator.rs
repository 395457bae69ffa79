//! The requests of a login, and when it is made again.

use std::fmt;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::{SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest};
use kafka_protocol::protocol::{Request, StrBytes};

use super::error::legible;
use super::{Exchange, LoginError, Mechanism, Reply, SaslViolation};
use crate::protocol::DecodeError;
use crate::protocol::api::{ApiKey, VersionRange};
use crate::protocol::error_code::ErrorCode;
use crate::protocol::request::EncodedRequest;
use crate::protocol::response::decode_body;
use crate::protocol::versions::{NegotiatedVersions, UnsupportedVersion};

/// The login of one connection, over one transport after another.
///
/// ```text
///             poll_wanted            credentials             accepted              over
///       Out ───────────────► Asked ──────────────► Holding ───────────► Proving ──────────► In
///        ▲ ▲                   │                      SaslHandshake       ▲ │ SaslAuthenticate
///        │ └── no credentials ─┘                                          └─┘
///        └────────────────────── transport lost, or the session is to be renewed ────────────┘
/// ```
///
/// A session goes on while the next login is prepared.
#[derive(Debug)]
pub(crate) struct Authenticator {
    mechanism: Mechanism,
    phase: Phase,
    session: Option<Session>,
    /// Refusals since the last login that was accepted.
    refusals: u32,
}

enum Phase {
    Out,
    Asked,
    Holding(Exchange),
    /// The mechanism was named, and the broker's consent is on its way.
    Offered(Exchange),
    /// This message is to be sent.
    Speaking(Exchange, Vec<u8>),
    /// The broker's answer to the last message is on its way. When that was sent is when a session begins at the earliest.
    Proving {
        exchange: Exchange,
        sent_at: Instant,
    },
    In,
}

/// How long the broker lets what was logged in go on.
#[derive(Debug, Clone, Copy)]
struct Session {
    /// When it is to be renewed.
    renew_at: Instant,
    /// When nothing may be sent any more: the broker cuts the connection at the next request after its end.
    silent_at: Instant,
}

/// What became of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// There is more to say.
    GoOn,
    /// Requests may be sent.
    LoggedIn,
}

/// An answer that could not be taken.
#[derive(Debug)]
pub(crate) enum AnswerError {
    Login(LoginError),
    Malformed(DecodeError),
}

impl From<LoginError> for AnswerError {
    fn from(error: LoginError) -> Self {
        Self::Login(error)
    }
}

impl From<DecodeError> for AnswerError {
    fn from(error: DecodeError) -> Self {
        Self::Malformed(error)
    }
}

impl Authenticator {
    /// Not logged in.
    pub(crate) fn new(mechanism: Mechanism) -> Self {
        Self { mechanism, phase: Phase::Out, session: None, refusals: 0 }
    }

    /// A new transport: nothing of the last one counts.
    pub(crate) fn reset(&mut self) {
        self.phase = Phase::Out;
        self.session = None;
    }

    /// Takes note that the credentials were refused. Answers whether others may do better: a source is asked anew once, because
    /// what it kept may have been withdrawn.
    pub(crate) fn handle_refused(&mut self) -> bool {
        self.refusals = self.refusals.saturating_add(1);
        self.refusals == 1 && self.mechanism.is_asked_anew()
    }

    /// Whether the broker can be logged in to at all.
    pub(crate) fn check(&self, versions: &NegotiatedVersions) -> Result<(), LoginError> {
        let chosen = versions.choose(HANDSHAKE).and_then(|version| {
            let ours = Some(VersionRange { min: FRAMED_HANDSHAKE, max: FRAMED_HANDSHAKE });
            let broker = versions.broker_range(HANDSHAKE);
            if version < FRAMED_HANDSHAKE { Err(UnsupportedVersion { api: HANDSHAKE, ours, broker }) } else { Ok(()) }
        });
        chosen
            .and_then(|()| versions.choose(AUTHENTICATE).map(drop))
            .map_err(|source| LoginError::Unsupported { mechanism: self.mechanism.name(), source })
    }

    /// Whether credentials are wanted now: says so once, then waits for [`handle_credentials`](Self::handle_credentials) or
    /// [`handle_none`](Self::handle_none).
    pub(crate) fn poll_wanted(&mut self) -> bool {
        let wanted = matches!(self.phase, Phase::Out);
        if wanted {
            self.phase = Phase::Asked;
        }
        wanted
    }

    /// Here they are.
    pub(crate) fn handle_credentials(&mut self, exchange: Exchange) {
        if matches!(self.phase, Phase::Asked) && exchange.mechanism() == self.mechanism {
            self.phase = Phase::Holding(exchange);
        }
    }

    /// There are none now. The session, if there is one, may go on, and is renewed by a later try.
    ///
    /// Returns whether it does.
    pub(crate) fn handle_none(&mut self, now: Instant) -> bool {
        self.phase = Phase::In;
        match &mut self.session {
            Some(session) if now < session.silent_at => {
                session.renew_at = (now + TRY_AGAIN).min(session.silent_at);
                true
            }
            _ => false,
        }
    }

    /// Whether a login can begin: there are credentials.
    pub(crate) fn is_prepared(&self) -> bool {
        matches!(self.phase, Phase::Holding(_))
    }

    /// Begins to renew a session whose time has come.
    pub(crate) fn renew(&mut self, now: Instant) {
        if matches!(self.phase, Phase::In) && self.session.is_some_and(|session| session.renew_at <= now) {
            self.phase = Phase::Out;
        }
    }

    /// Whether nothing but a login may be sent any more.
    pub(crate) fn is_silent(&self, now: Instant) -> bool {
        self.session.is_some_and(|session| session.silent_at <= now)
    }

    /// The next request; `None` while an answer, or credentials, are waited for.
    pub(crate) fn poll_request(&mut self, now: Instant, versions: &NegotiatedVersions) -> Option<EncodedRequest> {
        match std::mem::replace(&mut self.phase, Phase::Out) {
            Phase::Holding(exchange) => {
                let mechanism = StrBytes::from_static_str(self.mechanism.name());
                let request = SaslHandshakeRequest::default().with_mechanism(mechanism);
                self.phase = Phase::Offered(exchange);
                Some(encode(&request, FRAMED_HANDSHAKE))
            }
            Phase::Speaking(exchange, message) => {
                let request = SaslAuthenticateRequest::default().with_auth_bytes(message.into());
                self.phase = Phase::Proving { exchange, sent_at: now };
                let version = versions.choose(AUTHENTICATE).unwrap_or(0);
                Some(encode(&request, version))
            }
            other => {
                self.phase = other;
                None
            }
        }
    }

    /// Takes in the body of an answer to [`poll_request`](Self::poll_request)'s last.
    pub(crate) fn handle_answer(
        &mut self,
        now: Instant,
        version: i16,
        body: Bytes,
        random: f64,
    ) -> Result<Outcome, AnswerError> {
        match std::mem::replace(&mut self.phase, Phase::Out) {
            Phase::Offered(exchange) => self.handle_consent(exchange, version, body),
            Phase::Proving { exchange, sent_at } => {
                let answer = decode_body::<SaslAuthenticateRequest>(body, version)?;
                let lifetime_ms = answer.session_lifetime_ms;
                let outcome = self.handle_challenge(exchange, answer)?;
                if outcome == Outcome::LoggedIn {
                    self.refusals = 0;
                    self.session = Session::lasting(sent_at, now, lifetime_ms, random);
                }
                Ok(outcome)
            }
            _ => Err(self.violation(SaslViolation::OutOfTurn).into()),
        }
    }

    /// What the peer said against the login before it went away without an error code.
    pub(crate) fn complaint(&self) -> Option<LoginError> {
        let (Phase::Speaking(exchange, _) | Phase::Proving { exchange, .. }) = &self.phase else { return None };
        let message = exchange.complaint()?.to_owned();
        Some(self.refused(ErrorCode::SASL_AUTHENTICATION_FAILED, Some(message)))
    }

    fn handle_consent(&mut self, mut exchange: Exchange, version: i16, body: Bytes) -> Result<Outcome, AnswerError> {
        let answer = decode_body::<SaslHandshakeRequest>(body, version)?;
        let mechanism = self.mechanism.name();
        match ErrorCode(answer.error_code) {
            ErrorCode::NONE => {}
            ErrorCode::UNSUPPORTED_SASL_MECHANISM => {
                let offered = answer.mechanisms.iter().take(MOST_OFFERED).filter_map(|name| legible(name)).collect();
                return Err(LoginError::MechanismNotOffered { mechanism, offered }.into());
            }
            code @ ErrorCode::ILLEGAL_SASL_STATE => return Err(LoginError::NotWanted { mechanism, code }.into()),
            code => return Err(self.refused(code, None).into()),
        }
        let first = exchange.first();
        self.phase = Phase::Speaking(exchange, first);
        Ok(Outcome::GoOn)
    }

    fn handle_challenge(
        &mut self,
        mut exchange: Exchange,
        answer: SaslAuthenticateResponse,
    ) -> Result<Outcome, AnswerError> {
        if let Err(code) = ErrorCode(answer.error_code).ok() {
            let said = answer.error_message.as_ref().and_then(|message| legible(message));
            return Err(self.refused(code, said).into());
        }
        match exchange.handle(&answer.auth_bytes).map_err(|violation| self.violation(violation))? {
            Reply::Send(message) => {
                self.phase = Phase::Speaking(exchange, message);
                Ok(Outcome::GoOn)
            }
            Reply::Done => {
                self.phase = Phase::In;
                Ok(Outcome::LoggedIn)
            }
            Reply::Refused(message) => Err(self.refused(ErrorCode::SASL_AUTHENTICATION_FAILED, Some(message)).into()),
        }
    }

    fn refused(&self, code: ErrorCode, message: Option<String>) -> LoginError {
        LoginError::Refused { mechanism: self.mechanism.name(), code, message }
    }

    fn violation(&self, violation: SaslViolation) -> LoginError {
        LoginError::Violation { mechanism: self.mechanism.name(), violation }
    }
}

impl Session {
    /// A session of this lifetime, as SaslAuthenticate tells it from version 1 on (KIP-368); `None` if it has no end.
    ///
    /// The broker's clock started after our last message left, so an end that is counted from there is early rather than late.
    fn lasting(sent_at: Instant, now: Instant, lifetime_ms: i64, random: f64) -> Option<Self> {
        let lifetime = u64::try_from(lifetime_ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis)?;
        if lifetime > FOREVER {
            return None;
        }
        // Requests that were sent before the end and wait at the broker behind others may be read after it. A login
        // is cheap and a cut connection is not: half of a short session is left unused, a fifth of a long one.
        let margin = (lifetime / 5).max(LONGEST_WAIT.min(lifetime / 2));
        let jitter = (lifetime / 10).mul_f64(random.clamp(0.0, 1.0));
        let renew_at = (sent_at + (lifetime - margin).saturating_sub(jitter)).max(now + LEAST_BETWEEN_LOGINS);
        Some(Self { renew_at, silent_at: sent_at + (lifetime - lifetime / 10) })
    }
}

/// No messages: they hold secrets.
impl fmt::Debug for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Out => "Out",
            Self::Asked => "Asked",
            Self::Holding(_) => "Holding",
            Self::Offered(_) => "Offered",
            Self::Speaking(..) => "Speaking",
            Self::Proving { .. } => "Proving",
            Self::In => "In",
        })
    }
}

fn encode<R: Request>(request: &R, version: i16) -> EncodedRequest {
    EncodedRequest::new(request, version).expect("a mechanism's name and messages are far shorter than a frame")
}

const HANDSHAKE: ApiKey = ApiKey(17);
const AUTHENTICATE: ApiKey = ApiKey(36);

/// The first SaslHandshake after which the mechanism's messages are requests (KIP-152).
const FRAMED_HANDSHAKE: i16 = 1;

/// A broker takes no second login within a second after the first (`KafkaChannel`, KIP-368).
const LEAST_BETWEEN_LOGINS: Duration = Duration::from_millis(1_100);

/// After how long credentials that could not be had are asked for again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// How long a request may wait at a broker behind others, as far as it matters here.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// A session that lasts longer has no end.
const FOREVER: Duration = Duration::from_secs(60 * 60 * 24 * 365 * 10);

/// Mechanisms of a broker that are listed.
const MOST_OFFERED: usize = 32;

#[cfg(test)]
mod tests;
