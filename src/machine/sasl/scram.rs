//! SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): the password is proven, not sent, and the peer has to prove
//! that it knows it too.
//!
//! ```text
//!   Fresh ─ n=user,r=ours ─► Sent ─ r=ours+theirs,s=salt,i=rounds ─► proof ─► Proven ─ v=signature ─► Over
//! ```

#[cfg(feature = "testing")]
mod server;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha512};

#[cfg(feature = "testing")]
pub(crate) use self::server::{Answered, SALT_BYTES, ScramServer};
use super::error::legible;
use super::{Reply, SaslViolation};

/// The hash that a run uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hash {
    Sha256,
    Sha512,
}

pub(crate) struct Scram {
    hash: Hash,
    user: String,
    password: String,
    nonce: String,
    delegation_token: bool,
    state: State,
}

enum State {
    Fresh,
    Sent,
    /// The peer has to send this signature.
    Proven {
        signature: Box<Signature>,
    },
    Over,
}

/// The server's signature, as the one who is to be compared in constant time.
enum Signature {
    Sha256(Hmac<Sha256>),
    Sha512(Hmac<Sha512>),
}

impl Scram {
    /// A run. The nonce comes from a generator that cannot be foretold.
    pub(crate) fn new(hash: Hash, user: &str, password: &str, nonce: [u8; NONCE_BYTES]) -> Self {
        Self {
            hash,
            user: user.to_owned(),
            password: password.to_owned(),
            nonce: BASE64.encode(nonce),
            delegation_token: false,
            state: State::Fresh,
        }
    }

    /// User and password are those of a delegation token (KIP-48).
    pub(crate) fn with_delegation_token(mut self, is: bool) -> Self {
        self.delegation_token = is;
        self
    }

    pub(super) fn hash(&self) -> Hash {
        self.hash
    }

    pub(super) fn first(&mut self) -> Vec<u8> {
        self.state = State::Sent;
        format!("{GS2_HEADER}{}", self.client_first_bare()).into_bytes()
    }

    pub(super) fn handle(&mut self, message: &[u8]) -> Result<Reply, SaslViolation> {
        let text = std::str::from_utf8(message).map_err(|_| SaslViolation::Malformed("message is not UTF-8"))?;
        match std::mem::replace(&mut self.state, State::Over) {
            State::Sent => self.prove(text),
            State::Proven { signature } => verify(*signature, text),
            State::Fresh | State::Over => Err(SaslViolation::OutOfTurn),
        }
    }

    fn client_first_bare(&self) -> String {
        // The two characters with a meaning; what else SASLprep would change Kafka leaves as it is.
        let user = self.user.replace('=', "=3D").replace(',', "=2C");
        let extension = if self.delegation_token { ",tokenauth=true" } else { "" };
        format!("n={user},r={}{extension}", self.nonce)
    }

    fn prove(&mut self, server_first: &str) -> Result<Reply, SaslViolation> {
        if let Some(refusal) = refusal(server_first) {
            return Ok(refusal);
        }
        let offer = Offer::parse(server_first)?;
        if !offer.nonce.starts_with(&self.nonce) || offer.nonce.len() == self.nonce.len() {
            return Err(SaslViolation::Nonce);
        }
        let without_proof = format!("c={},r={}", BASE64.encode(GS2_HEADER), offer.nonce);
        let signed = format!("{},{server_first},{without_proof}", self.client_first_bare());
        let (proof, signature) = match self.hash {
            Hash::Sha256 => self.keys::<Sha256>(&offer, &signed, Signature::Sha256),
            Hash::Sha512 => self.keys::<Sha512>(&offer, &signed, Signature::Sha512),
        };
        self.state = State::Proven { signature: Box::new(signature) };
        Ok(Reply::Send(format!("{without_proof},p={}", BASE64.encode(proof)).into_bytes()))
    }

    /// The client's proof and the server's signature over what was said.
    fn keys<D>(&self, offer: &Offer<'_>, signed: &str, wrap: fn(Hmac<D>) -> Signature) -> (Vec<u8>, Signature)
    where
        D: Digest + hmac::EagerHash,
        Hmac<D>: Mac + KeyInit + Clone + Sync,
    {
        let (proof, signature) = keys::<D>(self.password.as_bytes(), &offer.salt, offer.rounds, signed.as_bytes());
        (proof, wrap(signature))
    }
}

/// The client's proof and the server's signature, which both ends compute (RFC 5802, section 3).
fn keys<D>(password: &[u8], salt: &[u8], rounds: u32, signed: &[u8]) -> (Vec<u8>, Hmac<D>)
where
    D: Digest + hmac::EagerHash,
    Hmac<D>: Mac + KeyInit + Clone + Sync,
{
    let mut salted = vec![0; <D as Digest>::output_size()];
    // The rounds are what takes time; a fuzzer has better use for it.
    let rounds = if cfg!(fuzzing) { 1 } else { rounds };
    pbkdf2::pbkdf2_hmac::<D>(password, salt, rounds, &mut salted);
    let client_key = mac::<D>(&salted, b"Client Key").finalize().into_bytes();
    let stored_key = D::digest(&client_key);
    let client_signature = mac::<D>(&stored_key, signed).finalize().into_bytes();
    let proof = client_key.iter().zip(client_signature.iter()).map(|(key, signature)| key ^ signature).collect();
    let server_key = mac::<D>(&salted, b"Server Key").finalize().into_bytes();
    (proof, mac::<D>(&server_key, signed))
}

/// What the server's first message asks for.
struct Offer<'a> {
    nonce: &'a str,
    salt: Vec<u8>,
    rounds: u32,
}

impl<'a> Offer<'a> {
    fn parse(message: &'a str) -> Result<Self, SaslViolation> {
        let mut attributes = message.split(',');
        // An `m` before them is an extension that whoever does not know it has to refuse; it fails as no nonce here.
        let nonce = value(attributes.next(), "r=", "first message has no nonce at its head")?;
        let salt = value(attributes.next(), "s=", "first message has no salt after the nonce")?;
        let rounds = value(attributes.next(), "i=", "first message has no iteration count after the salt")?;
        let salt = BASE64.decode(salt).map_err(|_| SaslViolation::Malformed("salt is not base64"))?;
        if salt.is_empty() {
            return Err(SaslViolation::Malformed("salt is empty"));
        }
        if rounds.is_empty() || !rounds.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(SaslViolation::Malformed("iteration count is no number"));
        }
        let rounds = rounds.parse::<u64>().unwrap_or(u64::MAX);
        match u32::try_from(rounds) {
            Ok(rounds) if (MIN_ROUNDS..=MAX_ROUNDS).contains(&rounds) => Ok(Self { nonce, salt, rounds }),
            _ => Err(SaslViolation::Iterations { rounds, min: MIN_ROUNDS, max: MAX_ROUNDS }),
        }
    }
}

fn value<'a>(attribute: Option<&'a str>, name: &str, lacks: &'static str) -> Result<&'a str, SaslViolation> {
    attribute.and_then(|attribute| attribute.strip_prefix(name)).ok_or(SaslViolation::Malformed(lacks))
}

fn verify(expected: Signature, server_final: &str) -> Result<Reply, SaslViolation> {
    if let Some(refusal) = refusal(server_final) {
        return Ok(refusal);
    }
    let signature = value(server_final.split(',').next(), "v=", "final message has no signature")?;
    let signature = BASE64.decode(signature).map_err(|_| SaslViolation::Malformed("signature is not base64"))?;
    let verified = match expected {
        Signature::Sha256(mac) => mac.verify_slice(&signature),
        Signature::Sha512(mac) => mac.verify_slice(&signature),
    };
    verified.map(|()| Reply::Done).map_err(|_| SaslViolation::ServerSignature)
}

/// `e=` stands for a refusal, in either of the server's messages.
fn refusal(message: &str) -> Option<Reply> {
    let reason = message.strip_prefix("e=")?;
    Some(Reply::Refused(legible(reason).unwrap_or_else(|| "without a reason".to_owned())))
}

fn mac<D>(key: &[u8], message: &[u8]) -> Hmac<D>
where
    D: hmac::EagerHash,
    Hmac<D>: Mac + KeyInit,
{
    let mut mac = <Hmac<D> as KeyInit>::new_from_slice(key).expect("a key of HMAC may have any length");
    mac.update(message);
    mac
}

/// No channel binding: Kafka has none.
const GS2_HEADER: &str = "n,,";

/// 192 bits, as unforeseeable as the keys.
pub(crate) const NONCE_BYTES: usize = 24;

/// RFC 7677, section 4.
const MIN_ROUNDS: u32 = 4096;

/// Sixteen times what Kafka lets be configured, done in a fraction of a second: a peer that proved nothing yet may not keep
/// us at work.
const MAX_ROUNDS: u32 = 1 << 18;

#[cfg(test)]
mod tests;
