//! A private key in PEM, encrypted or not.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pkcs8::EncryptedPrivateKeyInfoRef;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::client::secret::Secret;

/// The first private key in `pem`; by the password, if it is encrypted. What is wrong is told without quoting the key.
pub(super) fn read(pem: &[u8], password: Option<&Secret>) -> Result<PrivateKeyDer<'static>, &'static str> {
    if find(pem, b"Proc-Type: 4,ENCRYPTED").is_some() {
        return Err(OLD);
    }
    let Some(text) = encrypted(pem) else {
        return PrivateKeyDer::from_pem_slice(pem).map_err(|_| "it holds no private key in PEM");
    };
    let Some(password) = password else { return Err("the key is encrypted, and no password is given for it") };
    let text: Vec<u8> = text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let der = STANDARD.decode(text).map_err(|_| "the encrypted key is no PEM")?;
    let info = EncryptedPrivateKeyInfoRef::try_from(der.as_slice()).map_err(|_| UNKNOWN)?;
    if info.encryption_algorithm.pbes2().is_none() {
        return Err(UNKNOWN);
    }
    let key = info.decrypt(password.reveal()).map_err(|_| "the key cannot be decrypted: the password is wrong")?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}

/// The text of the first key, if that is an encrypted one (RFC 5958, in the PEM of RFC 7468).
fn encrypted(pem: &[u8]) -> Option<&[u8]> {
    let begin = find(pem, BEGIN)?;
    let plain = PLAIN.iter().filter_map(|label| find(pem, label)).min();
    if plain.is_some_and(|plain| plain < begin) {
        return None;
    }
    let text = &pem[begin + BEGIN.len()..];
    Some(&text[..find(text, END)?])
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

const BEGIN: &[u8] = b"-----BEGIN ENCRYPTED PRIVATE KEY-----";
const END: &[u8] = b"-----END ENCRYPTED PRIVATE KEY-----";
const PLAIN: [&[u8]; 3] =
    [b"-----BEGIN PRIVATE KEY-----", b"-----BEGIN RSA PRIVATE KEY-----", b"-----BEGIN EC PRIVATE KEY-----"];

const OLD: &str = "the key is encrypted in OpenSSL's own old way (`Proc-Type: 4,ENCRYPTED`), which protects it badly and is \
                   not read: `openssl pkcs8 -topk8` writes it anew";
const UNKNOWN: &str = "the key is encrypted in a way that is not read: `openssl pkcs8 -topk8 -v2 aes-256-cbc` writes it \
                       anew (PBES2 with PBKDF2 or scrypt, and AES)";
