//! The configuration file: YAML, with the kubelet's keys where they exist.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use clap::{Arg, ArgAction, ValueHint};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_saphyr::{MessageFormatter, Spanned, UserMessageFormatter, with_deserializer_from_str};

use super::args::settings;
use crate::config::failure::Failure;

/// The flags of settings, with their values, by the settings' IDs.
pub(super) type Values = BTreeMap<String, Vec<OsString>>;

/// Reads a configuration file. Relative paths are relative to its directory, as in the kubelet's file.
pub(super) fn read(path: &Path) -> Result<Values, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::Usage(format!("{}: cannot be read: {error}", path.display())))?;
    parse(&text, path.parent().unwrap_or(Path::new(""))).map_err(|(line, message)| {
        let line = line.map(|line| format!("{line}:")).unwrap_or_default();
        Failure::Usage(format!("{}:{line} {message}", path.display()))
    })
}

/// The values, or the line of the error with its description.
fn parse(text: &str, directory: &Path) -> Result<Values, (Option<u64>, String)> {
    let (settings, mut found) = (settings(), Vec::new());
    let level = Level { above: String::new(), settings: &settings, found: &mut found };
    with_deserializer_from_str(text, |yaml| level.deserialize(yaml)).map_err(|error| {
        let error = error.without_snippet();
        let line = error.location().map(|location| location.line());
        let message = match error {
            // Omits the value: it may be a header's.
            serde_saphyr::Error::SerdeInvalidType { expected, .. }
            | serde_saphyr::Error::SerdeInvalidValue { expected, .. } => {
                format!("expected {expected}").into()
            }
            error => UserMessageFormatter.format_message(error),
        };
        (line, message.into_owned())
    })?;
    let mut values = Values::new();
    for (line, key, setting, texts) in found {
        let wrong = |why: &str| (Some(line), format!("{key}{why}"));
        let setting = setting.ok_or_else(|| wrong(": there is no such key"))?;
        let is_path = setting.get_value_hint() == ValueHint::AnyPath;
        let mut flags = Vec::new();
        for text in texts {
            if text.is_empty() {
                return Err(wrong(" is empty"));
            }
            let mut flag = OsString::from(format!("--{}", setting.get_long().unwrap_or_default()));
            if !matches!(setting.get_action(), ArgAction::SetTrue) {
                flag.push("=");
                flag.push(if is_path { directory.join(text).into() } else { OsString::from(text) });
            }
            flags.push(flag);
        }
        if values.insert(setting.get_id().to_string(), flags).is_some() {
            return Err(wrong(" is set twice"));
        }
    }
    Ok(values)
}

/// A key of the file with its line, its setting (`None`: no setting has this key) and its values.
type Found<'a> = (u64, String, Option<&'a Arg>, Vec<String>);

/// The keys below another, or all.
struct Level<'a, 'b> {
    /// The key of the levels above, with a dot at its end.
    above: String,
    settings: &'a [(String, Arg)],
    found: &'b mut Vec<Found<'a>>,
}

impl<'de> DeserializeSeed<'de> for Level<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, yaml: D) -> Result<(), D::Error> {
        yaml.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Level<'_, '_> {
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
        let Self { above, settings, found } = self;
        while let Some(Spanned { value, referenced, .. }) = map.next_key::<Spanned<String>>()? {
            let key = format!("{above}{value}");
            let below = format!("{key}.");
            if settings.iter().any(|(key, _)| key.starts_with(&below)) {
                map.next_value_seed(Level { above: below, settings, found: &mut *found })?;
                continue;
            }
            let name = if key == "nodeName" { "hostnameOverride" } else { &key };
            let setting = settings.iter().find(|(key, _)| key == name).map(|(_, setting)| setting);
            let texts = match setting.map(Arg::get_action) {
                None => map.next_value::<IgnoredAny>().map(|_| Vec::new())?,
                // In the kubelet's format.
                Some(_) if name == "staticPodURLHeader" => {
                    let headers = map.next_value::<BTreeMap<String, Vec<String>>>()?.into_iter();
                    let lines = headers
                        .map(|(name, values)| values.into_iter().map(move |value| format!("{name}:{value}")));
                    lines.flatten().collect()
                }
                Some(ArgAction::Append) => map.next_value()?,
                Some(ArgAction::SetTrue) => {
                    map.next_value::<Option<bool>>()?.iter().filter(|is| **is).map(bool::to_string).collect()
                }
                Some(_) => map.next_value::<Option<String>>()?.into_iter().collect(),
            };
            found.push((referenced.line(), key, setting, texts));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubelets_keys_are_understood() {
        let values = parse(
            "staticPodPath: /etc/kubernetes/manifests\n\
             staticPodURL: https://example.org/pods\n\
             staticPodURLHeader: {X-Token: ['a,b', c]}\n\
             fileCheckFrequency: 1m\n\
             port: 1\n\
             socketMode: 0600\n\
             authentication: {x509: {clientCAFile: /pki/ca.crt}, webhook: {enabled: true}}\n\
             nodeName: 007\n\
             serveResources: [nodes, owners]\n\
             kubeconfig:\n",
            Path::new("/"),
        );
        let expected = [
            ("authentication_token_webhook", &["--authentication-token-webhook"][..]),
            ("client_ca_file", &["--client-ca-file=/pki/ca.crt"]),
            ("file_check_frequency", &["--file-check-frequency=1m"]),
            ("hostname_override", &["--hostname-override=007"]),
            ("kubeconfig", &[]),
            ("port", &["--port=1"]),
            ("serve_resources", &["--serve-resources=nodes", "--serve-resources=owners"]),
            ("socket_mode", &["--socket-mode=0600"]),
            ("static_pod_path", &["--pod-manifest-path=/etc/kubernetes/manifests"]),
            ("static_pod_url", &["--manifest-url=https://example.org/pods"]),
            (
                "static_pod_url_header",
                &["--manifest-url-header=X-Token:a,b", "--manifest-url-header=X-Token:c"],
            ),
        ];
        let texts = |texts: &[&str]| texts.iter().map(OsString::from).collect();
        assert_eq!(values, Ok(expected.map(|(id, values)| (id.to_owned(), texts(values))).into()));
    }

    #[test]
    fn a_wrong_key_or_value_is_an_error_with_its_line() {
        for (text, line, word) in [
            ("staticPodPath: /x\nstaticPodPaht: /y\n", 2, "staticPodPaht"),
            ("\nport: [1]\n", 2, "expected"),
            ("apiServer: perhaps\n", 1, "bool"),
            ("port: 1\nport: 2\n", 2, "port"),
            ("nodeName: a\nhostnameOverride: a\n", 2, "hostnameOverride is set twice"),
            ("namespace: ''\n", 1, "namespace is empty"),
            ("# x\nallowedClientNames: [a, '']\n", 2, "allowedClientNames is empty"),
            ("authentication: {x509: {clientCaFile: /x}}\n", 1, "clientCaFile"),
            (
                "authentication:\n  x509:\n    clientCAFile: ''\n",
                3,
                "authentication.x509.clientCAFile is empty",
            ),
            ("once: true\n", 1, "once: there is no such key"),
        ] {
            let (at, message) = parse(text, Path::new("/")).unwrap_err();
            assert_eq!(at, Some(line), "{text}: {message}");
            assert!(message.contains(word), "{message}");
        }
        let (_, message) = parse("staticPodURLHeader: {X-Token: [[secret]]}\n", Path::new("/")).unwrap_err();
        assert!(!message.contains("secret"), "{message}");
    }

    #[test]
    fn relative_paths_are_relative_to_the_files_directory() {
        let directory = std::env::temp_dir().join(format!("pod-index-config-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("config.yaml");
        std::fs::write(&file, "staticPodPath: manifests\nsocket: agent.sock\nproc: /host/proc\n").unwrap();
        let values = read(&file).unwrap();
        let flag =
            |flag: &str, name: &str| OsString::from(format!("{flag}{}", directory.join(name).display()));
        assert_eq!(values["static_pod_path"], [flag("--pod-manifest-path=", "manifests")]);
        assert_eq!(values["socket"], [flag("--socket=", "agent.sock")]);
        assert_eq!(values["proc"], ["--proc=/host/proc"]);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn an_empty_file_configures_nothing() {
        for text in ["", "# nothing\n", "---\n", "{}", "authentication:\n"] {
            assert_eq!(parse(text, Path::new("/")), Ok(Values::new()), "{text:?}");
        }
    }
}
