//! "Which pod is this?": finds the pod of whatever an event carries.
//!
//! ```text
//! text ─> Identity ─> Sought ─> Found ─> Answer ─> HTTP ─> `pod-index whois`
//!              └─ PID ─> /proc ─┘ └─ snapshot
//! ```
//! `answer` is what server and client share. [`find`] asks the index, [`routes`] serves, [`ask`] and what it uses are the
//! client's.

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

use k8s_openapi::api::core::v1::Pod;
use pod_index::{Reader, Snapshot};

pub(crate) use self::answer::Kind;
use self::find::{Key, Sought, Unknown};
pub(crate) use self::lookups::{Lookups, Outcome};
pub(crate) use self::processes::Processes;
pub(crate) use self::routes::router;
use super::readiness::Readiness;

/// Finds pods by any identity. Clones share the counts and the processes.
#[derive(Clone, Debug)]
pub(crate) struct Whois {
    reader: Reader<Pod>,
    readiness: Arc<Readiness>,
    processes: Arc<Processes>,
    lookups: Lookups,
}

impl Whois {
    pub(crate) fn new(
        reader: &Reader<Pod>,
        readiness: &Arc<Readiness>,
        processes: Processes,
        lookups: Lookups,
    ) -> Self {
        let (reader, readiness) = (reader.clone(), Arc::clone(readiness));
        Self { reader, readiness, processes: Arc::new(processes), lookups }
    }

    /// The pod that `key` identifies, for `/pods/{key}`. A mirror pod's UID identifies none: that path does not translate.
    pub(crate) fn pod<'a>(&self, snapshot: &'a Snapshot<Pod>, key: &'a str) -> Option<&'a Arc<Pod>> {
        let direct = snapshot.pod_by_uid(key).map(|pod| (Kind::Uid, pod));
        let direct = direct.or_else(|| Some((Kind::Name, snapshot.pod_by_full_name(key)?)));
        if let Some((kind, pod)) = direct {
            self.lookups.count(Some(kind), Outcome::Found);
            return Some(pod);
        }
        let sought = self.seek(key);
        let kind = sought.as_ref().map_or_else(Unknown::kind, |sought| Some(sought.kind()));
        let found = sought.and_then(|sought| sought.find(snapshot)).map(|found| (found.by, found.pod));
        let found = found.and_then(|(by, pod)| match (by, pod) {
            (Key::MirrorUid, _) | (_, None) => Err(Unknown::NoPod(Kind::Uid)),
            (_, Some(pod)) => Ok(pod),
        });
        self.lookups.count(kind, found.as_ref().map_or_else(Unknown::outcome, |_| Outcome::Found));
        found.ok()
    }

    /// What `text` identifies. A process ID is resolved here, so that later steps need only a snapshot.
    fn seek<'a>(&self, text: &'a str) -> Result<Sought<'a>, Unknown> {
        Sought::parse(text, &self.processes)
    }
}
