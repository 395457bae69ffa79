/// What follows a peer's message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// This message.
    Send(Vec<u8>),
    /// The exchange is over, and the peer proved what it has to prove.
    Done,
    /// The peer refuses, in these words.
    Refused(String),
}
