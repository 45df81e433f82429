//! What a changed configuration file changes in the running agent, and what needs a restart.
//!
//! | setting | when it takes effect |
//! |---|---|
//! | `--log-level` | at once |
//! | `--allowed-client-names`, `--allowed-client-groups` | at once, unless another setting of who may ask has changed as well |
//! | `--max-watches`, `--max-watches-per-client` | at once |
//! | every other one | at the next restart |
//!
//! Why are the allowed clients not always taken over? A file that moves from names to `--authorization-mode=Webhook` has no
//! names any more. Without the mode, which needs a restart, an empty list of names would let in everybody.
//!
//! **To make a setting change at once**, add an entry to [`AT_ONCE`]. [`Settings::take_over`] does the rest for each entry: it stores
//! the new value, of this entry's flags alone, and hands it over to the running part by a function of [`RunningParts`].

use tracing::Level;

use super::Settings;
use super::changing::Stored;
use super::define::Subject;
use super::subjects::Subjects;
use super::values::{AllowedClients, MostWatches};

/// The parts of the running agent that take a changed setting. Each holds the value in a [`Changing`](super::changing::Changing), so
/// that all who use it see the change.
pub(crate) trait RunningParts {
    fn log_at(&self, level: Level) -> Stored;

    fn serve_only(&self, clients: AllowedClients) -> Stored;

    fn permit_watches(&self, most: MostWatches) -> Stored;
}

/// Settings that take effect together, and at once.
struct AtOnce {
    flags: &'static [&'static str],
    /// If one of these has changed as well, they wait for the restart with it.
    wait_for: &'static [&'static str],
    /// Hands the values in effect over to the part that uses them.
    hand_over: fn(&Subjects, &dyn RunningParts) -> Stored,
}

impl AtOnce {
    /// Which of its flags change at once, if these differ: none, if one of them is to be waited for.
    fn changed_at_once(&self, differing: &[&'static str]) -> Vec<&'static str> {
        if self.wait_for.iter().any(|flag| differing.contains(flag)) {
            return Vec::new();
        }
        self.flags.iter().copied().filter(|flag| differing.contains(flag)).collect()
    }
}

const AT_ONCE: &[AtOnce] = &[
    AtOnce {
        flags: &["log-level"],
        wait_for: &[],
        hand_over: |effective, parts| parts.log_at(effective.log.level),
    },
    AtOnce {
        flags: &["allowed-client-names", "allowed-client-groups"],
        wait_for: WHO_MAY_ASK,
        hand_over: |effective, parts| parts.serve_only(effective.access_rules().allowed),
    },
    AtOnce {
        flags: &["max-watches", "max-watches-per-client"],
        wait_for: &[],
        hand_over: |effective, parts| parts.permit_watches(effective.most_watches()),
    },
];

/// What decides who may ask, besides the lists of allowed clients.
const WHO_MAY_ASK: &[&str] = &[
    "tls-cert-file",
    "tls-private-key-file",
    "client-ca-file",
    "authentication-token-webhook",
    "authorization-mode",
];

/// What differs in a configuration.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangedSettings {
    /// The flags of what has taken effect.
    pub(crate) at_once: Vec<&'static str>,
    /// The other settings that differ, as the user wrote them.
    pub(crate) need_restart: Vec<String>,
}

impl Settings {
    /// Takes over from `new` what a running agent can change: stores it here, and hands it over to `parts`.
    pub(crate) fn take_over(&mut self, new: &Self, parts: &dyn RunningParts) -> ChangedSettings {
        let differing = self.effective.differing(&new.effective);
        let mut at_once = Vec::new();
        for entry in AT_ONCE {
            let changed = entry.changed_at_once(&differing);
            if changed.is_empty() {
                continue;
            }
            for flag in &changed {
                self.effective.copy(flag, &new.effective);
            }
            let _stored = (entry.hand_over)(&self.effective, parts);
            at_once.extend(changed);
        }
        ChangedSettings { at_once, need_restart: self.names_of_differing(new) }
    }

    /// The settings that differ from `new`, as the user wrote them there, or else here.
    fn names_of_differing(&self, new: &Self) -> Vec<String> {
        let mut flags = self.effective.differing(&new.effective);
        flags.extend(self.server.differing(&new.server));
        let name = |flag: &str| {
            if new.written.is_written(flag) {
                new.written.name(flag)
            } else {
                format!("{}, which is gone,", self.written.name(flag))
            }
        };
        flags.into_iter().map(name).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::changing::Changing;
    use crate::config::tests::{all_definitions, settings_of_file};

    /// What the files of the tests have in common.
    const TLS: &str = "apiServer: true\nnodeName: n\ntlsCertFile: /c\ntlsPrivateKeyFile: /k\n";
    const CLIENTS: &str = "authentication: {x509: {clientCAFile: /a}}\n";

    /// For each entry of [`AT_ONCE`]: its flags, a file, and what another file hands over.
    fn cases() -> Vec<Case> {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let clients = AllowedClients { names: names(&["b"]), groups: names(&["g"]) };
        vec![
            Case {
                flags: &["log-level"],
                before: "logLevel: info\n",
                after: "logLevel: debug\n",
                handed_over: HandedOver::Level(Level::DEBUG),
            },
            Case {
                flags: &["allowed-client-names", "allowed-client-groups"],
                before: "allowedClientNames: [a]\n",
                after: "allowedClientNames: [b]\nallowedClientGroups: [g]\n",
                handed_over: HandedOver::Clients(clients),
            },
            Case {
                flags: &["max-watches", "max-watches-per-client"],
                before: "maxWatches: 9\n",
                after: "maxWatches: 8\nmaxWatchesPerClient: 7\n",
                handed_over: HandedOver::Watches(MostWatches { of_all: 8, of_client: 7 }),
            },
        ]
    }

    struct Case {
        flags: &'static [&'static str],
        before: &'static str,
        after: &'static str,
        handed_over: HandedOver,
    }

    #[derive(Debug, PartialEq, Eq)]
    enum HandedOver {
        Level(Level),
        Clients(AllowedClients),
        Watches(MostWatches),
    }

    /// Writes down what is handed over.
    #[derive(Default)]
    struct Recorder(RefCell<Vec<HandedOver>>);

    impl Recorder {
        fn write(&self, handed_over: HandedOver) -> Stored {
            self.0.borrow_mut().push(handed_over);
            Changing::new(()).set(())
        }
    }

    impl RunningParts for Recorder {
        fn log_at(&self, level: Level) -> Stored {
            self.write(HandedOver::Level(level))
        }

        fn serve_only(&self, clients: AllowedClients) -> Stored {
            self.write(HandedOver::Clients(clients))
        }

        fn permit_watches(&self, most: MostWatches) -> Stored {
            self.write(HandedOver::Watches(most))
        }
    }

    /// The settings of this file.
    fn settings(text: &str) -> Settings {
        settings_of_file("changes", text)
    }

    /// What changes from the first file to the second, with the names without the file's path.
    fn changes(before: &str, after: &str) -> ChangedSettings {
        let before = format!("{TLS}{CLIENTS}{before}");
        let after = format!("{TLS}{CLIENTS}{after}");
        let mut changes = settings(&before).take_over(&settings(&after), &Recorder::default());
        for name in &mut changes.need_restart {
            *name = name.split_once(".yaml:").unwrap().1.to_owned();
        }
        changes
    }

    /// A second signal changes nothing, and neither signal takes over a neighbour of the setting.
    #[test]
    fn what_takes_effect_at_once_is_stored_and_handed_over_exactly_once() {
        let cases = cases();
        let flags = |case: &AtOnce| case.flags;
        let of_entries: Vec<_> = AT_ONCE.iter().map(flags).collect();
        let of_cases: Vec<_> = cases.iter().map(|case| case.flags).collect();
        assert_eq!(of_cases, of_entries, "a case for each entry");
        for Case { flags, before, after, handed_over } in cases {
            let mut running =
                settings(&format!("{TLS}{CLIENTS}{before}port: 1\nkeepRemovedMax: 1\nlogFormat: text\n"));
            let file = format!("{TLS}{CLIENTS}{after}port: 2\nkeepRemovedMax: 2\nlogFormat: json\n");
            let changed = settings(&file);
            let parts = Recorder::default();
            let first = running.take_over(&changed, &parts);
            assert_eq!(first.at_once, flags);
            assert_eq!(first.need_restart.len(), 3, "{first:?}");
            assert_eq!(parts.0.take(), [handed_over]);
            let second = running.take_over(&changed, &parts);
            assert_eq!(second, ChangedSettings { at_once: Vec::new(), need_restart: first.need_restart });
            assert_eq!(parts.0.take(), []);
        }
    }

    /// Operators look there. And `agent/tests/agent/reload.rs` tests each of these keys with an agent.
    #[test]
    fn the_table_of_what_a_change_needs_has_exactly_the_keys_that_take_effect_at_once() {
        let operators = include_str!("../../../docs/operators.md");
        let at_signal = operators.lines().filter(|line| line.contains("| at SIGHUP"));
        let documented: BTreeSet<_> =
            at_signal.flat_map(|line| line.split('`').skip(1).step_by(2)).map(str::to_owned).collect();
        let key = |flag: &&str| {
            let definition = all_definitions().into_iter().find(|definition| definition.flag == *flag);
            definition.unwrap_or_else(|| panic!("no --{flag}")).key().unwrap()
        };
        let keys: BTreeSet<_> = AT_ONCE.iter().flat_map(|entry| entry.flags).map(key).collect();
        assert_eq!(documented, keys, "docs/operators.md, what a change needs");
    }

    /// A setting that is missing in `WHO_MAY_ASK` would let the lists of allowed clients change before it. And a setting that decides
    /// nothing of the kind would wait for a restart without a reason.
    #[test]
    fn whatever_decides_who_may_ask_holds_back_the_allowed_clients_and_nothing_else() {
        let Settings { mut effective, .. } = settings(TLS);
        let of_access: [&mut dyn Subject; 2] = [&mut effective.tls, &mut effective.access];
        let definitions = of_access.into_iter().flat_map(|subject| subject.definitions());
        let of_access: BTreeSet<_> = definitions.map(|definition| definition.flag).collect();
        let mut expected: BTreeSet<_> = WHO_MAY_ASK.iter().copied().collect();
        for AtOnce { flags, wait_for, .. } in AT_ONCE {
            let is_of_access = flags.iter().any(|flag| of_access.contains(flag));
            assert_eq!(*wait_for, if is_of_access { WHO_MAY_ASK } else { &[] }, "{flags:?}");
            expected.extend(flags.iter().filter(|_| is_of_access));
        }
        assert_eq!(of_access, expected, "TlsSettings and AccessSettings have only what decides who may ask");
    }

    #[test]
    fn the_value_counts_and_not_whether_it_is_written() {
        for (before, after) in [
            ("logLevel: info\n", ""),
            ("checkpointAllPods: false\n", ""),
            ("port: 1\n", "port: 1 # the same\n"),
            ("fileCheckFrequency: 20s\nstaticPodPath: /a\n", "fileCheckFrequency: 0s\nstaticPodPath: /a\n"),
        ] {
            assert_eq!(changes(before, after), ChangedSettings::default(), "{before} {after}");
        }
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
        let expected = ChangedSettings {
            at_once: vec!["log-level"],
            need_restart: need_restart.map(str::to_owned).to_vec(),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn the_settings_of_every_subject_are_compared() {
        assert_eq!(settings(TLS).take_over(&settings(TLS), &Recorder::default()), ChangedSettings::default());
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
