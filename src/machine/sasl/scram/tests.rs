use super::*;

/// The example of RFC 7677, section 3.
const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
const FIRST: &str = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
const PROOF: &str =
    "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
const FINAL: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

fn run(hash: Hash, user: &str) -> Scram {
    let mut scram = Scram::new(hash, user, "pencil", [0; NONCE_BYTES]);
    scram.nonce = NONCE.to_owned();
    scram
}

fn sent(user: &str) -> Scram {
    let mut scram = run(Hash::Sha256, user);
    scram.first();
    scram
}

#[test]
fn the_example_of_the_rfc() {
    let mut scram = run(Hash::Sha256, "user");
    assert_eq!(scram.first(), b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
    assert_eq!(scram.handle(FIRST.as_bytes()), Ok(Reply::Send(PROOF.into())));
    assert_eq!(scram.handle(FINAL.as_bytes()), Ok(Reply::Done));
    assert_eq!(scram.handle(FINAL.as_bytes()), Err(SaslViolation::OutOfTurn));
}

/// RFC 5802 from the server's side: what it stores is a hash of the client's key, and the proof has to give it.
#[test]
fn sha_512_proves_what_a_server_stores() {
    let mut scram = run(Hash::Sha512, "user");
    scram.first();
    let Ok(Reply::Send(last)) = scram.handle(FIRST.as_bytes()) else { panic!("a proof") };
    let last = String::from_utf8(last).unwrap();
    let (without_proof, proof) = last.rsplit_once(",p=").unwrap();
    let signed = format!("n=user,r={NONCE},{FIRST},{without_proof}");
    let mut salted = [0; 64];
    pbkdf2::pbkdf2_hmac::<Sha512>(b"pencil", &BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap(), 4096, &mut salted);
    let stored = Sha512::digest(mac::<Sha512>(&salted, b"Client Key").finalize().into_bytes());
    let signature = mac::<Sha512>(&stored, signed.as_bytes()).finalize().into_bytes();
    let key: Vec<u8> = BASE64.decode(proof).unwrap().iter().zip(signature).map(|(a, b)| a ^ b).collect();
    assert_eq!(Sha512::digest(key), stored);
    let server_key = mac::<Sha512>(&salted, b"Server Key").finalize().into_bytes();
    let server = mac::<Sha512>(&server_key, signed.as_bytes()).finalize().into_bytes();
    assert_eq!(scram.handle(format!("v={}", BASE64.encode(server)).as_bytes()), Ok(Reply::Done));
}

/// A peer that does not know the password must not be taken for the broker.
#[test]
fn a_signature_that_is_not_the_servers_is_refused() {
    for wrong in ["v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5=", "v=AAAA", "v="] {
        let mut scram = sent("user");
        scram.handle(FIRST.as_bytes()).unwrap();
        let refused = scram.handle(wrong.as_bytes()).unwrap_err();
        let malformed = SaslViolation::Malformed("signature is not base64");
        assert!(refused == SaslViolation::ServerSignature || refused == malformed, "{wrong}: {refused}");
    }
    let mut scram = sent("user");
    scram.handle(FIRST.as_bytes()).unwrap();
    assert_eq!(scram.handle(b""), Err(SaslViolation::Malformed("final message has no signature")));
}

#[test]
fn the_nonce_has_to_continue_ours() {
    for nonce in ["", "x", NONCE, "rOprNGfwEbeRWgbNEkqP-and-more"] {
        let message = format!("r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096");
        assert_eq!(sent("user").handle(message.as_bytes()), Err(SaslViolation::Nonce), "{nonce:?}");
    }
}

#[test]
fn rounds_that_protect_nothing_or_keep_us_busy_are_refused() {
    for (text, rounds) in [("4095", 4095), ("0", 0), ("262145", 262_145), ("99999999999999999999999", u64::MAX)] {
        let message = format!("r={NONCE}more,s=W22ZaJ0SNY7soEsUEjb6gQ==,i={text}");
        let refused = sent("user").handle(message.as_bytes()).unwrap_err();
        assert_eq!(refused, SaslViolation::Iterations { rounds, min: 4096, max: 262_144 });
    }
}

#[test]
fn a_first_message_of_another_form_is_refused() {
    for message in [
        "",
        "r=",
        "m=ext,r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=4096",
        "r=rOprNGfwEbeRWgbNEkqOx",
        "r=rOprNGfwEbeRWgbNEkqOx,s=W22Z",
        "r=rOprNGfwEbeRWgbNEkqOx,i=4096,s=W22Z",
        "r=rOprNGfwEbeRWgbNEkqOx,s=,i=4096",
        "r=rOprNGfwEbeRWgbNEkqOx,s=?,i=4096",
        "r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=",
        "r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=+4096",
    ] {
        let refused = sent("user").handle(message.as_bytes()).unwrap_err();
        assert!(matches!(refused, SaslViolation::Malformed(_)), "{message:?}: {refused}");
    }
    assert!(sent("user").handle(b"r=\xff").is_err());
}

#[test]
fn a_server_that_refuses_is_heard_in_either_message() {
    assert_eq!(sent("user").handle(b"e=unknown-user\x1b[2J"), Ok(Reply::Refused("unknown-user [2J".to_owned())));
    let mut scram = sent("user");
    scram.handle(FIRST.as_bytes()).unwrap();
    assert_eq!(scram.handle(b"e=invalid-proof"), Ok(Reply::Refused("invalid-proof".to_owned())));
}

#[test]
fn the_users_own_commas_and_equal_signs_are_escaped() {
    let mut scram = run(Hash::Sha256, "a=b,c").with_delegation_token(true);
    assert_eq!(scram.first(), b"n,,n=a=3Db=2Cc,r=rOprNGfwEbeRWgbNEkqO,tokenauth=true");
}
