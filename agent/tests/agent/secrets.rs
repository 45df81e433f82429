//! Files with tokens, keys and passwords: errors are reported without the content.

use std::os::unix::fs::PermissionsExt;

use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};

use crate::api::{kubeconfig, kubeconfig_with};
use crate::api_server::ApiServer;
use crate::support::{Agent, Directory, node_1, refused, run, stderr, stdout};

const CANARY: &str = "hunter2-canary";

/// The check's output for this kubeconfig, and its exit code.
fn checked(directory: &Directory, kubeconfig: &str) -> (Option<i32>, String) {
    directory.write("kubeconfig", kubeconfig);
    let path = directory.0.join("kubeconfig");
    let output = run(&format!("--kubeconfig {} --node-name n --check", path.display()));
    let said = stdout(&output).to_owned() + stderr(&output);
    assert!(!said.contains(CANARY), "{said}");
    (output.status.code(), said)
}

/// A kubeconfig whose context names `user`, and which defines the user `me` with these settings.
fn config(user: &str, me: &Value) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{ "name": "c", "cluster": { "server": "https://127.0.0.1:1" } }],
        "users": [{ "name": "me", "user": me }],
        "contexts": [{ "name": "here", "context": { "cluster": "c", "user": user } }],
    })
    .to_string()
}

#[test]
fn a_kubeconfig_that_is_not_yaml_is_named_with_the_line_and_never_quoted() {
    let directory = Directory::new();
    let head = "apiVersion: v1\nkind: Config\nusers:\n- name: me\n  user:\n";
    for (rest, line) in [
        (format!("    token: {CANARY}\n    client-key-data: [\n"), ""),
        (format!("    token: {CANARY}\n   x: y\n"), ""),
        (format!("    token: {CANARY}: x\n"), ":6:"),
        (format!("    token: [{CANARY}]\n"), ":6:"),
        (format!("    exec: {CANARY}\n"), ":6:"),
        (format!("contexts: {CANARY}\n"), ":6:"),
        (format!("    {CANARY}\n"), ""),
    ] {
        let (code, said) = checked(&directory, &format!("{head}{rest}"));
        assert_eq!(code, Some(2), "{rest}: {said}");
        assert!(
            said.contains(&format!("kubeconfig{line}")) && said.contains("is not a kubeconfig"),
            "{rest}: {said}"
        );
    }
}

#[test]
fn a_context_with_an_unknown_user_is_refused() {
    let directory = Directory::new();
    let (code, said) = checked(&directory, &config("you", &json!({ "token": CANARY })));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains(r#"the context "here" names the user "you""#), "{said}");
    let (code, said) = checked(&directory, &config("me", &json!({ "token": CANARY })));
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_failing_credential_plugin_is_reported_with_its_exit_code_and_message() {
    let directory = Directory::new();
    for (script, words) in [
        (
            format!("echo {CANARY}; echo 'no such account' >&2; exit 3"),
            &["plugin ended with exit code 3: no such account"][..],
        ),
        (format!("echo {CANARY}; exit 1"), &["exit code 1: nothing on standard error"]),
        (format!("echo '{{\"status\": {CANARY}'"), &["the credential plugin's answer cannot be decoded"]),
        ("kill -9 $$".to_owned(), &["plugin ended with signal"]),
    ] {
        let exec = plugin(&directory, &script);
        let (code, said) = checked(&directory, &config("me", &exec));
        assert_eq!(code, Some(2), "{said}");
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
        assert!(!said.contains("Output {"), "{said}");
    }
}

/// The user of a kubeconfig with a credential plugin that runs `script`.
pub fn plugin(directory: &Directory, script: &str) -> Value {
    let plugin = directory.0.join(".plugin");
    std::fs::write(&plugin, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o755)).unwrap();
    json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": plugin, "interactiveMode": "Never",
    } })
}

/// Its environment, arguments and standard output may hold secrets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_plugin_that_fails_later_is_logged_without_its_secrets() {
    let (directory, server) = (Directory::new(), ApiServer::start().await);
    server.demand_token("new");
    let script = "if [ -e \"$0.fails\" ]; then echo \"$2\"; echo 'no such account' >&2; exit 3; fi
        echo '{\"apiVersion\": \"client.authentication.k8s.io/v1\", \"kind\": \"ExecCredential\", \"status\": {\"token\": \"old\"}}'";
    let mut me = plugin(&directory, script);
    me["exec"]["args"] = json!(["--client-secret", CANARY]);
    me["exec"]["env"] = json!([{ "name": "SECRET", "value": CANARY }]);
    let path = kubeconfig_with(&directory, &json!({ "server": server.url() }), &me);
    let mut agent = Agent::start(&["--kubeconfig", &path, "--hostname-override", "node-1"]);
    agent.until("/readyz", |answer| answer.body.contains("Unauthorized"));
    directory.write(".plugin.fails", "");
    let line = agent.wait_for_log("credentials cannot be renewed");
    assert!(line.contains("exit code 3: no such account"), "{line}");
    agent.signal("TERM");
    agent.wait();
    let log = agent.whole_log();
    assert!(!log.iter().any(|line| line.contains(CANARY)), "{log:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_client_certificate_is_reported_with_its_date() {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "system:node:node-1");
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2024, 2, 29);
    let certificate = params.self_signed(&key).unwrap().pem();
    let directory = Directory::new();
    directory.write("me.crt", &certificate);
    directory.write("me.key", &key.serialize_pem());

    let server = ApiServer::start().await;
    server.demand_token("of somebody else");
    let me = json!({ "client-certificate": "me.crt", "client-key": "me.key" });
    let path = kubeconfig_with(&directory, &json!({ "server": server.url() }), &me);
    let agent = Agent::start(&["--kubeconfig", &path, "--hostname-override", "node-1"]);
    let why = "the client certificate of the kubeconfig expired at 2024-02-29T00:00:00Z";
    agent.until("/readyz", |answer| answer.body.contains(why));
    refused(&["--kubeconfig", &path, "--hostname-override", "node-1", "--check"], 1, why);

    // A valid certificate from an unknown authority is not reported as expired.
    let path = kubeconfig(&directory, &server);
    let agent = Agent::start(&["--kubeconfig", &path, "--hostname-override", "node-1"]);
    let answer = agent.until("/readyz", |answer| answer.body.contains("Unauthorized"));
    assert!(!answer.body.contains("expired"), "{}", answer.body);
}

#[test]
fn no_other_file_is_quoted_either() {
    let directory = Directory::new();
    let manifests = Directory::new();
    let at = |name: &str| directory.0.join(name).display().to_string();
    let env = format!("env: [{{name: PASSWORD, value: [{CANARY}]}}]");
    manifests.write("pod.yaml", &format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec:\n  containers:\n  - name: c\n    image: i\n    {env}\n"
    ));
    manifests.write("time.yaml", &format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec:\n  containers: [{{name: c, image: i}}]\nstatus: {{startTime: {CANARY}}}\n"
    ));
    let url = "staticPodURL: http://localhost:1/\nstaticPodURLHeader: ";
    for (name, text) in [
        ("header.yaml", format!("{url}{{Token: {CANARY}}}\n")),
        ("list.yaml", format!("{url}{CANARY}\n")),
        ("broken.yaml", format!("{url}{{Token: [\"{CANARY}\n")),
        ("key.pem", format!("-----BEGIN {CANARY}\nAAAA\n")),
        ("base64.pem", format!("-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----\n")),
    ] {
        directory.write(name, &text);
    }
    let manifests = node_1(&manifests.0);
    let with_tls =
        |file: &str| format!("--check {manifests} --tls-cert-file {0} --tls-private-key-file {0}", at(file));
    let with_ca = format!("--check --manifest-url https://localhost:1/ --manifest-url-ca {}", at("key.pem"));
    for (args, code, word) in [
        (format!("--once {manifests}"), 1, "pod.yaml"),
        (format!("--check --config {}", at("header.yaml")), 2, "header.yaml:2: "),
        (format!("--check --config {}", at("list.yaml")), 2, "list.yaml:2: "),
        (format!("--check --config {}", at("broken.yaml")), 2, "broken.yaml:"),
        (with_tls("key.pem"), 2, "key.pem"),
        (with_tls("base64.pem"), 2, "base64.pem"),
        (with_ca, 2, "key.pem"),
    ] {
        let output = run(&args);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(word), "{args:?}: {said}");
        let in_bytes = format!("{:?}", CANARY.as_bytes());
        let in_bytes = in_bytes.trim_matches(['[', ']']);
        assert!(!said.contains(CANARY) && !said.contains(in_bytes), "{args:?}: {said}");
    }
}
