//! What happens to each pod before a source reports it, whatever the source.
//!
//! A pod comes from outside, and whoever may write it there can say anything in it. So there is one way from a decoded pod to an
//! [`Admitted`] one, of which alone a [`Reading`](super::Reading) and [`Emitted`] are made: a new source cannot forget a step.
//! What is left to its decoder is to bound the pod's memory, because that must happen before the whole pod exists
//! (`memory::decode_within`, `protobuf::decode_pod_within`).

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::ops::Deref;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use pod_index::{CONFIG_SEEN_ANNOTATION, PodMeta, PodUid, is_mirror_pod};

use crate::marks::{self, LEFT_OUT};
use crate::sources::completeness::is_of_file;
use crate::sources::pod::set_annotation;
use crate::sources::status::StatusWriter;
use crate::sources::{Source, SourceUpdate};
use crate::text::shorten;

/// How a source admits pods.
#[derive(Clone, Copy, Debug)]
pub(in crate::sources) struct Admission {
    pub(in crate::sources) role: Source,
    /// Changes each pod before it is stored, as [`redact_env`](crate::sources::redact_env) does.
    pub(in crate::sources) transform: fn(&mut Pod),
}

/// A pod that a source may report. Only [`Admission::admit`] makes one.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::sources) struct Admitted(Arc<Pod>);

/// A mirror pod, of a source that has none. Such a source is not what it seems to be: the URL of an API server, say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::sources) struct UnexpectedMirrorPod {
    namespace: String,
    name: String,
}

impl UnexpectedMirrorPod {
    pub(in crate::sources) const FIELD: &'static str = "metadata.annotations[kubernetes.io/config.mirror]";

    pub(in crate::sources) fn message(&self, role: Source) -> String {
        let Self { namespace, name } = self;
        let lists = if role == Source::Kubelet { "no kubelet lists those" } else { "this source has none" };
        format!("the pod {}/{} is a mirror pod; {lists}", shorten(namespace), shorten(name))
    }
}

impl Admission {
    /// Admits a decoded pod: refuses a mirror pod where none can be, removes the marks that the pod brought along, and then
    /// applies the transformation. `is_reduced`: its decoder has left out a part of it, and has marked it so.
    pub(in crate::sources) fn admit(
        self,
        mut pod: Pod,
        is_reduced: bool,
    ) -> Result<Admitted, UnexpectedMirrorPod> {
        if !self.role.lists_mirror_pods() && is_mirror_pod(&pod) {
            let namespace = pod.namespace().to_owned();
            let name = pod.name().to_owned();
            return Err(UnexpectedMirrorPod { namespace, name });
        }
        for key in marks::forged(&pod, |key| key == LEFT_OUT && is_reduced) {
            pod.metadata.annotations.as_mut().and_then(|annotations| annotations.remove(&key));
        }
        (self.transform)(&mut pod);
        Ok(Admitted(Arc::new(pod)))
    }
}

impl Deref for Admitted {
    type Target = Pod;

    fn deref(&self) -> &Pod {
        &self.0
    }
}

impl Admitted {
    /// This pod with the time at which it was first seen. The known object, if nothing else differs.
    pub(in crate::sources) fn keeping_first_seen(mut self, before: &Self) -> Self {
        if Arc::ptr_eq(&before.0, &self.0) {
            return self;
        }
        if let Some(seen) = before.annotation(CONFIG_SEEN_ANNOTATION) {
            self.mark(CONFIG_SEEN_ANNOTATION, seen);
        }
        if *before == self { before.clone() } else { self }
    }

    /// Sets a mark that this source is the one to set.
    pub(in crate::sources) fn mark(&mut self, key: &str, value: &str) {
        set_annotation(&mut self.0, key, value);
    }
}

/// The objects to report.
pub(in crate::sources) fn objects(pods: &[Admitted]) -> Vec<Arc<Pod>> {
    pods.iter().map(|pod| Arc::clone(&pod.0)).collect()
}

/// Known pods keep the time they were first seen. If nothing else has changed either, they keep their [`Arc`].
///
/// [`Emitted`] does so for every source. One that stores its pods does it before that: then equal pods are the same objects in
/// its next read, too, and need no comparison.
pub(in crate::sources) fn as_first_seen(pods: Vec<Admitted>, before: &[Admitted]) -> Vec<Admitted> {
    let before: HashMap<_, _> = before.iter().map(|pod| (pod.uid(), pod)).collect();
    let as_first_seen = |pod: Admitted| match before.get(pod.uid()) {
        Some(before) => pod.keeping_first_seen(before),
        None => pod,
    };
    pods.into_iter().map(as_first_seen).collect()
}

/// Whether these are the same objects in the same order.
fn are_same_objects(one: &[Admitted], other: &[Admitted]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| Arc::ptr_eq(&one.0, &other.0))
}

/// What a source has emitted last, and so what is new.
#[derive(Debug, Default)]
pub(in crate::sources) struct Emitted {
    last: Option<EmittedSet>,
    /// The pods of a kubelet's files that were emitted, and that incomplete lists have lacked since.
    missing_of_files: BTreeSet<PodUid>,
}

#[derive(Debug)]
struct EmittedSet {
    pods: Vec<Admitted>,
    is_complete: bool,
}

impl EmittedSet {
    /// The pods of a kubelet's files.
    fn of_files(&self) -> impl Iterator<Item = PodUid> {
        self.pods.iter().filter(|pod| is_of_file(pod)).map(|pod| PodUid::from(pod.uid()))
    }
}

impl Emitted {
    /// The update to emit, if these pods differ from those that were emitted last, or are known to be all of them only now.
    /// Records it in the status. `pods`: `None` if they are the same as before.
    pub(in crate::sources) fn news(
        &mut self,
        pods: Option<Vec<Admitted>>,
        is_complete: bool,
        status: &StatusWriter,
    ) -> Option<SourceUpdate<Pod>> {
        let last = self.last.take();
        let is_confirmation = is_complete && last.as_ref().is_some_and(|last| !last.is_complete);
        let (pods, is_unchanged) = match (pods, &last) {
            (None, None) => return None,
            (None, Some(last)) => (last.pods.clone(), true),
            (Some(pods), None) => (pods, false),
            (Some(pods), Some(last)) if are_same_objects(&pods, &last.pods) => (pods, true),
            (Some(pods), Some(last)) => {
                let pods = as_first_seen(pods, &last.pods);
                let is_unchanged = are_same_objects(&pods, &last.pods);
                (pods, is_unchanged)
            }
        };
        if is_unchanged && !is_confirmation {
            self.last = last;
            return None;
        }
        let objects = objects(&pods);
        status.updated(pods.len());
        let new = EmittedSet { pods, is_complete };
        if is_complete {
            self.missing_of_files.clear();
        } else {
            self.missing_of_files.extend(last.iter().flat_map(EmittedSet::of_files));
            for listed in new.of_files() {
                self.missing_of_files.remove(&listed);
            }
        }
        self.last = Some(new);
        Some(if is_complete { SourceUpdate::Set(objects) } else { SourceUpdate::Incomplete(objects) })
    }

    /// The update to emit because the last list, although it may be incomplete, has all pods of the kubelet's files: those that it
    /// lacks are gone. Records it in the status.
    pub(in crate::sources) fn gone_of_files(&mut self, status: &StatusWriter) -> Option<SourceUpdate<Pod>> {
        let gone: Vec<_> = mem::take(&mut self.missing_of_files).into_iter().collect();
        let last = self.last.as_ref().filter(|_| !gone.is_empty())?;
        status.updated(last.pods.len());
        Some(SourceUpdate::Remove(gone))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn pod(annotations: &Value) -> Pod {
        let metadata = json!({ "name": "web", "namespace": "shop", "uid": "u", "annotations": annotations });
        from_value(json!({ "metadata": metadata })).unwrap()
    }

    fn admission(role: Source) -> Admission {
        Admission {
            role,
            transform: |pod| pod.metadata.labels = Some([("seen".into(), "yes".into())].into()),
        }
    }

    /// The duties of each role, also of one that is new.
    #[test]
    fn a_pod_of_every_role_loses_forged_marks_and_is_transformed() {
        let forged =
            json!({ "pod-index/ended": "", "pod-index/left-out": "spec", "pod-index/x": "", "a": "b" });
        for role in Source::ALL {
            let annotations = |is_reduced| {
                let admitted = admission(role).admit(pod(&forged), is_reduced).unwrap();
                assert!(admitted.metadata.labels.is_some(), "{role}: not transformed");
                admitted.metadata.annotations.clone().unwrap().into_keys().collect::<Vec<_>>()
            };
            assert_eq!(annotations(false), ["a"], "{role}");
            assert_eq!(annotations(true), ["a", "pod-index/left-out"], "{role}");
        }
    }

    #[test]
    fn a_mirror_pod_is_refused_unless_the_role_lists_them() {
        let mirror = pod(&json!({ "kubernetes.io/config.mirror": "hash" }));
        for role in Source::ALL {
            let admitted = admission(role).admit(mirror.clone(), false);
            assert_eq!(admitted.is_ok(), role.lists_mirror_pods(), "{role}");
        }
        let refused = admission(Source::Kubelet).admit(mirror, false).unwrap_err();
        let message = refused.message(Source::Kubelet);
        assert_eq!(message, "the pod shop/web is a mirror pod; no kubelet lists those");
    }

    /// A source that makes new objects at each read, and knows nothing of the rule.
    #[test]
    fn equal_pods_are_no_news_also_if_they_are_new_objects_with_another_time() {
        let status = StatusWriter::new(Source::Http, "http://a/");
        let read = |seen: &str, other: &str| {
            let pod = pod(&json!({ "kubernetes.io/config.seen": seen, "other": other }));
            Some(vec![admission(Source::Http).admit(pod, false).unwrap()])
        };
        let mut emitted = Emitted::default();
        assert!(emitted.news(None, true, &status).is_none(), "nothing is known yet");
        assert!(matches!(emitted.news(read("1", "a"), false, &status), Some(SourceUpdate::Incomplete(_))));
        assert!(emitted.news(read("2", "a"), false, &status).is_none());
        let Some(SourceUpdate::Set(first)) = emitted.news(None, true, &status) else { panic!("confirmed") };
        assert!(emitted.news(read("3", "a"), true, &status).is_none());
        let Some(SourceUpdate::Set(second)) = emitted.news(read("4", "b"), true, &status) else {
            panic!("new")
        };
        let seen = |pods: &[Arc<Pod>]| pods[0].annotation(CONFIG_SEEN_ANNOTATION).map(str::to_owned);
        assert_eq!((seen(&first), seen(&second)), (Some("1".to_owned()), Some("1".to_owned())));
    }
}
