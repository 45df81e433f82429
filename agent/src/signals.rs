//! SIGTERM and Ctrl-C: the first shuts down gracefully, the second at once. SIGHUP: reloads the configuration.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::log::Log;

/// The signals that end the agent.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From now on, these signals do not end the process by themselves.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for a signal. Returns its name and its number.
    pub(super) async fn next(&mut self) -> (&'static str, i32) {
        tokio::select! {
            _ = self.terminate.recv() => ("SIGTERM", SignalKind::terminate().as_raw_value()),
            _ = self.interrupt.recv() => ("SIGINT", SignalKind::interrupt().as_raw_value()),
        }
    }

    /// Waits for another signal, then ends the process at once with the exit code of an unhandled signal.
    pub(super) async fn insist(mut self, log: Log) -> ! {
        let (name, number) = self.next().await;
        tracing::warn!(signal = name, "second signal, exiting at once");
        log.finish();
        std::process::exit(128 + number)
    }
}

/// The reload signal.
pub(super) struct Hangups(Signal);

impl Hangups {
    /// From now on, the signal does not end the process.
    pub(super) fn new() -> io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }

    /// Waits for the signal. Signals that arrive before the next wait count as one.
    pub(super) async fn next(&mut self) {
        self.0.recv().await;
    }
}
