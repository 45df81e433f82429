//! Log lines on standard error. Standard output is for results.
//!
//! Logging never blocks: lines go through a bounded queue to a thread that writes them. If standard error blocks, the
//! queue fills; further lines are dropped and counted.
//!
//! Panics are lines of the log, and so is the error with which the agent ends: see [`print`](super::failure::print).

use std::backtrace::{Backtrace, BacktraceStatus};
use std::ffi::OsString;
use std::io::{self, Write};
use std::panic::{self, PanicHookInfo};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::{env, thread};

use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, registry};

use crate::api::table::escaped;
use crate::config::changing::{Changing, Stored};
use crate::config::values::LogFormat;

/// Maximum number of queued lines: about two megabytes.
const WAITING: usize = 8_192;

/// The format of the running log.
static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// The format of errors: that of the log. Before the settings are known, that of the flag or of the variable.
pub(crate) fn format_in_use(arguments: &[OsString]) -> LogFormat {
    FORMAT.get().copied().unwrap_or_else(|| {
        let variable = env::var_os("POD_INDEX_LOG_FORMAT");
        let is_json = asks_for_json(arguments, variable);
        if is_json { LogFormat::Json } else { LogFormat::Text }
    })
}

/// Whether these arguments, or else the variable, ask for JSON. The arguments may be wrong, so clap does not read them.
fn asks_for_json(arguments: &[OsString], variable: Option<OsString>) -> bool {
    let flag = "--log-format";
    let given = arguments.iter().enumerate().find_map(|(at, argument)| {
        let value = argument.to_str()?.strip_prefix(flag)?;
        if value.is_empty() { arguments.get(at + 1)?.to_str() } else { value.strip_prefix('=') }
    });
    given.map_or_else(|| variable.is_some_and(|value| value == "json"), |value| value == "json")
}

/// Logs a panic.
fn report(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let message = text.unwrap_or("a panic without a message");
    let location = panic.location().map(ToString::to_string).unwrap_or_default();
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    let current = thread::current();
    tracing::error!(thread = current.name(), location, backtrace, "panicked: {message}");
}

/// The running log.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    dropped: ErrorCounter,
    /// Writes the queued lines when dropped.
    writer: Arc<Mutex<Option<WorkerGuard>>>,
    /// The configured level.
    level: Changing<Level>,
    filter: reload::Handle<Targets, Registry>,
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
        // Fails if it was set by an earlier log, which stays.
        let _ = FORMAT.set(format);
        panic::set_hook(Box::new(report));
        // Fails if a logger is already installed. That one stays.
        let (reloaded, filter) = reload::Layer::new(filter(level));
        let _ = registry().with(reloaded).with(lines).try_init();
        let writer = Arc::new(Mutex::new(Some(writer)));
        let level = Changing::new(level);
        Self { dropped, writer, level, filter }
    }

    /// From now on, logs at `debug`, or again at the configured level. Never at `trace`, which has whole responses.
    pub(crate) fn set_debug(&self, is_on: bool) {
        let configured = *self.level.get();
        self.log_at(if is_on { configured.max(Level::DEBUG) } else { configured });
    }

    /// From now on, this is the configured level.
    pub(crate) fn set_level(&self, level: Level) -> Stored {
        let stored = self.level.set(level);
        self.log_at(level);
        stored
    }

    fn log_at(&self, level: Level) {
        // Fails only if another log was installed before this one.
        if self.filter.reload(filter(level)).is_ok() {
            tracing::warn!("the log level is {level} from now on");
        }
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
    use std::process::Command;

    use super::*;

    #[test]
    fn the_format_of_an_error_is_that_of_the_flag_or_else_of_the_variable() {
        let asks = |arguments: &[&str], variable: Option<&str>| {
            asks_for_json(
                &arguments.iter().map(OsString::from).collect::<Vec<_>>(),
                variable.map(OsString::from),
            )
        };
        assert!(asks(&["pod-index", "--log-format=json", "--wrong"], None));
        assert!(asks(&["pod-index", "--log-format", "json"], Some("text")));
        assert!(asks(&["pod-index"], Some("json")));
        assert!(!asks(&["pod-index", "--log-format=text"], Some("json")));
        assert!(!asks(&["pod-index", "--log-format"], None) && !asks(&["pod-index"], None));
    }

    const CHILD: &str = "POD_INDEX_TEST_PANIC";

    /// Runs as a child of the next test, because the hook is the whole process's.
    #[test]
    fn the_child_that_panics() {
        if env::var_os(CHILD).is_none() {
            return;
        }
        let log = Log::start(Level::INFO, LogFormat::Json);
        let panics = || panic!("a \"panic\"\nthat the test wants");
        thread::Builder::new().name("index".to_owned()).spawn(panics).unwrap().join().unwrap_err();
        log.finish();
    }

    #[test]
    fn a_panic_is_one_line_of_the_log_with_its_thread_and_place() {
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", "config::log::tests::the_child_that_panics", "--nocapture"]);
        let output = child.env(CHILD, "1").env_remove("RUST_BACKTRACE").output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        let [line] = &text.lines().collect::<Vec<_>>()[..] else { panic!("not one line: {text}") };
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["message"], "panicked: a \"panic\"\nthat the test wants");
        assert_eq!((&line["thread"], &line["level"]), (&"index".into(), &"ERROR".into()));
        assert!(line["location"].as_str().unwrap().contains("log.rs:"), "{line}");
    }

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
