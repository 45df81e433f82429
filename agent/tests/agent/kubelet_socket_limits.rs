//! Clients of the Pods API that the agent serves which do not read, or hold what they have: the others are served meanwhile.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use hyper::body::Bytes;
use hyper::{HeaderMap, Request};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::metrics::value;
use crate::support::{Agent, Directory, PATIENCE, manifest, node_1};

/// gRPC's `RESOURCE_EXHAUSTED`, `NOT_FOUND` and `UNIMPLEMENTED`.
const RESOURCE_EXHAUSTED: &str = "8";
const NOT_FOUND: &str = "5";
const UNIMPLEMENTED: &str = "12";
/// How many bytes of a call its client permits the agent to send.
const UNREAD: u32 = 0;
const READ: u32 = 65_535;

/// An agent with three pods, and the socket of its Pods API.
struct Served {
    agent: Agent,
    socket: PathBuf,
    _files: Directory,
}

impl Served {
    fn with(more: &str) -> Self {
        let files = Directory::new();
        let socket = files.0.join("pods.sock");
        let manifests = files.0.join("manifests");
        std::fs::create_dir(&manifests).unwrap();
        for name in ["one", "two", "three"] {
            std::fs::write(manifests.join(format!("{name}.yaml")), manifest(name)).unwrap();
        }
        let args = format!("{} --pods-api-socket {} {more}", node_1(&manifests), socket.display());
        let agent = Agent::start(&args).ready();
        Self { agent, socket, _files: files }
    }
}

/// A connection of a client. It answers pings, whatever it reads.
struct Connection(SendRequest<Bytes>);

impl Connection {
    async fn open(socket: &Path, window: u32) -> Self {
        let stream = UnixStream::connect(socket).await.unwrap();
        let mut builder = Builder::new();
        builder.initial_window_size(window);
        let (requests, connection) = builder.handshake(stream).await.unwrap();
        tokio::spawn(connection);
        Self(requests)
    }

    /// Begins a call whose message is empty.
    async fn call(&self, method: &str) -> ResponseFuture {
        let (response, mut body) = self.call_without_message(method).await;
        body.send_data(Bytes::from_static(&[0; 5]), true).unwrap();
        response
    }

    /// Begins a call whose message does not come until it is sent on the stream.
    async fn call_without_message(&self, method: &str) -> (ResponseFuture, SendStream<Bytes>) {
        let mut requests = self.0.clone().ready().await.unwrap();
        let request = Request::post(format!("http://localhost/v1alpha1.Pods/{method}"));
        let request = request.header("content-type", "application/grpc").body(()).unwrap();
        requests.send_request(request, false).unwrap()
    }

    /// Begins a call and waits for its headers.
    async fn begin(&self, method: &str) -> RecvStream {
        let response = timeout(PATIENCE, self.call(method).await).await;
        response.unwrap_or_else(|_| panic!("{method} has no headers")).unwrap().into_body()
    }
}

/// What a call brought.
#[derive(Debug, Default)]
struct Read {
    bytes: usize,
    trailers: HeaderMap,
}

impl Read {
    fn status(&self) -> &str {
        self.trailers["grpc-status"].to_str().unwrap()
    }

    fn message(&self) -> &str {
        self.trailers["grpc-message"].to_str().unwrap()
    }
}

/// Reads the answer to its end.
async fn read(mut answer: RecvStream) -> Result<Read, h2::Error> {
    let mut read = Read::default();
    while let Some(part) = answer.data().await {
        let part = part?;
        read.bytes += part.len();
        answer.flow_control().release_capacity(part.len())?;
    }
    read.trailers = answer.trailers().await?.unwrap_or_default();
    Ok(read)
}

/// The whole answer to a call on a connection of its own.
async fn ask(socket: &Path, method: &str) -> Read {
    let asked = async { read(Connection::open(socket, READ).await.begin(method).await).await.unwrap() };
    timeout(PATIENCE, asked).await.unwrap_or_else(|_| panic!("{method} has no answer"))
}

/// The first bytes of a watch on a connection of its own: empty if it was refused.
async fn watch(socket: &Path) -> Bytes {
    let watched = async {
        let connection = Connection::open(socket, READ).await;
        connection.begin("WatchPods").await.data().await.map_or_else(Bytes::new, Result::unwrap)
    };
    timeout(PATIENCE, watched).await.expect("a watch has no answer")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_that_nobody_reads_block_no_other() {
    let served = Served::with("");
    let unread = Connection::open(&served.socket, UNREAD).await;
    let held = join_all((0..8).map(|_| unread.begin("ListPods"))).await;
    let list = ask(&served.socket, "ListPods").await;
    assert_eq!((list.status(), list.bytes > 100), ("0", true), "{list:?}");
    assert_eq!(ask(&served.socket, "GetPod").await.status(), NOT_FOUND);
    // A client whose places are all taken gets one when an answer was not read in time.
    let more = join_all((0..24).map(|_| unread.begin("ListPods"))).await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let list = ask(&served.socket, "ListPods").await;
        if list.status() == "0" {
            break;
        }
        assert_eq!(list.status(), RESOURCE_EXHAUSTED);
        assert!(Instant::now() < deadline, "the places of the unread lists are not given back");
    }
    assert_eq!(served.agent.get("/livez").code, 200);
    drop((held, more));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_nobody_uses_lock_nobody_out() {
    let served = Served::with("");
    let mut idle = Vec::new();
    for _ in 0..70 {
        idle.push(Connection::open(&served.socket, READ).await);
    }
    for method in ["GetPod", "ListPods"] {
        let answer = ask(&served.socket, method).await;
        assert_eq!(answer.status(), if method == "GetPod" { NOT_FOUND } else { "0" });
    }
    drop(idle);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_is_not_read_ends_and_gives_its_place_back() {
    let served = Served::with("--max-watches 1");
    let unread = Connection::open(&served.socket, UNREAD).await;
    let mut held = unread.begin("WatchPods").await;
    let refused = ask(&served.socket, "WatchPods").await;
    assert_eq!(refused.status(), RESOURCE_EXHAUSTED);
    assert!(refused.message().contains("--max-watches"), "{refused:?}");
    let deadline = Instant::now() + PATIENCE;
    while watch(&served.socket).await.is_empty() {
        assert!(Instant::now() < deadline, "the place of the unread watch is not given back");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let end = held.data().await.unwrap().unwrap_err();
    assert_eq!(end.reason(), Some(Reason::ENHANCE_YOUR_CALM), "clients take it for RESOURCE_EXHAUSTED");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_has_a_share_of_the_watches_and_is_told_when_it_asks_for_more() {
    let served = Served::with("--max-watches-per-client 2");
    let connection = Connection::open(&served.socket, READ).await;
    let open = join_all((0..2).map(|_| connection.begin("WatchPods"))).await;
    let refused = read(connection.begin("WatchPods").await).await.unwrap();
    assert_eq!(refused.status(), RESOURCE_EXHAUSTED);
    assert!(refused.message().contains("one client may have 2 (--max-watches-per-client)"), "{refused:?}");
    drop(open);
    let deadline = Instant::now() + PATIENCE;
    while watch(&served.socket).await.is_empty() {
        assert!(Instant::now() < deadline, "the place of a watch is not given back");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_clients_do_and_what_is_refused_is_counted() {
    let served = Served::with("--max-watches-per-client 2");
    let connection = Connection::open(&served.socket, READ).await;
    let open = join_all((0..2).map(|_| connection.begin("WatchPods"))).await;
    for (method, status) in [
        ("WatchPods", RESOURCE_EXHAUSTED),
        ("ListPods", "0"),
        ("ListPods", "0"),
        ("GetPod", NOT_FOUND),
        ("MadeUpByAClient", UNIMPLEMENTED),
    ] {
        assert_eq!(read(connection.begin(method).await).await.unwrap().status(), status, "{method}");
    }
    // A call whose message has not come is no watch yet.
    let (headers, mut message) = connection.call_without_message("WatchPods").await;
    let unasked = timeout(PATIENCE, headers).await.expect("a call has no headers").unwrap();
    let of = |metrics: &str, series: &str| value(metrics, &format!("pod_index_pods_api_{series}"));
    let metrics = served.agent.get("/metrics").body;
    for (series, expected) in [
        ("connections", 1),
        ("watches", 2),
        (r#"calls_total{method="ListPods",outcome="ok"}"#, 2),
        (r#"calls_total{method="GetPod",outcome="not_found"}"#, 1),
        (r#"calls_total{method="WatchPods",outcome="refused"}"#, 1),
        (r#"calls_total{method="other",outcome="refused"}"#, 1),
        (r#"refused_calls_total{reason="watches"}"#, 1),
        (r#"refused_calls_total{reason="unimplemented"}"#, 1),
    ] {
        assert_eq!(of(&metrics, series), expected, "{series}");
    }
    assert!(!metrics.contains("MadeUp"), "a client makes up no label");
    // Fails if the agent waits for it no longer.
    let _ = message.send_data(Bytes::from_static(&[0; 5]), true);
    read(unasked.into_body()).await.unwrap();
    drop((open, connection));
    let left = r#"calls_total{method="WatchPods",outcome="left"}"#;
    let metrics = served
        .agent
        .until("/metrics", |answer| answer.body.contains(left) && of(&answer.body, left) == 2)
        .body;
    assert_eq!(of(&metrics, "watches"), 0);
}
