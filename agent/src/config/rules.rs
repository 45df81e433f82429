//! Which settings need each other, and which exclude each other.

use std::path::Path;

use super::define::Definition;
use super::rule;
use super::written::Written;
use crate::config::failure::Failure;
use pod_index_kubelet::sources::Source;

/// The flags that make a source of this role. Each is enough.
pub(crate) const fn flags_of(source: Source) -> &'static [&'static str] {
    match source {
        Source::File => &["pod-manifest-path"],
        Source::Http => &["manifest-url"],
        Source::Kubelet => &["kubelet", "kubelet-socket"],
        Source::Api => &["kubeconfig", "api-server"],
    }
}

/// Whether a source is configured.
pub(super) fn has_source(written: &Written) -> bool {
    Source::ALL.into_iter().any(|source| is_configured(source, written))
}

/// Whether a source is a server.
pub(super) fn asks_a_server(written: &Written) -> bool {
    let is_server = |source: &Source| match source {
        Source::File => false,
        Source::Http | Source::Kubelet | Source::Api => true,
    };
    Source::ALL.into_iter().filter(is_server).any(|source| is_configured(source, written))
}

fn is_configured(source: Source, written: &Written) -> bool {
    flags_of(source).iter().any(|flag| written.is_on(flag))
}

/// The error without a source, and without a configuration file.
pub(crate) fn no_sources() -> String {
    let flags: Vec<_> = Source::ALL.into_iter().flat_map(flags_of).map(|flag| format!("--{flag}")).collect();
    format!("no pods to read: give {}", one_of(&flags))
}

/// The same with a configuration file: its keys can name the sources as well.
pub(super) fn no_sources_in(file: &Path, definitions: &[&'static Definition]) -> String {
    let key_of = |flag: &&str| {
        let definition = definitions.iter().find(|definition| definition.flag == *flag);
        definition.and_then(|definition| definition.key()).unwrap_or_else(|| format!("--{flag}"))
    };
    let keys: Vec<_> = Source::ALL.into_iter().flat_map(flags_of).map(key_of).collect();
    format!("{}: no pods to read: set {}", file.display(), one_of(&keys))
}

/// Names in a sentence: `a, b or c`.
fn one_of(names: &[String]) -> String {
    match names {
        [names @ .., last] if !names.is_empty() => format!("{} or {last}", names.join(", ")),
        names => names.concat(),
    }
}

/// The flags of an API server.
const API: &[&str] = flags_of(Source::Api);
/// The flags that make clients known.
const CLIENTS: &[&str] = &["client-ca-file", "authentication-token-webhook"];

/// A setting that does nothing without another.
struct Need {
    flag: &'static str,
    /// One of these is enough.
    one_of: &'static [&'static str],
    /// Why, if the names do not say it.
    why: &'static str,
}

const fn need(flag: &'static str, one_of: &'static [&'static str]) -> Need {
    Need { flag, one_of, why: "" }
}

/// A setting of clients that the API server decides about. Who reads the kubelet's socket alone may not expect that it is needed.
const fn needs_reviews(flag: &'static str) -> Need {
    let why = ": the API server decides about clients, and no kubelet does; beside --kubelet-socket, add --api-server, and \
               give the agent's pod a token";
    Need { flag, one_of: API, why }
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
    need("namespace", API),
    need("pod-selector", API),
    need("pod-field-selector", API),
    need("serve-resources", API),
    need("manage-mirror-pods", API),
    need("manage-mirror-pods", &["hostname-override"]),
    need("manage-mirror-pods", &["pod-manifest-path", "manifest-url"]),
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

/// Settings that exclude each other. Mirror pods that a selector hides would seem missing.
const EXCLUDE: [[&str; 2]; 5] = [
    ["manage-mirror-pods", "namespace"],
    ["manage-mirror-pods", "pod-selector"],
    ["manage-mirror-pods", "pod-field-selector"],
    ["kubelet-insecure-skip-tls-verify", "kubelet-ca"],
    ["kubelet", "kubelet-socket"],
];

/// Checks the settings of an agent that serves. `is_on`: whether a setting does anything.
pub(super) fn check(
    written: &Written,
    definitions: &[&'static Definition],
    is_on: impl Fn(&str) -> bool,
) -> Result<(), Failure> {
    check_needs(&NEEDS, written, definitions, &is_on)?;
    for [one, other] in EXCLUDE {
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
    use crate::config::tests::definitions_of_all;

    #[test]
    fn the_rules_name_flags_that_exist() {
        let flags: BTreeSet<_> = definitions_of_all().iter().map(|definition| definition.flag).collect();
        let needs = NEEDS.iter().chain(&CLIENT_NEEDS);
        let of_needs = needs.flat_map(|need| need.one_of.iter().chain([&need.flag]));
        for flag in of_needs.chain(EXCLUDE.as_flattened()) {
            assert!(flags.contains(flag), "{flag}");
        }
    }
}
