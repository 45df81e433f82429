//! Notifies systemd for `Type=notify`: `sd_notify(3)` without its library.
//!
//! Does nothing if no one listens. Errors are ignored. `READY=1` means that the agent serves, so units ordered after it
//! may start. It may not know all pods yet, since that can depend on an API server; `/readyz` reports it. `WATCHDOG=1`
//! means that every vital part runs: without it for the unit's `WatchdogSec=`, systemd restarts the agent.

use std::env;
use std::os::unix::net::UnixDatagram;

pub(crate) fn notify(message: &str) {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else { return };
    // A systemd that reads nothing must not stop the thread that watches over the others.
    let socket = UnixDatagram::unbound().and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
    let sent = socket.and_then(|socket| socket.send_to(message.as_bytes(), path));
    if let Err(error) = sent {
        tracing::debug!(%error, "cannot notify systemd");
    }
}

/// Whether systemd expects `WATCHDOG=1`.
pub(crate) fn has_watchdog() -> bool {
    env::var_os("NOTIFY_SOCKET").is_some() && env::var_os("WATCHDOG_USEC").is_some()
}
