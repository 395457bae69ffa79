//! Links in the project's documents lead somewhere, and the tests that they name exist.

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

/// A row of the fault table whose test was renamed or removed claims what nothing proves.
#[test]
fn every_test_of_the_fault_table_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = fs::read_to_string(root.join("docs/faults.md")).expect("readable document");
    // What becomes of other clients is no row of ours.
    let table = document.split("\n## Other clients").next().expect("a part before it");
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| ---")).collect();
    let mut named = 0;
    let mut wrong = Vec::new();
    for row in rows.iter().filter(|row| !row.starts_with("| report |")) {
        let cells: Vec<&str> = row.split(" |").map(|cell| cell.trim_start_matches('|').trim()).collect();
        assert!(cells.len() == 5, "four columns: {row}");
        let tests: Vec<(&str, &str)> = cells[2].split('`').filter_map(|part| part.split_once("::")).collect();
        named += tests.len();
        if tests.is_empty() != cells[3].starts_with("later") {
            wrong.push(format!("{}: a row without a test is for later, and no other", cells[0]));
        }
        let missing = tests.into_iter().filter(|(path, name)| !has_test(&root.join(path), name));
        wrong.extend(missing.map(|(path, name)| format!("{}: {path} has no test {name}", cells[0])));
    }
    assert!(named > 50, "{named} tests were looked for: the walk is broken");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether the file has this function right behind a test's attribute, or in a `proptest!`; or, a script, this stage.
fn has_test(path: &Path, name: &str) -> bool {
    let Ok(text) = fs::read_to_string(path) else { return false };
    if path.extension().is_none() {
        return text.lines().any(|line| line.starts_with(&format!("{name}() {{")));
    }
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let defines = |line: &str| line.trim_start_matches("async ").starts_with(&format!("fn {name}("));
    let attribute = |line: &&str| line.starts_with("#[") || line.starts_with("//");
    lines.iter().enumerate().any(|(at, line)| {
        let above = lines[..at].iter().rev().take_while(|line| attribute(line));
        defines(line) && above.into_iter().any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
    })
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
