//! Programs around other clients, and our own tool: children that print one JSON object a line.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A running child and the events it prints.
#[derive(Debug)]
pub struct Peer {
    name: String,
    child: Child,
    lines: Receiver<Value>,
    /// Every event so far, in order.
    pub events: Vec<Value>,
}

/// A peer of `scripts/interop/run`, or `None`, said aloud, where it is not installed.
pub fn interop(name: &str, args: &[&str]) -> Option<Peer> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/interop");
    let part = match name {
        "node-plain" => "node",
        "node-confluent" => "confluent",
        "generic" | "babelqueue" => "python",
        other => other,
    };
    let installed = Command::new(folder.join("install")).arg(part).output().is_ok_and(|output| output.status.success());
    if !installed {
        crate::skipped(&format!("the peer {name} could not be installed"));
        return None;
    }
    let mut command = Command::new(folder.join("run"));
    command.arg(name).args(args);
    Some(Peer::spawn(name, command))
}

/// Our own tool, which is built where it is not: it belongs to another package than the tests.
///
/// # Panics
/// When it does not build.
pub fn tool() -> Command {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    Command::new(BUILT.get_or_init(|| build(&["--bin", "kafka-harbor"]).join("kafka-harbor")))
}

/// One of our examples, built as [`tool`] is.
///
/// # Panics
/// When it does not build.
pub fn example(name: &str) -> Command {
    Command::new(build(&["--example", name]).join("examples").join(name))
}

/// The folder of what was built.
fn build(target: &[&str]) -> PathBuf {
    let test = std::env::current_exe().expect("a test is a file");
    let profile = test.ancestors().nth(2).expect("a test lies two folders below the target folder of its profile");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    // The same features as this package asks for, so that the library is not built twice.
    cargo.args(["build", "--quiet", "--features", "full"]).args(target).arg("--manifest-path").arg(manifest);
    cargo.arg("--target-dir").arg(profile.parent().expect("a target folder"));
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    assert!(cargo.status().expect("cargo runs").success(), "{target:?} does not build");
    profile.to_owned()
}

impl Peer {
    /// Starts a program whose stdout is JSON lines. Other lines are ignored; its stderr is ours.
    pub fn spawn(name: &str, mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name} did not start: {error}"));
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if let Ok(event) = serde_json::from_str::<Value>(&line)
                    && sender.send(event).is_err()
                {
                    return;
                }
            }
        });
        Self { name: name.to_owned(), child, lines, events: Vec::new() }
    }

    /// Waits for the next event of this kind that has not been waited for; panics at the deadline, or when the child ends before.
    pub fn wait_for(&mut self, event: &str, timeout: Duration) -> Value {
        self.wait_until(event, timeout, |value| value["event"] == event)
    }

    /// Waits for the next event that satisfies `wanted`.
    pub fn wait_until(&mut self, what: &str, timeout: Duration, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + timeout;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(event) => {
                    self.events.push(event.clone());
                    if wanted(&event) {
                        return event;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    panic!("{}: no {what} within {timeout:?}; it said {:#?}", self.name, self.tail())
                }
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("{} ended before {what}; it said {:#?}", self.name, self.tail())
                }
            }
        }
    }

    /// Takes in what has been printed meanwhile, without waiting.
    pub fn drain(&mut self) {
        while let Ok(event) = self.lines.try_recv() {
            self.events.push(event);
        }
    }

    /// Events of this kind so far.
    pub fn of(&self, event: &str) -> impl Iterator<Item = &Value> {
        self.events.iter().filter(move |value| value["event"] == event)
    }

    /// Waits until the child has ended and all it printed is taken in; its exit code.
    pub fn finish(&mut self, timeout: Duration) -> Option<i32> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(event) => self.events.push(event),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("{} did not end within {timeout:?}; it said {:#?}", self.name, self.tail())
                }
            }
        }
        self.child.wait().expect("a child can be waited for").code()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGTERM.
    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// SIGKILL: a crash.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Any signal, by its name without SIG.
    pub fn signal(&self, name: &str) {
        let _ = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
    }

    fn tail(&self) -> &[Value] {
        &self.events[self.events.len().saturating_sub(20)..]
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
    }
}
