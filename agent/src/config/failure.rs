//! Exit codes and the final error message.

use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
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

/// Prints the message on standard error, in this format, and returns the exit code.
pub(crate) fn code(done: Result<(), Failure>, format: LogFormat) -> ExitCode {
    let Err(failure) = done else { return ExitCode::SUCCESS };
    if let Some(message) = failure.message() {
        print(message, format);
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
/// A terminal that was stopped, or a pipe that nobody reads, must not keep the process: if it takes nothing after this long, the
/// error is lost.
pub(crate) fn print(message: &str, format: LogFormat) {
    write_while_taken(io::stderr(), io::stderr(), text(message, format), LAST_LINES);
}

/// Writes this text, and looks at `end`, where it goes, each time that `patience` has passed: a busy machine may take longer to
/// write it, but an end that takes nothing more at that moment has nobody who reads it.
fn write_while_taken(mut to: impl Write + Send + 'static, end: impl AsFd, text: String, patience: Duration) {
    let (done, written) = mpsc::channel();
    let work = move || drop((to.write_all(text.as_bytes()), done));
    if thread::Builder::new().spawn(work).is_err() {
        return;
    }
    // Nothing is sent: the sender is dropped.
    while written.recv_timeout(patience) == Err::<(), _>(RecvTimeoutError::Timeout) {
        if !takes_more(&end) {
            return;
        }
    }
}

/// Whether something can be written there at this moment.
fn takes_more(end: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&end, PollFlags::OUT)];
    let at_once = Timespec::default();
    poll(&mut polled, Some(&at_once)).is_ok_and(|ready| ready > 0)
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

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter, Read, pipe};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// As on a machine that runs the thread late.
    struct Late {
        to: PipeWriter,
        has_written: Arc<AtomicBool>,
    }

    impl Write for Late {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            thread::sleep(Duration::from_millis(100));
            let written = self.to.write(bytes)?;
            self.has_written.store(true, Ordering::Relaxed);
            Ok(written)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn ends() -> (PipeReader, PipeWriter, Late) {
        let (reader, writer) = pipe().unwrap();
        let late = Late { to: writer.try_clone().unwrap(), has_written: Arc::default() };
        (reader, writer, late)
    }

    #[test]
    fn an_error_is_printed_however_late_the_machine_writes_it() {
        let (mut reader, writer, late) = ends();
        let has_written = Arc::clone(&late.has_written);
        write_while_taken(late, &writer, "why".to_owned(), Duration::from_millis(1));
        assert!(has_written.load(Ordering::Relaxed));
        drop(writer);
        let mut printed = String::new();
        reader.read_to_string(&mut printed).unwrap();
        assert_eq!(printed, "why");
    }

    /// More than the pipe takes. The test ends.
    #[test]
    fn an_error_that_nobody_reads_keeps_no_process() {
        let (reader, writer, late) = ends();
        write_while_taken(late, &writer, "x".repeat(10 << 20), Duration::from_millis(500));
        drop(reader);
    }
}
