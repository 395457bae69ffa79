//! Who is let in (KIP-43, KIP-152), and for how long (KIP-368).
//!
//! ```text
//!   Out ─ SaslHandshake ─► Saying ─ SaslAuthenticate ... ─► In ─ SaslHandshake ─► Saying (the session goes on)
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::call::{Call, ConnectionId};
use super::core::Core;
use super::random::Random;
use crate::machine::sasl::{Answered, Hash, Mechanism, SALT_BYTES, ScramServer};
use crate::protocol::api::ApiKey;
use crate::protocol::error_code::ErrorCode;
use crate::record::Timestamp;

/// Logins that the brokers ask for, on every way into them.
///
/// What clients say is checked as Kafka does; who they are decides nothing: there are no ACLs of users.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Sasl {
    /// The mechanisms that are offered (`sasl.enabled.mechanisms`).
    pub mechanisms: Vec<SaslMechanism>,
    /// Passwords, by user, for PLAIN and SCRAM.
    pub users: BTreeMap<String, String>,
    /// How long a login counts, as long as no token ends earlier (`connections.max.reauth.ms`). Default: for ever.
    pub session: Option<Duration>,
}

/// A mechanism that brokers offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SaslMechanism {
    /// RFC 4616.
    Plain,
    /// RFC 7677.
    ScramSha256,
    /// RFC 5802, with SHA-512.
    ScramSha512,
    /// RFC 7628. Any token is taken; one that reads as an unsecured JWS (Kafka's `OAuthBearerUnsecuredJws`) must not have
    /// expired, and its session ends with it.
    OAuthBearer,
}

impl Sasl {
    /// These mechanisms.
    pub fn new(mechanisms: impl IntoIterator<Item = SaslMechanism>) -> Self {
        Self { mechanisms: mechanisms.into_iter().collect(), ..Self::default() }
    }

    /// A user of PLAIN and SCRAM.
    #[must_use]
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.users.insert(name.into(), password.into());
        self
    }

    /// How long a login counts.
    #[must_use]
    pub fn session(mut self, lifetime: Duration) -> Self {
        self.session = Some(lifetime);
        self
    }
}

/// No passwords.
impl fmt::Debug for Sasl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let users: Vec<&String> = self.users.keys().collect();
        let mut sasl = f.debug_struct("Sasl");
        sasl.field("mechanisms", &self.mechanisms).field("users", &users).field("session", &self.session).finish()
    }
}

impl SaslMechanism {
    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        self.ours().name()
    }

    /// The mechanism of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Plain, Self::ScramSha256, Self::ScramSha512, Self::OAuthBearer].into_iter().find(|it| it.name() == name)
    }

    fn ours(self) -> Mechanism {
        match self {
            Self::Plain => Mechanism::Plain,
            Self::ScramSha256 => Mechanism::ScramSha256,
            Self::ScramSha512 => Mechanism::ScramSha512,
            Self::OAuthBearer => Mechanism::OAuthBearer,
        }
    }
}

/// The logins of all connections.
#[derive(Debug, Default)]
pub(super) struct Logins(BTreeMap<ConnectionId, Login>);

#[derive(Debug, Default)]
struct Login {
    phase: Phase,
    session: Option<Session>,
}

#[derive(Debug)]
struct Session {
    mechanism: SaslMechanism,
    principal: String,
    ends: Option<Instant>,
    /// When it was renewed last.
    renewed: Option<Instant>,
}

#[derive(Default)]
enum Phase {
    #[default]
    Out,
    Saying(SaslMechanism, Run),
    /// A login that is renewed by another mechanism. It fails with the next message.
    OtherMechanism,
    In,
}

/// What was said of a mechanism.
enum Run {
    Plain,
    Scram(Box<ScramServer>),
    Bearer { complained: bool },
}

/// What is answered to a message of a mechanism.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) bytes: Vec<u8>,
    pub(super) lifetime: Option<Duration>,
}

/// A login that is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) code: ErrorCode,
    pub(super) why: String,
    pub(super) then: Then,
}

/// What becomes of the connection of a login that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// It goes on.
    Stays,
    /// It ends behind the answer.
    Closes,
    /// It ends without one.
    Breaks,
}

/// Whether a request may be served, as far as logins go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    Open,
    /// Something else is asked in the middle of a login: it is told so.
    Busy,
    Shut,
}

impl Logins {
    pub(super) fn forget(&mut self, connection: ConnectionId) {
        self.0.remove(&connection);
    }
}

impl Core {
    /// Whether a request may be served, as far as logins go; else its connection closes.
    pub(super) fn lets_in(&self, call: &Call) -> Door {
        if self.settings.sasl.is_none() {
            return Door::Open;
        }
        let login = self.logins.0.get(&call.connection);
        let expired = login.and_then(|login| login.session.as_ref()).and_then(|session| session.ends);
        let expired = expired.is_some_and(|ends| call.now >= ends);
        let is = |api: i16| call.api == ApiKey(api);
        let (opens, else_it_is) = match login.map(|login| &login.phase) {
            None | Some(Phase::Out) => (is(HANDSHAKE) || is(VERSIONS), Door::Shut),
            Some(Phase::Saying(..) | Phase::OtherMechanism) => (is(AUTHENTICATE), Door::Busy),
            Some(Phase::In) => (!expired || is(HANDSHAKE), Door::Shut),
        };
        if opens { Door::Open } else { else_it_is }
    }

    /// SaslHandshake: a mechanism is named.
    pub(super) fn name_mechanism(&mut self, call: &Call, name: &str) -> Result<(), Refused> {
        let Some(sasl) = self.settings.sasl.as_ref() else { return Err(after_login("SaslHandshake")) };
        let login = self.logins.0.entry(call.connection).or_default();
        let may_renew = |session: &Session| {
            session.ends.is_some() && session.renewed.is_none_or(|at| call.now >= at + MIN_RENEWAL_INTERVAL)
        };
        if matches!(login.phase, Phase::In) && !login.session.as_ref().is_some_and(may_renew) {
            return Err(after_login("SaslHandshake"));
        }
        let named = SaslMechanism::from_name(name).filter(|named| sasl.mechanisms.contains(named));
        let Some(mechanism) = named else {
            let code = ErrorCode::UNSUPPORTED_SASL_MECHANISM;
            let then = if login.session.is_some() { Then::Breaks } else { Then::Closes };
            return Err(Refused { code, why: code.meaning().to_owned(), then });
        };
        let before = login.session.as_ref().map(|session| session.mechanism);
        login.phase = match before {
            Some(before) if before != mechanism => Phase::OtherMechanism,
            _ => Phase::Saying(mechanism, run(mechanism, &mut self.random)),
        };
        Ok(())
    }

    /// SaslAuthenticate: a message of the mechanism.
    pub(super) fn hear_login(&mut self, call: &Call, message: &[u8]) -> Result<Said, Refused> {
        let wall = self.wall(call.now);
        let Some(sasl) = self.settings.sasl.as_ref() else { return Err(after_login("SaslAuthenticate")) };
        let Some(login) = self.logins.0.get_mut(&call.connection) else {
            return Err(after_login("SaslAuthenticate"));
        };
        let heard = match &mut login.phase {
            Phase::Saying(mechanism, run) => run.hear(sasl, message, wall).map(|heard| (*mechanism, heard)),
            Phase::OtherMechanism => {
                let why = "the mechanism must not change while a login is renewed";
                return Err(Refused { then: Then::Breaks, ..failed(why) });
            }
            Phase::Out | Phase::In => return Err(after_login("SaslAuthenticate")),
        };
        let (mechanism, heard) = heard.map_err(|why| failed(&why))?;
        let (principal, bytes, token) = match heard {
            Heard::GoOn(bytes) => return Ok(Said { bytes, lifetime: None }),
            Heard::Proven { principal, bytes, token } => (principal, bytes, token),
        };
        if login.session.as_ref().is_some_and(|session| session.principal != principal) {
            return Err(failed("the principal must not change while a login is renewed"));
        }
        let lifetime = [sasl.session, token].into_iter().flatten().min();
        let ends = lifetime.map(|lifetime| call.now + lifetime);
        let renewed = login.session.is_some().then_some(call.now);
        *login = Login { phase: Phase::In, session: Some(Session { mechanism, principal, ends, renewed }) };
        Ok(Said { bytes, lifetime })
    }
}

/// What a message led to.
enum Heard {
    GoOn(Vec<u8>),
    Proven { principal: String, bytes: Vec<u8>, token: Option<Duration> },
}

impl Run {
    fn hear(&mut self, sasl: &Sasl, message: &[u8], wall: Timestamp) -> Result<Heard, String> {
        match self {
            Self::Plain => {
                let principal = plain(sasl, message).ok_or("Authentication failed: Invalid username or password")?;
                Ok(Heard::Proven { principal, bytes: Vec::new(), token: None })
            }
            Self::Scram(scram) => match scram.handle(message, |user| sasl.users.get(user).cloned())? {
                Answered::Challenge(bytes) => Ok(Heard::GoOn(bytes)),
                Answered::Proven { user, last } => Ok(Heard::Proven { principal: user, bytes: last, token: None }),
            },
            Self::Bearer { complained: true } if message == HEARD => Err(INVALID_TOKEN.to_owned()),
            Self::Bearer { complained } => match bearer(message, wall)? {
                Some((principal, token)) => Ok(Heard::Proven { principal, bytes: Vec::new(), token }),
                None => {
                    *complained = true;
                    Ok(Heard::GoOn(INVALID_TOKEN.as_bytes().to_vec()))
                }
            },
        }
    }
}

impl fmt::Debug for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Out => "Out",
            Self::Saying(mechanism, _) => mechanism.name(),
            Self::OtherMechanism => "OtherMechanism",
            Self::In => "In",
        })
    }
}

fn run(mechanism: SaslMechanism, random: &mut Random) -> Run {
    let hash = match mechanism {
        SaslMechanism::Plain => return Run::Plain,
        SaslMechanism::OAuthBearer => return Run::Bearer { complained: false },
        SaslMechanism::ScramSha256 => Hash::Sha256,
        SaslMechanism::ScramSha512 => Hash::Sha512,
    };
    let mut salt = [0; SALT_BYTES];
    salt.chunks_mut(8).for_each(|part| part.copy_from_slice(&random.next().to_be_bytes()));
    Run::Scram(Box::new(ScramServer::new(hash, random.uuid().simple().to_string(), salt)))
}

/// The user, if the password is right; acting for another is not allowed.
fn plain(sasl: &Sasl, message: &[u8]) -> Option<String> {
    let mut parts = std::str::from_utf8(message).ok()?.split('\0');
    let (Some(other), Some(user), Some(password), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    let right = (other.is_empty() || other == user) && sasl.users.get(user).is_some_and(|known| known == password);
    right.then(|| user.to_owned())
}

/// The principal, and for how long the token is valid yet; `None` for a token that is not taken.
///
/// # Errors
/// What is no first message of this mechanism, or one for another principal.
fn bearer(message: &[u8], wall: Timestamp) -> Result<Option<Claimed>, String> {
    let malformed = || "Invalid OAUTHBEARER client first message".to_owned();
    let text = std::str::from_utf8(message).map_err(|_| malformed())?;
    let (other, rest) = text.strip_prefix("n,").and_then(|rest| rest.split_once(',')).ok_or_else(malformed)?;
    let token = rest.split('\x01').find_map(|part| part.strip_prefix("auth=Bearer ")).ok_or_else(malformed)?;
    let Some((principal, lifetime)) = claimed(token, wall) else { return Ok(None) };
    match other.strip_prefix("a=") {
        Some(other) if other != principal => Err("the token is for another than who acts".to_owned()),
        _ => Ok(Some((principal, lifetime))),
    }
}

/// Whose a token is, and for how long it is valid yet.
type Claimed = (String, Option<Duration>);

/// What a token claims, if it is taken.
fn claimed(token: &str, wall: Timestamp) -> Option<Claimed> {
    let claims = token.split('.').nth(1).and_then(|claims| URL_SAFE_NO_PAD.decode(claims).ok());
    let claims: Option<serde_json::Value> = claims.and_then(|claims| serde_json::from_slice(&claims).ok());
    let Some(claims) = claims else { return (!token.is_empty()).then(|| (token.to_owned(), None)) };
    let principal = claims["sub"].as_str().unwrap_or(token).to_owned();
    let Some(ends) = claims["exp"].as_f64() else { return Some((principal, None)) };
    let left = Duration::try_from_secs_f64(ends - wall.0 as f64 / 1000.0).ok().filter(|left| !left.is_zero())?;
    Some((principal, Some(left)))
}

fn failed(why: &str) -> Refused {
    Refused { code: ErrorCode::SASL_AUTHENTICATION_FAILED, why: why.to_owned(), then: Then::Closes }
}

fn after_login(request: &str) -> Refused {
    let why = format!("{request} request received after successful authentication");
    Refused { code: ErrorCode::ILLEGAL_SASL_STATE, why, then: Then::Stays }
}

/// The least time from one renewal to the next (`KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS`).
const MIN_RENEWAL_INTERVAL: Duration = Duration::from_secs(1);
/// What a client says that has heard that its token is refused (RFC 7628, 3.2.3).
const HEARD: &[u8] = b"\x01";

const HANDSHAKE: i16 = 17;
const VERSIONS: i16 = 18;
const AUTHENTICATE: i16 = 36;
const INVALID_TOKEN: &str = r#"{"status":"invalid_token"}"#;
