//! This crate. `--rt ct` (default) or `mt`: Tokio's runtime with one thread or with two.
//!
//! produce: `--api batch` (default) hands borrowed records to `send_batch`, `--call N` of them a call (default all);
//! `--api future` enqueues owned records and awaits a future of each.
//!
//! heartbeats: how long they take while nothing is fetched, and while 50 MiB at a time are.
mod client;
mod harbor;
mod heartbeats;

use common::Args;

fn main() {
    let a = Args::parse();
    let mut b = if a.str("rt", "ct") == "ct" {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    b.enable_all().build().unwrap().block_on(async {
        match a.cmd.as_str() {
            "produce" if a.str("api", "batch") == "batch" => client::produce_batches(&a).await,
            "produce" => client::produce_futures(&a).await,
            "latency" => client::latency(&a).await,
            "consume" => client::consume(&a).await,
            "idle" => client::idle(&a).await,
            "heartbeats" => heartbeats::measure(&a).await,
            "harbor" => harbor::consume(&a).await,
            c => panic!("{c}"),
        }
    });
}
