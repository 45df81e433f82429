//! Descriptors held back for the limit of open files. Without them, a new client would wait until another one goes.

use std::fs::File;
use std::io;
use std::time::Duration;

use tokio::time::Instant;

/// More than one: another listener of the process may take a descriptor between its release and its return.
const HELD: usize = 4;

/// The time between two log lines about connections that cannot be accepted.
const QUIET: Duration = Duration::from_secs(60);

pub(super) struct Spare {
    /// Fewer than [`HELD`] while clients use the others.
    files: Vec<File>,
    /// The failures since the last log line.
    failures: u64,
    logged: Option<Instant>,
}

impl Spare {
    pub(super) fn new() -> Self {
        let mut spare = Self { files: Vec::with_capacity(HELD), failures: 0, logged: None };
        spare.take_back();
        spare
    }

    /// Lends a descriptor to the next client, if `error` is the limit of open files. `false`: wait for another one.
    pub(super) fn lend(&mut self, error: &io::Error) -> bool {
        let is_limit = matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
        if is_limit && self.files.pop().is_some() {
            return true;
        }
        self.failures += 1;
        if self.logged.is_none_or(|at| at.elapsed() >= QUIET) {
            tracing::warn!(%error, times = self.failures, "cannot accept connections");
            (self.failures, self.logged) = (0, Some(Instant::now()));
        }
        false
    }

    /// Takes back what was lent, if it is free again. Returns whether nothing is lent.
    pub(super) fn take_back(&mut self) -> bool {
        while self.files.len() < HELD {
            let Ok(file) = File::open("/dev/null") else { return false };
            self.files.push(file);
        }
        true
    }
}
