use std::path::PathBuf;
use std::sync::Mutex;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;
use crate::client::scripted::Brokers;
use crate::client::transport::{Connecting, Connector, Stream};
use crate::machine::connection::{TlsFailure, TlsFault};
use crate::machine::metadata::BrokerAddress;

const CA: &[u8] = include_bytes!("testdata/ca.pem");
const OTHER_CA: &[u8] = include_bytes!("testdata/other-ca.pem");
const SERVER: &[u8] = include_bytes!("testdata/server.pem");
const SERVER_KEY: &[u8] = include_bytes!("testdata/server.key");
const CLIENT: &[u8] = include_bytes!("testdata/client.pem");
const CLIENT_KEY: &[u8] = include_bytes!("testdata/client.key");
const CLIENT_2: &[u8] = include_bytes!("testdata/client-2.pem");
const CLIENT_2_KEY: &[u8] = include_bytes!("testdata/client-2.key");

/// [`CLIENT_KEY`] in PKCS#8 with PBES2, by PBKDF2 and by scrypt; with triple DES; and as OpenSSL did once. All by `key-s3cret`.
const ENCRYPTED_KEY: &[u8] = include_bytes!("testdata/client-aes.key");
const SCRYPT_KEY: &[u8] = include_bytes!("testdata/client-scrypt.key");
const DES3_KEY: &[u8] = include_bytes!("testdata/client-des3.key");
const OLD_KEY: &[u8] = include_bytes!("testdata/client-old.key");

fn builder() -> TlsBuilder {
    Tls::builder(rustls_graviola::default_provider())
}

/// A server in memory that notes the name it was asked for and the certificate it was shown.
#[derive(Debug)]
struct Server {
    config: Arc<ServerConfig>,
    names: Arc<Names>,
    shown: Arc<Mutex<Vec<Vec<u8>>>>,
}

#[derive(Debug)]
struct Names {
    key: Arc<CertifiedKey>,
    asked: Mutex<Vec<Option<String>>>,
}

impl ResolvesServerCert for Names {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.asked.lock().unwrap().push(hello.server_name().map(str::to_owned));
        Some(self.key.clone())
    }
}

impl Server {
    fn new(wants_certificate: bool) -> Arc<Self> {
        let provider = Arc::new(rustls_graviola::default_provider());
        let key = PrivateKeyDer::from_pem_slice(SERVER_KEY).unwrap();
        let chain = CertificateDer::pem_slice_iter(SERVER).collect::<Result<Vec<_>, _>>().unwrap();
        let key = CertifiedKey::new(chain, provider.key_provider.load_private_key(key).unwrap());
        let names = Arc::new(Names { key: Arc::new(key), asked: Mutex::default() });
        let builder =
            ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
        let builder = if wants_certificate {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(CA).unwrap()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let config = Arc::new(builder.with_cert_resolver(names.clone()));
        Arc::new(Self { config, names, shown: Arc::default() })
    }

    fn asked(&self) -> Vec<Option<String>> {
        self.names.asked.lock().unwrap().clone()
    }

    async fn serve(config: Arc<ServerConfig>, shown: Arc<Mutex<Vec<Vec<u8>>>>, stream: DuplexStream) {
        let Ok(mut stream) = tokio_rustls::TlsAcceptor::from(config).accept(stream).await else { return };
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        shown.lock().unwrap().extend(certificate.map(|certificate| certificate.to_vec()));
        let mut bytes = [0; 4];
        if stream.read_exact(&mut bytes).await.is_ok() {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.flush().await;
        }
    }
}

impl Connector for Server {
    fn connect<'a>(&'a self, _: &'a BrokerAddress) -> Connecting<'a> {
        Box::pin(async move {
            let (near, far) = tokio::io::duplex(1 << 16);
            tokio::spawn(Self::serve(self.config.clone(), self.shown.clone(), far));
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}

impl Connector for Arc<Server> {
    fn connect<'a>(&'a self, address: &'a BrokerAddress) -> Connecting<'a> {
        (**self).connect(address)
    }
}

/// Bytes there and back.
async fn echo(tls: &Tls, beneath: impl Connector, host: &str) -> Result<(), TlsFailure> {
    let connector = TlsConnector::new(tls.clone(), Arc::new(beneath));
    let failure = |error: std::io::Error| TlsFault::of(&error).map(|fault| fault.failure.clone()).expect("of TLS");
    let mut stream = connector.connect(&BrokerAddress::new(host, 9093)).await.map_err(failure)?;
    stream.write_all(b"ping").await.map_err(failure)?;
    stream.flush().await.map_err(failure)?;
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes).await.map_err(failure)?;
    assert_eq!(&bytes, b"ping");
    Ok(())
}

/// kafkajs#512, librdkafka#4348, krafka 0.28.1: no SNI, one with the trailing dot, or a bracketed IPv6 literal. A proxy that
/// routes by it, as every hosted Kafka has, closes the connection or serves another's certificate.
#[tokio::test]
async fn the_server_is_asked_for_by_its_name_without_a_dot_and_for_an_address_by_none() {
    let server = Server::new(false);
    let tls = builder().authorities_pem(CA).build().unwrap();
    for host in ["kafka.example.com", "kafka.example.com.", "::1"] {
        echo(&tls, server.clone(), host).await.unwrap();
    }
    let name = || Some("kafka.example.com".to_owned());
    assert_eq!(server.asked(), [name(), name(), None]);
}

#[tokio::test]
async fn authority_and_name_are_checked_and_names_alone_can_be_left_unchecked() {
    let server = Server::new(false);
    let tls = builder().authorities_pem(CA).build().unwrap();
    let failure = echo(&tls, server.clone(), "other.example.com").await.unwrap_err();
    assert!(matches!(&failure, TlsFailure::WrongName { name, .. } if name == "other.example.com"), "{failure}");
    let failure = echo(&tls, server.clone(), "127.0.0.1").await.unwrap_err();
    assert!(matches!(failure, TlsFailure::WrongName { .. }), "{failure}");

    let lax = builder().authorities_pem(CA).dangerous_without_host_names().build().unwrap();
    echo(&lax, server.clone(), "other.example.com").await.unwrap();
    for other in
        [builder().authorities_pem(OTHER_CA), builder().authorities_pem(OTHER_CA).dangerous_without_host_names()]
    {
        let failure = echo(&other.build().unwrap(), server.clone(), "other.example.com").await.unwrap_err();
        assert!(matches!(failure, TlsFailure::UnknownAuthority), "{failure}");
    }
}

#[tokio::test]
async fn a_name_that_no_certificate_is_for_is_told_before_anything_is_sent() {
    let tls = builder().authorities_pem(CA).build().unwrap();
    let failure = echo(&tls, Brokers::new(), "not a name").await.unwrap_err();
    assert!(matches!(failure, TlsFailure::InvalidName { .. }), "{failure}");
}

/// A peer that answers the hello with these bytes, or closes.
#[derive(Debug)]
struct Impostor(&'static [u8]);

impl Connector for Impostor {
    fn connect<'a>(&'a self, _: &'a BrokerAddress) -> Connecting<'a> {
        Box::pin(async move {
            let (near, mut far) = tokio::io::duplex(1 << 16);
            let answer = self.0;
            tokio::spawn(async move {
                let _ = far.read(&mut [0; 4096]).await;
                let _ = far.write_all(answer).await;
            });
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}

#[tokio::test]
async fn what_is_no_tls_is_told_apart() {
    let tls = builder().authorities_pem(CA).build().unwrap();
    let failure = echo(&tls, Impostor(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "h").await.unwrap_err();
    assert!(matches!(failure, TlsFailure::NotTls), "{failure:?}");
    let failure = echo(&tls, Impostor(b""), "h").await.unwrap_err();
    assert!(matches!(failure, TlsFailure::ClosedEarly), "{failure:?}");
    // handshake_failure, fatal.
    let failure = echo(&tls, Impostor(b"\x15\x03\x03\x00\x02\x02\x28"), "h").await.unwrap_err();
    assert!(matches!(&failure, TlsFailure::Alert { alert } if alert == "HandshakeFailure"), "{failure:?}");
}

#[tokio::test]
async fn a_certificate_that_is_wanted_and_missing_is_told_so() {
    let server = Server::new(true);
    let tls = builder().authorities_pem(CA).build().unwrap();
    let failure = echo(&tls, server.clone(), "::1").await.unwrap_err();
    assert!(matches!(failure, TlsFailure::CertificateRefused { sent: false, .. }), "{failure:?}");
    let tls = builder().authorities_pem(CA).identity_pem(CLIENT, CLIENT_KEY).build().unwrap();
    echo(&tls, server, "::1").await.unwrap();
}

/// A folder of its own, gone at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("kafka-harbor-tls-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, pem: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, pem).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn der(pem: &[u8]) -> Vec<u8> {
    CertificateDer::from_pem_slice(pem).unwrap().to_vec()
}

/// A certificate that is renewed beside a running service must not wait for its restart, nor end what works if it is written in
/// two steps.
#[tokio::test(start_paused = true)]
async fn files_that_changed_are_read_anew_and_what_cannot_be_used_leaves_the_last() {
    let folder = Folder::new("reload");
    let (certificate, key) = (folder.write("c.pem", CLIENT), folder.write("c.key", CLIENT_KEY));
    let server = Server::new(true);
    let tls = builder().authorities_pem(CA).identity_files(&certificate, &key).build().unwrap();
    echo(&tls, server.clone(), "::1").await.unwrap();
    // Half of the new pair: certificate and key do not go together.
    folder.write("c.pem", &[CLIENT_2, b"\n"].concat());
    echo(&tls, server.clone(), "::1").await.unwrap();
    tokio::time::advance(RELOAD_INTERVAL).await;
    echo(&tls, server.clone(), "::1").await.unwrap();
    folder.write("c.key", &[CLIENT_2_KEY, b"\n"].concat());
    echo(&tls, server.clone(), "::1").await.unwrap();
    tokio::time::advance(RELOAD_INTERVAL).await;
    echo(&tls, server.clone(), "::1").await.unwrap();
    folder.write("c.pem", CLIENT);
    assert!(tls.reload().is_err(), "asked for, a mistake is told");
    folder.write("c.key", CLIENT_KEY);
    tls.reload().unwrap();
    echo(&tls, server.clone(), "::1").await.unwrap();
    let (old, new) = (der(CLIENT), der(CLIENT_2));
    assert_eq!(*server.shown.lock().unwrap(), [&old, &old, &old, &old, &new, &old].map(Clone::clone));
}

#[test]
fn mistakes_are_reported_by_name_and_keys_are_not_shown() {
    let text = |builder: TlsBuilder| builder.build().unwrap_err().to_string();
    assert!(text(builder()).contains("authorities: none is given"));
    assert!(text(builder().authorities_file("/nowhere/ca.pem")).contains("authorities: /nowhere/ca.pem: "));
    assert!(text(builder().authorities_pem("nothing")).contains("holds no certificate in PEM"));
    assert!(text(builder().authorities_pem(CA).reload_interval(Some(Duration::ZERO))).contains("reload_interval"));
    let both = text(builder().authorities_pem("x").identity_pem("y", "z"));
    assert!(both.starts_with("3 option(s) cannot be used: "), "{both}");
    let other = text(builder().authorities_pem(CA).identity_pem(CLIENT, CLIENT_2_KEY));
    assert!(other.contains("identity: certificate and key cannot be used"), "{other}");
}

/// Keys are kept encrypted where a file's rights are not trusted. Java reads PKCS#8 with a password, too (KIP-651).
#[tokio::test]
async fn an_encrypted_key_is_read_by_its_password() {
    let server = Server::new(true);
    // The certificate beside it in one file, as Java's key stores in PEM have it.
    let beside = [ENCRYPTED_KEY, CLIENT].concat();
    for key in [ENCRYPTED_KEY, SCRYPT_KEY, &beside, CLIENT_KEY] {
        let tls = builder().authorities_pem(CA).identity_pem(CLIENT, key).key_password("key-s3cret").build().unwrap();
        echo(&tls, server.clone(), "::1").await.unwrap();
        assert!(!format!("{tls:?}").contains("s3cret"), "{tls:?}");
    }
    assert_eq!(*server.shown.lock().unwrap(), vec![der(CLIENT); 4]);
    let folder = Folder::new("encrypted");
    let (certificate, key) = (folder.write("c.pem", CLIENT), folder.write("c.key", ENCRYPTED_KEY));
    let tls =
        builder().authorities_pem(CA).identity_files(certificate, key).key_password("key-s3cret").build().unwrap();
    tls.reload().unwrap();
    echo(&tls, server.clone(), "::1").await.unwrap();
}

#[test]
fn an_encrypted_key_that_cannot_be_read_is_told_why_and_what_to_do() {
    let text = |key: &[u8], password: Option<&str>| {
        let tls = builder().authorities_pem(CA).identity_pem(CLIENT, key);
        let tls = password.into_iter().fold(tls, TlsBuilder::key_password);
        tls.build().unwrap_err().to_string()
    };
    assert!(text(ENCRYPTED_KEY, None).contains("is encrypted, and no password is given"));
    let wrong = text(ENCRYPTED_KEY, Some("other-s3cret"));
    assert!(wrong.contains("the password is wrong") && !wrong.contains("s3cret"), "{wrong}");
    let old = text(OLD_KEY, Some("key-s3cret"));
    assert!(old.contains("Proc-Type: 4,ENCRYPTED") && old.contains("openssl pkcs8 -topk8"), "{old}");
    let weak = text(DES3_KEY, Some("key-s3cret"));
    assert!(weak.contains("openssl pkcs8 -topk8 -v2 aes-256-cbc"), "{weak}");
    let junk = b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    assert!(text(junk, Some("x")).contains("encrypted in a way that is not read"));
}

#[test]
fn nothing_of_tls_shows_a_key() {
    let tls = builder().authorities_pem(CA).identity_pem(CLIENT, CLIENT_KEY);
    let body = std::str::from_utf8(CLIENT_KEY).unwrap().lines().nth(1).unwrap().to_owned();
    let der = format!("{:?}", &PrivateKeyDer::from_pem_slice(CLIENT_KEY).unwrap().secret_der()[40..60]);
    let bytes = der.trim_matches(['[', ']']).to_owned();
    let shown = [format!("{tls:?}"), format!("{:#?}", tls.clone().build().unwrap())].concat();
    assert!(!shown.contains(&body) && !shown.contains(&bytes) && shown.contains("the text that was given"), "{shown}");
}
