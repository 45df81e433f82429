//! Exit codes and the final error message.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::shutdown::LAST_LINES;
use super::values::LogFormat;
use crate::api::table::{escaped, sanitized};

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
    /// `doctor` found a failure, and has printed its report. A warning is [`No`](Self::No).
    Reported,
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
            Self::Reported => None,
            Self::Usage(message) | Self::Unable(message) | Self::Kubelet(message) => Some(message),
        }
    }
}

/// How long an error waits until it is printed, if no signal ends the agent: on a busy machine, the thread that prints may not
/// run for a second. A signal that comes meanwhile has to be obeyed within three.
const UNHURRIED: Duration = Duration::from_secs(3);

/// Prints the message on standard error, in this format, and returns the exit code.
pub(crate) fn code(done: Result<(), Failure>, format: LogFormat) -> ExitCode {
    let Err(failure) = done else { return ExitCode::SUCCESS };
    if let Some(message) = failure.message() {
        // This is also the message after a signal.
        let patience = if matches!(failure, Failure::No(_)) { LAST_LINES } else { UNHURRIED };
        print_within(patience, message, format);
    }
    ExitCode::from(match failure {
        Failure::No(_) => 1,
        Failure::Usage(_) | Failure::Reported => 2,
        Failure::Unable(_) => 3,
        Failure::Kubelet(_) => 4,
    })
}

/// Prints an error on standard error: as a line of the log, if that is JSON. Whoever collects the log then finds in one form
/// why the agent has ended.
///
/// A terminal that was stopped, or a pipe that nobody reads, must not keep the process. So this waits for a limited time.
pub(crate) fn print(message: &str, format: LogFormat) {
    print_within(UNHURRIED, message, format);
}

fn print_within(patience: Duration, message: &str, format: LogFormat) {
    let text = text(message, format);
    let (done, printed) = mpsc::channel();
    let work = move || drop((io::stderr().write_all(text.as_bytes()), done));
    if thread::Builder::new().spawn(work).is_ok() {
        // Nothing is sent: the sender is dropped.
        let _ = printed.recv_timeout(patience) as Result<(), _>;
    }
}

/// The error with the end of its last line.
fn text(message: &str, format: LogFormat) -> String {
    match format {
        LogFormat::Text => {
            // The message may quote a server's response.
            let lines: Vec<_> = message.lines().map(sanitized).collect();
            format!("pod-index: {}\n", lines.join("\n"))
        }
        LogFormat::Json => {
            let line = json!({
                "timestamp": Timestamp::now().to_string(),
                "level": "ERROR",
                "message": message.trim_end(),
                "target": "pod_index",
            });
            format!("{}\n", escaped(&line.to_string(), &[]))
        }
    }
}
