//! As much of HTTP/1.1 as a token endpoint needs: one POST on a connection of its own.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::transport::Connector;
use crate::error::BoxError;
use crate::machine::metadata::BrokerAddress;

/// Where requests go: `http://host:port/path` or with `https`.
#[derive(Debug, Clone)]
pub(super) struct Url {
    pub(super) is_https: bool,
    address: BrokerAddress,
    /// As it was written, port included.
    authority: String,
    /// Path and query.
    path: String,
}

/// Status and body.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

impl Url {
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("it holds a character that no URL has");
        }
        let (is_https, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return Err("it does not begin with https:// or http://"),
        };
        let rest = rest.split('#').next().unwrap_or(rest);
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        if authority.contains('@') {
            return Err("it holds a user, which it may not");
        }
        let with_port = match authority.rsplit_once(':') {
            Some((_, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => authority.to_owned(),
            _ => format!("{authority}:{}", if is_https { 443 } else { 80 }),
        };
        let address = with_port.parse().map_err(|_| "its host or port cannot be read")?;
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { is_https, address, authority: authority.to_owned(), path })
    }

    pub(super) fn is_loopback(&self) -> bool {
        let host = self.address.host();
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

/// Sends a form. The caller bounds the time.
pub(super) async fn post_form(
    connector: &Arc<dyn Connector>,
    url: &Url,
    authorization: &str,
    form: &str,
) -> Result<Response, BoxError> {
    let mut stream = connector.connect(&url.address).await?;
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nAuthorization: {authorization}\r\nAccept: application/json\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{form}",
        url.path,
        url.authority,
        form.len(),
    );
    stream.write_all(head.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    loop {
        if let Some(response) = parse(&answer, false)? {
            return Ok(response);
        }
        if answer.len() > LARGEST_ANSWER {
            return Err(format!("the answer is larger than {} KiB", LARGEST_ANSWER >> 10).into());
        }
        match stream.read_buf(&mut answer).await {
            Ok(0) => break,
            Ok(_) => {}
            // Servers that end TLS without a word are many; a length tells whether something is missing.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error.into()),
        }
    }
    parse(&answer, true)?.ok_or_else(|| "the answer is cut off".into())
}

/// The response, once it is whole. Without a length it ends with the connection.
fn parse(answer: &[u8], ended: bool) -> Result<Option<Response>, &'static str> {
    let Some(end) = find(answer, b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&answer[..end]).map_err(|_| "the answer's head is not text")?;
    let body = &answer[end + 4..];
    let mut lines = head.split("\r\n");
    let status = status(lines.next().unwrap_or_default())?;
    let header = |name: &str| {
        let mut named = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
        named.find(|(key, _)| key.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    };
    if header("transfer-encoding").is_some_and(|value| value.to_ascii_lowercase().ends_with("chunked")) {
        return Ok(unchunk(body)?.map(|body| Response { status, body }));
    }
    if let Some(length) = header("content-length") {
        let length: usize = length.parse().map_err(|_| "the answer's length is no number")?;
        return Ok(body.get(..length).map(|body| Response { status, body: body.to_vec() }));
    }
    Ok(ended.then(|| Response { status, body: body.to_vec() }))
}

fn status(line: &str) -> Result<u16, &'static str> {
    let code = line.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5));
    code.and_then(|code| code.parse().ok()).ok_or("the answer is not HTTP/1.1")
}

/// The chunks together; `None` while the last is missing.
fn unchunk(mut rest: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    let mut body = Vec::new();
    loop {
        let Some(end) = find(rest, b"\r\n") else { return Ok(None) };
        let size = std::str::from_utf8(&rest[..end]).unwrap_or_default();
        let size = size.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(|_| "a chunk's length is no number")?;
        rest = &rest[end + 2..];
        if size == 0 {
            return Ok(Some(body));
        }
        if size > LARGEST_ANSWER {
            return Err("a chunk is too large");
        }
        let Some(chunk) = rest.get(..size) else { return Ok(None) };
        body.extend_from_slice(chunk);
        let Some(after) = rest.get(size + 2..) else { return Ok(None) };
        rest = after;
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

/// A token and what is told with it take some kilobytes.
const LARGEST_ANSWER: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_with_their_defaults() {
        let url = Url::parse("https://idp.example.com/oauth2/token?a=b#c").unwrap();
        assert_eq!((url.address.to_string(), url.is_https), ("idp.example.com:443".to_owned(), true));
        assert_eq!((&*url.authority, &*url.path), ("idp.example.com", "/oauth2/token?a=b"));
        let url = Url::parse("http://[::1]:8080").unwrap();
        assert_eq!((url.address.to_string(), &*url.path), ("[::1]:8080".to_owned(), "/"));
        assert!(url.is_loopback());
        for wrong in
            ["", "idp/token", "ftp://idp/", "https://u:p@idp/", "http://idp:x/", "http:///t", "http://a b/\r\n"]
        {
            assert!(Url::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_answer_ends_by_its_length_its_last_chunk_or_its_connection() {
        let whole = |text: &[u8], ended| parse(text, ended).unwrap().map(|response| response.body);
        let length = b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 3\r\n\r\nabcd";
        assert_eq!(whole(length, false).unwrap(), b"abc");
        assert_eq!(whole(&length[..length.len() - 2], true), None, "cut off");
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
        assert_eq!(whole(chunked, false).unwrap(), b"abc");
        (0..chunked.len() - 4).for_each(|cut| assert!(whole(&chunked[..cut], true).is_none(), "{cut}"));
        let open = b"HTTP/1.0 404 Not Found\r\n\r\nabc";
        assert_eq!(whole(open, false), None);
        assert_eq!(parse(open, true).unwrap().unwrap().status, 404);
        for wrong in [&b"SSH-2.0\r\n\r\n"[..], b"HTTP/1.1 OK\r\n\r\n", b"HTTP/1.1 200\r\ncontent-length: -1\r\n\r\n"] {
            assert!(parse(wrong, true).is_err());
        }
        assert!(parse(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffff\r\n", false).is_err());
    }
}
