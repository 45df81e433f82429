//! Follows one object: list, watch, and recovery from failures.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time;

use super::key::ObjectKey;
use super::kind::{Object, ReferencedKind};
use super::options::Options;
use super::request::{Endpoint, Event, Failure};
use super::slot::Slot;
use crate::backoff::{Backoff, random};

/// A watch that ended sooner than this counts as failed. client-go's "very short watch".
const SHORT: Duration = Duration::from_secs(1);
/// A watch that ends this much before its requested lifetime was cut off.
const EARLY: Duration = Duration::from_secs(5);

/// Follows the object at `key` until the task is dropped, its turn is over, or the object is immutable.
pub(super) fn reflect<K: ReferencedKind>(
    endpoint: Arc<Endpoint<K>>,
    slot: Arc<Slot<K>>,
    turn: u64,
    key: ObjectKey,
    options: &Options,
) -> impl Future<Output = ()> + Send + use<K> {
    let (least, most) = options.backoff;
    let mut reflector = Reflector {
        endpoint,
        slot,
        turn,
        key,
        backoff: Backoff::new(least, most),
        watch_time: options.watch_time,
        silence: options.silence,
        version: String::new(),
        held: None,
    };
    let mut next = Next::List;
    async move {
        loop {
            next = match next {
                Next::List => reflector.list().await,
                Next::Compare => reflector.compare().await,
                Next::Watch => reflector.watch().await,
                Next::End => return,
            }
        }
    }
}

/// The next step after a list, an event, or a watch.
#[derive(Clone, Copy, PartialEq)]
enum Next {
    List,
    /// The last watch was cut off. The server may have been restored from a backup since.
    Compare,
    Watch,
    End,
}

struct Reflector<K> {
    endpoint: Arc<Endpoint<K>>,
    slot: Arc<Slot<K>>,
    turn: u64,
    key: ObjectKey,
    backoff: Backoff,
    /// Requested lifetime of a watch; `None` means random.
    watch_time: Option<Duration>,
    /// How long a watch may be silent.
    silence: Duration,
    /// The version to watch from.
    version: String,
    /// The UID and the version of the object as last received.
    held: Option<(Option<String>, Option<String>)>,
}

impl<K: ReferencedKind> Reflector<K> {
    async fn list(&mut self) -> Next {
        // Only the first time: later, the server's cache may be older than what was received.
        let stale = self.version.is_empty();
        match self.endpoint.list(&self.key, stale).await {
            Ok((object, version)) => {
                self.version = version;
                self.tell(object)
            }
            Err(failure) => {
                self.failed(&failure).await;
                Next::List
            }
        }
    }

    /// Continues if the server's cache holds the same version as this client. Otherwise the cache is old, or
    /// the server has another history.
    async fn compare(&mut self) -> Next {
        match self.endpoint.list(&self.key, true).await {
            Ok((object, version)) if object.as_ref().map(identity) == self.held => {
                self.version = version;
                self.slot.recovered(self.turn);
                Next::Watch
            }
            Ok(_) => Next::List,
            Err(failure) => {
                self.failed(&failure).await;
                Next::Compare
            }
        }
    }

    /// One watch, from start to end.
    async fn watch(&mut self) -> Next {
        let began = Instant::now();
        let seconds = self.seconds();
        let mut events = match self.endpoint.watch(&self.key, &self.version, seconds).await {
            Ok(events) => events,
            Err(failure) => return self.interrupted(&failure).await,
        };
        loop {
            let event = time::timeout(self.silence, events.next()).await.unwrap_or_else(|_| {
                Err(Failure::Other(format!("the watch was silent for {} s", self.silence.as_secs_f32())))
            });
            match event {
                Ok(Some(Event::Present(object, version))) => {
                    self.version = version;
                    let next = self.tell(Some(*object));
                    if next == Next::End {
                        return next;
                    }
                }
                Ok(Some(Event::Absent(version))) => {
                    self.version = version;
                    self.tell(None);
                }
                Ok(Some(Event::Bookmark(version))) => {
                    self.version = version;
                    self.slot.recovered(self.turn);
                }
                Ok(None) => {
                    let lasted = began.elapsed();
                    if lasted < SHORT {
                        time::sleep(self.backoff.wait(Instant::now())).await;
                    } else {
                        self.slot.recovered(self.turn);
                    }
                    let is_early = lasted + EARLY < Duration::from_secs(seconds.into());
                    return if is_early { Next::Compare } else { Next::Watch };
                }
                Err(failure) => return self.interrupted(&failure).await,
            }
        }
    }

    /// The lifetime of a watch, random so that the watches of a node do not all end at once.
    fn seconds(&self) -> u32 {
        let usual = || Duration::from_secs(200) + Duration::from_secs(90).mul_f64(random());
        let time = self.watch_time.unwrap_or_else(usual);
        u32::try_from(time.as_secs()).unwrap_or(u32::MAX).max(1)
    }

    fn tell(&mut self, object: Option<K>) -> Next {
        let immutable = object.as_ref().is_some_and(K::is_immutable);
        self.held = object.as_ref().map(identity);
        let heard = self.slot.write(self.turn, object.map(Object::new));
        if heard && !immutable {
            return Next::Watch;
        }
        if immutable {
            let ObjectKey { namespace, name } = &self.key;
            tracing::debug!(kind = K::WORD, %namespace, %name, "immutable; no longer followed");
        }
        Next::End
    }

    /// Continues the watch if its connection broke and the server still has the version held here. After any
    /// other failure, the object is listed again.
    async fn interrupted(&mut self, failure: &Failure) -> Next {
        self.failed(failure).await;
        if matches!(failure, Failure::Broken(_)) { Next::Compare } else { Next::List }
    }

    /// Reports the problem, once, and waits.
    async fn failed(&mut self, failure: &Failure) {
        if self.slot.fail(self.turn, failure.text()) {
            let ObjectKey { namespace, name } = &self.key;
            tracing::warn!(kind = K::WORD, %namespace, %name, "cannot be followed: {}", failure.text());
        }
        time::sleep(self.backoff.wait(Instant::now())).await;
    }
}

fn identity<K: ReferencedKind>(object: &K) -> (Option<String>, Option<String>) {
    let metadata = object.meta();
    (metadata.uid.clone(), metadata.resource_version.clone())
}
