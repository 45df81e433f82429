//! SIGTERM and Ctrl-C: the first asks, the second insists. SIGHUP: the configuration is to be read anew.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::log::Log;

/// The signals that end the agent.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From now on, these signals no longer end the process by themselves.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for one; its name and its number.
    pub(super) async fn next(&mut self) -> (&'static str, i32) {
        tokio::select! {
            _ = self.terminate.recv() => ("SIGTERM", SignalKind::terminate().as_raw_value()),
            _ = self.interrupt.recv() => ("SIGINT", SignalKind::interrupt().as_raw_value()),
        }
    }

    /// Waits for another one and ends the process at once, as the shell reports it for an unhandled signal.
    pub(super) async fn insist(mut self, log: Log) -> ! {
        let (name, number) = self.next().await;
        tracing::warn!(signal = name, "second signal, leaving at once");
        log.finish();
        std::process::exit(128 + number)
    }
}

/// The signal that has the configuration read anew.
pub(super) struct Hangups(Signal);

impl Hangups {
    /// From now on, the signal no longer ends the process.
    pub(super) fn new() -> io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }

    /// Waits for one. Several that come before the next wait are one.
    pub(super) async fn next(&mut self) {
        self.0.recv().await;
    }
}
