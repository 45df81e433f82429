//! The configuration file: YAML, with the kubelet's keys where they exist.

use std::path::Path;

use serde_saphyr::{Error, MessageFormatter, UserMessageFormatter};

use super::args::{Setting, Shared};
use crate::config::failure::Failure;

impl Shared {
    /// Reads a configuration file. Relative paths are relative to its directory, as in the kubelet's file.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::Usage(format!("{}: cannot be read: {error}", path.display())))?;
        let mut config = Self::parse(&text).map_err(|(line, message)| {
            let line = line.map(|line| format!("{line}:")).unwrap_or_default();
            Failure::Usage(format!("{}:{line} {message}", path.display()))
        })?;
        if let Some(directory) = path.parent() {
            config.relative_to(directory);
        }
        Ok(config)
    }

    /// The configuration, or the line of the error with its description.
    fn parse(text: &str) -> Result<Self, (Option<u64>, String)> {
        // A file with only comments is an empty configuration, but `from_str` requires a document.
        let config = serde_saphyr::from_str::<Option<Self>>(text);
        config.map(Option::unwrap_or_default).map_err(|error| {
            let error = error.without_snippet();
            let line = error.location().map(|location| location.line());
            let message = match error {
                // Omits the value: it may be a header's.
                Error::SerdeInvalidType { expected, .. } | Error::SerdeInvalidValue { expected, .. } => {
                    format!("expected {expected}").into()
                }
                error => UserMessageFormatter.format_message(error),
            };
            let key =
                line.and_then(|line| key(text, line)).filter(|key| !message.contains(&format!("`{key}`")));
            (line, key.map_or_else(|| message.to_string(), |key| format!("{key}: {message}")))
        })
    }
}

/// The key in line `line` of `text`, counted from 1, if the line begins with one.
fn key(text: &str, line: u64) -> Option<&str> {
    let line = text.lines().nth(usize::try_from(line).ok()?.checked_sub(1)?)?;
    let (key, _) = line.split_once(':')?;
    (!key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric())).then_some(key)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::duration::GoDuration;

    #[test]
    fn the_kubelets_keys_are_understood() {
        let config = Shared::parse(
            "staticPodPath: /etc/kubernetes/manifests\n\
             staticPodURL: https://example.org/pods\n\
             staticPodURLHeader: {X-Token: [a, b]}\n\
             fileCheckFrequency: 1m\n\
             httpCheckFrequency: 500ms\n\
             tlsCertFile: /pki/node.crt\n\
             tlsPrivateKeyFile: /pki/node.key\n\
             authentication: {x509: {clientCAFile: /pki/ca.crt}}\n",
        )
        .unwrap();
        assert_eq!(config.pod_manifest_path.unwrap(), Path::new("/etc/kubernetes/manifests"));
        let headers = ["a", "b"].map(|value| ("X-Token".to_owned(), value.to_owned()));
        assert_eq!(config.manifest_url_header.unwrap(), headers);
        assert_eq!(config.http_check_frequency, Some(GoDuration(Duration::from_millis(500))));
        assert_eq!(config.tls_cert_file.unwrap(), Path::new("/pki/node.crt"));
        assert_eq!(config.tls_private_key_file.unwrap(), Path::new("/pki/node.key"));
        assert_eq!(config.authentication.x509.client_ca_file.unwrap(), Path::new("/pki/ca.crt"));
    }

    #[test]
    fn a_wrong_key_or_value_is_an_error_with_its_line() {
        for (text, line, word) in [
            ("staticPodPath: /x\nstaticPodPaht: /y\n", 2, "staticPodPaht"),
            ("\nfileCheckFrequency: 20\n", 2, "such as 20s"),
            ("port: 70000\n", 1, "port: "),
            ("logLevel: loud\n", 1, "loud"),
            ("address: nowhere\n", 1, "address: "),
            ("port: 1\nport: 2\n", 2, "port"),
            ("authentication: {x509: {clientCaFile: /x}}\n", 1, "clientCaFile"),
        ] {
            let (at, message) = Shared::parse(text).unwrap_err();
            assert_eq!(at, Some(line), "{text}: {message}");
            assert!(message.contains(word), "{message}");
        }
    }

    #[test]
    fn relative_paths_are_relative_to_the_files_directory() {
        let directory = std::env::temp_dir().join(format!("pod-index-config-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("config.yaml");
        std::fs::write(&file, "staticPodPath: manifests\nsocket: agent.sock\nproc: /host/proc\n").unwrap();
        let config = Shared::read(&file).unwrap();
        assert_eq!(config.pod_manifest_path, Some(directory.join("manifests")));
        assert_eq!(config.socket, Some(directory.join("agent.sock")));
        assert_eq!(config.proc.as_deref(), Some(Path::new("/host/proc")));
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn an_empty_file_configures_nothing() {
        for text in ["", "# nothing\n", "---\n", "{}"] {
            assert!(Shared::parse(text).unwrap().pod_manifest_path.is_none(), "{text:?}");
        }
    }
}
