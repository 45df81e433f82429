//! The configuration file, the environment and the command line; and the URL as a source.

use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;
use serde_json::Value;

use crate::api_server::{ApiServer, Verb};
use crate::support::{
    Agent, Answer, Directory, PATIENCE, binary, manifest, node_1, refused, run, run_within, serve, shipped,
    stderr, stdout, succeeded,
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

/// Where a setting was written, and the error about it, which names that place and no other way to set the same. The
/// tests of `config` have more wrong keys and values.
#[test]
fn a_bad_configuration_is_exit_code_2_and_names_the_place_that_the_user_wrote() {
    let directory = Directory::new();
    let path = directory.0.join("config.yaml");
    let config = path.to_str().unwrap();
    let begins = |output: &std::process::Output, why: &str| {
        let said = stderr(output);
        assert_eq!(output.status.code(), Some(2), "{why}: {said}");
        let line = said.lines().find(|line| line.starts_with("pod-index: ")).unwrap_or(said);
        assert!(line.starts_with(&format!("pod-index: {why}")), "{why}: {said}");
    };
    for (text, line, why) in [
        ("staticPodPath: /x\nstaticPodPaht: /y\n", 2, "staticPodPaht: there is no such key"),
        (
            "staticPodPath: /x\nfileCheckFrequency: soon\n",
            2,
            "fileCheckFrequency: \"soon\" must be a number and a unit",
        ),
        ("staticPodURL: ftp://example.org\n", 1, "staticPodURL \"ftp://example.org\": "),
        ("staticPodURL: http://e.org\nstaticPodURLHeader: {a b: [c]}\n", 2, "staticPodURLHeader: "),
        ("kubelet: ftp://e.org\n", 1, "kubelet \"ftp://e.org\": "),
        ("staticPodPath: /x\nkubeconfig: ''\n", 2, "kubeconfig is empty"),
        ("staticPodPath: /x\nnamespace: web\n", 2, "namespace needs kubeconfig or apiServer\n"),
        (
            "staticPodPath: /x\naddress: 0.0.0.0\n",
            2,
            "address 0.0.0.0: anyone who can reach it could read every pod; give tlsCertFile and tlsPrivateKeyFile \
             (and authentication.x509.clientCAFile), or allowRemoteClients to allow this",
        ),
        (
            "kubeletSocket: /x\ntlsCertFile: /c\ntlsPrivateKeyFile: /k\nauthentication: {webhook: {enabled: true}}\n",
            4,
            "authentication.webhook.enabled needs kubeconfig or apiServer: the API server decides",
        ),
    ] {
        std::fs::write(&path, text).unwrap();
        let said = format!("{config}:{line}: {why}");
        begins(&run(&["--check", "--config", config]), said.trim_end());
        assert!(!stderr(&run(&["--check", "--config", config])).contains("--"), "{why}: no flag was given");
    }
    std::fs::write(&path, "staticPodPath: [/x\n").unwrap();
    refused(&["--check", "--config", config], 2, "config.yaml:");
    std::fs::write(&path, "staticPodPath: /x\nkubeconfig: ''\n").unwrap();
    refused(&["--once", "--config", config], 2, "kubeconfig is empty");
    refused(&["--check", "--config", "/nonexistent/config.yaml"], 2, "/nonexistent/config.yaml");

    for (variable, text, why) in [
        ("FILE_CHECK_FREQUENCY", "soon", ": \"soon\" must be a number and a unit"),
        ("NAMESPACE", "web", " needs POD_INDEX_KUBECONFIG or POD_INDEX_API_SERVER"),
        ("KUBECONFIG", "", " is empty"),
        ("NODE_NAME", "n", ""),
        ("HOSTNAME_OVERRIDE", "A_B", " \"A_B\" "),
        ("MANIFEST_URL", "ftp://e.org", " \"ftp://e.org\": "),
        ("MANIFEST_URL_HEADER", "secret", ": must be a name, a colon and a value"),
        ("ALLOW_REMOTE_CLIENTS", "perhaps", ": \"perhaps\" must be true or false"),
        (
            "ADDRESS",
            "0.0.0.0",
            " 0.0.0.0: anyone who can reach it could read every pod; give POD_INDEX_TLS_CERT_FILE and ",
        ),
        ("CERTIFICATE_AUTHORITY", "/a", " is for client commands; to serve, use POD_INDEX_TLS_CERT_FILE, "),
    ] {
        let variable = format!("POD_INDEX_{variable}");
        let mut command = binary(&["--check", "--pod-manifest-path", "/x"]);
        let output = command.env(&variable, text).output().unwrap();
        if why.is_empty() {
            assert_eq!(
                output.status.code(),
                Some(1),
                "an alias of a flag has no variable: {}",
                stderr(&output)
            );
        } else {
            begins(&output, &format!("{variable}{why}"));
        }
    }

    // The kubeconfig's own name does not say where it was named.
    std::fs::write(&path, "staticPodPath: /x\nkubeconfig: /nowhere\n").unwrap();
    begins(
        &run(&["--check", "--config", config]),
        &format!("{config}:2: kubeconfig: /nowhere: cannot be read"),
    );
    begins(&run("--check --kubeconfig /nowhere"), "--kubeconfig: /nowhere: cannot be read");
    let output = binary("--check").env("POD_INDEX_KUBECONFIG", "/nowhere").output().unwrap();
    begins(&output, "POD_INDEX_KUBECONFIG: /nowhere: cannot be read");
    let output = binary("--check --api-server").env("HOME", "/nowhere").env_remove("KUBECONFIG").output();
    begins(&output.unwrap(), "--api-server: kubeconfig: there is no kubeconfig");

    for (flags, why) in [
        (&["--namespace", "web"][..], "--namespace needs --kubeconfig or --api-server"),
        (&["--node-name", "A_B"], "--node-name \"A_B\" "),
        (&["--static-pod-url", "ftp://e.org"], "--static-pod-url \"ftp://e.org\": "),
        (&["--address", "0.0.0.0"], "--address 0.0.0.0: anyone"),
    ] {
        begins(&run(&[&["--check", "--pod-manifest-path", "/x"], flags].concat()), why);
    }
    for flag in ["--hostname-override", "--kubeconfig", "--kubelet-ca"] {
        refused(&["--check", "--pod-manifest-path", "/x", flag, ""], 2, flag);
    }
}

#[test]
fn a_variable_without_a_setting_is_reported_by_the_check_and_in_the_log() {
    let why = "POD_INDEX_PROT is ignored: there is no such setting; did you mean POD_INDEX_PORT?";
    let manifests = shipped();
    let output = |args: String| succeeded(binary(&*args).env("POD_INDEX_PROT", "1").output().unwrap());
    let check = output(format!("--check {}", node_1(&manifests)));
    assert!(stdout(&check).contains(&format!("\n{why}\n")), "{}", stdout(&check));
    let once = output(format!("--once {}", node_1(&manifests)));
    assert!(stderr(&once).contains(why), "{}", stderr(&once));
}

#[test]
fn a_flag_turns_off_what_a_variable_or_the_file_turns_on() {
    let directory = Directory::new();
    directory.write("config.yaml", "staticPodPath: .\nredactEnv: true\n");
    let config = directory.0.join("config.yaml").display().to_string();
    let is_on = |variable: Option<&str>, flags: &[&str]| {
        let mut command = binary(&[&["--check", "--config", &config], flags].concat());
        command.envs(variable.map(|text| ("POD_INDEX_REDACT_ENV", text)));
        let output = succeeded(command.output().unwrap());
        stdout(&output).lines().any(|line| line.starts_with("redactEnv"))
    };
    assert!(is_on(None, &[]));
    assert!(!is_on(None, &["--redact-env=false"]));
    assert!(!is_on(Some("false"), &[]));
    assert!(!is_on(Some("true"), &["--redact-env=false"]));
    assert!(is_on(Some("false"), &["--redact-env"]));
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

    // Sockets whose directory does not exist, or where another file is.
    for (flag, path) in [("--socket", at("none/a.sock")), ("--pods-api-socket", at("web.yaml"))] {
        let said = format!("cannot serve on {path} ({flag}): ");
        checked(&format!("--pod-manifest-path {manifests} {flag} {path}"), 3, &[&said]);
        refused(&format!("--pod-manifest-path {manifests} {flag} {path} --port 0"), 3, &said);
    }
    checked(&format!("--pod-manifest-path {manifests} --socket {}", at("a.sock")), 0, &[]);

    // Checkpoint directories: existing, not yet created, blocked by a file, and impossible to create or to write to.
    std::fs::create_dir(directory.0.join("kept")).unwrap();
    for (path, code, words) in [
        (at("kept"), 0, &["The configuration is valid."][..]),
        (at("yet/to/be/made"), 0, &["The configuration is valid."]),
        (at("web.yaml"), 3, &["--checkpoint-dir", "web.yaml: cannot be made", "Not a directory"]),
        (at("web.yaml/below"), 3, &["--checkpoint-dir", "below: cannot be made", "Not a directory"]),
        ("/proc/here".to_owned(), 3, &["--checkpoint-dir: /proc/here: cannot be made"]),
        ("/proc".to_owned(), 1, &["--checkpoint-dir: /proc: cannot be written to", "without checkpoints"]),
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
    // Only the timeout ends it. A busy machine needs seconds to read the manifests.
    let output = run_within(PATIENCE * 2, &format!("--once --once-timeout 10s {sources}"));
    assert_eq!(output.status.code(), Some(3));
    let said = stderr(&output);
    assert!(said.contains("not all sources were read within 10s"), "{said}");
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
    // A source counts as read when its pods are in the index, a moment later.
    let is_waiting_for_the_url_alone = |answer: &Answer| {
        let body = &answer.body;
        answer.code == 503 && body.contains("http") && body.contains(&url) && !body.contains("file")
    };
    agent.until("/readyz", is_waiting_for_the_url_alone);
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
    let failing = |answer: &Answer| {
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
