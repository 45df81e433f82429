//! How the process ends, and what it says then.

use std::fmt::Display;
use std::process::ExitCode;

use super::table::harmless;

/// Why a command did not end with 0. The variants are the exit codes of [`agent`](super).
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The answer is no. What there is to say may have been said already.
    No(Option<String>),
    /// What the user gave is wrong.
    Usage(String),
    /// The work cannot be done.
    Unable(String),
    /// A kubelet keeps the mirror pods of this node.
    Kubelet(String),
}

impl Failure {
    /// The work cannot be done: `what` failed with `error`.
    pub(super) fn unable(what: impl Display, error: impl Display) -> Self {
        Self::Unable(format!("{what}: {error}"))
    }

    /// What there is to say, if it has not been said already.
    pub(super) fn message(&self) -> Option<&str> {
        match self {
            Self::No(message) => message.as_deref(),
            Self::Usage(message) | Self::Unable(message) | Self::Kubelet(message) => Some(message),
        }
    }
}

/// Says what there is to say, on standard error, and gives the exit code.
pub(super) fn code(done: Result<(), Failure>) -> ExitCode {
    let Err(failure) = done else { return ExitCode::SUCCESS };
    if let Some(message) = failure.message() {
        // It may quote whoever was asked.
        let lines: Vec<_> = message.lines().map(harmless).collect();
        eprintln!("pod-index: {}", lines.join("\n"));
    }
    ExitCode::from(match failure {
        Failure::No(_) => 1,
        Failure::Usage(_) => 2,
        Failure::Unable(_) => 3,
        Failure::Kubelet(_) => 4,
    })
}
