//! How the process ends, and what it says then.

use std::fmt::Display;
use std::process::ExitCode;

/// Why a command did not end with 0. The variants are the exit codes of [`agent`](super).
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The answer is no. What there is to say may have been said already.
    No(Option<String>),
    /// What the user gave is wrong.
    Usage(String),
    /// The work cannot be done.
    Unable(String),
}

impl Failure {
    /// The work cannot be done: `what` failed with `error`.
    pub(super) fn unable(what: impl Display, error: impl Display) -> Self {
        Self::Unable(format!("{what}: {error}"))
    }
}

/// Says what there is to say, on standard error, and gives the exit code.
pub(super) fn code(done: Result<(), Failure>) -> ExitCode {
    let (code, message) = match done {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::No(message)) => (1, message),
        Err(Failure::Usage(message)) => (2, Some(message)),
        Err(Failure::Unable(message)) => (3, Some(message)),
    };
    if let Some(message) = message {
        eprintln!("pod-index: {message}");
    }
    ExitCode::from(code)
}
