//! The API server client with a credential plugin that hangs.

use crate::sources_support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::{Client, Config};
use pod_index::PodMeta;
use pod_index_kubelet::Pauses;
use pod_index_kubelet::api_client::{ApiClient, ConnectionOptions, PluginTimes};
use pod_index_kubelet::sources::api_server::{ApiServer as Source, Times};
use pod_index_kubelet::sources::file;
use pod_index_kubelet::sources::{NodeName, SourceStatus, SourceUpdate};
use pod_index_kubelet::text::api_causes;
use pod_index_test_support::api_server::{ApiServer, DEADLINE, Verb};
use serde_json::json;
use sources_support::{Directory, manifest};

const QUICK: Duration = Duration::from_millis(20);
/// After this time, a request may run the plugin again.
const RENEWAL_PAUSE: Duration = Duration::from_millis(1100);

/// A plugin that issues the token in the file `token`, or hangs while the file `hangs` exists. It notes each run.
const PLUGIN: &str = r#"#!/bin/sh
cd "$(dirname "$0")"
echo $$ >> runs
if [ -e hangs ]; then sleep 1000 & echo $! >> runs; wait; fi
if [ -e expires ]; then EXPIRES=", \"expirationTimestamp\": \"$(cat expires)\""; fi
echo "{\"apiVersion\": \"client.authentication.k8s.io/v1\", \"kind\": \"ExecCredential\", \"status\": {\"token\": \"$(cat token)\"$EXPIRES}}"
"#;

struct Site {
    server: ApiServer,
    directory: Directory,
}

impl Site {
    async fn new() -> Self {
        let (server, directory) = (ApiServer::start().await, Directory::new());
        directory.write("plugin", PLUGIN);
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(directory.at("plugin"), executable).unwrap();
        directory.write("token", "one");
        server.demand_token("one");
        Self { server, directory }
    }

    /// The plugin's answers expire in `seconds`.
    fn expire_in(&self, seconds: i64) {
        let time =
            k8s_openapi::jiff::Timestamp::now() + k8s_openapi::jiff::SignedDuration::from_secs(seconds);
        self.directory.write("expires", time.to_string());
    }

    async fn client(&self, options: &ConnectionOptions) -> Client {
        self.try_client(options).await.unwrap()
    }

    async fn try_client(&self, options: &ConnectionOptions) -> kube::Result<Client> {
        let api = ApiClient::new(self.config(), "test", options).await?;
        api.authenticate().await.map(|()| api.client())
    }

    fn config(&self) -> Config {
        let mut config = Config::new(self.server.url().parse().unwrap());
        let exec = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": self.directory.at("plugin"),
            "interactiveMode": "Never",
        });
        config.auth_info.exec = Some(serde_json::from_value(exec).unwrap());
        config
    }

    /// The process IDs of the plugin's runs, and those of the processes that its runs have started.
    fn processes(&self) -> Vec<u32> {
        let runs = std::fs::read_to_string(self.directory.at("runs")).unwrap();
        runs.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// Waits for the plugin to hang. Returns how many processes have run until then.
    async fn hangs(&self, before: usize) -> usize {
        until("a plugin that hangs", || self.processes().len() >= before + 2).await;
        self.processes().len()
    }
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < DEADLINE, "never came: {what}");
        tokio::time::sleep(QUICK).await;
    }
}

/// Callers give up after a time of their own.
async fn requests_that_are_given_up(pods: &Api<Pod>, count: usize) {
    for _ in 0..count {
        let any = ListParams::default();
        assert!(tokio::time::timeout(QUICK, pods.list(&any)).await.is_err(), "it has an answer");
    }
}

/// The agent has 16 threads for blocking work.
#[test]
fn a_hanging_plugin_runs_once_and_leaves_the_threads_to_the_file_source() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(4)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let site = Site::new().await;
        let pods: Api<Pod> = Api::all(site.client(&ConnectionOptions::default()).await);
        pods.list(&ListParams::default()).await.unwrap();
        let before = site.processes().len();
        site.server.demand_token("two");
        site.directory.write("hangs", "");
        // On a busy machine, a request may be given up before the server refuses the token.
        let start = Instant::now();
        while site.processes().len() < before + 2 {
            assert!(start.elapsed() < DEADLINE, "no plugin hangs");
            requests_that_are_given_up(&pods, 1).await;
        }
        let running = site.processes().len();
        requests_that_are_given_up(&pods, 20).await;
        assert_eq!(site.processes().len(), running, "another plugin runs");

        let manifests = Directory::new();
        manifests.write("web.yaml", manifest("web"));
        let mut source = file::follow(manifests.path(), NodeName::new("n1"));
        let update = tokio::time::timeout(DEADLINE, source.next()).await.expect("the file source goes on");
        assert!(matches!(update, Some(SourceUpdate::Set(pods)) if pods[0].name() == "web-n1"));
    });
    runtime.shutdown_background();
}

/// An identity provider that is away at boot.
#[tokio::test]
async fn a_client_starts_without_its_plugin_and_a_source_connects_once_that_answers() {
    let site = Site::new().await;
    site.server.put("pods", &json!({ "metadata": { "namespace": "a", "name": "one" } }));
    site.directory.write("plugin", "#!/bin/sh\necho 'no such account' >&2; exit 3");
    let api = ApiClient::new(site.config(), "test", &ConnectionOptions::default()).await.unwrap();
    let times = Times {
        backoff: Pauses::new(QUICK, 4 * QUICK),
        http1_watch: Duration::from_secs(600),
        ..Times::default()
    };
    let mut pods = Source { times, ..Source::new(api.client()) }.pods();
    let mut status = pods.status();
    let first = tokio::spawn(async move { pods.next().await });
    let says_so = |status: &SourceStatus| {
        status.problems.iter().any(|problem| problem.message.contains("exit code 3: no such account"))
    };
    tokio::time::timeout(DEADLINE, status.wait_for(says_so)).await.expect("a problem").unwrap();
    assert_eq!(site.server.requests(Verb::List), 0, "no request without credentials");
    site.directory.write("plugin", PLUGIN);
    let first = tokio::time::timeout(DEADLINE, first).await.expect("the pods").unwrap();
    assert!(matches!(first, Some(SourceUpdate::Set(pods)) if pods.len() == 1));
}

#[tokio::test]
async fn a_hanging_plugin_is_named_and_killed_with_its_children() {
    let site = Site::new().await;
    let options = ConnectionOptions {
        plugin: PluginTimes { request: Duration::from_secs(5), run: Duration::from_secs(20) },
        ..ConnectionOptions::default()
    };
    let pods: Api<Pod> = Api::all(site.client(&options).await);
    let before = site.processes().len();
    site.server.demand_token("two");
    site.directory.write("hangs", "");
    let any = ListParams::default();
    let (first, second) = tokio::join!(pods.list(&any), pods.list(&any));
    for error in [first.unwrap_err(), second.unwrap_err()] {
        let said = api_causes(&error);
        let plugin = format!("the credential plugin {:?}", site.directory.at("plugin"));
        assert!(said.contains(&format!("{plugin} did not answer in 5 s")), "{said}");
    }
    site.hangs(before).await;
    std::fs::remove_file(site.directory.at("hangs")).unwrap();
    site.directory.write("token", "two");
    for process in site.processes() {
        let gone = || !Path::new(&format!("/proc/{process}")).exists();
        until("the end of the plugin and of its child", gone).await;
    }
    // The next request runs it again, at most once a second.
    let start = Instant::now();
    while pods.list(&any).await.is_err() {
        assert!(start.elapsed() < DEADLINE, "the plugin's new token is not used");
        tokio::time::sleep(QUICK).await;
    }
}

#[tokio::test]
async fn a_token_is_renewed_before_it_expires_and_not_sent_afterwards() {
    let site = Site::new().await;
    site.expire_in(40);
    let options = ConnectionOptions {
        plugin: PluginTimes { request: DEADLINE, run: DEADLINE },
        ..ConnectionOptions::default()
    };
    let pods: Api<Pod> = Api::all(site.client(&options).await);
    let runs = site.processes().len();
    let any = ListParams::default();
    site.directory.write("token", "two");
    site.expire_in(-1);
    // The server still demands the old token. This request waits for the plugin for at most one second.
    let _ = pods.list(&any).await;
    let has_ended = || {
        let processes = site.processes();
        processes.len() > runs && processes.iter().all(|id| !Path::new(&format!("/proc/{id}")).exists())
    };
    until("the end of the plugin", has_ended).await;
    site.server.demand_token("two");
    let lists = site.server.requests(Verb::List);
    pods.list(&any).await.unwrap();
    assert_eq!(site.server.requests(Verb::List), lists + 1, "it was not refused first");
    // This one has expired.
    site.directory.write("plugin", "#!/bin/sh\necho 'no such account' >&2; exit 3");
    tokio::time::sleep(RENEWAL_PAUSE).await;
    let said = api_causes(&pods.list(&any).await.unwrap_err());
    assert!(said.contains("the credential plugin ended with exit code 3: no such account"), "{said}");
    assert_eq!(site.server.requests(Verb::List), lists + 1);
}

#[tokio::test]
async fn a_plugin_that_hangs_fails_no_request_while_the_token_is_valid() {
    let site = Site::new().await;
    site.expire_in(40);
    let options = ConnectionOptions {
        plugin: PluginTimes { request: Duration::from_secs(2), run: DEADLINE },
        ..ConnectionOptions::default()
    };
    let pods: Api<Pod> = Api::all(site.client(&options).await);
    let before = site.processes().len();
    site.directory.write("hangs", "");
    for _ in 0..2 {
        pods.list(&ListParams::default()).await.unwrap();
    }
    site.hangs(before).await;
}

#[tokio::test]
async fn a_token_that_is_accepted_after_a_401_is_not_renewed_again() {
    let site = Site::new().await;
    let pods: Api<Pod> = Api::all(site.client(&ConnectionOptions::default()).await);
    let any = ListParams::default();
    let runs = || site.processes().len();
    let before = runs();
    site.server.demand_token("two");
    pods.list(&any).await.unwrap_err();
    assert_eq!(runs(), before + 1);
    site.server.demand_token("one");
    tokio::time::sleep(RENEWAL_PAUSE).await;
    pods.list(&any).await.unwrap();
    assert_eq!(runs(), before + 2, "until a request succeeds, the plugin runs before each one");
    tokio::time::sleep(RENEWAL_PAUSE).await;
    pods.list(&any).await.unwrap();
    assert_eq!(runs(), before + 2);
}

/// The process has its own session. It holds the plugin's standard output and standard error open.
#[tokio::test]
async fn the_answer_of_a_plugin_that_leaves_a_process_behind_is_used() {
    let site = Site::new().await;
    let leave = "echo $$ >> runs\nsetsid sleep 1000 & echo $! > left\n";
    site.directory.write("plugin", PLUGIN.replace("echo $$ >> runs\n", leave));
    let options = ConnectionOptions {
        plugin: PluginTimes { request: DEADLINE, run: DEADLINE },
        ..ConnectionOptions::default()
    };
    let client = site.try_client(&options).await;
    let left = std::fs::read_to_string(site.directory.at("left")).unwrap();
    let left = nix::unistd::Pid::from_raw(left.trim().parse().unwrap());
    nix::sys::signal::kill(left, nix::sys::signal::Signal::SIGKILL).expect("it is still there");
    let pods: Api<Pod> = Api::all(client.unwrap());
    pods.list(&ListParams::default()).await.unwrap();
}

/// The beginning of an answer in YAML is valid YAML: here half a token.
#[tokio::test]
async fn the_beginning_of_an_answer_that_a_process_left_behind_may_go_on_writing_is_no_answer() {
    let site = Site::new().await;
    let options = ConnectionOptions {
        plugin: PluginTimes { request: DEADLINE, run: DEADLINE },
        ..ConnectionOptions::default()
    };
    for beginning in [r"status:\n  token: o", r#"{"status": {"token": "one"}"#] {
        let leave = "cd \"$(dirname \"$0\")\"\nsetsid sleep 1000 & echo $! > left";
        site.directory.write("plugin", format!("#!/bin/sh\n{leave}\nprintf '{beginning}'\n"));
        let error = site.try_client(&options).await.err();
        let left = std::fs::read_to_string(site.directory.at("left")).unwrap();
        let left = nix::unistd::Pid::from_raw(left.trim().parse().unwrap());
        nix::sys::signal::kill(left, nix::sys::signal::Signal::SIGKILL).expect("it is still there");
        let said = api_causes(&error.unwrap_or_else(|| panic!("{beginning} is accepted")));
        assert!(said.contains("has left a process behind"), "{said}");
    }
}

#[tokio::test]
async fn no_error_has_a_part_of_the_plugins_standard_output() {
    let site = Site::new().await;
    let options = ConnectionOptions {
        plugin: PluginTimes { request: DEADLINE, run: DEADLINE },
        ..ConnectionOptions::default()
    };
    for (script, expected) in [
        ("echo hunter2; echo 'no such account' >&2; exit 3", "no such account"),
        ("echo '{\"status\": {\"token\": \"hunter2\", \"expirationTimestamp\": \"hunter2\"}}'", "line 1"),
        ("echo '{\"status\": hunter2'", "line "),
        ("while echo '{\"status\": {\"token\": \"hunter2\"}}'; do true; done", "too much"),
    ] {
        site.directory.write("plugin", format!("#!/bin/sh\n{script}\n"));
        let error = site.try_client(&options).await.err().unwrap();
        let said = format!("{error} {error:?} {}", api_causes(&error));
        assert!(said.contains(expected) && !said.contains("hunter2"), "{said}");
    }
}

#[tokio::test]
async fn an_answer_with_empty_or_half_credentials_is_refused() {
    let site = Site::new().await;
    for (status, expected) in [
        (r#"{"token": ""}"#, "neither a token nor a certificate"),
        (r#"{"clientCertificateData": "", "clientKeyData": ""}"#, "neither a token nor a certificate"),
        (r#"{"token": "one", "clientCertificateData": "c"}"#, "a certificate without a key"),
        (r#"{"token": "one", "clientCertificateData": "", "clientKeyData": "k"}"#, "or a key alone"),
    ] {
        site.directory.write("plugin", format!("#!/bin/sh\necho '{{\"status\": {status}}}'\n"));
        let error = site.try_client(&ConnectionOptions::default()).await.err();
        let said = api_causes(&error.unwrap_or_else(|| panic!("{status} is accepted")));
        assert!(said.contains(expected), "{said}");
    }
}

#[tokio::test]
async fn a_proxy_and_an_authentication_provider_that_kubernetes_has_removed_are_refused() {
    let nowhere = Config::new("http://127.0.0.1:1".parse().unwrap());
    let (mut proxied, mut removed) = (nowhere.clone(), nowhere);
    proxied.proxy_url = Some("http://user:hunter2@proxy.example.com:3128".parse().unwrap());
    let provider = json!({ "name": "gcp", "config": {} });
    removed.auth_info.auth_provider = Some(serde_json::from_value(provider).unwrap());
    for (config, expected) in
        [(proxied, "proxies are not supported"), (removed, "the auth-provider \"gcp\" is not supported")]
    {
        let error = ApiClient::new(config, "test", &ConnectionOptions::default()).await.err().unwrap();
        let error = format!("{} {error} {error:?}", api_causes(&error));
        assert!(error.contains(expected) && !error.contains("hunter2"), "{error}");
    }
}
