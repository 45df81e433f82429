//! The kubelet as a source, against an HTTPS server on loopback that answers like a kubelet.

mod sources_support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use pod_index::{PodMeta, is_static_pod};
use pod_index_kubelet::sources::http::HttpConfig;
use pod_index_kubelet::sources::kubelet::KubeletSource;
use pod_index_kubelet::sources::{Merge, Nudge, Problem, ProblemKind, Source, SourceUpdate};
use serde_json::{Value, json};
use sources_support::Directory;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Only a hang takes this long.
const DEADLINE: Duration = Duration::from_secs(60);

/// A kubelet's answer to a client with the token.
struct Kubelet {
    url: String,
    /// Its own authority, in PEM.
    authority: String,
    token: Mutex<String>,
    body: Mutex<String>,
    asked: Mutex<Vec<String>>,
}

impl Kubelet {
    async fn start(token: &str, body: &Value) -> Arc<Self> {
        let certified =
            rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(
                vec![certified.cert.der().clone()],
                rustls::pki_types::PrivateKeyDer::try_from(certified.signing_key.serialize_der())
                    .expect("a key"),
            )
            .expect("a server");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let kubelet = Arc::new(Self {
            url: format!("https://{}", listener.local_addr().expect("an address")),
            authority: certified.cert.pem(),
            token: Mutex::new(token.to_owned()),
            body: Mutex::new(body.to_string()),
            asked: Mutex::default(),
        });
        let serving = Arc::clone(&kubelet);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&serving).serve(stream, acceptor.clone()));
            }
        });
        kubelet
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, acceptor: TlsAcceptor) {
        let Ok(mut stream) = acceptor.accept(stream).await else { return };
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let Ok(byte) = stream.read_u8().await else { return };
            request.push(byte);
        }
        let request = String::from_utf8_lossy(&request).into_owned();
        let wanted = format!("authorization: Bearer {}\r\n", self.token.lock().expect("a token"));
        let (status, body) = if request.contains(&wanted) {
            ("200 OK", self.body.lock().expect("a body").clone())
        } else {
            ("401 Unauthorized", "Unauthorized".to_owned())
        };
        self.asked.lock().expect("the requests").push(request.lines().next().unwrap_or_default().to_owned());
        let head =
            format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        let _ = stream.write_all((head + &body).as_bytes()).await;
        let _ = stream.shutdown().await;
    }

    fn answers(&self, body: &Value) {
        *self.body.lock().expect("a body") = body.to_string();
    }

    fn config(&self, token: &Directory) -> HttpConfig {
        let config = HttpConfig::of_kubelet(&self.url).expect("a URL").token_file(&token.at("token"));
        config.period(Duration::from_millis(10))
    }

    fn trusted(&self, token: &Directory) -> KubeletSource {
        let config = self.config(token).certificate_authorities(self.authority.as_bytes());
        KubeletSource::new(config.expect("an authority")).expect("a source")
    }
}

fn token(text: &str) -> Directory {
    let directory = Directory::new();
    directory.write("token", text);
    directory
}

fn pod(uid: &str, name: &str, source: &str) -> Value {
    json!({"metadata": {"uid": uid, "name": name, "namespace": "ns", "annotations": {"kubernetes.io/config.source": source}}})
}

fn list(pods: &[Value]) -> Value {
    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods})
}

async fn next(source: &mut KubeletSource) -> Vec<Arc<Pod>> {
    match tokio::time::timeout(DEADLINE, source.next()).await.expect("an update") {
        Some(SourceUpdate::Set(pods)) => pods,
        other => panic!("{other:?}"),
    }
}

/// The source's problem while it emits nothing.
async fn problem(source: &mut KubeletSource) -> Problem {
    let mut status = source.status();
    let problem = async {
        let status = status.wait_for(|status| !status.problems.is_empty()).await.expect("a source");
        status.problems[0].clone()
    };
    tokio::time::timeout(DEADLINE, async {
        tokio::select! {
            problem = problem => problem,
            update = source.next() => panic!("{update:?}"),
        }
    })
    .await
    .expect("a problem")
}

fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
    pods.iter().map(PodMeta::name).collect()
}

#[tokio::test]
async fn the_kubelets_pods_keep_the_marks_that_it_gave_them() {
    let pods = [pod("s", "web-n1", "file"), pod("a", "api", "api")];
    let kubelet = Kubelet::start("secret", &list(&pods)).await;
    let token = token("secret\n");
    let mut source = kubelet.trusted(&token);
    let pods = next(&mut source).await;
    assert_eq!(names(&pods), ["api", "web-n1"]);
    assert_eq!(kubelet.asked.lock().expect("the requests")[0], "GET /pods HTTP/1.1");

    let mut merge = Merge::new([Source::Kubelet]);
    let merged = merge.update(Source::Kubelet, SourceUpdate::Set(pods));
    assert!(merge.all_sources_seen());
    let is_static: Vec<_> = merged.added.iter().map(|pod| is_static_pod(&**pod)).collect();
    assert_eq!(is_static, [false, true]);
}

/// Its period is an hour.
#[tokio::test]
async fn a_nudge_reads_the_kubelet_again_until_it_has_the_change() {
    let kubelet = Kubelet::start("secret", &list(&[pod("1", "one", "api")])).await;
    let token = token("secret");
    let nudge = Nudge::default();
    let config = HttpConfig::of_kubelet(&kubelet.url)
        .and_then(|config| config.certificate_authorities(kubelet.authority.as_bytes()))
        .expect("a configuration")
        .token_file(&token.at("token"))
        .period(Duration::from_secs(3600))
        .nudge(nudge.clone());
    let mut source = KubeletSource::new(config).expect("a source");
    let status = source.status();
    assert_eq!(names(&next(&mut source).await), ["one"]);
    let first = status.borrow().last_read.expect("a read");
    nudge.nudge();
    let mut checks = source.status();
    // The kubelet has the change only after the first of the reads that follow.
    let read = async { drop(checks.wait_for(|status| status.checks == 2).await) };
    tokio::time::timeout(DEADLINE, async {
        tokio::select! { () = read => {}, update = source.next() => panic!("{update:?}") }
    })
    .await
    .expect("a read");
    assert!(status.borrow().last_read > Some(first));
    kubelet.answers(&list(&[pod("2", "two", "api")]));
    assert_eq!(names(&next(&mut source).await), ["two"]);
}

#[tokio::test]
async fn another_order_is_no_change_and_unchanged_pods_stay_the_same_objects() {
    let (one, two) = (pod("1", "one", "api"), pod("2", "two", "api"));
    let kubelet = Kubelet::start("secret", &list(&[one.clone(), two.clone()])).await;
    let token = token("secret");
    let mut source = kubelet.trusted(&token);
    let first = next(&mut source).await;
    kubelet.answers(&list(&[two.clone(), one.clone()]));
    let mut status = source.status();
    let checks = status.borrow().checks;
    // Two more requests; the second ends after the first saw the new order.
    tokio::select! {
        update = source.next() => panic!("{update:?}"),
        _ = status.wait_for(|status| status.checks >= checks + 2) => {}
    }
    kubelet.answers(&list(&[two, one, pod("3", "three", "api")]));
    let second = next(&mut source).await;
    assert_eq!(names(&second), ["one", "three", "two"]);
    assert!(Arc::ptr_eq(&first[0], &second[0]));
}

#[tokio::test]
async fn a_rotated_token_is_read_again_and_never_shown() {
    let kubelet = Kubelet::start("second", &list(&[pod("1", "one", "api")])).await;
    let token = token("first");
    let mut source = kubelet.trusted(&token);
    let refused = problem(&mut source).await;
    assert_eq!((refused.kind(), refused.message()), (ProblemKind::Request, "answered 401 Unauthorized"));
    token.write("token", "second");
    assert_eq!(names(&next(&mut source).await), ["one"]);
    for (text, wrong) in [(Some("broken\u{1}token"), "it cannot be sent in a header"), (None, "No such file")]
    {
        match text {
            Some(text) => token.write("token", text),
            None => std::fs::remove_file(token.at("token")).expect("a file"),
        }
        let mut source = kubelet.trusted(&token);
        let problem = problem(&mut source).await;
        assert!(problem.message().contains(wrong) && !problem.message().contains("broken"), "{problem}");
    }
    assert!(!format!("{:?}", kubelet.config(&token)).contains("second"));
}

#[tokio::test]
async fn an_answer_that_is_not_a_list_of_pods_changes_nothing() {
    let kubelet = Kubelet::start("secret", &list(&[pod("1", "one", "api")])).await;
    let token = token("secret");
    let mut source = kubelet.trusted(&token);
    assert_eq!(next(&mut source).await.len(), 1);
    let mut mirror = pod("m", "mirror", "file");
    mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("x");
    for (body, wrong) in [
        (json!("secret text"), "the answer is not a list of pods (line 1, column 13)"),
        (json!({"kind": "Pod", "items": []}), "the answer is a \"Pod\", not a PodList"),
        (list(&[mirror]), "the pod ns/mirror is a mirror pod; no kubelet lists those"),
        // It may be any pod.
        (list(&[pod("", "two", "api")]), "is missing from the pod ns/two"),
        (list(&[json!({})]), "is missing from the pod /"),
        (list(&[json!(5)]), "is missing from the pod /"),
    ] {
        kubelet.answers(&body);
        let mut status = source.status();
        tokio::select! {
            update = source.next() => panic!("{update:?}"),
            found = status.wait_for(|status| status.problems.iter().any(|problem| problem.message() == wrong)) => {
                assert!(found.is_ok());
            }
            () = tokio::time::sleep(DEADLINE) => panic!("{:?}", source.status().borrow().problems),
        }
    }
    // A kubelet without pods.
    kubelet.answers(&json!({"kind": "PodList", "items": null}));
    assert_eq!(next(&mut source).await.len(), 0);
}

/// The problems once there are `count`.
async fn problems(source: &mut KubeletSource, count: usize) -> Vec<String> {
    let mut status = source.status();
    let found = async {
        let status = status.wait_for(|status| status.problems.len() == count).await.expect("a source");
        status.problems.iter().map(ToString::to_string).collect()
    };
    tokio::time::timeout(DEADLINE, async {
        tokio::select! {
            found = found => found,
            update = source.next() => panic!("{update:?}"),
        }
    })
    .await
    .expect("these problems")
}

#[tokio::test]
async fn a_pod_that_cannot_be_used_is_named_and_keeps_its_last_state_while_the_others_change() {
    let kubelet = Kubelet::start("secret", &list(&["1", "2", "3"].map(|uid| pod(uid, uid, "api")))).await;
    let token = token("secret");
    let mut source = kubelet.trusted(&token);
    let first = next(&mut source).await;
    assert_eq!(names(&first), ["1", "2", "3"]);

    let mut one = pod("1", "1", "api");
    one["metadata"]["labels"] = json!({"app": "web"});
    let mut undecodable = pod("2", "2", "api");
    undecodable["spec"] =
        json!({"containers": [{"name": "c", "env": [{"name": "E", "value": ["hunter2"]}]}]});
    let mut new = undecodable.clone();
    (new["metadata"]["uid"], new["metadata"]["name"]) = (json!("5"), json!("5"));
    let mut nameless = pod("6", "6", "api");
    nameless["metadata"]["name"] = json!("");
    kubelet.answers(&list(&[one, undecodable, pod("3", "3", "api"), pod("4", "4", "api"), new, nameless]));
    let mut second = next(&mut source).await;
    second.sort_by(|a, b| a.name().cmp(b.name()));
    assert_eq!(names(&second), ["1", "2", "3", "4"], "neither 5 nor 6 was ever decoded");
    assert!(!Arc::ptr_eq(&first[0], &second[0]), "1 has changed");
    assert!(Arc::ptr_eq(&first[1], &second[1]) && Arc::ptr_eq(&first[2], &second[2]));
    let said = problems(&mut source, 3).await;
    let wrong = "spec.containers[0].env[0].value: cannot be decoded: expected a string";
    let expected =
        [format!("ns/2: {wrong}"), format!("ns/5: {wrong}"), "ns/: metadata.name: is missing".to_owned()];
    assert_eq!(said, expected);
    assert_eq!(source.status().borrow().failed_checks, 0, "the looks give information");

    // 2 is gone.
    kubelet.answers(&list(&[pod("1", "1", "api"), pod("3", "3", "api")]));
    assert_eq!(names(&next(&mut source).await), ["1", "3"]);
    assert_eq!(problems(&mut source, 0).await, [""; 0]);
}

#[tokio::test]
async fn an_untrusted_certificate_is_accepted_only_if_configured() {
    let kubelet = Kubelet::start("secret", &list(&[pod("1", "one", "api")])).await;
    let token = token("secret");
    let other =
        rcgen::generate_simple_self_signed(vec!["other".to_owned()]).expect("a certificate").cert.pem();
    let wary = kubelet.config(&token).certificate_authorities(other.as_bytes()).expect("an authority");
    let mut wary = KubeletSource::new(wary).expect("a source");
    assert!(problem(&mut wary).await.message().contains("invalid peer certificate"));
    assert!(kubelet.asked.lock().expect("the requests").is_empty(), "the token was sent");
    let mut trusting = KubeletSource::new(kubelet.config(&token).insecure()).expect("a source");
    assert_eq!(names(&next(&mut trusting).await), ["one"]);
}
