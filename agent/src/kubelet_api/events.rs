//! A watch: each pod once, the end of these, and then an event for each change.

use std::collections::HashSet;
use std::sync::Arc;

use pod_index::{Change, ENDED_ANNOTATION, PodMeta, PodUid, is_mirror_pod};
use pod_index_kubelet::HasPod;
use pod_index_kubelet::records::Record;

use super::KubeletApi;
use super::answer::{Answer, End};
use super::wire::{Form, Reason, Status, initial_sync_complete};
use crate::api::client::ClientLimits;

/// Sends events until the client is gone or too slow. What changes while a client reads is one step afterwards: a slow client gets
/// fewer events, and keeps no queue of them.
pub(super) async fn watch(api: &KubeletApi, limits: &ClientLimits, answer: &mut Answer) -> Result<(), End> {
    let mut changes = api.reader.changes();
    let mut sent = Sent::default();
    // An index in which nothing was published has no first step.
    let mut next = changes.try_next().ok();
    let mut is_first = true;
    loop {
        let events = next.take().map(|step| sent.events(&step.changes())).unwrap_or_default();
        for Event { form, pod } in events {
            let message = api.encodings.in_turn(limits, &pod, form).await?;
            answer.send(message).await?;
        }
        if is_first {
            answer.send(initial_sync_complete()).await?;
            is_first = false;
        }
        answer.restore_credit();
        next = answer.unless_gone(changes.next()).await?;
        if next.is_none() {
            return Err(Status::new(Reason::Ending, "the agent is shutting down").into());
        }
    }
}

/// What a client is told of a pod.
struct Event {
    form: Form,
    pod: Arc<Record>,
}

/// What a client was told.
#[derive(Debug, Default)]
struct Sent {
    /// The pods that it was told are deleted, although the index still has them.
    ended: HashSet<PodUid>,
}

impl Sent {
    fn events(&mut self, changes: &[Change<'_, Record>]) -> Vec<Event> {
        let of_pods = changes.iter().filter(|change| Record::is_of_pod(change));
        of_pods.filter_map(|change| self.event(change)).collect()
    }

    /// The event of a change, unless the client knows it.
    fn event(&mut self, change: &Change<'_, Record>) -> Option<Event> {
        let of_pod = |record: Option<&Arc<Record>>| record.filter(|pod| !is_mirror_pod(&***pod)).cloned();
        match (of_pod(change.before()), of_pod(change.after())) {
            (None, None) => None,
            (before, None) => {
                let pod = before?;
                let was_told = self.ended.remove(&PodUid::from(pod.uid()));
                (!was_told).then_some(Event { form: Form::Deleted, pod })
            }
            (before, Some(pod)) if pod.annotation(ENDED_ANNOTATION).is_some() => {
                let is_new = self.ended.insert(PodUid::from(pod.uid()));
                // A list of an ended pod is an addition, as in the kubelet.
                match before {
                    None => Some(Event { form: Form::Added, pod }),
                    Some(_) => is_new.then_some(Event { form: Form::Deleted, pod }),
                }
            }
            (before, Some(pod)) => {
                self.ended.remove(&PodUid::from(pod.uid()));
                let form = if before.is_some() { Form::Modified } else { Form::Added };
                Some(Event { form, pod })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

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
