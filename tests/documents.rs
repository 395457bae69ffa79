//! Links in the project's documents lead somewhere.

use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_relative_link_resolves() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut links = 0;
    let mut broken = Vec::new();
    for document in documents(root) {
        let text = fs::read_to_string(&document).expect("readable document");
        for link in links_of(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            links += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target =
                if path.is_empty() { document.clone() } else { document.parent().expect("a folder").join(path) };
            if !target.exists() || (!anchor.is_empty() && !has_heading(&target, anchor)) {
                broken.push(format!("{}: {link}", document.strip_prefix(root).expect("under the root").display()));
            }
        }
    }
    assert!(links > 0, "no link was looked at: the walk is broken");
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

fn documents(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in ["", "docs", "scripts/brokers", "scripts/interop", "benches/peers", "fuzz"] {
        let Ok(entries) = fs::read_dir(root.join(folder)) else { continue };
        let paths = entries.map(|entry| entry.expect("entry").path());
        found.extend(paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    found
}

/// Targets of `[text](target)`, outside code.
fn links_of(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for (at, _) in line.match_indices("](") {
            let in_code = !line[..at].matches('`').count().is_multiple_of(2);
            if !in_code && let Some(end) = line[at + 2..].find(')') {
                found.push(&line[at + 2..at + 2 + end]);
            }
        }
    }
    found
}

/// Headings become anchors as GitHub makes them: lower case, spaces to hyphens, other signs dropped.
fn has_heading(document: &Path, anchor: &str) -> bool {
    let Ok(text) = fs::read_to_string(document) else { return false };
    text.lines().filter(|line| line.starts_with('#')).any(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).eq(anchor.chars())
    })
}
