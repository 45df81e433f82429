//! Log lines on standard error; standard output is for answers.

use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, registry, reload};

use super::cli::{LogFormat, LogLevel};

/// Decides what is logged while the agent runs.
#[derive(Clone, Debug)]
pub(super) struct Log {
    filter: reload::Handle<LevelFilter, Registry>,
    level: Arc<Mutex<LogLevel>>,
}

impl Log {
    /// Starts logging.
    pub(super) fn start(level: LogLevel, format: LogFormat) -> Self {
        let (filter, handle) = reload::Layer::new(filter(level));
        let lines = fmt::layer().with_writer(io::stderr);
        let lines = match format {
            LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
            LogFormat::Json => lines.json().flatten_event(true).boxed(),
        };
        // Fails if somebody else has started logging, who then has the say.
        let _ = registry().with(filter).with(lines).try_init();
        Self { filter: handle, level: Arc::new(Mutex::new(level)) }
    }

    /// What is logged: this and what is graver.
    pub(super) fn level(&self) -> LogLevel {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, this and what is graver.
    pub(super) fn set_level(&self, level: LogLevel) {
        let mut current = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        // Fails if nobody logs any more.
        if self.filter.reload(filter(level)).is_ok() {
            *current = level;
        }
    }
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}
