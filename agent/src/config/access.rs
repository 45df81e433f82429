//! Which clients may query the agent, and whether the settings are consistent.

use std::collections::BTreeSet;

use super::args::Shared;
use super::values::{AccessSettings, AuthorizationMode, TlsFiles};
use crate::config::failure::Failure;

/// The access settings from the command line and the file.
pub(super) fn settings(given: &Shared) -> AccessSettings {
    // An empty name would match a certificate without a name.
    let filled = |items: &[String]| items.iter().filter(|item| !item.is_empty()).cloned().collect();
    AccessSettings {
        names: filled(&given.allowed_client_names),
        groups: filled(&given.allowed_client_groups),
        tokens: given.authentication.webhook.enabled,
        rights: given.authorization.mode == Some(AuthorizationMode::Webhook),
    }
}

/// Whether clients can be identified, and the API server is available where needed.
pub(super) fn makes_sense(
    access: &AccessSettings,
    tls: Option<&TlsFiles>,
    has_api_server: bool,
) -> Result<(), Failure> {
    let refused = |message: &str| Err(Failure::Usage(message.to_owned()));
    let has_certificates = tls.is_some_and(|tls| tls.client_ca.is_some());
    if access.tokens && tls.is_none() {
        return refused(
            "--authentication-token-webhook needs TLS: --tls-cert-file and --tls-private-key-file",
        );
    }
    if access.is_limited() && !(has_certificates || access.tokens) {
        return refused(
            "--allowed-client-names, --allowed-client-groups and --authorization-mode=Webhook need authenticated clients: \
             --client-ca-file or --authentication-token-webhook",
        );
    }
    if (access.tokens || access.rights) && !has_api_server {
        return refused(
            "--authentication-token-webhook and --authorization-mode=Webhook need an API server: --kubeconfig or --api-server",
        );
    }
    Ok(())
}

/// A description of the access rules. `None` if there are none beyond the handshake.
pub(super) fn words(access: &AccessSettings) -> Option<String> {
    let AccessSettings { names, groups, tokens, rights } = access;
    let listed = |what: &str, items: &BTreeSet<String>| {
        let items: Vec<_> = items.iter().map(String::as_str).collect();
        (!items.is_empty()).then(|| format!("{what} {}", items.join(", ")))
    };
    let parts = [
        listed("of the names", names),
        listed("of the groups", groups),
        rights.then(|| "allowed by the API server".to_owned()),
        tokens.then(|| "tokens are accepted".to_owned()),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}
