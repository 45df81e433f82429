//! What systemd wants to hear of a service of `Type=notify`: `sd_notify(3)` without its library.
//!
//! Nothing is said, and nothing fails, where nobody listens.

use std::env;
use std::os::unix::net::UnixDatagram;

use rustix::time::{ClockId, clock_gettime};

/// The agent serves; that is when whatever comes after it in the boot may start. That it knows all pods takes longer, and
/// as long as an API server may take: `/readyz` tells.
pub(super) fn serving() {
    notify("READY=1\nSTATUS=waiting for the pods of every source");
}

/// One line on how things are, for `systemctl status`.
pub(super) fn status(status: &str) {
    notify(&format!("STATUS={status}"));
}

/// The configuration is about to be read anew; [`serving`] or [`status`] follows.
pub(super) fn reloading() {
    // `Type=notify-reload` wants to know since when, by its clock.
    let now = clock_gettime(ClockId::Monotonic);
    notify(&format!("RELOADING=1\nMONOTONIC_USEC={}{:06}", now.tv_sec, now.tv_nsec / 1_000));
}

/// It is again as it is to be.
pub(super) fn reloaded() {
    notify("READY=1");
}

/// The agent is about to leave.
pub(super) fn stopping() {
    notify("STOPPING=1");
}

fn notify(message: &str) {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else { return };
    let sent = UnixDatagram::unbound().and_then(|socket| match abstract_name(&path) {
        #[cfg(target_os = "linux")]
        Some(name) => {
            use std::os::linux::net::SocketAddrExt;
            let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
            socket.send_to_addr(message.as_bytes(), &address)
        }
        _ => socket.send_to(message.as_bytes(), &path),
    });
    if let Err(error) = sent {
        tracing::debug!(%error, "systemd could not be told");
    }
}

/// The rest of a name that begins with `@`.
fn abstract_name(path: &std::ffi::OsStr) -> Option<&[u8]> {
    use std::os::unix::ffi::OsStrExt;
    path.as_bytes().strip_prefix(b"@")
}
