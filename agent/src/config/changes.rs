//! What a changed configuration file changes in the running agent, and what needs a restart.
//!
//! | setting | when it takes effect |
//! |---|---|
//! | `--log-level` | at once |
//! | `--allowed-client-names`, `--allowed-client-groups` | at once, unless another setting of who may ask has changed as well |
//! | every other one | at the next restart |
//!
//! Why are the allowed clients not always taken over? A file that moves from names to `--authorization-mode=Webhook` has no
//! names any more. Without the mode, which needs a restart, an empty list of names would let in everybody.

use tracing::Level;

use super::Settings;
use super::define::Subject;
use super::values::AllowedClients;

const LEVEL: &str = "log-level";
const ALLOWED: [&str; 2] = ["allowed-client-names", "allowed-client-groups"];

/// What differs in a configuration.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// What takes effect at once.
    pub(crate) at_once: AtOnce,
    /// The other settings that differ, as the user wrote them.
    pub(crate) need_restart: Vec<String>,
}

/// The settings that differ and take effect at once. `None`: this one is as it was.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct AtOnce {
    pub(crate) log_level: Option<Level>,
    pub(crate) allowed: Option<AllowedClients>,
}

impl AtOnce {
    /// Whether no setting differs.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Settings {
    /// Takes over from `new` what a running agent can change, and says what that is.
    pub(crate) fn take_over(&mut self, new: &Self) -> Changes {
        let mut differing = self.effective.differing(&new.effective);
        differing.extend(self.server.differing(&new.server));
        let changes_who_may_ask = !self.effective.tls.differing(&new.effective.tls).is_empty()
            || self
                .effective
                .clients
                .differing(&new.effective.clients)
                .iter()
                .any(|flag| !ALLOWED.contains(flag));

        let mut changes = Changes::default();
        for flag in differing {
            if flag == LEVEL {
                self.effective.log.level = new.effective.log.level;
                changes.at_once.log_level = Some(self.effective.log.level);
            } else if ALLOWED.contains(&flag) && !changes_who_may_ask {
                self.effective.clients = new.effective.clients.clone();
                changes.at_once.allowed = Some(self.effective.clients.allowed());
            } else if new.written.is_written(flag) {
                changes.need_restart.push(new.written.name(flag));
            } else {
                changes.need_restart.push(format!("{}, which is gone,", self.written.name(flag)));
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::tests::settings_of_file;

    /// What the files of the tests have in common.
    const TLS: &str = "apiServer: true\nnodeName: n\ntlsCertFile: /c\ntlsPrivateKeyFile: /k\n";
    const CLIENTS: &str = "authentication: {x509: {clientCAFile: /a}}\n";

    /// The settings of this file.
    fn settings(text: &str) -> Settings {
        settings_of_file("changes", text)
    }

    /// What changes from the first file to the second, with the names without the file's path.
    fn changes(before: &str, after: &str) -> Changes {
        let (before, after) = (format!("{TLS}{CLIENTS}{before}"), format!("{TLS}{CLIENTS}{after}"));
        let mut changes = settings(&before).take_over(&settings(&after));
        for name in &mut changes.need_restart {
            *name = name.split_once(".yaml:").unwrap().1.to_owned();
        }
        changes
    }

    #[test]
    fn the_log_level_and_the_allowed_clients_change_at_once() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let found = changes(
            "allowedClientNames: [a, b]\nport: 1\n",
            "logLevel: debug\nallowedClientNames: [b, c]\nallowedClientGroups: [g]\nport: 1\n",
        );
        let allowed = AllowedClients { names: set(&["b", "c"]), groups: set(&["g"]) };
        let expected = Changes {
            at_once: AtOnce { log_level: Some(Level::DEBUG), allowed: Some(allowed) },
            need_restart: Vec::new(),
        };
        assert_eq!(found, expected);
        // The value counts, and not whether it is written.
        for (before, after) in [
            ("logLevel: info\n", ""),
            ("checkpointAllPods: false\n", ""),
            ("port: 1\n", "port: 1 # the same\n"),
        ] {
            assert_eq!(changes(before, after), Changes::default(), "{before} {after}");
        }
    }

    #[test]
    fn what_was_taken_over_does_not_change_again() {
        let mut running = settings(TLS);
        let changed = settings(&format!("{TLS}logLevel: warn\nport: 2\n"));
        assert_eq!(running.take_over(&changed).at_once.log_level, Some(Level::WARN));
        let again = running.take_over(&changed);
        assert_eq!((again.at_once.is_empty(), again.need_restart.len()), (true, 1));
    }

    #[test]
    fn other_settings_are_named_with_their_place() {
        let found = changes("keepRemoved: 2m\nport: 1\n", "port: 2\nserveResources: [nodes]\n");
        assert_eq!(found.need_restart, ["6: keepRemoved, which is gone,", "7: serveResources", "6: port"]);
    }

    /// The value of a header may be secret.
    #[test]
    fn a_changed_header_is_named_without_its_value() {
        let url = "staticPodURL: http://a\n";
        let found = changes(
            &format!("{url}staticPodURLHeader: {{Authorization: [Bearer one]}}\n"),
            &format!("{url}staticPodURLHeader: {{Authorization: [Bearer two]}}\n"),
        );
        assert_eq!(found.need_restart, ["7: staticPodURLHeader"]);
    }

    /// Taken over alone, the empty list of names would let in everybody.
    #[test]
    fn the_allowed_clients_do_not_change_before_other_settings_of_who_may_ask() {
        let found = changes("allowedClientNames: [a]\n", "authorization: {mode: Webhook}\nlogLevel: warn\n");
        let need_restart = ["6: authorization.mode", "6: allowedClientNames, which is gone,"];
        let expected = Changes {
            at_once: AtOnce { log_level: Some(Level::WARN), allowed: None },
            need_restart: need_restart.map(str::to_owned).to_vec(),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn the_settings_of_every_subject_are_compared() {
        assert_eq!(settings(TLS).take_over(&settings(TLS)), Changes::default());
        let alone = [
            ("checkpointDir: /x", "checkpoint-dir"),
            ("staticPodPath: /x", "pod-manifest-path"),
            ("staticPodURL: http://x", "manifest-url"),
            ("kubelet: http://x", "kubelet"),
            ("namespace: x", "namespace"),
            ("proc: /x", "proc"),
            ("keepRemovedMax: 1", "keep-removed-max"),
            ("clockSkew: 9s", "clock-skew"),
            ("podsApiSocket: /x", "pods-api-socket"),
            ("maxWatches: 9", "max-watches"),
            ("redactEnv: true", "redact-env"),
            ("logFormat: json", "log-format"),
            ("authentication: {x509: {clientCAFile: /x}}", "client-ca-file"),
            ("authentication: {webhook: {enabled: true}}", "authentication-token-webhook"),
        ];
        let alone = alone.map(|(line, flag)| (format!("{TLS}{line}\n"), vec![flag]));
        let other_node = (TLS.replace("nodeName: n", "nodeName: m"), vec!["hostname-override"]);
        let mirrors = format!("{TLS}staticPodPath: /x\nmanageMirrorPods: true\n");
        let mirrors = (mirrors, vec!["pod-manifest-path", "manage-mirror-pods"]);
        let mut compared = Vec::new();
        for (text, flags) in alone.into_iter().chain([other_node, mirrors]) {
            assert_eq!(settings(TLS).effective.differing(&settings(&text).effective), flags);
            compared.extend(flags);
        }
        for subject in settings(TLS).effective.each() {
            let definitions = subject.definitions();
            let is_compared = definitions.iter().any(|definition| compared.contains(&definition.flag));
            assert!(is_compared, "no case for the subject of --{}", definitions[0].flag);
        }
    }
}
