//! "Which pod is this?": finds a pod by any identity that an event carries.
//!
//! ```text
//! text ─> Identity ─> Sought ─> Found ─> Answer ─> HTTP ─> `pod-index whois`
//!              └─ PID ─> /proc ─┘ └─ snapshot
//! ```
//! [`find`] queries the index, [`routes`] serves the answers.

pub(crate) mod answer;
mod bodies;
mod find;
pub(crate) mod limits;
mod lookups;
mod processes;
pub(crate) mod query;
mod routes;

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use pod_index::Reader;

pub(crate) use self::find::suggestion;
use self::find::{Key, Sought, Unknown};
pub(crate) use self::lookups::Lookups;
pub(crate) use self::processes::Processes;
pub(crate) use self::routes::router;
use crate::api::client::{Places, Share};
use crate::config::values::Bounds;
use crate::pipeline::readiness::Readiness;
use crate::pipeline::removed::REMOVED_ANNOTATION;
use crate::pod_api::owners::Owners;

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
    processes: Processes,
    lookups: Lookups,
    bodies: Arc<Places>,
    bounds: Bounds,
    owners: Owners,
    /// Whether the present request wants the details of pods.
    is_detailed: bool,
}

impl Whois {
    pub(crate) fn new(
        reader: &Reader<Pod>,
        readiness: &Arc<Readiness>,
        processes: Processes,
        lookups: Lookups,
        owners: &Owners,
        bounds: Bounds,
    ) -> Self {
        let (reader, readiness) = (reader.clone(), Arc::clone(readiness));
        let bodies = Arc::new(Places::new(limits::BODIES));
        let owners = owners.clone();
        Self { reader, readiness, processes, lookups, bodies, bounds, owners, is_detailed: false }
    }

    /// The pod that `key` identifies, for `/pods/{key}`. A mirror pod's UID finds nothing: this path does not translate
    /// UIDs.
    ///
    /// A removed pod has [`REMOVED_ANNOTATION`].
    pub(crate) async fn pod(&self, client: &Share, key: &str) -> Option<Arc<Pod>> {
        let placements = self.processes.get(client, query::process(key).into_iter().collect()).await;
        let snapshot = self.reader.load();
        if let Some(pod) = snapshot.pod_by_uid(key).or_else(|| snapshot.pod_by_full_name(key)) {
            self.lookups.found();
            return Some(Arc::clone(pod));
        }
        let sought = Sought::parse(key, None, &placements);
        let found = sought.as_ref().map_err(Unknown::clone).and_then(|sought| {
            let found = sought.find(&snapshot, self.bounds, &self.owners)?;
            let pod = found.pod.filter(|_| found.by != Key::MirrorUid);
            let pod = pod.ok_or_else(|| Unknown::no_pod(sought.kind()))?;
            Ok(found.removed_at.map_or_else(|| Arc::clone(pod), |at| marked(pod, at)))
        });
        match found {
            Ok(_) => self.lookups.found(),
            Err(ref unknown) => self.lookups.failed(unknown),
        }
        found.ok()
    }
}
