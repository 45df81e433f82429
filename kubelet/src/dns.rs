//! Looks up the names of servers in threads of their own.
//!
//! A lookup through the system may hang for minutes, for example if the node's DNS server drops packets. In the runtime's
//! threads for blocking work, of which there are few, such lookups would keep out everything else that needs one. A lookup of
//! the same name joins the one under way, so there are no more threads than names, which the configuration gives.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::vec;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, ready};
use hyper_util::client::legacy::connect::dns::Name;

use crate::blocking;

/// What a lookup found, for all who wait for it.
type Found = Result<Vec<SocketAddr>, Arc<io::Error>>;
type UnderWay = Shared<BoxFuture<'static, Found>>;

/// Looks up names. Clones share the lookups that are under way.
#[derive(Clone)]
pub struct Resolver {
    look_up: fn(&str) -> io::Result<Vec<SocketAddr>>,
    under_way: Arc<Mutex<HashMap<String, UnderWay>>>,
}

impl Resolver {
    /// Asks the system.
    pub(crate) fn new() -> Self {
        Self::with(|name| (name, 0).to_socket_addrs().map(Iterator::collect))
    }

    fn with(look_up: fn(&str) -> io::Result<Vec<SocketAddr>>) -> Self {
        Self { look_up, under_way: Arc::default() }
    }

    fn lookup(&self, name: &str) -> UnderWay {
        let mut under_way = self.lock();
        if let Some(lookup) = under_way.get(name) {
            return lookup.clone();
        }
        let this = self.clone();
        let ask_system = self.look_up;
        let asked = name.to_owned();
        let started = blocking::start("dns", move || {
            let addresses = ask_system(&asked);
            // First: who asks from now on wants a new answer.
            this.lock().remove(&asked);
            addresses
        });
        let result = match started {
            Ok(result) => result,
            Err(error) => return ready(Err(Arc::new(error))).boxed().shared(),
        };
        let lookup = async move {
            match result.await {
                Ok(found) => found.map_err(Arc::new),
                Err(_) => Err(Arc::new(io::Error::other("the lookup has ended without an answer"))),
            }
        };
        let lookup = lookup.boxed().shared();
        under_way.insert(name.to_owned(), lookup.clone());
        lookup
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, UnderWay>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl tower_service::Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let lookup = self.lookup(name.as_str());
        async move {
            let found = lookup.await;
            found.map(Vec::into_iter).map_err(|error| io::Error::new(error.kind(), error.to_string()))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Condvar;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use tokio::task::spawn_blocking;

    use super::*;

    static LOOKUPS: AtomicUsize = AtomicUsize::new(0);
    static IS_OPEN: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

    /// A lookup that hangs until the test lets it end.
    #[expect(clippy::unnecessary_wraps, reason = "as the system's lookup")]
    fn hangs(_: &str) -> io::Result<Vec<SocketAddr>> {
        LOOKUPS.fetch_add(1, Ordering::SeqCst);
        let (is_open, changed) = &IS_OPEN;
        drop(changed.wait_while(is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
        Ok(vec![([10, 0, 0, 1], 0).into()])
    }

    #[test]
    fn lookups_that_hang_keep_no_thread_from_other_work_and_are_made_once() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).max_blocking_threads(1).build();
        runtime.unwrap().block_on(async {
            let resolver = Resolver::with(hangs);
            let lookups: Vec<_> = (0..12).map(|_| tokio::spawn(resolver.lookup("api.example"))).collect();
            assert_eq!(spawn_blocking(|| 7).await.unwrap(), 7);
            *IS_OPEN.0.lock().unwrap() = true;
            IS_OPEN.1.notify_all();
            for found in join_all(lookups).await {
                assert_eq!(found.unwrap().unwrap(), [SocketAddr::from(([10, 0, 0, 1], 0))]);
            }
            assert_eq!(LOOKUPS.load(Ordering::SeqCst), 1);
            resolver.lookup("api.example").await.unwrap();
            assert_eq!(LOOKUPS.load(Ordering::SeqCst), 2, "nothing is cached");
        });
    }

    #[tokio::test]
    async fn a_name_that_cannot_be_looked_up_is_an_error() {
        let fails = Resolver::with(|_| Err(io::Error::other("no such name")));
        assert_eq!(fails.lookup("nowhere.example").await.unwrap_err().to_string(), "no such name");
        let system = Resolver::new().lookup("localhost").await.unwrap();
        assert!(system.iter().all(|address| address.ip().is_loopback()), "{system:?}");
    }
}
