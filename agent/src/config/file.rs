//! The configuration file: YAML, with the kubelet's keys where they exist.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_saphyr::{Error, MessageFormatter, UserMessageFormatter};

use super::access::AuthorizationMode;
use super::args::LogFormat;
use super::values::{Extra, Mode, StaticPods};
use crate::config::duration::GoDuration;
use crate::config::failure::Failure;
use crate::config::log_filter::LogFilter;

/// The keys of a configuration file. Any other key is an error.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a key of its own")]
pub(crate) struct ConfigFile {
    pub(super) static_pod_path: Option<PathBuf>,
    #[serde(rename = "staticPodURL")]
    pub(super) static_pod_url: Option<String>,
    #[serde(rename = "staticPodURLHeader")]
    pub(super) static_pod_url_header: BTreeMap<String, Vec<String>>,
    pub(super) manifest_url_ca: Option<PathBuf>,
    pub(super) kubelet: Option<String>,
    pub(super) kubelet_token_file: Option<PathBuf>,
    pub(super) kubelet_ca: Option<PathBuf>,
    pub(super) kubelet_insecure_skip_tls_verify: bool,
    pub(super) kubelet_check_frequency: Option<GoDuration>,
    pub(super) file_check_frequency: Option<GoDuration>,
    pub(super) http_check_frequency: Option<GoDuration>,
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) api_server: bool,
    pub(super) all_nodes: bool,
    pub(super) keep_managed_fields: bool,
    pub(super) proc: Option<PathBuf>,
    pub(super) keep_removed: Option<GoDuration>,
    pub(super) keep_removed_max: Option<usize>,
    pub(super) redact_env: bool,
    pub(super) namespace: Option<String>,
    pub(super) pod_selector: Option<String>,
    pub(super) pod_field_selector: Option<String>,
    #[serde(alias = "nodeName")]
    pub(super) hostname_override: Option<String>,
    pub(super) manage_mirror_pods: bool,
    pub(super) force_manage_mirror_pods: bool,
    pub(super) checkpoint_dir: Option<PathBuf>,
    pub(super) checkpoint_all_pods: bool,
    pub(super) address: Option<IpAddr>,
    pub(super) port: Option<u16>,
    pub(super) health_address: Option<SocketAddr>,
    pub(super) kubelet_metrics: bool,
    pub(super) allow_remote_clients: bool,
    pub(super) tls_cert_file: Option<PathBuf>,
    pub(super) tls_private_key_file: Option<PathBuf>,
    pub(super) authentication: Authentication,
    pub(super) static_pod_object: Option<StaticPods>,
    pub(super) serve_resources: Vec<Extra>,
    pub(super) max_watches: Option<usize>,
    pub(super) max_watches_per_client: Option<usize>,
    pub(super) socket: Option<PathBuf>,
    pub(super) socket_mode: Option<Mode>,
    pub(super) authorization: Authorization,
    pub(super) allowed_client_names: Vec<String>,
    pub(super) allowed_client_groups: Vec<String>,
    pub(super) debug_endpoints: bool,
    pub(super) log_level: Option<LogFilter>,
    pub(super) log_format: Option<LogFormat>,
}

/// Which clients may query the agent: the kubelet's `authentication`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Authentication {
    pub(super) x509: X509,
    pub(super) webhook: TokenWebhook,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TokenWebhook {
    pub(super) enabled: bool,
}

/// What a client may query: the kubelet's `authorization`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Authorization {
    pub(super) mode: Option<AuthorizationMode>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct X509 {
    #[serde(rename = "clientCAFile")]
    pub(super) client_ca_file: Option<PathBuf>,
}

impl ConfigFile {
    /// Reads a configuration file. Relative paths are relative to its directory, as in the kubelet's file.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::Usage(format!("{}: cannot be read: {error}", path.display())))?;
        let mut config = Self::parse(&text).map_err(|(line, message)| {
            let line = line.map(|line| format!("{line}:")).unwrap_or_default();
            Failure::Usage(format!("{}:{line} {message}", path.display()))
        })?;
        if let Some(directory) = path.parent() {
            let paths = [
                &mut config.static_pod_path,
                &mut config.manifest_url_ca,
                &mut config.kubelet_token_file,
                &mut config.kubelet_ca,
                &mut config.kubeconfig,
                &mut config.proc,
                &mut config.checkpoint_dir,
                &mut config.tls_cert_file,
                &mut config.tls_private_key_file,
                &mut config.authentication.x509.client_ca_file,
                &mut config.socket,
            ];
            for relative in paths.into_iter().flatten() {
                // An empty path means none, not the directory.
                if !relative.as_os_str().is_empty() {
                    *relative = directory.join(&*relative);
                }
            }
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

    #[test]
    fn the_kubelets_keys_are_understood() {
        let config = ConfigFile::parse(
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
        assert_eq!(config.static_pod_path.unwrap(), Path::new("/etc/kubernetes/manifests"));
        assert_eq!(config.static_pod_url_header["X-Token"], ["a", "b"]);
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
            let (at, message) = ConfigFile::parse(text).unwrap_err();
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
        let config = ConfigFile::read(&file).unwrap();
        assert_eq!(config.static_pod_path, Some(directory.join("manifests")));
        assert_eq!(config.socket, Some(directory.join("agent.sock")));
        assert_eq!(config.proc.as_deref(), Some(Path::new("/host/proc")));
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn an_empty_file_configures_nothing() {
        for text in ["", "# nothing\n", "---\n", "{}"] {
            assert!(ConfigFile::parse(text).unwrap().static_pod_path.is_none(), "{text:?}");
        }
    }
}
