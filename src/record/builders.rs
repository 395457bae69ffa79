//! The setters that everything to be sent has. Macros, because the fields belong to types of several layers.

/// `with_key` and `with_header`, for a type that owns `key` and `headers`.
macro_rules! with_owned_parts {
    () => {
        /// The same with this key: what has one key goes to one partition, and keeps its order.
        #[must_use]
        pub fn with_key(mut self, key: impl Into<::bytes::Bytes>) -> Self {
            self.key = Some(key.into());
            self
        }

        /// The same with one more header.
        #[must_use]
        pub fn with_header(mut self, name: impl Into<::bytes::Bytes>, value: impl Into<::bytes::Bytes>) -> Self {
            self.headers.push($crate::record::Header::new(name, value));
            self
        }
    };
}

/// `with_partition` and `with_timestamp`, for a type with `partition` and `timestamp`.
macro_rules! with_place {
    () => {
        /// The same for this partition, whatever the key.
        #[must_use]
        pub fn with_partition(mut self, partition: i32) -> Self {
            self.partition = Some(partition);
            self
        }

        /// The same with this creation time. Default: the time of sending.
        #[must_use]
        pub fn with_timestamp(mut self, timestamp: $crate::record::Timestamp) -> Self {
            self.timestamp = Some(timestamp);
            self
        }
    };
}

pub(crate) use {with_owned_parts, with_place};
