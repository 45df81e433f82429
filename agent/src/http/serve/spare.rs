//! A descriptor held back for the limit of open files. Without it, a new client would wait until another one goes.

use std::fs::File;
use std::io;
use std::time::Duration;

use tokio::time::Instant;

/// The time between two log lines about connections that cannot be accepted.
const QUIET: Duration = Duration::from_secs(60);

pub(super) struct Spare {
    /// `None` while a client uses it.
    file: Option<File>,
    /// The failures since the last log line.
    failures: u64,
    logged: Option<Instant>,
}

impl Spare {
    pub(super) fn new() -> Self {
        Self { file: File::open("/dev/null").ok(), failures: 0, logged: None }
    }

    /// Lends the descriptor to the next client, if `error` is the limit of open files. `false`: wait for another one.
    pub(super) fn lend(&mut self, error: &io::Error) -> bool {
        let is_limit = matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
        if is_limit && self.file.take().is_some() {
            return true;
        }
        self.failures += 1;
        if self.logged.is_none_or(|at| at.elapsed() >= QUIET) {
            tracing::warn!(%error, times = self.failures, "cannot accept connections");
            (self.failures, self.logged) = (0, Some(Instant::now()));
        }
        false
    }

    /// Whether there is a descriptor to hold back.
    pub(super) fn take_back(&mut self) -> bool {
        if self.file.is_none() {
            self.file = File::open("/dev/null").ok();
        }
        self.file.is_some()
    }
}
