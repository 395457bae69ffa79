//! A layer uses those above it in the table, never those below it: `DESIGN.md`, "Layers".

use std::fs;
use std::path::{Path, PathBuf};

/// From the top of the table to its bottom. Modules of one row may use each other.
const LAYERS: &[&[&str]] = &[
    &["error"],
    &["record", "retry", "clock"],
    &["observe"],
    &["protocol"],
    &["machine"],
    &["memory"],
    &["envelope"],
    &["client"],
    &["pulsar"],
    &["adapter"],
    &["harbor"],
    &["babelqueue"],
    &["testing"],
];

/// What a module must not know of although it stands above it: the framework sees brokers through the port alone.
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("harbor", &["client", "machine", "memory", "pulsar"]),
    ("babelqueue", &["client", "machine", "memory", "pulsar"]),
];

#[test]
fn no_module_uses_a_layer_below_its_own() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut seen = 0;
    let mut wrong = Vec::new();
    for file in rust_files(&src) {
        let relative = file.strip_prefix(&src).expect("found under src");
        if relative.file_name().is_some_and(|name| name == "tests.rs") || relative.iter().any(|part| part == "tests") {
            continue;
        }
        let own = module_of(relative);
        let Some(own_row) = row(&own) else { continue };
        seen += 1;
        for (number, line) in code_lines(&fs::read_to_string(&file).expect("readable source")) {
            for used in modules_named(line) {
                let below = row(used).is_some_and(|used_row| used_row > own_row);
                let forbidden = FORBIDDEN.iter().any(|(module, not)| *module == own && not.contains(&used));
                if below || forbidden {
                    wrong.push(format!("{}:{number}: {own} uses {used}: {}", relative.display(), line.trim()));
                }
            }
        }
    }
    assert!(seen > 10, "only {seen} files were looked at: the walk is broken");
    assert!(wrong.is_empty(), "layers point the wrong way:\n{}", wrong.join("\n"));
}

#[test]
fn every_module_of_the_crate_has_a_row() {
    let lib = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).expect("lib.rs");
    let mut seen = 0;
    for line in lib.lines() {
        let Some(rest) = line.trim().strip_prefix("pub mod ").or_else(|| line.trim().strip_prefix("mod ")) else {
            continue;
        };
        let module = rest.trim_end_matches(';');
        assert!(row(module).is_some(), "module {module} has no row in the table of layers");
        seen += 1;
    }
    assert!(seen > 5, "only {seen} modules were looked at");
}

fn row(module: &str) -> Option<usize> {
    LAYERS.iter().position(|row| row.contains(&module))
}

fn module_of(relative: &Path) -> String {
    let first = relative.components().next().expect("a file").as_os_str().to_string_lossy().into_owned();
    first.trim_end_matches(".rs").to_owned()
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).expect("readable folder") {
        let path = entry.expect("entry").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            files.push(path);
        }
    }
    files
}

/// Lines that are code, up to the file's own tests: those may use what they need.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .take_while(|(_, line)| line.trim() != "#[cfg(test)]")
        .map(|(index, line)| (index + 1, line))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Every `crate::name` of a line, and every name of a `crate::{a, b}`.
fn modules_named(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices("crate::") {
        let rest = &line[at + "crate::".len()..];
        if let Some(group) = rest.strip_prefix('{') {
            found.extend(group.split([',', '}']).map(|part| first_word(part.trim())));
        } else {
            found.push(first_word(rest));
        }
    }
    found
}

fn first_word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}
