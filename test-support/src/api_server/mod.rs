//! An API server in this process, over real HTTP on loopback, with or without TLS, for the tests of the API
//! server source and of the mirror client.
//!
//! It has pods, nodes, Secrets, `ConfigMaps` and some more kinds. It supports get, list (selectors, pages,
//! versions), watch (bookmarks, streaming lists, 410 Gone, silence for a future version), create, replace,
//! delete (preconditions, grace), metadata only, and a node's restrictions. It speaks JSON, of pods also protobuf, over HTTP/1.1, and over TLS
//! also HTTP/2 with a real server's limit of streams per connection. Its answers equal a real one's, word for
//! word where clients depend on the words. Any request can be made to fail (see [`Fault`]), every request is
//! counted, and every write is recorded.
//!
//! What no test needs is missing: PATCH, most defaults of pods, and the life cycle of namespaces. Of that, only the
//! refusal to create an object in a namespace in the phase `Terminating` is here; a deleted Namespace goes at once and
//! leaves its objects behind.
//!
//! ```text
//! let server = ApiServer::start().await;
//! server.put("pods", &pod);                   // as if another client had done it
//! server.fail(Verb::List, Fault::Status(500)); // the next list fails
//! let client = server.client();
//! ```
#![allow(dead_code, unreachable_pub, unused_imports, reason = "every test binary uses a part of it")]

mod accept;
mod admission;
mod answer;
mod changes;
mod connections;
mod counts;
mod fault;
mod faults;
mod handle;
mod identity;
mod list;
mod protobuf;
mod request;
mod review;
mod rights;
mod selector;
mod store;
mod watch;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch as channel;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::CertificateDer;

pub use fault::Fault;
pub use protobuf::EncodePod;
use protobuf::Protobuf;
pub use request::Verb;
pub use rights::{Right, shipped};
pub use store::{Key, Object, Store};
pub use write::Write;

use crate::certificate::Certificate;
use crate::port::Port;
use connections::Listener;
use fault::Faults;
use rights::Rights;

/// How long a test waits for something that must happen. Only a failing test waits this long.
pub const DEADLINE: Duration = Duration::from_secs(300);

/// The server. Dropping it closes the port and all connections.
pub struct ApiServer {
    shared: Arc<Shared>,
    listener: Mutex<Option<Listener>>,
    /// The remains of a closed listener.
    closing: Mutex<Option<JoinHandle<()>>>,
    port: Port,
    tls: Option<TlsAcceptor>,
    /// Of a server with TLS.
    certificate: Option<Arc<Certificate>>,
}

/// State shared by the connections and the test.
struct Shared {
    state: Mutex<State>,
    /// Incremented at each change that a watch or a waiting test may want to see.
    changed: channel::Sender<u64>,
}

/// How often the server's etcd tells it of its version although nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum ProgressNotices {
    /// Before each bookmark, as an etcd of kubeadm does.
    #[default]
    Frequent,
    /// Not during a test, as an etcd by default.
    Rare,
}

#[derive(Default)]
struct State {
    store: Store,
    faults: Faults,
    /// The node that the client acts as, under `NodeRestriction`.
    restricted_to: Option<String>,
    rights: Rights,
    reviews: review::Reviews,
    /// Requests without this token are unauthorized.
    token: Option<String>,
    /// Requests on connections without this client certificate are unauthorized.
    certificate: Option<CertificateDer<'static>>,
    /// The cache, if it is older than the store: lists of version 0 use it.
    cached: Option<(u64, store::Objects)>,
    /// How long a get or a list waits for a future version.
    future_patience: Duration,
    /// Interval of bookmarks.
    bookmark_period: Duration,
    progress_notices: ProgressNotices,
    /// Number of open connections, and of all connections so far.
    open_connections: usize,
    connections: u64,
    writes: Vec<Write>,
    user_agents: BTreeSet<String>,
    unparsed: Vec<String>,
    /// Number of metadata-only lists that name a version.
    comparisons: u64,
    /// The version that each other list names.
    listed_versions: Vec<Option<u64>>,
    /// While this is set, watches send nothing.
    held: bool,
    /// After a hold, each watch sends its first batch in reverse.
    reversals: u64,
    /// Incremented to make every open watch send a bookmark or a 410, or end.
    bookmarks: u64,
    expiries: u64,
    closures: u64,
    /// A version that is too old is answered with HTTP status 410 instead of an event.
    gone_as_status: bool,
    /// The reason of 410: `Expired` or `Gone`.
    gone: &'static str,
    /// Encodes pods, if this server speaks protobuf.
    protobuf: Option<Protobuf>,
    answers_in_protobuf: u64,
    /// Field selectors are ignored.
    ignores_fields: bool,
    counts: [u64; Verb::ALL.len()],
    open_watches: usize,
    /// Number of open watches, and of all watches so far, per object; other watches are under an empty name.
    open_by_object: BTreeMap<Key, usize>,
    begun_by_object: BTreeMap<Key, u64>,
}

impl State {
    /// The client's user.
    fn user(&self) -> String {
        self.restricted_to.as_ref().map_or_else(|| "test".to_owned(), |node| format!("system:node:{node}"))
    }

    /// An error that a test requested.
    fn planted(&self, code: u16) -> answer::Refusal {
        answer::Refusal::of_code(code, self.gone)
    }

    fn compact(&mut self) {
        self.store.compact(self.held);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn announce(&self) {
        self.changed.send_modify(|count| *count += 1);
    }
}

impl ApiServer {
    /// An empty server on a free port.
    pub async fn start() -> Self {
        Self::start_on(None).await
    }

    /// The same over TLS, with this certificate and key in PEM. Uses HTTP/2 if the client supports it.
    pub async fn start_with_tls(certificate: &str, key: &str) -> Self {
        Self::start_with(certificate, key, &[b"h2", b"http/1.1"]).await
    }

    /// The same without HTTP/2.
    pub async fn start_with_tls_http1(certificate: &str, key: &str) -> Self {
        Self::start_with(certificate, key, &[]).await
    }

    async fn start_with(certificate: &str, key: &str, protocols: &[&[u8]]) -> Self {
        let certificate = Certificate::new(certificate, key);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = identity::AnyClient(provider.signature_verification_algorithms);
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(Arc::new(clients))
            .with_cert_resolver(Arc::clone(&certificate) as _);
        Certificate::forget_sessions(&mut config);
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let mut server = Self::start_on(Some(Arc::new(config).into())).await;
        server.certificate = Some(certificate);
        server
    }

    /// Replaces the certificate of a server with TLS. Open connections stay.
    pub fn set_certificate(&self, certificate: &str, key: &str) {
        self.certificate.as_ref().expect("a server with TLS").replace(certificate, key);
    }

    async fn start_on(tls: Option<TlsAcceptor>) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                store: Store::new(),
                future_patience: Duration::from_secs(3),
                bookmark_period: Duration::from_secs(60),
                gone: "Expired",
                ..State::default()
            }),
            changed: channel::Sender::new(0),
        });
        let port = Port::new();
        let listener = Listener::bind(&port, tls.clone(), Arc::clone(&shared)).await;
        Self {
            shared,
            listener: Mutex::new(Some(listener)),
            closing: Mutex::default(),
            port,
            tls,
            certificate: None,
        }
    }

    /// A client that repeats no request by itself, as an agent has it. Must be called within a tokio runtime.
    pub fn client(&self) -> kube::Client {
        let mut config = kube::Config::new(self.url().parse().unwrap());
        config.default_retry = false;
        kube::Client::try_from(config).unwrap()
    }

    /// Its URL, such as `http://127.0.0.1:40123`.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls.is_some() { "https" } else { "http" }, self.port.address())
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port.address().port()
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.shared.lock().rights.refused, BTreeSet::new(), "asked for and not granted");
        }
    }
}
