//! The configuration file, the environment and the command line; and the URL as a source.

use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;
use serde_json::Value;

use crate::api_server::{ApiServer, Verb};
use crate::support::{
    Agent, Directory, PATIENCE, binary, manifest, node_1, refused, run, run_within, serve, shipped, stderr,
    stdout, succeeded,
};

#[test]
fn the_command_line_overrides_the_environment_which_overrides_the_file() {
    let directory = Directory::new();
    let path = directory.0.join("config.yaml");
    std::fs::write(&path, "staticPodPath: manifests\nhostnameOverride: by-file\nfileCheckFrequency: 1m\n")
        .unwrap();
    std::fs::create_dir(directory.0.join("manifests")).unwrap();
    let config = path.to_str().unwrap();
    let node = |environment: Option<&str>, args: &[&str]| {
        let mut command = binary(&[&["--check", "--config", config], args].concat());
        command.envs(environment.map(|name| ("POD_INDEX_HOSTNAME_OVERRIDE", name)));
        let output = succeeded(command.output().unwrap());
        let line =
            stdout(&output).lines().find(|line| line.starts_with("hostnameOverride")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    assert_eq!(node(None, &[]), "by-file");
    assert_eq!(node(Some("by-environment"), &[]), "by-environment");
    assert_eq!(node(Some("by-environment"), &["--hostname-override", "by-flag"]), "by-flag");

    // As in the kubelet, a relative path is relative to the file.
    let output = run(&["--check", "--config", config]);
    let said = stdout(&output);
    let path = directory.0.join("manifests").display().to_string();
    assert!(said.contains(&path) && said.contains("fileCheckFrequency  1m"), "{said}");
}

/// The tests of the module have more wrong keys and values.
#[test]
fn a_bad_configuration_is_exit_code_2_and_names_the_place() {
    let directory = Directory::new();
    let path = directory.0.join("config.yaml");
    let config = path.to_str().unwrap();
    for (text, why) in [
        ("staticPodPath: /x\nstaticPodPaht: /y\n", "config.yaml:2: staticPodPaht"),
        (
            "staticPodPath: /x\nfileCheckFrequency: soon\n",
            "for '--file-check-frequency <DURATION>': must be a number",
        ),
        ("staticPodPath: [/x\n", "config.yaml:"),
        ("staticPodURL: ftp://example.org\n", "--manifest-url (staticPodURL) \"ftp://example.org\": "),
        ("staticPodURL: http://e.org\nstaticPodURLHeader: {a b: [c]}\n", "a b"),
        ("staticPodPath: /x\nkubeconfig: ''\n", "config.yaml:2: kubeconfig is empty"),
    ] {
        std::fs::write(&path, text).unwrap();
        refused(&["--check", "--config", config], 2, why);
    }
    refused(&["--once", "--config", config], 2, "kubeconfig is empty");
    refused(&["--check", "--config", "/nonexistent/config.yaml"], 2, "/nonexistent/config.yaml");
    for flag in ["--hostname-override", "--kubeconfig", "--kubelet-ca"] {
        refused(&["--check", "--pod-manifest-path", "/x", flag, ""], 2, flag);
    }
}

#[test]
fn a_check_reports_whether_the_named_files_exist() {
    let directory = Directory::new();
    directory.write("web.yaml", &manifest("web"));
    let at = |name: &str| directory.0.join(name).display().to_string();
    let manifests = directory.0.display().to_string();
    for (path, code, word) in [
        (&*manifests, 0, "The configuration is valid."),
        (&at("web.yaml"), 0, "The configuration is valid."),
        (&at("nowhere"), 1, "nowhere: does not exist"),
    ] {
        checked(&format!("--pod-manifest-path {path}"), code, &[word]);
    }
    checked(&format!("--kubeconfig {}", at("kubeconfig")), 2, &["kubeconfig"]);

    // Checkpoint directories: existing, not yet created, blocked by a file, and impossible to create or to write to.
    std::fs::create_dir(directory.0.join("kept")).unwrap();
    for (path, code, words) in [
        (at("kept"), 0, &["The configuration is valid."][..]),
        (at("yet/to/be/made"), 0, &["The configuration is valid."]),
        (at("web.yaml"), 3, &["checkpointDir", "web.yaml: cannot be made", "Not a directory"]),
        (at("web.yaml/below"), 3, &["checkpointDir", "below: cannot be made", "Not a directory"]),
        ("/proc/here".to_owned(), 3, &["checkpointDir: /proc/here: cannot be made"]),
        ("/proc".to_owned(), 1, &["checkpointDir: /proc: cannot be written to", "without checkpoints"]),
    ] {
        checked(&format!("--pod-manifest-path {manifests} --checkpoint-dir {path}"), code, words);
    }
    assert_eq!(std::fs::read_dir(directory.0.join("kept")).unwrap().count(), 0, "it is left as it was");
    assert_eq!(std::fs::read_dir(&directory.0).unwrap().count(), 2, "nothing is made by asking");
}

fn checked(args: &str, code: i32, words: &[&str]) {
    let output = run(&format!("--check {args}"));
    assert_eq!(output.status.code(), Some(code), "{args:?}: {}", stderr(&output));
    let said = if code == 0 { stdout(&output) } else { stderr(&output) };
    assert!(words.iter().all(|word| said.contains(word)), "{args:?}: {said}");
    assert!(code == 0 || !stdout(&output).contains("The configuration is valid"), "{args:?}");
}

#[test]
fn unreadable_authorities_of_the_url_are_a_configuration_error() {
    let directory = Directory::new();
    let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    directory.write("ca.pem", &key.cert.pem());
    directory.write("junk.pem", "no certificate");
    directory.write("config.yaml", "staticPodURL: https://localhost/pods\nmanifestUrlCa: ca.pem\n");
    let at = |name: &str| directory.0.join(name).display().to_string();
    let output = run(&["--check", "--config", &at("config.yaml")]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for name in ["junk.pem", "nowhere.pem"] {
        refused(
            &format!("--check --manifest-url https://localhost/ --manifest-url-ca {}", at(name)),
            2,
            name,
        );
    }
}

#[test]
fn once_does_not_wait_for_ever_for_a_silent_url() {
    // Accepts connections through its backlog, but never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/pods", silent.local_addr().unwrap());
    let sources = format!("{} --manifest-url {url}", node_1(&shipped()));
    // Only the timeout ends it.
    let output = run_within(PATIENCE * 2, &format!("--once {sources}"));
    assert_eq!(output.status.code(), Some(3));
    let said = stderr(&output);
    assert!(said.contains("not all sources were read within 30s"), "{said}");
    assert!(said.contains(&format!("http ({url})")), "{said}");
    assert_eq!(stdout(&output), "", "an incomplete answer is not printed");
    assert!(!said.contains("file ("), "manifests that were read are not waited for: {said}");
}

/// A manifest server that answers with the cell's content and records the requests.
pub(crate) fn serve_manifests(body: Arc<Mutex<String>>, asked: Arc<Mutex<String>>) -> String {
    let address = serve(move |head| {
        head.clone_into(&mut asked.lock().unwrap());
        let body = body.lock().unwrap().clone();
        (if body.is_empty() { "500 Oh" } else { "200 OK" }, body)
    });
    format!("http://{address}/pods")
}

#[test]
fn files_and_a_url_fill_one_index_and_the_agent_is_ready_once_both_were_read() {
    let directory = Directory::new();
    directory.write("web.yaml", &manifest("from-file"));
    let (body, asked) = (Arc::new(Mutex::new(String::new())), Arc::new(Mutex::new(String::new())));
    let url = serve_manifests(Arc::clone(&body), Arc::clone(&asked));
    let agent = Agent::start(&format!(
        "--pod-manifest-path {} --manifest-url {url} --manifest-url-header X-Token:a:b,X-Node:n \
         --http-check-frequency 20ms --hostname-override node-1",
        directory.0.display()
    ));
    agent.has("/pods/default/from-file-node-1");
    let answer = agent.get("/readyz");
    assert_eq!(answer.code, 503);
    assert!(answer.body.contains("http") && answer.body.contains(&url), "{}", answer.body);
    assert!(!answer.body.contains("file"), "{}", answer.body);
    // The error names the reason.
    agent.until("/readyz", |answer| answer.body.contains("500"));

    *body.lock().unwrap() = manifest("from-url");
    agent.has("/readyz");
    let list: List<Pod> = agent.get("/pods").json();
    let mut sources: Vec<_> = list
        .items
        .iter()
        .map(|pod| (pod.name(), pod.annotation("kubernetes.io/config.source").unwrap()))
        .collect();
    sources.sort_unstable();
    assert_eq!(sources, [("from-file-node-1", "file"), ("from-url-node-1", "http")]);
    let head = asked.lock().unwrap().to_lowercase();
    assert!(head.contains("x-token: a:b") && head.contains("x-node: n"), "{head}");

    // A failing server removes no pods, and the failure is visible.
    body.lock().unwrap().clear();
    let failing = |answer: &crate::support::Answer| {
        let sources: Value = answer.json();
        !sources["sources"][1]["problems"].as_array().unwrap().is_empty()
    };
    agent.until("/sources", failing);
    assert_eq!(agent.get("/pods/default/from-url-node-1").code, 200);
    assert_eq!(agent.get("/readyz").code, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_asks_no_server_and_says_so() {
    let server = ApiServer::start().await;
    let directory = Directory::new();
    let kubeconfig = crate::api::kubeconfig(&directory, &server);
    for args in [format!("--kubeconfig {kubeconfig}"), "--manifest-url http://127.0.0.1:1/".to_owned()] {
        // Blocking, so outside this runtime.
        let output = succeeded(tokio::task::block_in_place(|| run(&format!("{args} --node-name n --check"))));
        let said = stdout(&output);
        assert!(said.contains("The configuration is valid."), "{said}");
        assert!(said.contains("No server was asked (use doctor)."), "{said}");
    }
    assert_eq!(server.requests(Verb::List), 0);
}
