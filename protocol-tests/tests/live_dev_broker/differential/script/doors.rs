//! Logins (KIP-43, KIP-152, KIP-368), on listeners that ask for them.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use kafka_protocol::messages::{
    ApiVersionsRequest, MetadataRequest, SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest,
};
use sha2::{Digest as _, Sha256};

use super::{Ask, NEWEST, Run, now, text};

pub(super) async fn run(run: &mut Run) {
    before(run).await;
    plain(run).await;
    scram(run).await;
    bearer(run).await;
    again(run).await;
}

/// Where nobody has to log in.
pub(super) async fn open(run: &mut Run) {
    run.ask("open: a mechanism", handshake("PLAIN")).await;
    run.ask("open: a login", message(b"\0alice\0alice-secret")).await;
}

fn handshake(mechanism: &str) -> SaslHandshakeRequest {
    SaslHandshakeRequest::default().with_mechanism(text(mechanism))
}

fn message(bytes: &[u8]) -> SaslAuthenticateRequest {
    SaslAuthenticateRequest::default().with_auth_bytes(bytes::Bytes::copy_from_slice(bytes))
}

fn metadata() -> MetadataRequest {
    MetadataRequest::default().with_topics(Some(Vec::new()))
}

impl Run {
    /// One request on the connection of this name.
    async fn say<R: Ask>(&mut self, wire: &'static str, step: &'static str, request: R) -> R::Response {
        self.send_in(wire, NEWEST, &request).await;
        self.receive::<R>(wire, NEWEST, step).await
    }

    /// The first message of a login, on a connection that is new.
    async fn log_in(
        &mut self,
        wire: &'static str,
        steps: [&'static str; 2],
        mechanism: &str,
        first: &[u8],
    ) -> SaslAuthenticateResponse {
        self.say(wire, steps[0], handshake(mechanism)).await;
        self.say(wire, steps[1], message(first)).await
    }
}

async fn before(run: &mut Run) {
    run.say("nobody", "door: asked by nobody", metadata()).await;
    run.say(
        "versions",
        "door: versions are told",
        ApiVersionsRequest::default().with_client_software_name(text("x")).with_client_software_version(text("1")),
    )
    .await;
    run.say("versions", "door: a mechanism that is none", handshake("KERBEROS")).await;
    run.say("versions", "door: after a mechanism that is none", handshake("PLAIN")).await;
    run.say("early", "door: a login before its mechanism", message(b"\0alice\0alice-secret")).await;
    run.say("between", "door: a mechanism", handshake("PLAIN")).await;
    run.say("between", "door: asked between mechanism and login", metadata()).await;
    run.say("twice", "door: a mechanism first", handshake("PLAIN")).await;
    run.say("twice", "door: a mechanism again", handshake("PLAIN")).await;
    run.say("late", "door: a mechanism before versions", handshake("PLAIN")).await;
    run.say("late", "door: versions after the mechanism", ApiVersionsRequest::default()).await;
}

async fn plain(run: &mut Run) {
    run.log_in("plain", ["plain: named", "plain: enters"], "PLAIN", b"\0alice\0alice-secret").await;
    run.say("plain", "plain: asks", metadata()).await;
    run.say("plain", "plain: logs in without a mechanism", message(b"\0alice\0alice-secret")).await;
    run.say("plain", "plain: names a mechanism again", handshake("PLAIN")).await;
    run.say("plain", "plain: asks still", metadata()).await;
    run.say("plain of old", "plain: named, of old", handshake("PLAIN")).await;
    run.send_in("plain of old", 0, &message(b"\0alice\0alice-secret")).await;
    run.receive::<SaslAuthenticateRequest>("plain of old", 0, "plain: enters, version 0").await;
    let wrong: [(&'static str, [&'static str; 3], &[u8]); 7] = [
        ("p1", ["plain: named 1", "plain: the wrong password", "plain: asks 1"], b"\0alice\0wrong"),
        ("p2", ["plain: named 2", "plain: nobody", "plain: asks 2"], b"\0nobody\0x"),
        ("p3", ["plain: named 3", "plain: for another", "plain: asks 3"], b"bob\0alice\0alice-secret"),
        ("p4", ["plain: named 4", "plain: no password", "plain: asks 4"], b"\0alice\0"),
        ("p5", ["plain: named 5", "plain: no user", "plain: asks 5"], b"\0\0alice-secret"),
        ("p6", ["plain: named 6", "plain: parts are missing", "plain: asks 6"], b"alice"),
        ("p7", ["plain: named 7", "plain: one part too many", "plain: asks 7"], b"\0alice\0alice-secret\0"),
    ];
    for (wire, [named, step, after], first) in wrong {
        run.log_in(wire, [named, step], "PLAIN", first).await;
        run.say(wire, after, metadata()).await;
    }
    run.log_in("p8", ["plain: named 8", "plain: for itself"], "PLAIN", b"alice\0alice\0alice-secret").await;
}

/// What a client says second, to prove that it knows the password, and what the server has to say then.
fn proof(user: &str, password: &str, first: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let first = std::str::from_utf8(first).unwrap();
    let part = |key: &str| first.split(',').find_map(|part| part.strip_prefix(key)).unwrap_or_default();
    let salt = STANDARD.decode(part("s=")).unwrap();
    let mut salted = [0; 32];
    pbkdf2::pbkdf2_hmac::<Sha256>(password.as_bytes(), &salt, part("i=").parse().unwrap(), &mut salted);
    let sign = |key: &[u8], text: &[u8]| {
        Hmac::<Sha256>::new_from_slice(key).unwrap().chain_update(text).finalize().into_bytes()
    };
    let without = format!("c=biws,r={}", part("r="));
    let signed = format!("n={user},r={NONCE},{first},{without}");
    let key = sign(&salted, b"Client Key");
    let signature = sign(&Sha256::digest(key), signed.as_bytes());
    let proof: Vec<u8> = key.iter().zip(&signature).map(|(key, of)| key ^ of).collect();
    let server = sign(&sign(&salted, b"Server Key"), signed.as_bytes());
    let last = format!("{without},p={}", STANDARD.encode(proof));
    (last.into_bytes(), format!("v={}", STANDARD.encode(server)).into_bytes())
}

async fn scram(run: &mut Run) {
    let first = |user: &str| format!("n,,n={user},r={NONCE}").into_bytes();
    let told = run.log_in("s1", ["scram: named", "scram: begins"], "SCRAM-SHA-256", &first("alice")).await;
    let (last, expected) = proof("alice", "alice-secret", &told.auth_bytes);
    let told = run.say("s1", "scram: enters", message(&last)).await;
    assert_eq!(*told.auth_bytes, *expected, "the server proves itself too");
    run.say("s1", "scram: asks", metadata()).await;
    let told = run.log_in("s2", ["scram: named 2", "scram: begins again"], "SCRAM-SHA-256", &first("alice")).await;
    let (last, _) = proof("alice", "wrong", &told.auth_bytes);
    run.say("s2", "scram: the wrong password", message(&last)).await;
    run.say("s2", "scram: asks 2", metadata()).await;
    let told = run.log_in("s3", ["scram: named 3", "scram: begins once more"], "SCRAM-SHA-256", &first("alice")).await;
    let (last, _) = proof("alice", "alice-secret", &told.auth_bytes);
    let last = String::from_utf8(last).unwrap().replacen("r=", "r=x", 1);
    run.say("s3", "scram: another nonce", message(last.as_bytes())).await;
    run.log_in("s4", ["scram: named 4", "scram: nobody"], "SCRAM-SHA-256", &first("nobody")).await;
    run.log_in("s5", ["scram: named 5", "scram: no message"], "SCRAM-SHA-256", b"alice").await;
    run.log_in("s6", ["scram: named 6", "scram: nothing"], "SCRAM-SHA-256", b"").await;
    let other = format!("n,a=bob,n=alice,r={NONCE}");
    run.log_in("s7", ["scram: named 7", "scram: for another"], "SCRAM-SHA-256", other.as_bytes()).await;
    let bound = format!("y,,n=alice,r={NONCE}");
    run.log_in("s8", ["scram: named 8", "scram: binds a channel"], "SCRAM-SHA-256", bound.as_bytes()).await;
    run.log_in("s9", ["scram: named 9", "scram: begins, 512"], "SCRAM-SHA-512", &first("bob")).await;
    run.say("s9", "scram: no proof, 512", message(b"c=biws,r=x,p=AAAA")).await;
}

/// An unsecured JWS.
fn token(subject: &str, valid_seconds: i64) -> String {
    let now = now() / 1000;
    let claims = format!(r#"{{"sub":"{subject}","iat":{},"exp":{}}}"#, now - 10, now + valid_seconds);
    format!("{}.{}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#), URL_SAFE_NO_PAD.encode(claims))
}

fn bearing(token: &str) -> Vec<u8> {
    format!("n,,\x01auth=Bearer {token}\x01\x01").into_bytes()
}

async fn bearer(run: &mut Run) {
    let valid = token("alice", 600);
    run.log_in("b1", ["bearer: named", "bearer: enters"], "OAUTHBEARER", &bearing(&valid)).await;
    run.say("b1", "bearer: asks", metadata()).await;
    run.log_in("b2", ["bearer: named 2", "bearer: out of date"], "OAUTHBEARER", &bearing(&token("alice", -5))).await;
    run.say("b2", "bearer: heard of it", message(b"\x01")).await;
    run.say("b2", "bearer: asks 2", metadata()).await;
    run.log_in("b3", ["bearer: named 3", "bearer: no JWS"], "OAUTHBEARER", &bearing("x")).await;
    run.say("b3", "bearer: no JWS, heard of", message(b"\x01")).await;
    run.log_in("b4", ["bearer: named 4", "bearer: no message"], "OAUTHBEARER", b"alice").await;
    run.log_in("b5", ["bearer: named 5", "bearer: nothing"], "OAUTHBEARER", b"").await;
    let other = format!("n,a=bob,\x01auth=Bearer {valid}\x01\x01");
    run.log_in("b6", ["bearer: named 6", "bearer: for another"], "OAUTHBEARER", other.as_bytes()).await;
    run.log_in("b7", ["bearer: named 7", "bearer: refused once"], "OAUTHBEARER", &bearing(&token("alice", -5))).await;
    run.say("b7", "bearer: tries another", message(&bearing(&valid))).await;
}

/// Logins are renewed, as those that end with their token are.
async fn again(run: &mut Run) {
    let valid = bearing(&token("alice", 600));
    run.log_in("a1", ["again: named", "again: enters"], "OAUTHBEARER", &valid).await;
    run.say("a1", "again: named again", handshake("OAUTHBEARER")).await;
    run.say("a1", "again: asked meanwhile", metadata()).await;
    run.log_in("a2", ["again: named 2", "again: enters 2"], "OAUTHBEARER", &valid).await;
    run.log_in("a2", ["again: named once more", "again: renewed"], "OAUTHBEARER", &valid).await;
    run.say("a2", "again: asks", metadata()).await;
    run.say("a2", "again: too soon", handshake("OAUTHBEARER")).await;
    run.say("a2", "again: asks after that", metadata()).await;
    run.log_in("a3", ["again: named 3", "again: enters 3"], "OAUTHBEARER", &valid).await;
    let other = bearing(&token("bob", 600));
    run.log_in("a3", ["again: named as another", "again: renewed as another"], "OAUTHBEARER", &other).await;
    run.log_in("a4", ["again: named 4", "again: enters 4"], "OAUTHBEARER", &valid).await;
    run.log_in("a4", ["again: another mechanism", "again: renewed by it"], "PLAIN", b"\0alice\0alice-secret").await;
    run.log_in("a5", ["again: named 5", "again: enters 5"], "OAUTHBEARER", &valid).await;
    run.say("a5", "again: a mechanism that is none", handshake("KERBEROS")).await;
    run.log_in("a6", ["again: named 6", "again: enters 6"], "OAUTHBEARER", &valid).await;
    let late = bearing(&token("alice", -5));
    run.log_in("a6", ["again: named with an old token", "again: renewed with it"], "OAUTHBEARER", &late).await;
}

const NONCE: &str = "differential";
