//! Log lines on standard error. Standard output is for results.
//!
//! Logging never blocks: lines go through a bounded queue to a thread that writes them. If standard error blocks, the
//! queue fills; further lines are dropped and counted.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, registry, reload};

use crate::api::table::escaped;
use crate::config::args::LogFormat;
use crate::config::log_filter::{LogFilter, LogLevel};

/// Maximum number of queued lines: about two megabytes.
const WAITING: usize = 8_192;

/// Sets the filter while the agent runs.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    filter: reload::Handle<Targets, Registry>,
    current: Arc<Mutex<LogFilter>>,
    dropped: ErrorCounter,
    /// Writes the queued lines when dropped.
    writer: Arc<Mutex<Option<WorkerGuard>>>,
}

impl Log {
    /// Starts logging.
    pub(crate) fn start(shown: LogFilter, format: LogFormat) -> Self {
        let (filter, handle) = reload::Layer::new(filter(&shown));
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
        let _ = registry().with(filter).with(lines).try_init();
        let writer = Arc::new(Mutex::new(Some(writer)));
        Self { filter: handle, current: Arc::new(Mutex::new(shown)), dropped, writer }
    }

    /// The number of lines dropped because the queue was full.
    pub(crate) fn dropped_lines(&self) -> u64 {
        self.dropped.dropped_lines() as u64
    }

    /// Writes the queued lines, for at most a second. Lines logged later are lost.
    pub(crate) fn finish(&self) {
        drop(self.writer.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// What is logged.
    pub(crate) fn shown(&self) -> LogFilter {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets what is logged.
    pub(crate) fn show(&self, shown: LogFilter) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        // Fails if the logger is gone.
        if self.filter.reload(filter(&shown)).is_ok() {
            *current = shown;
        }
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
        self.0.write_all(format!("{}\n", escaped(text)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The Kubernetes client logs each failed attempt, while the agent logs one line per state change. So the client's lines
/// appear at `debug`. Its lines with whole responses, which include environment variables and Secrets, appear at `trace`.
/// A level for one of the client's modules does not change this.
fn filter(shown: &LogFilter) -> Targets {
    let modules = shown.modules.iter().map(|(module, level)| (module.as_str(), level_filter(*level)));
    let least = [
        ("kube_client", LevelFilter::DEBUG),
        ("kube_runtime", LevelFilter::DEBUG),
        // The module that decodes responses and logs those that it cannot decode.
        ("kube_client::client", LevelFilter::TRACE),
        ("kube_client::client::builder", LevelFilter::DEBUG),
    ];
    let of_the_client = least.into_iter().map(|(module, least)| {
        let level = level_filter(shown.level_of(module));
        (module, if level >= least { level } else { LevelFilter::OFF })
    });
    // If a module has two levels, the last one applies.
    Targets::new().with_default(level_filter(shown.level)).with_targets(modules).with_targets(of_the_client)
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
            let filter = |level: &LogLevel| filter(&LogFilter::from(*level));
            levels.iter().filter(|level| filter(level).would_enable(target, &severity)).count()
        };
        assert_eq!(shown("pod_index::agent::run", Level::WARN), 4);
        for target in ["kube_client::client::builder", "kube_client::config", "kube_runtime::watcher"] {
            assert_eq!(shown(target, Level::ERROR), 2, "{target}");
        }
        assert_eq!(shown("kube_client::client", Level::WARN), 1);
    }

    #[test]
    fn a_module_has_its_own_level_and_whole_responses_stay_at_trace() {
        let shown = |text: &str, target: &str, severity: Level| {
            filter(&text.parse().unwrap()).would_enable(target, &severity)
        };
        let text = "warn,pod_index_kubelet::sources=debug";
        assert!(shown(text, "pod_index_kubelet::sources::status", Level::DEBUG));
        assert!(!shown(text, "pod_index_kubelet::sources::status", Level::TRACE));
        assert!(!shown(text, "pod_index_agent::run", Level::INFO));
        assert!(shown("debug,hyper=error", "pod_index_agent::run", Level::DEBUG));
        assert!(!shown("debug,hyper=error", "hyper::client", Level::WARN));
        for (text, is_shown) in [
            ("info,kube_client=debug", false),
            ("info,kube_client::client=debug", false),
            ("info,kube_client=trace", true),
            ("trace,kube_client=info", false),
        ] {
            assert_eq!(shown(text, "kube_client::client", Level::WARN), is_shown, "{text}");
        }
        assert!(shown("info,kube_client=debug", "kube_client::config", Level::DEBUG));
    }
}
