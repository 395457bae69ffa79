//! The other end of SCRAM, for brokers of tests: it knows the passwords themselves.

use base64::Engine as _;
use hmac::Mac as _;
use sha2::{Sha256, Sha512};

use super::{BASE64, GS2_HEADER, Hash, MIN_ROUNDS, keys};

/// One login, seen from the broker.
///
/// ```text
///   Fresh ─ r=both nonces,s=salt,i=rounds ─► Offered ─ v=signature ─► Over
/// ```
pub(crate) struct ScramServer {
    hash: Hash,
    nonce: String,
    salt: [u8; SALT_BYTES],
    state: State,
}

enum State {
    Fresh,
    Offered { user: String, password: String, client_first_bare: String, server_first: String, nonce: String },
    Over,
}

/// What the broker answers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// The client has to go on.
    Challenge(Vec<u8>),
    /// The user is who it says; the client checks this.
    Proven { user: String, last: Vec<u8> },
}

impl ScramServer {
    /// A run. Nonce and salt are text and bytes that nobody else has.
    pub(crate) fn new(hash: Hash, nonce: String, salt: [u8; SALT_BYTES]) -> Self {
        Self { hash, nonce, salt, state: State::Fresh }
    }

    /// Takes in the client's message; `password` tells a user's.
    ///
    /// # Errors
    /// Why the login fails.
    pub(crate) fn handle(
        &mut self,
        message: &[u8],
        password: impl FnOnce(&str) -> Option<String>,
    ) -> Result<Answered, &'static str> {
        let text = std::str::from_utf8(message).map_err(|_| "the message is not UTF-8")?;
        match std::mem::replace(&mut self.state, State::Over) {
            State::Fresh => self.offer(text, password),
            State::Offered { user, password, client_first_bare, server_first, nonce } => {
                let (without_proof, proof) = text.rsplit_once(",p=").ok_or("the message has no proof")?;
                if without_proof != format!("c={},r={nonce}", BASE64.encode(GS2_HEADER)) {
                    return Err("the message has another channel binding or nonce");
                }
                let signed = format!("{client_first_bare},{server_first},{without_proof}");
                let (expected, signature) = self.keys(&password, &signed);
                if BASE64.decode(proof).ok() != Some(expected) {
                    return Err(INVALID);
                }
                Ok(Answered::Proven { user, last: format!("v={}", BASE64.encode(signature)).into_bytes() })
            }
            State::Over => Err("the login is over"),
        }
    }

    fn offer(
        &mut self,
        client_first: &str,
        password: impl FnOnce(&str) -> Option<String>,
    ) -> Result<Answered, &'static str> {
        let bare = client_first.strip_prefix(GS2_HEADER).ok_or("the message does not begin with n,,")?;
        let mut attributes = bare.split(',');
        let user = attributes.next().and_then(|it| it.strip_prefix("n=")).ok_or("the message names no user")?;
        let theirs = attributes.next().and_then(|it| it.strip_prefix("r=")).ok_or("the message has no nonce")?;
        let user = user.replace("=2C", ",").replace("=3D", "=");
        let password = password(&user).ok_or(INVALID)?;
        let nonce = format!("{theirs}{}", self.nonce);
        let server_first = format!("r={nonce},s={},i={MIN_ROUNDS}", BASE64.encode(self.salt));
        let client_first_bare = bare.to_owned();
        self.state = State::Offered { user, password, client_first_bare, server_first: server_first.clone(), nonce };
        Ok(Answered::Challenge(server_first.into_bytes()))
    }

    fn keys(&self, password: &str, signed: &str) -> (Vec<u8>, Vec<u8>) {
        let (password, signed) = (password.as_bytes(), signed.as_bytes());
        match self.hash {
            Hash::Sha256 => {
                let (proof, signature) = keys::<Sha256>(password, &self.salt, MIN_ROUNDS, signed);
                (proof, signature.finalize().into_bytes().to_vec())
            }
            Hash::Sha512 => {
                let (proof, signature) = keys::<Sha512>(password, &self.salt, MIN_ROUNDS, signed);
                (proof, signature.finalize().into_bytes().to_vec())
            }
        }
    }
}

pub(crate) const SALT_BYTES: usize = 16;
/// Kafka's words, which do not tell a wrong user from a wrong password.
const INVALID: &str = "invalid credentials";

#[cfg(test)]
mod tests {
    use super::super::Scram;
    use super::*;
    use crate::machine::sasl::Reply;

    fn login(hash: Hash, user: &str, password: &str) -> Result<Reply, &'static str> {
        let mut client = Scram::new(hash, user, password, [7; super::super::NONCE_BYTES]);
        let mut server = ScramServer::new(hash, "theirs".to_owned(), [9; SALT_BYTES]);
        let known = |user: &str| (user == "a=b,c").then(|| "pencil".to_owned());
        let Answered::Challenge(first) = server.handle(&client.first(), known)? else { panic!("no challenge") };
        let Ok(Reply::Send(proof)) = client.handle(&first) else { panic!("no proof") };
        let Answered::Proven { user: proven, last } = server.handle(&proof, known)? else { panic!("no end") };
        assert_eq!(proven, user);
        assert_eq!(server.handle(&proof, known), Err("the login is over"));
        Ok(client.handle(&last).expect("the signature is the server's"))
    }

    #[test]
    fn both_ends_agree_on_the_right_password_alone() {
        for hash in [Hash::Sha256, Hash::Sha512] {
            assert_eq!(login(hash, "a=b,c", "pencil"), Ok(Reply::Done));
            assert_eq!(login(hash, "a=b,c", "pen"), Err(INVALID));
            assert_eq!(login(hash, "nobody", "pencil"), Err(INVALID));
        }
    }

    #[test]
    fn what_is_no_message_of_the_client_is_refused() {
        for wrong in ["", "y,,n=u,r=x", "n,,r=x", "n,,n=u", "p=tls-unique,,n=u,r=x"] {
            let mut server = ScramServer::new(Hash::Sha256, "theirs".to_owned(), [9; SALT_BYTES]);
            assert!(server.handle(wrong.as_bytes(), |_| Some("pencil".to_owned())).is_err(), "{wrong:?}");
        }
        let mut server = ScramServer::new(Hash::Sha256, "theirs".to_owned(), [9; SALT_BYTES]);
        server.handle(b"n,,n=u,r=x", |_| Some("pencil".to_owned())).expect("a challenge");
        assert!(server.handle(b"c=biws,r=other,p=AAAA", |_| None).is_err(), "the nonce is not the one that was given");
    }
}
