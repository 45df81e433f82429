//! The log filter: a minimum level, and levels for single modules.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use serde::Deserialize;

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// A filter such as `info,pod_index_kubelet::sources=debug`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct LogFilter {
    /// The level of all other modules.
    pub(crate) level: LogLevel,
    /// The levels of modules and of the modules below them. The longest matching name applies.
    pub(crate) modules: Vec<(String, LogLevel)>,
}

impl LogFilter {
    /// The level of this module.
    pub(crate) fn level_of(&self, module: &str) -> LogLevel {
        let matching = self.modules.iter().filter(|(prefix, _)| module.starts_with(prefix.as_str()));
        matching.max_by_key(|(prefix, _)| prefix.len()).map_or(self.level, |(_, level)| *level)
    }
}

impl From<LogLevel> for LogFilter {
    fn from(level: LogLevel) -> Self {
        Self { level, modules: Vec::new() }
    }
}

impl FromStr for LogFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut level, mut modules) = (None, Vec::new());
        for part in text.split(',').map(str::trim) {
            match part.split_once('=') {
                None if level.is_some() => return Err(format!("{part:?} is a second level for all modules")),
                None => level = Some(level_named(part)?),
                Some((module, level)) => {
                    let module = module.trim();
                    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
                    if module.is_empty() || !module.chars().all(is_name) {
                        return Err(format!("{module:?} is not the name of a module"));
                    }
                    modules.push((module.to_owned(), level_named(level.trim())?));
                }
            }
        }
        Ok(Self { level: level.unwrap_or(LogLevel::Info), modules })
    }
}

impl TryFrom<String> for LogFilter {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name(self.level))?;
        self.modules.iter().try_for_each(|(module, level)| write!(f, ",{module}={}", name(*level)))
    }
}

fn level_named(text: &str) -> Result<LogLevel, String> {
    LogLevel::from_str(text, true).map_err(|_| {
        let levels: Vec<_> = LogLevel::value_variants().iter().map(|level| name(*level)).collect();
        format!("the log level must be one of {}, not {text:?}", levels.join(", "))
    })
}

fn name(level: LogLevel) -> String {
    level.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_a_level_and_levels_of_modules() {
        for (text, expected) in [
            ("debug", Ok("debug")),
            (" WARN , pod_index_kubelet::sources = Trace", Ok("warn,pod_index_kubelet::sources=trace")),
            ("hyper=error", Ok("info,hyper=error")),
            ("", Err("one of error, warn, info, debug, trace, not \"\"")),
            ("info,", Err("second level")),
            ("loud", Err("not \"loud\"")),
            ("info,debug", Err("second level")),
            ("=debug", Err("not the name of a module")),
            ("a b=debug", Err("not the name of a module")),
            ("a=", Err("not \"\"")),
        ] {
            match (text.parse::<LogFilter>(), expected) {
                (Ok(filter), Ok(expected)) => {
                    assert_eq!(filter.to_string(), expected);
                    assert_eq!(filter.to_string().parse(), Ok(filter));
                }
                (Err(error), Err(words)) => assert!(error.contains(words), "{text:?}: {error}"),
                (got, _) => panic!("{text:?}: {got:?}"),
            }
        }
    }

    #[test]
    fn the_longest_matching_name_of_a_module_applies() {
        let filter: LogFilter = "warn,a=info,a::b=trace,a::b::c=error".parse().unwrap();
        for (module, level) in [
            ("x", LogLevel::Warn),
            ("a", LogLevel::Info),
            ("a::x", LogLevel::Info),
            ("a::b", LogLevel::Trace),
            ("a::b::c::d", LogLevel::Error),
        ] {
            assert_eq!(filter.level_of(module), level, "{module}");
        }
    }
}
