use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::files::{Source, Stamps};
use super::verifier::AnyName;
use super::{RELOAD_INTERVAL, Tls};
use crate::client::secret::Secret;
use crate::client::{ConfigError, Problems};

/// Options of TLS. A broker's certificate is checked against the authorities that are given here, and against the host
/// name or address that was connected to.
#[derive(Clone, Debug)]
#[must_use]
pub struct TlsBuilder {
    recipe: Recipe,
    system_roots: bool,
}

/// What a configuration is made of, each time.
#[derive(Clone)]
pub(super) struct Recipe {
    provider: Arc<CryptoProvider>,
    authorities: Vec<Source>,
    system: Vec<CertificateDer<'static>>,
    identity: Option<(Source, Source)>,
    key_password: Option<Secret>,
    any_name: bool,
    reload_interval: Option<Duration>,
}

impl TlsBuilder {
    pub(super) fn new(provider: Arc<CryptoProvider>) -> Self {
        let recipe = Recipe {
            provider,
            authorities: Vec::new(),
            system: Vec::new(),
            identity: None,
            key_password: None,
            any_name: false,
            reload_interval: Some(RELOAD_INTERVAL),
        };
        Self { recipe, system_roots: false }
    }

    /// Trusts the certificate authorities in this PEM file, beside others that are given. Java: `ssl.truststore.location` with
    /// `ssl.truststore.type=PEM`.
    pub fn authorities_file(mut self, path: impl AsRef<Path>) -> Self {
        self.recipe.authorities.push(Source::file(path));
        self
    }

    /// Trusts these certificate authorities, in PEM. Java: `ssl.truststore.certificates`.
    pub fn authorities_pem(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.recipe.authorities.push(Source::memory(pem));
        self
    }

    /// Trusts what the operating system trusts too. Default: only what is given. Read once, when building.
    #[cfg(feature = "tls-system-roots")]
    pub fn system_authorities(mut self) -> Self {
        self.system_roots = true;
        self
    }

    /// Presents this certificate, its chain after it, and proves to have the key: mutual TLS. Both PEM; one file may hold both.
    /// Java: `ssl.keystore.location` with `ssl.keystore.type=PEM`.
    pub fn identity_files(mut self, certificates: impl AsRef<Path>, key: impl AsRef<Path>) -> Self {
        self.recipe.identity = Some((Source::file(certificates), Source::file(key)));
        self
    }

    /// As [`identity_files`](Self::identity_files), from PEM in memory. Java: `ssl.keystore.certificate.chain`,
    /// `ssl.keystore.key`.
    pub fn identity_pem(mut self, certificates: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        self.recipe.identity = Some((Source::memory(certificates), Source::memory(key)));
        self
    }

    /// The password of an encrypted key: PKCS#8 with PBES2, as `openssl pkcs8 -topk8` and `openssl genpkey -aes256` write it.
    /// One that is not encrypted is read without it. Java: `ssl.key.password`.
    pub fn key_password(mut self, password: impl Into<String>) -> Self {
        self.recipe.key_password = Some(Secret::new(password));
        self
    }

    /// How long files are taken to be unchanged: the first new connection after it looks at them, and if one changed, it and
    /// all later ones use what is in them. Files that cannot be used are warned of, and what was read before stays. `None`
    /// never looks; [`Tls::reload`] does at any time. Default 10 s, from 1 s to a day.
    pub fn reload_interval(mut self, interval: Option<Duration>) -> Self {
        self.recipe.reload_interval = interval;
        self
    }

    /// Takes a certificate of a trusted authority whatever name it is for: whoever has any certificate of that authority can
    /// pose as a broker. Java: an empty `ssl.endpoint.identification.algorithm`.
    pub fn dangerous_without_host_names(mut self) -> Self {
        self.recipe.any_name = true;
        self
    }

    /// Reads the files and checks everything.
    ///
    /// # Errors
    /// Naming every option that cannot be used.
    pub fn build(mut self) -> Result<Tls, ConfigError> {
        let mut problems = Problems::default();
        if let Some(interval) = self.recipe.reload_interval {
            problems.require_within(
                "reload_interval",
                interval,
                Duration::from_secs(1)..=Duration::from_secs(24 * 3600),
            );
        }
        if self.system_roots {
            self.recipe.system = system_authorities(&mut problems);
        }
        let stamps = self.recipe.stamps();
        match self.recipe.cook() {
            Ok(config) => {
                problems.finish()?;
                Ok(Tls::cooked(self.recipe, stamps, config))
            }
            Err(error) => {
                problems.extend(error);
                problems.finish()?;
                unreachable!("a problem was noted")
            }
        }
    }
}

impl Recipe {
    pub(super) fn reload_interval(&self) -> Option<Duration> {
        self.sources().any(Source::is_file).then_some(self.reload_interval).flatten()
    }

    pub(super) fn stamps(&self) -> Stamps {
        self.sources().map(Source::stamp).collect()
    }

    /// Reads what there is to read.
    pub(super) fn cook(&self) -> Result<ClientConfig, ConfigError> {
        let mut problems = Problems::default();
        let roots = self.roots(&mut problems);
        let identity = self.identity(&mut problems);
        let config = self.config(roots, identity, &mut problems);
        problems.finish()?;
        Ok(config.expect("what stood in its way was noted as a problem"))
    }

    fn sources(&self) -> impl Iterator<Item = &Source> {
        let identity = self.identity.iter().flat_map(|(certificates, key)| [certificates, key]);
        self.authorities.iter().chain(identity)
    }

    fn roots(&self, problems: &mut Problems) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        // A system may hold certificates that nobody can read; the others serve.
        roots.add_parsable_certificates(self.system.iter().cloned());
        for source in &self.authorities {
            match source.certificates() {
                Ok(certificates) => {
                    for certificate in certificates {
                        if let Err(error) = roots.add(certificate) {
                            problems
                                .add("authorities", format_args!("a certificate in {source} cannot be used: {error}"));
                        }
                    }
                }
                Err(problem) => problems.add("authorities", problem),
            }
        }
        if self.authorities.is_empty() && roots.is_empty() {
            problems.add("authorities", "none is given, so that no broker could be trusted");
        }
        roots
    }

    fn identity(&self, problems: &mut Problems) -> Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
        let (certificates, key) = self.identity.as_ref()?;
        match (certificates.certificates(), key.key(self.key_password.as_ref())) {
            (Ok(certificates), Ok(key)) => Some((certificates, key)),
            (certificates, key) => {
                certificates.err().into_iter().chain(key.err()).for_each(|problem| problems.add("identity", problem));
                None
            }
        }
    }

    fn config(
        &self,
        roots: RootCertStore,
        identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
        problems: &mut Problems,
    ) -> Option<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(self.provider.clone()).with_safe_default_protocol_versions();
        let builder = match builder {
            Ok(builder) => builder,
            Err(error) => {
                problems.add("provider", error);
                return None;
            }
        };
        if roots.is_empty() {
            return None;
        }
        let builder = if self.any_name {
            let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone()).build();
            match verifier {
                Ok(verifier) => builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyName(verifier))),
                Err(error) => {
                    problems.add("authorities", error);
                    return None;
                }
            }
        } else {
            builder.with_root_certificates(roots)
        };
        match identity {
            None => Some(builder.with_no_client_auth()),
            Some((certificates, key)) => builder
                .with_client_auth_cert(certificates, key)
                .map_err(|error| problems.add("identity", format_args!("certificate and key cannot be used: {error}")))
                .ok(),
        }
    }
}

impl fmt::Debug for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("authorities", &self.authorities)
            .field("system_authorities", &self.system.len())
            .field("identity", &self.identity)
            .field("key_password", &self.key_password)
            .field("dangerous_without_host_names", &self.any_name)
            .finish_non_exhaustive()
    }
}

#[cfg(feature = "tls-system-roots")]
fn system_authorities(problems: &mut Problems) -> Vec<CertificateDer<'static>> {
    let loaded = rustls_native_certs::load_native_certs();
    if loaded.certs.is_empty() {
        let why = loaded.errors.first().map_or_else(|| "it has none".to_owned(), ToString::to_string);
        problems.add("system_authorities", format_args!("the system's cannot be had: {why}"));
    }
    loaded.certs
}

#[cfg(not(feature = "tls-system-roots"))]
fn system_authorities(_: &mut Problems) -> Vec<CertificateDer<'static>> {
    Vec::new()
}
