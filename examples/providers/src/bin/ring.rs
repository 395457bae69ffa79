//! TLS by `ring`, which runs on nearly every target.

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    providers::ping(rustls::crypto::ring::default_provider()).await
}
