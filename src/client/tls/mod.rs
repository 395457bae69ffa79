//! TLS to brokers, by rustls.
//!
//! ```text
//!   TlsBuilder ─ provider, authorities, identity ─► Tls ─► TlsConnector ─► TcpConnector
//!        files ─ looked at again at new connections ─┘
//! ```

mod builder;
mod connector;
mod failure;
mod files;
mod key;
#[cfg(test)]
mod tests;
mod verifier;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use rustls::crypto::CryptoProvider;

use super::ConfigError;
use super::connection::now;

pub use builder::TlsBuilder;
pub(crate) use connector::TlsConnector;

use builder::Recipe;
use files::Stamps;

/// How TLS is spoken with brokers. Cheap to clone; all clones share what is read anew.
///
/// The crypto provider is the caller's: kafka-harbor brings none, so that nobody compiles two.
///
/// | provider | is |
/// | --- | --- |
/// | `rustls_graviola::default_provider()` | Rust and proven assembly, no C, nothing but `rustc` to build it; x86-64 (with AVX2, ADX) and AArch64 alone. What this crate's own tool and tests use |
/// | `rustls::crypto::ring::default_provider()` (rustls' feature `ring`) | on nearly every target; compiles C |
/// | `rustls::crypto::aws_lc_rs::default_provider()` (its feature `aws-lc-rs`) | fast, FIPS is possible; compiles C, and wants CMake on some targets |
///
/// `rustls-rustcrypto` is pure Rust too; its authors say not to use it in production. `examples/providers` of the repository are
/// programs with `ring` and with `aws-lc-rs`, and the features to ask for.
///
/// ```no_run
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use kafka_harbor::client::{Client, Tls};
///
/// let tls = Tls::builder(rustls_graviola::default_provider())
///     .authorities_file("/etc/kafka/ca.pem")
///     .identity_files("/etc/kafka/client.pem", "/etc/kafka/client.key")
///     .build()?;
/// let client = Client::builder(["kafka.example.com:9093"]).tls(tls).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Tls(Arc<Shared>);

struct Shared {
    /// `None` where the caller made the configuration.
    recipe: Option<Recipe>,
    current: Mutex<Current>,
}

struct Current {
    config: Arc<ClientConfig>,
    /// The files' state when they were read.
    stamps: Stamps,
    looked_at: Instant,
}

impl Tls {
    /// Options of TLS with this crypto provider.
    pub fn builder(provider: impl Into<Arc<CryptoProvider>>) -> TlsBuilder {
        TlsBuilder::new(provider.into())
    }

    /// TLS as this configuration has it. Nothing of it is changed or read anew.
    pub fn from_config(config: impl Into<Arc<ClientConfig>>) -> Self {
        let current = Current { config: config.into(), stamps: Stamps::default(), looked_at: now() };
        Self(Arc::new(Shared { recipe: None, current: Mutex::new(current) }))
    }

    fn cooked(recipe: Recipe, stamps: Stamps, config: ClientConfig) -> Self {
        let current = Current { config: Arc::new(config), stamps, looked_at: now() };
        Self(Arc::new(Shared { recipe: Some(recipe), current: Mutex::new(current) }))
    }

    /// Reads the files of authorities and identity now, changed or not. New connections use what is in them; those that
    /// exist go on as they are. Blocks for as long as reading takes.
    ///
    /// # Errors
    /// When they cannot be used. What was read before stays in use.
    pub fn reload(&self) -> Result<(), ConfigError> {
        let Some(recipe) = &self.0.recipe else { return Ok(()) };
        let stamps = recipe.stamps();
        let config = recipe.cook()?;
        *self.0.current() = Current { config: Arc::new(config), stamps, looked_at: now() };
        Ok(())
    }

    /// What a new connection uses: the files anew, if it is time to look at them and they changed.
    async fn current(&self) -> Arc<ClientConfig> {
        let due = {
            let mut current = self.0.current();
            let interval = self.0.recipe.as_ref().and_then(Recipe::reload_interval);
            let due = interval.is_some_and(|interval| now().saturating_duration_since(current.looked_at) >= interval);
            if due {
                // One connection looks, the others of the same moment go on.
                current.looked_at = now();
            }
            due
        };
        if due {
            let this = self.clone();
            let looked = tokio::task::spawn_blocking(move || this.reload_if_changed()).await;
            if let Ok(Err(error)) = looked {
                tracing::warn!(%error, "certificates cannot be read anew; those read before stay in use");
            }
        }
        self.0.current().config.clone()
    }

    fn reload_if_changed(&self) -> Result<(), ConfigError> {
        let Some(recipe) = &self.0.recipe else { return Ok(()) };
        if self.0.current().stamps == recipe.stamps() {
            return Ok(());
        }
        self.reload()?;
        tracing::info!("certificates were read anew");
        Ok(())
    }
}

impl Shared {
    fn current(&self) -> MutexGuard<'_, Current> {
        // Whole values are put in; a panic cannot leave one half done.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// No keys.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.recipe {
            Some(recipe) => recipe.fmt(f),
            None => f.write_str("Tls(a configuration of the caller's)"),
        }
    }
}

/// How long files are taken to be unchanged.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);
