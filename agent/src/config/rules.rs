//! Which settings need each other, and which exclude each other.

use std::net::IpAddr;
use std::path::Path;

use super::define::Definition;
use super::rule;
use super::written::Written;
use crate::config::failure::Failure;
use pod_index_kubelet::sources::Source;

/// How a source gets its pods. Sources of one role may be of several kinds, of which an agent has one.
///
/// A new kind? The compiler then names the questions that go by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SourceKind {
    Manifests,
    ManifestUrl,
    KubeletPort,
    KubeletSocket,
    ApiServer,
}

impl SourceKind {
    /// Whether the pods come from a server, which `--check` does not ask.
    fn asks_a_server(self) -> bool {
        match self {
            Self::Manifests => false,
            Self::ManifestUrl | Self::KubeletPort | Self::KubeletSocket | Self::ApiServer => true,
        }
    }

    /// Whether it is a kubelet whose status nobody else can have written, so that its status wins.
    pub(crate) fn is_trusted_kubelet(self) -> bool {
        match self {
            Self::KubeletSocket => true,
            Self::Manifests | Self::ManifestUrl | Self::KubeletPort | Self::ApiServer => false,
        }
    }
}

/// A flag that makes a source.
#[derive(Clone, Copy)]
pub(crate) struct SourceFlag {
    pub(crate) flag: &'static str,
    pub(crate) kind: SourceKind,
}

/// The flags that make a source of this role. Each is enough. What else the settings demand of sources follows from this list.
pub(crate) const fn flags_of(source: Source) -> &'static [SourceFlag] {
    match source {
        Source::File => &[SourceFlag { flag: "pod-manifest-path", kind: SourceKind::Manifests }],
        Source::Http => &[SourceFlag { flag: "manifest-url", kind: SourceKind::ManifestUrl }],
        Source::Kubelet => &[
            SourceFlag { flag: "kubelet", kind: SourceKind::KubeletPort },
            SourceFlag { flag: "kubelet-socket", kind: SourceKind::KubeletSocket },
        ],
        Source::Api => &[
            SourceFlag { flag: "kubeconfig", kind: SourceKind::ApiServer },
            SourceFlag { flag: "api-server", kind: SourceKind::ApiServer },
        ],
    }
}

/// The kind of the source of this role. `None` if there is none.
pub(super) fn kind_of(source: Source, written: &Written) -> Option<SourceKind> {
    flags_of(source).iter().find(|source| written.is_on(source.flag)).map(|source| source.kind)
}

fn all_flags() -> impl Iterator<Item = &'static SourceFlag> {
    Source::ALL.into_iter().flat_map(flags_of)
}

/// Whether manifests of static pods are its pods, so that the agent itself can manage their mirror pods.
fn has_manifests(source: Source) -> bool {
    match source {
        Source::File | Source::Http => true,
        Source::Kubelet | Source::Api => false,
    }
}

fn is_api_server(source: Source) -> bool {
    source == Source::Api
}

/// Each two flags that would make two sources of one role, whose lists would remove each other's pods.
fn two_of_one_role() -> impl Iterator<Item = [&'static str; 2]> {
    // The flags of an API server make one source together.
    let roles = Source::ALL.into_iter().filter(|source| !is_api_server(*source));
    roles.map(flags_of).flat_map(|flags| {
        let pairs = |(at, one): (usize, &'static SourceFlag)| {
            flags[at + 1..].iter().map(move |other| [one.flag, other.flag])
        };
        flags.iter().enumerate().flat_map(pairs)
    })
}

/// Whether a source is configured.
pub(super) fn has_source(written: &Written) -> bool {
    all_flags().any(|source| written.is_on(source.flag))
}

/// Whether a source is a server.
pub(super) fn asks_a_server(written: &Written) -> bool {
    all_flags().filter(|source| source.kind.asks_a_server()).any(|source| written.is_on(source.flag))
}

/// The error without a source, and without a configuration file.
pub(crate) fn no_sources() -> String {
    let flags: Vec<_> = all_flags().map(|source| format!("--{}", source.flag)).collect();
    format!("no pods to read: give {}", one_of(&flags))
}

/// The same with a configuration file: its keys can name the sources as well.
pub(super) fn no_sources_in(file: &Path, definitions: &[&'static Definition]) -> String {
    let key_of = |SourceFlag { flag, .. }: &SourceFlag| {
        let definition = definitions.iter().find(|definition| definition.flag == *flag);
        definition.and_then(|definition| definition.key()).unwrap_or_else(|| format!("--{flag}"))
    };
    let keys: Vec<_> = all_flags().map(key_of).collect();
    format!("{}: no pods to read: set {}", file.display(), one_of(&keys))
}

/// Names in a sentence: `a, b or c`.
fn one_of(names: &[String]) -> String {
    match names {
        [names @ .., last] if !names.is_empty() => format!("{} or {last}", names.join(", ")),
        names => names.concat(),
    }
}

/// How a user who wrote `flag` where it stands would write these other settings.
pub(super) fn names_beside<const COUNT: usize>(
    flag: &str,
    others: [&str; COUNT],
    written: &Written,
    definitions: &[&'static Definition],
) -> [String; COUNT] {
    others.map(|other| {
        let definition = definitions.iter().find(|definition| definition.flag == other);
        definition.map_or_else(|| format!("--{other}"), |definition| written.name_beside(flag, definition))
    })
}

/// The error if others than this machine reach the agent, without TLS and without the consent to that.
pub(super) fn open_to_everyone(
    address: IpAddr,
    written: &Written,
    definitions: &[&'static Definition],
) -> Failure {
    let name = written.name("address");
    let ways = ["tls-cert-file", "tls-private-key-file", "client-ca-file", "allow-remote-clients"];
    let [cert, private_key, client_ca, allow] = names_beside("address", ways, written, definitions);
    Failure::Usage(format!(
        "{name} {address}: anyone who can reach it could read every pod; give {cert} and {private_key} (and \
         {client_ca}), or {allow} to allow this"
    ))
}

/// The flags that make clients known.
const CLIENTS: &[&str] = &["client-ca-file", "authentication-token-webhook"];

/// A setting that does nothing without another.
struct Need {
    flag: &'static str,
    one_of: OneOf,
    /// Why, if the names do not say it.
    why: &'static str,
}

/// What a setting needs.
enum OneOf {
    /// One of these settings.
    Flags(&'static [&'static str]),
    /// A source of such a role.
    Source(fn(Source) -> bool),
}

impl OneOf {
    fn flags(&self) -> Vec<&'static str> {
        match self {
            Self::Flags(flags) => flags.to_vec(),
            Self::Source(is_right) => {
                let roles = Source::ALL.into_iter().filter(|source| is_right(*source));
                roles.flat_map(flags_of).map(|source| source.flag).collect()
            }
        }
    }
}

const fn need(flag: &'static str, one_of: &'static [&'static str]) -> Need {
    Need { flag, one_of: OneOf::Flags(one_of), why: "" }
}

const fn needs_source(flag: &'static str, is_right: fn(Source) -> bool) -> Need {
    Need { flag, one_of: OneOf::Source(is_right), why: "" }
}

/// A setting of clients that the API server decides about. Who reads the kubelet's socket alone may not expect that it is needed.
const fn needs_reviews(flag: &'static str) -> Need {
    let why = ": the API server decides about clients, and no kubelet does; beside the kubelet's socket, the agent then needs \
               the API server as well, and its pod a token";
    Need { flag, one_of: OneOf::Source(is_api_server), why }
}

/// Mirror pods: without static pods, every mirror would be an orphan, and a guessed node name may be another node's.
const NEEDS: [Need; 18] = [
    need("tls-cert-file", &["tls-private-key-file"]),
    need("tls-private-key-file", &["tls-cert-file"]),
    need("client-ca-file", &["tls-cert-file"]),
    need("authentication-token-webhook", &["tls-cert-file"]),
    needs_reviews("authentication-token-webhook"),
    need("authorization-mode", CLIENTS),
    needs_reviews("authorization-mode"),
    need("allowed-client-names", CLIENTS),
    need("allowed-client-groups", CLIENTS),
    needs_source("namespace", is_api_server),
    needs_source("pod-selector", is_api_server),
    needs_source("pod-field-selector", is_api_server),
    needs_source("serve-resources", is_api_server),
    needs_source("manage-mirror-pods", is_api_server),
    need("manage-mirror-pods", &["hostname-override"]),
    needs_source("manage-mirror-pods", has_manifests),
    need("checkpoint-all-pods", &["checkpoint-dir"]),
    need("socket-mode", &["socket", "pods-api-socket"]),
];

/// The settings that client commands need for TLS.
const CLIENT_NEEDS: [Need; 5] = [
    need("tls-server-name", &["certificate-authority"]),
    need("client-certificate", &["certificate-authority"]),
    need("client-certificate", &["client-key"]),
    need("client-key", &["certificate-authority"]),
    need("client-key", &["client-certificate"]),
];

/// Settings that exclude each other, besides [`two_of_one_role`]. Mirror pods that a selector hides would seem missing.
const EXCLUDE: [[&str; 2]; 4] = [
    ["manage-mirror-pods", "namespace"],
    ["manage-mirror-pods", "pod-selector"],
    ["manage-mirror-pods", "pod-field-selector"],
    ["kubelet-insecure-skip-tls-verify", "kubelet-ca"],
];

/// Checks the settings of an agent that serves. `is_on`: whether a setting does anything.
pub(super) fn check(
    written: &Written,
    definitions: &[&'static Definition],
    is_on: impl Fn(&str) -> bool,
) -> Result<(), Failure> {
    check_needs(&NEEDS, written, definitions, &is_on)?;
    for [one, other] in EXCLUDE.into_iter().chain(two_of_one_role()) {
        let holds = !(is_on(one) && is_on(other));
        rule(holds, format!("{} cannot be used with {}", written.name(one), written.name(other)))?;
    }
    Ok(())
}

/// Checks the settings of a command that asks an agent.
pub(super) fn check_client(written: &Written, definitions: &'static [Definition]) -> Result<(), Failure> {
    let definitions: Vec<_> = definitions.iter().collect();
    check_needs(&CLIENT_NEEDS, written, &definitions, &|flag| written.is_on(flag))
}

fn check_needs(
    needs: &[Need],
    written: &Written,
    definitions: &[&'static Definition],
    is_on: &dyn Fn(&str) -> bool,
) -> Result<(), Failure> {
    for Need { flag, one_of, why } in needs {
        let one_of = one_of.flags();
        if !is_on(flag) || one_of.iter().any(|needed| is_on(needed)) {
            continue;
        }
        let needed = definitions.iter().filter(|definition| one_of.contains(&definition.flag));
        let names: Vec<_> = needed.map(|definition| written.name_beside(flag, definition)).collect();
        let message = format!("{} needs {}{why}", written.name(flag), names.join(" or "));
        return Err(Failure::Usage(message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::tests::{definitions_of_all, resolved};

    #[test]
    fn the_rules_name_flags_that_exist() {
        let flags: BTreeSet<_> = definitions_of_all().iter().map(|definition| definition.flag).collect();
        let needs = NEEDS.iter().chain(&CLIENT_NEEDS);
        let of_needs = needs.flat_map(|need| need.one_of.flags().into_iter().chain([need.flag]));
        let of_sources = all_flags().map(|source| source.flag);
        let excluded = EXCLUDE.as_flattened().iter().copied();
        for flag in of_needs.chain(of_sources).chain(excluded) {
            assert!(flags.contains(flag), "{flag}");
        }
    }

    /// A second source of a role would replace the pods of the first.
    #[test]
    fn an_agent_has_at_most_one_source_of_each_role_besides_the_api_server() {
        for source in Source::ALL.into_iter().filter(|source| *source != Source::Api) {
            let flags: Vec<_> = flags_of(source).iter().map(|source| source.flag).collect();
            let pairs = flags.iter().flat_map(|one| flags.iter().map(move |other| [*one, *other]));
            for [one, other] in pairs.filter(|[one, other]| one != other) {
                let is_refused = two_of_one_role().any(|pair| pair == [one, other] || pair == [other, one]);
                assert!(is_refused, "--{one} and --{other}");
            }
        }
        let failure = resolved(&["--kubelet=http://127.0.0.1:1", "--kubelet-socket=/s"]).unwrap_err();
        assert_eq!(failure.message(), Some("--kubelet cannot be used with --kubelet-socket"));
    }

    /// Who looks for a source in these pages should find each. (`documented::` compares the console of `docs/operators.md`.)
    #[test]
    fn the_tables_of_sources_have_the_flag_of_each() {
        for (page, heading) in [
            (include_str!("../../../docs/sources.md"), "\n| source | setting of the agent |"),
            (include_str!("../../../docs/mirror-pods.md"), "\n| source | the agent knows static pods |"),
            (include_str!("../../../docs/operators.md"), "\n| where pods come from |"),
            (include_str!("../../../docs/reference.md"), "\n**Which source is the default?**"),
        ] {
            let (_, rest) = page.split_once(heading).unwrap_or_else(|| panic!("no page has {heading:?}"));
            let table = rest.split("\n\n").next().unwrap_or_default();
            for SourceFlag { flag, .. } in all_flags() {
                assert!(table.contains(&format!("`--{flag}`")), "--{flag} after {heading:?}: {table}");
            }
        }
    }

    /// A row of a table of settings.
    struct Row {
        settings: &'static str,
        others: &'static str,
    }

    impl Row {
        fn says(&self, setting: &str, other: &str) -> bool {
            let names = |cell: &str, flag: &str| {
                ["`", "="].iter().any(|end| cell.contains(&format!("`--{flag}{end}")))
            };
            names(self.settings, setting) && names(self.others, other)
        }
    }

    /// The rows of the reference's table with these headings.
    fn rows_of_reference(headings: &str) -> Vec<Row> {
        let reference = include_str!("../../../docs/reference.md");
        let (_, rest) = reference.split_once(headings).unwrap_or_else(|| panic!("no table has {headings:?}"));
        let lines = rest.lines().skip(2).take_while(|line| line.starts_with('|'));
        let cells = |line: &'static str| line.trim_matches('|').split_once(" | ");
        lines.filter_map(cells).map(|(settings, others)| Row { settings, others }).collect()
    }

    /// Who combines settings reads these tables before the agent refuses them.
    #[test]
    fn the_reference_says_which_settings_need_or_exclude_each_other() {
        let rows = rows_of_reference("\n| setting | needs |");
        for need in &NEEDS {
            for needed in need.one_of.flags() {
                let is_said = rows.iter().any(|row| row.says(need.flag, needed));
                assert!(is_said, "--{} needs --{needed}", need.flag);
            }
        }
        let rows = rows_of_reference("\n| setting | not with |");
        for [one, other] in EXCLUDE.into_iter().chain(two_of_one_role()) {
            let is_said = rows.iter().any(|row| row.says(one, other) || row.says(other, one));
            assert!(is_said, "--{one} excludes --{other}");
        }
    }

    #[test]
    fn mirror_pods_are_managed_for_manifests_of_every_source_that_has_some_and_for_no_other() {
        for (flag, is_enough) in [
            ("--pod-manifest-path=/p", true),
            ("--manifest-url=http://127.0.0.1:1", true),
            ("--kubelet-socket=/s", false),
            ("--redact-env", false),
        ] {
            let failure = resolved(&["--manage-mirror-pods", flag]).err();
            let said = failure.as_ref().and_then(Failure::message);
            let needs = "--manage-mirror-pods needs --pod-manifest-path or --manifest-url";
            assert_eq!(said, (!is_enough).then_some(needs), "{flag}");
        }
    }
}
