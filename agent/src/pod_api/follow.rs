//! Applies index changes to the history: which object to show for each changed name.

use std::collections::BTreeSet;
use std::sync::Arc;

use clap::ValueEnum;
use k8s_openapi::api::core::v1::Pod;
use pod_index::{Change, PodMeta, Snapshot, is_static_pod};
use serde::Deserialize;

/// Which of a static pod's two objects to show if both are known.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StaticPods {
    /// The node's object. Its UID is in cgroups and log paths.
    #[default]
    Node,
    /// The API server's object: the mirror pod.
    Mirror,
}

/// The objects to show for the names in the changes.
pub(super) fn touched(
    changes: &[Change<'_, Pod>],
    now: &Snapshot<Pod>,
    shown: StaticPods,
) -> Vec<(Arc<str>, Option<Arc<Pod>>)> {
    let mut names = BTreeSet::new();
    for change in changes {
        let pods = match change {
            Change::Added(pod) | Change::Removed(pod) => [Some(pod), None],
            Change::Updated { old, new } => [Some(old), Some(new)],
            _ => [None, None],
        };
        names.extend(pods.into_iter().flatten().map(|pod| (pod.namespace(), pod.name())));
    }
    let visible = |(namespace, name): (&str, &str)| {
        let key = format!("{namespace}/{name}").into();
        (key, object(now, namespace, name, shown).cloned())
    };
    names.into_iter().map(visible).collect()
}

/// The object to show for this name.
fn object<'a>(
    snapshot: &'a Snapshot<Pod>,
    namespace: &str,
    name: &str,
    shown: StaticPods,
) -> Option<&'a Arc<Pod>> {
    let mirror = || snapshot.mirror_pod_by_full_name(format!("{name}_{namespace}"));
    match snapshot.pod_by_name(namespace, name) {
        Some(pod) if shown == StaticPods::Mirror && is_static_pod(&**pod) => mirror().or(Some(pod)),
        Some(pod) => Some(pod),
        None => mirror(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let _ = writer.set_pods(pods.into_iter().cloned());
            for (shown, uid) in [(StaticPods::Node, node), (StaticPods::Mirror, api)] {
                assert_eq!(object(&reader.load(), "shop", "web", shown).unwrap().uid(), uid);
            }
        }
    }
}
