//! Tests of the layers: flags, variables, the file, defaults.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::{Args, Command, FromArgMatches};
use pod_index::AtTime;
use serde_json::Value;

use super::*;
use crate::config::values::Header;

/// The definition of a command line with all settings.
fn command() -> Command {
    let command = RunArgs::augment_args(Command::new("pod-index"));
    ClientTls::augment_args(ServerAddress::augment_args(command)).mut_args(define::finished)
}

/// What these words give.
fn given(words: &[&str]) -> Invocation {
    let arguments: Vec<OsString> = [&["pod-index"], words].concat().iter().map(OsString::from).collect();
    let command = command();
    let matches = command.clone().get_matches_from(&arguments);
    let mut run = RunArgs::from_arg_matches(&matches).unwrap();
    let mut server = ServerAddress::from_arg_matches(&matches).unwrap();
    let subjects: Vec<&mut dyn Subject> =
        run.settings.each().into_iter().chain([&mut run.config as &mut dyn Subject, &mut server]).collect();
    let written = Written::on_the_command_line(
        &definitions(&subjects),
        &matches,
        &arguments,
        define::aliases(&command),
    );
    Invocation { run, server, output: Output::Table, written, ignored_variables: Vec::new() }
}

/// The definitions of all settings that the file can have.
pub(super) fn all_definitions() -> Vec<&'static Definition> {
    let Invocation { mut run, mut server, .. } = given(&[]);
    definitions(&in_the_file(&mut run.settings, &mut server))
}

/// The definitions of all settings.
pub(super) fn definitions_of_all() -> Vec<&'static Definition> {
    let matches = command().get_matches_from(["pod-index"]);
    let client = ClientTls::from_arg_matches(&matches).unwrap();
    let config = RunArgs::from_arg_matches(&matches).unwrap().config;
    all_definitions().into_iter().chain(client.definitions()).chain(config.definitions()).collect()
}

/// The settings of an agent that follows the API server, with these flags.
pub(super) fn resolved(flags: &[&str]) -> Result<Settings, Failure> {
    given(&[&["--api-server", "--node-name=n"], flags].concat()).resolve()
}

/// As [`resolved`], for tests of other modules.
pub(crate) fn settings_of(flags: &[&str]) -> Settings {
    resolved(flags).unwrap()
}

/// The settings of this file alone, for tests of other modules.
pub(super) fn settings_of_file(name: &str, text: &str) -> Settings {
    let file = File::new(name, text);
    given(&[&file.flag()]).resolve().unwrap()
}

/// A command line that names a file, which does not exist yet, and where it should be.
pub(crate) fn invocation_of_file(name: &str) -> (PathBuf, Invocation) {
    let file = File::new(name, "");
    (file.0.clone(), given(&[&file.flag()]))
}

/// A configuration file, which is removed at the end.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        static FILES: AtomicUsize = AtomicUsize::new(0);
        let file = FILES.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pod-index-{name}-{}-{file}.yaml", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn flag(&self) -> String {
        format!("--config={}", self.0.display())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_nodes_name_is_a_dns_name_trimmed_and_in_lower_case() {
    let named = |name| node_name(name, &Written::default());
    assert_eq!(named(Some(" Foo.Bar \n")).unwrap().as_str(), "foo.bar");
    assert!(!named(None).unwrap().as_str().is_empty());
    for bad in ["Foo_Bar", "-a", "a..b", "  "] {
        assert!(matches!(named(Some(bad)), Err(Failure::Usage(_))), "{bad}");
    }
}

#[test]
fn a_flag_replaces_what_the_file_sets() {
    let file = File::new(
        "flags",
        "maxWatches: 7\nserveResources: [nodes, owners]\nredactEnv: true\nport: 1\naddress: localhost\n\
         staticPodURL: http://a\nstaticPodURLHeader: {A: ['b,c']}\n",
    );
    let config = file.flag();
    let set = resolved(&[&config]).unwrap();
    assert_eq!(
        (set.effective.times.clock_skew, set.effective.times.source_delay),
        (AtTime::<()>::SKEW, AtTime::<()>::DELAY)
    );
    assert!(set.effective.content.redact_env);
    assert_eq!(set.effective.pod_api.serve_resources, [Extra::Nodes, Extra::Owners]);
    assert_eq!((set.effective.pod_api.max_watches, set.server.port), (7, 1));
    assert!(set.server.address.is_loopback());
    let header = Header { name: "A".to_owned(), value: "b,c".to_owned() };
    assert_eq!(set.effective.manifest_url.headers, [header]);
    assert!(!set.summary().contains("b,c"), "{}", set.summary());
    assert!(!format!("{set:?}").contains("b,c"), "{set:?}");
    let set = resolved(&[&config, "--serve-resources=namespaces", "--max-watches=8", "--port=2"]).unwrap();
    assert_eq!(set.effective.pod_api.serve_resources, [Extra::Namespaces]);
    assert_eq!((set.effective.pod_api.max_watches, set.server.port), (8, 2));
    assert!(set.effective.content.redact_env, "{}", set.summary());
}

#[test]
fn a_flag_turns_off_what_the_file_turns_on() {
    let file = File::new("off", "redactEnv: true\nallNodes: true\n");
    let set = resolved(&[&file.flag(), "--redact-env=false"]).unwrap();
    assert!(!set.effective.content.redact_env && set.effective.api_server.all_nodes);
    assert!(!set.summary().contains("redactEnv"), "{}", set.summary());
    for on in ["--redact-env", "--redact-env=true"] {
        assert!(resolved(&[on]).unwrap().effective.content.redact_env, "{on}");
    }
}

/// The file's own errors, such as an unknown key, have tests in `file`.
#[test]
fn an_error_in_the_file_names_its_line_and_its_key() {
    for (text, said) in [
        ("\nfileCheckFrequency: soon\n", ":2: fileCheckFrequency: \"soon\" must be a number and a unit"),
        ("port: 65536\n", ":1: port: \"65536\" must be a whole number from 0 to 65535"),
        ("namespace: ''\n", ":1: namespace is empty"),
        ("# x\nallowedClientNames: [a, '']\n", ":2: allowedClientNames is empty"),
        ("authentication:\n  x509:\n    clientCAFile: ''\n", ":3: authentication.x509.clientCAFile is empty"),
        ("serveResources: [pods]\n", ":1: serveResources: \"pods\" must be nodes or namespaces or owners"),
        ("nodeName: A_B\n", ":1: nodeName \"A_B\" "),
        ("\npodSelector: a=b=c\n", ":2: podSelector \"a=b=c\": "),
        ("checkpointAllPods: true\n", ":1: checkpointAllPods needs checkpointDir"),
        (
            "authorization: {mode: Webhook}\n",
            ":1: authorization.mode needs authentication.x509.clientCAFile or ",
        ),
        ("address: 0.0.0.0\n", ":1: address 0.0.0.0: anyone"),
        ("staticPodURLHeader: {A: []}\nstaticPodURLHeader: {B: []}\n", ":2:"),
    ] {
        let file = File::new("wrong", text);
        let failure = given(&["--api-server", &file.flag()]).resolve().unwrap_err();
        let expected = format!("{}{said}", file.0.display());
        assert!(failure.message().unwrap().starts_with(&expected), "{text}: {failure:?}");
    }
    let file = File::new("sources", "port: 1\n");
    let failure = given(&[&file.flag()]).resolve().unwrap_err();
    let expected = format!(
        "{}: no pods to read: set staticPodPath, staticPodURL, kubelet, kubeletSocket, kubeconfig or apiServer",
        file.0.display()
    );
    assert_eq!(failure.message(), Some(&*expected));
    let file = File::new("both", "manageMirrorPods: true\nstaticPodPath: /x\n");
    let failure = resolved(&[&file.flag(), "--namespace=web"]).unwrap_err();
    let message = failure.message().unwrap();
    assert!(message.ends_with("yaml:1: manageMirrorPods cannot be used with --namespace"), "{message}");
}

/// The component `client-reviews` with the kubelet's socket alone.
#[test]
fn who_lets_the_api_server_decide_about_clients_needs_one_and_is_told_why() {
    let tls = ["--kubelet-socket=/s", "--tls-cert-file=/c", "--tls-private-key-file=/k"];
    for more in ["--authentication-token-webhook", "--authorization-mode=Webhook"] {
        let certificates = ["--client-ca-file=/a", more];
        let failure = given(&[&tls[..], &certificates].concat()).resolve().unwrap_err();
        let message = failure.message().unwrap();
        assert!(message.contains(" needs --kubeconfig or --api-server: the API server decides"), "{message}");
    }
}

#[test]
fn a_flag_is_named_as_it_was_spelled() {
    for flag in ["--node-name", "--hostname-override"] {
        let failure = given(&["--api-server", flag, "A_B"]).resolve().unwrap_err();
        assert!(failure.message().unwrap().starts_with(&format!("{flag} \"A_B\" ")), "{failure:?}");
    }
}

/// `settings!` makes all of them alike, so that a setting needs no test of its own for its flag, variable and key.
#[test]
fn every_setting_has_a_flag_and_a_key_of_its_own() {
    let mut keys = BTreeSet::new();
    let command = command();
    for definition in all_definitions() {
        assert!(!definition.keys().is_empty(), "{}", definition.flag);
        for key in definition.keys() {
            assert!(keys.insert(key), "{} has another's key", definition.flag);
        }
        assert!(command.get_arguments().any(|argument| argument.get_long() == Some(definition.flag)));
    }
}

/// As the component of `deploy/kubernetes` has them, which sets the variable.
#[test]
fn the_resources_to_serve_are_the_same_by_flag_variable_and_file_and_the_component_grants_their_rights() {
    let yaml = |text| serde_saphyr::from_str::<Value>(text).unwrap();
    let daemonset = yaml(include_str!("../../../deploy/kubernetes/components/resources/daemonset.yaml"));
    let variable = &daemonset["spec"]["template"]["spec"]["containers"][0]["env"][0];
    let flag = "serve-resources";
    assert_eq!(variable["name"], define::variable(flag));
    let text = variable["value"].as_str().unwrap();
    let by_variable = <Vec<Extra> as define::Value>::from_texts(&written::separated(text.as_ref())).unwrap();
    assert_eq!(by_variable, Extra::all().collect::<Vec<_>>(), "the component serves everything");
    let by_flag = resolved(&[&format!("--{flag}={text}")]).unwrap();
    assert_eq!(by_flag.effective.pod_api.serve_resources, by_variable);
    let file = File::new("resources", &format!("serveResources: [{text}]\n"));
    let by_file = resolved(&[&file.flag()]).unwrap();
    assert_eq!(by_file.effective.pod_api.serve_resources, by_variable);

    let rbac = include_str!("../../../deploy/kubernetes/components/resources/rbac.yaml");
    let role = yaml(rbac.split("\n---\n").next().unwrap());
    let list = |rule: &Value, of: &str| -> Vec<String> {
        rule[of].as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect()
    };
    let mut granted = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        for group in list(rule, "apiGroups") {
            for resource in list(rule, "resources") {
                granted.extend(
                    list(rule, "verbs").into_iter().map(|verb| [group.clone(), resource.clone(), verb]),
                );
            }
        }
    }
    let needed = Extra::all().flat_map(|extra| {
        let of_resource = move |(group, resource): &(&str, &str)| {
            let group = (*group).to_owned();
            let resource = (*resource).to_owned();
            extra.verbs().iter().map(move |verb| [group.clone(), resource.clone(), (*verb).to_owned()])
        };
        extra.resources().iter().flat_map(of_resource)
    });
    assert_eq!(granted, needed.collect::<BTreeSet<_>>());
}
