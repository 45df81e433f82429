//! The agent's settings, merged and validated. Flags override environment variables, which override the configuration
//! file, which overrides the defaults.
//!
//! ```text
//! subjects  defines each setting: its flag, its type, its default, its help   (in the form that `define` explains)
//! args      the command line around them; clap parses the flags
//! written   the variables, then the file (read by `file`), for what no flag gives; remembers who wrote what where
//! rules     which settings need each other, and which make a source
//! changes   what a changed file changes in the running agent; a part of it holds such a value as `changing`
//! Settings  the result
//! ```

pub(crate) mod args;
pub(crate) mod changes;
pub(crate) mod changing;
pub(crate) mod define;
pub(crate) mod descriptors;
pub(crate) mod duration;
pub(crate) mod failure;
mod file;
pub(crate) mod log;
pub(crate) mod read;
pub(crate) mod rules;
mod selection;
pub(crate) mod shutdown;
pub(crate) mod subjects;
mod suggest;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod values;
pub(crate) mod written;

use std::collections::BTreeMap;
use std::time::Duration;

use self::args::{Output, RunArgs};
use self::define::{Definition, Subject};
use self::rules::SourceKind;
use self::subjects::{ClientTls, ServerAddress, Subjects, TlsSettings, definitions};
use self::values::{AuthorizationMode, CheckpointDirectory, Extra, TlsFiles, TlsNames};
use self::written::Written;
use crate::api::table;
use crate::config::failure::Failure;
use pod_index_kubelet::checkpoint::Which;
use pod_index_kubelet::names::dns_subdomain;
use pod_index_kubelet::sources::{NodeName, Problem, Source};

/// The agent's settings.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The values in effect, by subject: those of the command line, the environment or the file, or else the defaults.
    pub(crate) effective: Subjects,
    pub(crate) server: ServerAddress,
    /// Names a setting as the user wrote it, for errors.
    pub(crate) written: Written,
    /// What is set, and where the agent is, by key. Headers, which may be secret, are left out.
    shown: BTreeMap<String, String>,
    pub(crate) node: NodeName,
    /// Whether this agent manages the node's mirror pods.
    pub(crate) mirrors: bool,
    pub(crate) checkpoints: Option<CheckpointDirectory>,
    /// `None` for plain HTTP.
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) once: bool,
    /// How long `--once` waits for the sources.
    pub(crate) once_timeout: Duration,
    pub(crate) output: Output,
}

/// The user's command line and environment. The configuration file may add to them.
#[derive(Debug)]
pub(crate) struct Invocation {
    pub(crate) run: RunArgs,
    pub(crate) server: ServerAddress,
    pub(crate) output: Output,
    pub(crate) written: Written,
    /// Why variables of the environment set nothing, although they look like a setting's.
    pub(crate) ignored_variables: Vec<String>,
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

/// The settings of the configuration file: of all subjects, and where the agent serves.
fn in_the_file<'a>(subjects: &'a mut Subjects, server: &'a mut ServerAddress) -> Vec<&'a mut dyn Subject> {
    subjects.each().into_iter().chain([server as &mut dyn Subject]).collect()
}

impl Invocation {
    /// The resulting settings, with the configuration file.
    pub(crate) fn resolve(&self) -> Result<Settings, Failure> {
        let mut effective = self.run.settings.clone();
        let mut server = self.server.clone();
        let mut written = self.written.clone();
        let mut subjects = in_the_file(&mut effective, &mut server);
        if let Some(path) = &self.run.config.path {
            written.add_file(path, &mut subjects)?;
        }
        let definitions = definitions(&subjects);
        Settings::of(effective, server, written, &definitions, self)
    }
}

impl Settings {
    fn of(
        mut effective: Subjects,
        server: ServerAddress,
        written: Written,
        definitions: &[&'static Definition],
        invocation: &Invocation,
    ) -> Result<Self, Failure> {
        let once = invocation.run.once;
        effective.pod_api.serve_resources.sort_unstable();
        effective.pod_api.serve_resources.dedup();
        let asks_for_rights = effective.access.authorization_mode == AuthorizationMode::Webhook;
        rules::check(&written, definitions, |flag| {
            written.is_on(flag) && (flag != "authorization-mode" || asks_for_rights)
        })?;
        let files = effective.tls.cert.clone().zip(effective.tls.private_key.clone());
        let tls = files.map(|(cert, private_key)| TlsFiles {
            cert,
            private_key,
            client_ca: effective.tls.client_ca.clone(),
            takes_tokens: effective.access.accept_tokens,
            names: TlsNames {
                cert: written.name("tls-cert-file"),
                private_key: written.name("tls-private-key-file"),
                client_ca: written.name("client-ca-file"),
            },
        });
        let address = server.address;
        if !(tls.is_some() || effective.listeners.allow_remote_clients || address.is_loopback()) {
            return Err(rules::open_to_everyone(address, &written, definitions));
        }
        let node = node_name(effective.node.name.as_deref(), &written)?;
        selection::check(&effective.api_server, &written)?;
        rule(
            rules::has_source(&written),
            match &invocation.run.config.path {
                Some(file) => rules::no_sources_in(file, definitions),
                None => rules::no_sources(),
            },
        )?;
        rule(
            !(effective.api_server.all_nodes && effective.pod_api.serve_resources.contains(&Extra::Owners)),
            format!(
                "{} with owners requests the owners of this node's pods, so it cannot be used with {}",
                written.name("serve-resources"),
                written.name("all-nodes")
            ),
        )?;
        let which = if effective.checkpoints.all_pods { Which::All } else { Which::Annotated };
        let checkpoints =
            effective.checkpoints.directory.clone().map(|path| CheckpointDirectory { path, which });
        let mut shown: BTreeMap<_, _> = written.shown().collect();
        shown.insert("hostnameOverride".to_owned(), node.to_string());
        shown.entry("address".to_owned()).or_insert_with(|| address.to_string());
        shown.entry("port".to_owned()).or_insert_with(|| server.port.to_string());
        Ok(Self {
            shown,
            node,
            // `--once` prints and stores nothing.
            mirrors: effective.mirror_pods.manage && !once,
            checkpoints: checkpoints.filter(|_| !once),
            tls,
            once,
            once_timeout: invocation.run.once_timeout,
            output: invocation.output,
            effective,
            server,
            written,
        })
    }

    /// Something is wrong with the API server's credentials. Names the setting that led to them, as the problem names at most
    /// their file.
    #[allow(clippy::needless_pass_by_value, reason = "for map_err")]
    pub(crate) fn wrong_credentials(&self, problem: Problem) -> Failure {
        let flag = if self.effective.api_server.kubeconfig.is_some() { "kubeconfig" } else { "api-server" };
        Failure::Usage(format!("{}: {problem}", self.written.name(flag)))
    }

    /// Whether a source is a server.
    pub(crate) fn asks_a_server(&self) -> bool {
        rules::asks_a_server(&self.written)
    }

    /// How the source of this role gets its pods. `None` if there is none.
    pub(crate) fn kind_of(&self, source: Source) -> Option<SourceKind> {
        rules::kind_of(source, &self.written)
    }

    /// What the user has written, the node, and where the agent serves, in a line. Other defaults are left out.
    pub(crate) fn words(&self) -> String {
        self.shown.iter().map(|(key, value)| format!("{key}: {value}")).collect::<Vec<_>>().join("; ")
    }

    /// The same as a table.
    pub(crate) fn summary(&self) -> String {
        table::table(["SETTING", "VALUE"], self.shown.iter().map(|(key, value)| [&**key, &**value]))
    }
}

/// Whether the options of a client command are complete.
pub(crate) fn check_client_options(client: &ClientTls, written: &Written) -> Result<(), Failure> {
    rules::check_client(written, client.definitions())
}

/// Rejects options of client commands when serving. `--certificate-authority` there most likely means the authority of
/// *clients*; ignoring it would leave clients unverified.
pub(crate) fn no_client_options(
    client: &ClientTls,
    server: &TlsSettings,
    written: &Written,
) -> Result<(), Failure> {
    let given = client.definitions().iter().find(|definition| written.is_written(definition.flag));
    given.map_or(Ok(()), |definition| {
        let definitions: Vec<_> = server.definitions().iter().collect();
        let of_server = ["tls-cert-file", "tls-private-key-file", "client-ca-file"];
        let [cert, private_key, client_ca] =
            rules::names_beside(definition.flag, of_server, written, &definitions);
        Err(Failure::Usage(format!(
            "{} is for client commands; to serve, use {cert}, {private_key} and {client_ca}",
            written.name(definition.flag)
        )))
    })
}

/// The given name or the host's name, trimmed and in lower case.
///
/// Kubelet: `GetHostname` (`pkg/util/node/node.go`).
fn node_name(given: Option<&str>, written: &Written) -> Result<NodeName, Failure> {
    let (from, name) = match given {
        Some(name) => (written.name("hostname-override"), name.to_owned()),
        None => ("the host's name".to_owned(), gethostname::gethostname().to_string_lossy().into_owned()),
    };
    let lower = name.trim().to_lowercase();
    rule(!lower.is_empty(), format!("{from} is empty, but a node needs a name"))?;
    if let Some(problem) = dns_subdomain(&lower) {
        return Err(Failure::Usage(format!("{from} {name:?} {problem}")));
    }
    if lower != name {
        tracing::info!(node = lower, "{from} {name:?} is used in lower case, as by the kubelet");
    }
    Ok(NodeName::new(&lower))
}
