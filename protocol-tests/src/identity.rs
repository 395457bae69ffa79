//! An identity provider as OpenID Connect has them: it gives out signed tokens, and the keys that they are checked by.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rustls::SignatureScheme;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::sign::SigningKey;

/// A provider on loopback, for as long as the process runs.
#[derive(Debug, Clone)]
pub struct IdentityProvider(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    address: String,
    /// In DER.
    key: Vec<u8>,
    signer: Arc<dyn SigningKey>,
    given_out: AtomicUsize,
}

impl IdentityProvider {
    /// Who may ask for tokens.
    pub const CLIENT: (&str, &str) = ("orders", "0idc-s3cret");
    /// Whom its tokens are for.
    pub const AUDIENCE: &str = "kafka";
    /// The subject of its tokens.
    pub const SUBJECT: &str = "alice";
    /// How long they are good, in seconds.
    pub const LIFE: u64 = 20;

    /// Starts to answer. Signs with this key, in PEM: PKCS#8, of P-256.
    ///
    /// # Panics
    /// When it cannot, or the key is another.
    pub fn start(key: &[u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let key = PrivateKeyDer::from_pem_slice(key).expect("a key in PEM");
        let der = key.secret_der().to_vec();
        let signer = rustls_graviola::default_provider().key_provider.load_private_key(key).expect("a key of P-256");
        let this = Self(Arc::new(Inner { address, key: der, signer, given_out: AtomicUsize::new(0) }));
        let serving = this.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let this = serving.clone();
                // A peer that goes away in the middle is its own affair.
                std::thread::spawn(move || this.serve(stream).ok());
            }
        });
        this
    }

    /// Where tokens are given out.
    pub fn token_endpoint(&self) -> String {
        format!("http://{}/token", self.0.address)
    }

    /// Where the keys are.
    pub fn keys_endpoint(&self) -> String {
        format!("http://{}/keys", self.0.address)
    }

    /// Who signs, in the tokens.
    pub fn issuer(&self) -> String {
        format!("http://{}/", self.0.address)
    }

    /// How many tokens were given out.
    pub fn given_out(&self) -> usize {
        self.0.given_out.load(Ordering::Relaxed)
    }

    /// A token for this audience, as of now.
    ///
    /// # Panics
    /// Before 1970.
    pub fn token(&self, audience: &str) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let claims = serde_json::json!({
            "iss": self.issuer(), "aud": audience, "sub": Self::SUBJECT, "iat": now - 5, "exp": now + Self::LIFE,
        });
        let head = serde_json::json!({ "alg": "ES256", "typ": "JWT", "kid": KEY_ID });
        let part = |json: serde_json::Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let signed = format!("{}.{}", part(head), part(claims));
        let signer = self.0.signer.choose_scheme(&[SignatureScheme::ECDSA_NISTP256_SHA256]).expect("a key of P-256");
        let signature = signer.sign(signed.as_bytes()).expect("a signature");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(joined(&signature)))
    }

    /// The public key, which ends a private one as OpenSSL writes it.
    fn keys(&self) -> String {
        let point = &self.0.key[self.0.key.len() - 64..];
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let key = serde_json::json!({
            "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": KEY_ID,
            "x": part(&point[..32]), "y": part(&point[32..]),
        });
        serde_json::json!({ "keys": [key] }).to_string()
    }

    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
                break;
            }
            lines.push(line.trim().to_owned());
        }
        let header = |name: &str| {
            let fields = lines.iter().filter_map(|line| line.split_once(':'));
            fields
                .into_iter()
                .find(|(field, _)| field.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.trim().to_owned())
        };
        let length = header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let (status, answer) = match lines.first().map(String::as_str) {
            Some(line) if line.starts_with("GET /keys ") => (200, self.keys()),
            Some(line) if line.starts_with("POST /token ") => {
                let (id, secret) = Self::CLIENT;
                let expected = format!("Basic {}", STANDARD.encode(format!("{id}:{secret}")));
                let form = String::from_utf8_lossy(&body).contains("grant_type=client_credentials");
                match header("authorization") {
                    Some(given) if given == expected && form => {
                        self.0.given_out.fetch_add(1, Ordering::Relaxed);
                        let token = self.token(Self::AUDIENCE);
                        let life = Self::LIFE;
                        (
                            200,
                            serde_json::json!({ "access_token": token, "token_type": "Bearer", "expires_in": life })
                                .to_string(),
                        )
                    }
                    _ => (401, r#"{"error":"invalid_client"}"#.to_owned()),
                }
            }
            _ => (404, "{}".to_owned()),
        };
        let length = answer.len();
        write!(
            stream,
            "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{answer}"
        )
    }
}

/// A signature as JWS has it, the two numbers in 32 bytes each (RFC 7518), of one in DER.
fn joined(der: &[u8]) -> Vec<u8> {
    let mut rest = &der[2..];
    let mut joined = Vec::new();
    for _ in 0..2 {
        let length = usize::from(rest[1]);
        let (number, behind) = rest[2..].split_at(length);
        let number = &number[number.iter().take_while(|byte| **byte == 0).count()..];
        joined.extend(std::iter::repeat_n(0, 32 - number.len()));
        joined.extend(number);
        rest = behind;
    }
    joined
}

const KEY_ID: &str = "one";
