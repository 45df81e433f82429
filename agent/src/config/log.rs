//! Log lines on standard error. Standard output is for results.
//!
//! Logging never blocks: lines go through a bounded queue to a thread that writes them. If standard error blocks, the
//! queue fills; further lines are dropped and counted.

use std::fmt::{Display, Formatter};
use std::io::{self, Write};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, registry, reload};

use crate::api::table::escaped;
use crate::config::values::LogFormat;

/// Maximum number of queued lines: about two megabytes.
const WAITING: usize = 8_192;

/// A minimum level, and levels for single modules, such as `info,pod_index_kubelet::sources=debug`.
#[derive(Clone, Debug)]
pub(crate) struct LogFilter(Targets);

impl Display for LogFilter {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result<(), std::fmt::Error> {
        self.0.fmt(f)
    }
}

impl FromStr for LogFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut all, mut modules) = (None, Vec::new());
        for part in text.split(',') {
            let (module, level) =
                part.rsplit_once('=').map_or((None, part), |(name, level)| (Some(name), level));
            let level: Level = level.trim().parse().map_err(|_| {
                format!(
                    "the log level must be one of error, warn, info, debug, trace, not {:?}",
                    level.trim()
                )
            })?;
            match module.map(str::trim) {
                None if all.replace(level).is_some() => {
                    return Err(format!("{part:?} is a second level for all modules"));
                }
                None => {}
                Some(name) if !name.is_empty() && !name.contains([' ', '=', '[']) => {
                    modules.push((name, level));
                }
                Some(name) => return Err(format!("{name:?} is not the name of a module")),
            }
        }
        Ok(Self(Targets::new().with_default(all.unwrap_or(Level::INFO)).with_targets(modules)))
    }
}

/// Sets the filter while the agent runs.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    filter: reload::Handle<Targets, Registry>,
    dropped: ErrorCounter,
    /// Writes the queued lines when dropped.
    writer: Arc<Mutex<Option<WorkerGuard>>>,
}

impl Log {
    /// Starts logging.
    pub(crate) fn start(shown: &LogFilter, format: LogFormat) -> Self {
        let (filter, handle) = reload::Layer::new(filter(shown));
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
        Self { filter: handle, dropped, writer: Arc::new(Mutex::new(Some(writer))) }
    }

    /// The number of lines dropped because the queue was full.
    pub(crate) fn dropped_lines(&self) -> u64 {
        self.dropped.dropped_lines() as u64
    }

    /// Writes the queued lines, for at most a second. Lines logged later are lost.
    pub(crate) fn finish(&self) {
        drop(self.writer.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Sets what is logged.
    pub(crate) fn show(&self, shown: &LogFilter) {
        // Fails if the logger is gone.
        let _ = self.filter.reload(filter(shown));
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
/// A level for one of the client's modules does not change this.
fn filter(LogFilter(shown): &LogFilter) -> Targets {
    let least = [
        ("kube_client", Level::DEBUG),
        ("kube_runtime", Level::DEBUG),
        // The module that decodes responses and logs those that it cannot decode.
        ("kube_client::client", Level::TRACE),
        ("kube_client::client::builder", Level::DEBUG),
    ];
    let of_the_client = least.map(|(module, least)| {
        let mut levels = [Level::TRACE, Level::DEBUG].into_iter().filter(|level| *level >= least);
        let level = levels.find(|level| shown.would_enable(module, level));
        (module, level.map_or(LevelFilter::OFF, LevelFilter::from_level))
    });
    // If a module has two levels, the last one applies.
    shown.clone().with_targets(of_the_client)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

    fn shown(text: &str, target: &str, severity: Level) -> bool {
        filter(&text.parse().unwrap()).would_enable(target, &severity)
    }

    #[test]
    fn a_filter_is_a_level_and_levels_of_modules() {
        assert!(shown(" WARN , a::b = Trace", "a::b::c", Level::TRACE));
        assert!(!shown(" WARN , a::b = Trace", "a", Level::INFO));
        assert!(shown("hyper=error", "a", Level::INFO) && !shown("hyper=error", "a", Level::DEBUG));
        assert!(shown("warn,a=info,a::b=error", "a::x", Level::INFO), "the longest matching name applies");
        assert!(!shown("warn,a=info,a::b=error", "a::b", Level::INFO));
        for (text, error) in [
            ("", "one of error, warn, info, debug, trace, not \"\""),
            ("info,", "not \"\""),
            ("loud", "not \"loud\""),
            ("info,debug", "second level"),
            ("=debug", "not the name of a module"),
            ("a b=debug", "not the name of a module"),
            ("a=", "not \"\""),
        ] {
            let said = text.parse::<LogFilter>().unwrap_err();
            assert!(said.contains(error), "{text:?}: {said}");
        }
    }

    #[test]
    fn the_clients_lines_are_at_debug_and_whole_responses_at_trace() {
        let levels = |target, severity| LEVELS.iter().filter(|level| shown(level, target, severity)).count();
        assert_eq!(levels("pod_index::agent::run", Level::WARN), 4);
        for target in ["kube_client::client::builder", "kube_client::config", "kube_runtime::watcher"] {
            assert_eq!(levels(target, Level::ERROR), 2, "{target}");
        }
        assert_eq!(levels("kube_client::client", Level::WARN), 1);
    }

    #[test]
    fn whole_responses_stay_at_trace_whatever_the_modules_level() {
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
