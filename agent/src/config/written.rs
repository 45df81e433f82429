//! What the user wrote, and where: an error names the flag, the variable or the line of the file that the user wrote, not
//! another way to set the same.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use clap::parser::ValueSource;

use super::define::{Definition, PREFIX, Shape, Subject, variable};
use super::file;
use super::subjects::definitions;
use super::suggest::{self, Candidate};
use crate::config::failure::Failure;

/// A place where a setting was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The flag, as it was spelled, without `--`.
    Flag(String),
    Variable(String),
    File {
        path: PathBuf,
        line: u64,
        key: String,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "--{flag}"),
            Self::Variable(variable) => f.write_str(variable),
            Self::File { path, line, key } => write!(f, "{}:{line}: {key}", path.display()),
        }
    }
}

/// A setting that the user wrote.
#[derive(Clone, Debug)]
struct Setting {
    definition: &'static Definition,
    place: Place,
    /// Of headers, which may be secret, only the number.
    texts: Vec<OsString>,
}

impl Setting {
    fn new(definition: &'static Definition, place: Place, texts: Vec<OsString>) -> Self {
        let is_secret = definition.shape == Shape::Headers;
        let texts = if is_secret { vec![OsString::new(); texts.len()] } else { texts };
        Self { definition, place, texts }
    }
}

/// All settings that the user wrote, by their flags. Of one that is written in several places, the place that counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written(BTreeMap<&'static str, Setting>);

impl Written {
    /// What the command line gives. Its values are in the subjects already.
    pub(crate) fn on_the_command_line(
        definitions: &[&'static Definition],
        matches: &ArgMatches,
        arguments: &[OsString],
        aliases: impl Fn(&str) -> Vec<String>,
    ) -> Self {
        let is_flag = |definition: &&&Definition| {
            matches.try_get_raw(definition.flag).is_ok()
                && matches.value_source(definition.flag) == Some(ValueSource::CommandLine)
        };
        let settings = definitions.iter().filter(is_flag).map(|definition| {
            let texts = matches.get_raw(definition.flag).into_iter().flatten();
            let spelled = spelled(definition.flag, aliases(definition.flag), arguments);
            let texts = texts.map(OsStr::to_owned).collect();
            (definition.flag, Setting::new(definition, Place::Flag(spelled), texts))
        });
        Self(settings.collect())
    }

    /// Sets what environment variables give, and no flag does.
    pub(crate) fn add_environment(&mut self, subjects: &mut [&mut dyn Subject]) -> Result<(), Failure> {
        for definition in definitions(subjects) {
            let variable = definition.variable();
            let Some(text) = env::var_os(&variable) else { continue };
            let texts = match definition.shape {
                Shape::List | Shape::Headers => separated(&text),
                Shape::Text | Shape::Path | Shape::Boolean => vec![text],
            };
            self.add(definition, Place::Variable(variable), texts, subjects)?;
        }
        Ok(())
    }

    /// Sets what the configuration file gives, and neither a flag nor a variable does.
    pub(super) fn add_file(&mut self, path: &Path, subjects: &mut [&mut dyn Subject]) -> Result<(), Failure> {
        let definitions = definitions(subjects);
        for file::Entry { definition, line, key, texts } in file::read(path, &definitions)? {
            let place = Place::File { path: path.to_owned(), line, key };
            self.add(definition, place, texts, subjects)?;
        }
        Ok(())
    }

    /// Sets a field, unless a place that goes before this one has set it.
    fn add(
        &mut self,
        definition: &'static Definition,
        place: Place,
        texts: Vec<OsString>,
        subjects: &mut [&mut dyn Subject],
    ) -> Result<(), Failure> {
        if self.is_written(definition.flag) {
            return Ok(());
        }
        if texts.iter().any(|text| text.is_empty()) {
            return Err(Failure::Usage(format!("{place} is empty")));
        }
        for subject in subjects.iter_mut() {
            subject.set(definition.flag, &texts).map_err(|why| {
                let value = match definition.shape {
                    // A header's value may be secret.
                    Shape::Headers => String::new(),
                    _ => format!(" {:?}", joined(&texts)),
                };
                Failure::Usage(format!("{place}:{value} {why}"))
            })?;
        }
        self.0.insert(definition.flag, Setting::new(definition, place, texts));
        Ok(())
    }

    /// Whether the user wrote this setting.
    pub(crate) fn is_written(&self, flag: &str) -> bool {
        self.0.contains_key(flag)
    }

    /// Whether the command line has this setting, and not only the environment or the file.
    pub(crate) fn is_on_the_command_line(&self, flag: &str) -> bool {
        matches!(self.0.get(flag), Some(Setting { place: Place::Flag(_), .. }))
    }

    /// Whether the user wrote this setting, and not as `false` or as an empty list.
    pub(super) fn is_on(&self, flag: &str) -> bool {
        self.0.get(flag).is_some_and(|Setting { definition, texts, .. }| {
            let is_off = definition.shape == Shape::Boolean && texts.iter().all(|text| text == "false");
            !(is_off || texts.is_empty())
        })
    }

    /// A setting as the user wrote it, or its flag.
    pub(crate) fn name(&self, flag: &str) -> String {
        self.0.get(flag).map_or_else(|| format!("--{flag}"), |setting| setting.place.to_string())
    }

    /// How a user who wrote `flag` where it stands would write another setting.
    pub(super) fn name_beside(&self, flag: &str, other: &'static Definition) -> String {
        match self.0.get(flag).map(|setting| &setting.place) {
            Some(Place::Variable(_)) => other.variable(),
            Some(Place::File { .. }) => other.key().unwrap_or_else(|| format!("--{}", other.flag)),
            Some(Place::Flag(_)) | None => format!("--{}", other.flag),
        }
    }

    /// The settings that the file can have too, each with its key and its texts. Headers, which may be secret, are left
    /// out.
    pub(super) fn shown(&self) -> impl Iterator<Item = (String, String)> {
        let shown = self.0.values().filter(|setting| {
            setting.definition.shape != Shape::Headers && self.is_on(setting.definition.flag)
        });
        shown.filter_map(|setting| Some((setting.definition.key()?, joined(&setting.texts))))
    }
}

/// Why variables of the environment set nothing, although they begin as a setting's do. `flags`: those of all settings.
///
/// An error would be too much: somebody else may set them, as Kubernetes does for a Service that is called `pod-index`.
pub(crate) fn ignored_variables(flags: &[&str]) -> Vec<String> {
    let variables: Vec<_> = env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
    ignored(variables.iter().map(String::as_str), flags)
}

fn ignored<'a>(variables: impl Iterator<Item = &'a str>, flags: &[&str]) -> Vec<String> {
    let known: Vec<_> = flags.iter().map(|flag| variable(flag)).collect();
    let is_unknown = |name: &&str| {
        name.starts_with(PREFIX) && !is_of_a_service(name) && known.iter().all(|known| known != name)
    };
    let mut ignored: Vec<_> = variables
        .filter(is_unknown)
        .map(|name| {
            let candidates =
                known.iter().map(|known| Candidate { name: known.clone(), meant: known.clone() });
            let meant = suggest::did_you_mean(name, candidates);
            format!("{name} is ignored: there is no such setting{meant}")
        })
        .collect();
    ignored.sort_unstable();
    ignored
}

/// Whether Kubernetes sets this variable for a Service, as `POD_INDEX_SERVICE_HOST` and `POD_INDEX_PORT_80_TCP_ADDR`.
fn is_of_a_service(name: &str) -> bool {
    let has_port = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
    name.contains("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.split("_PORT_").skip(1).any(has_port)
}

fn joined(texts: &[OsString]) -> String {
    texts.iter().map(|text| text.to_string_lossy()).collect::<Vec<_>>().join(",")
}

/// The parts of a text that commas separate.
pub(super) fn separated(text: &OsStr) -> Vec<OsString> {
    match text.to_str() {
        Some(text) => text.split(',').map(OsString::from).collect(),
        // No list has values that are not UTF-8. The error says so.
        None => vec![text.to_owned()],
    }
}

/// The name by which the command line gives a flag.
fn spelled(flag: &str, aliases: Vec<String>, arguments: &[OsString]) -> String {
    let is_given = |name: &String| {
        let given = format!("--{name}");
        let has_value = format!("{given}=");
        arguments.iter().any(|argument| {
            let argument = argument.to_string_lossy();
            *argument == given || argument.starts_with(&has_value)
        })
    };
    aliases.into_iter().find(is_given).unwrap_or_else(|| flag.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_without_a_setting_is_named_unless_kubernetes_sets_it() {
        let variables = [
            "PATH",
            "POD_INDEX_PROT",
            "POD_INDEX_PORT",
            "POD_INDEX_LOGLEVEL",
            "POD_INDEX_SERVICE_HOST",
            "POD_INDEX_SERVICE_PORT_HTTPS",
            "POD_INDEX_METRICS_SERVICE_HOST",
            "POD_INDEX_PORT_10270_TCP_ADDR",
            "POD_INDEX_FAVOURITE_COLOUR",
        ];
        let expected = [
            "POD_INDEX_FAVOURITE_COLOUR is ignored: there is no such setting",
            "POD_INDEX_LOGLEVEL is ignored: there is no such setting; did you mean POD_INDEX_LOG_LEVEL?",
            "POD_INDEX_PROT is ignored: there is no such setting; did you mean POD_INDEX_PORT?",
        ];
        assert_eq!(ignored(variables.into_iter(), &["port", "log-level"]), expected);
    }
}
