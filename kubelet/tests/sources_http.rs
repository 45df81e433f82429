//! The http source against a real, badly behaved server on loopback.

use crate::http_server;
use crate::sources_support;

use std::collections::VecDeque;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_server::{Answer, Server, answer};
use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;
use pod_index_kubelet::sources::http::{self, HttpConfig};
use pod_index_kubelet::sources::{NodeName, ProblemKind, SourceStatus, Updates};
use pod_index_test_support::port::Port;
use sources_support::{DEADLINE, Directory, manifest, names, next, problem, until_status};
use tokio::sync::watch;

const OFTEN: Duration = Duration::from_millis(5);

fn ok(body: &str) -> Answer {
    answer("200 OK", "", body)
}

fn redirect(status: &str, location: &str) -> Answer {
    answer(status, &format!("location: {location}\r\n"), "")
}

/// These answers in turn; the last one for ever.
#[derive(Clone)]
struct Script(Arc<Mutex<VecDeque<Answer>>>);

impl Script {
    fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self(Arc::new(Mutex::new(answers.into_iter().collect())))
    }

    /// From now on only this one.
    fn then(&self, answer: Answer) {
        *self.0.lock().expect("a script") = [answer].into();
    }

    fn next(&self) -> Option<Answer> {
        let mut script = self.0.lock().expect("a script");
        if script.len() > 1 { script.pop_front() } else { script.front().cloned() }
    }

    async fn serve(&self) -> Server {
        let script = self.clone();
        Server::start(move |_| script.next()).await
    }
}

fn config(url: &str) -> HttpConfig {
    let mut config = HttpConfig::new(url).expect("a good URL");
    config.period = OFTEN;
    config
}

fn source(config: HttpConfig) -> Updates<Pod> {
    http::follow(config, NodeName::new("n1")).expect("a source")
}

/// The number of this process's threads with this name.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads").map_while(Result::ok);
    let name_of = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    tasks.filter_map(|task| name_of(task).ok()).filter(|of_task| of_task.trim_end() == name).count()
}

/// The mount that it is on hangs. No other test here has such a file, so every thread of this name is this source's.
#[tokio::test]
async fn a_token_file_that_hangs_keeps_one_thread_however_often_it_is_read() {
    let directory = Directory::new();
    let token = directory.at("token");
    nix::unistd::mkfifo(&token, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let server = Script::new([ok(&manifest("web"))]).serve().await;
    let mut config = config(&server.url("/pods"));
    config.token_file = Some(token.clone());
    config.timeout = Duration::from_millis(100);
    let mut source = source(config);
    let status = until_status(&mut source, |status| status.failed_checks >= 5).await;
    assert!(status.problems[0].message.contains("no answer within 100ms"), "{status:?}");
    assert_eq!(threads("source-url"), 1);
    assert_eq!(server.requests().len(), 0, "none without the token");

    // The read that hangs ends with what is in the pipe. Those after it read a file.
    let mut pipe = std::fs::File::options().write(true).open(&token).expect("the pipe");
    directory.write("new", "secret");
    std::fs::rename(directory.at("new"), &token).expect("renamed");
    std::io::Write::write_all(&mut pipe, b"secret").expect("the source reads the pipe");
    drop(pipe);
    assert_eq!(names(&next(&mut source).await), ["web-n1"]);
    assert!(server.requests()[0].contains("authorization: bearer secret\r\n"));
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
    let answers = [yaml, ok(&list), ok(&format!("{}---\n{}", manifest("d"), manifest("e")))];
    let server = Script::new(answers).serve().await;
    let mut config = config(&server.url("/pods"));
    config.transform = |pod| pod.metadata.labels = Some([("is".to_owned(), "stored".to_owned())].into());
    let mut source = source(config);
    let pods = next(&mut source).await;
    assert_eq!(names(&pods), ["web-n1"]);
    assert!(pods[0].metadata.labels.is_some(), "transformed");
    assert_eq!(pods[0].annotation("kubernetes.io/config.source"), Some("http"));
    assert_eq!(names(&next(&mut source).await), ["a-n1", "b-n1"]);
    assert_eq!(names(&next(&mut source).await), ["d-n1", "e-n1"]);
    let status = source.status().borrow().clone();
    assert_eq!((status.pods, status.updates, status.problems.len()), (2, 3, 0));
    assert!(status.last_check.is_some() && status.silence().is_some(), "{status:?}");
}

#[tokio::test]
async fn unchanged_bytes_are_not_emitted_again_and_unchanged_pods_stay_the_same() {
    let both = |image: &str| format!("{}---\n{}", manifest("a"), manifest("b").replace("image: i", image));
    let script = Script::new([ok(&both("image: one"))]);
    let server = script.serve().await;
    let mut source = source(config(&server.url("/")));
    let first = next(&mut source).await;
    until_status(&mut source, |status| status.checks > 3).await;
    script.then(ok(&format!("# news\n{}", both("image: one"))));
    let checks = source.status().borrow().checks;
    until_status(&mut source, |status| status.checks > checks + 2).await;
    script.then(ok(&both("image: two")));
    let second = next(&mut source).await;
    assert!(Arc::ptr_eq(&first[0], &second[0]));
    assert!(!Arc::ptr_eq(&first[1], &second[1]));
}

#[tokio::test]
async fn every_failure_keeps_the_pods_and_says_why() {
    let good = ok(&manifest("web"));
    let script = Script::new([good.clone()]);
    let server = script.serve().await;
    let mut config = config(&server.url("/"));
    // Long enough for every answer that is not held back.
    config.timeout = Duration::from_secs(2);
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
        (raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nkind:"), "the answer was cut off"),
        (raw(""), "client error"),
        (answer("304 Not Modified", "", ""), "answered 304 Not Modified"),
        (answer("302 Found", "", ""), "answered 302 Found"),
        (redirect("307 Temporary Redirect", "/again"), "a redirect to \"/again\", which is not followed"),
        (raw("HTTP/1.1 200 OK\r\n"), "client error"),
        (raw("what?\r\n\r\n"), "client error"),
        (Answer::Stall(b"HTTP/1.1 200 OK\r\ncontent-len".to_vec()), "no complete answer within 2s"),
        (Answer::Stall(manifest_head.into_bytes()), "no complete answer within 2s"),
        (Answer::Stall(Vec::new()), "no complete answer within 2s"),
    ] {
        script.then(bad);
        let wrong =
            |status: &SourceStatus| status.problems.iter().any(|problem| problem.message.contains(wanted));
        let checks = until_status(&mut source, wrong).await.checks;
        // The problem stays as long as the answer does.
        let status = until_status(&mut source, |status| status.checks > checks + 1).await;
        assert!(wrong(&status), "{wanted:?} is not among {:?}", status.problems);
        assert_eq!(status.pods, 1);
        // Good again and unchanged: no update.
        script.then(good.clone());
        until_status(&mut source, |status| status.problems.is_empty()).await;
    }
    script.then(ok(&format!("{}---\n{}", manifest("web"), manifest("more"))));
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
    let script = Script::new([Answer::Stall(announced.into_bytes()), Answer::Flood(chunk)]);
    let server = script.serve().await;
    let mut config = config(&server.url("/"));
    config.timeout = DEADLINE;
    let mut source = source(config);
    let limit = "answered with more than the limit of 10485760 bytes";
    let status = until_status(&mut source, |status| status.checks == 2).await;
    assert_eq!(status.problems[0].message, limit);
    assert_eq!(status.failed_checks, 2);
    let limit = ok(&format!("{}#{}", manifest("web"), "x".repeat(large - 2 - manifest("web").len())));
    script.then(limit);
    assert_eq!(names(&next(&mut source).await), ["web-n1"]);
}

#[tokio::test]
async fn a_server_that_is_not_there_yet_is_found_when_it_comes() {
    let port = Port::new();
    let mut source = source(config(&format!("http://{}/", port.address())));
    let message = problem(&mut source).await.message;
    assert!(message.contains("refused"), "{message}");
    assert!(!source.status().borrow().seen);
    let _server = Server::on(port.address(), None, |_| Some(ok(&manifest("web")))).await;
    assert_eq!(names(&next(&mut source).await), ["web-n1"]);
}

#[tokio::test]
async fn nothing_at_all_is_an_error_that_marks_a_silent_source_seen() {
    let server = Script::new([ok("")]).serve().await;
    let mut source = source(config(&server.url("/")));
    assert_eq!(next(&mut source).await.len(), 0);
    let status = until_status(&mut source, |status| status.checks > 2).await;
    assert!(status.seen);
    assert_eq!((status.updates, status.problems[0].kind), (1, ProblemKind::Request));
}

#[tokio::test]
async fn configured_headers_are_sent_and_a_redirect_is_not_followed() {
    let other = Script::new([ok(&manifest("web"))]).serve().await;
    let server = Script::new([redirect("302 Found", &other.url("/there?token=secret"))]).serve().await;
    let config = config(&server.url("/pods?node=n1"))
        .header("Authorization", "Bearer secret")
        .and_then(|config| config.header("X-Many", "1"))
        .and_then(|config| config.header("X-Many", "2"))
        .expect("good headers");
    assert!(!format!("{config:?}").contains("secret"));
    let message = problem(&mut source(config)).await.message;
    let target = other.url("/there");
    assert_eq!(message, format!("answered 302 Found, a redirect to {target:?}, which is not followed"));
    let asked = server.requests().remove(0);
    assert!(asked.starts_with("get /pods?node=n1 http/1.1\r\n"), "{asked}");
    for header in ["authorization: bearer secret", "x-many: 1", "x-many: 2", "user-agent: pod-index/"] {
        assert!(asked.contains(header), "{header} in {asked}");
    }
    assert_eq!(other.requests(), [""; 0]);
}

#[test]
fn bad_configuration_is_refused_by_its_field() {
    let urls = ",/pods,example.com,ftp://example.com/,http://,http:///x,http://u:p@example.com/,http://a b/";
    for url in urls.split(',') {
        let problem = HttpConfig::new(url).expect_err(url);
        assert_eq!(
            (problem.kind, problem.field.as_deref()),
            (ProblemKind::Invalid, Some("staticPodURL")),
            "{url}"
        );
        assert!(!problem.to_string().contains("u:p"), "{problem}");
    }
    let config = || HttpConfig::new("https://example.com/").expect("a good URL");
    for (name, value) in [("", "x"), ("a b", "x"), ("a", "secret\n"), ("a\u{e9}", "x")] {
        let problem = config().header(name, value).expect_err(name);
        assert_eq!(problem.field.as_deref(), Some("staticPodURLHeader"));
        assert!(!problem.to_string().contains("secret"), "{problem}");
    }
    for pem in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let problem = config().certificate_authorities(pem.as_bytes()).expect_err(pem);
        assert_eq!(problem.field.as_deref(), Some("certificateAuthorities"));
    }
}

/// Serves one pod over TLS.
async fn tls_server() -> Server {
    Server::start_with_tls(|_| Some(ok(&manifest("secure")))).await
}

/// An authority that has signed nothing here.
fn another_authority() -> String {
    rcgen::generate_simple_self_signed(vec!["other".to_owned()]).expect("a certificate").cert.pem()
}

#[tokio::test]
async fn tls_trusts_the_given_authority_and_no_other() {
    let server = tls_server().await;
    let (url, pem) = (server.url("/"), &server.authority);
    let trusting = config(&url).certificate_authorities(pem.as_bytes()).expect("an authority");
    assert_eq!(names(&next(&mut source(trusting)).await), ["secure-n1"]);

    let wary = config(&url).certificate_authorities(another_authority().as_bytes()).expect("an authority");
    let message = problem(&mut source(wary)).await.message;
    assert!(message.contains("invalid peer certificate"), "{message}");
}

/// Tells a child process which URL to request, with the system's authorities.
const ASKED: &str = "POD_INDEX_ASKED_WITH_THE_SYSTEMS_AUTHORITIES";
const THIS_TEST: &str = "sources_http::without_a_given_authority_tls_trusts_the_systems_authorities";

/// The system's authorities are read from environment variables, which a test cannot change for itself alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_given_authority_tls_trusts_the_systems_authorities() {
    if let Ok(url) = std::env::var(ASKED) {
        let said = match http::follow(config(&url), NodeName::new("n1")) {
            Ok(mut source) => tokio::select! {
                message = until_problem(source.status()) => message,
                pods = next(&mut source) => format!("{:?}", names(&pods)),
            },
            Err(problem) => problem.to_string(),
        };
        println!("\nanswer: {said}");
        return;
    }
    let server = tls_server().await;
    let (url, pem) = (server.url("/"), &server.authority);
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
    status.problems[0].message.clone()
}

/// How often the body was decoded on which the source panics.
static PANICS: AtomicUsize = AtomicUsize::new(0);

#[tokio::test]
async fn a_body_on_which_the_source_panics_is_decoded_once_and_the_last_pods_stay() {
    let script = Script::new([ok(&manifest("good"))]);
    let server = script.serve().await;
    let mut config = config(&server.url("/"));
    config.transform = |pod| {
        if pod.name() == "bad-n1" {
            PANICS.fetch_add(1, Ordering::Relaxed);
            panic!("the test's panic");
        }
    };
    let mut source = source(config);
    assert_eq!(names(&next(&mut source).await), ["good-n1"]);
    script.then(ok(&manifest("bad")));
    let problem = problem(&mut source).await;
    assert_eq!(problem.kind, ProblemKind::Defect, "{problem}");
    let checks = source.status().borrow().checks;
    let status = until_status(&mut source, |status| status.checks > checks + 5).await;
    assert_eq!((status.pods, status.problems), (1, vec![problem]));
    assert_eq!(PANICS.load(Ordering::Relaxed), 1);
    script.then(ok(&manifest("better")));
    assert_eq!(names(&next(&mut source).await), ["better-n1"]);
    assert_eq!(source.status().borrow().problems, []);
}
