//! TLS by `aws-lc-rs`, which is fast, and can be had validated for FIPS 140-3 (rustls' feature `fips`).

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    providers::ping(rustls::crypto::aws_lc_rs::default_provider()).await
}
