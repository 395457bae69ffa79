//! PEM, from memory or from files.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::key;
use crate::client::secret::Secret;

/// Where a piece of PEM is. `Debug` shows a file's path, and of what is in memory nothing.
#[derive(Clone)]
pub(super) enum Source {
    Memory(Arc<[u8]>),
    File(PathBuf),
}

/// The state of a set of files, as far as it tells that one changed.
pub(super) type Stamps = Vec<Option<(SystemTime, u64)>>;

impl Source {
    pub(super) fn memory(pem: impl AsRef<[u8]>) -> Self {
        Self::Memory(pem.as_ref().into())
    }

    pub(super) fn file(path: impl AsRef<Path>) -> Self {
        Self::File(path.as_ref().to_owned())
    }

    pub(super) fn stamp(&self) -> Option<(SystemTime, u64)> {
        let Self::File(path) = self else { return None };
        // A mounted secret is a link that is moved; its target's times are what changes.
        let meta = fs::metadata(path).ok()?;
        Some((meta.modified().ok()?, meta.len()))
    }

    pub(super) fn is_file(&self) -> bool {
        matches!(self, Self::File(_))
    }

    /// Every certificate in it; at least one.
    pub(super) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let pem = self.read()?;
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        let certificates = certificates.map_err(|error| format!("{self} is no PEM: {error}"))?;
        if certificates.is_empty() {
            return Err(format!("{self} holds no certificate in PEM (`BEGIN CERTIFICATE`)"));
        }
        Ok(certificates)
    }

    /// The first private key in it, decrypted if need be.
    pub(super) fn key(&self, password: Option<&Secret>) -> Result<PrivateKeyDer<'static>, String> {
        let pem = self.read()?;
        key::read(&pem, password).map_err(|problem| format!("{self}: {problem}"))
    }

    fn read(&self) -> Result<Arc<[u8]>, String> {
        match self {
            Self::Memory(pem) => Ok(pem.clone()),
            Self::File(path) => {
                let meta = fs::metadata(path).map_err(|error| format!("{self}: {error}"))?;
                if meta.len() > LARGEST_FILE {
                    return Err(format!("{self} is larger than {} MiB", LARGEST_FILE >> 20));
                }
                fs::read(path).map(Arc::from).map_err(|error| format!("{self}: {error}"))
            }
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(_) => f.write_str("the text that was given"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Every authority of a system takes a quarter of it.
const LARGEST_FILE: u64 = 1 << 20;
