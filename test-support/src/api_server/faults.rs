//! What a test can make the server do: fail, fall behind, forget, refuse.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject};

use super::connections::Listener;
use super::fault::Fault;
use super::request::Verb;
use super::rights::Right;
use super::store::Store;
use super::{ApiServer, ProgressNotices};

impl ApiServer {
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

    /// Answers 410 with the reason `Gone`, as older servers and other implementations do.
    pub fn say_gone(&self) {
        self.shared.lock().gone = "Gone";
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

    /// Its etcd sends no progress notices, or only once in 10 minutes, which is etcd's default. So a watch gets a bookmark only
    /// after an object of its kind has changed, selected or not; and those of [`send_bookmarks`](Self::send_bookmarks).
    pub fn without_progress_notices(&self) {
        self.shared.lock().progress_notices = ProgressNotices::Rare;
    }

    /// Sets how long a get or a list waits for a future version; 3 s by default.
    pub fn wait_for_versions(&self, patience: Duration) {
        self.shared.lock().future_patience = patience;
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
        let listener = Listener::bind(&self.port, self.tls.clone(), Arc::clone(&self.shared)).await;
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

    /// The kinds of requests that were refused so far, which the test expects.
    pub fn refused(&self) -> BTreeSet<Right> {
        std::mem::take(&mut self.shared.lock().rights.refused)
    }

    /// All kinds of requests made so far.
    pub fn asked(&self) -> BTreeSet<Right> {
        self.shared.lock().rights.asked.clone()
    }
}
