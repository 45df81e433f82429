//! Access control: names and groups of certificates, tokens of the API server, and its authorization.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::{ClientConnection, StreamOwned};
use serde_json::{Value, json};

use crate::api::kubeconfig;
use crate::api_server::{ApiServer, Fault, Verb, shipped};
use crate::metrics::value;
use crate::support::{Agent, Answer, Directory, PATIENCE, refused, run_within, stderr, wait_for};
use crate::tls::{Authority, Client, Pki};

/// How long the API server's refusal of a right counts.
const REFUSAL_COUNTS: Duration = Duration::from_secs(30);

pub const REVIEWS: &str = "--authentication-token-webhook --authorization-mode Webhook";

impl Authority {
    /// A certificate with this common name and organization, and its key.
    pub fn sign_for(&self, name: &str, group: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        // Only the common name counts.
        let mut params = CertificateParams::new(["prometheus".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, group);
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// The agent's answer to a client with this certificate, this token, or none.
pub fn answer(
    pki: &Pki,
    agent: &Agent,
    is: Option<(String, String)>,
    token: Option<&str>,
    path: &str,
) -> Answer {
    let client = Client { trusts: pki.authority.pem.clone(), is };
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    Answer::to(client.connect(agent.address), &format!("GET {path}"), &token, "")
}

/// Names and groups together, and each of them alone: then the other one must not let anybody in.
#[test]
fn only_allowed_names_and_groups_of_certificates_are_served() {
    let (pki, clients) = (Pki::new(), Authority::new());
    pki.directory.write("clients.pem", &clients.pem);
    let ca = pki.at("clients.pem");
    let (names, groups) =
        ("--allowed-client-names prometheus,scraper", "--allowed-client-groups system:masters");
    for (allowed, of_names, of_groups) in
        [(format!("{names} {groups}"), 200, 200), (names.to_owned(), 200, 403), (groups.to_owned(), 403, 200)]
    {
        let agent = pki.start(&format!("--client-ca-file {ca} {allowed}"));
        for (name, group, code) in [
            ("prometheus", "x", of_names),
            ("scraper", "y", of_names),
            ("x", "system:masters", of_groups),
            ("system:node:node-2", "system:nodes", 403),
            ("system:masters", "prometheus", 403),
            ("Prometheus", "system:master", 403),
            // Without a common name, a certificate identifies nobody.
            ("", "system:masters", 401),
        ] {
            for path in ["/pods", "/api/v1/pods", "/whois?q=u", "/metrics", "/livez", "/nothing", "/"] {
                let answer = answer(&pki, &agent, Some(clients.sign_for(name, group)), None, path);
                let served = if path == "/nothing" { 404 } else { 200 };
                let expected = if code == 200 { served } else { code };
                assert_eq!(answer.code, expected, "{allowed}: {name:?} {group:?}: {path}");
                let shows_pods = answer.body.contains("etcd-node-1");
                assert_eq!(shows_pods, code == 200 && path.ends_with("pods"), "{allowed}: {path}");
            }
        }
    }
    // A certificate that identifies nobody is refused without rules as well.
    let agent = pki.start(&format!("--client-ca-file {ca}"));
    for (name, code) in [("anyone", 200), ("", 401)] {
        assert_eq!(
            answer(&pki, &agent, Some(clients.sign_for(name, "x")), None, "/pods").code,
            code,
            "{name:?}"
        );
    }
}

/// The rights that were reviewed. Each token and each right was so once, unless the first refusals no longer counted.
fn reviewed_once(server: &ApiServer, began: Instant, tokens: u64, rights: usize) -> Vec<Value> {
    let (of_tokens, of_rights) = server.reviewed();
    let are_cached = began.elapsed() < REFUSAL_COUNTS;
    let distinct: BTreeSet<_> = of_rights.iter().map(Value::to_string).collect();
    assert_eq!(distinct.len(), rights, "{of_rights:#?}");
    assert!(of_rights.len() == rights || !are_cached, "each right once: {of_rights:#?}");
    assert!(of_tokens == tokens || !are_cached, "each token once: {of_tokens}");
    of_rights
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_and_rights_are_reviewed_and_cached_as_in_a_kubelet() {
    let server = ApiServer::start().await;
    let granted = shipped("pod-index", &["base", "components/client-reviews"]);
    server.grant(granted.clone());
    server.know_token("of-prometheus", "prometheus", &["system:serviceaccounts"]);
    server.know_token("of-nobody-much", "nobody-much", &[]);
    server.allow("prometheus", "get", "metrics");
    server.allow("prometheus", "get", "pods");
    server.allow("admin", "get", "proxy");
    let (pki, clients) = (Pki::new(), Authority::new());
    pki.directory.write("clients.pem", &clients.pem);
    let directory = Directory::new();
    let kubeconfig = kubeconfig(&directory, &server);
    let ca = pki.at("clients.pem");
    let agent = pki.start(&format!("--client-ca-file {ca} --kubeconfig {kubeconfig} {REVIEWS}"));
    let asked = |is: Option<&(String, String)>, token: Option<&str>, path: &str| {
        tokio::task::block_in_place(|| answer(&pki, &agent, is.cloned(), token, path).code)
    };
    let began = Instant::now();
    for _ in 0..3 {
        for (token, path, code) in [
            (Some("of-prometheus"), "/metrics", 200),
            (Some("of-prometheus"), "/pods", 200),
            (Some("of-prometheus"), "/mirrors", 403),
            (Some("of-nobody-much"), "/metrics", 403),
            (Some("made-up"), "/metrics", 401),
            (None, "/metrics", 401),
        ] {
            assert_eq!(asked(None, token, path), code, "{token:?}: {path}");
        }
    }
    // Three tokens; the metrics, pods and proxy rights for prometheus, and metrics for the other client.
    let rights = reviewed_once(&server, began, 3, 4);
    let line = agent.wait_for_log("no valid certificate or token");
    assert!(line.contains("loopback") && line.contains("GET") && line.contains("/metrics"), "{line}");
    let line = agent.wait_for_log("no right to this");
    assert!(line.contains("prometheus") || line.contains("nobody-much"), "{line}");
    // Who holds a stolen token shows in the log by its address. The token itself does not.
    let log = agent.logged();
    let first: Vec<_> =
        log.iter().filter(|line| line.contains("at this address for the first time")).collect();
    assert_eq!(first.len(), 1, "{first:?}");
    assert!(first[0].contains("loopback") && first[0].contains("\"prometheus\""), "{first:?}");
    assert!(log.iter().all(|line| !line.contains("of-prometheus")), "{log:?}");
    let expected = json!({
        "user": "prometheus", "uid": "uid-of-prometheus", "groups": ["system:serviceaccounts", "system:authenticated"], "extra": {},
        "resourceAttributes": { "verb": "get", "group": "", "version": "v1", "resource": "nodes", "subresource": "metrics", "name": "node-1" },
    });
    assert!(rights.contains(&expected), "{rights:#?}");

    // A client with a certificate is identified by it, but still authorized by the API server.
    let admin = clients.sign_for("admin", "x");
    let kubelet = clients.sign_for("system:node:node-2", "system:nodes");
    assert_eq!((asked(Some(&admin), None, "/pods"), asked(Some(&admin), None, "/mirrors")), (200, 200));
    assert_eq!(
        (asked(Some(&kubelet), None, "/pods"), asked(Some(&kubelet), Some("of-prometheus"), "/pods")),
        (403, 403)
    );

    let is_of_admin = |right: &Value| {
        let id = right["extra"]["authentication.kubernetes.io/credential-id"][0].as_str().unwrap_or_default();
        right["user"] == "admin"
            && right["groups"] == json!(["x", "system:authenticated"])
            && id.starts_with("X509SHA256=")
    };
    assert!(server.reviewed().1.iter().any(is_of_admin), "{:#?}", server.reviewed().1);
    // A certificate without a common name identifies nobody, and then the token counts.
    let nameless = clients.sign_for("", "system:masters");
    assert_eq!(asked(Some(&nameless), None, "/metrics"), 401);
    assert_eq!(asked(Some(&nameless), Some("of-prometheus"), "/metrics"), 200);

    // Unknown clients are told so while the API server is down. Known ones are served.
    server.fail_always(Verb::Create, Fault::Status(500));
    assert_eq!(asked(None, Some("of-prometheus"), "/metrics"), 200);
    server.know_token("of-late", "late", &[]);
    server.allow("late", "get", "metrics");
    assert_eq!(asked(None, Some("of-late"), "/metrics"), 503);
    let line = agent.wait_for_log("does not answer a TokenReview");
    assert!(line.contains("WARN"), "{line}");
    server.heal();
    // It is asked again within seconds.
    wait_for(|| "the API server is back", || asked(None, Some("of-late"), "/metrics") == 200);
    let metrics =
        tokio::task::block_in_place(|| answer(&pki, &agent, None, Some("of-prometheus"), "/metrics"));
    let count = |decision: &str| {
        value(&metrics.body, &format!("pod_index_access_decisions_total{{decision=\"{decision}\"}}"))
    };
    assert!(
        count("allowed") > 0
            && count("unauthorized") > 0
            && count("forbidden") > 0
            && count("unavailable") > 0
    );

    // A client that invents tokens is told to wait, and nobody else.
    let mut sent = 0;
    let invents = || {
        sent += 1;
        asked(None, Some(&format!("invented-{sent}")), "/metrics") == 429
    };
    wait_for(|| "a client that invents tokens is told to wait", invents);
    assert_eq!(asked(None, Some("of-prometheus"), "/metrics"), 200);
    assert!(!agent.logged().join("\n").contains("invented-"), "no token is logged");
    assert!(!agent.logged().join("\n").contains("of-prometheus"), "no token is logged");

    let asked = server.asked();
    let unused: Vec<_> =
        granted.iter().filter(|right| !asked.iter().any(|asked| right.covers(asked))).collect();
    assert!(unused.is_empty(), "granted, and never asked for: {unused:?}");
}

/// What a client may read on the API server, it may read here; no other right of it helps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_resource_needs_the_right_to_it() {
    let server = ApiServer::start().await;
    server.know_token("of-logs", "logs", &[]);
    server.know_token("of-nobody", "nobody", &[]);
    for (verb, what) in
        [("list", "/pods"), ("watch", "/pods"), ("list", "/namespaces"), ("get", "/nodes"), ("get", "pods")]
    {
        server.allow("logs", verb, what);
    }
    server.allow("lister", "list", "/pods");
    let (pki, clients) = (Pki::new(), Authority::new());
    pki.directory.write("clients.pem", &clients.pem);
    let directory = Directory::new();
    let kubeconfig = kubeconfig(&directory, &server);
    let more = format!("--serve-resources nodes,namespaces --client-ca-file {}", pki.at("clients.pem"));
    let agent = pki.start(&format!("--kubeconfig {kubeconfig} {REVIEWS} {more}"));
    for (path, code) in [
        ("/api/v1/pods", 200),
        ("/api/v1/pods?watch=1&timeoutSeconds=-1", 200),
        ("/api/v1/namespaces/shop/pods", 200),
        ("/api/v1/namespaces/shop/pods/web", 403),
        ("/api/v1/namespaces", 200),
        ("/api/v1/namespaces?watch=1&timeoutSeconds=-1", 403),
        ("/api/v1/namespaces/shop", 403),
        ("/api/v1/nodes", 403),
        ("/api/v1/nodes/node-9", 404),
        ("/api/v1/services", 403),
        ("/api/v1", 403),
    ] {
        for (token, code) in [("of-logs", code), ("of-nobody", 403)] {
            let answer = || tokio::task::block_in_place(|| answer(&pki, &agent, None, Some(token), path));
            // A list that has not arrived yet.
            let deadline = Instant::now() + PATIENCE;
            let is_served = |answer: &Answer| answer.code != 503 || Instant::now() > deadline;
            let answer = std::iter::repeat_with(answer).find(is_served).unwrap();
            assert_eq!(answer.code, code, "{token}: {path}: {}", answer.body);
        }
    }
    let (certificate, key) = clients.sign_for("lister", "x");
    pki.directory.write("lister.pem", &(certificate + &key));
    let (ca, me) = (pki.at("ca.pem"), pki.at("lister.pem"));
    let connection =
        format!("--port {} --ca-file {ca} --client-certificate {me} --client-key {me}", agent.port());
    for (command, code) in [("list", 0), ("list -w", 3)] {
        let output = run_within(PATIENCE, &format!("{command} {connection}"));
        assert_eq!(output.status.code(), Some(code), "{command}: {}", stderr(&output));
    }
}

#[test]
fn access_rules_without_client_authentication_are_refused_at_the_start() {
    let pki = Pki::new();
    let (tls, ca) = (pki.flags(), pki.at("ca.pem"));
    for (args, word) in [
        (format!("{tls} --allowed-client-names a"), "--client-ca-file"),
        (format!("{tls} --allowed-client-groups a"), "--client-ca-file"),
        (format!("{tls} --authorization-mode Webhook"), "--client-ca-file"),
        (format!("{tls} --client-ca-file {ca} --authorization-mode Webhook"), "--api-server"),
        (format!("{tls} --authentication-token-webhook"), "--api-server"),
        ("--authentication-token-webhook".to_owned(), "needs --tls-cert-file"),
    ] {
        refused(&format!("--pod-manifest-path x --check {args}"), 2, word);
    }
}

/// Starts a watch. Returns the code of the response and the connection, which keeps the watch open.
fn watch(
    pki: &Pki,
    agent: &Agent,
    is: Option<(String, String)>,
    token: Option<&str>,
) -> (String, StreamOwned<ClientConnection, TcpStream>) {
    let mut stream = Client { trusts: pki.authority.pem.clone(), is }.connect(agent.address);
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    write!(stream, "GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: l\r\n{token}\r\n").unwrap();
    let mut code = [0; "HTTP/1.1 200".len()];
    stream.read_exact(&mut code).unwrap();
    (str::from_utf8(&code).unwrap().rsplit(' ').next().unwrap().to_owned(), stream)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_are_counted_by_the_name_of_the_client_and_not_by_the_address_that_clients_share() {
    let server = ApiServer::start().await;
    server.know_token("of-shop", "shop", &[]);
    server.know_token("of-bank", "bank", &[]);
    let (pki, clients) = (Pki::new(), Authority::new());
    pki.directory.write("clients.pem", &clients.pem);
    let directory = Directory::new();
    let (kubeconfig, ca) = (kubeconfig(&directory, &server), pki.at("clients.pem"));
    let token = format!("--kubeconfig {kubeconfig} --authentication-token-webhook");
    for args in ["", &token] {
        let agent = pki.start(&format!("--client-ca-file {ca} --max-watches-per-client 1 {args}"));
        let tokens = if args.is_empty() { &[][..] } else { &["shop", "bank"] };
        tokio::task::block_in_place(|| {
            let certificate = |name: &str| Some(clients.sign_for(name, ""));
            let mut open = Vec::new();
            for name in ["prometheus", "tracer"] {
                let (first, stream) = watch(&pki, &agent, certificate(name), None);
                assert_eq!(first, "200", "{name}");
                open.push(stream);
                assert_eq!(watch(&pki, &agent, certificate(name), None).0, "429", "{name} has one already");
            }
            for name in tokens {
                let token = format!("of-{name}");
                let (first, stream) = watch(&pki, &agent, None, Some(&token));
                assert_eq!(first, "200", "{name}");
                open.push(stream);
                assert_eq!(watch(&pki, &agent, None, Some(&token)).0, "429", "{name} has one already");
            }
        });
    }
}
