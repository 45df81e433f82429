//! "Which pod is this?": finds a pod by any identity that an event carries.
//!
//! ```text
//! text ─> Identity ─> Sought ─> Found ─> Answer ─> HTTP ─> `pod-index whois`
//!              └─ PID ─> /proc ─┘ └─ snapshot
//! ```
//! [`find`] queries the index, [`routes`] serves the answers. [`ask`], [`input`] and [`printer`] are the client. Both
//! sides use `answer`.

mod answer;
pub(crate) mod ask;
mod find;
mod input;
mod limits;
mod lookups;
mod printer;
mod processes;
mod routes;

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use pod_index::{Reader, Snapshot};
use tokio::sync::{Semaphore, watch};

pub(crate) use self::answer::Kind;
use self::find::{Key, Sought, Unknown};
pub(crate) use self::lookups::{Lookups, Outcome};
pub(crate) use self::processes::Processes;
pub(crate) use self::routes::router;
use super::readiness::Readiness;

/// The annotation of a removed pod: when it was removed, in RFC 3339.
pub(crate) const REMOVED_ANNOTATION: &str = "pod-index/removed";

/// Removes [`REMOVED_ANNOTATION`] from a pod sent by a source. A pod without it is not copied.
pub(crate) fn unmark(pod: &mut Arc<Pod>) {
    let is_marked = pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(REMOVED_ANNOTATION));
    if is_marked && let Some(annotations) = &mut Arc::make_mut(pod).metadata.annotations {
        annotations.remove(REMOVED_ANNOTATION);
    }
}

fn marked(pod: &Pod, removed_at: Instant) -> Arc<Pod> {
    let mut pod = pod.clone();
    let time = find::time_of(removed_at).to_string();
    pod.metadata.annotations.get_or_insert_default().insert(REMOVED_ANNOTATION.to_owned(), time);
    Arc::new(pod)
}

/// Finds pods by any identity. Clones share the counts and the processes.
#[derive(Clone, Debug)]
pub(crate) struct Whois {
    reader: Reader<Pod>,
    readiness: Arc<Readiness>,
    processes: Arc<Processes>,
    lookups: Lookups,
    /// Permits for the bodies of requests.
    bodies: Arc<Semaphore>,
    /// The agent is shutting down.
    is_closed: Arc<watch::Sender<bool>>,
}

impl Whois {
    pub(crate) fn new(
        reader: &Reader<Pod>,
        readiness: &Arc<Readiness>,
        processes: Processes,
        lookups: Lookups,
    ) -> Self {
        let (reader, readiness) = (reader.clone(), Arc::clone(readiness));
        let bodies = Arc::new(Semaphore::new(limits::BODIES));
        let is_closed = Arc::new(watch::Sender::new(false));
        Self { reader, readiness, processes: Arc::new(processes), lookups, bodies, is_closed }
    }

    /// Ends all waiting look-ups: they answer with what is known, so that they do not delay a shutdown.
    pub(crate) fn close(&self) {
        self.is_closed.send_replace(true);
    }

    /// Waits until the agent shuts down.
    async fn closed(&self) {
        let _ = self.is_closed.subscribe().wait_for(|is_closed| *is_closed).await;
    }

    /// The pod that `key` identifies, for `/pods/{key}`. A mirror pod's UID finds nothing: this path does not translate
    /// UIDs.
    ///
    /// A removed pod has [`REMOVED_ANNOTATION`].
    pub(crate) fn pod(&self, snapshot: &Snapshot<Pod>, key: &str) -> Option<Arc<Pod>> {
        let direct = snapshot.pod_by_uid(key).map(|pod| (Kind::Uid, pod));
        let direct = direct.or_else(|| Some((Kind::Name, snapshot.pod_by_full_name(key)?)));
        if let Some((kind, pod)) = direct {
            self.lookups.count(Some(kind), Outcome::Found);
            return Some(Arc::clone(pod));
        }
        let sought = self.seek(key);
        let found = sought.as_ref().map_err(Unknown::clone).and_then(|sought| {
            let found = sought.find(snapshot)?;
            let pod =
                found.pod.filter(|_| found.by != Key::MirrorUid).ok_or(Unknown::NoPod(sought.kind()))?;
            let pod = found.removed_at.map_or_else(|| Arc::clone(pod), |at| marked(pod, at));
            Ok((sought.kind(), pod))
        });
        match found {
            Ok((kind, pod)) => {
                self.lookups.count(Some(kind), Outcome::Found);
                Some(pod)
            }
            Err(unknown) => {
                self.lookups.count(unknown.kind(), unknown.outcome());
                None
            }
        }
    }

    /// Parses `text`. Resolves a process ID to its cgroup, so that later steps need only a snapshot.
    fn seek<'a>(&self, text: &'a str) -> Result<Sought<'a>, Unknown> {
        Sought::parse(text, &self.processes)
    }
}
