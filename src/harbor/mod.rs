//! Reliable handling of records.
