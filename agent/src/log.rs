//! Log lines on standard error. Standard output is for results.
//!
//! Logging never blocks: lines go through a bounded queue to a thread that writes them. If standard error blocks, the
//! queue fills; further lines are dropped and counted.

use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, registry, reload};

use super::cli::{LogFormat, LogLevel};

/// Maximum number of queued lines: about two megabytes.
const WAITING: usize = 8_192;

/// Sets the log level while the agent runs.
#[derive(Clone, Debug)]
pub(super) struct Log {
    filter: reload::Handle<Targets, Registry>,
    level: Arc<Mutex<LogLevel>>,
    dropped: ErrorCounter,
    /// Writes the queued lines when dropped.
    writer: Arc<Mutex<Option<WorkerGuard>>>,
}

impl Log {
    /// Starts logging.
    pub(super) fn start(level: LogLevel, format: LogFormat) -> Self {
        let (filter, handle) = reload::Layer::new(filter(level));
        let (lines, writer) = NonBlockingBuilder::default()
            .buffered_lines_limit(WAITING)
            .lossy(true)
            .thread_name("log")
            .finish(io::stderr());
        let dropped = lines.error_counter();
        let lines = fmt::layer().with_writer(lines);
        let lines = match format {
            LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
            LogFormat::Json => lines.json().flatten_event(true).boxed(),
        };
        // Fails if a logger is already installed. That one stays.
        let _ = registry().with(filter).with(lines).try_init();
        let writer = Arc::new(Mutex::new(Some(writer)));
        Self { filter: handle, level: Arc::new(Mutex::new(level)), dropped, writer }
    }

    /// The number of lines dropped because the queue was full.
    pub(super) fn dropped_lines(&self) -> u64 {
        self.dropped.dropped_lines() as u64
    }

    /// Writes the queued lines, for at most a second. Lines logged later are lost.
    pub(super) fn finish(&self) {
        drop(self.writer.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// The minimum level that is logged.
    pub(super) fn level(&self) -> LogLevel {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the minimum level.
    pub(super) fn set_level(&self, level: LogLevel) {
        let mut current = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        // Fails if the logger is gone.
        if self.filter.reload(filter(level)).is_ok() {
            *current = level;
        }
    }
}

/// The Kubernetes client logs each failed attempt, while the agent logs one line per state change. The client's lines
/// therefore appear at `debug`. Lines with whole responses, which include environment variables and Secrets, appear at
/// `trace`.
fn filter(level: LogLevel) -> Targets {
    let shown = level_filter(level);
    let at = |least: LevelFilter| if shown >= least { shown } else { LevelFilter::OFF };
    Targets::new()
        .with_default(shown)
        .with_target("kube_client", at(LevelFilter::DEBUG))
        .with_target("kube_runtime", at(LevelFilter::DEBUG))
        // The module that decodes responses and logs those that it cannot decode.
        .with_target("kube_client::client", at(LevelFilter::TRACE))
        .with_target("kube_client::client::builder", at(LevelFilter::DEBUG))
}

fn level_filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn the_clients_lines_are_at_debug_and_whole_responses_at_trace() {
        let levels = [LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace];
        let shown = |target: &str, severity: Level| {
            levels.into_iter().filter(|level| filter(*level).would_enable(target, &severity)).count()
        };
        assert_eq!(shown("pod_index::agent::run", Level::WARN), 4);
        for target in ["kube_client::client::builder", "kube_client::config", "kube_runtime::watcher"] {
            assert_eq!(shown(target, Level::ERROR), 2, "{target}");
        }
        assert_eq!(shown("kube_client::client", Level::WARN), 1);
    }
}
