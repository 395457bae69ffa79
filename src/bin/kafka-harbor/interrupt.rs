//! SIGTERM and SIGINT, as what ends long work in order.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Both signals.
pub(crate) struct Interrupt {
    terminate: Signal,
    interrupt: Signal,
}

/// From here on the signals do not end the process.
pub(crate) fn interrupt() -> io::Result<Interrupt> {
    Ok(Interrupt { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
}

impl Interrupt {
    /// The next signal's name.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
