//! "Which pod is this?": finds a pod by any identity that an event carries.
//!
//! ```text
//! text ─> Sought ─> Match or Unknown ─> Line ─> HTTP ─> `pod-index whois`
//!  └─ PID ─> /proc ─┘ └─ snapshot
//! ```
//! | question | module |
//! |---|---|
//! | which requests are there, and what do they get? | [`routes`] |
//! | what does a URL say, where does a query end? | [`request`] |
//! | what does one query mean? | [`query_text`], [`sought`] |
//! | how is a batch answered, query by query? | [`batch`] |
//! | how is a long answer divided, while its client reads? | [`in_parts`] |
//! | how much may a batch search? | [`search_budget`] |
//! | when are processes read? by which threads? | [`read_ahead`], [`processes`] |
//! | which pod is it? which was it at a time? | [`find`], [`at_a_time`] |
//! | what if no key finds it? | [`search`] |
//! | what does the answer say of the pod, or of why there is none? | [`matched`], [`unknown`] |
//! | does the query name another pod than the one that was found? | [`contradiction`] |
//! | how is that written? | [`answer`], [`attributes`] |

pub(crate) mod answer;
mod at_a_time;
mod attributes;
mod batch;
mod body;
mod contradiction;
mod find;
mod in_parts;
mod lookups;
mod matched;
mod processes;
pub(crate) mod query_text;
mod read_ahead;
pub(crate) mod request;
pub(crate) mod routes;
mod search;
mod search_budget;
mod sought;
#[cfg(test)]
mod tests;
mod unknown;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use pod_index::identity::Identity;
use pod_index::{FoundBy, Reader, is_mirror_pod};
use pod_index_kubelet::owners::Owners;
use pod_index_kubelet::records::Record;

use self::lookups::{Lookups, Outcomes};
use self::processes::Processes;
pub(crate) use self::routes::router;
pub(crate) use self::search::suggestion;
use self::sought::Sought;
use crate::config::Settings;
use crate::config::failure::Failure;
use crate::config::values::Tolerance;
use crate::metrics::Metrics;
use crate::pipeline::readiness::Readiness;
use crate::pipeline::removed::REMOVED_ANNOTATION;

/// Finds pods by any identity. It is no `Clone`, so that all who share it see the same.
#[derive(Debug)]
pub(crate) struct Whois {
    reader: Reader<Record>,
    readiness: Arc<Readiness>,
    processes: Processes,
    lookups: Lookups,
    owners: Owners,
    /// Whether there are rules that give pods attributes.
    has_attributes: bool,
    /// How exact the clocks and the sources are.
    tolerance: Tolerance,
}

impl Whois {
    /// `owners` are those that the pod API knows.
    pub(crate) fn build(
        settings: &Settings,
        reader: &Reader<Record>,
        readiness: &Arc<Readiness>,
        owners: &Owners,
        metrics: &mut Metrics,
    ) -> Result<Self, Failure> {
        let effective = &settings.effective;
        let processes = Processes::new(&effective.processes.proc, effective.processes.cgroup_root.as_deref());
        Ok(Self {
            reader: reader.clone(),
            readiness: Arc::clone(readiness),
            processes: processes.map_err(|error| Failure::unable(settings.written.name("proc"), error))?,
            lookups: Lookups::register(metrics.ours()),
            owners: owners.clone(),
            has_attributes: effective.content.extract.is_some(),
            tolerance: Tolerance { skew: effective.times.clock_skew, delay: effective.times.source_delay },
        })
    }

    /// The pod that `key` identifies, for `/pods/{key}`, unless `key` is a process. A mirror pod's UID finds nothing: this
    /// path does not translate UIDs. The path of a log finds nothing if it names another pod than that of its ID: a pod alone cannot
    /// say that there is a contradiction.
    ///
    /// A removed pod has [`REMOVED_ANNOTATION`].
    pub(crate) fn pod(&self, key: &str) -> Option<Arc<Pod>> {
        let snapshot = self.reader.load();
        let resolve = |identity: Identity<'_>| -> Option<Arc<Pod>> {
            let sought = Sought::of_identity(identity, key);
            let found = sought.identity.resolve(&snapshot).filter(|found| found.by != FoundBy::MirrorUid)?;
            if sought.contradiction_of_names(&found).is_some() {
                return None;
            }
            let Some(at) = found.removed_at else { return Some(Arc::clone(found.pod.pod())) };
            let mut pod = Pod::clone(found.pod);
            let annotations = pod.metadata.annotations.get_or_insert_default();
            annotations.insert(REMOVED_ANNOTATION.to_owned(), answer::time_of(at).to_string());
            Some(Arc::new(pod))
        };
        let is_made_up = |identity: &Identity<'_>| {
            matches!(identity, Identity::Cgroup(_)) && self.processes.roots().place(key).pod().is_none()
        };
        let parsed = || Identity::parse(key).ok().filter(|identity| !is_made_up(identity));
        let pod = resolve(Identity::Uid(key.into())).or_else(|| resolve(parsed()?));
        let pod = pod.filter(|pod| !is_mirror_pod(&**pod));
        let mut outcome = Outcomes::default();
        match &pod {
            Some(_) => outcome.found += 1,
            None => outcome.failed(Identity::parse_lenient(key).is_ok()),
        }
        self.lookups.count(outcome);
        pod
    }
}
