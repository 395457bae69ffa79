//! Reliable handling of records: retry ladder, dead letters, redrive, over any broker behind [`crate::adapter`].

mod correlation;
mod duration;
mod error;
mod failure;
mod headers;
mod instant;
mod prepare;
mod serializer;
mod text;
mod topology;

pub use duration::{IntoPeriod, Period, PeriodError};
pub use error::{ConfigError, ConfigProblem, HarborError, SerializationError, code};
pub use failure::{Classify, Failure, IntoFailure, kind};
pub use headers::{HeaderNames, RetryBlock};
pub use prepare::{TopicChecks, TopicDefaults};
pub use serializer::{Deserializer, Json, Nullable, Raw, Serializer, Text};
