//! State machines without sockets, clock or tasks.
