//! Adapters that do one thing otherwise than the one beneath them.

/// The calls of an [`Adapter`](kafka_harbor::adapter::Adapter) that are passed on to the adapter in a field:
/// `pass_on!(memory: capabilities connect close)`.
#[allow(unused_macros, reason = "each test binary uses its part of this")]
macro_rules! pass_on {
    ($to:tt: $($call:ident)+) => { $(pass_on! { @$call $to })+ };
    (@name $to:tt) => {
        fn name(&self) -> &'static str {
            self.$to.name()
        }
    };
    (@capabilities $to:tt) => {
        fn capabilities(&self) -> ::kafka_harbor::adapter::Capabilities {
            self.$to.capabilities()
        }
    };
    (@connect $to:tt) => {
        fn connect(&self) -> $crate::support::pass_on::Answer<'_, ()> {
            self.$to.connect()
        }
    };
    (@close $to:tt) => {
        fn close(&self, timeout: ::std::time::Duration) -> $crate::support::pass_on::Answer<'_, ()> {
            self.$to.close(timeout)
        }
    };
    (@publisher $to:tt) => {
        fn publisher(
            &self,
            options: ::kafka_harbor::adapter::PublisherOptions,
        ) -> Result<::std::sync::Arc<dyn ::kafka_harbor::adapter::Publisher>, ::kafka_harbor::adapter::AdapterError> {
            self.$to.publisher(options)
        }
    };
    (@create_topics $to:tt) => {
        fn create_topics<'a>(
            &'a self,
            topics: &'a [::kafka_harbor::record::NewTopic],
        ) -> $crate::support::pass_on::Answer<'a, ()> {
            self.$to.create_topics(topics)
        }
    };
    (@describe_topics $to:tt) => {
        fn describe_topics<'a>(
            &'a self,
            topics: &'a [::kafka_harbor::record::Topic],
        ) -> $crate::support::pass_on::Answer<'a, Vec<Option<::kafka_harbor::adapter::TopicDescription>>> {
            self.$to.describe_topics(topics)
        }
    };
    (@watermarks $to:tt) => {
        fn watermarks<'a>(
            &'a self,
            topics: &'a [::kafka_harbor::record::Topic],
        ) -> $crate::support::pass_on::Answer<'a, Vec<::kafka_harbor::adapter::PartitionWatermarks>> {
            self.$to.watermarks(topics)
        }
    };
    (@committed $to:tt) => {
        fn committed<'a>(
            &'a self,
            group: &'a str,
            topics: &'a [::kafka_harbor::record::Topic],
        ) -> $crate::support::pass_on::Answer<'a, Vec<::kafka_harbor::adapter::CommittedOffset>> {
            self.$to.committed(group, topics)
        }
    };
}

/// What most calls of the port return.
pub(crate) type Answer<'a, T> = kafka_harbor::adapter::BoxFuture<'a, Result<T, kafka_harbor::adapter::AdapterError>>;

#[allow(unused_imports, reason = "each test binary uses its part of this")]
pub(crate) use pass_on;
