//! The configuration file: YAML, with the kubelet's keys where they exist.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_saphyr::{MessageFormatter, Spanned, UserMessageFormatter, with_deserializer_from_str};

use super::define::{Definition, Shape};
use super::read::read_small_text;
use super::suggest::{self, Candidate};
use crate::config::failure::Failure;

/// A key of the file with its values.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) definition: &'static Definition,
    pub(super) line: u64,
    /// As it is written, with the keys above it.
    pub(super) key: String,
    pub(super) texts: Vec<OsString>,
}

/// An error in a file's text.
#[derive(Debug)]
struct Wrong {
    line: Option<u64>,
    message: String,
}

/// Reads a configuration file. Relative paths are relative to its directory, as in the kubelet's file.
pub(super) fn read(path: &Path, definitions: &[&'static Definition]) -> Result<Vec<Entry>, Failure> {
    let text = read_small_text(path)
        .map_err(|error| Failure::Usage(format!("{}: cannot be read: {error}", path.display())))?;
    parse(&text, path.parent().unwrap_or(Path::new("")), definitions).map_err(|Wrong { line, message }| {
        let line = line.map(|line| format!("{line}:")).unwrap_or_default();
        Failure::Usage(format!("{}:{line} {message}", path.display()))
    })
}

/// The entries of a file in this directory.
fn parse(text: &str, directory: &Path, definitions: &[&'static Definition]) -> Result<Vec<Entry>, Wrong> {
    let keys: BTreeMap<_, _> = definitions
        .iter()
        .flat_map(|definition| definition.keys().into_iter().map(|key| (key, *definition)))
        .collect();
    let mut progress = Progress::default();
    let level = Level { above: String::new(), keys: &keys, directory, progress: &mut progress };
    with_deserializer_from_str(text, |yaml| level.deserialize(yaml)).map_err(|error| {
        let error = error.without_snippet();
        let line = error.location().map(|location| location.line());
        let message = if is_wrong_type(error) {
            progress.value.take().unwrap_or_else(|| NO_KEYS.to_owned())
        } else {
            UserMessageFormatter.format_message(error).into_owned()
        };
        Wrong { line, message }
    })?;
    progress.wrong_key.map_or(Ok(progress.entries), Err)
}

/// The error of a file that is not a map.
const NO_KEYS: &str = "must have keys with values, such as staticPodPath: /etc/kubernetes/manifests";

/// Whether the YAML is well formed, but a value is another than its key takes. The error's own words are the parser's ("expected
/// sequence start"), and may quote the value, which may be secret.
fn is_wrong_type(error: &serde_saphyr::Error) -> bool {
    use serde_saphyr::Error;
    matches!(
        error,
        Error::SerdeInvalidType { .. }
            | Error::SerdeInvalidValue { .. }
            | Error::Unexpected { .. }
            | Error::InvalidScalar { .. }
            | Error::InvalidBooleanStrict { .. }
            | Error::NullIntoString { .. }
            | Error::TaggedScalarCannotDeserializeIntoString { .. }
    )
}

/// What the value of a key must be.
fn must_be(shape: Shape) -> &'static str {
    match shape {
        Shape::Text => "must be a single value",
        Shape::Path => "must be a single path",
        Shape::Boolean => "must be true or false",
        Shape::List => "must be a list, such as [a, b]",
        Shape::Headers => "must be a map of lists, such as {Name: [value]}",
    }
}

/// How far the file has been read.
#[derive(Default)]
struct Progress {
    entries: Vec<Entry>,
    /// The first key that is unknown or repeated.
    wrong_key: Option<Wrong>,
    /// The key whose value is being read, and what that must be, as the parser's errors name no key.
    value: Option<String>,
}

/// The keys below another, or all.
struct Level<'a> {
    /// The key of the levels above, with a dot at its end.
    above: String,
    keys: &'a BTreeMap<String, &'static Definition>,
    directory: &'a Path,
    progress: &'a mut Progress,
}

impl<'de> DeserializeSeed<'de> for Level<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, yaml: D) -> Result<(), D::Error> {
        yaml.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Level<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("keys with values")
    }

    /// A file may have comments alone.
    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, yaml: D) -> Result<(), D::Error> {
        yaml.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { above, keys, directory, progress } = self;
        while let Some(Spanned { value, referenced, .. }) = map.next_key::<Spanned<String>>()? {
            let key = format!("{above}{value}");
            let line = referenced.line();
            let below = format!("{key}.");
            if keys.keys().any(|key| key.starts_with(&below)) {
                progress.value = Some(format!("{key}: must have keys with values"));
                map.next_value_seed(Level { above: below, keys, directory, progress: &mut *progress })?;
                progress.value = None;
                continue;
            }
            let definition = keys.get(&key).copied();
            let is_set = |definition: &&Definition| {
                progress.entries.iter().any(|entry| entry.definition.flag == definition.flag)
            };
            let problem = match definition {
                None => Some(format!("{key}: there is no such key{}", suggestion(&key, keys))),
                Some(definition) if is_set(&definition) => Some(format!("{key} is set twice")),
                Some(_) => None,
            };
            if let Some(message) = problem {
                progress.wrong_key.get_or_insert(Wrong { line: Some(line), message });
            }
            let Some(definition) = definition else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            progress.value = Some(format!("{key}: {}", must_be(definition.shape)));
            let texts = texts(definition.shape, directory, &mut map)?;
            progress.value = None;
            // A key without a value sets nothing.
            if let Some(texts) = texts {
                progress.entries.push(Entry { definition, line, key, texts });
            }
        }
        Ok(())
    }
}

/// "; did you mean KEY?", if `wrong` is a misspelled key, or the name of a flag whose key is another.
fn suggestion(wrong: &str, keys: &BTreeMap<String, &'static Definition>) -> String {
    let of_keys = keys.keys().map(|key| Candidate { name: key.clone(), meant: key.clone() });
    let of_flags = keys.values().filter_map(|definition| {
        Some(Candidate { name: definition.flag.to_owned(), meant: definition.key()? })
    });
    suggest::did_you_mean(wrong, of_keys.chain(of_flags))
}

/// The value of a key.
fn texts<'de, A: MapAccess<'de>>(
    shape: Shape,
    directory: &Path,
    map: &mut A,
) -> Result<Option<Vec<OsString>>, A::Error> {
    Ok(match shape {
        Shape::Text => map.next_value::<Option<String>>()?.map(|text| vec![text.into()]),
        Shape::Path => map.next_value::<Option<String>>()?.map(|path| {
            // An empty path stays empty, which is an error.
            vec![if path.is_empty() { path.into() } else { directory.join(path).into() }]
        }),
        Shape::Boolean => map.next_value::<Option<bool>>()?.map(|is| vec![is.to_string().into()]),
        Shape::List => map
            .next_value::<Option<Vec<String>>>()?
            .map(|texts| texts.into_iter().map(OsString::from).collect()),
        Shape::Headers => map.next_value::<Option<BTreeMap<String, Vec<String>>>>()?.map(|headers| {
            let lines = headers.into_iter().flat_map(|(name, values)| {
                values.into_iter().map(move |value| OsString::from(format!("{name}:{value}")))
            });
            lines.collect()
        }),
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::config::tests::all_definitions;

    /// The entries of a file in the root directory.
    fn parsed(text: &str) -> Result<Vec<Entry>, Wrong> {
        parse(text, Path::new("/"), &all_definitions())
    }

    #[test]
    fn the_kubelets_keys_are_understood() {
        let entries = parsed(
            "staticPodPath: /etc/kubernetes/manifests\n\
             staticPodURL: https://example.org/pods\n\
             staticPodURLHeader: {X-Token: ['a,b', c]}\n\
             fileCheckFrequency: 1m\n\
             port: 1\n\
             socketMode: 0600\n\
             authentication: {x509: {clientCAFile: /pki/ca.crt}, webhook: {enabled: true}}\n\
             nodeName: 007\n\
             serveResources: [nodes, owners]\n\
             apiServer: false\n\
             kubeconfig:\n",
        )
        .unwrap();
        let found: Vec<_> = entries
            .iter()
            .map(|entry| {
                let texts: Vec<_> = entry.texts.iter().filter_map(|text| text.to_str()).collect();
                (entry.line, entry.definition.flag, texts)
            })
            .collect();
        let expected = [
            (1, "pod-manifest-path", vec!["/etc/kubernetes/manifests"]),
            (2, "manifest-url", vec!["https://example.org/pods"]),
            (3, "manifest-url-header", vec!["X-Token:a,b", "X-Token:c"]),
            (4, "file-check-frequency", vec!["1m"]),
            (5, "port", vec!["1"]),
            (6, "socket-mode", vec!["0600"]),
            (7, "client-ca-file", vec!["/pki/ca.crt"]),
            (7, "authentication-token-webhook", vec!["true"]),
            (8, "hostname-override", vec!["007"]),
            (9, "serve-resources", vec!["nodes", "owners"]),
            (10, "api-server", vec!["false"]),
        ];
        assert_eq!(found, expected);
    }

    /// `config::tests` has the values that a setting does not take.
    #[test]
    fn a_wrong_key_or_value_is_an_error_with_its_line() {
        for (text, line, said) in [
            (
                "staticPodPath: /x\nstaticPodPaht: /y\n",
                2,
                "staticPodPaht: there is no such key; did you mean staticPodPath?",
            ),
            (
                "static-pod-path: /x\n",
                1,
                "static-pod-path: there is no such key; did you mean staticPodPath?",
            ),
            (
                "podManifestPath: /x\n",
                1,
                "podManifestPath: there is no such key; did you mean staticPodPath?",
            ),
            ("log_level: info\n", 1, "log_level: there is no such key; did you mean logLevel?"),
            (
                "authentication: {x509: {clientCaFile: /x}}\n",
                1,
                "authentication.x509.clientCaFile: there is no such key; did you mean authentication.x509.clientCAFile?",
            ),
            (
                "port: 1\nclientCAFile: /x\n",
                2,
                "clientCAFile: there is no such key; did you mean authentication.x509.clientCAFile?",
            ),
            ("once: true\n", 1, "once: there is no such key"),
            ("kind: KubeletConfiguration\n", 1, "kind: there is no such key"),
            ("nodeName: a\nhostnameOverride: a\n", 2, "hostnameOverride is set twice"),
            ("\nport: [1]\n", 2, "port: must be a single value"),
            ("socket: {a: b}\n", 1, "socket: must be a single path"),
            ("apiServer: perhaps\n", 1, "apiServer: must be true or false"),
            ("port: 1\nserveResources: nodes\n", 2, "serveResources: must be a list, such as [a, b]"),
            ("serveResources:\n- nodes\n- [owners]\n", 3, "serveResources: must be a list, such as [a, b]"),
            ("allowedClientNames: [a, null]\n", 1, "allowedClientNames: must be a list, such as [a, b]"),
            (
                "staticPodURLHeader: {X: secret}\n",
                1,
                "staticPodURLHeader: must be a map of lists, such as {Name: [value]}",
            ),
            (
                "staticPodURLHeader: {X: [[secret]]}\n",
                1,
                "staticPodURLHeader: must be a map of lists, such as {Name: [value]}",
            ),
            ("authentication: {x509: true}\n", 1, "authentication.x509: must have keys with values"),
            ("port: 1\nauthentication: x\n", 2, "authentication: must have keys with values"),
            ("staticPodPath /x\n", 1, NO_KEYS),
            ("- staticPodPath: /x\n", 1, NO_KEYS),
        ] {
            let wrong = parsed(text).unwrap_err();
            assert_eq!(wrong.line, Some(line), "{text}: {}", wrong.message);
            assert_eq!(wrong.message, said, "{text}");
        }
    }

    /// The words are the parser's.
    #[test]
    fn what_is_not_yaml_is_an_error_with_its_line() {
        for (text, line, word) in [
            ("port: 1\nport: 2\n", 2, "port"),
            ("port: 1\nserveResources: [nodes\n", 2, "bracket"),
            ("port: 1\n---\nport: 2\n", 3, "multiple"),
        ] {
            let wrong = parsed(text).unwrap_err();
            assert_eq!(wrong.line, Some(line), "{text}: {}", wrong.message);
            assert!(wrong.message.contains(word), "{text}: {}", wrong.message);
        }
    }

    #[test]
    fn relative_paths_are_relative_to_the_files_directory() {
        let text = "staticPodPath: manifests\nsocket: agent.sock\nproc: /host/proc\nnamespace: web\n";
        let entries = parse(text, Path::new("/etc/agent"), &all_definitions()).unwrap();
        let found: Vec<&OsStr> = entries.iter().flat_map(|entry| &entry.texts).map(|text| &**text).collect();
        assert_eq!(found, ["/etc/agent/manifests", "/etc/agent/agent.sock", "/host/proc", "web"]);
    }

    #[test]
    fn an_empty_file_configures_nothing() {
        for text in ["", "# nothing\n", "---\n", "{}", "authentication:\n"] {
            assert_eq!(parsed(text).unwrap(), [], "{text:?}");
        }
    }
}
