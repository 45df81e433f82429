//! The records of the pods: what events are tagged with, by the rules of `--extract`. Without it, there are none.
//!
//! ```text
//! index ──────────────────────────────┐
//! Namespaces, Nodes, owners ─> Feed ──┴─> Join ─> Writer<Record> ─> /whois
//! ```
//! A thread of its own joins what the others tell, so that neither the index's writer nor a client waits for rules. A record
//! is of one moment, and may be a few milliseconds behind the index.

use std::future::pending;
use std::pin::pin;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pod_index::{Change as OfPod, Changes, Moment, Operation, PodMeta, Reader, Writer};
use pod_index_kubelet::owners::OwnerUpdate;
use pod_index_kubelet::records::{Change, Extract, Join, Record, Rules};
use pod_index_kubelet::sources::SourceUpdate;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep_until;

use super::build::EmptyIndex;
use crate::config::Settings;
use crate::config::failure::Failure;
use crate::config::values::Extra;
use crate::tasks::{self, Tasks, cannot_start};
use crate::vitals::{Heartbeat, Part, Vitals};

/// Tells of Namespaces, Nodes and owners. Clones tell the same records.
#[derive(Clone, Debug)]
pub(crate) struct Feed {
    changes: UnboundedSender<Change>,
    /// Whether rules are about owners, so that each has to be read.
    pub(crate) needs_owners: bool,
}

impl Feed {
    pub(crate) fn namespaces(&self, update: SourceUpdate<ObjectMeta>) {
        self.tell(Change::Namespaces(update));
    }

    pub(crate) fn nodes(&self, update: SourceUpdate<ObjectMeta>) {
        self.tell(Change::Nodes(update));
    }

    pub(crate) fn owners(&self, update: &OwnerUpdate) {
        if let Some(change) = update.change() {
            self.tell(change);
        }
    }

    fn tell(&self, change: Change) {
        // Fails only while the agent ends.
        let _ = self.changes.send(change);
    }
}

/// Reads the file of `--extract`, if it is given.
pub(crate) fn rules(settings: &Settings) -> Result<Option<Extract>, Failure> {
    let Some(path) = &settings.given.content.extract else { return Ok(None) };
    let name = settings.written.name("extract");
    let wrong = |why: String| Failure::Usage(format!("{name}: {}: {why}", path.display()));
    let yaml = std::fs::read_to_string(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let Rules { extract, .. } = Rules::parse(&yaml).map_err(|error| wrong(error.to_string()))?;
    let served = &settings.given.pod_api.serve_resources;
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

/// The index of records, before its thread runs.
pub(crate) struct Records {
    pub(crate) reader: Reader<Record>,
    pub(crate) feed: Feed,
    work: tasks::Work,
}

impl Records {
    /// `None` without `--extract`. Reads its file, so this may block.
    pub(crate) fn build(
        settings: &Settings,
        index: &EmptyIndex,
        vitals: &Vitals,
    ) -> Result<Option<Self>, Failure> {
        let Some(extract) = rules(settings)? else { return Ok(None) };
        let (writer, reader) = pod_index::with_options(index.options);
        let (changes, received) = unbounded_channel();
        let feed = Feed { changes, needs_owners: extract.needs_owners() };
        let join = Join::new(extract);
        let pods = index.reader.changes();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(|error| cannot_start("the records", error))?;
        let heartbeat = vitals.heartbeat(Part::Records);
        let work = Box::new(move || runtime.block_on(follow(pods, received, join, writer, heartbeat)));
        Ok(Some(Self { reader, feed, work }))
    }

    /// Its thread ends with the index's writer.
    pub(crate) fn spawn(self, tasks: &mut Tasks) -> Result<(), Failure> {
        tasks.thread("records", self.work).map(drop)
    }
}

async fn follow(
    mut pods: Changes<Pod>,
    mut fed: UnboundedReceiver<Change>,
    mut join: Join,
    mut writer: Writer<Record>,
    heartbeat: Heartbeat,
) {
    let mut beats = pin!(heartbeat.keep());
    loop {
        let mut batch = Vec::new();
        let forgetting = writer.next_deadline();
        let forgotten = async {
            match forgetting {
                Some(deadline) => sleep_until(deadline.max(Instant::now()).into()).await,
                None => pending().await,
            }
        };
        tokio::select! {
            step = pods.next() => {
                let Some(step) = step else { return };
                batch.extend(step.changes().iter().map(|change| Change::Pod(operation(change))));
            }
            Some(change) = fed.recv() => batch.push(change),
            () = forgotten => {}
            never = &mut beats => match never {},
        }
        while let Ok(more) = fed.try_recv() {
            batch.push(more);
        }
        if batch.is_empty() {
            writer.advance(Moment::now());
        } else {
            // The index has refused what this one would refuse.
            let _ = join.write(&mut writer, batch);
        }
        writer.reclaim();
    }
}

fn operation(change: &OfPod<'_, Pod>) -> Operation<Pod> {
    match change.after() {
        Some(pod) => Operation::Update(pod.clone()),
        None => Operation::Remove(change.pod().uid().into()),
    }
}
