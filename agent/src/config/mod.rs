//! The agent's settings, merged and validated. Flags override environment variables, which override the configuration
//! file, which overrides the defaults.

pub(crate) mod args;
pub(crate) mod duration;
pub(crate) mod failure;
mod file;
pub(crate) mod log;
pub(crate) mod selection;
pub(crate) mod shutdown;
pub(crate) mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, FromArgMatches};
use serde_json::Value;

use self::args::{Output, RunArgs, ServerArgs, Shared, key, settings};
use crate::api::table;
use crate::config::duration::GoDuration;
use crate::config::failure::Failure;
use pod_index_kubelet::checkpoint::Which;
use pod_index_kubelet::names::dns_subdomain;
use pod_index_kubelet::sources::http::HttpConfig;
use pod_index_kubelet::sources::{NodeName, Problem, http, kubelet};

use self::selection::Selection;
use self::values::{AccessSettings, AuthorizationMode, Extra, Management, TlsFiles};

/// The standard path of a pod's service account token.
const SERVICE_ACCOUNT_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// The error without a source.
pub(crate) const NO_SOURCES: &str =
    "no pods to read: give --pod-manifest-path, --manifest-url, --kubelet, --kubeconfig or --api-server";

/// The agent's settings.
#[derive(Debug)]
pub(crate) struct Settings {
    /// What needs no check.
    pub(crate) given: Shared,
    pub(crate) server: ServerArgs,
    /// The keys of the settings that are not left to their defaults.
    set: BTreeSet<String>,
    pub(crate) node: NodeName,
    pub(crate) http: Option<HttpConfig>,
    pub(crate) kubelet: Option<HttpConfig>,
    pub(crate) mirrors: Management,
    /// Where to keep pods on disk, and which.
    pub(crate) checkpoints: Option<(PathBuf, Which)>,
    /// `None` for plain HTTP.
    pub(crate) tls: Option<TlsFiles>,
    /// Which clients may query the agent.
    pub(crate) access: AccessSettings,
    pub(crate) once: bool,
    /// The timeout of `--once`. `None`: no timeout.
    pub(crate) once_timeout: Option<Duration>,
    pub(crate) output: Output,
}

/// The user's command line and environment. The configuration file may add to them.
#[derive(Debug)]
pub(crate) struct Given {
    /// The definition of the command line.
    pub(crate) command: Command,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) run: RunArgs,
    pub(crate) output: Output,
}

/// A rule for the settings, and the error if it does not hold.
pub(crate) fn rule(holds: bool, otherwise: impl Into<String>) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::Usage(otherwise.into())) }
}

/// A setting from which a source cannot be created.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn wrong(problem: Problem) -> Failure {
    Failure::Usage(problem.to_string())
}

impl Given {
    /// The resulting settings, with the current configuration file. What that sets is the default of a flag.
    pub(crate) fn resolve(&self) -> Result<Settings, Failure> {
        let Self { command, run, output, .. } = self;
        let mut of_the_file = run.config.as_deref().map(file::read).transpose()?.unwrap_or_default();
        let of_the_user = self.parse(command.clone())?;
        let is_given = |id: &str| is_given(&of_the_user, id);
        let is_set = |id: &str| is_given(id) || of_the_file.contains_key(id);
        let set = settings().into_iter().filter(|(_, setting)| is_set(setting.get_id().as_str()));
        let set = set.map(|(key, _)| key).collect();
        of_the_file.retain(|id, _| !is_given(id));
        let with_default = |setting: Arg| match of_the_file.get(setting.get_id().as_str()) {
            // A text of the file may contain commas.
            Some(texts) => setting.default_values(texts).value_delimiter(None),
            None => setting,
        };
        let mut command = command.clone().mut_args(with_default);
        if let Some(doctor) = command.find_subcommand_mut("doctor") {
            *doctor = doctor.clone().mut_args(with_default);
        }
        let all = self.parse(command)?;
        let given = Shared::from_arg_matches(&all).map_err(wrong_usage)?;
        let server = ServerArgs::from_arg_matches(&all).map_err(wrong_usage)?;
        Settings::of(given, server, set, run, *output)
    }

    fn parse(&self, command: Command) -> Result<ArgMatches, Failure> {
        let mut matches = command.try_get_matches_from(&self.arguments).map_err(wrong_usage)?;
        // Only `doctor` takes settings as well.
        Ok(matches.remove_subcommand().map_or(matches, |(_, of_the_command)| of_the_command))
    }
}

fn is_given(matches: &ArgMatches, id: &str) -> bool {
    matches.value_source(id).is_some_and(|by| by != ValueSource::DefaultValue)
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn wrong_usage(error: clap::Error) -> Failure {
    Failure::Usage(error.to_string())
}

impl Settings {
    fn of(
        mut given: Shared,
        server: ServerArgs,
        set: BTreeSet<String>,
        run: &RunArgs,
        output: Output,
    ) -> Result<Self, Failure> {
        let tls = tls(&given)?;
        let address = server.address;
        rule(
            tls.is_some() || given.allow_remote_clients || address.is_loopback(),
            format!(
                "address {address}: anyone who can reach it could read every pod; give --tls-cert-file and \
                 --tls-private-key-file (and --client-ca-file), or --allow-remote-clients to allow this"
            ),
        )?;
        let node = node_name(given.hostname_override.as_deref())?;
        let (has_file, has_api_server) = (given.static_pod_path.is_some(), given.has_api_server());
        let http = http(&given, &node)?;
        let kubelet = kubelet(&given)?;
        let selector = Selection::new(&given)?.flag();
        if let Some(flag) = selector {
            rule(has_api_server, format!("{flag} needs an API server: --kubeconfig or --api-server"))?;
        }
        rule(has_file || http.is_some() || kubelet.is_some() || has_api_server, NO_SOURCES)?;
        let access = access(&given, tls.as_ref())?;
        let mirrors = management(&given, run, has_file || http.is_some(), selector)?;
        let with_owners = given.serve_resources.contains(&Extra::Owners);
        rule(
            has_api_server || given.serve_resources.is_empty(),
            "--serve-resources needs an API server: --kubeconfig or --api-server",
        )?;
        rule(
            !(given.all_nodes && with_owners),
            "--serve-resources=owners requests the owners of this node's pods, not of --all-nodes",
        )?;
        let which = if given.checkpoint_all_pods { Which::All } else { Which::Annotated };
        let has_directory = given.checkpoint_dir.is_some();
        rule(
            has_directory || !given.checkpoint_all_pods,
            "checkpointAllPods needs a directory (--checkpoint-dir)",
        )?;
        rule(server.socket.is_some() || !set.contains("socketMode"), "socketMode needs a socket (--socket)")?;
        // As it applies, for its display.
        given.hostname_override = Some(node.to_string());
        Ok(Self {
            node,
            http,
            kubelet,
            mirrors,
            // `--once` prints and stores nothing.
            checkpoints: given.checkpoint_dir.clone().filter(|_| !run.once).map(|path| (path, which)),
            tls,
            access,
            once: run.once,
            once_timeout: Some(run.once_timeout.0).filter(|timeout| !timeout.is_zero()),
            output,
            given,
            server,
            set,
        })
    }

    /// How often a source is read. Zero for one that is followed.
    pub(crate) fn period_of(&self, source: &str) -> Duration {
        match source {
            "file" => period(self.given.file_check_frequency),
            "http" => period(self.given.http_check_frequency),
            "kubelet" => period(self.given.kubelet_check_frequency),
            _ => Duration::ZERO,
        }
    }

    /// The configuration in a line.
    pub(crate) fn words(&self) -> String {
        self.shown().map(|[key, value]| format!("{key}: {value}")).collect::<Vec<_>>().join("; ")
    }

    /// The configuration as a table.
    pub(crate) fn summary(&self) -> String {
        let rows: Vec<_> = self.shown().collect();
        table::table(["SETTING", "VALUE"], rows.iter().map(|[key, value]| [&**key, &**value]))
    }

    /// What is set, and where the agent is, by key. Headers, which may be secret, are left out.
    fn shown(&self) -> impl Iterator<Item = [String; 2]> {
        let values = [serde_json::to_value(&self.given), serde_json::to_value(&self.server)];
        let fields = values.into_iter().flatten().filter_map(|value| value.as_object().cloned()).flatten();
        let fields: BTreeMap<_, _> = fields.map(|(id, value)| (key(&id), value)).collect();
        let is_shown =
            |key: &str| self.set.contains(key) || ["address", "hostnameOverride", "port"].contains(&key);
        fields.into_iter().filter(move |(key, _)| is_shown(key)).filter_map(|(key, value)| match value {
            Value::Null | Value::Bool(false) => None,
            Value::Array(items) if items.is_empty() => None,
            Value::String(text) => Some([key, text]),
            other => Some([key, other.to_string()]),
        })
    }
}

/// Zero means the default, as in the kubelet.
fn period(GoDuration(period): GoDuration) -> Duration {
    if period.is_zero() { Duration::from_secs(20) } else { period }
}

/// The TLS files, if TLS is configured.
fn tls(given: &Shared) -> Result<Option<TlsFiles>, Failure> {
    let client_ca = given.client_ca_file.clone();
    let (cert, key) = (given.tls_cert_file.clone(), given.tls_private_key_file.clone());
    rule(key.is_some() || cert.is_none(), "tlsCertFile needs a tlsPrivateKeyFile")?;
    rule(cert.is_some() || key.is_none(), "tlsPrivateKeyFile needs a tlsCertFile")?;
    rule(cert.is_some() || client_ca.is_none(), "clientCAFile needs a tlsCertFile and a tlsPrivateKeyFile")?;
    let takes_tokens = given.authentication_token_webhook;
    let files = cert.zip(key);
    Ok(files.map(|(cert, private_key)| TlsFiles { cert, private_key, client_ca, takes_tokens }))
}

/// Which clients are served. They have to be known, and the API server available where it is asked.
fn access(given: &Shared, tls: Option<&TlsFiles>) -> Result<AccessSettings, Failure> {
    let access = AccessSettings {
        names: given.allowed_client_names.iter().cloned().collect(),
        groups: given.allowed_client_groups.iter().cloned().collect(),
        tokens: given.authentication_token_webhook,
        rights: given.authorization_mode == AuthorizationMode::Webhook,
    };
    let has_certificates = tls.is_some_and(|tls| tls.client_ca.is_some());
    rule(
        tls.is_some() || !access.tokens,
        "--authentication-token-webhook needs TLS: --tls-cert-file and --tls-private-key-file",
    )?;
    rule(
        has_certificates || access.tokens || !access.is_limited(),
        "--allowed-client-names, --allowed-client-groups and --authorization-mode=Webhook need authenticated clients: \
         --client-ca-file or --authentication-token-webhook",
    )?;
    rule(
        given.has_api_server() || !(access.tokens || access.rights),
        "--authentication-token-webhook and --authorization-mode=Webhook need an API server: --kubeconfig or --api-server",
    )?;
    Ok(access)
}

/// Whether to manage mirror pods. Without static pods, every mirror would be an orphan. A guessed node name may be
/// another node's. Mirrors that a selector hides would seem missing.
fn management(
    given: &Shared,
    run: &RunArgs,
    has_static_pods: bool,
    selector: Option<&str>,
) -> Result<Management, Failure> {
    let (is_asked_for, is_forced) = (given.manage_mirror_pods, given.force_manage_mirror_pods);
    rule(is_asked_for || !is_forced, "--force-manage-mirror-pods needs --manage-mirror-pods")?;
    // `--once` prints and writes nothing.
    if !is_asked_for || run.once {
        return Ok(Management::Off);
    }
    if let Some(flag) = selector {
        let message = "--manage-mirror-pods has to see all pods of the node, and";
        return Err(Failure::Usage(format!("{message} {flag} leaves some out")));
    }
    for (is_there, what) in [
        (given.hostname_override.is_some(), "the node's name: give --node-name"),
        (has_static_pods, "static pods: give --pod-manifest-path or --manifest-url"),
        (given.has_api_server(), "an API server: give --kubeconfig or --api-server"),
    ] {
        rule(is_there, format!("--manage-mirror-pods needs {what}"))?;
    }
    Ok(if is_forced { Management::Forced } else { Management::Careful })
}

/// How to query the kubelet, if it is a source. Checks that the source can be created.
fn kubelet(given: &Shared) -> Result<Option<HttpConfig>, Failure> {
    let Some(url) = &given.kubelet else { return Ok(None) };
    let mut config = HttpConfig::of_kubelet(url).map_err(wrong)?;
    config.period = period(given.kubelet_check_frequency);
    if given.kubelet_insecure_skip_tls_verify {
        let message = "--kubelet-ca is of no use with --kubelet-insecure-skip-tls-verify";
        rule(given.kubelet_ca.is_none(), message)?;
        config.insecure = true;
    }
    config = trusting(config, "kubeletCa", given.kubelet_ca.as_deref())?;
    let of_the_account = Some(Path::new(SERVICE_ACCOUNT_TOKEN)).filter(|token| token.exists());
    config.token_file = given.kubelet_token_file.as_deref().or(of_the_account).map(Path::to_owned);
    drop(kubelet::follow(config.clone()).map_err(wrong)?);
    Ok(Some(config))
}

/// How to request the manifests' URL, if it is a source. Checks that the source can be created.
fn http(given: &Shared, node: &NodeName) -> Result<Option<HttpConfig>, Failure> {
    let Some(url) = &given.static_pod_url else { return Ok(None) };
    let wrong_url = |problem: Problem| {
        let what = "--manifest-url (staticPodURL)";
        Failure::Usage(format!("{what} {url:?}: {}", problem.message))
    };
    let mut config = HttpConfig::new(url).map_err(wrong_url)?;
    config.period = period(given.http_check_frequency);
    for (name, value) in &given.static_pod_url_header {
        config = config.header(name, value).map_err(wrong)?;
    }
    config = trusting(config, "manifestUrlCa", given.manifest_url_ca.as_deref())?;
    drop(http::follow(config.clone(), node.clone()).map_err(wrong)?);
    Ok(Some(config))
}

/// Reads the authorities to trust, if they are given.
fn trusting(config: HttpConfig, setting: &str, path: Option<&Path>) -> Result<HttpConfig, Failure> {
    let Some(path) = path else { return Ok(config) };
    let wrong = |error: &dyn Display| Failure::Usage(format!("{setting} {}: {error}", path.display()));
    let pem = std::fs::read(path).map_err(|error| wrong(&error))?;
    config.certificate_authorities(&pem).map_err(|problem| wrong(&problem))
}

/// The given name or the host's name, trimmed and in lower case.
///
/// Kubelet: `GetHostname` (`pkg/util/node/node.go`).
fn node_name(given: Option<&str>) -> Result<NodeName, Failure> {
    let (from, name) = match given {
        Some(name) => ("the node's name that was given", name.to_owned()),
        None => ("the host's name", gethostname::gethostname().to_string_lossy().into_owned()),
    };
    let lower = name.trim().to_lowercase();
    rule(!lower.is_empty(), format!("{from} is empty, but a node needs a name"))?;
    if let Some(problem) = dns_subdomain(&lower) {
        return Err(Failure::Usage(format!("{from}, {name:?}, {problem}")));
    }
    if lower != name {
        tracing::info!(node = lower, "{from}, {name:?}, is used in lower case, as by the kubelet");
    }
    Ok(NodeName::new(&lower))
}

#[cfg(test)]
mod tests {
    use clap::Args;

    use super::*;

    #[test]
    fn a_nodes_name_is_a_dns_name_trimmed_and_in_lower_case() {
        assert_eq!(node_name(Some(" Foo.Bar \n")).unwrap().as_str(), "foo.bar");
        assert!(!node_name(None).unwrap().as_str().is_empty());
        for bad in ["Foo_Bar", "-a", "a..b", "  "] {
            assert!(matches!(node_name(Some(bad)), Err(Failure::Usage(_))), "{bad}");
        }
    }

    /// The settings of an agent that follows the API server, with these flags.
    fn resolved(flags: &[&str]) -> Result<Settings, Failure> {
        let command = ServerArgs::augment_args(RunArgs::augment_args(Command::new("pod-index")));
        let words = [&["pod-index", "--api-server", "--node-name=n"], flags].concat();
        let run = RunArgs::from_arg_matches(&command.clone().get_matches_from(&words)).unwrap();
        let arguments = words.into_iter().map(OsString::from).collect();
        Given { command, arguments, run, output: Output::Table }.resolve()
    }

    #[test]
    fn a_flag_replaces_what_the_file_sets() {
        let file = std::env::temp_dir().join(format!("pod-index-flags-{}.yaml", std::process::id()));
        let text = "maxWatches: 7\nserveResources: [nodes, owners]\nredactEnv: true\nport: 1\naddress: localhost\n\
                    staticPodURL: http://a\nstaticPodURLHeader: {A: ['b,c']}\n";
        std::fs::write(&file, text).unwrap();
        let config = format!("--config={}", file.display());
        let set = resolved(&[&config]).unwrap();
        assert!(set.given.redact_env && set.given.serve_resources == [Extra::Nodes, Extra::Owners]);
        assert_eq!((set.given.max_watches, set.server.port), (7, 1));
        assert!(set.server.address.is_loopback());
        assert_eq!(set.given.static_pod_url_header, [("A".to_owned(), "b,c".to_owned())]);
        assert!(!set.summary().contains("b,c"), "{}", set.summary());
        let set =
            resolved(&[&config, "--serve-resources=namespaces", "--max-watches=8", "--port=2"]).unwrap();
        assert_eq!(set.given.serve_resources, [Extra::Namespaces]);
        assert_eq!((set.given.max_watches, set.server.port), (8, 2));
        assert!(set.given.redact_env, "{}", set.summary());
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn a_bad_url_of_manifests_is_named_as_the_user_wrote_it() {
        let Err(Failure::Usage(message)) = resolved(&["--manifest-url=foo"]) else { panic!("accepted") };
        assert!(message.starts_with("--manifest-url (staticPodURL) \"foo\": "), "{message}");
    }
}
