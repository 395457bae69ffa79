use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Host and port of a broker. The host may be a name, an IPv4 or an IPv6 literal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BrokerAddress {
    host: Arc<str>,
    port: u16,
}

impl BrokerAddress {
    /// An address. An IPv6 literal is given without brackets.
    pub fn new(host: impl Into<Arc<str>>, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// The name or literal, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for BrokerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for BrokerAddress {
    type Err = InvalidAddress;

    /// `host:port`; an IPv6 literal stands in brackets: `[::1]:9092`.
    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let invalid = |why| InvalidAddress { address: text.to_owned(), why };
        let text = text.trim();
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or_else(|| invalid("the bracket is not closed"))?;
                (host, rest.strip_prefix(':').ok_or_else(|| invalid("the port is missing"))?)
            }
            None => text.rsplit_once(':').ok_or_else(|| invalid("the port is missing"))?,
        };
        if host.is_empty() {
            return Err(invalid("the host is missing"));
        }
        if !text.starts_with('[') && host.contains(':') {
            return Err(invalid("an IPv6 literal stands in brackets"));
        }
        match port.parse() {
            Ok(port) if port > 0 => Ok(Self::new(host, port)),
            _ => Err(invalid("the port is no number from 1 to 65535")),
        }
    }
}

/// A text that is no broker address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{address:?} is no broker address: {why}")]
pub struct InvalidAddress {
    /// The text.
    pub address: String,
    /// What is wrong with it.
    pub why: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown_alike() {
        for text in ["localhost:9092", "127.0.0.1:1", "[::1]:65535", "kafka.example.com.:9092"] {
            assert_eq!(text.parse::<BrokerAddress>().unwrap().to_string(), text);
        }
        let address: BrokerAddress = " [fe80::1]:9092 ".parse().unwrap();
        assert_eq!((address.host(), address.port()), ("fe80::1", 9092));
    }

    #[test]
    fn what_is_no_address_says_why() {
        for (text, why) in [
            ("localhost", "the port is missing"),
            ("[::1]", "the port is missing"),
            ("[::1:9092", "the bracket is not closed"),
            (":9092", "the host is missing"),
            ("::1:9092", "an IPv6 literal stands in brackets"),
            ("h:0", "the port is no number from 1 to 65535"),
            ("h:65536", "the port is no number from 1 to 65535"),
            ("h:x", "the port is no number from 1 to 65535"),
        ] {
            assert_eq!(text.parse::<BrokerAddress>().unwrap_err().why, why, "{text}");
        }
    }
}
