//! Real Kafka clusters: by `scripts/brokers/kafka` where Java and Maven are there, else as a container.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A running cluster, stopped when dropped.
#[derive(Debug)]
pub struct Cluster {
    /// `host:port` of every node, comma-separated, without login.
    pub bootstrap: String,
    /// What the script printed: `KAFKA_TEST_...`, prefix dropped.
    pub env: HashMap<String, String>,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Given,
    Script(PathBuf),
    Container(String),
}

/// One node without special settings, shared by all tests of the binary. `None`, said aloud, where none can be had.
pub fn kafka() -> Option<&'static Cluster> {
    static SHARED: OnceLock<Result<Cluster, String>> = OnceLock::new();
    let shared = SHARED.get_or_init(|| match std::env::var("KAFKA_TEST_PLAINTEXT") {
        Ok(bootstrap) if !bootstrap.is_empty() => Ok(Cluster { bootstrap, env: HashMap::new(), source: Source::Given }),
        _ => start(1, &[], None),
    });
    match shared {
        Ok(cluster) => Some(cluster),
        Err(why) => {
            crate::skipped(why);
            None
        }
    }
}

/// A cluster of its own for a test that breaks it: nodes, settings as `key=value`, `-Dkey=value` for the JVM or `--option` of the
/// script's `start`, and another version than the default.
pub fn kafka_with(nodes: u32, settings: &[&str], version: Option<&str>) -> Option<Cluster> {
    match start(nodes, settings, version) {
        Ok(cluster) if nodes > 1 && matches!(cluster.source, Source::Container(_)) => {
            crate::skipped("a container gives one node, the test needs more");
            None
        }
        Ok(cluster) => Some(cluster),
        Err(why) => {
            crate::skipped(&why);
            None
        }
    }
}

/// A name that no other test, and no earlier run, has used.
pub fn unique(prefix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis());
    format!("{prefix}-{}-{}-{}", std::process::id(), millis % 100_000_000, NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Cluster {
    /// SIGKILL to node `node`, counted from 1.
    pub fn kill(&self, node: u32) {
        self.script(&["kill-node"], node);
    }

    /// SIGTERM to the node, and its controlled shutdown awaited.
    pub fn terminate(&self, node: u32) {
        self.script(&["term-node"], node);
    }

    /// SIGSTOP: sockets stay open, nothing answers.
    pub fn pause(&self, node: u32) {
        self.script(&["pause-node"], node);
    }

    /// SIGCONT.
    pub fn resume(&self, node: u32) {
        self.script(&["resume-node"], node);
    }

    /// Starts a node again on its ports and data, and waits until it serves.
    pub fn start(&self, node: u32) {
        self.script(&["start-node"], node);
    }

    /// Output of one of Kafka's own tools, such as `topics`, with `--bootstrap-server` given.
    pub fn tool(&self, name: &str, args: &[&str]) -> String {
        let output = Command::new(kafka_script())
            .args(["tool", name, "--bootstrap-server", &self.bootstrap])
            .args(args)
            .output()
            .expect("the script runs");
        assert!(output.status.success(), "{name} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn script(&self, command: &[&str], node: u32) {
        let Source::Script(dir) = &self.source else { panic!("this broker was not started by the script") };
        let output = Command::new(kafka_script())
            .args(command)
            .arg(dir)
            .arg(node.to_string())
            .output()
            .expect("the script runs");
        assert!(output.status.success(), "{command:?} {node}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        match &self.source {
            Source::Given => {}
            Source::Script(dir) => {
                let _ = Command::new(kafka_script()).args(["stop", "--rm"]).arg(dir).stderr(Stdio::null()).status();
            }
            Source::Container(name) => {
                let _ = Command::new("docker")
                    .args(["rm", "-f", name])
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status();
            }
        }
    }
}

fn start(nodes: u32, settings: &[&str], version: Option<&str>) -> Result<Cluster, String> {
    if answers("java", "-version") && answers("mvn", "--version") {
        return start_by_script(nodes, settings, version);
    }
    if answers("docker", "info") {
        return start_container(settings, version);
    }
    Err("no Java with Maven, and no Docker engine, to start a Kafka with".to_owned())
}

fn start_by_script(nodes: u32, settings: &[&str], version: Option<&str>) -> Result<Cluster, String> {
    let mut command = Command::new(kafka_script());
    command.args(["start", "--nodes", &nodes.to_string(), "--owner", &std::process::id().to_string()]);
    for setting in settings {
        match setting {
            option if option.starts_with("--") => command.arg(option),
            option if option.starts_with('-') => command.args(["--jvm", option]),
            pair => command.args(["--set", pair]),
        };
    }
    if let Some(version) = version {
        command.env("KAFKA_VERSION", version);
    }
    let output = command.output().map_err(|error| format!("{}: {error}", kafka_script().display()))?;
    // Java and Maven are there, so a Kafka that does not start is a failure, not a reason to skip.
    assert!(output.status.success(), "Kafka did not start:\n{}", String::from_utf8_lossy(&output.stderr));
    let env: HashMap<String, String> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.strip_prefix("export KAFKA_TEST_")?.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let dir = PathBuf::from(&env["DIR"]);
    Ok(Cluster { bootstrap: env["PLAINTEXT"].clone(), env, source: Source::Script(dir) })
}

fn start_container(settings: &[&str], version: Option<&str>) -> Result<Cluster, String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let port = listener.local_addr().map_err(|error| error.to_string())?.port();
    drop(listener);
    let name = unique("kafka-harbor-test");
    let mut env = vec![
        "KAFKA_NODE_ID=1".to_owned(),
        "KAFKA_PROCESS_ROLES=broker,controller".to_owned(),
        format!("KAFKA_LISTENERS=PLAINTEXT://:{port},CONTROLLER://:19093"),
        format!("KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://127.0.0.1:{port}"),
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT".to_owned(),
        "KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER".to_owned(),
        "KAFKA_CONTROLLER_QUORUM_VOTERS=1@localhost:19093".to_owned(),
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1".to_owned(),
        "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS=4".to_owned(),
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS=0".to_owned(),
        "KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS=1000".to_owned(),
        "KAFKA_AUTO_CREATE_TOPICS_ENABLE=false".to_owned(),
    ];
    // What only the script has is missing in `env`, where a test looks for it.
    for setting in settings.iter().filter(|setting| !setting.starts_with("--")) {
        let (key, value) = setting.split_once('=').ok_or_else(|| format!("setting {setting:?} is not key=value"))?;
        env.push(format!("KAFKA_{}={value}", key.to_uppercase().replace('.', "_")));
    }
    let mut command = Command::new("docker");
    command.args(["run", "-d", "--rm", "--name", &name, "-p", &format!("127.0.0.1:{port}:{port}")]);
    for pair in &env {
        command.args(["-e", pair]);
    }
    let image = format!("apache/kafka:{}", version.unwrap_or("4.1.0"));
    let output = command.arg(&image).output().map_err(|error| format!("docker: {error}"))?;
    assert!(output.status.success(), "{image} did not start: {}", String::from_utf8_lossy(&output.stderr));
    // The shared broker is never dropped: a watcher removes the container once this process is gone.
    let watch = format!("while kill -0 {} 2>/dev/null; do sleep 1; done; docker rm -f {name}", std::process::id());
    let _ = Command::new("sh")
        .args(["-c", &watch])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let bootstrap = format!("127.0.0.1:{port}");
    for _ in 0..240 {
        let logs = Command::new("docker").args(["logs", &name]).output().map_err(|error| error.to_string())?;
        if String::from_utf8_lossy(&logs.stdout).contains("Kafka Server started") {
            return Ok(Cluster { bootstrap, env: HashMap::new(), source: Source::Container(name) });
        }
        std::thread::sleep(std::time::Duration::from_millis(250));
    }
    panic!("{image} did not serve within a minute");
}

fn answers(program: &str, argument: &str) -> bool {
    let status = Command::new(program).arg(argument).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn kafka_script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/brokers/kafka/kafka")
}
