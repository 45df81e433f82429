//! An API server in this process, over real HTTP on loopback, with or without TLS, for the tests of the API
//! server source and of the mirror client.
//!
//! It has pods, nodes, Secrets, `ConfigMaps` and some more kinds. It supports get, list (selectors, pages,
//! versions), watch (bookmarks, streaming lists, 410 Gone, silence for a future version), create, replace,
//! delete (preconditions, grace), metadata only, and a node's restrictions. It speaks HTTP/1.1, and over TLS
//! also HTTP/2 with a real server's limit of streams per connection. Its answers equal a real one's, word for
//! word where clients depend on the words. Any request can be made to fail (see [`Fault`]), every request is
//! counted, and every write is recorded.
//!
//! ```text
//! let server = ApiServer::start().await;
//! server.put("pods", &pod);                   // as if another client had done it
//! server.fail(Verb::List, Fault::Status(500)); // the next list fails
//! let client = server.client();
//! ```
#![allow(dead_code, unreachable_pub, unused_imports, reason = "every test binary uses a part of it")]

mod admission;
mod answer;
mod connections;
mod fault;
mod handle;
mod identity;
mod list;
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
use tokio_rustls::rustls::{
    self,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

pub use fault::Fault;
pub use request::Verb;
pub use rights::{Right, shipped};
pub use store::{Key, Object, Store};
pub use write::Write;

use crate::port::Port;
use connections::Listener;
use fault::Faults;
use rights::Rights;

/// How long a test waits for something that must happen. Only a failing test waits this long.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The server. Dropping it closes the port and all connections.
pub struct ApiServer {
    shared: Arc<Shared>,
    listener: Mutex<Option<Listener>>,
    /// The remains of a closed listener.
    closing: Mutex<Option<JoinHandle<()>>>,
    port: Port,
    tls: Option<TlsAcceptor>,
}

/// State shared by the connections and the test.
struct Shared {
    state: Mutex<State>,
    /// Incremented at each change that a watch or a waiting test may want to see.
    changed: channel::Sender<u64>,
}

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
    /// How many seconds the server's clock is ahead.
    date: Option<i64>,
    /// The cache, if it is older than the store: lists of version 0 use it.
    cached: Option<(u64, store::Objects)>,
    /// How long a get or a list waits for a future version.
    future_patience: Duration,
    /// Interval of bookmarks.
    bookmark_period: Duration,
    /// Limit of streams per HTTP/2 connection.
    most_streams: u32,
    /// Number of open connections, and of all connections so far.
    open_connections: usize,
    connections: u64,
    writes: Vec<Write>,
    user_agents: BTreeSet<String>,
    /// Number of metadata-only lists that name a version.
    comparisons: u64,
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
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = identity::AnyClient(provider.signature_verification_algorithms);
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(Arc::new(clients))
            .with_single_cert(vec![certificate], key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Self::start_on(Some(Arc::new(config).into())).await
    }

    async fn start_on(tls: Option<TlsAcceptor>) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                store: Store::new(),
                faults: Faults::default(),
                restricted_to: None,
                rights: Rights::default(),
                reviews: review::Reviews::default(),
                token: None,
                certificate: None,
                date: None,
                cached: None,
                future_patience: Duration::from_secs(3),
                bookmark_period: Duration::from_secs(60),
                most_streams: 100,
                open_connections: 0,
                connections: 0,
                writes: Vec::new(),
                user_agents: BTreeSet::new(),
                comparisons: 0,
                held: false,
                reversals: 0,
                bookmarks: 0,
                expiries: 0,
                closures: 0,
                gone_as_status: false,
                ignores_fields: false,
                counts: [0; Verb::ALL.len()],
                open_watches: 0,
                open_by_object: BTreeMap::new(),
                begun_by_object: BTreeMap::new(),
            }),
            changed: channel::Sender::new(0),
        });
        let port = Port::new();
        let listener = Listener::bind(port.address(), tls.clone(), Arc::clone(&shared)).await;
        Self { shared, listener: Mutex::new(Some(listener)), closing: Mutex::default(), port, tls }
    }

    /// A client, as an agent has it. Must be called within a tokio runtime.
    pub fn client(&self) -> kube::Client {
        let url = self.url().parse().unwrap();
        kube::Client::try_from(kube::Config::new(url)).unwrap()
    }

    /// Its URL, such as `http://127.0.0.1:40123`.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls.is_some() { "https" } else { "http" }, self.port.address())
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port.address().port()
    }

    // ------------------------------------------------------------------------- changes to objects by other
    // clients

    /// Creates or replaces the object. Returns the stored version: with a UID, if it had none, and a new
    /// resource version.
    pub fn put(&self, resource: &str, object: &impl Serialize) -> Arc<Object> {
        let object = serde_json::to_value(object).unwrap();
        let stored = self.shared.lock().store.put(resource, object);
        self.shared.announce();
        stored
    }

    /// Several [`put`](Self::put)s, announced together.
    pub fn put_all(&self, resource: &str, objects: impl IntoIterator<Item = impl Serialize>) {
        let mut state = self.shared.lock();
        for object in objects {
            state.store.put(resource, serde_json::to_value(&object).unwrap());
        }
        drop(state);
        self.shared.announce();
    }

    /// Removes the object immediately, without grace.
    pub fn remove(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let removed = self.shared.lock().store.remove(&Key::new(resource, namespace, name));
        self.shared.announce();
        removed
    }

    /// The stored object.
    pub fn object(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let state = self.shared.lock();
        Some(state.store.get(&Key::new(resource, namespace, name))?.value.clone())
    }

    /// All objects of one kind, sorted by namespace and name, to compare with.
    pub fn objects(&self, resource: &str) -> Vec<Value> {
        self.shared.lock().store.all(resource).map(|object| object.value.clone()).collect()
    }

    // ------------------------------------------------------------------------------------------------------- the faults

    /// The next request of this kind that has no other fault meets this fault.
    pub fn fail(&self, verb: Verb, fault: Fault) {
        self.shared.lock().faults.next(verb, fault);
    }

    /// All requests of this kind meet this fault, until [`heal`](Self::heal).
    pub fn fail_always(&self, verb: Verb, fault: Fault) {
        self.shared.lock().faults.always(verb, fault);
    }

    /// Lists and watches ignore their field selectors.
    pub fn ignore_field_selectors(&self) {
        self.shared.lock().ignores_fields = true;
    }

    /// Removes all faults.
    pub fn heal(&self) {
        self.shared.lock().faults.clear();
    }

    /// Compacts the history: watching from an older version, or paging on, is 410 Gone. Open watches still
    /// receive all events.
    pub fn compact(&self) {
        self.shared.lock().compact();
    }

    /// Answers 410 as an HTTP status, as some servers do, instead of an event in the stream.
    pub fn gone_as_status(&self) {
        self.shared.lock().gone_as_status = true;
    }

    /// Compacts the history, and ends each open watch with a 410 Gone event.
    pub fn expire_watches(&self) {
        let mut state = self.shared.lock();
        state.compact();
        state.expiries += 1;
        drop(state);
        self.shared.announce();
    }

    /// Ends each open watch normally, as a server does at the time limit.
    pub fn close_watches(&self) {
        self.shared.lock().closures += 1;
        self.shared.announce();
    }

    /// Sends a bookmark on each open watch that requested them.
    pub fn send_bookmarks(&self) {
        self.shared.lock().bookmarks += 1;
        self.shared.announce();
    }

    /// Increases the next resource version by this much.
    pub fn jump(&self, by: u64) {
        self.shared.lock().store.jump(by);
    }

    /// A backup of everything, including resource versions.
    pub fn backup(&self) -> Store {
        self.shared.lock().store.clone()
    }

    /// Restores the backup, including versions, and cuts all connections, like a server restarted on it.
    /// Watches from a version that it has not reached yet are silent.
    pub fn restore(&self, backup: &Store) {
        let mut state = self.shared.lock();
        state.store = state.store.restored(backup);
        state.cached = None;
        drop(state);
        self.cut_connections();
        self.shared.announce();
    }

    /// Freezes the server's cache: from now on, lists and gets of version 0, and watches from it, show the
    /// current state, unless they request a later version.
    pub fn fall_behind(&self) {
        let mut state = self.shared.lock();
        state.cached = Some((state.store.version, state.store.objects.clone()));
    }

    /// The server's cache is current again.
    pub fn catch_up(&self) {
        self.shared.lock().cached = None;
    }

    /// Sets the interval of bookmarks; one minute by default.
    pub fn bookmark_every(&self, period: Duration) {
        self.shared.lock().bookmark_period = period;
    }

    /// Sets how long a get or a list waits for a future version; 3 s by default.
    pub fn wait_for_versions(&self, patience: Duration) {
        self.shared.lock().future_patience = patience;
    }

    /// Sets the limit of streams for new connections; 100 by default.
    pub fn allow_streams(&self, most: u32) {
        self.shared.lock().most_streams = most;
    }

    /// Watches send nothing until [`release`](Self::release); changes meanwhile arrive together.
    pub fn hold(&self) {
        self.shared.lock().held = true;
    }

    /// Watches send the held events.
    pub fn release(&self) {
        self.shared.lock().held = false;
        self.shared.announce();
    }

    /// Watches send the held events in reverse, which no real API server does.
    pub fn release_reversed(&self) {
        let mut state = self.shared.lock();
        state.held = false;
        state.reversals += 1;
        drop(state);
        self.shared.announce();
    }

    /// Cuts all connections at any point.
    pub fn cut_connections(&self) {
        if let Some(listener) = &*self.listener.lock().unwrap() {
            listener.cut_connections();
        }
    }

    /// Closes the port: connections are cut and new ones refused, until [`accept`](Self::accept).
    pub fn refuse(&self) {
        if let Some(listener) = self.listener.lock().unwrap().take() {
            *self.closing.lock().unwrap() = Some(listener.close());
        }
    }

    /// Opens the port again.
    pub async fn accept(&self) {
        let closing = self.closing.lock().unwrap().take();
        if let Some(closing) = closing {
            // The port is free when the task that held it has ended; it was aborted, so it ends with an
            // error.
            let _ = closing.await;
        }
        let listener = Listener::bind(self.port.address(), self.tls.clone(), Arc::clone(&self.shared)).await;
        *self.listener.lock().unwrap() = Some(listener);
    }

    /// Opens the port again, unless it is open.
    pub async fn accept_again(&self) {
        let is_open = self.listener.lock().unwrap().is_some();
        if !is_open {
            self.accept().await;
        }
    }

    /// All requests come from this node and have a node's restrictions.
    pub fn restrict_to_node(&self, node: &str) {
        self.shared.lock().restricted_to = Some(node.to_owned());
    }

    /// The client has only these rights. A test in which it tries more fails at the end, even if the client
    /// handled the refusal.
    pub fn grant(&self, rights: BTreeSet<Right>) {
        self.shared.lock().rights.grant(rights);
    }

    /// Requests without this token are refused.
    pub fn demand_token(&self, token: &str) {
        self.shared.lock().token = Some(token.to_owned());
    }

    /// Requests on connections without this client certificate, in PEM, are refused. Open connections and watches
    /// stay open.
    pub fn demand_certificate(&self, pem: &str) {
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        self.shared.lock().certificate = Some(certificate);
    }

    /// The server's clock is this many seconds ahead of the machine's.
    pub fn set_clock_ahead(&self, seconds: i64) {
        self.shared.lock().date = Some(seconds);
    }

    /// All kinds of requests made so far.
    pub fn asked(&self) -> BTreeSet<Right> {
        self.shared.lock().rights.asked.clone()
    }

    // ------------------------------------------------------------------------------------------------------- the counts

    /// Number of requests of this kind.
    pub fn requests(&self, verb: Verb) -> u64 {
        self.shared.lock().counts[verb as usize]
    }

    /// Number of open connections.
    pub fn open_connections(&self) -> usize {
        self.shared.lock().open_connections
    }

    /// Number of connections opened so far.
    pub fn connections(&self) -> u64 {
        self.shared.lock().connections
    }

    /// All writes in order, including refused ones.
    pub fn written(&self) -> Vec<Write> {
        self.shared.lock().writes.clone()
    }

    /// The clients' `User-Agent`s.
    pub fn user_agents(&self) -> BTreeSet<String> {
        self.shared.lock().user_agents.clone()
    }

    /// Number of metadata-only lists that named a version: those of a client that compares.
    pub fn comparisons(&self) -> u64 {
        self.shared.lock().comparisons
    }

    /// Number of write requests.
    pub fn writes(&self) -> u64 {
        self.requests(Verb::Create) + self.requests(Verb::Replace) + self.requests(Verb::Delete)
    }

    /// Number of open watches.
    pub fn open_watches(&self) -> usize {
        self.shared.lock().open_watches
    }

    /// Number of open watches on each object watched by name; the others are under an empty name.
    pub fn open_watches_by_object(&self) -> BTreeMap<Key, usize> {
        self.shared.lock().open_by_object.clone()
    }

    /// Number of watches opened so far, grouped likewise.
    pub fn begun_watches_by_object(&self) -> BTreeMap<Key, u64> {
        self.shared.lock().begun_by_object.clone()
    }

    /// Waits for this many requests of this kind.
    pub async fn seen(&self, verb: Verb, count: u64) {
        self.until(&format!("{count} of {verb:?}"), |server| server.requests(verb) >= count).await;
    }

    /// Waits for this many open watches.
    pub async fn watched_by(&self, watches: usize) {
        self.until(&format!("{watches} open watches"), |server| server.open_watches() == watches).await;
    }

    /// Waits until this holds. Checked at each change.
    pub async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let mut changes = self.shared.changed.subscribe();
        let wait = async {
            while !holds(self) {
                changes.changed().await.unwrap();
            }
        };
        assert!(tokio::time::timeout(DEADLINE, wait).await.is_ok(), "never came: {what}");
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.shared.lock().rights.refused, BTreeSet::new(), "asked for and not granted");
        }
    }
}
