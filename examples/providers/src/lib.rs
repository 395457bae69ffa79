//! What both programs do: one round trip to a broker over TLS, by a provider of the caller's. In this folder:
//!
//! ```sh
//! cargo run --features ring --bin ring kafka.example.com:9093 ca.pem
//! cargo run --features aws-lc-rs --bin aws-lc-rs kafka.example.com:9093 ca.pem
//! ```

use std::error::Error;
use std::time::Duration;

use kafka_harbor::client::{Client, Tls};
use rustls::crypto::CryptoProvider;

/// Reaches the broker that the arguments name, by the authorities in their file.
///
/// # Errors
/// When arguments are missing, or the broker cannot be reached.
pub async fn ping(provider: CryptoProvider) -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(broker), Some(authorities)) = (arguments.next(), arguments.next()) else {
        return Err("which broker, and which file of authorities?".into());
    };
    let tls = Tls::builder(provider).authorities_file(authorities).build()?;
    let client = Client::builder([broker]).tls(tls).build()?;
    client.ping(Duration::from_secs(10)).await?;
    println!("reached");
    Ok(client.close(Duration::from_secs(1)).await?)
}
