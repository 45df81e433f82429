//! What the kubelet has said about its pods: the last list, and the events since. No connection, no time.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};

use k8s_openapi::api::core::v1::Pod;
use pod_index::{ENDED_ANNOTATION, PodMeta, PodUid};

use super::message::{self, EventKind};
use crate::memory::{self, Bounded, Reduced};
use crate::protobuf::{DecodeError, decode_pod_within};
use crate::sources::completeness::Listed;
use crate::sources::problem::{limited, undecodable};
use crate::sources::skeleton::{Admission, Admitted, UnexpectedMirrorPod};
use crate::sources::{Problem, ProblemKind, Source};
use crate::text::{PANICKED, shorten};

/// The pods of a kubelet.
#[derive(Debug)]
pub(super) struct Pods {
    origin: String,
    admission: Admission,
    by_uid: BTreeMap<PodUid, ListedPod>,
    hasher: RandomState,
}

/// A pod, as last listed or as in a later event.
#[derive(Debug)]
struct ListedPod {
    object: Admitted,
    /// A hash of the bytes that it was decoded from. The same bytes are not decoded again.
    content: u64,
    /// The kubelet has ended its containers and released what it used.
    has_ended: bool,
    /// What is wrong with the latest bytes, if they cannot be decoded, or only in part.
    problem: Option<Problem>,
}

impl Pods {
    pub(super) fn new(origin: String, transform: fn(&mut Pod)) -> Self {
        let admission = Admission { role: Source::Kubelet, transform };
        Self { origin, admission, by_uid: BTreeMap::new(), hasher: RandomState::new() }
    }

    /// All pods, in the order of their UIDs. Unchanged ones are the same objects as before.
    pub(super) fn all(&self) -> Vec<Admitted> {
        self.by_uid.values().map(|pod| pod.object.clone()).collect()
    }

    /// How many there are.
    pub(super) fn listed(&self) -> Listed {
        Listed::of(self.by_uid.values().map(|pod| &*pod.object))
    }

    /// Problems with single pods.
    pub(super) fn problems(&self) -> Vec<Problem> {
        limited(self.by_uid.values().filter_map(|pod| pod.problem.clone()))
    }

    /// Applies a list: what it does not name is gone. A list that no kubelet sends changes nothing.
    ///
    /// # Complexity
    /// O(bytes of the list). Only changed pods are decoded.
    pub(super) fn list(&mut self, answer: &[u8]) -> Result<Vec<Problem>, Problem> {
        let of_answer =
            |message: String| Problem::new(ProblemKind::Syntax, &*self.origin, None, None, message);
        let pods = message::list(answer)
            .map_err(|error| of_answer(format!("the answer is not a list of pods: {error}")))?;
        let mut listed = HashSet::with_capacity(pods.len());
        let mut new = Vec::new();
        // Found out before anything is changed.
        for pod in pods {
            let content = self.hasher.hash_one(pod);
            let identity = message::identity(pod);
            if identity.uid == "" {
                let pod = format!("{}/{}", shorten(&identity.namespace), shorten(&identity.name));
                return Err(of_answer(format!("the UID of the pod {pod} is missing")));
            }
            let is_known = self.by_uid.get(&identity.uid).is_some_and(|known| known.content == content);
            if !is_known {
                new.push(self.decoded(pod, content, &identity)?);
            }
            listed.insert(identity.uid);
        }
        self.by_uid.retain(|uid, _| listed.contains(uid));
        let mut problems = Vec::new();
        for (uid, decoded) in new {
            problems.extend(self.insert(uid, decoded));
        }
        Ok(problems)
    }

    /// Applies an event. Returns whether a pod has changed, or the problem with a pod that cannot be used.
    pub(super) fn event(&mut self, kind: EventKind, pod: &[u8]) -> Result<bool, Problem> {
        match kind {
            EventKind::Synced | EventKind::Unknown => Ok(false),
            EventKind::Ended => {
                let uid = message::identity(pod).uid;
                let Some(known) = self.by_uid.get_mut(&uid).filter(|known| !known.has_ended) else {
                    return Ok(false);
                };
                known.has_ended = true;
                mark_ended(&mut known.object);
                Ok(true)
            }
            EventKind::Changed => {
                let content = self.hasher.hash_one(pod);
                let identity = message::identity(pod);
                if self.by_uid.get(&identity.uid).is_some_and(|known| known.content == content) {
                    return Ok(false);
                }
                let (uid, decoded) = self.decoded(pod, content, &identity)?;
                match self.insert(uid, decoded) {
                    None => Ok(true),
                    Some(problem) => Err(problem),
                }
            }
        }
    }

    /// Decodes a pod. An error is about the list as a whole: no kubelet sends such a pod.
    fn decoded(
        &self,
        bytes: &[u8],
        content: u64,
        identity: &message::Identity,
    ) -> Result<(PodUid, DecodedPod), Problem> {
        let namespace = &*identity.namespace;
        let name = &*identity.name;
        let problem_at =
            |kind, field: &str, message: &str| undecodable(kind, namespace, name, field, message);
        // A panic, of the decoder or of what an embedder does with a pod, costs that pod.
        let read = catch_unwind(AssertUnwindSafe(|| Content::read(bytes, self.admission)));
        let (object, problem) = match read {
            Ok(Content::Pod { pod, reduced }) => {
                let warning = |Reduced { field, message }| problem_at(ProblemKind::Warning, &field, &message);
                (Some(pod), reduced.map(warning))
            }
            Ok(Content::MirrorPod(mirror)) => {
                let message = mirror.message(self.admission.role);
                let field = UnexpectedMirrorPod::FIELD.to_owned();
                return Err(Problem::new(ProblemKind::Invalid, &*self.origin, None, Some(field), message));
            }
            Ok(Content::Nameless) => {
                (None, Some(problem_at(ProblemKind::Syntax, "metadata.name", "is missing")))
            }
            Ok(Content::Undecodable(error)) => {
                (None, Some(problem_at(ProblemKind::Syntax, error.field(), &error.reason())))
            }
            Err(_panic) => (None, Some(problem_at(ProblemKind::Defect, "", PANICKED))),
        };
        Ok((identity.uid.clone(), DecodedPod { object, content, problem }))
    }

    /// Stores a decoded pod. If it cannot be used, what is known of it stays. Returns the problem of a pod of which nothing is
    /// known.
    fn insert(&mut self, uid: PodUid, decoded: DecodedPod) -> Option<Problem> {
        let DecodedPod { object, content, problem } = decoded;
        let before = self.by_uid.get_mut(&uid);
        match (object, before) {
            (Some(mut object), before) => {
                // A list may still have a pod that has ended. Only a container that runs proves that it has begun again.
                let has_ended = before.as_ref().is_some_and(|before| before.has_ended) && !runs(&object);
                let before_object = before.map(|before| before.object.clone());
                if has_ended {
                    mark_ended(&mut object);
                }
                // A kubelet that was restarted has seen each pod anew. Without this, each of its pods would be another object than
                // the one that was emitted, for ever, and be compared at each event.
                let object = match before_object {
                    Some(known) => object.keeping_first_seen(&known),
                    None => object,
                };
                self.by_uid.insert(uid, ListedPod { object, content, has_ended, problem });
                None
            }
            (None, Some(before)) => {
                before.content = content;
                before.problem = problem;
                None
            }
            (None, None) => problem,
        }
    }
}

/// A pod's bytes, decoded.
struct DecodedPod {
    /// `None` if it cannot be used.
    object: Option<Admitted>,
    content: u64,
    problem: Option<Problem>,
}

/// What the bytes of a pod hold.
enum Content {
    /// A pod, as it is stored.
    Pod {
        pod: Admitted,
        reduced: Option<Reduced>,
    },
    MirrorPod(UnexpectedMirrorPod),
    Nameless,
    Undecodable(DecodeError),
}

impl Content {
    fn read(bytes: &[u8], admission: Admission) -> Self {
        let Bounded { object: pod, reduced } = match decode_pod_within(memory::LIMIT, bytes) {
            Ok(decoded) => decoded,
            Err(error) => return Self::Undecodable(error),
        };
        let is_nameless = pod.name().is_empty();
        match admission.admit(pod, reduced.is_some()) {
            Err(mirror) => Self::MirrorPod(mirror),
            Ok(_) if is_nameless => Self::Nameless,
            Ok(pod) => Self::Pod { pod, reduced },
        }
    }
}

fn mark_ended(pod: &mut Admitted) {
    pod.mark(ENDED_ANNOTATION, "");
}

/// Whether a container runs.
fn runs(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let containers = [&status.container_statuses, &status.init_container_statuses];
    let mut all = containers.into_iter().flatten().flatten().filter_map(|container| container.state.as_ref());
    all.any(|state| state.running.is_some())
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use serde_json::{from_value, json};

    use super::*;
    use crate::protobuf::encode_pod;

    /// A kubelet that was restarted has seen all its pods anew. If they were new objects for it, every later event would compare
    /// each of them with what was emitted.
    #[test]
    fn a_pod_that_was_only_seen_anew_stays_the_same_object() {
        let seen = |seen: &str| {
            let annotations = json!({ "kubernetes.io/config.seen": seen });
            let metadata =
                json!({ "uid": "u", "name": "web", "namespace": "shop", "annotations": annotations });
            encode_pod(&from_value(json!({ "metadata": metadata })).unwrap())
        };
        let mut pods = Pods::new("socket".to_owned(), |_| {});
        assert!(pods.event(EventKind::Changed, &seen("1")).unwrap());
        let before = pods.all();
        assert!(pods.event(EventKind::Changed, &seen("2")).unwrap());
        let after = pods.all();
        let objects: [&Pod; 2] = [&before[0], &after[0]];
        assert!(ptr::eq(objects[0], objects[1]));
    }
}
