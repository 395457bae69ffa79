//! OAUTHBEARER (RFC 7628; KIP-255, KIP-342): a token, and extensions that a broker may read.

use super::error::legible;
use super::{Reply, SaslViolation};

pub(crate) struct Bearer {
    token: String,
    extensions: Vec<(String, String)>,
    /// What the peer said against the token.
    complaint: Option<String>,
}

impl Bearer {
    /// Token and extensions as [`check_token`] and [`check_extension`] let them pass.
    pub(crate) fn new(token: &str, extensions: &[(String, String)]) -> Self {
        Self { token: token.to_owned(), extensions: extensions.to_vec(), complaint: None }
    }

    pub(super) fn first(&self) -> Vec<u8> {
        let mut message = format!("n,,\x01auth=Bearer {}\x01", self.token);
        for (name, value) in &self.extensions {
            message.push_str(&format!("{name}={value}\x01"));
        }
        message.push('\x01');
        message.into_bytes()
    }

    /// An empty message is consent. Any other says what is wrong with the token, and wants one byte before the peer
    /// tells by an error code that the login failed (RFC 7628, section 3.2.3).
    pub(super) fn handle(&mut self, message: &[u8]) -> Result<Reply, SaslViolation> {
        match self.complaint.take() {
            Some(complaint) => Ok(Reply::Refused(complaint)),
            None if message.is_empty() => Ok(Reply::Done),
            None => {
                let complaint = legible(&String::from_utf8_lossy(message));
                self.complaint = Some(complaint.unwrap_or_else(|| "without a reason".to_owned()));
                Ok(Reply::Send(vec![1]))
            }
        }
    }

    /// What the peer said against the token, if it did not come to say that the login failed.
    pub(super) fn complaint(&self) -> Option<&str> {
        self.complaint.as_deref()
    }
}

/// What is wrong with a token: it has to be of RFC 6750's `b64token` form, or it would end the message early.
pub(crate) fn check_token(token: &str) -> Result<(), &'static str> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    if token.is_empty() {
        return Err("the token is empty");
    }
    if token.len() > LONGEST_TOKEN {
        return Err("the token is longer than 512 KiB");
    }
    if token.bytes().all(allowed) { Ok(()) } else { Err("the token holds a character that no bearer token has") }
}

/// What is wrong with an extension (RFC 7628, section 3.1; KIP-342).
pub(crate) fn check_extension(name: &str, value: &str) -> Result<(), &'static str> {
    let visible = |byte: u8| (0x21..=0x7e).contains(&byte) || b" \t\r\n".contains(&byte);
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        return Err("an extension's name consists of letters");
    }
    if name == "auth" {
        return Err("`auth` is the token's own name, not an extension's");
    }
    if value.is_empty() || !value.bytes().all(visible) || value.len() > LONGEST_EXTENSION {
        return Err("an extension's value consists of 1 to 4,096 visible ASCII characters and blanks");
    }
    Ok(())
}

/// A frame holds it many times; brokers take much less (`sasl.server.max.receive.size` is 512 KiB).
const LONGEST_TOKEN: usize = 512 << 10;

const LONGEST_EXTENSION: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_message_is_that_of_the_rfc() {
        let extensions = [("logicalCluster".to_owned(), "lkc-1".to_owned()), ("b".to_owned(), "2".to_owned())];
        let message = Bearer::new("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==", &extensions).first();
        let expected: &[u8] =
            b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01logicalCluster=lkc-1\x01b=2\x01\x01";
        assert_eq!(message, expected);
    }

    #[test]
    fn a_refusal_is_answered_by_one_byte_before_it_counts() {
        let mut bearer = Bearer::new("t", &[]);
        assert_eq!(bearer.handle(br#"{"status":"invalid_token"}"#), Ok(Reply::Send(vec![1])));
        assert_eq!(bearer.complaint(), Some(r#"{"status":"invalid_token"}"#));
        // A peer that now says yes does not say what RFC 7628 lets it say.
        assert_eq!(bearer.handle(b""), Ok(Reply::Refused(r#"{"status":"invalid_token"}"#.to_owned())));
        assert_eq!(Bearer::new("t", &[]).handle(b""), Ok(Reply::Done));
    }

    #[test]
    fn what_would_end_the_message_early_is_refused() {
        assert_eq!(check_token("eyJ0.e30-_~+/="), Ok(()));
        for wrong in ["", "a b", "a\x01b", "a,b", "\u{e4}"] {
            assert!(check_token(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(check_extension("traceId", "a=b, c"), Ok(()));
        for (name, value) in [("", "v"), ("a1", "v"), ("auth", "v"), ("a", ""), ("a", "b\x01c"), ("a", "\u{e4}")] {
            assert!(check_extension(name, value).is_err(), "{name:?}={value:?}");
        }
    }
}
