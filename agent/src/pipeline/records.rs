//! What the index stores: records, which are pods with what was joined to them.
//!
//! ```text
//!                                          thread `index`
//! sources ─> Report ───────────────────────> Merge ─┐
//! Namespaces, Nodes, owners ─> Feed ────────────────┴─> Join ─> index ─> whois, pod API, checkpoints, mirror pods
//! ```
//! One index serves all, so an answer that takes one snapshot of it is of one moment. With `--extract`, records have
//! attributes. Without it they have none, and need neither Namespaces nor Nodes; a pod's workload is joined in any case.

use crossbeam_channel::{Receiver, Sender, unbounded};
use k8s_openapi::api::core::v1::{Namespace, Node};
use pod_index_kubelet::owners::{Needed, OwnerUpdate};
use pod_index_kubelet::records::{Change, Extract, Join, Rules};
use pod_index_kubelet::sources::SourceUpdate;

use crate::config::Settings;
use crate::config::failure::Failure;
use crate::config::read::read_small_text;
use crate::config::values::Extra;

/// Tells the index's writer of Namespaces, Nodes and owners. Clones tell the same one.
#[derive(Clone, Debug)]
pub(crate) struct Feed {
    changes: Sender<Change>,
    needs_namespaces: bool,
    needs_nodes: bool,
    /// Which owners have to be read without anybody asking for them.
    pub(crate) needed_owners: Needed,
}

impl Feed {
    /// What to tell of Namespaces. `None`: no record shows anything of them.
    pub(crate) fn of_namespaces(&self) -> Option<impl Fn(&SourceUpdate<Namespace>) + Send + use<>> {
        let feed = self.clone();
        let tell = move |update: &_| feed.tell(Change::Namespaces(Change::metadata(update)));
        self.needs_namespaces.then_some(tell)
    }

    /// What to tell of Nodes. `None`: no record shows anything of them.
    pub(crate) fn of_nodes(&self) -> Option<impl Fn(&SourceUpdate<Node>) + Send + use<>> {
        let feed = self.clone();
        let tell = move |update: &_| feed.tell(Change::Nodes(Change::metadata(update)));
        self.needs_nodes.then_some(tell)
    }

    /// What to tell of owners: they name the workloads of pods.
    pub(crate) fn of_owners(&self) -> impl Fn(&OwnerUpdate) + Send + use<> {
        let feed = self.clone();
        move |update| update.change().into_iter().for_each(|change| feed.tell(change))
    }

    fn tell(&self, change: Change) {
        // Fails only while the agent ends.
        let _ = self.changes.send(change);
    }
}

/// What the writer thread makes records with.
pub(crate) struct Joining {
    pub(super) join: Join,
    /// The Namespaces, Nodes and owners of a [`Feed`].
    pub(super) told: Receiver<Change>,
}

/// A join that knows nothing yet, and what tells it of all but pods. Reads the file of `--extract`, so this may block.
pub(crate) fn build(settings: &Settings) -> Result<(Feed, Joining), Failure> {
    let extract = rules(settings)?.unwrap_or_else(Extract::none);
    let (changes, told) = unbounded();
    let feed = Feed {
        changes,
        needs_namespaces: extract.needs_namespaces(),
        needs_nodes: extract.needs_nodes(),
        needed_owners: if extract.needs_owners() { Needed::Every } else { Needed::ForNames },
    };
    Ok((feed, Joining { join: Join::new(extract), told }))
}

/// Reads the file of `--extract`, if it is given.
pub(crate) fn rules(settings: &Settings) -> Result<Option<Extract>, Failure> {
    let Some(path) = &settings.effective.content.extract else { return Ok(None) };
    let name = settings.written.name("extract");
    let wrong = |why: String| Failure::Usage(format!("{name}: {}: {why}", path.display()));
    let yaml = read_small_text(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let Rules { extract, .. } = Rules::parse(&yaml).map_err(|error| wrong(error.to_string()))?;
    let served = &settings.effective.pod_api.serve_resources;
    for (is_needed, extra) in [
        (extract.needs_namespaces(), Extra::Namespaces),
        (extract.needs_nodes(), Extra::Nodes),
        (extract.needs_owners(), Extra::Owners),
    ] {
        if is_needed && !served.contains(&extra) {
            let needed = format!("{extra:?}").to_lowercase();
            let flag = settings.written.name("serve-resources");
            return Err(wrong(format!(
                "a rule needs the {needed}, which the agent follows with {flag} {needed}"
            )));
        }
    }
    Ok(Some(extract))
}

/// A step of an index in which a pod's Namespace was relabelled, and nothing else.
#[cfg(test)]
pub(crate) fn relabelled(
    pod: &k8s_openapi::api::core::v1::Pod,
) -> pod_index::Step<pod_index_kubelet::records::Record> {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use pod_index::{Operation, PodMeta};
    use serde_json::{from_value, json};

    let namespace = |label: &str| {
        let object = json!({ "name": pod.namespace(), "uid": "n", "labels": { "team": label } });
        Change::Namespaces(SourceUpdate::Set(vec![from_value::<ObjectMeta>(object).unwrap().into()]))
    };
    let (mut writer, reader) = pod_index::new();
    let mut changes = reader.changes();
    let mut join = Join::new(Extract::none());
    let first = [namespace("a"), Change::Pod(Operation::Upsert(pod.clone().into()))];
    assert!(join.write(&mut writer, first).published);
    drop(changes.try_next());
    assert!(join.write(&mut writer, [namespace("b")]).published);
    let step = changes.try_next().unwrap();
    assert_eq!(step.changes().len(), 1);
    step
}

/// The record of a pod alone.
#[cfg(test)]
pub(crate) fn alone(
    pod: impl Into<std::sync::Arc<k8s_openapi::api::core::v1::Pod>>,
) -> std::sync::Arc<pod_index_kubelet::records::Record> {
    use pod_index::Operation;

    let pod = Change::Pod(Operation::Upsert(pod.into()));
    match Join::new(Extract::none()).apply([pod]).pop() {
        Some(Operation::Upsert(record)) => record,
        _ => unreachable!("the update of one pod is the update of its record"),
    }
}
