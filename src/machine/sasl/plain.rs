//! PLAIN (RFC 4616): user and password as they are. The connection has to hide them.

use super::{Reply, SaslViolation};

pub(crate) struct Plain {
    user: String,
    password: String,
}

impl Plain {
    /// Neither may hold a NUL, which parts them.
    pub(crate) fn new(user: &str, password: &str) -> Self {
        Self { user: user.to_owned(), password: password.to_owned() }
    }

    pub(super) fn first(&self) -> Vec<u8> {
        format!("\0{}\0{}", self.user, self.password).into_bytes()
    }

    pub(super) fn handle(&self, message: &[u8]) -> Result<Reply, SaslViolation> {
        if message.is_empty() { Ok(Reply::Done) } else { Err(SaslViolation::OutOfTurn) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_broker_takes_the_identity_from_the_user() {
        assert_eq!(Plain::new("tim", "tän").first(), "\0tim\0tän".as_bytes());
    }

    #[test]
    fn there_is_nothing_to_answer() {
        assert_eq!(Plain::new("u", "p").handle(b""), Ok(Reply::Done));
        assert_eq!(Plain::new("u", "p").handle(b"more?"), Err(SaslViolation::OutOfTurn));
    }
}
