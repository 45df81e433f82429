//! A watch: each pod once, the end of these, and then an event for each change.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use hyper::body::{Bytes, Frame};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pod_index::{Change, ENDED_ANNOTATION, PodMeta, PodUid, Reader, is_mirror_pod};
use pod_index_kubelet::HasPod;
use pod_index_kubelet::protobuf::{encode_pod, message};
use pod_index_kubelet::records::Record;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::wire::{Code, Status, encoded, frame};

/// Events that a client may be behind, as in the kubelet. The change after that waits, and then stands for all later ones too.
const BEHIND: usize = 100;
/// A client that does not read for so long is cut off: its watch holds a snapshot.
const STALLED: Duration = Duration::from_secs(30);

/// Kinds of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Added = 1,
    Modified = 2,
    Deleted = 3,
    InitialSyncComplete = 4,
}

/// The frames of a watch. It holds `permit` as long as it runs.
pub(super) fn watch(
    reader: Reader<Record>,
    permit: OwnedSemaphorePermit,
) -> BoxStream<'static, Frame<Bytes>> {
    let (events, received) = mpsc::channel(BEHIND);
    let task = tokio::spawn(follow(reader, events));
    let frames = stream::unfold((received, task, permit), async |(mut received, task, permit)| {
        let frame = received.recv().await?;
        Some((frame, (received, task, permit)))
    });
    frames.boxed()
}

/// Sends events until the client is gone or too slow.
async fn follow(reader: Reader<Record>, events: mpsc::Sender<Frame<Bytes>>) {
    let mut changes = reader.changes();
    let mut sent = Sent::default();
    // An index in which nothing was published has no first step.
    let mut next = changes.try_next().ok();
    let mut is_first = true;
    loop {
        let mut messages = next.take().map(|step| sent.events(&step.changes())).unwrap_or_default();
        if is_first {
            messages.push(event(Kind::InitialSyncComplete, &[]));
            is_first = false;
        }
        for message in messages {
            match tokio::time::timeout(STALLED, events.send(frame(&message))).await {
                Ok(Ok(())) => {}
                Ok(Err(_closed)) => return,
                Err(_elapsed) => {
                    end(events, Status::new(Code::ResourceExhausted, "the client reads too slowly"));
                    return;
                }
            }
        }
        next = tokio::select! {
            step = changes.next() => step,
            () = events.closed() => return,
        };
        if next.is_none() {
            end(events, Status::new(Code::Unavailable, "the agent is shutting down"));
            return;
        }
    }
}

/// Sends the status once the client has read what is in the queue, if it ever does.
fn end(events: mpsc::Sender<Frame<Bytes>>, status: Status) {
    tokio::spawn(async move { drop(events.send(status.frame()).await) });
}

/// What a client was told.
#[derive(Debug, Default)]
struct Sent {
    /// The pods that it was told are deleted, although the index still has them.
    ended: HashSet<PodUid>,
}

impl Sent {
    fn events(&mut self, changes: &[Change<'_, Record>]) -> Vec<Vec<u8>> {
        let of_pods = changes.iter().filter(|change| Record::is_of_pod(change));
        of_pods.filter_map(|change| self.event(change)).collect()
    }

    /// The event of a change, unless the client knows it.
    fn event(&mut self, change: &Change<'_, Record>) -> Option<Vec<u8>> {
        let of_pod =
            |record: Option<&std::sync::Arc<Record>>| record.filter(|pod| !is_mirror_pod(&***pod)).cloned();
        match (of_pod(change.before()), of_pod(change.after())) {
            (None, None) => None,
            (before, None) => {
                let pod = before?;
                let was_told = self.ended.remove(&PodUid::from(pod.uid()));
                (!was_told).then(|| deleted(&pod))
            }
            (before, Some(pod)) if pod.annotation(ENDED_ANNOTATION).is_some() => {
                let is_new = self.ended.insert(PodUid::from(pod.uid()));
                // A list of an ended pod is an addition, as in the kubelet.
                match before {
                    None => Some(event(Kind::Added, &encoded(&pod))),
                    Some(_) => is_new.then(|| deleted(&pod)),
                }
            }
            (before, Some(pod)) => {
                self.ended.remove(&PodUid::from(pod.uid()));
                let kind = if before.is_some() { Kind::Modified } else { Kind::Added };
                Some(event(kind, &encoded(&pod)))
            }
        }
    }
}

/// Only these fields are guaranteed in the kubelet's.
fn deleted(pod: &Pod) -> Vec<u8> {
    let ObjectMeta { name, namespace, uid, .. } = pod.metadata.clone();
    let metadata = ObjectMeta { name, namespace, uid, ..ObjectMeta::default() };
    event(Kind::Deleted, &encode_pod(&Pod { metadata, ..Pod::default() }))
}

fn event(kind: Kind, pod: &[u8]) -> Vec<u8> {
    let mut event = Vec::with_capacity(pod.len() + 8);
    message::put_number(&mut event, 1, kind as u64);
    if !pod.is_empty() {
        message::put(&mut event, 2, pod);
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::records::relabelled;

    #[test]
    fn a_relabelled_namespace_is_no_event_of_its_pods() {
        let metadata = ObjectMeta {
            uid: Some("u".to_owned()),
            name: Some("web".to_owned()),
            namespace: Some("shop".to_owned()),
            ..ObjectMeta::default()
        };
        let step = relabelled(&Pod { metadata, ..Pod::default() });
        assert!(Sent::default().events(&step.changes()).is_empty());
    }
}
