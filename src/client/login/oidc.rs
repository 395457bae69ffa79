//! Tokens from an OpenID Connect token endpoint, by client credentials (KIP-768).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use tokio::sync::Mutex;

use super::http::{Response, Url, post_form};
use super::token::{BearerToken, Fetching, TokenSource};
use crate::client::secret::Secret;
use crate::client::transport::{Connector, TcpConnector};
use crate::client::{ConfigError, Problems, now};
use crate::error::BoxError;

/// Fetches tokens from a token endpoint by client id and secret (RFC 6749, section 4.4), and keeps each for four fifths of its
/// life. An endpoint that is away does no harm while the last token is good.
///
/// `Debug` shows the endpoint and the client id, nothing else. Clones share what they keep.
///
/// ```no_run
/// # fn example(tls: kafka_harbor::client::Tls) -> Result<(), Box<dyn std::error::Error>> {
/// use kafka_harbor::client::{Client, Login, OidcTokens};
///
/// let tokens = OidcTokens::builder("https://idp.example.com/oauth2/token", "orders", std::env::var("CLIENT_SECRET")?)
///     .scope("kafka")
///     .tls(tls.clone())
///     .build()?;
/// let client = Client::builder(["kafka.example.com:9093"]).tls(tls).login(Login::oauth_bearer(tokens)).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct OidcTokens(Arc<Inner>);

struct Inner {
    options: Options,
    url: Url,
    connector: Arc<dyn Connector>,
    kept: Mutex<Option<Kept>>,
    /// Whether a broker refused what is kept.
    refused: AtomicBool,
}

struct Kept {
    token: BearerToken,
    renew_at: Instant,
    ends_at: Instant,
}

/// Options of [`OidcTokens`].
#[derive(Clone)]
#[must_use]
pub struct OidcTokensBuilder {
    url: String,
    options: Options,
    #[cfg(feature = "tls")]
    tls: Option<crate::client::Tls>,
}

#[derive(Clone)]
struct Options {
    client_id: String,
    client_secret: Secret,
    scope: Option<String>,
    extensions: Vec<(String, String)>,
    url_encoded: bool,
}

impl OidcTokens {
    /// Options. The endpoint is `https://...`; `http` is for one on this machine. Java:
    /// `sasl.oauthbearer.token.endpoint.url`, `clientId` and `clientSecret`.
    pub fn builder(
        endpoint: impl Into<String>,
        client_id: impl Into<String>,
        client_secret: impl Into<String>,
    ) -> OidcTokensBuilder {
        let options = Options {
            client_id: client_id.into(),
            client_secret: Secret::new(client_secret),
            scope: None,
            extensions: Vec::new(),
            url_encoded: false,
        };
        OidcTokensBuilder {
            url: endpoint.into(),
            options,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    async fn current(&self) -> Result<BearerToken, BoxError> {
        // Logins of the same moment share one request.
        let mut kept = self.0.kept.lock().await;
        if self.0.refused.swap(false, Ordering::AcqRel) {
            *kept = None;
        }
        if let Some(good) = kept.as_ref().filter(|kept| now() < kept.renew_at) {
            return Ok(good.token.clone());
        }
        match self.0.fetch().await {
            Ok(fetched) => Ok(kept.insert(fetched).token.clone()),
            Err(error) => match kept.as_ref().filter(|kept| now() < kept.ends_at) {
                Some(good) => {
                    tracing::warn!(%error, "no new token; the last one is good for a while");
                    Ok(good.token.clone())
                }
                None => Err(error),
            },
        }
    }
}

impl TokenSource for OidcTokens {
    fn token(&self) -> Fetching<'_> {
        Box::pin(self.current())
    }

    fn refused(&self) {
        self.0.refused.store(true, Ordering::Release);
    }
}

impl OidcTokensBuilder {
    /// What the token is to be good for. Java: `scope`.
    pub fn scope(mut self, scope: impl Into<String>) -> Self {
        self.options.scope = Some(scope.into());
        self
    }

    /// Tells the broker this beside the token (KIP-342). Java: `extension_NAME`.
    pub fn extension(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.extensions.push((name.into(), value.into()));
        self
    }

    /// Encodes client id and secret before they are sent, as RFC 6749 has it and as some endpoints want. Default: not, as Java.
    /// Java: `sasl.oauthbearer.header.urlencode`.
    pub fn url_encoded_credentials(mut self, encoded: bool) -> Self {
        self.options.url_encoded = encoded;
        self
    }

    /// Speaks TLS with the endpoint, as `https` needs.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: crate::client::Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The source. Nothing is fetched yet.
    ///
    /// # Errors
    /// Naming every option that cannot be used.
    pub fn build(self) -> Result<OidcTokens, ConfigError> {
        let mut problems = Problems::default();
        let url = Url::parse(&self.url);
        if let Err(problem) = &url {
            problems.add("endpoint", problem);
        }
        let bare = url.as_ref().is_ok_and(|url| !url.is_https && !url.is_loopback());
        problems.require(!bare, "endpoint", "without https the client's secret would go over the network as it is");
        problems.require(!self.options.client_id.is_empty(), "client_id", "it is empty");
        problems.require(!self.options.client_secret.reveal().is_empty(), "client_secret", "it is empty");
        for (name, value) in &self.options.extensions {
            if let Err(problem) = crate::machine::sasl::check_extension(name, value) {
                problems.add("extension", problem);
            }
        }
        let connector = self.connector(url.as_ref().is_ok_and(|url| url.is_https), &mut problems);
        problems.finish()?;
        let url = url.expect("what is wrong with it was noted as a problem");
        let (kept, refused) = (Mutex::default(), AtomicBool::new(false));
        Ok(OidcTokens(Arc::new(Inner { options: self.options, url, connector, kept, refused })))
    }

    #[cfg(feature = "tls")]
    fn connector(&self, is_https: bool, problems: &mut Problems) -> Arc<dyn Connector> {
        match &self.tls {
            Some(tls) if is_https => {
                Arc::new(crate::client::tls::TlsConnector::new(tls.clone(), Arc::new(TcpConnector)))
            }
            _ => {
                problems.require(!is_https, "tls", "an https endpoint needs it");
                Arc::new(TcpConnector)
            }
        }
    }

    #[cfg(not(feature = "tls"))]
    fn connector(&self, is_https: bool, problems: &mut Problems) -> Arc<dyn Connector> {
        problems.require(!is_https, "endpoint", "https needs the feature `tls`");
        Arc::new(TcpConnector)
    }
}

impl Inner {
    async fn fetch(&self) -> Result<Kept, BoxError> {
        let Options { client_id, client_secret, scope, url_encoded, .. } = &self.options;
        let credentials = match url_encoded {
            true => format!("{}:{}", encoded(client_id), encoded(client_secret.reveal())),
            false => format!("{client_id}:{}", client_secret.reveal()),
        };
        let authorization = format!("Basic {}", BASE64.encode(credentials));
        let scope = scope.as_ref().map_or_else(String::new, |scope| format!("&scope={}", encoded(scope)));
        let asked_at = now();
        let form = format!("grant_type=client_credentials{scope}");
        let response = post_form(&self.connector, &self.url, &authorization, &form).await;
        let response = response.map_err(|error| format!("token endpoint: {error}"))?;
        self.keep(asked_at, &response)
    }

    fn keep(&self, asked_at: Instant, response: &Response) -> Result<Kept, BoxError> {
        let body = serde_json::from_slice::<Body>(&response.body);
        if response.status != 200 {
            let said = body.map(|body| body.said()).unwrap_or_default();
            return Err(format!("token endpoint answered with status {}{said}", response.status).into());
        }
        // Not the parser's words: they may quote the token.
        let body = body.map_err(|_| "token endpoint's answer is no JSON object of its kind")?;
        let token = body.access_token.ok_or("token endpoint's answer has no access_token")?;
        let life = Duration::from_secs_f64(body.expires_in.unwrap_or(UNTOLD_LIFE).clamp(0.0, LONGEST_LIFE));
        let mut token = BearerToken::new(token)?.with_expiry(SystemTime::now() + life);
        for (name, value) in &self.options.extensions {
            token = token.with_extension(name, value)?;
        }
        Ok(Kept { token, renew_at: asked_at + life.mul_f64(0.8), ends_at: asked_at + life })
    }
}

/// RFC 6749, sections 5.1 and 5.2.
#[derive(serde::Deserialize)]
struct Body {
    access_token: Option<String>,
    expires_in: Option<f64>,
    error: Option<String>,
    error_description: Option<String>,
}

impl Body {
    /// What the endpoint says of a refusal.
    fn said(&self) -> String {
        let texts = [&self.error, &self.error_description];
        let texts = texts.into_iter().flatten().map(|text| text.escape_debug().take(256).collect::<String>());
        texts.map(|text| format!(": {text}")).collect()
    }
}

impl fmt::Debug for OidcTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(f, "OidcTokens", &format!("{:?}", self.0.url), &self.0.options)
    }
}

impl fmt::Debug for OidcTokensBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It was not checked yet, so it may hold a password.
        shown(f, "OidcTokensBuilder", "..", &self.options)
    }
}

fn shown(f: &mut fmt::Formatter<'_>, name: &str, url: &str, options: &Options) -> fmt::Result {
    let mut shown = f.debug_struct(name);
    shown.field("url", &format_args!("{url}")).field("client_id", &options.client_id).finish_non_exhaustive()
}

/// As a form has it: all but unreserved characters as `%XX`.
fn encoded(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

/// How long a token is kept whose life was not told, in seconds.
const UNTOLD_LIFE: f64 = 60.0;

/// However long it is good, it is fetched anew after a day.
const LONGEST_LIFE: f64 = 24.0 * 3600.0;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    type Requests = Arc<std::sync::Mutex<Vec<String>>>;

    /// An endpoint that gives these answers in turn, and notes what it is asked.
    async fn endpoint(answers: &[(u16, &str)]) -> (String, Requests) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/token", listener.local_addr().unwrap());
        let mut answers: VecDeque<_> = answers.iter().map(|(status, body)| (*status, (*body).to_owned())).collect();
        let requests = Requests::default();
        let noted = requests.clone();
        tokio::spawn(async move {
            while let Some((status, body)) = answers.pop_front() {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 4096];
                let mut length = 0;
                while !String::from_utf8_lossy(&request[..length]).contains("grant_type") {
                    length += stream.read(&mut request[length..]).await.unwrap();
                }
                noted.lock().unwrap().push(String::from_utf8_lossy(&request[..length]).into_owned());
                let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        (url, requests)
    }

    fn tokens(url: &str) -> OidcTokens {
        OidcTokens::builder(url, "orders", "s3cret:!").scope("kafka write").build().unwrap()
    }

    #[tokio::test]
    async fn a_token_is_asked_for_as_the_rfc_has_it_and_kept() {
        let (url, requests) = endpoint(&[(200, r#"{"access_token":"abc","expires_in":300}"#)]).await;
        let tokens = tokens(&url);
        assert_eq!(tokens.token().await.unwrap().reveal(), "abc");
        assert_eq!(tokens.clone().token().await.unwrap().reveal(), "abc");
        let requests = requests.lock().unwrap().clone();
        let [request] = &requests[..] else { panic!("one request: {requests:?}") };
        assert!(request.starts_with("POST /token HTTP/1.1\r\nHost: 127.0.0.1:"), "{request}");
        assert!(
            request.contains(&format!("Authorization: Basic {}\r\n", BASE64.encode("orders:s3cret:!"))),
            "{request}"
        );
        assert!(request.ends_with("\r\n\r\ngrant_type=client_credentials&scope=kafka%20write"), "{request}");
    }

    #[tokio::test]
    async fn a_token_that_a_broker_refused_is_not_offered_again() {
        let answers = [(200, r#"{"access_token":"a","expires_in":300}"#), (200, r#"{"access_token":"b"}"#)];
        let (url, _) = endpoint(&answers).await;
        let tokens = tokens(&url);
        assert_eq!(tokens.token().await.unwrap().reveal(), "a");
        tokens.refused();
        assert_eq!(tokens.token().await.unwrap().reveal(), "b");
    }

    #[tokio::test]
    async fn an_endpoint_that_is_away_does_no_harm_while_the_token_is_good() {
        let (url, _) = endpoint(&[(200, r#"{"access_token":"a","expires_in":300}"#), (503, "down")]).await;
        let tokens = tokens(&url);
        tokens.token().await.unwrap();
        tokens.0.kept.lock().await.as_mut().unwrap().renew_at = now();
        assert_eq!(tokens.token().await.unwrap().reveal(), "a");
        tokens.0.kept.lock().await.as_mut().unwrap().ends_at = now();
        assert!(tokens.token().await.unwrap_err().to_string().starts_with("token endpoint: "));
    }

    #[tokio::test]
    async fn refusals_are_told_in_the_endpoints_words_and_without_secrets() {
        for (status, body, expected) in [
            (
                401,
                r#"{"error":"invalid_client","error_description":"no\u001b[2J"}"#,
                "status 401: invalid_client: no\\u{1b}[2J",
            ),
            (500, "oops", "status 500"),
            (302, "", "status 302"),
            (200, "[]", "no JSON object of its kind"),
            (200, r#"{"access_token":7,"x":"t0ken"}"#, "no JSON object of its kind"),
            (200, "{}", "no access_token"),
            (200, r#"{"access_token":"a b"}"#, "a character that no bearer token has"),
        ] {
            let (url, _) = endpoint(&[(status, body)]).await;
            let error = tokens(&url).token().await.unwrap_err().to_string();
            assert!(error.contains(expected), "{body}: {error}");
            assert!(!error.contains("s3cret") && !error.contains("t0ken"), "{error}");
        }
    }

    #[test]
    fn mistakes_are_named_and_secrets_are_not_shown() {
        let error = OidcTokens::builder("http://idp.example.com/", "", "").extension("auth", "x").build().unwrap_err();
        let options: Vec<_> = error.problems.iter().map(|problem| problem.option).collect();
        assert_eq!(options, ["endpoint", "client_id", "client_secret", "extension"]);
        let error = OidcTokens::builder("https://idp.example.com/", "a", "b").build().unwrap_err();
        assert_eq!(error.problems.len(), 1, "https without TLS: {error}");
        let builder = OidcTokens::builder("http://u:s3cret@idp/", "orders", "s3cret");
        let tokens = tokens("http://localhost/");
        let shown = format!("{builder:?} {tokens:?} {:?}", crate::client::Login::oauth_bearer(tokens.clone()));
        assert!(!shown.contains("s3cret") && shown.contains("orders"), "{shown}");
    }
}
