//! Bugs to plant, each of which must be seen, by the simulation or by a test that is named with it, and eyes on the machines' states.
//!
//! Bugs are text, in `planted/*.bugs`: a name, a file, perhaps a test of the library, what stands there, and what is to stand there, with
//! `PLANTED` where the bug is switched on. `scripts/planted-tree` makes a copy of the tree with all of them in it, in which machines also note each
//! change of their states. `scripts/planted-bugs` runs it once for each bug, with that one on; `scripts/simulate` runs it
//! with none, and tells which changes never happened. Nothing of it is in the tree itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// One bug.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Bug {
    name: String,
    file: String,
    /// The test that fails with it, where the simulation does not see it.
    test: Option<String>,
    before: String,
    after: String,
}

#[test]
fn every_planted_bug_still_finds_its_place() {
    let bugs = bugs();
    let names: BTreeSet<_> = bugs.iter().map(|bug| &bug.name).collect();
    assert_eq!(names.len(), bugs.len(), "each has a name of its own");
    let mut sources = planted(&bugs).unwrap();
    for (file, machine) in WATCHED {
        let source = sources.remove(file).unwrap_or_else(|| fs::read_to_string(root().join(file)).unwrap());
        let (watched, found) = watch(machine, &source);
        assert!(found, "no change of state in {file}");
        sources.insert(file.to_owned(), watched);
    }
    if let Ok(tree) = std::env::var("SIM_PLANT_INTO") {
        sources.iter().for_each(|(file, text)| fs::write(Path::new(&tree).join(file), text).unwrap());
        let line = |bug: &Bug| format!("{} {}\n", bug.name, bug.test.as_deref().unwrap_or_default());
        let names: String = bugs.iter().map(line).collect();
        fs::write(Path::new(&tree).join("planted-bugs"), names).unwrap();
    }
}

#[test]
fn every_planted_bug_was_seen() {
    let table = fs::read_to_string(root().join("tests/simulation/planted/README.md")).unwrap();
    let row =
        |bug: &Bug| table.lines().find_map(|line| line.strip_prefix(&format!("| {} | ", bug.name)).map(str::to_owned));
    let is_seen = |bug: &&Bug| match (row(bug), &bug.test) {
        (Some(row), Some(test)) => row == format!("test {test} |"),
        (Some(row), None) => row.starts_with("seed "),
        (None, _) => false,
    };
    let bugs = bugs();
    let (seen, unseen): (Vec<_>, Vec<_>) = bugs.iter().partition(is_seen);
    assert!(unseen.is_empty(), "run scripts/planted-bugs --record: {:?}", names(unseen));
    let simulated = seen.iter().filter(|bug| bug.test.is_none()).count();
    assert!(simulated >= SIMULATED, "only {simulated} are seen by the simulation");
    let rows = table.lines().filter(|line| line.starts_with("| ")).count();
    assert_eq!(rows, bugs.len() + 2, "a row for each bug, below the table's head");
}

#[test]
fn every_test_that_is_to_see_a_bug_exists() {
    let bugs = bugs();
    let missing = bugs.iter().filter(|bug| bug.test.as_ref().is_some_and(|test| !exists(test))).collect();
    assert_eq!(names(missing), [""; 0]);
    assert!(!exists("machine::produce::tests::behaviour::nobody_has_written_it"));
    assert!(!exists("machine::produce::tests::nowhere"));
}

#[test]
fn a_bug_whose_place_has_changed_is_told() {
    let bug = |before: &str| Bug {
        name: "a-bug".to_owned(),
        file: "src/lib.rs".to_owned(),
        test: None,
        before: before.to_owned(),
        after: String::new(),
    };
    assert!(planted(&[bug("pub mod machine;\n")]).is_ok());
    assert!(planted(&[bug("pub mod machines;\n")]).unwrap_err().contains("a-bug: its place is 0 times in src/lib.rs"));
    assert!(planted(&[bug("pub mod ")]).is_err(), "several places are none");
}

/// The files of the tree with every bug in them, each behind its switch, and the switch.
fn planted(bugs: &[Bug]) -> Result<BTreeMap<String, String>, String> {
    let read = |file: &str| fs::read_to_string(root().join(file)).map_err(|error| format!("{file}: {error}"));
    let mut sources = BTreeMap::new();
    for bug in bugs {
        let source = read(&bug.file)?;
        let places = source.matches(&bug.before).count();
        if places != 1 {
            return Err(format!("{}: its place is {places} times in {}", bug.name, bug.file));
        }
        let planted = sources.entry(bug.file.clone()).or_insert(source);
        // What another bug has changed too is in the way of both.
        if !planted.contains(&bug.before) {
            return Err(format!("{}: its place in {} is another bug's", bug.name, bug.file));
        }
        let switch = format!("crate::planted::is({:?})", bug.name);
        *planted = planted.replacen(&bug.before, &bug.after.replace("PLANTED", &switch), 1);
    }
    let library = sources.remove("src/lib.rs").map_or_else(|| read("src/lib.rs"), Ok)?;
    sources.insert("src/lib.rs".to_owned(), format!("{library}\nmod planted;\n"));
    sources.insert("src/planted.rs".to_owned(), SWITCH.to_owned());
    Ok(sources)
}

/// All that are written down, by file and in order.
fn bugs() -> Vec<Bug> {
    let mut files: Vec<_> =
        fs::read_dir(root().join("tests/simulation/planted")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "bugs"));
    files.sort();
    files.iter().flat_map(|file| parse(&fs::read_to_string(file).unwrap())).collect()
}

/// ```text
/// == name
/// in file
/// by module::test (only if the simulation does not see it)
/// --
/// what stands there
/// ++
/// what is to stand there
/// ```
fn parse(text: &str) -> Vec<Bug> {
    let mut bugs = Vec::new();
    for entry in format!("\n{text}").split("\n== ").skip(1) {
        let (head, rest) = entry.split_once("\n--\n").unwrap_or_else(|| panic!("no place: {entry}"));
        let (name, rest_of_head) = head.split_once("\nin ").unwrap_or_else(|| panic!("no file: {entry}"));
        let (file, test) =
            rest_of_head.split_once("\nby ").map_or((rest_of_head, None), |(file, test)| (file, Some(test)));
        let (before, after) = rest.split_once("\n++\n").unwrap_or_else(|| panic!("no bug: {entry}"));
        let lines = |text: &str| format!("{}\n", text.trim_end_matches('\n'));
        assert!(after.contains("PLANTED"), "{name} cannot be switched on");
        let (name, file, test) = (name.to_owned(), file.to_owned(), test.map(str::to_owned));
        bugs.push(Bug { name, file, test, before: lines(before), after: lines(after) });
    }
    bugs
}

fn names(bugs: Vec<&Bug>) -> Vec<&str> {
    bugs.into_iter().map(|bug| bug.name.as_str()).collect()
}

/// Whether a test of the library stands in its module, or in one around that which is in the same file.
fn exists(test: &str) -> bool {
    let (modules, name) = test.rsplit_once("::").expect("a test stands in a module");
    let modules: Vec<_> = modules.split("::").collect();
    let files = (1..=modules.len()).rev().flat_map(|depth| {
        let path = format!("src/{}", modules[..depth].join("/"));
        [format!("{path}.rs"), format!("{path}/mod.rs")]
    });
    let nearest = files.map(|file| root().join(file)).find(|file| file.exists());
    nearest.is_some_and(|file| fs::read_to_string(file).unwrap().contains(&format!("fn {name}(")))
}

/// Lets a machine note each change of its state, and tells whether there is any: every `self.state = ...` and the like.
fn watch(machine: &str, source: &str) -> (String, bool) {
    let (mut watched, mut rest, mut found) = (String::new(), source, false);
    let first = |rest: &str| PLACES.iter().filter_map(|place| Some((rest.find(&format!("{place} = "))?, *place))).min();
    while let Some((at, place)) = first(rest) {
        let (before, after) = (&rest[..at], &rest[at + place.len() + 3..]);
        let next = &after[..end_of_expression(after)];
        watched += before;
        watched +=
            &format!("{{ let next = {next}; crate::planted::changes({machine:?}, &{place}, &next); {place} = next; }}");
        (rest, found) = (&after[next.len()..], true);
    }
    (watched + rest, found)
}

/// Where an expression ends that something is set to.
fn end_of_expression(text: &str) -> usize {
    let mut depth = 0;
    let end = text.find(|character| {
        match character {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ';' | ',' if depth == 0 => return true,
            _ => {}
        }
        depth < 0
    });
    end.expect("an expression ends")
}

#[test]
fn every_change_of_a_state_is_noted() {
    let source = "match self.state { A => self.state = match x { Y { a, b } => B, _ => C(1, 2) },\n D => { cursor.state = E; } }";
    let noted = |place: &str, next: &str| {
        format!("{{ let next = {next}; crate::planted::changes(\"m\", &{place}, &next); {place} = next; }}")
    };
    let expected = format!(
        "match self.state {{ A => {},\n D => {{ {}; }} }}",
        noted("self.state", "match x { Y { a, b } => B, _ => C(1, 2) }"),
        noted("cursor.state", "E"),
    );
    assert_eq!(watch("m", source), (expected, true));
    assert_eq!(watch("m", "if self.state == B {}"), ("if self.state == B {}".to_owned(), false));
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// As many at least are seen by the simulation, not by a test of their own. It may only rise.
const SIMULATED: usize = 58;

/// The machines, where they are.
const WATCHED: [(&str, &str); 10] = [
    ("src/machine/connection/link.rs", "connection"),
    ("src/machine/fetch/mod.rs", "fetch"),
    ("src/machine/group/consumer.rs", "consumer-group"),
    ("src/machine/group/mod.rs", "group"),
    ("src/machine/group/rebalance.rs", "group"),
    ("src/machine/produce/mod.rs", "producer"),
    ("src/machine/produce/partition.rs", "produce"),
    ("src/machine/produce/partition/answer.rs", "produce"),
    ("src/machine/produce/partition/transaction.rs", "produce"),
    ("src/machine/transaction/mod.rs", "transaction"),
];

/// Where they keep their states.
const PLACES: [&str; 4] = ["self.state", "cursor.state", "self.flow", "self.identity"];

/// Which bug is on, by the environment; and where changes of states are noted, each once.
const SWITCH: &str = r#"
use std::collections::BTreeSet;
use std::fmt::{self, Debug, Write as _};
use std::io::Write as _;
use std::sync::{Mutex, OnceLock};

#[allow(dead_code)]
pub(crate) fn is(name: &str) -> bool {
    static ON: OnceLock<Option<String>> = OnceLock::new();
    ON.get_or_init(|| std::env::var("PLANTED").ok()).as_deref() == Some(name)
}

pub(crate) fn changes<S: Debug>(machine: &str, from: &S, to: &S) {
    static NOTES: OnceLock<Option<Mutex<(std::fs::File, BTreeSet<String>)>>> = OnceLock::new();
    let notes = NOTES.get_or_init(|| {
        let file = std::env::var("SIM_TRANSITIONS").ok()?;
        let file = std::fs::OpenOptions::new().create(true).append(true).open(file).expect("a file for transitions");
        Some(Mutex::new((file, BTreeSet::new())))
    });
    let Some(notes) = notes else { return };
    let change = format!("{machine} {} {}\n", name(from), name(to));
    let mut notes = notes.lock().expect("nobody panics with it");
    if !notes.1.contains(&change) {
        notes.0.write_all(change.as_bytes()).expect("written");
        notes.1.insert(change);
    }
}

/// A state's name, without what it holds.
fn name(state: &impl Debug) -> String {
    struct First(String);
    impl fmt::Write for First {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let name = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            self.0.push_str(name);
            if name.len() < text.len() { Err(fmt::Error) } else { Ok(()) }
        }
    }
    let mut first = First(String::new());
    let _whole = write!(first, "{state:?}");
    first.0
}
"#;
