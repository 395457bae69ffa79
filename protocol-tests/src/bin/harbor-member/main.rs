//! A service on kafka-harbor, driven by the command line as the peers of `scripts/interop` are: one JSON object a line
//! on stdout, SIGTERM ends it in order, SIGKILL is a crash.

mod events;
mod membership;
mod options;
mod output;

use std::future::pending;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Parser as _;
use kafka_harbor::adapter::kafka::KafkaAdapter;
use kafka_harbor::error::BoxError;
use kafka_harbor::harbor::{CommitMode, Consumer, Context, Failure, Harbor, HarborError, Raw, TopicDefaults};
use kafka_harbor::record::Timestamp;
use protocol_tests::{Entry, Ledger, Watched, What};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;

use events::{Noticed, Printer};
use options::{Command, Consume};
use output::{emit, show};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let Command::Consume(options) = Command::parse();
    if options.verbose {
        tracing_subscriber::fmt()
            .with_writer(std::io::stderr)
            .with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG)
            .init();
    }
    match consume(options).await {
        Ok(code) => code,
        Err(error) => {
            let code = error.downcast_ref().map(|error: &HarborError| error.code().to_owned());
            emit("error", json!({ "scope": "consume", "code": code, "error": error.to_string() }));
            ExitCode::FAILURE
        }
    }
}

async fn consume(options: Consume) -> Result<ExitCode, BoxError> {
    let mut ending = Ending::listen()?;
    let mut kafka = KafkaAdapter::builder(&options.brokers).client_id(&options.client_id);
    if let Some(millis) = options.session_ms {
        let session = Duration::from_millis(millis);
        kafka = kafka.session_timeout(session).heartbeat_interval((session / 4).min(Duration::from_secs(3)));
    }
    let (membership, mut assigned) = membership::Printer::new(!options.quiet);
    let adapter = Watched::new(kafka.build()?, move |event| membership.tell(event));
    let (printer, noticed) = Printer::new(options.quiet);
    let mut harbor = Harbor::builder(&options.client_id, adapter).serializer(Raw).observer(printer);
    if let Some(prefix) = &options.header_prefix {
        harbor = harbor.header_prefix(prefix);
    }
    let harbor = harbor.build()?;
    let options = Arc::new(options);
    let consumer = consumer(&harbor, &options)?;
    consumer.start().await?;
    let ready = tokio::spawn({
        let options = options.clone();
        async move {
            if assigned.wait_for(|assigned| *assigned).await.is_ok() {
                emit("ready", json!({ "group": options.group, "topics": options.topic, "pid": std::process::id() }));
            }
        }
    });
    let reason = ending.reason(&options, noticed).await;
    ready.abort();
    Ok(end(&harbor, &reason).await)
}

fn consumer(harbor: &Harbor<Raw>, options: &Arc<Consume>) -> Result<Consumer, BoxError> {
    let ledger = options.ledger.as_deref().map(Ledger::open).transpose()?.map(Arc::new);
    let mut builder = harbor
        .consumer(&options.group)
        .retry_levels(options.levels.iter().filter(|delay| !delay.is_empty()))
        .dead_letters(!options.no_dlq)
        .concurrency(options.concurrency)
        .auto_create_topics(options.create_topics)
        .from_beginning(options.from_beginning)
        .interop_node(options.interop_node)
        .commit(if options.commit_each { CommitMode::Each } else { CommitMode::Together });
    if let Some(partitions) = options.partitions {
        builder = builder.topic_defaults(TopicDefaults::new().with_partitions(partitions));
    }
    if let Some(time) = &options.max_processing {
        builder = builder.max_processing_time(time);
    }
    for topic in &options.topic {
        let (options, ledger) = (options.clone(), ledger.clone());
        builder = builder.subscribe(topic.as_str(), move |value: Option<Bytes>, context: Context| {
            let (options, ledger) = (options.clone(), ledger.clone());
            async move { handle(&options, ledger.as_deref(), value, &context).await }
        });
    }
    Ok(builder.build()?)
}

async fn handle(
    options: &Consume,
    ledger: Option<&Ledger>,
    value: Option<Bytes>,
    context: &Context,
) -> Result<(), Failure> {
    if !options.quiet {
        tell_attempt(options.header_prefix.as_deref().unwrap_or("x-"), value.as_deref(), context);
    }
    let note = |what| {
        if let Some(ledger) = ledger {
            ledger.add(&Entry {
                what,
                pid: std::process::id(),
                topic: context.topic().to_string(),
                partition: context.partition(),
                offset: context.offset().0,
                attempt: context.attempt(),
                value: value.as_deref().map_or_else(String::new, |value| String::from_utf8_lossy(value).into_owned()),
            });
        }
    };
    note(What::Begin);
    if options.handler_ms > 0 {
        tokio::time::sleep(Duration::from_millis(options.handler_ms)).await;
    }
    if must_fail(options, context) {
        note(What::Failed);
        return Err(failure(options));
    }
    note(What::Done);
    Ok(())
}

fn tell_attempt(prefix: &str, value: Option<&[u8]>, context: &Context) {
    let headers = context.headers().iter().map(|(name, value)| json!([show(Some(name)), show(value)]));
    let retry = context.retry().map(|retry| {
        let first_failure_at = context.header(&format!("{prefix}first-failure-at"));
        json!({
            "count": retry.count, "originalTopic": retry.original_topic.as_str(), "firstFailureAt": first_failure_at,
            "lastError": retry.last_error,
        })
    });
    let Timestamp(timestamp) = context.timestamp();
    emit(
        "attempt",
        json!({
            "topic": context.topic().as_str(), "partition": context.partition(), "offset": context.offset().to_string(),
            "timestamp": timestamp, "key": show(context.key()), "value": show(value),
            "headers": headers.collect::<Vec<_>>(), "attempt": context.attempt(),
            "correlationId": context.correlation_id(), "retry": retry,
        }),
    );
}

/// `--fail-key` names the keys that fail, none means all; `--fail-first N` makes only attempts up to N fail.
fn must_fail(options: &Consume, context: &Context) -> bool {
    let is_named = |keys: &[String]| {
        let key = context.key();
        keys.iter().any(|named| key == Some(named.as_bytes()))
    };
    if is_named(&options.poison_key) {
        return true;
    }
    let named = if options.fail_key.is_empty() { options.fail_first.is_some() } else { is_named(&options.fail_key) };
    named && options.fail_first.is_none_or(|first| context.attempt() <= first)
}

fn failure(options: &Consume) -> Failure {
    let (name, text) = options.fail_error.split_once(':').unwrap_or((&options.fail_error, ""));
    let failure = Failure::new(text).named(name.to_owned());
    if options.abort {
        Failure::abort(failure)
    } else if options.permanent {
        Failure::permanent(failure)
    } else {
        failure
    }
}

/// Why the program ends.
struct Ending {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Ending {
    fn listen() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn reason(&mut self, options: &Consume, mut noticed: UnboundedReceiver<Noticed>) -> String {
        let mut settled = 0;
        let time_is_up = after(options.for_ms);
        tokio::pin!(time_is_up);
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return "SIGTERM".to_owned(),
                _ = self.interrupt.recv() => return "SIGINT".to_owned(),
                () = &mut time_is_up => return "for".to_owned(),
                () = quiet(options.idle) => return "idle".to_owned(),
                Some(noticed) = noticed.recv() => match noticed {
                    Noticed::Stopped(reason) => return reason.to_string(),
                    Noticed::Settled => {
                        settled += 1;
                        if options.max.is_some_and(|max| settled >= max) {
                            return "max".to_owned();
                        }
                    }
                },
            }
        }
    }
}

async fn after(millis: Option<u64>) {
    match millis {
        Some(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
        None => pending().await,
    }
}

/// Waits until there was no event for so long.
async fn quiet(millis: Option<u64>) {
    let Some(millis) = millis else { return pending().await };
    while output::idle() < Duration::from_millis(millis) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Shuts down; 3 if that failed, 4 if it hung.
async fn end(harbor: &Harbor<Raw>, reason: &str) -> ExitCode {
    let shutdown = harbor.shutdown(Duration::from_secs(10));
    let code = match tokio::time::timeout(Duration::from_secs(15), shutdown).await {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            emit("error", json!({ "scope": "shutdown", "code": error.code(), "error": error.to_string() }));
            3
        }
        Err(_) => {
            emit("error", json!({ "scope": "shutdown", "error": "not closed within 15 s" }));
            4
        }
    };
    emit("done", json!({ "reason": reason }));
    ExitCode::from(code)
}
