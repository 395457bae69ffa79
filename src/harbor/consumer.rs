//! Consumers: what is read, by whom it is handled, and what becomes of what fails.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::adapter::{JoinOptions, Membership, PublisherOptions, Start};
use crate::harbor::blocking::BlockingRetries;
use crate::harbor::circuit::{Circuit, CircuitBreaker};
use crate::harbor::context::Context;
use crate::harbor::core::Core;
use crate::harbor::duration::IntoPeriod;
use crate::harbor::error::{ConfigError, HarborError, Problems};
use crate::harbor::failure::{Classifiers, Classify, Failure, TextForm};
use crate::harbor::guard;
use crate::harbor::handler::Handler;
use crate::harbor::idempotency::{Guarded, Idempotency, IdempotencyKey};
use crate::harbor::lifecycle::{ConsumerStatus, Ending, Lifecycle};
use crate::harbor::pipeline::{Limits, Parts, Pipeline, RetryIf, Setup, Subscriber, Subscription};
use crate::harbor::prepare::{Preparation, TopicChecks, TopicDefaults};
use crate::harbor::serializer::Deserializer;
use crate::harbor::topology::{NameRules, Plan, TopicNaming, Topology};
use crate::observe::{StopReason, TopicWarning};
use crate::record::Topic;

/// Handles the records of some topics as a member of a group. Made by [`Harbor::consumer`](super::Harbor::consumer).
///
/// One membership reads the topics and all levels of their ladders. Cheap to clone; all clones are one consumer.
/// Dropping it does not stop it: that is [`stop`](Self::stop)'s work, or the harbor's shutdown.
#[derive(Debug, Clone)]
pub struct Consumer {
    inner: Arc<ConsumerInner>,
}

/// A consumer, as its harbor knows it.
pub(crate) struct ConsumerInner {
    pub(crate) core: Arc<Core>,
    pub(crate) setup: Arc<Setup>,
    pub(crate) life: Arc<Lifecycle>,
    pub(crate) originals_start: Start,
    preparation: Preparation,
    interop_node: bool,
    instance_id: Option<String>,
}

impl Consumer {
    /// Its group.
    pub fn group(&self) -> &str {
        &self.inner.setup.group
    }

    /// Where it stands.
    pub fn status(&self) -> ConsumerStatus {
        self.inner.life.status()
    }

    /// Connects, makes sure of the retry and dead-letter topics, and joins the group. Deliveries begin when the group
    /// has assigned partitions, which may be later.
    ///
    /// # Cancel safety
    /// Dropping the future does not take the start back: the consumer goes on starting, until it is stopped.
    ///
    /// # Errors
    /// When it was started or stopped before, when the broker cannot be reached or refuses, when a topic is missing or
    /// could lose records; [`HarborError::Closed`] when it is stopped meanwhile. It does not start a second time.
    pub async fn start(&self) -> Result<(), HarborError> {
        let inner = &self.inner;
        inner.core.check_open()?;
        if !inner.life.begin() {
            let why = "was started or stopped before; build another";
            return Err(ConfigError::one(format!("consumer({})", self.group()), why).into());
        }
        let (tell, started) = tokio::sync::oneshot::channel();
        let inner = inner.clone();
        tokio::spawn(async move {
            let _ends = EndsInAnyCase(inner.clone());
            match inner.open().await {
                Ok(membership) => {
                    inner.life.run();
                    // Nobody may be waiting any more.
                    let _ = tell.send(Ok(()));
                    inner.run(membership).await;
                }
                Err(error) => {
                    let _ = tell.send(Err(error));
                }
            }
        });
        started.await.unwrap_or(Err(HarborError::Closed { what: "the runtime" }))
    }

    /// Stops: no delivery begins any more, those under way may end and are committed, then the group is left. What is
    /// still at work after `timeout` is given up: its cancel signal fires, and whatever it returns is ignored.
    ///
    /// The first call counts; later ones wait for it, whatever their timeout. A consumer that was never started
    /// stops at once.
    ///
    /// # Cancel safety
    /// Dropping the future does not take the stop back.
    ///
    /// # Errors
    /// [`HarborError::ShutdownTimeout`] with the number of deliveries that were given up, or why the group could not be
    /// left. The consumer has stopped all the same.
    pub async fn stop(&self, timeout: Duration) -> Result<(), HarborError> {
        self.inner.life.ask_to_stop(timeout);
        self.inner.life.ended().await.result()
    }

    /// Waits until it has stopped, and tells why; `None` if it never ran. A service that is to end with its consumer,
    /// or to raise an alarm, waits here.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    pub async fn stopped(&self) -> Option<StopReason> {
        self.inner.life.ended().await;
        self.inner.life.because()
    }

    /// The circuit of one of its original topics, if it has one.
    pub fn circuit(&self, topic: &str) -> Option<Circuit> {
        self.inner.setup.circuits.iter().flatten().find(|circuit| circuit.topic().as_str() == topic).cloned()
    }

    /// The consumer, as its harbor knows it.
    pub(crate) fn inner(&self) -> &Arc<ConsumerInner> {
        &self.inner
    }
}

impl ConsumerInner {
    /// Everything up to the membership, unless a stop is asked for first.
    async fn open(&self) -> Result<Membership, HarborError> {
        let opened = tokio::select! {
            biased;
            _ = self.life.asked_to_stop() => None,
            opened = self.connect_and_join() => Some(opened),
        };
        match opened {
            Some(Ok(membership)) => Ok(membership),
            Some(Err(error)) => {
                self.life.stopped(Ending::default());
                Err(error)
            }
            None => {
                // What was under way is dropped: a join that comes late leaves by itself.
                self.life.stopping(StopReason::Shutdown);
                self.life.stopped(Ending::default());
                self.setup.report_stopped(StopReason::Shutdown);
                Err(HarborError::Closed { what: "the consumer" })
            }
        }
    }

    async fn connect_and_join(&self) -> Result<Membership, HarborError> {
        self.core.connect().await?;
        let adapter = &*self.core.adapter;
        for warning in self.preparation.run(adapter, &self.setup.topology).await? {
            self.setup.observers.topic_warning(&TopicWarning { topic: &warning.topic, what: &warning.what });
        }
        let mut options = JoinOptions::new(&*self.setup.group, self.setup.topology.subscriptions(self.originals_start));
        options.revocation_timeout = self.setup.limits.max_processing_time;
        options.interop_node = self.interop_node;
        options.instance_id.clone_from(&self.instance_id);
        Ok(guard::port(adapter, "joining", |adapter| adapter.join(options)).await?)
    }

    async fn run(&self, membership: Membership) {
        let pipeline = Pipeline::new(self.setup.clone(), self.life.clone(), self.core.adapter.clone(), membership);
        let mut ending = pipeline.run().await;
        let reason = self.life.because().unwrap_or(StopReason::Shutdown);
        if ending.in_flight > 0 {
            tracing::warn!(group = &*self.setup.group, in_flight = ending.in_flight, "deliveries were given up");
        }
        if let Some(error) = &ending.leaving {
            self.core.report_adapter(error);
        }
        if reason != StopReason::Shutdown {
            // Nobody asked for this stop, so nobody is told that it was not clean.
            ending = Ending::default();
        }
        self.life.stopped(ending);
        self.setup.report_stopped(reason);
    }
}

/// A consumer's task that ends early, by a panic beneath or with its runtime, must not leave a consumer that seems to
/// run and that nobody can stop.
struct EndsInAnyCase(Arc<ConsumerInner>);

impl Drop for EndsInAnyCase {
    fn drop(&mut self) {
        let ConsumerInner { life, setup, .. } = &*self.0;
        if life.status() != ConsumerStatus::Stopped {
            life.stopping(StopReason::Crash);
            life.stopped(Ending::default());
            setup.report_ended_early();
            setup.report_stopped(StopReason::Crash);
        }
    }
}

impl fmt::Debug for ConsumerInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("setup", &self.setup).field("life", &self.life).finish_non_exhaustive()
    }
}

/// When offsets are committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum CommitMode {
    /// Together: one commit is under way at a time, and the next carries all that finished meanwhile. Deliveries do
    /// not wait for it, so a process that ends hard repeats those of a few milliseconds.
    #[default]
    Together,
    /// Each before its partition's next delivery, as the Node package does. A process that ends hard repeats one delivery
    /// a partition; a round trip a record.
    Each,
}

/// Builds a [`Consumer`]. Every mistake is gathered and told by [`build`](Self::build).
///
/// `S` reads the payloads of the subscriptions that follow; see [`serializer`](Self::serializer).
#[must_use = "a builder does nothing until `build`"]
pub struct ConsumerBuilder<S> {
    core: Arc<Core>,
    serializer: Arc<S>,
    group: String,
    subscriptions: Vec<(Topic, Box<dyn Subscriber>)>,
    delays: Vec<Duration>,
    dead_letters: bool,
    naming: TopicNaming,
    preparation: Preparation,
    concurrency: usize,
    from_beginning: bool,
    interop_node: bool,
    instance_id: Option<String>,
    commit: CommitMode,
    retry_if: Option<RetryIf>,
    blocking: Option<BlockingRetries>,
    idempotency: Option<Guarded>,
    /// Topics whose work has keys of its own.
    keyed: Vec<Topic>,
    circuit_breaker: Option<CircuitBreaker>,
    /// Those of single topics; `None` for one without.
    circuit_breakers: Vec<(Topic, Option<CircuitBreaker>)>,
    classifiers: Classifiers,
    limits: Limits,
    problems: Problems,
}

impl<S: Send + Sync + 'static> ConsumerBuilder<S> {
    pub(super) fn new(core: Arc<Core>, serializer: Arc<S>, group: String) -> Self {
        Self {
            core,
            serializer,
            group,
            subscriptions: Vec::new(),
            delays: Vec::new(),
            dead_letters: true,
            naming: TopicNaming::default(),
            preparation: Preparation::default(),
            concurrency: 1,
            from_beginning: false,
            interop_node: false,
            instance_id: None,
            commit: CommitMode::default(),
            retry_if: None,
            blocking: None,
            idempotency: None,
            keyed: Vec::new(),
            circuit_breaker: None,
            circuit_breakers: Vec::new(),
            classifiers: Classifiers::default(),
            limits: Limits::default(),
            problems: Problems::default(),
        }
    }

    /// What reads the payloads of the subscriptions that follow. Default: the harbor's.
    pub fn serializer<S2: Send + Sync + 'static>(self, serializer: S2) -> ConsumerBuilder<S2> {
        ConsumerBuilder {
            core: self.core,
            serializer: Arc::new(serializer),
            group: self.group,
            subscriptions: self.subscriptions,
            delays: self.delays,
            dead_letters: self.dead_letters,
            naming: self.naming,
            preparation: self.preparation,
            concurrency: self.concurrency,
            from_beginning: self.from_beginning,
            interop_node: self.interop_node,
            instance_id: self.instance_id,
            commit: self.commit,
            retry_if: self.retry_if,
            blocking: self.blocking,
            idempotency: self.idempotency,
            keyed: self.keyed,
            circuit_breaker: self.circuit_breaker,
            circuit_breakers: self.circuit_breakers,
            classifiers: self.classifiers,
            limits: self.limits,
            problems: self.problems,
        }
    }

    /// Handles the records of a topic, and those that come back on its retry topics. One handler a topic.
    pub fn subscribe<T, Args>(self, topic: impl Into<Topic>, handler: impl Handler<T, Args>) -> Self
    where
        S: Deserializer<T>,
        T: Send + 'static,
        Args: 'static,
    {
        let serializer = self.serializer.clone();
        self.add(topic.into(), Subscription::new(handler, serializer))
    }

    /// The same with a serializer of its own.
    pub fn subscribe_with<T, Args, D>(
        self,
        topic: impl Into<Topic>,
        serializer: D,
        handler: impl Handler<T, Args>,
    ) -> Self
    where
        D: Deserializer<T>,
        T: Send + 'static,
        Args: 'static,
    {
        self.add(topic.into(), Subscription::new(handler, Arc::new(serializer)))
    }

    /// The same as [`subscribe`](Self::subscribe), with a key for each piece of work: what is done of one key is not done again, whatever
    /// record it comes in. Needs [`idempotency`](Self::idempotency).
    ///
    /// A key of the payload is the same on every level of the ladder, and for a record that was produced twice. One that panics is a
    /// failure of the handler.
    pub fn subscribe_once<T, Args, K>(
        mut self,
        topic: impl Into<Topic>,
        key: impl Fn(&T, &Context) -> K + Send + Sync + 'static,
        handler: impl Handler<T, Args>,
    ) -> Self
    where
        S: Deserializer<T>,
        T: Send + 'static,
        Args: 'static,
        K: Into<IdempotencyKey>,
    {
        let (topic, serializer) = (topic.into(), self.serializer.clone());
        self.keyed.push(topic.clone());
        let key = move |payload: &T, context: &Context| key(payload, context).into();
        self.add(topic, Subscription::new(handler, serializer).keyed(Box::new(key)))
    }

    fn add(mut self, topic: Topic, subscriber: impl Subscriber + 'static) -> Self {
        self.subscriptions.push((topic, Box::new(subscriber)));
        self
    }

    /// How long a failed record waits before each further try: the retry levels. Default: none, a failure goes to
    /// the dead letters at once. Each level has a topic of its own, `<topic>-retry-<n>`.
    ///
    /// A [`Duration`] or text such as `30s`, at most 24.8 days each.
    pub fn retry_levels<P: IntoPeriod>(mut self, delays: impl IntoIterator<Item = P>) -> Self {
        let problems = &mut self.problems;
        let delays = delays.into_iter().enumerate();
        self.delays = delays.map(|(index, delay)| problems.period(format!("retry.levels[{index}]"), delay)).collect();
        self
    }

    /// Which failures are worth a retry. Default: those that do not say they are not
    /// ([`Failure::is_retryable`]). It is not asked about payloads that cannot be read, which are never retried, nor
    /// about an abort. One that panics is reported, and the default stands in.
    pub fn retry_if(mut self, wanted: impl Fn(&Failure) -> bool + Send + Sync + 'static) -> Self {
        self.retry_if = Some(Arc::new(wanted));
        self
    }

    /// Tries what failed again where it is, a few times within a short time, before it takes the ladder. Default: not.
    pub fn blocking_retries(mut self, retries: BlockingRetries) -> Self {
        self.blocking = Some(retries);
        self
    }

    /// Asks before each delivery whether its work is done already. By default the work's key is the record's place
    /// (`group:topic:partition:offset`), so that a record that is delivered again after its commit was lost is not handled again;
    /// [`subscribe_once`](Self::subscribe_once) takes another. Default: nobody is asked.
    ///
    /// What was done before is committed, and told as processed and `replayed`.
    pub fn idempotency(mut self, idempotency: impl Idempotency) -> Self {
        self.idempotency = Some(Guarded(Arc::new(idempotency)));
        self
    }

    /// Holds the records of a topic back while handling them fails too often: each original topic has a circuit of its own, which its
    /// retry topics share. Default: none has.
    pub fn circuit_breaker(mut self, breaker: CircuitBreaker) -> Self {
        self.circuit_breaker = Some(breaker);
        self
    }

    /// The same for one original topic alone, with `None` for one that has no circuit.
    pub fn circuit_breaker_of(mut self, topic: impl Into<Topic>, breaker: Option<CircuitBreaker>) -> Self {
        self.circuit_breakers.push((topic.into(), breaker));
        self
    }

    /// How the retry topic of a topic's level, from 1, is called. Default: `<topic>-retry-<level>`.
    ///
    /// Topics may share a retry topic of one level; each record then says by its headers whose it is.
    pub fn retry_topic(mut self, name: impl Fn(&str, u32) -> String + Send + Sync + 'static) -> Self {
        self.naming = self.naming.with_retry(name);
        self
    }

    /// Whether what cannot be handled is set aside in a dead-letter topic. Default: true. Without, the consumer stops at
    /// such a record, which stays uncommitted.
    pub fn dead_letters(mut self, enabled: bool) -> Self {
        self.dead_letters = enabled;
        self
    }

    /// How the dead-letter topic of a topic is called. Default: `<topic>-dlq`.
    pub fn dead_letter_topic(mut self, name: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        self.naming = self.naming.with_dead_letter(name);
        self
    }

    /// How many partitions are handled at once, on each level. Default: 1; at least 1. Records of one partition are
    /// always handled one after another.
    pub fn concurrency(mut self, partitions: usize) -> Self {
        self.concurrency = partitions;
        self
    }

    /// The longest that one delivery may take. Default: 5 minutes. Then its [cancel signal](super::Context::cancel)
    /// fires, and after a [grace](Self::cancel_grace) it has failed with `PROCESSING_TIMEOUT`, which is retryable. A
    /// revocation waits no longer than this for what runs.
    ///
    /// Java's `max.poll.interval.ms` bounds the same; here heartbeats go on meanwhile.
    pub fn max_processing_time(mut self, time: impl IntoPeriod) -> Self {
        self.limits.max_processing_time = self.problems.period("max_processing_time", time);
        if self.limits.max_processing_time.is_zero() {
            self.problems.add("max_processing_time", "must be longer than nothing");
        }
        self
    }

    /// How long a handler may go on after its cancel signal has fired, before its future is dropped. Default: 1 second.
    pub fn cancel_grace(mut self, grace: impl IntoPeriod) -> Self {
        self.limits.cancel_grace = self.problems.period("cancel_grace", grace);
        self
    }

    /// Whether a topic on which the group has no position is read from its oldest record rather than from its end.
    /// Default: false. Retry topics are always read from their oldest.
    ///
    /// Partitions that are added after the group began to read a topic are read from their oldest record in either case,
    /// also by a consumer that is started later: the group keeps beside its commits with how many it began. An operator
    /// who deletes the group's position on such a partition has it read again.
    ///
    /// Java's `auto.offset.reset`, which skips what is written to a new partition before it is discovered (KAFKA-12478).
    pub fn from_beginning(mut self, from_beginning: bool) -> Self {
        self.from_beginning = from_beginning;
        self
    }

    /// Whether missing retry and dead-letter topics are created. Default: false, a missing one is an error at start.
    /// Original topics are never created.
    pub fn auto_create_topics(mut self, create: bool) -> Self {
        self.preparation.create = create;
        self
    }

    /// How topics are created. Default: the source's partition count, the broker's replication.
    pub fn topic_defaults(mut self, defaults: TopicDefaults) -> Self {
        self.preparation.defaults = defaults;
        self
    }

    /// What is done about existing retry and dead-letter topics that can lose records: kept for less than their delay,
    /// or compacted. Default: the consumer does not start.
    pub fn topic_checks(mut self, checks: TopicChecks) -> Self {
        self.preparation.checks = checks;
        self
    }

    /// When offsets are committed. Default: together.
    pub fn commit(mut self, mode: CommitMode) -> Self {
        self.commit = mode;
        self
    }

    /// The least time from one commit to the next, where offsets are committed together. Default: 10 ms. What
    /// finishes after a pause is committed at once.
    pub fn commit_gap(mut self, gap: impl IntoPeriod) -> Self {
        self.limits.commit_gap = self.problems.period("commit_gap", gap);
        self
    }

    /// How many failed records of one partition may be on their way to their next topic before the partition's next
    /// delivery waits. Default: 100; at least 1.
    pub fn hops_in_flight(mut self, hops: usize) -> Self {
        self.limits.hops = hops;
        self
    }

    /// How many deliveries of one partition may wait for the commit that covers them with an observer to be told,
    /// before the next waits. Default: 10,000; at least 1.
    pub fn outcomes_in_flight(mut self, outcomes: usize) -> Self {
        self.limits.outcomes = outcomes;
        self
    }

    /// Believes what errors of this type say of themselves, wherever they stand in a failure's source chain.
    pub fn classify<E: Classify>(mut self) -> Self {
        self.classifiers.add::<E>();
        self
    }

    /// A name of this consumer that outlives its process, one in its group: while it restarts within the session timeout its
    /// partitions wait for it, and nobody else is disturbed (static membership, KIP-345). Stopping does not give them away
    /// either. Default none.
    ///
    /// Of two consumers with one name one ends: it stops with an error, and the harbor is [unwell](crate::harbor::Harbor::health) from
    /// then on. Close the old one before its successor starts.
    pub fn instance_id(mut self, name: impl Into<String>) -> Self {
        self.instance_id = Some(name.into());
        self
    }

    /// Offers what members of the Node package can join with, and writes error texts exactly as they do. Default: false;
    /// set it where such members are to join a group that this one may have begun.
    pub fn interop_node(mut self, interop: bool) -> Self {
        self.interop_node = interop;
        self
    }

    /// The consumer.
    ///
    /// # Errors
    /// With every mistake by the name of its option.
    pub fn build(self) -> Result<Consumer, ConfigError> {
        let Self { core, mut problems, mut limits, .. } = self;
        problems.require("group", &self.group);
        for (option, number) in [
            ("concurrency", self.concurrency),
            ("hops_in_flight", limits.hops),
            ("outcomes_in_flight", limits.outcomes),
        ] {
            if number == 0 {
                problems.add(option, "must be at least 1");
            }
        }
        if self.concurrency > tokio::sync::Semaphore::MAX_PERMITS {
            problems.add("concurrency", "is too large");
        }
        if self.subscriptions.is_empty() {
            problems.add("topics", "nothing is subscribed to");
        }
        self.preparation.defaults.check(&mut problems);
        if let Some(Err(error)) = self.blocking.as_ref().map(BlockingRetries::check) {
            problems.extend(error);
        }
        for breaker in
            self.circuit_breakers.iter().filter_map(|(_, breaker)| breaker.as_ref()).chain(&self.circuit_breaker)
        {
            if let Err(error) = breaker.check(limits.max_processing_time) {
                problems.extend(error);
            }
        }
        match &self.idempotency {
            Some(Guarded(idempotency)) => match guard::call(|| idempotency.check()) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => problems.extend(error),
                Err(panic) => problems.add("idempotency", panic),
            },
            None => {
                for topic in &self.keyed {
                    problems.add(format!("topics[{topic}]"), "has keys of its own, and the consumer no idempotency");
                }
            }
        }
        for (topic, _) in &self.circuit_breakers {
            if !self.subscriptions.iter().any(|(subscribed, _)| subscribed == topic) {
                problems.add(format!("circuit_breaker_of({topic})"), "is not subscribed to");
            }
        }
        let capabilities = core.adapter.capabilities();
        let name = core.adapter.name();
        if !capabilities.settle_by_position {
            problems.add("adapter", format_args!("{name} keeps no positions, by which consumers commit"));
        }
        if self.preparation.create && !capabilities.topic_creation {
            problems.add("auto_create_topics", format_args!("{name} cannot create topics"));
        }
        let levels = u32::try_from(self.delays.len()).unwrap_or(u32::MAX);
        let (topics, subscribers): (Vec<_>, Vec<_>) = self.subscriptions.into_iter().unzip();
        let plans = topics.into_iter().filter_map(|topic| {
            let planned = guard::call(|| Plan::new(topic.clone(), levels, self.dead_letters, &self.naming));
            let why = |panic| format!("its retry and dead-letter topics cannot be named: {panic}");
            planned.map_err(|panic| problems.add(format!("topics[{topic}]"), why(panic))).ok()
        });
        let plans = plans.collect();
        let topology = match Topology::new(plans, self.delays, NameRules::of_adapter(name)) {
            Ok(topology) => Some(topology),
            Err(error) => {
                problems.extend(error);
                None
            }
        };
        let publisher = match core.adapter.publisher(PublisherOptions::with_retry(core.produce_retry.clone())) {
            Ok(publisher) => Some(publisher),
            Err(error) => {
                problems.add("adapter", error);
                None
            }
        };
        problems.finish()?;
        let (Some(topology), Some(publisher)) = (topology, publisher) else {
            return Err(ConfigError::one("topics", "cannot be routed"));
        };
        if self.commit == CommitMode::Each {
            // The next delivery waits for the commit, so there is nothing to gather.
            limits.commit_gap = Duration::ZERO;
        }
        let parts = Parts {
            publisher,
            stamper: core.stamper.clone(),
            clock: core.clock.clone(),
            observers: core.observers.clone(),
        };
        let mut setup = Setup::new(self.group.into(), topology, subscribers, self.concurrency, parts);
        setup.retry_if = self.retry_if;
        setup.blocking = self.blocking;
        setup.idempotency = self.idempotency;
        let circuit = |plan: &Plan| {
            let of_topic = self.circuit_breakers.iter().rev().find(|(topic, _)| *topic == plan.topic);
            let breaker = of_topic.map_or(self.circuit_breaker.as_ref(), |(_, breaker)| breaker.as_ref())?;
            Some(breaker.circuit(setup.group.clone(), plan.topic.clone(), core.observers.clone()))
        };
        setup.circuits = setup.topology.plans().iter().map(circuit).collect();
        setup.classifiers = self.classifiers;
        setup.text_form = if self.interop_node { TextForm::Node } else { TextForm::Bytes };
        setup.commit_each = self.commit == CommitMode::Each;
        setup.starts_at_the_end = !self.from_beginning;
        setup.limits = limits;
        let inner = Arc::new(ConsumerInner {
            core: core.clone(),
            setup: Arc::new(setup),
            life: Arc::new(Lifecycle::new()),
            originals_start: if self.from_beginning { Start::Earliest } else { Start::Latest },
            preparation: self.preparation,
            interop_node: self.interop_node,
            instance_id: self.instance_id,
        });
        core.consumers.add(&inner);
        Ok(Consumer { inner })
    }
}

impl<S> fmt::Debug for ConsumerBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topics: Vec<_> = self.subscriptions.iter().map(|(topic, _)| topic).collect();
        f.debug_struct("ConsumerBuilder").field("group", &self.group).field("topics", &topics).finish_non_exhaustive()
    }
}
