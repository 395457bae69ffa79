//! The events that every layer reports.
