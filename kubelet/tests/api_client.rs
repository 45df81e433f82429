//! The API server client: number of connections, detection of dead peers, and its `User-Agent`.

use crate::followed;

use std::time::{Duration, Instant};

use followed::Followed;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, Config};
use pod_index_kubelet::Pauses;
use pod_index_kubelet::api_client::{ApiClient, ConnectionOptions, Pings, Silences};
use pod_index_kubelet::references::{Options, SecretManager};
use pod_index_kubelet::sources::api_server::{ApiServer as Source, Times};
use pod_index_test_support::api_server::{ApiServer, DEADLINE, Fault, Verb};
use pod_index_test_support::files::Directory;
use pod_index_test_support::proxy::{Forwards, Proxy};
use rcgen::{CertificateParams, CertifiedKey, KeyPair, generate_simple_self_signed};
use serde_json::{Value, json};

const QUICK: Duration = Duration::from_millis(20);
const AGENT: &str = "pod-index/0 (node n1)";

/// A server with TLS, and a client configuration that trusts it.
struct Site {
    server: ApiServer,
    config: Config,
    /// The files of credentials.
    directory: Directory,
}

impl Site {
    async fn new(is_http2: bool) -> Self {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).unwrap();
        let (certificate, key) = (cert.pem(), signing_key.serialize_pem());
        let server = if is_http2 {
            ApiServer::start_with_tls(&certificate, &key).await
        } else {
            ApiServer::start_with_tls_http1(&certificate, &key).await
        };
        let mut config = Config::new(server.url().parse().unwrap());
        config.root_cert = Some(vec![cert.der().to_vec()]);
        Self { server, config, directory: Directory::new() }
    }

    fn at(&self, file: &str) -> String {
        self.directory.at(file).to_str().unwrap().to_owned()
    }

    /// A client certificate and its key, in files.
    fn with_certificate_files(&mut self) {
        self.config.auth_info.client_certificate = Some(self.at("crt"));
        self.config.auth_info.client_key = Some(self.at("key"));
    }

    /// Writes another certificate and its key, which the server does not accept yet. Returns the certificate.
    fn write_another_certificate(&self) -> String {
        let (certificate, key) = another_identity();
        self.directory.write("crt", &certificate);
        self.directory.write("key", &key);
        certificate
    }

    /// The result of a list, and the number of requests that it took.
    async fn list(&self, pods: &Api<Pod>) -> (Result<(), String>, u64) {
        let before = self.server.requests(Verb::List);
        let result = pods.list(&ListParams::default()).await;
        (result.map(drop).map_err(|error| error.to_string()), self.server.requests(Verb::List) - before)
    }

    async fn client(&self) -> Client {
        self.client_with(&ConnectionOptions::default()).await
    }

    async fn client_with(&self, options: &ConnectionOptions) -> Client {
        self.api(options).await.client()
    }

    async fn api(&self, options: &ConnectionOptions) -> ApiClient {
        ApiClient::new(self.config.clone(), AGENT, options).await.unwrap()
    }

    /// Through a proxy.
    async fn behind_proxy(&self) -> (Proxy, Config) {
        let proxy = Proxy::before(self.server.port()).await;
        let mut config = self.config.clone();
        config.cluster_url = format!("https://127.0.0.1:{}", proxy.port()).parse().unwrap();
        (proxy, config)
    }
}

fn pod(name: &str, secret: &str) -> Value {
    json!({
        "metadata": { "namespace": "a", "name": name },
        "spec": { "nodeName": "n1", "containers": [], "imagePullSecrets": [{ "name": secret }] },
    })
}

fn typed(pod: Value) -> Pod {
    serde_json::from_value(pod).unwrap()
}

fn quick() -> Times {
    Times {
        backoff: Pauses::new(QUICK, 4 * QUICK),
        http1_watch: Duration::from_secs(600),
        ..Times::default()
    }
}

/// Follows one Secret for each number.
fn follow_secrets(site: &Site, client: &Client, count: usize) -> SecretManager {
    let secrets = SecretManager::new(client.clone(), Options { times: quick(), ..Options::default() });
    for number in 0..count {
        let name = format!("s{number}");
        site.server.put("secrets", &json!({ "metadata": { "namespace": "a", "name": name } }));
        let mut pod = pod(&name, &name);
        pod["metadata"]["uid"] = json!(name);
        secrets.register_pod(&typed(pod));
    }
    secrets
}

/// The server allows 100 streams per connection. A request beyond that would wait without an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_hundred_watches_share_few_connections_and_delay_no_write() {
    let site = Site::new(true).await;
    let client = site.client().await;
    let mut followed = Followed::whole(Source::new(client.clone()).pods());
    let secrets = follow_secrets(&site, &client, 300);
    site.server.watched_by(301).await;
    assert_eq!(secrets.status().synced, 300);
    // One for pods and writes, and four for 300 watches, with at most 80 each.
    println!("300 Secrets: {} connections", site.server.open_connections());
    assert!(site.server.open_connections() <= 5, "{}", site.server.open_connections());

    let connections = site.server.connections();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "a");
    let answered = async {
        for number in 0..20 {
            let name = format!("p{number}");
            pods.create(&PostParams::default(), &typed(pod(&name, "s"))).await.unwrap();
            pods.delete(&name, &DeleteParams::default().grace_period(0)).await.unwrap();
        }
        pods.list(&ListParams::default()).await.unwrap();
    };
    tokio::time::timeout(DEADLINE, answered).await.expect("writes are not kept waiting");
    let opened = site.server.connections() - connections;
    assert!(opened <= 1, "short requests share a connection: {opened}");
    followed.equals(&site.server, |_| true).await;

    let (before, watches) = (site.server.connections(), site.server.requests(Verb::Watch));
    site.server.cut_connections();
    site.server.seen(Verb::Watch, watches + 301).await;
    site.server.watched_by(301).await;
    let opened = site.server.connections() - before;
    println!("after a cut: {opened} connections more");
    assert!(opened <= 10, "each of many requests opened one: {opened}");
    drop((secrets, followed));
    site.server.watched_by(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_http2_each_watch_takes_an_http1_connection() {
    let site = Site::new(false).await;
    let client = site.client().await;
    let mut followed = Followed::whole(Source::new(client.clone()).pods());
    let secrets = follow_secrets(&site, &client, 20);
    site.server.watched_by(21).await;
    assert!(site.server.open_connections() >= 21);
    site.server.put("pods", &pod("one", "s"));
    followed.equals(&site.server, |_| true).await;
    drop(secrets);
}

/// HTTP/1.1 has no pings, and an idle watch sends next to nothing, so a proxy that swallows events looks like a server without
/// news. It is noticed because the watch does not end in time.
#[tokio::test]
async fn over_http1_a_watch_whose_events_are_swallowed_is_noticed_by_its_end() {
    let site = Site::new(false).await;
    let (proxy, config) = site.behind_proxy().await;
    let silences = Silences { request: QUICK, answer: DEADLINE, http1_answer: QUICK };
    let options = ConnectionOptions { silences, ..ConnectionOptions::default() };
    let client = ApiClient::new(config, AGENT, &options).await.unwrap().client();
    site.server.put("pods", &pod("one", "s"));
    let times = Times { http1_watch: Duration::from_secs(3), silence: 10 * DEADLINE, ..quick() };
    let mut followed = Followed::whole(Source { times, ..Source::new(client) }.pods());
    for silence in [Forwards::NOTHING, Forwards { to_server: true, to_client: false }] {
        followed.equals(&site.server, |_| true).await;
        // A watch that ends as it was asked to, and is followed by another one, is no failure.
        let watches = site.server.requests(Verb::Watch);
        site.server.seen(Verb::Watch, watches + 2).await;
        site.server.until("a watch", |server| server.open_watches() >= 1).await;
        let connections = proxy.accepted();
        proxy.silence(silence);
        site.server.put("pods", &pod("one", "s"));
        site.server.put("pods", &pod("two", "s"));
        followed.equals(&site.server, |_| true).await;
        assert!(proxy.accepted() > connections, "by another connection");
    }
}

#[tokio::test]
async fn pings_detect_a_dead_peer_on_an_open_connection() {
    let site = Site::new(true).await;
    let (proxy, config) = site.behind_proxy().await;
    let options = ConnectionOptions {
        pings: Pings { after: 10 * QUICK, timeout: 10 * QUICK },
        ..ConnectionOptions::default()
    };
    let client = ApiClient::new(config, AGENT, &options).await.unwrap().client();
    site.server.put("pods", &pod("one", "s"));
    let times = Times { silence: 10 * DEADLINE, ..quick() };
    let source = Source { times, ..Source::new(client) };
    let mut followed = Followed::whole(source.pods());
    for silence in [
        Forwards::NOTHING,
        Forwards { to_server: true, to_client: false },
        Forwards { to_server: false, to_client: true },
    ] {
        followed.equals(&site.server, |_| true).await;
        site.server.until("a watch", |server| server.open_watches() >= 1).await;
        let connections = proxy.accepted();
        proxy.silence(silence);
        site.server.put("pods", &pod("one", "s"));
        site.server.put("pods", &pod("two", "s"));
        let watches = site.server.requests(Verb::Watch);
        site.server.seen(Verb::Watch, watches + 1).await;
        followed.equals(&site.server, |_| true).await;
        assert!(proxy.accepted() > connections, "by another connection");
    }
}

/// A proxy answers pings for a dead server. Here the server itself answers pings and sends nothing else.
#[tokio::test]
async fn a_watch_dropped_after_silence_retires_its_connection() {
    let site = Site::new(true).await;
    let options = ConnectionOptions {
        silences: Silences { request: DEADLINE, answer: 10 * QUICK, http1_answer: DEADLINE },
        ..ConnectionOptions::default()
    };
    let times = Times { silence: 20 * QUICK, ..quick() };
    let source = Source { times, ..Source::new(site.client_with(&options).await) };
    let mut followed = Followed::whole(source.pods());
    site.server.watched_by(1).await;
    assert_eq!(site.server.connections(), 1);
    site.server.hold();
    site.server.put("pods", &pod("one", "s"));
    followed.equals(&site.server, |_| true).await;
    assert!(site.server.connections() >= 2, "{}", site.server.connections());
}

#[tokio::test]
async fn a_request_dropped_without_an_answer_retires_its_connection() {
    let site = Site::new(true).await;
    let silence = 50 * QUICK;
    let options = ConnectionOptions {
        silences: Silences { request: silence, answer: DEADLINE, http1_answer: DEADLINE },
        ..ConnectionOptions::default()
    };
    let client = site.client_with(&options).await;
    let pods: Api<Pod> = Api::all(client);
    pods.list(&ListParams::default()).await.unwrap();
    // A request that is dropped this long after it has reached the server.
    let dropped = async |after: Duration| {
        site.server.fail(Verb::List, Fault::Delay(2 * DEADLINE));
        let (pods, before) = (pods.clone(), site.server.requests(Verb::List));
        let request = tokio::spawn(async move { pods.list(&ListParams::default()).await });
        site.server.seen(Verb::List, before + 1).await;
        tokio::time::sleep(after).await;
        request.abort();
        assert!(request.await.unwrap_err().is_cancelled());
    };
    dropped(2 * silence).await;
    pods.list(&ListParams::default()).await.unwrap();
    assert_eq!(site.server.connections(), 2);
    // A request dropped early says nothing about its connection.
    dropped(Duration::ZERO).await;
    pods.list(&ListParams::default()).await.unwrap();
    assert_eq!(site.server.connections(), 2);
}

#[tokio::test]
async fn a_rotated_token_is_read_again_after_a_401() {
    let mut site = Site::new(true).await;
    // With the end of a line, as an editor leaves it.
    site.directory.write("token", "one\n");
    site.config.auth_info.token_file = Some(site.at("token"));
    site.server.demand_token("one");
    let pods: Api<Pod> = Api::all(site.client().await);
    let list = async || site.list(&pods).await;
    assert!(matches!(list().await, (Ok(()), 1)));
    site.directory.write("token", "two\r\n");
    site.server.demand_token("two");
    assert!(matches!(list().await, (Ok(()), 2)), "once with the old one, once with the new one");
    assert!(matches!(list().await, (Ok(()), 1)));

    // The server accepts the new token before the file has it.
    site.server.demand_token("three");
    for _ in 0..4 {
        let (result, requests) = list().await;
        assert!(result.is_err_and(|error| error.contains("Unauthorized")));
        assert_eq!(requests, 1, "the file holds the token that was refused");
    }
    // An empty file is one that is being written.
    site.directory.write("token", "");
    assert!(list().await.0.is_err());
    site.directory.write("token", "three\n");
    // The file is read at most once a second.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let (result, requests) = list().await;
    result.expect("with the new token");
    assert_eq!(requests, 1, "it was read before the request, not after another refusal");
}

/// As in client-go.
#[tokio::test]
async fn a_token_file_takes_precedence_over_a_token_in_the_kubeconfig() {
    let mut site = Site::new(true).await;
    site.directory.write("token", "of the file");
    site.config.auth_info.token_file = Some(site.at("token"));
    site.config.auth_info.token = Some("inline".to_owned().into());
    let list = async |client| Api::<Pod>::all(client).list(&ListParams::default()).await;
    site.server.demand_token("of the file");
    list(site.client().await).await.expect("with the token of the file");
    std::fs::remove_file(site.directory.at("token")).unwrap();
    site.server.demand_token("inline");
    let client = site.client().await;
    list(client.clone()).await.expect("without the file, with the other one");
    site.directory.write("token", "rotated");
    site.server.demand_token("rotated");
    list(client).await.expect("with the token of the file, which is there now");
}

fn another_identity() -> (String, String) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["n1".to_owned()]).unwrap();
    (cert.pem(), signing_key.serialize_pem())
}

#[tokio::test]
async fn a_401_with_an_expired_client_certificate_is_a_refusal_that_says_so() {
    let mut site = Site::new(false).await;
    site.with_certificate_files();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.not_after = rcgen::date_time_ymd(2024, 2, 29);
    let key = KeyPair::generate().unwrap();
    site.directory.write("crt", params.self_signed(&key).unwrap().pem());
    site.directory.write("key", key.serialize_pem());
    site.server.demand_token("of somebody else");
    let pods: Api<Pod> = Api::all(site.client().await);
    let error = pods.list(&ListParams::default()).await.unwrap_err();
    let kube::Error::Api(status) = error else { panic!("not a refusal: {error:?}") };
    let why = "Unauthorized: the client certificate of the kubeconfig expired at 2024-02-29T00:00:00Z";
    assert_eq!((status.code, &*status.message), (401, why));
}

#[tokio::test]
async fn a_rotated_client_certificate_is_read_again_after_a_401() {
    for is_http2 in [true, false] {
        let mut site = Site::new(is_http2).await;
        site.with_certificate_files();
        site.server.demand_certificate(&site.write_another_certificate());
        let client = site.client().await;
        let pods: Api<Pod> = Api::all(client.clone());
        let list = async || site.list(&pods).await;
        // On the other connection of the client.
        let secrets: Api<Secret> = Api::all(client);
        secrets.list(&ListParams::default()).await.unwrap();
        let mut followed = Followed::whole(Source::new(site.client().await).pods());
        site.server.put("pods", &pod("zero", "s"));
        followed.equals(&site.server, |_| true).await;
        site.server.watched_by(1).await;
        assert!(matches!(list().await, (Ok(()), 1)));
        let idle = site.server.open_connections();

        site.server.demand_certificate(&site.write_another_certificate());
        assert!(matches!(list().await, (Ok(()), 2)), "once with the old one, once with the new one");
        assert!(matches!(list().await, (Ok(()), 1)));
        secrets.list(&ListParams::default()).await.unwrap();
        let is_replaced = |server: &ApiServer| server.open_connections() <= idle;
        site.server.until("the old connections are closed", is_replaced).await;
        // A watch that was open before stays open.
        site.server.put("pods", &pod("one", "s"));
        followed.equals(&site.server, |_| true).await;

        // The certificate was written, its key not yet.
        let (certificate, key) = another_identity();
        site.server.demand_certificate(&certificate);
        site.directory.write("crt", &certificate);
        // The files are read at most once a second.
        tokio::time::sleep(Duration::from_millis(1100)).await;
        let (result, requests) = list().await;
        assert!(result.is_err_and(|error| error.contains("Unauthorized")));
        assert_eq!(requests, 1);
        site.directory.write("key", &key);
        tokio::time::sleep(Duration::from_millis(1100)).await;
        let (result, requests) = list().await;
        result.expect("with the new certificate");
        assert_eq!(requests, 1, "it was read before the request, not after another refusal");
    }
}

#[tokio::test]
async fn a_rotated_client_certificate_is_read_again_after_a_minute() {
    let mut site = Site::new(true).await;
    site.with_certificate_files();
    site.write_another_certificate();
    let pods: Api<Pod> = Api::all(site.client().await);
    pods.list(&ListParams::default()).await.unwrap();
    site.write_another_certificate();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    // A request waits for the new certificate for at most one second.
    let start = Instant::now();
    while site.server.connections() < 2 {
        assert!(start.elapsed() < DEADLINE, "no connection with the new certificate");
        pods.list(&ListParams::default()).await.unwrap();
        tokio::time::sleep(QUICK).await;
    }
}

/// The clock is set forward, so that no test waits half a minute.
async fn half_a_minute_passes() {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn rotated_authorities_are_followed_and_watches_on_old_connections_end() {
    for is_http2 in [true, false] {
        let mut site = Site::new(is_http2).await;
        let (authority, key) = identity_of(&["localhost", "127.0.0.1"]);
        site.server.set_certificate(&authority, &key);
        site.directory.write("ca", &authority);
        site.config.root_cert = None;
        site.config.root_cert_file = Some(site.directory.at("ca"));
        let client = site.client().await;
        let mut followed = Followed::whole(Source { times: quick(), ..Source::new(client.clone()) }.pods());
        site.server.watched_by(1).await;

        // The server's new certificate is not known yet.
        let (authority, key) = identity_of(&["localhost", "127.0.0.1"]);
        site.server.set_certificate(&authority, &key);
        site.server.cut_connections();
        let pods: Api<Pod> = Api::all(client);
        let start = Instant::now();
        loop {
            let refused = pods.list(&ListParams::default()).await.expect_err("an unknown certificate");
            // At first, the end of the connection may be the error.
            if format!("{refused:?}").to_lowercase().contains("certificate") {
                break;
            }
            assert!(start.elapsed() < DEADLINE, "{refused:?}");
        }
        // Half of a file changes nothing.
        site.directory.write("ca", "-----BEGIN CERTIFICATE-----\n");
        half_a_minute_passes().await;
        site.directory.write("ca", &authority);
        half_a_minute_passes().await;
        site.server.put("pods", &pod("one", "s"));
        followed.equals(&site.server, |_| true).await;
        pods.list(&ListParams::default()).await.expect("a trusted certificate");

        // The old authority is not trusted any more, so the watch on the open connection ends.
        site.server.watched_by(1).await;
        let (authority, key) = identity_of(&["localhost", "127.0.0.1"]);
        site.server.set_certificate(&authority, &key);
        let (connections, watches) = (site.server.connections(), site.server.requests(Verb::Watch));
        site.directory.write("ca", &authority);
        half_a_minute_passes().await;
        site.server.seen(Verb::Watch, watches + 1).await;
        assert!(site.server.connections() > connections, "by a new connection");
        site.server.put("pods", &pod("two", "s"));
        followed.equals(&site.server, |_| true).await;
    }
}

fn identity_of(names: &[&str]) -> (String, String) {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).unwrap();
    (cert.pem(), signing_key.serialize_pem())
}

/// A pipe without a writer: opening it blocks for ever, as on a mount whose server is away.
#[cfg(unix)]
#[tokio::test]
async fn a_token_file_that_hangs_delays_one_request_by_a_second_and_no_other() {
    let mut site = Site::new(true).await;
    site.directory.write("token", "t");
    site.config.auth_info.token_file = Some(site.at("token"));
    let pods: Api<Pod> = Api::all(site.client().await);
    pods.list(&ListParams::default()).await.unwrap();
    std::fs::remove_file(site.directory.at("token")).unwrap();
    nix::unistd::mkfifo(&site.directory.at("token"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    half_a_minute_passes().await;
    half_a_minute_passes().await;
    // If each waited for the file, none would take less than a second. On a busy machine, some may.
    let mut at_once = 0;
    for _ in 0..30 {
        let start = Instant::now();
        pods.list(&ListParams::default()).await.unwrap();
        at_once += usize::from(start.elapsed() < Duration::from_secs(1));
    }
    assert!(at_once >= 10, "{at_once} of 30");
    // The thread that hangs ends.
    let mut pipe = std::fs::OpenOptions::new().write(true).open(site.directory.at("token")).unwrap();
    std::io::Write::write_all(&mut pipe, b"t").unwrap();
}

/// In a `select!`, a program polls only the branch that goes on.
#[tokio::test]
async fn a_request_that_nobody_polls_while_it_opens_the_connection_holds_up_no_other() {
    let site = Site::new(true).await;
    let pods: Api<Pod> = Api::all(site.client().await);
    let all = ListParams::default();
    let mut left = Box::pin(pods.list(&all));
    while site.server.connections() == 0 {
        assert!(futures_util::poll!(&mut left).is_pending(), "the handshake is not done yet");
        tokio::task::yield_now().await;
    }
    tokio::time::timeout(DEADLINE, pods.list(&all)).await.expect("not held up").unwrap();
    left.await.unwrap();
    assert_eq!(site.server.connections(), 1, "both used the same");
}

/// As an embedder may mean it: no limit.
#[tokio::test]
async fn times_without_an_end_are_no_error() {
    let site = Site::new(true).await;
    let (forever, longest) = (Duration::MAX, Pauses::new(Duration::MAX, Duration::MAX));
    let options = ConnectionOptions {
        pings: Pings { after: forever, timeout: forever },
        silences: Silences { request: forever, answer: forever, http1_answer: forever },
        ..ConnectionOptions::default()
    };
    let times = Times {
        backoff: longest,
        patience: forever,
        silence: forever,
        http1_watch: forever,
        compare_after: forever,
    };
    let source = Source { times, ..Source::new(site.client_with(&options).await) };
    source.check().await.expect("the server allows all");
    let mut followed = Followed::whole(source.pods());
    site.server.watched_by(1).await;
    site.server.put("pods", &pod("one", "s"));
    followed.equals(&site.server, |_| true).await;
}

/// A credential plugin that prints what was issued last.
#[cfg(target_os = "linux")]
impl Site {
    const API_VERSION: &str = "client.authentication.k8s.io/v1";

    fn ask_plugin(&mut self) {
        use std::os::unix::fs::PermissionsExt;

        let script = self.directory.at("plugin");
        self.directory.write("plugin", "#!/bin/sh\ncat \"$0.json\"\n");
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let exec = json!({ "apiVersion": Self::API_VERSION, "command": script, "interactiveMode": "Never" });
        self.config.auth_info.exec = Some(serde_json::from_value(exec).unwrap());
    }

    fn issue(&self, status: &Value) {
        let credential =
            json!({ "apiVersion": Self::API_VERSION, "kind": "ExecCredential", "status": status });
        self.directory.write("plugin.json", credential.to_string());
    }

    /// Returns the certificate.
    fn issue_certificate(&self) -> String {
        let (certificate, key) = another_identity();
        self.issue(&json!({ "clientCertificateData": certificate, "clientKeyData": key }));
        certificate
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn another_certificate_of_a_plugin_is_used_after_a_401() {
    let mut site = Site::new(true).await;
    site.ask_plugin();
    site.server.demand_certificate(&site.issue_certificate());
    let pods: Api<Pod> = Api::all(site.client().await);
    for requests in [1, 3] {
        pods.list(&ListParams::default()).await.unwrap();
        assert_eq!(site.server.requests(Verb::List), requests, "the second was refused once");
        site.server.demand_certificate(&site.issue_certificate());
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_certificate_of_a_plugin_is_not_used_after_an_answer_without_one() {
    let mut site = Site::new(true).await;
    site.ask_plugin();
    site.issue_certificate();
    let pods: Api<Pod> = Api::all(site.client().await);
    pods.list(&ListParams::default()).await.unwrap();
    site.issue(&json!({ "token": "two" }));
    site.server.demand_token("two");
    let connections = site.server.connections();
    pods.list(&ListParams::default()).await.unwrap();
    assert_eq!(site.server.connections(), connections + 1, "one without the certificate");
}

/// Who asks knows whether and when to ask again.
#[tokio::test]
async fn no_refusal_but_a_401_causes_another_request() {
    let site = Site::new(true).await;
    let pods: Api<Pod> = Api::all(site.client().await);
    for (count, fault) in
        [Fault::TooManyRequests(60), Fault::Status(503), Fault::Status(500)].into_iter().enumerate()
    {
        site.server.fail(Verb::List, fault);
        assert!(matches!(pods.list(&ListParams::default()).await, Err(kube::Error::Api(_))));
        assert_eq!(site.server.requests(Verb::List), count as u64 + 1);
    }
    pods.list(&ListParams::default()).await.unwrap();
}

/// The server is overloaded by writes, or answers none, and more of them wait than may be sent.
#[tokio::test]
async fn requests_of_one_client_never_delay_those_of_another() {
    for fault in [Fault::TooManyRequests(60), Fault::Delay(2 * DEADLINE)] {
        let site = Site::new(true).await;
        let api = site.api(&ConnectionOptions::default()).await;
        let (pods, others): (Api<Pod>, Api<Pod>) =
            (Api::all(api.client()), Api::namespaced(api.client_with_limit(4), "a"));
        site.server.fail_always(Verb::Create, fault);
        let flood: Vec<_> = (0..40)
            .map(|number| {
                let (others, pod) = (others.clone(), typed(pod(&format!("p{number}"), "s")));
                tokio::spawn(async move { others.create(&PostParams::default(), &pod).await })
            })
            .collect();
        site.server.seen(Verb::Create, 4).await;
        let any = ListParams::default();
        tokio::time::timeout(DEADLINE, pods.list(&any)).await.expect("it does not wait").unwrap();
        flood.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

#[tokio::test]
async fn an_outage_is_reported_with_its_cause_and_ends_for_all_requests_at_once() {
    let site = Site::new(true).await;
    let client = site.client().await;
    let pods: Api<Pod> = Api::all(client.clone());
    pods.list(&ListParams::default()).await.unwrap();
    site.server.refuse();
    let mut causes = Vec::new();
    for _ in 0..3 {
        let error = pods.list(&ListParams::default()).await.unwrap_err();
        causes.push(pod_index_kubelet::text::api_causes(&error));
    }
    assert!(causes[1..].iter().all(|cause| cause.contains("onnection refused")), "{causes:?}");
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let pods = pods.clone();
            tokio::spawn(async move {
                while pods.list(&ListParams::default()).await.is_err() {
                    tokio::time::sleep(QUICK).await;
                }
            })
        })
        .collect();
    // None can be opened before.
    let before = site.server.connections();
    site.server.accept().await;
    for task in waiting {
        tokio::time::timeout(DEADLINE, task).await.expect("it is back").unwrap();
    }
    assert_eq!(site.server.connections() - before, 1, "one opened it, and the others came along");
}

#[tokio::test]
async fn every_request_carries_the_user_agent() {
    let site = Site::new(true).await;
    let pods: Api<Pod> = Api::namespaced(site.client().await, "a");
    pods.create(&PostParams::default(), &typed(pod("one", "s"))).await.unwrap();
    pods.list(&ListParams::default()).await.unwrap();
    assert_eq!(site.server.user_agents(), [AGENT.to_owned()].into());
    let stored = site.server.object("pods", "a", "one").unwrap();
    assert_eq!(stored["metadata"]["managedFields"][0]["manager"], "pod-index");
    let refused = ApiClient::new(site.config.clone(), "two\nlines", &ConnectionOptions::default()).await;
    assert!(refused.is_err());
}
