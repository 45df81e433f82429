//! An API server in this process, over real HTTP on loopback, with TLS or without: what the tests of the API-server
//! source and of the mirror client talk to.
//!
//! It knows pods, nodes, Secrets, `ConfigMaps` and some more: get, list (selectors, pages, versions), watch (bookmarks,
//! streaming lists, 410 Gone, the silence of a version that has not come yet), create, replace, delete (preconditions,
//! grace), metadata only, and what a node may do. It speaks HTTP/1.1, and over TLS HTTP/2 as well, with as many streams a
//! connection as a real one allows. Its answers are those of a real one, word for word where a client looks at the words.
//! Any request can be made to fail (see [`Fault`]), every request is counted, and every write is recorded.
//!
//! ```text
//! let server = ApiServer::start().await;
//! server.put("pods", &pod);                   // as if somebody else had done it
//! server.fail(Verb::List, Fault::Status(500)); // the next list fails
//! let client = server.client();
//! ```
#![allow(dead_code, unreachable_pub, unused_imports, reason = "every test binary uses a part of it")]

mod admission;
mod answer;
mod connections;
mod fault;
mod handle;
mod list;
mod request;
mod review;
mod rights;
mod selector;
mod store;
mod watch;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
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

use connections::Listener;
use fault::Faults;
use rights::Rights;

/// How long a test waits for what must happen. Only a failing test ever waits this long.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The server. Dropping it closes the port and every connection.
pub struct ApiServer {
    shared: Arc<Shared>,
    listener: Mutex<Option<Listener>>,
    /// What is left of a listener that was told to close.
    closing: Mutex<Option<JoinHandle<()>>>,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
}

/// What the connections share with the test.
struct Shared {
    state: Mutex<State>,
    /// Counts up whenever something changed that a watch, or a waiting test, wants to look at.
    changed: channel::Sender<u64>,
}

struct State {
    store: Store,
    faults: Faults,
    /// The node that the client is, under `NodeRestriction`.
    restricted_to: Option<String>,
    rights: Rights,
    reviews: review::Reviews,
    /// Who does not bear this is nobody.
    token: Option<String>,
    /// What the server has at hand, if that is older than what it stores: a list of version 0 is answered from it.
    cached: Option<(u64, store::Objects)>,
    /// How long a get or a list of a version of the future waits for it.
    future_patience: Duration,
    /// How often a watch sends a bookmark.
    bookmark_period: Duration,
    /// How many streams an HTTP/2 connection may have.
    most_streams: u32,
    /// Connections that are open, and that ever were.
    open_connections: usize,
    connections: u64,
    writes: Vec<Write>,
    user_agents: BTreeSet<String>,
    /// Metadata-only lists that name a version.
    comparisons: u64,
    /// Watches send nothing while this is set.
    held: bool,
    /// The first thing that each watch sends after a hold comes in reverse.
    reversals: u64,
    /// Counts up: every open watch sends a bookmark, or a 410, or ends.
    bookmarks: u64,
    expiries: u64,
    closures: u64,
    /// A too old version on a watch is answered by the status 410 rather than by an event.
    gone_as_status: bool,
    /// Field selectors are not looked at.
    ignores_fields: bool,
    counts: [u64; Verb::ALL.len()],
    open_watches: usize,
    /// How many watches are open, and how many have ever been, for each object; all others are under an empty name.
    open_by_object: BTreeMap<Key, usize>,
    begun_by_object: BTreeMap<Key, u64>,
}

impl State {
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
    /// A server on a free port, with nothing in it.
    pub async fn start() -> Self {
        Self::start_on(None).await
    }

    /// The same over TLS, as who holds this certificate and this key, in PEM. By HTTP/2, if the client can.
    pub async fn start_with_tls(certificate: &str, key: &str) -> Self {
        Self::start_with(certificate, key, &[b"h2", b"http/1.1"]).await
    }

    /// The same, of a server that knows no HTTP/2.
    pub async fn start_with_tls_http1(certificate: &str, key: &str) -> Self {
        Self::start_with(certificate, key, &[]).await
    }

    async fn start_with(certificate: &str, key: &str, protocols: &[&[u8]]) -> Self {
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
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
        let listener = Listener::bind(([127, 0, 0, 1], 0).into(), tls.clone(), Arc::clone(&shared)).await;
        let address = listener.address();
        Self { shared, listener: Mutex::new(Some(listener)), closing: Mutex::default(), address, tls }
    }

    /// A client of it, as an agent has one. Must be called within a runtime, as every client must.
    pub fn client(&self) -> kube::Client {
        let url = self.url().parse().unwrap();
        kube::Client::try_from(kube::Config::new(url)).unwrap()
    }

    /// Where it listens, such as `http://127.0.0.1:40123`.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls.is_some() { "https" } else { "http" }, self.address)
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    // ------------------------------------------------------------------------- the objects, as if somebody else did it

    /// Creates or replaces the object, and returns the version of it that the server holds: with a UID, if it had none,
    /// and a new resource version.
    pub fn put(&self, resource: &str, object: &impl Serialize) -> Arc<Object> {
        let object = serde_json::to_value(object).unwrap();
        let stored = self.shared.lock().store.put(resource, object);
        self.shared.announce();
        stored
    }

    /// As many [`put`](Self::put)s, announced together.
    pub fn put_all(&self, resource: &str, objects: impl IntoIterator<Item = impl Serialize>) {
        let mut state = self.shared.lock();
        for object in objects {
            state.store.put(resource, serde_json::to_value(&object).unwrap());
        }
        drop(state);
        self.shared.announce();
    }

    /// Removes the object at once, grace or not.
    pub fn remove(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let removed = self.shared.lock().store.remove(&Key::new(resource, namespace, name));
        self.shared.announce();
        removed
    }

    /// The object as it stands.
    pub fn object(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let state = self.shared.lock();
        Some(state.store.get(&Key::new(resource, namespace, name))?.value.clone())
    }

    /// Every object of one kind, in the order of namespace and name: the truth to compare with.
    pub fn objects(&self, resource: &str) -> Vec<Value> {
        self.shared.lock().store.all(resource).map(|object| object.value.clone()).collect()
    }

    // ------------------------------------------------------------------------------------------------------- the faults

    /// The next request of this kind, for which no other fault is waiting, meets this fault.
    pub fn fail(&self, verb: Verb, fault: Fault) {
        self.shared.lock().faults.next(verb, fault);
    }

    /// Every request of this kind meets this fault, until [`heal`](Self::heal).
    pub fn fail_always(&self, verb: Verb, fault: Fault) {
        self.shared.lock().faults.always(verb, fault);
    }

    /// Lists and watches are answered as if they asked for no field.
    pub fn ignore_field_selectors(&self) {
        self.shared.lock().ignores_fields = true;
    }

    /// No more faults.
    pub fn heal(&self) {
        self.shared.lock().faults.clear();
    }

    /// The past is forgotten: to watch from an older version than now, or to page on, is 410 Gone. A watch that is open is
    /// told everything.
    pub fn compact(&self) {
        self.shared.lock().compact();
    }

    /// Says 410 by HTTP status, as some servers do, rather than by an event in the stream, as most do.
    pub fn gone_as_status(&self) {
        self.shared.lock().gone_as_status = true;
    }

    /// Compacts, and ends each open watch with the event 410 Gone.
    pub fn expire_watches(&self) {
        let mut state = self.shared.lock();
        state.compact();
        state.expiries += 1;
        drop(state);
        self.shared.announce();
    }

    /// Ends each open watch as a server does whose time limit has come: in good order.
    pub fn close_watches(&self) {
        self.shared.lock().closures += 1;
        self.shared.announce();
    }

    /// Sends a bookmark on each open watch that asked for them.
    pub fn send_bookmarks(&self) {
        self.shared.lock().bookmarks += 1;
        self.shared.announce();
    }

    /// The next resource version is this much higher.
    pub fn jump(&self, by: u64) {
        self.shared.lock().store.jump(by);
    }

    /// A backup of everything, resource versions included.
    pub fn backup(&self) -> Store {
        self.shared.lock().store.clone()
    }

    /// Goes back to the backup, versions included, and cuts every connection: the server is started anew on it. Who watches
    /// from a version that it has not reached yet is answered by silence.
    pub fn restore(&self, backup: &Store) {
        let mut state = self.shared.lock();
        state.store = state.store.restored(backup);
        state.cached = None;
        drop(state);
        self.cut_connections();
        self.shared.announce();
    }

    /// From now on a list or a get of version 0, and a watch from it, shows what there is now, as long as it asks for no
    /// later version: the server's cache is behind.
    pub fn fall_behind(&self) {
        let mut state = self.shared.lock();
        state.cached = Some((state.store.version, state.store.objects.clone()));
    }

    /// The server's cache is as new as what it stores.
    pub fn catch_up(&self) {
        self.shared.lock().cached = None;
    }

    /// How often each watch sends a bookmark; once a minute if nothing is said.
    pub fn bookmark_every(&self, period: Duration) {
        self.shared.lock().bookmark_period = period;
    }

    /// How long a get or a list of a version of the future waits for it; 3 s if nothing is said.
    pub fn wait_for_versions(&self, patience: Duration) {
        self.shared.lock().future_patience = patience;
    }

    /// How many streams a connection may have that is opened from now on; 100 if nothing is said.
    pub fn allow_streams(&self, most: u32) {
        self.shared.lock().most_streams = most;
    }

    /// Watches send nothing until [`release`](Self::release): what happens meanwhile comes in one go.
    pub fn hold(&self) {
        self.shared.lock().held = true;
    }

    /// Watches send what they held back.
    pub fn release(&self) {
        self.shared.lock().held = false;
        self.shared.announce();
    }

    /// Watches send what they held back, the last first: what no API server should do.
    pub fn release_reversed(&self) {
        let mut state = self.shared.lock();
        state.held = false;
        state.reversals += 1;
        drop(state);
        self.shared.announce();
    }

    /// Cuts every connection, in whatever it was doing.
    pub fn cut_connections(&self) {
        if let Some(listener) = &*self.listener.lock().unwrap() {
            listener.cut_connections();
        }
    }

    /// Closes the port: connections are cut, new ones refused, until [`accept`](Self::accept).
    pub fn refuse(&self) {
        if let Some(listener) = self.listener.lock().unwrap().take() {
            *self.closing.lock().unwrap() = Some(listener.close());
        }
    }

    /// Opens the port again.
    pub async fn accept(&self) {
        let closing = self.closing.lock().unwrap().take();
        if let Some(closing) = closing {
            // The port is free when the task that held it is gone: it was told to end, and ends in that error.
            let _ = closing.await;
        }
        let listener = Listener::bind(self.address, self.tls.clone(), Arc::clone(&self.shared)).await;
        *self.listener.lock().unwrap() = Some(listener);
    }

    /// Opens the port again, unless it is open.
    pub async fn accept_again(&self) {
        let is_open = self.listener.lock().unwrap().is_some();
        if !is_open {
            self.accept().await;
        }
    }

    /// Every request comes from this node, and is held to what a node may do.
    pub fn restrict_to_node(&self, node: &str) {
        self.shared.lock().restricted_to = Some(node.to_owned());
    }

    /// The client may do this and nothing else. A test in which it tries to do more fails in the end, even if the client
    /// got over it.
    pub fn grant(&self, rights: BTreeSet<Right>) {
        self.shared.lock().rights.grant(rights);
    }

    /// Who does not bear this token is not let in.
    pub fn demand_token(&self, token: &str) {
        self.shared.lock().token = Some(token.to_owned());
    }

    /// Every kind of request that was made so far.
    pub fn asked(&self) -> BTreeSet<Right> {
        self.shared.lock().rights.asked.clone()
    }

    // ------------------------------------------------------------------------------------------------------- the counts

    /// How many requests of this kind have come.
    pub fn requests(&self, verb: Verb) -> u64 {
        self.shared.lock().counts[verb as usize]
    }

    /// How many connections are open.
    pub fn open_connections(&self) -> usize {
        self.shared.lock().open_connections
    }

    /// How many connections have ever been opened.
    pub fn connections(&self) -> u64 {
        self.shared.lock().connections
    }

    /// Every write that came, in order: refused ones, too.
    pub fn written(&self) -> Vec<Write> {
        self.shared.lock().writes.clone()
    }

    /// What the clients call themselves.
    pub fn user_agents(&self) -> BTreeSet<String> {
        self.shared.lock().user_agents.clone()
    }

    /// How many of the lists asked for metadata alone, of a version that they named: who compares what it holds.
    pub fn comparisons(&self) -> u64 {
        self.shared.lock().comparisons
    }

    /// How many requests have come that write.
    pub fn writes(&self) -> u64 {
        self.requests(Verb::Create) + self.requests(Verb::Replace) + self.requests(Verb::Delete)
    }

    /// How many watches are open.
    pub fn open_watches(&self) -> usize {
        self.shared.lock().open_watches
    }

    /// How many watches are open on each object that is watched by its name; on all others, under an empty name.
    pub fn open_watches_by_object(&self) -> BTreeMap<Key, usize> {
        self.shared.lock().open_by_object.clone()
    }

    /// How many watches have ever been opened, likewise.
    pub fn begun_watches_by_object(&self) -> BTreeMap<Key, u64> {
        self.shared.lock().begun_by_object.clone()
    }

    /// Waits until so many requests of this kind have come.
    pub async fn seen(&self, verb: Verb, count: u64) {
        self.until(&format!("{count} of {verb:?}"), |server| server.requests(verb) >= count).await;
    }

    /// Waits until so many watches are open.
    pub async fn watched_by(&self, watches: usize) {
        self.until(&format!("{watches} open watches"), |server| server.open_watches() == watches).await;
    }

    /// Waits until this holds. It is looked at whenever something changes.
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
