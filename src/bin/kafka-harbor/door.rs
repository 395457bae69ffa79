//! How the cluster is entered: TLS and login, from flags, the environment and a file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::Args;
use kafka_harbor::client::{BearerToken, Login, OidcTokens, Tls, TlsBuilder};

use crate::failure::{Failure, chain};
use crate::properties::{self, Jaas, Properties};

/// Flags win over the file. Secrets are never arguments, which every user of the machine can read: they come from a
/// file or from KAFKA_PASSWORD, KAFKA_TOKEN or KAFKA_KEY_PASSWORD.
#[derive(Debug, Args)]
#[command(next_help_heading = "Security")]
pub(crate) struct DoorArgs {
    /// Java's client.properties: bootstrap.servers, client.id, security.protocol, sasl.*, ssl.* with PEM stores
    #[arg(long = "command-config", global = true, env = "KAFKA_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Speak TLS; the system's authorities are trusted unless --ca is given
    #[arg(long, global = true)]
    tls: bool,
    /// Trust these authorities alone, PEM; implies --tls
    #[arg(long, global = true, env = "KAFKA_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Present this certificate, PEM; implies --tls
    #[arg(long, global = true, env = "KAFKA_CLIENT_CERT", value_name = "FILE")]
    client_cert: Option<PathBuf>,
    /// Its key, PEM; else it is in the file of --client-cert
    #[arg(long, global = true, env = "KAFKA_CLIENT_KEY", value_name = "FILE")]
    client_key: Option<PathBuf>,
    /// The key's password, if it is encrypted, is this file's first line; else KAFKA_KEY_PASSWORD has it
    #[arg(long, global = true, env = "KAFKA_KEY_PASSWORD_FILE", value_name = "FILE")]
    key_password_file: Option<PathBuf>,
    /// Take a certificate whatever name it is for: whoever has one of that authority can pose as a broker
    #[arg(long, global = true)]
    dangerous_without_host_names: bool,
    /// Log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER
    #[arg(long, global = true, env = "KAFKA_SASL", value_name = "MECHANISM")]
    sasl: Option<String>,
    /// As whom; of OAUTHBEARER the client id
    #[arg(long, global = true, env = "KAFKA_USER", value_name = "NAME")]
    user: Option<String>,
    /// The password, or the client's secret, is this file's first line; else KAFKA_PASSWORD has it
    #[arg(long, global = true, env = "KAFKA_PASSWORD_FILE", value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// The token is this file's first line; else KAFKA_TOKEN has it
    #[arg(long, global = true, env = "KAFKA_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Fetch tokens from here by OpenID Connect
    #[arg(long, global = true, env = "KAFKA_TOKEN_ENDPOINT", value_name = "URL")]
    token_endpoint: Option<String>,
    /// What the token is to be good for
    #[arg(long, global = true, env = "KAFKA_TOKEN_SCOPE", value_name = "SCOPE")]
    token_scope: Option<String>,
}

/// What the options come to.
pub(crate) struct Door {
    pub(crate) bootstrap: Option<String>,
    pub(crate) client_id: Option<String>,
    pub(crate) tls: Option<Tls>,
    pub(crate) login: Option<Login>,
}

impl DoorArgs {
    pub(crate) fn open(&self) -> Result<Door, Failure> {
        let mut properties = match &self.config {
            None => Properties::new(),
            Some(path) => properties::parse(&read(path)?),
        };
        let credentials = self.overlay(&mut properties)?;
        let protocol = Protocol::of(&properties)?;
        let tls = if protocol.tls { Some(self.tls(&properties)?) } else { None };
        let login = if protocol.sasl { Some(login(&properties, credentials, tls.as_ref())?) } else { None };
        let given = |name: &str| properties.get(name).filter(|text| !text.is_empty()).cloned();
        Ok(Door { bootstrap: given("bootstrap.servers"), client_id: given("client.id"), tls, login })
    }

    /// Puts what the flags say into Java's words.
    fn overlay(&self, properties: &mut Properties) -> Result<Credentials, Failure> {
        let mut set = |name: &str, value: String| properties.insert(name.to_owned(), value);
        let path = |path: &Path| path.display().to_string();
        if let Some(ca) = &self.ca {
            set("ssl.truststore.type", "PEM".into());
            set("ssl.truststore.location", path(ca));
        }
        if let Some(mechanism) = &self.sasl {
            set("sasl.mechanism", mechanism.to_uppercase());
        }
        if self.dangerous_without_host_names {
            set("ssl.endpoint.identification.algorithm", String::new());
        }
        if let Some(url) = &self.token_endpoint {
            set("sasl.oauthbearer.token.endpoint.url", url.clone());
        }
        let had = Protocol::of(properties)?;
        let tls = had.tls || self.tls || self.ca.is_some() || self.client_cert.is_some() || self.client_key.is_some();
        let name = match (tls, had.sasl || self.sasl.is_some()) {
            (false, false) => "PLAINTEXT",
            (false, true) => "SASL_PLAINTEXT",
            (true, false) => "SSL",
            (true, true) => "SASL_SSL",
        };
        properties.insert("security.protocol".into(), name.into());
        Ok(Credentials {
            user: self.user.clone(),
            password: secret(self.password_file.as_deref(), "KAFKA_PASSWORD")?,
            token: secret(self.token_file.as_deref(), "KAFKA_TOKEN")?,
            scope: self.token_scope.clone(),
        })
    }

    fn tls(&self, properties: &Properties) -> Result<Tls, Failure> {
        check_cpu()?;
        let mut builder = Tls::builder(rustls_graviola::default_provider());
        builder = match (properties.get("ssl.truststore.certificates"), store(properties, "truststore")?) {
            (Some(pem), _) => builder.authorities_pem(properties::pem(pem)),
            (None, Some(path)) => builder.authorities_file(path),
            (None, None) => builder.system_authorities(),
        };
        builder = self.identity(builder, properties)?;
        let password = secret(self.key_password_file.as_deref(), "KAFKA_KEY_PASSWORD")?;
        if let Some(password) = password.or_else(|| properties.get("ssl.key.password").cloned()) {
            builder = builder.key_password(password);
        }
        match properties.get("ssl.endpoint.identification.algorithm").map(|text| text.trim().to_lowercase()) {
            Some(none) if none.is_empty() => builder = builder.dangerous_without_host_names(),
            None => {}
            Some(https) if https == "https" => {}
            Some(_) => return Err(Failure::usage("ssl.endpoint.identification.algorithm is neither https nor empty")),
        }
        builder.build().map_err(|error| Failure::usage(chain(&error)))
    }

    fn identity(&self, builder: TlsBuilder, properties: &Properties) -> Result<TlsBuilder, Failure> {
        if let Some(cert) = &self.client_cert {
            return Ok(builder.identity_files(cert, self.client_key.as_ref().unwrap_or(cert)));
        }
        if self.client_key.is_some() {
            return Err(Failure::usage("--client-key without --client-cert: which certificate is it the key of?"));
        }
        match (properties.get("ssl.keystore.certificate.chain"), properties.get("ssl.keystore.key")) {
            (Some(chain), Some(key)) => Ok(builder.identity_pem(properties::pem(chain), properties::pem(key))),
            (None, None) => Ok(match store(properties, "keystore")? {
                Some(path) => builder.identity_files(&path, &path),
                None => builder,
            }),
            _ => Err(Failure::usage("ssl.keystore.certificate.chain and ssl.keystore.key go together")),
        }
    }
}

struct Credentials {
    user: Option<String>,
    password: Option<String>,
    token: Option<String>,
    scope: Option<String>,
}

#[derive(Clone, Copy)]
struct Protocol {
    tls: bool,
    sasl: bool,
}

impl Protocol {
    fn of(properties: &Properties) -> Result<Self, Failure> {
        let name = properties.get("security.protocol").map_or("PLAINTEXT", |name| name.trim());
        let (tls, sasl) = match name.to_uppercase().as_str() {
            "PLAINTEXT" => (false, false),
            "SSL" => (true, false),
            "SASL_PLAINTEXT" => (false, true),
            "SASL_SSL" => (true, true),
            _ => return Err(Failure::usage(format!("security.protocol {name:?} is none of Kafka's four"))),
        };
        Ok(Self { tls, sasl })
    }
}

fn login(properties: &Properties, given: Credentials, tls: Option<&Tls>) -> Result<Login, Failure> {
    // Java's default.
    let mechanism = properties.get("sasl.mechanism").map_or("GSSAPI", |name| name.trim());
    let jaas = match properties.get("sasl.jaas.config") {
        Some(text) => Some(Jaas::parse(text).map_err(|why| Failure::usage(format!("sasl.jaas.config: {why}")))?),
        None => None,
    };
    let expected = match mechanism {
        "PLAIN" => "PlainLoginModule",
        "SCRAM-SHA-256" | "SCRAM-SHA-512" => "ScramLoginModule",
        "OAUTHBEARER" => "OAuthBearerLoginModule",
        "GSSAPI" => return Err(Failure::usage("Kerberos (GSSAPI, Java's default of sasl.mechanism) is not supported")),
        _ => return Err(Failure::usage(format!("sasl mechanism {mechanism:?} is not supported"))),
    };
    if let Some(jaas) = jaas.as_ref().filter(|jaas| jaas.module != expected) {
        let what = format!("sasl.jaas.config is for {}, and {mechanism} wants {expected}", jaas.module);
        return Err(Failure::usage(what));
    }
    let options = jaas.map_or_else(BTreeMap::new, |jaas| jaas.options);
    if mechanism == "OAUTHBEARER" {
        return bearer(properties, given, &options, tls);
    }
    let option = |name: &str| options.get(name).cloned();
    let user = given
        .user
        .or_else(|| option("username"))
        .ok_or_else(|| Failure::usage("log in as whom? give --user, KAFKA_USER, or username in sasl.jaas.config"))?;
    let password = given.password.or_else(|| option("password")).ok_or_else(|| {
        Failure::usage("by which password? give --password-file, KAFKA_PASSWORD, or password in sasl.jaas.config")
    })?;
    let login = match mechanism {
        "PLAIN" => Login::plain(user, password),
        "SCRAM-SHA-256" => Login::scram_sha_256(user, password),
        _ => Login::scram_sha_512(user, password),
    };
    let is_token = option("tokenauth").is_some_and(|text| text.eq_ignore_ascii_case("true"));
    Ok(if is_token { login.with_delegation_token() } else { login })
}

fn bearer(
    properties: &Properties,
    given: Credentials,
    options: &BTreeMap<String, String>,
    tls: Option<&Tls>,
) -> Result<Login, Failure> {
    let usage = |error: &dyn std::error::Error| Failure::usage(chain(error));
    let extensions = options.iter().filter_map(|(name, value)| Some((name.strip_prefix("extension_")?, value)));
    let endpoint = properties.get("sasl.oauthbearer.token.endpoint.url");
    let unsecured = options.get("unsecuredLoginStringClaim_sub");
    let token = match (given.token, endpoint, unsecured) {
        (Some(token), _, _) => token,
        (None, Some(url), _) => {
            let find = |option: &str, property: &str| options.get(option).or_else(|| properties.get(property)).cloned();
            let at = "sasl.oauthbearer.client.credentials.client";
            let id = given.user.or_else(|| find("clientId", &format!("{at}.id")));
            let id = id.ok_or_else(|| Failure::usage("whose tokens? give --user, KAFKA_USER or clientId"))?;
            let secret = given.password.or_else(|| find("clientSecret", &format!("{at}.secret")));
            let secret = secret.ok_or_else(|| {
                Failure::usage(
                    "by which secret? give --password-file, KAFKA_PASSWORD, or clientSecret in sasl.jaas.config",
                )
            })?;
            let mut tokens = OidcTokens::builder(url, id, secret);
            if let Some(scope) = given.scope.or_else(|| find("scope", "sasl.oauthbearer.scope")) {
                tokens = tokens.scope(scope);
            }
            let encoded = properties.get("sasl.oauthbearer.header.urlencode");
            tokens = tokens.url_encoded_credentials(encoded.is_some_and(|text| text.eq_ignore_ascii_case("true")));
            for (name, value) in extensions {
                tokens = tokens.extension(name, value);
            }
            if let Some(tls) = tls {
                tokens = tokens.tls(tls.clone());
            }
            return Ok(Login::oauth_bearer(tokens.build().map_err(|error| usage(&error))?));
        }
        (None, None, Some(subject)) => unsecured_token(subject),
        (None, None, None) => {
            return Err(Failure::usage("by which token? give --token-file, KAFKA_TOKEN or --token-endpoint"));
        }
    };
    let mut token = BearerToken::new(token).map_err(|error| usage(&error))?;
    for (name, value) in extensions {
        token = token.with_extension(name, value).map_err(|error| usage(&error))?;
    }
    Ok(Login::oauth_bearer(token))
}

/// What Java makes for brokers of a test: a token that nobody signed.
fn unsecured_token(subject: &str) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let claims = serde_json::json!({ "sub": subject, "iat": now, "exp": now + 3600 }).to_string();
    format!("{}.{}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#), URL_SAFE_NO_PAD.encode(claims))
}

/// The file of a store, if it is one that can be read.
fn store(properties: &Properties, which: &str) -> Result<Option<String>, Failure> {
    let Some(path) = properties.get(&format!("ssl.{which}.location")).filter(|path| !path.is_empty()) else {
        return Ok(None);
    };
    let kind = properties.get(&format!("ssl.{which}.type")).map_or("JKS", |kind| kind.trim());
    if kind.eq_ignore_ascii_case("PEM") {
        return Ok(Some(path.clone()));
    }
    let how = match which {
        "truststore" => "`keytool -list -rfc -keystore FILE` prints its certificates",
        _ => "make it PKCS12 by `keytool -importkeystore`, and that PEM by `openssl pkcs12 -nodes`",
    };
    let default = if properties.contains_key(&format!("ssl.{which}.type")) { "" } else { ", Java's default" };
    let what = format!("ssl.{which}.type is {kind}{default}: only PEM stores are read; {how}");
    Err(Failure::usage(what))
}

fn secret(file: Option<&Path>, variable: &str) -> Result<Option<String>, Failure> {
    let text = match file {
        Some(path) => Some(String::from_utf8_lossy(&read(path)?).into_owned()),
        None => std::env::var(variable).ok().filter(|text| !text.is_empty()),
    };
    // Editors end a file with a line break, and it is no part of the secret.
    Ok(text.map(|text| text.lines().next().unwrap_or_default().to_owned()))
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
}

/// Graviola ends the process where the processor lacks what it needs; better to say so.
fn check_cpu() -> Result<(), Failure> {
    #[cfg(target_arch = "x86_64")]
    if !(is_x86_feature_detected!("aes")
        && is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("adx")
        && is_x86_feature_detected!("bmi2"))
    {
        return Err(Failure::refused("TLS of this tool needs a processor with AES, PCLMULQDQ, AVX2, ADX and BMI2"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(lines: &[&str]) -> Properties {
        properties::parse(lines.join("\n").as_bytes())
    }

    fn nothing() -> Credentials {
        Credentials { user: None, password: None, token: None, scope: None }
    }

    fn refused(lines: &[&str]) -> String {
        format!("{:?}", login(&properties(lines), nothing(), None).expect_err("refused"))
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name_and_quotes_no_secret() {
        let kerberos = "sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required;";
        assert!(refused(&[kerberos]).contains("Kerberos"));
        assert!(refused(&["sasl.mechanism=AWS_MSK_IAM"]).contains("AWS_MSK_IAM"));
        let other = "sasl.jaas.config=x.PlainLoginModule required username=a password=s3cret;";
        let text = refused(&["sasl.mechanism=SCRAM-SHA-512", other]);
        assert!(text.contains("is for PlainLoginModule") && !text.contains("s3cret"), "{text}");
        let text = refused(&["sasl.mechanism=PLAIN", "sasl.jaas.config=x.PlainLoginModule required password=s3cret"]);
        assert!(text.contains("semicolon") && !text.contains("s3cret"), "{text}");
        assert!(refused(&["sasl.mechanism=PLAIN"]).contains("--user"));
        assert!(refused(&["sasl.mechanism=OAUTHBEARER"]).contains("--token-file"));
        let jks = store(&properties(&["ssl.truststore.location=/x.jks"]), "truststore").unwrap_err();
        assert!(format!("{jks:?}").contains("JKS, Java's default: only PEM"), "{jks:?}");
    }

    #[test]
    fn javas_logins_are_understood() {
        for (lines, shown) in [
            (
                &[
                    "sasl.mechanism=PLAIN",
                    "sasl.jaas.config=a.PlainLoginModule required username=\"u\" password=\"s3cret\";",
                ],
                "PLAIN",
            ),
            (
                &[
                    "sasl.mechanism=SCRAM-SHA-256",
                    "sasl.jaas.config=ScramLoginModule required username=u password=s3cret;",
                ],
                "SCRAM-SHA-256",
            ),
            (
                &[
                    "sasl.mechanism=OAUTHBEARER",
                    "sasl.jaas.config=OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=\"u\";",
                ],
                "OAUTHBEARER",
            ),
        ] {
            let login = login(&properties(lines), nothing(), None).ok().unwrap();
            let text = format!("{login:?}");
            assert!(text.contains(shown) && !text.contains("s3cret"), "{text}");
        }
    }
}
