//! The http source against a real, badly behaved server on loopback.

mod sources_support;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;
use pod_index_kubelet::sources::http::{HttpConfig, HttpSource};
use pod_index_kubelet::sources::{NodeName, ProblemKind, SourceStatus, SourceUpdate};
use pod_index_test_support::port::Port;
use sources_support::{Directory, manifest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Only a hang takes this long.
const DEADLINE: Duration = Duration::from_secs(60);
const OFTEN: Duration = Duration::from_millis(5);

/// The server's reaction to one request.
#[derive(Clone)]
enum Answer {
    Bytes(Vec<u8>),
    /// Sends this, then nothing, but keeps the connection open.
    Stall(Vec<u8>),
    /// Sends this chunk again and again, until the client closes the connection.
    Flood(Vec<u8>),
}

fn answer(status: &str, headers: &str, body: &str) -> Answer {
    let length = body.len();
    Answer::Bytes(
        format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}").into_bytes(),
    )
}

fn ok(body: &str) -> Answer {
    answer("200 OK", "", body)
}

fn redirect(status: &str, location: &str) -> Answer {
    answer(status, &format!("location: {location}\r\n"), "")
}

/// A server that gives these answers in turn, and repeats the last one for ever.
struct Server {
    address: SocketAddr,
    script: Arc<Mutex<VecDeque<Answer>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let script = Arc::new(Mutex::new(answers.into_iter().collect()));
        let requests = Arc::default();
        let server = Self { address, script: Arc::clone(&script), requests: Arc::clone(&requests) };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&script), Arc::clone(&requests)));
            }
        });
        server
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn then(&self, answer: Answer) {
        let mut script = self.script.lock().expect("a script");
        script.clear();
        script.push_back(answer);
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("the requests").clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    script: Arc<Mutex<VecDeque<Answer>>>,
    requests: Arc<Mutex<Vec<String>>>,
) {
    let mut request = Vec::new();
    loop {
        while !request.ends_with(b"\r\n\r\n") {
            let Ok(byte @ 0..=255) = stream.read_u8().await else { return };
            request.push(byte);
        }
        let text = String::from_utf8_lossy(&request).to_lowercase();
        requests.lock().expect("the requests").push(text);
        request.clear();
        let answer = {
            let mut script = script.lock().expect("a script");
            if script.len() > 1 { script.pop_front() } else { script.front().cloned() }
        };
        match answer {
            Some(Answer::Bytes(bytes)) => {
                let whole = bytes.windows(15).any(|window| window == b"content-length:");
                if stream.write_all(&bytes).await.is_err() || !whole {
                    return;
                }
            }
            Some(Answer::Stall(bytes)) => {
                let _ = stream.write_all(&bytes).await;
                // Until the client closes the connection.
                let _ = stream.read_u8().await;
                return;
            }
            Some(Answer::Flood(chunk)) => {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
                while stream.write_all(&chunk).await.is_ok() {}
                return;
            }
            None => return,
        }
    }
}

fn config(url: &str) -> HttpConfig {
    HttpConfig::new(url).expect("a good URL").period(OFTEN)
}

fn source(config: HttpConfig) -> HttpSource {
    HttpSource::new(config, NodeName::new("n1")).expect("a source")
}

async fn next(source: &mut HttpSource) -> Vec<Arc<Pod>> {
    let update = tokio::time::timeout(DEADLINE, source.next()).await.expect("an update in time");
    let Some(SourceUpdate::Set(pods)) = update else { panic!("{update:?} is not a set") };
    pods
}

fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
    pods.iter().map(PodMeta::name).collect()
}

/// Polls until the status is as wanted; no update may come.
async fn until_status(source: &mut HttpSource, wanted: impl FnMut(&SourceStatus) -> bool) -> SourceStatus {
    let mut status = source.status();
    tokio::select! {
        update = source.next() => panic!("an update where none was due: {update:?}"),
        status = tokio::time::timeout(DEADLINE, status.wait_for(wanted)) => {
            status.expect("that status in time").expect("a living source").clone()
        }
    }
}

/// Polls until there is a problem, and returns it; no update may come.
async fn problem(source: &mut HttpSource) -> String {
    let status = until_status(source, |status| !status.problems.is_empty()).await;
    status.problems[0].message().to_owned()
}

#[tokio::test]
async fn pods_and_lists_in_yaml_and_json_are_served_whatever_they_are_called() {
    let item = r#"{"metadata":{"name":"%"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    let list = format!(
        r#"{{"apiVersion":"v1","kind":"PodList","items":[{},{}]}}"#,
        item.replace('%', "a"),
        item.replace('%', "b")
    );
    let yaml = answer("200 OK", "content-type: image/png\r\n", &manifest("web"));
    let server =
        Server::start([yaml, ok(&list), ok(&format!("{}---\n{}", manifest("d"), manifest("e")))]).await;
    let mut source = source(config(&server.url("/pods")));
    let pods = next(&mut source).await;
    assert_eq!(names(&pods), ["web-n1"]);
    assert_eq!(pods[0].annotation("kubernetes.io/config.source"), Some("http"));
    assert_eq!(names(&next(&mut source).await), ["a-n1", "b-n1"]);
    assert_eq!(names(&next(&mut source).await), ["d-n1", "e-n1"]);
    let status = source.status().borrow().clone();
    assert_eq!((status.pods, status.updates, status.problems.len()), (2, 3, 0));
}

#[tokio::test]
async fn the_configured_headers_are_sent() {
    let server = Server::start([ok(&manifest("web"))]).await;
    let config = config(&server.url("/pods?node=n1"))
        .header("Authorization", "Bearer secret")
        .and_then(|config| config.header("X-Many", "1"))
        .and_then(|config| config.header("X-Many", "2"))
        .expect("good headers");
    assert!(!format!("{config:?}").contains("secret"));
    let mut source = source(config);
    next(&mut source).await;
    let request = server.requests().remove(0);
    assert!(request.starts_with("get /pods?node=n1 http/1.1\r\n"), "{request}");
    for header in ["authorization: bearer secret", "x-many: 1", "x-many: 2", "user-agent: pod-index/"] {
        assert!(request.contains(header), "{header} in {request}");
    }
}

#[tokio::test]
async fn unchanged_bytes_are_not_emitted_again_and_unchanged_pods_stay_the_same() {
    let both = |image: &str| format!("{}---\n{}", manifest("a"), manifest("b").replace("image: i", image));
    let server = Server::start([ok(&both("image: one"))]).await;
    let mut source = source(config(&server.url("/")));
    let first = next(&mut source).await;
    until_status(&mut source, |status| status.checks > 3).await;
    server.then(ok(&format!("# news\n{}", both("image: one"))));
    let checks = source.status().borrow().checks;
    until_status(&mut source, |status| status.checks > checks + 2).await;
    server.then(ok(&both("image: two")));
    let second = next(&mut source).await;
    assert!(Arc::ptr_eq(&first[0], &second[0]));
    assert!(!Arc::ptr_eq(&first[1], &second[1]));
}

#[tokio::test]
async fn every_failure_keeps_the_pods_and_says_why() {
    let good = ok(&manifest("web"));
    let server = Server::start([good.clone()]).await;
    let config = config(&server.url("/")).timeout(Duration::from_millis(300));
    let mut source = source(config);
    let first = next(&mut source).await;
    let raw = |bytes: &str| Answer::Bytes(bytes.as_bytes().to_vec());
    let list = "{apiVersion: v1, kind: PodList, items: [{metadata: {name: good}, spec: {containers: [{name: c, image: i}]}}, {metadata: {name: BAD}, spec: {containers: [{name: c, image: i}]}}]}";
    let manifest_head = format!("HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n{}", manifest("cut"));
    for (bad, wanted) in [
        (answer("404 Not Found", "", &manifest("other")), "answered 404 Not Found"),
        (answer("204 No Content", "", ""), "answered 204 No Content"),
        (answer("206 Partial Content", "", &manifest("other")), "answered 206 Partial Content"),
        (answer("500 Internal Server Error", "", ""), "answered 500 Internal Server Error"),
        (ok(""), "answered with nothing"),
        (ok("<html>sign in</html>"), "expected a mapping"),
        (ok("kind: ["), ""),
        (ok(list), "\"BAD-n1\": must consist of"),
        (ok(&manifest("web").replace("kind: Pod", "kind: Node")), "must be Pod, not Node"),
        (raw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nkin"), "the answer was cut off"),
        (answer("304 Not Modified", "", ""), "answered 304 Not Modified"),
        (answer("302 Found", "", ""), "answered 302 Found"),
        (redirect("307 Temporary Redirect", "/again"), "a redirect to \"/again\", which is not followed"),
        (raw("HTTP/1.1 200 OK\r\n"), "client error"),
        (raw("what?\r\n\r\n"), "client error"),
        (Answer::Stall(b"HTTP/1.1 200 OK\r\ncontent-len".to_vec()), "no complete answer within 300ms"),
        (Answer::Stall(manifest_head.into_bytes()), "no complete answer within 300ms"),
        (Answer::Stall(Vec::new()), "no complete answer within 300ms"),
    ] {
        server.then(bad);
        let wrong =
            |status: &SourceStatus| status.problems.iter().any(|problem| problem.message().contains(wanted));
        let checks = until_status(&mut source, wrong).await.checks;
        // The problem stays as long as the answer does.
        let status = until_status(&mut source, |status| status.checks > checks + 1).await;
        assert!(wrong(&status), "{wanted:?} is not among {:?}", status.problems);
        assert_eq!(status.pods, 1);
        // Good again and unchanged: no update.
        server.then(good.clone());
        until_status(&mut source, |status| status.problems.is_empty()).await;
    }
    server.then(ok(&format!("{}---\n{}", manifest("web"), manifest("more"))));
    let pods = next(&mut source).await;
    assert_eq!(names(&pods), ["web-n1", "more-n1"]);
    assert!(Arc::ptr_eq(&first[0], &pods[0]));
}

#[tokio::test]
async fn a_body_is_bounded_whether_its_length_is_announced_or_not() {
    let large = 10 * 1024 * 1024 + 1;
    let announced = format!("HTTP/1.1 200 OK\r\ncontent-length: {large}\r\n\r\n");
    let mut chunk = b"1000\r\n".to_vec();
    chunk.extend([b'#'; 0x1000]);
    chunk.extend(b"\r\n");
    let server = Server::start([Answer::Stall(announced.into_bytes()), Answer::Flood(chunk)]).await;
    let mut source = source(config(&server.url("/")).timeout(DEADLINE));
    let limit = "answered with more than the limit of 10485760 bytes";
    let status = until_status(&mut source, |status| status.checks == 2).await;
    assert_eq!(status.problems[0].message(), limit);
    assert_eq!(status.failed_checks, 2);
    let limit = ok(&format!("{}#{}", manifest("web"), "x".repeat(large - 2 - manifest("web").len())));
    server.then(limit);
    assert_eq!(names(&next(&mut source).await), ["web-n1"]);
}

#[tokio::test]
async fn connections_that_break_are_survived() {
    let server = Server::start([
        Answer::Bytes(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nkind:".to_vec()),
        Answer::Bytes(Vec::new()),
        ok(&manifest("web")),
    ])
    .await;
    let mut source = source(config(&server.url("/")));
    assert_eq!(names(&next(&mut source).await), ["web-n1"]);
    assert_eq!(source.status().borrow().failed_checks, 2);
}

#[tokio::test]
async fn a_server_that_is_not_there_yet_is_found_when_it_comes() {
    let port = Port::new();
    let mut source = source(config(&format!("http://{}/", port.address())));
    let message = problem(&mut source).await;
    assert!(message.contains("refused"), "{message}");
    assert!(!source.status().borrow().seen);
    let listener = TcpListener::bind(port.address()).await.expect("the same port");
    let script = Arc::new(Mutex::new(VecDeque::from([ok(&manifest("web"))])));
    let server = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&script), Arc::default()));
        }
    });
    assert_eq!(names(&next(&mut source).await), ["web-n1"]);
    server.abort();
}

#[tokio::test]
async fn nothing_at_all_is_an_error_that_marks_a_silent_source_seen() {
    let server = Server::start([ok("")]).await;
    let mut source = source(config(&server.url("/")));
    assert_eq!(next(&mut source).await.len(), 0);
    let status = until_status(&mut source, |status| status.checks > 2).await;
    assert!(status.seen);
    assert_eq!((status.updates, status.problems[0].kind()), (1, ProblemKind::Request));
}

#[tokio::test]
async fn configured_headers_are_sent_and_a_redirect_is_not_followed() {
    let other = Server::start([ok(&manifest("web"))]).await;
    let server = Server::start([redirect("302 Found", &other.url("/there?token=secret"))]).await;
    let config = config(&server.url("/first/"))
        .header("Authorization", "Bearer secret")
        .and_then(|config| config.header("X-Mine", "yes"))
        .expect("good headers");
    let message = problem(&mut source(config)).await;
    let target = other.url("/there");
    assert_eq!(message, format!("answered 302 Found, a redirect to {target:?}, which is not followed"));
    let asked = server.requests().remove(0);
    assert!(asked.contains("authorization: bearer secret") && asked.contains("x-mine: yes"), "{asked}");
    assert!(asked.contains("user-agent: pod-index/"), "{asked}");
    assert_eq!(other.requests(), [""; 0]);
}

#[test]
fn bad_configuration_is_refused_by_its_field() {
    for url in [
        "",
        "/pods",
        "example.com",
        "ftp://example.com/",
        "http://",
        "http:///x",
        "http://u:p@example.com/",
        "http://a b/",
    ] {
        let problem = HttpConfig::new(url).expect_err(url);
        assert_eq!((problem.kind(), problem.field()), (ProblemKind::Invalid, Some("staticPodURL")), "{url}");
        assert!(!problem.to_string().contains("u:p"), "{problem}");
    }
    let config = || HttpConfig::new("https://example.com/").expect("a good URL");
    for (name, value) in [("", "x"), ("a b", "x"), ("a", "secret\n"), ("a\u{e9}", "x")] {
        let problem = config().header(name, value).expect_err(name);
        assert_eq!(problem.field(), Some("staticPodURLHeader"));
        assert!(!problem.to_string().contains("secret"), "{problem}");
    }
    for pem in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let problem = config().certificate_authorities(pem.as_bytes()).expect_err(pem);
        assert_eq!(problem.field(), Some("certificateAuthorities"));
    }
}

/// Serves one pod over TLS. Returns its URL and its authority's certificate in PEM.
async fn tls_server() -> (String, String) {
    tls_server_that(ok(&manifest("secure"))).await
}

/// The same with another answer.
async fn tls_server_that(answer: Answer) -> (String, String) {
    let Answer::Bytes(answer) = answer else { panic!("an answer in bytes") };
    let authority_key = rcgen::KeyPair::generate().expect("a key");
    let mut authority = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let pem = authority.self_signed(&authority_key).expect("an authority").pem();
    let authority = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()])
        .expect("parameters")
        .signed_by(&key, &authority)
        .expect("a certificate");

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
        )
        .expect("a server");
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("https://{}/", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, answer) = (acceptor.clone(), answer.clone());
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(&answer).await;
                let _ = stream.shutdown().await;
            });
        }
    });
    (url, pem)
}

/// An authority that has signed nothing here.
fn another_authority() -> String {
    rcgen::generate_simple_self_signed(vec!["other".to_owned()]).expect("a certificate").cert.pem()
}

#[tokio::test]
async fn tls_trusts_the_given_authority_and_no_other() {
    let (url, pem) = tls_server().await;
    let trusting = config(&url).certificate_authorities(pem.as_bytes()).expect("an authority");
    assert_eq!(names(&next(&mut source(trusting)).await), ["secure-n1"]);

    let wary = config(&url).certificate_authorities(another_authority().as_bytes()).expect("an authority");
    let message = problem(&mut source(wary)).await;
    assert!(message.contains("invalid peer certificate"), "{message}");
}

/// Tells a child process which URL to request, with the system's authorities.
const ASKED: &str = "POD_INDEX_ASKED_WITH_THE_SYSTEMS_AUTHORITIES";
const THIS_TEST: &str = "without_a_given_authority_tls_trusts_the_systems_authorities";

/// The system's authorities are read from environment variables, which a test cannot change for itself alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_given_authority_tls_trusts_the_systems_authorities() {
    if let Ok(url) = std::env::var(ASKED) {
        let said = match HttpSource::new(config(&url), NodeName::new("n1")) {
            Ok(mut source) => tokio::select! {
                message = until_problem(source.status()) => message,
                pods = next(&mut source) => format!("{:?}", names(&pods)),
            },
            Err(problem) => problem.to_string(),
        };
        println!("\nanswer: {said}");
        return;
    }
    let (url, pem) = tls_server().await;
    let directory = Directory::new();
    directory.write("authority.pem", pem);
    directory.write("another.pem", another_authority());
    directory.write("none.pem", "");
    for (file, expected) in [
        ("authority.pem", "answer: [\"secure-n1\"]"),
        ("another.pem", "invalid peer certificate"),
        // Without any authorities, an https source cannot start and reports it.
        ("none.pem", "certificateAuthorities: the system's cannot be read"),
    ] {
        let output = Command::new(std::env::current_exe().expect("this test"))
            .args([THIS_TEST, "--exact", "--nocapture"])
            .env(ASKED, &url)
            .env("SSL_CERT_FILE", directory.at(file))
            .env_remove("SSL_CERT_DIR")
            .output()
            .expect("a process");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{file}: {said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains(expected), "{file}: {said}");
    }
}

async fn until_problem(mut status: watch::Receiver<SourceStatus>) -> String {
    let problem = status.wait_for(|status| !status.problems.is_empty());
    let status = tokio::time::timeout(DEADLINE, problem).await.expect("a problem").expect("a living source");
    status.problems[0].message().to_owned()
}
