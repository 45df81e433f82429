//! Log lines on standard error. Standard output is for results.
//!
//! Logging never blocks: lines go through a bounded queue to a thread that writes them. If standard error blocks, the
//! queue fills; further lines are dropped and counted.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, registry};

use crate::api::table::escaped;
use crate::config::values::LogFormat;

/// Maximum number of queued lines: about two megabytes.
const WAITING: usize = 8_192;

/// The running log.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    dropped: ErrorCounter,
    /// Writes the queued lines when dropped.
    writer: Arc<Mutex<Option<WorkerGuard>>>,
}

impl Log {
    /// Starts logging.
    pub(crate) fn start(level: Level, format: LogFormat) -> Self {
        let (lines, writer) = NonBlockingBuilder::default()
            .buffered_lines_limit(WAITING)
            .lossy(true)
            .thread_name("log")
            .finish(io::stderr());
        let dropped = lines.error_counter();
        let lines = fmt::layer().with_writer(move || Escaped(lines.clone()));
        let lines = match format {
            // Colours would be control characters, which are escaped.
            LogFormat::Text => lines.with_ansi(false).boxed(),
            LogFormat::Json => lines.json().flatten_event(true).boxed(),
        };
        // Fails if a logger is already installed. That one stays.
        let _ = registry().with(filter(level)).with(lines).try_init();
        Self { dropped, writer: Arc::new(Mutex::new(Some(writer))) }
    }

    /// The number of lines dropped because the queue was full.
    pub(crate) fn dropped_lines(&self) -> u64 {
        self.dropped.dropped_lines() as u64
    }

    /// Writes the queued lines, for at most a second. Lines logged later are lost.
    pub(crate) fn finish(&self) {
        drop(self.writer.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Escapes what a message or a field quotes from elsewhere, so that it cannot begin a line of its own or control a
/// terminal.
struct Escaped<W>(W);

impl<W: Write> Write for Escaped<W> {
    /// `line`: a whole line of the log.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        self.0.write_all(format!("{}\n", escaped(text, &[])).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The Kubernetes client logs each failed attempt, while the agent logs one line per state change. So the client's lines
/// appear at `debug`. Its lines with whole responses, which include environment variables and Secrets, appear at `trace`.
fn filter(level: Level) -> Targets {
    let level = LevelFilter::from(level);
    let from = |least| if level >= least { level } else { LevelFilter::OFF };
    Targets::new().with_default(level).with_targets([
        ("kube_client", from(LevelFilter::DEBUG)),
        ("kube_runtime", from(LevelFilter::DEBUG)),
        // The module that decodes responses and logs those that it cannot decode.
        ("kube_client::client", from(LevelFilter::TRACE)),
        ("kube_client::client::builder", from(LevelFilter::DEBUG)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_lines_are_at_debug_and_whole_responses_at_trace() {
        let levels = |target, severity| {
            let levels = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE].into_iter();
            levels.filter(|level| filter(*level).would_enable(target, &severity)).count()
        };
        assert_eq!(levels("pod_index::agent::run", Level::WARN), 4);
        for target in ["kube_client::client::builder", "kube_client::config", "kube_runtime::watcher"] {
            assert_eq!(levels(target, Level::ERROR), 2, "{target}");
        }
        assert_eq!(levels("kube_client::client", Level::WARN), 1);
    }
}
