//! The agent's settings, merged and validated. Flags override environment variables, which override the configuration
//! file, which overrides the defaults.

pub(crate) mod args;
pub(crate) mod descriptors;
pub(crate) mod duration;
pub(crate) mod failure;
mod file;
pub(crate) mod log;
mod selection;
pub(crate) mod shutdown;
pub(crate) mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};

use self::args::{Output, RunArgs, ServerArgs, Shared, settings};
use crate::api::table;
use crate::config::failure::Failure;
use pod_index_kubelet::checkpoint::Which;
use pod_index_kubelet::names::dns_subdomain;
use pod_index_kubelet::sources::{NodeName, Problem};

use self::values::{AccessSettings, AuthorizationMode, Extra, TlsFiles};

/// The flags of an API server.
const API: &[&str] = &["kubeconfig", "api-server"];
/// The flags that make clients known.
const CLIENTS: &[&str] = &["client-ca-file", "authentication-token-webhook"];
/// Flags, each with those of which it needs one.
///
/// Mirror pods: without static pods, every mirror would be an orphan, and a guessed node name may be another node's.
const NEEDS: [(&str, &[&str]); 18] = [
    ("tls-cert-file", &["tls-private-key-file"]),
    ("tls-private-key-file", &["tls-cert-file"]),
    ("client-ca-file", &["tls-cert-file"]),
    ("authentication-token-webhook", &["tls-cert-file"]),
    ("authentication-token-webhook", API),
    ("authorization-mode", CLIENTS),
    ("authorization-mode", API),
    ("allowed-client-names", CLIENTS),
    ("allowed-client-groups", CLIENTS),
    ("namespace", API),
    ("pod-selector", API),
    ("pod-field-selector", API),
    ("serve-resources", API),
    ("manage-mirror-pods", API),
    ("manage-mirror-pods", &["hostname-override"]),
    ("manage-mirror-pods", &["pod-manifest-path", "manifest-url"]),
    ("checkpoint-all-pods", &["checkpoint-dir"]),
    ("socket-mode", &["socket"]),
];
/// Flags that exclude each other. Mirror pods that a selector hides would seem missing.
const EXCLUDE: [[&str; 2]; 4] = [
    ["manage-mirror-pods", "namespace"],
    ["manage-mirror-pods", "pod-selector"],
    ["manage-mirror-pods", "pod-field-selector"],
    ["kubelet-insecure-skip-tls-verify", "kubelet-ca"],
];

/// The error without a source.
pub(crate) const NO_SOURCES: &str =
    "no pods to read: give --pod-manifest-path, --manifest-url, --kubelet, --kubeconfig or --api-server";

/// The agent's settings.
#[derive(Debug)]
pub(crate) struct Settings {
    /// What needs no check.
    pub(crate) given: Shared,
    pub(crate) server: ServerArgs,
    /// What is set, and where the agent is, by key. Headers, which may be secret, are left out.
    shown: BTreeMap<String, String>,
    pub(crate) node: NodeName,
    /// Whether this agent manages the node's mirror pods.
    pub(crate) mirrors: bool,
    /// Where to keep pods on disk, and which.
    pub(crate) checkpoints: Option<(PathBuf, Which)>,
    /// `None` for plain HTTP.
    pub(crate) tls: Option<TlsFiles>,
    /// Which clients may query the agent.
    pub(crate) access: AccessSettings,
    pub(crate) once: bool,
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
    /// The resulting settings, with the configuration file. What that sets are flags that the user does not give.
    pub(crate) fn resolve(&self) -> Result<Settings, Failure> {
        let Self { command, arguments, run, output } = self;
        let mut of_the_file = run.config.as_deref().map(file::read).transpose()?.unwrap_or_default();
        let of_the_user = parse(command.clone(), arguments)?;
        of_the_file.retain(|id, _| !is_given(&of_the_user, id));
        // A text of the file may contain commas.
        let is_whole = |setting: &Arg| of_the_file.contains_key(setting.get_id().as_str());
        let whole = |setting| if is_whole(&setting) { setting.value_delimiter(None) } else { setting };
        let mut command = command.clone().mut_args(whole);
        if let Some(doctor) = command.find_subcommand_mut("doctor") {
            *doctor = doctor.clone().mut_args(whole);
        }
        let arguments: Vec<_> = arguments.iter().chain(of_the_file.values().flatten()).collect();
        Settings::of(&parse(command, arguments)?, run, *output)
    }

    /// Whether the user gives this setting, by its ID.
    pub(crate) fn gives(&self, id: &str) -> bool {
        parse(self.command.clone(), &self.arguments).is_ok_and(|of_the_user| is_given(&of_the_user, id))
    }
}

fn parse<'a>(
    command: Command,
    arguments: impl IntoIterator<Item = &'a OsString>,
) -> Result<ArgMatches, Failure> {
    let mut matches = command.try_get_matches_from(arguments).map_err(wrong_usage)?;
    // Only `doctor` takes settings as well.
    Ok(matches.remove_subcommand().map_or(matches, |(_, of_the_command)| of_the_command))
}

fn is_given(matches: &ArgMatches, id: &str) -> bool {
    matches.value_source(id).is_some_and(|by| by != ValueSource::DefaultValue)
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn wrong_usage(error: clap::Error) -> Failure {
    Failure::Usage(error.to_string())
}

/// Checks the rules of the flags that are on.
fn check(on: &BTreeSet<&str>) -> Result<(), Failure> {
    for (flag, needed) in NEEDS {
        let needed_flags = needed.iter().map(|flag| format!("--{flag}")).collect::<Vec<_>>().join(" or ");
        let holds = !on.contains(flag) || needed.iter().any(|flag| on.contains(flag));
        rule(holds, format!("--{flag} needs {needed_flags}"))?;
    }
    for [one, other] in EXCLUDE {
        let holds = !(on.contains(one) && on.contains(other));
        rule(holds, format!("--{one} cannot be used with --{other}"))?;
    }
    Ok(())
}

impl Settings {
    fn of(all: &ArgMatches, run: &RunArgs, output: Output) -> Result<Self, Failure> {
        let mut given = Shared::from_arg_matches(all).map_err(wrong_usage)?;
        let server = ServerArgs::from_arg_matches(all).map_err(wrong_usage)?;
        given.serve_resources.sort_unstable();
        given.serve_resources.dedup();
        let settings = settings();
        let is_on = |setting: &&Arg| {
            let id = setting.get_id().as_str();
            is_given(all, id) && (!matches!(setting.get_action(), ArgAction::SetTrue) || all.get_flag(id))
        };
        let mut on: BTreeSet<_> =
            settings.iter().map(|(_, setting)| setting).filter(is_on).filter_map(Arg::get_long).collect();
        if given.authorization_mode == AuthorizationMode::AlwaysAllow {
            on.remove("authorization-mode");
        }
        check(&on)?;
        let files = given.tls_cert_file.clone().zip(given.tls_private_key_file.clone());
        let tls = files.map(|(cert, private_key)| TlsFiles {
            cert,
            private_key,
            client_ca: given.client_ca_file.clone(),
            takes_tokens: given.authentication_token_webhook,
        });
        let address = server.address;
        rule(
            tls.is_some() || given.allow_remote_clients || address.is_loopback(),
            format!(
                "address {address}: anyone who can reach it could read every pod; give --tls-cert-file and \
                 --tls-private-key-file (and --client-ca-file), or --allow-remote-clients to allow this"
            ),
        )?;
        let node = node_name(given.hostname_override.as_deref())?;
        selection::check(&given)?;
        rule(given.static_pod_path.is_some() || given.asks_a_server(), NO_SOURCES)?;
        rule(
            !(given.all_nodes && given.serve_resources.contains(&Extra::Owners)),
            "--serve-resources=owners requests the owners of this node's pods, not of --all-nodes",
        )?;
        let access = AccessSettings {
            names: given.allowed_client_names.iter().cloned().collect(),
            groups: given.allowed_client_groups.iter().cloned().collect(),
            tokens: given.authentication_token_webhook,
            rights: given.authorization_mode == AuthorizationMode::Webhook,
        };
        let which = if given.checkpoint_all_pods { Which::All } else { Which::Annotated };
        let shown = settings.iter().filter_map(|(key, setting)| {
            let id = setting.get_id().as_str();
            let is_shown = is_given(all, id) && id != "static_pod_url_header";
            let texts = all.get_raw(id).filter(|_| is_shown || ["address", "port"].contains(&id))?;
            Some((key.clone(), texts.map(|text| text.to_string_lossy()).collect::<Vec<_>>().join(",")))
        });
        let as_it_applies = [("hostnameOverride".to_owned(), node.to_string())];
        Ok(Self {
            shown: shown.chain(as_it_applies).collect(),
            node,
            // `--once` prints and stores nothing.
            mirrors: given.manage_mirror_pods && !run.once,
            checkpoints: given.checkpoint_dir.clone().filter(|_| !run.once).map(|path| (path, which)),
            tls,
            access,
            once: run.once,
            output,
            given,
            server,
        })
    }

    /// How often a source is read. Zero for one that is followed.
    pub(crate) fn period_of(&self, source: &str) -> Duration {
        let period = match source {
            "file" => self.given.file_check_frequency,
            "http" => self.given.http_check_frequency,
            "kubelet" => self.given.kubelet_check_frequency,
            _ => return Duration::ZERO,
        };
        // Zero means the default, as in the kubelet.
        if period.is_zero() { Duration::from_secs(20) } else { period }
    }

    /// The configuration in a line.
    pub(crate) fn words(&self) -> String {
        self.shown.iter().map(|(key, value)| format!("{key}: {value}")).collect::<Vec<_>>().join("; ")
    }

    /// The configuration as a table.
    pub(crate) fn summary(&self) -> String {
        table::table(["SETTING", "VALUE"], self.shown.iter().map(|(key, value)| [&**key, &**value]))
    }
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
    use pod_index::AtTime;

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
        assert_eq!((set.given.clock_skew, set.given.source_delay), (AtTime::<()>::SKEW, AtTime::<()>::DELAY));
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
    fn the_rules_name_flags_that_exist() {
        let settings = settings();
        let flags: BTreeSet<_> = settings.iter().filter_map(|(_, setting)| setting.get_long()).collect();
        let needs = NEEDS.iter().flat_map(|(flag, needed)| needed.iter().chain([flag]));
        for flag in needs.chain(EXCLUDE.as_flattened()) {
            assert!(flags.contains(flag), "{flag}");
        }
    }
}
