//! Notifies systemd for `Type=notify`: `sd_notify(3)` without its library.
//!
//! Does nothing if no one listens. Errors are ignored. `READY=1` means that the agent serves, so units ordered after it
//! may start. It may not know all pods yet, since that can depend on an API server; `/readyz` reports it.

use std::env;
use std::os::unix::net::UnixDatagram;

pub(crate) fn notify(message: &str) {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else { return };
    let sent = UnixDatagram::unbound().and_then(|socket| socket.send_to(message.as_bytes(), path));
    if let Err(error) = sent {
        tracing::debug!(%error, "cannot notify systemd");
    }
}
