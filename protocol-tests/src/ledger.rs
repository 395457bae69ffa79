//! What handlers did, kept outside of their process.
//!
//! A file that many processes append to. Every entry is one write to a file opened for appending, so entries never mix,
//! their order is the order in which things happened, and what was written stays when the process is killed.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A ledger to write to.
#[derive(Debug)]
pub struct Ledger {
    file: File,
}

/// One line of a ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// What happened.
    pub what: What,
    /// In which process.
    pub pid: u32,
    /// The topic that the record was read from.
    pub topic: String,
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// Which attempt it was.
    pub attempt: u32,
    /// The record's value, as text.
    pub value: String,
}

/// What happens to a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// The handler was called.
    Begin,
    /// It succeeded.
    Done,
    /// It failed.
    Failed,
}

impl Ledger {
    /// The ledger in this file, which is made if need be.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        Ok(Self { file: OpenOptions::new().append(true).create(true).open(path)? })
    }

    /// Adds an entry.
    ///
    /// # Panics
    /// When it cannot be written: a test that counts on the ledger would count wrong.
    pub fn add(&self, entry: &Entry) {
        let mut line = serde_json::to_vec(entry).expect("an entry is JSON");
        line.push(b'\n');
        let written = (&self.file).write(&line).expect("the ledger can be written");
        assert_eq!(written, line.len(), "an entry is one write");
    }

    /// All entries of a file, in the order they were written. None if there is no such file yet.
    ///
    /// # Panics
    /// When it holds anything else.
    pub fn read(path: &Path) -> Vec<Entry> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => panic!("{}: {error}", path.display()),
        };
        // A line that is being written just now is no entry yet.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line:?}: {e}"))).collect()
    }
}

/// A file of its own under the folder for temporary files, removed when dropped.
#[derive(Debug)]
pub struct TempPath(PathBuf);

impl TempPath {
    /// A path that nobody uses. Nothing is made there.
    pub fn new(prefix: &str) -> Self {
        Self(std::env::temp_dir().join(crate::unique(prefix)))
    }
}

impl std::ops::Deref for TempPath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempPath {
    fn drop(&mut self) {
        // A failed test leaves its ledger for whoever looks into it.
        if !std::thread::panicking() {
            let _ = std::fs::remove_file(&self.0);
        }
    }
}
