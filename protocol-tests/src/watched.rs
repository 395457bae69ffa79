//! An adapter with somebody who watches the events of its memberships.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use kafka_harbor::adapter::{
    Adapter, AdapterError, BoxFuture, Capabilities, CommittedOffset, Event, EventSource, JoinOptions, Membership,
    PartitionWatermarks, Publisher, PublisherOptions, TopicDescription,
};
use kafka_harbor::record::{NewTopic, Topic};

/// An adapter that passes everything on, and shows each event of its memberships before it is handed over.
pub struct Watched {
    inner: Arc<dyn Adapter>,
    watch: Arc<Watch>,
}

type Watch = dyn Fn(&Event) + Send + Sync;

impl Watched {
    /// Shows the events to `watch`.
    pub fn new(inner: impl Adapter, watch: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Self { inner: Arc::new(inner), watch: Arc::new(watch) }
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watched").field(&self.inner).finish()
    }
}

impl Adapter for Watched {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn connect(&self) -> BoxFuture<'_, Result<(), AdapterError>> {
        self.inner.connect()
    }

    fn close(&self, timeout: Duration) -> BoxFuture<'_, Result<(), AdapterError>> {
        self.inner.close(timeout)
    }

    fn publisher(&self, options: PublisherOptions) -> Result<Arc<dyn Publisher>, AdapterError> {
        self.inner.publisher(options)
    }

    fn join(&self, options: JoinOptions) -> BoxFuture<'_, Result<Membership, AdapterError>> {
        Box::pin(async move {
            let Membership { events, handle } = self.inner.join(options).await?;
            let events = Box::new(WatchedEvents { inner: events, watch: self.watch.clone() });
            Ok(Membership { events, handle })
        })
    }

    fn create_topics<'a>(&'a self, topics: &'a [NewTopic]) -> BoxFuture<'a, Result<(), AdapterError>> {
        self.inner.create_topics(topics)
    }

    fn describe_topics<'a>(
        &'a self,
        topics: &'a [Topic],
    ) -> BoxFuture<'a, Result<Vec<Option<TopicDescription>>, AdapterError>> {
        self.inner.describe_topics(topics)
    }

    fn watermarks<'a>(&'a self, topics: &'a [Topic]) -> BoxFuture<'a, Result<Vec<PartitionWatermarks>, AdapterError>> {
        self.inner.watermarks(topics)
    }

    fn committed<'a>(
        &'a self,
        group: &'a str,
        topics: &'a [Topic],
    ) -> BoxFuture<'a, Result<Vec<CommittedOffset>, AdapterError>> {
        self.inner.committed(group, topics)
    }
}

struct WatchedEvents {
    inner: Box<dyn EventSource>,
    watch: Arc<Watch>,
}

impl EventSource for WatchedEvents {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let event = self.inner.poll_next(cx);
        if let Poll::Ready(Some(event)) = &event {
            (self.watch)(event);
        }
        event
    }
}
