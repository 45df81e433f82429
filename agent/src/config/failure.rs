//! Exit codes and the final error message.

use std::fmt::Display;
use std::process::ExitCode;

use crate::api::table::harmless;

/// Why a command did not end with 0. The variants are the exit codes of [`agent`](super).
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The answer is no. The reason may have been printed already.
    No(Option<String>),
    /// Invalid input of the user.
    Usage(String),
    /// The command failed.
    Unable(String),
    /// `--manage-mirror-pods` was given, but a kubelet manages the mirror pods of this node.
    Kubelet(String),
    /// `doctor` found a failure, and has printed it. A warning is [`No`](Self::No).
    Ill,
}

impl Failure {
    /// The command failed: `what` failed with `error`.
    pub(crate) fn unable(what: impl Display, error: impl Display) -> Self {
        Self::Unable(format!("{what}: {error}"))
    }

    /// The message, unless it was printed already.
    pub(crate) fn message(&self) -> Option<&str> {
        match self {
            Self::No(message) => message.as_deref(),
            Self::Ill => None,
            Self::Usage(message) | Self::Unable(message) | Self::Kubelet(message) => Some(message),
        }
    }
}

/// Prints the message on standard error and returns the exit code.
pub(crate) fn code(done: Result<(), Failure>) -> ExitCode {
    let Err(failure) = done else { return ExitCode::SUCCESS };
    if let Some(message) = failure.message() {
        // The message may quote a server's response.
        let lines: Vec<_> = message.lines().map(harmless).collect();
        eprintln!("pod-index: {}", lines.join("\n"));
    }
    ExitCode::from(match failure {
        Failure::No(_) => 1,
        Failure::Usage(_) | Failure::Ill => 2,
        Failure::Unable(_) => 3,
        Failure::Kubelet(_) => 4,
    })
}
