//! `pod-index doctor` on setups that work, and on broken ones.

use std::process::Output;

use serde_json::{Value, json};

use crate::api::{kubeconfig, kubeconfig_with, pod};
use crate::api_server::{ApiServer, Right, shipped};
use crate::restart::without_file_events;
use crate::support::{Agent, Directory, manifest, node_1, refused, run, stderr, stdout};
use crate::tls::Pki;

/// Nothing listens there, and no test gets this port.
const NOWHERE: &str = "127.0.0.1:1";

/// The findings of doctor with these flags, and its exit code.
fn report(args: &str) -> (Vec<Value>, Option<i32>) {
    parsed(&run(&with_nothing_else(args)))
}

/// On a machine where no agent runs, unless `args` name one.
fn with_nothing_else(args: &str) -> String {
    let port = if args.contains("--port") { "" } else { " --port 1" };
    format!("doctor -o json {args}{port}")
}

fn parsed(output: &Output) -> (Vec<Value>, Option<i32>) {
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {}", stdout(output), stderr(output)));
    let checks = report["checks"].as_array().unwrap().clone();
    let worst = if checks.iter().any(|finding| finding["result"] == "failure") {
        ("failure", 2)
    } else if checks.iter().any(|finding| finding["result"] == "warning") {
        ("warning", 1)
    } else {
        ("ok", 0)
    };
    assert_eq!((report["result"].as_str().unwrap(), output.status.code()), (worst.0, Some(worst.1)));
    for finding in &checks {
        let is_bad = ["warning", "failure"].contains(&finding["result"].as_str().unwrap());
        assert_eq!(finding["fix"].is_string(), is_bad, "what is wrong has a fix: {finding}");
    }
    (checks, output.status.code())
}

/// The findings that are neither ok nor skipped: check, result, message.
fn wrong(findings: &[Value]) -> Vec<(&str, &str, &str)> {
    findings
        .iter()
        .filter(|finding| finding.get("fix").is_some())
        .map(|finding| {
            let text = |name: &str| finding[name].as_str().unwrap();
            (text("check"), text("result"), text("message"))
        })
        .collect()
}

fn of<'a>(findings: &'a [Value], check: &str) -> Vec<&'a Value> {
    findings.iter().filter(|finding| finding["check"] == check).collect()
}

/// The message and the fix of the only finding of this check, which has this result.
#[track_caller]
fn only<'a>(findings: &'a [Value], check: &str, result: &str) -> [&'a str; 2] {
    let [finding] = of(findings, check)[..] else { panic!("{findings:#?}") };
    assert_eq!(finding["result"], result, "{finding}");
    ["message", "fix"].map(|part| finding[part].as_str().unwrap())
}

/// A node with one static pod, its mirror pod and another pod, and the agent's flags.
async fn node() -> (ApiServer, Directory, String) {
    let server = ApiServer::start().await;
    let directory = Directory::new();
    directory.write("web.yaml", &manifest("web"));
    server.put("pods", &pod("other", "node-1", &json!({})));
    let kubeconfig = kubeconfig(&directory, &server);
    let flags = format!("{} --kubeconfig {kubeconfig}", node_1(&directory.0));
    (server, directory, flags)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_working_setup_every_check_reports_what_it_found() {
    let (server, _directory, flags) = node().await;
    server.grant(shipped("pod-index", &["base"]));
    let agent = Agent::start(&flags).ready();
    let uid = agent.get("/pods/default/web-node-1").json::<Value>()["metadata"]["uid"].clone();
    let mirror = crate::api::mirror("web-node-1", uid.as_str().unwrap());
    server.put("pods", &mirror);
    agent.until("/mirrors", |answer| answer.body.contains("mirrorUID"));
    let flags = format!("{flags} --port {}", agent.port());
    let (findings, code) = report(&flags);
    assert_eq!((wrong(&findings), code), (vec![], Some(0)));
    for (check, words) in [
        ("settings", "hostnameOverride: node-1; "),
        ("manifests", ": 1 pods"),
        ("rights", "test may list pods, watch pods"),
        ("API server", "lists and watches pods"),
        ("agent", "for the node \"node-1\""),
        ("sources", "pods, last heard"),
        ("static pods", "1 static pods, 1 of them with a mirror pod"),
    ] {
        let said = of(&findings, check);
        assert!(
            said.iter().any(|finding| finding["message"].as_str().unwrap().contains(words)),
            "{check}: {said:?}"
        );
    }
    assert_eq!(of(&findings, "sources").len(), 2, "one for each source");

    // As a table.
    let output = run(&format!("doctor {flags}"));
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).starts_with("RESULT   CHECK"), "{}", stdout(&output));
}

/// Answers each path with a text, until the test ends.
fn serve(answer: impl Fn(&str) -> String + Send + 'static) -> String {
    crate::support::serve(move |head| ("200 OK", answer(head.split(' ').nth(1).unwrap_or_default())))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_token_is_a_failure_and_no_output_has_the_token() {
    let server = ApiServer::start().await;
    server.demand_token("the-right-one");
    let directory = Directory::new();
    let cluster = json!({ "server": server.url() });
    let kubeconfig = kubeconfig_with(&directory, &cluster, &json!({ "token": "the-wrong-one" }));
    let output = run(&with_nothing_else(&format!("--kubeconfig {kubeconfig}")));
    assert!(!format!("{}{}", stdout(&output), stderr(&output)).contains("the-wrong-one"));
    let (findings, code) = parsed(&output);
    assert_eq!(code, Some(2));
    let [message, fix] = only(&findings, "API server", "failure");
    assert!(message.contains("Unauthorized") && fix.contains("renew the token"), "{message} {fix}");
    let rights = of(&findings, "rights");
    assert!(rights.len() == 1 && rights[0]["result"] == "skipped", "{rights:?}");
}

#[test]
fn an_api_server_that_does_not_answer_is_named_by_its_address_alone() {
    let directory = Directory::new();
    let cluster = json!({ "server": format!("http://{NOWHERE}/a/path") });
    let kubeconfig = kubeconfig_with(&directory, &cluster, &json!({ "token": "hunter2" }));
    let (findings, code) = report(&format!("--kubeconfig {kubeconfig}"));
    assert_eq!(code, Some(2));
    let [message, _] = only(&findings, "API server", "failure");
    assert!(message.starts_with(&format!("http://{NOWHERE}: ")), "{message}");
    assert!(message.contains("Connection refused"), "{message}");

    let (findings, code) = report(&format!("--manifest-url http://{NOWHERE}/"));
    let [message, _] = only(&findings, "URL", "failure");
    assert!(code == Some(2) && message.contains("Connection refused"), "{message}");
}

/// A proxy, or a login page.
#[test]
fn what_is_no_api_server_is_reported_in_a_few_words_that_cannot_control_the_terminal() {
    let page = format!("<html>\n\u{1b}]0;title\u{7}{}", "x".repeat(100_000));
    let address = crate::support::serve(move |_| ("503 Service Unavailable", page.clone()));
    let directory = Directory::new();
    let kubeconfig = kubeconfig_with(
        &directory,
        &json!({ "server": format!("http://{address}") }),
        &json!({ "token": "hunter2" }),
    );
    let (findings, code) = report(&format!("--kubeconfig {kubeconfig}"));
    assert_eq!(code, Some(2));
    let [message, _] = only(&findings, "API server", "failure");
    assert!(message.ends_with("the API server answers 503"), "{message}");
    let rights = of(&findings, "rights")[0]["message"].as_str().unwrap();
    assert!(rights.contains(r#"the API server answers 503: "<html>\n\u{1b}]0;"#), "{rights}");
    assert!(rights.len() < 400 && !rights.contains(char::is_control), "{rights}");
}

#[test]
fn an_agent_with_tls_cannot_be_asked_without_its_authority() {
    let (pki, directory) = (Pki::new(), Directory::new());
    let args = format!("{} {}", node_1(&directory.0), pki.flags());
    let agent = Agent::start(&args);
    let (findings, _) = report(&format!("{args} --port {}", agent.port()));
    let [_, fix] = only(&findings, "agent", "warning");
    assert!(fix.ends_with("signed the agent's certificate: --certificate-authority FILE"), "{fix}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_right_is_named_with_the_manifest_that_grants_it_and_is_not_tried() {
    let (server, _directory, flags) = node().await;
    let mut granted = shipped("pod-index", &["base"]);
    granted.retain(|right: &Right| right.verb != "watch");
    server.grant(granted);
    let (findings, code) = report(&flags);
    assert_eq!(code, Some(2));
    let failed: Vec<_> = wrong(&findings).into_iter().filter(|finding| finding.1 == "failure").collect();
    assert_eq!(failed, [("rights", "failure", "test may not watch pods")]);
    let fix = of(&findings, "rights").iter().find_map(|finding| finding["fix"].as_str()).unwrap().to_owned();
    assert!(fix.contains("deploy/kubernetes/base/rbac.yaml"), "{fix}");
    // At its end, the server fails the test if it refused a request.
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_right_of_every_setting_is_reviewed_and_the_shipped_ones_are_enough() {
    let (server, _directory, flags) = node().await;
    let args = format!("{flags} --manage-mirror-pods");
    server.grant(std::collections::BTreeSet::new());
    let (findings, _) = report(&args);
    let mut missing: Vec<_> = wrong(&findings)
        .into_iter()
        .filter(|finding| finding.0 == "rights")
        .map(|finding| finding.2)
        .collect();
    missing.sort_unstable();
    assert_eq!(
        missing,
        [
            "test may not create pods",
            "test may not delete pods",
            "test may not get leases.coordination.k8s.io \"node-1\" in the namespace \"kube-node-lease\"",
            "test may not get nodes \"node-1\"",
            "test may not get pods",
            "test may not list pods",
            "test may not watch pods",
        ]
    );
    server.grant(shipped("pod-index-mirrors", &["base", "components/mirror-pods"]));
    let (findings, _) = report(&args);
    assert!(!wrong(&findings).iter().any(|finding| finding.0 == "rights"), "{findings:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_manifest_folder_is_a_failure_and_an_unusable_manifest_a_warning() {
    let directory = Directory::new();
    let absent = directory.0.join("absent").display().to_string();
    let (findings, code) = report(&format!("--pod-manifest-path {absent}"));
    let message =
        format!("--pod-manifest-path: {absent}: does not exist; the agent would run without its pods");
    assert_eq!(code, Some(2));
    assert!(wrong(&findings).contains(&("manifests", "failure", &message)), "{findings:#?}");

    directory.write("bad.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: {containers: []}\n");
    let (findings, code) = report(&node_1(&directory.0));
    let found = wrong(&findings).into_iter().find(|finding| finding.0 == "manifests").unwrap();
    assert_eq!((found.1, code), ("warning", Some(1)));
    assert!(found.2.contains("bad.yaml: spec.containers: "), "{found:?}");
}

#[test]
fn without_an_agent_the_checks_that_need_one_are_skipped() {
    let directory = Directory::new();
    let (findings, code) = report(&node_1(&directory.0));
    assert_eq!(code, Some(1));
    let [(check, result, message)] = wrong(&findings)[..] else { panic!("{findings:#?}") };
    assert_eq!((check, result), ("agent", "warning"));
    assert!(message.starts_with("no agent answers on 127.0.0.1:"), "{message}");
    for check in ["sources", "static pods"] {
        assert!(
            of(&findings, check).iter().all(|finding| finding["result"] == "skipped"),
            "{check}: {findings:#?}"
        );
    }
}

#[test]
fn without_inotify_watches_file_events_are_a_warning() {
    let directory = Directory::new();
    let args = with_nothing_else(&node_1(&directory.0));
    let Some(mut command) = without_file_events(&args) else { return };
    let (findings, code) = parsed(&command.output().unwrap());
    let [message, fix] = only(&findings, "file events", "warning");
    assert!(code == Some(1) && message.starts_with("no file events"), "{message}");
    assert!(fix.contains("fs.inotify.max_user_watches"), "{fix}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_has_been_silent_is_a_failure() {
    let (_server, _directory, flags) = node().await;
    let agent = Agent::start(&flags).ready();
    // The agent's own answers, six minutes after the API server fell silent.
    let mut sources: Value = agent.get("/sources").json();
    for source in sources["sources"].as_array_mut().unwrap() {
        if source["source"] == "api" {
            source["secondsSinceHeard"] = json!(360);
        }
    }
    let mirrors = agent.get("/mirrors").body;
    let stale = serve(move |path| if path == "/sources" { sources.to_string() } else { mirrors.clone() });
    let port = stale.rsplit(':').next().unwrap();
    let (findings, code) = report(&format!("{flags} --port {port}"));
    assert_eq!(code, Some(2));
    let failed: Vec<_> = wrong(&findings).into_iter().filter(|finding| finding.1 == "failure").collect();
    let [("sources", _, message)] = failed[..] else { panic!("{findings:#?}") };
    assert!(message.starts_with("api (") && message.ends_with("1 pods, last heard 360 s ago"), "{message}");
}

#[test]
fn a_kubelets_pod_that_cannot_be_decoded_is_named_and_the_others_are_served() {
    let of_kubelet = |name: &str, image: Value| {
        json!({
            "metadata": { "namespace": "shop", "name": name, "uid": format!("uid-{name}") },
            "spec": { "containers": [{ "name": "c", "image": image }] },
        })
    };
    let pods = [of_kubelet("bad", json!(["hunter2"])), of_kubelet("good", json!("i"))];
    let list = json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods }).to_string();
    let args = format!("--kubelet http://{} --node-name node-1", serve(move |_| list.clone()));
    let problem = "shop/bad: spec.containers[0].image: cannot be decoded: expected a string";

    let (findings, _) = report(&args);
    let [message, _] = only(&findings, "kubelet's pods", "warning");
    assert!(message.contains(problem), "{message}");

    let agent = Agent::start(&args).ready();
    let body = agent.get("/pods").body;
    assert!(body.contains("uid-good") && !body.contains("uid-bad"), "{body}");
    assert!(agent.get("/sources").body.contains("expected a string"));
}

#[test]
fn a_running_agent_is_examined_without_its_settings() {
    let agent = Agent::on(&crate::support::shipped());
    let (findings, code) = report(&format!("--port {}", agent.port()));
    assert_eq!((wrong(&findings), code), (vec![], Some(0)));
    assert_eq!(of(&findings, "settings")[0]["result"], "skipped");
    assert_eq!(of(&findings, "agent")[0]["result"], "ok");

    // The file's socket is asked, unless a flag names a port.
    let directory = Directory::new();
    let config = directory.0.join("config.yaml");
    directory.write("config.yaml", "staticPodPath: .\nhostnameOverride: node-1\nsocket: none.sock\n");
    let output = run(&format!("doctor --config {}", config.display()));
    let place = format!("none.sock ({}:3: socket)", config.display());
    assert!(stdout(&output).contains(&place), "{}", stdout(&output));
    let (findings, _) = report(&format!("--config {} --port {}", config.display(), agent.port()));
    assert_eq!(of(&findings, "agent")[0]["result"], "ok", "{findings:#?}");

    // A file has the settings of an agent, which does not start with these.
    directory.write("config.yaml", "hostnameOverride: n\n");
    let args = format!("--config {} --port {}", config.display(), agent.port());
    let (findings, code) = report(&args);
    assert_eq!(code, Some(2));
    assert!(wrong(&findings)[0].2.contains("config.yaml: no pods to read: "), "{findings:#?}");
}

#[test]
fn invalid_settings_are_reported() {
    let (findings, code) = report("");
    assert_eq!(code, Some(2));
    let failed = wrong(&findings);
    assert!(failed.iter().any(|(check, result, message)| {
        (*check, *result) == ("settings", "failure") && message.starts_with("no pods to read")
    }));
    let directory = Directory::new();
    refused(&format!("doctor --once {}", node_1(&directory.0)), 2, "without --once");
}
