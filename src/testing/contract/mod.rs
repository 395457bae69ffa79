//! What every adapter must do, as checks that any adapter's author can run.
//!
//! A [`Fixture`] tells how to reach the broker under test. [`adapter_contract!`](crate::adapter_contract) makes a test
//! of each check; [`run_all`] runs them one after the other. Checks use topics and groups of their own, so they can run
//! side by side on a live broker. Every wait is bounded by [`Fixture::patience`]; what a broker declares it cannot do is
//! skipped, and says so on standard error.
//!
//! ```
//! use std::sync::Arc;
//! use kafka_harbor::adapter::Adapter;
//! use kafka_harbor::adapter::memory::{MemoryAdapter, MemoryBroker};
//! use kafka_harbor::testing::contract::{self, Fixture};
//!
//! #[derive(Debug, Default)]
//! struct InMemory(MemoryBroker);
//!
//! impl Fixture for InMemory {
//!     fn adapter(&self) -> Arc<dyn Adapter> {
//!         Arc::new(MemoryAdapter::new(&self.0))
//!     }
//! }
//!
//! # let mut runtime = tokio::runtime::Builder::new_current_thread();
//! # runtime.enable_time().build()?.block_on(async {
//! contract::tombstone_is_not_empty(&InMemory::default()).await;
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

mod fixture;
mod groups;
mod publishing;
mod reader;
mod reading;
mod records;
mod topics;

pub use fixture::Fixture;
pub use groups::{
    dropped_membership_leaves, revocation_is_awaited, settled_position_is_found_again, stale_epoch_is_refused,
    unsettled_records_come_again,
};
pub use publishing::{
    bytes_are_faithful, calls_keep_their_order, flush_waits_and_fails_once_closed,
    headers_are_bytes_repeat_and_may_be_null, large_records_pass, lost_answer_makes_no_duplicate,
    one_refused_record_is_told_from_the_others, order_holds_within_a_partition, tombstone_is_not_empty,
};
pub use reading::{
    batches_continue_each_other, partitions_come_independently, pause_ends_with_the_membership,
    paused_partition_is_silent, resume_at_an_offset_goes_there, start_decides_without_a_position,
};
pub use records::records_are_settled_one_by_one;
pub use topics::{closed_adapter_refuses, offsets_are_read_back, topics_are_created_once};

/// Makes a test of every check of the [contract](crate::testing::contract), named as the check.
///
/// Takes the attributes of each test, then an expression that makes a [`Fixture`]. The expression may await.
///
/// ```
/// # use std::sync::Arc;
/// # use kafka_harbor::adapter::Adapter;
/// # use kafka_harbor::adapter::memory::{MemoryAdapter, MemoryBroker};
/// # use kafka_harbor::testing::contract::Fixture;
/// # #[derive(Debug, Default)]
/// # struct InMemory(MemoryBroker);
/// # impl Fixture for InMemory {
/// #     fn adapter(&self) -> Arc<dyn Adapter> {
/// #         Arc::new(MemoryAdapter::new(&self.0))
/// #     }
/// # }
/// kafka_harbor::adapter_contract!(#[tokio::test(start_paused = true)] InMemory::default());
/// ```
#[macro_export]
macro_rules! adapter_contract {
    ($(#[$attribute:meta])+ $fixture:expr) => {
        $crate::adapter_contract! { @checks [$crate::adapter_contract] @all [$(#[$attribute])+] $fixture; }
    };
    // The list of checks, handed to another macro behind its own arguments.
    (@checks [$($callback:tt)+] $($arguments:tt)*) => {
        $($callback)+! {
            $($arguments)*
            bytes_are_faithful
            order_holds_within_a_partition
            calls_keep_their_order
            settled_position_is_found_again
            unsettled_records_come_again
            batches_continue_each_other
            partitions_come_independently
            topics_are_created_once
            paused_partition_is_silent
            pause_ends_with_the_membership
            tombstone_is_not_empty
            offsets_are_read_back
            revocation_is_awaited
            stale_epoch_is_refused
            dropped_membership_leaves
            resume_at_an_offset_goes_there
            start_decides_without_a_position
            headers_are_bytes_repeat_and_may_be_null
            large_records_pass
            one_refused_record_is_told_from_the_others
            lost_answer_makes_no_duplicate
            flush_waits_and_fails_once_closed
            closed_adapter_refuses
            records_are_settled_one_by_one
        }
    };
    (@all $attributes:tt $fixture:expr; $($check:ident)+) => {
        $($crate::adapter_contract! { @one $attributes $fixture; $check })+
    };
    (@one [$($attributes:tt)+] $fixture:expr; $check:ident) => {
        $($attributes)+
        async fn $check() {
            let fixture = $fixture;
            $crate::testing::contract::$check(&fixture).await;
        }
    };
}

/// Runs every check, one after the other, naming each on standard error.
///
/// # Panics
/// At the first that fails.
///
/// # Cancel safety
/// Dropping the future stops at the check under way. Its topics and groups stay.
pub async fn run_all(fixture: &dyn Fixture) {
    macro_rules! run {
        ($($check:ident)+) => {
            $(
                eprintln!("contract: {}", stringify!($check));
                $check(fixture).await;
            )+
        };
    }
    adapter_contract! { @checks [run] }
}
