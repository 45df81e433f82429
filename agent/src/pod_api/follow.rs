//! Applies index changes to the history: which object to show for each changed name.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::config::values::StaticPods;
use pod_index::{Change, PodMeta, Snapshot, is_static_pod};
use pod_index_kubelet::HasPod;
use pod_index_kubelet::records::Record;

use super::history::{Shown, ShownObject};

/// The objects to show for the names of the pods that have changed.
pub(super) fn touched(
    changes: &[Change<'_, Record>],
    now: &Snapshot<Record>,
    shown: StaticPods,
) -> Vec<Shown> {
    let mut names = BTreeSet::new();
    for change in changes.iter().filter(|change| Record::is_of_pod(change)) {
        let pods = change.before().into_iter().chain(change.after());
        names.extend(pods.map(|pod| (pod.namespace(), pod.name())));
    }
    let visible = |(namespace, name): (&str, &str)| Shown {
        key: format!("{namespace}/{name}").into(),
        object: object(now, namespace, name, shown),
    };
    names.into_iter().map(visible).collect()
}

/// The object to show for this name. Like the kubelet's, `/pods` has no mirror of an unknown pod.
fn object(
    snapshot: &Snapshot<Record>,
    namespace: &str,
    name: &str,
    shown: StaticPods,
) -> Option<ShownObject> {
    let mirror =
        || snapshot.mirror_pod_by_full_name(format!("{name}_{namespace}")).map(|record| record.pod());
    let pod = snapshot.pod_by_name(namespace, name).map(|record| record.pod());
    let object = match pod {
        Some(pod) if shown == StaticPods::Mirror && is_static_pod(&**pod) => mirror().unwrap_or(pod),
        Some(pod) => pod,
        None => mirror()?,
    };
    Some(ShownObject { item: Arc::clone(object) as _, is_in_kubelet_view: pod.is_some() })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;
    use crate::pipeline::records::{alone, relabelled};

    fn pod(uid: &str, annotations: &[(&str, &str)]) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(uid.to_owned());
        pod.metadata.name = Some("web".to_owned());
        pod.metadata.namespace = Some("shop".to_owned());
        pod.metadata.annotations =
            Some(annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect());
        pod
    }

    #[test]
    fn a_relabelled_namespace_is_no_event_of_its_pods() {
        let step = relabelled(&pod("p", &[]));
        assert!(touched(&step.changes(), step.after(), StaticPods::Node).is_empty());
    }

    #[test]
    fn the_requested_object_of_a_static_pod_is_shown_or_the_only_one() {
        let static_pod =
            pod("s", &[("kubernetes.io/config.source", "file"), ("kubernetes.io/config.hash", "s")]);
        let mirror =
            pod("m", &[("kubernetes.io/config.source", "file"), ("kubernetes.io/config.mirror", "s")]);
        let plain = pod("p", &[]);
        for (pods, node, api) in [
            (vec![&static_pod, &mirror], "s", "m"),
            (vec![&static_pod], "s", "s"),
            (vec![&mirror], "m", "m"),
            (vec![&plain], "p", "p"),
            (vec![&plain, &mirror], "p", "p"),
        ] {
            let (mut writer, reader) = pod_index::new();
            let _ = writer.set_pods(pods.into_iter().cloned().map(alone));
            for (shown, uid) in [(StaticPods::Node, node), (StaticPods::Mirror, api)] {
                let snapshot = reader.load();
                let object = object(&snapshot, "shop", "web", shown).unwrap();
                assert_eq!(object.item.metadata().uid.as_deref(), Some(uid));
                let has_pod = snapshot.pods().len() == 1;
                assert_eq!(object.is_in_kubelet_view, has_pod, "a mirror without a pod is not");
            }
        }
    }
}
