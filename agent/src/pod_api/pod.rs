//! Pods as a resource of the API.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use pod_index::workload::{Workload, controller};
use pod_index::{API_SERVER_SOURCE, CONFIG_SEEN_ANNOTATION, CONFIG_SOURCE_ANNOTATION, PodMeta};
use pod_index_kubelet::checkpoint::RESTORED_ANNOTATION;
use pod_index_kubelet::sources::{API_CONFIG_SEEN_ANNOTATION, API_CONFIG_SOURCE_ANNOTATION};

use super::printed;
use super::resource::{Item, Resource};
use super::write::rest;
use crate::api::table;
use crate::api::types::TABLE_COLUMNS;

pub(super) static PODS: Resource = Resource {
    short_names: &["po"],
    categories: &["all"],
    empty: r#","spec":{"containers":[]},"status":{}"#,
    fields: &[
        "metadata.name",
        "metadata.namespace",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
    ],
    columns: &printed::COLUMNS,
    kubelet_columns: &TABLE_COLUMNS,
    ..Resource::of::<Pod, Pod>()
};

impl Item for Pod {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    /// A static pod's own object keeps the kubelet's annotations, which its mirror pod has as well.
    fn unmark(&self, metadata: &mut ObjectMeta) {
        let Some(annotations) = &mut metadata.annotations else { return };
        annotations.remove(RESTORED_ANNOTATION);
        if annotations.get(CONFIG_SOURCE_ANNOTATION).is_none_or(|source| source != API_SERVER_SOURCE) {
            return;
        }
        for (own, theirs) in [
            (CONFIG_SOURCE_ANNOTATION, API_CONFIG_SOURCE_ANNOTATION),
            (CONFIG_SEEN_ANNOTATION, API_CONFIG_SEEN_ANNOTATION),
        ] {
            annotations.remove(own);
            if let Some(theirs) = annotations.remove(theirs) {
                annotations.insert(own.to_owned(), theirs);
            }
        }
        if annotations.is_empty() {
            metadata.annotations = None;
        }
    }

    fn field(&self, name: &str) -> &str {
        let spec = self.spec.as_ref();
        let status = self.status.as_ref();
        let value = match name {
            "metadata.name" => Some(self.name()),
            "metadata.namespace" => Some(self.namespace()),
            "spec.nodeName" => spec.and_then(|spec| spec.node_name.as_deref()),
            "spec.restartPolicy" => spec.and_then(|spec| spec.restart_policy.as_deref()),
            "spec.schedulerName" => spec.and_then(|spec| spec.scheduler_name.as_deref()),
            "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.as_deref()),
            "spec.hostNetwork" => {
                let is_host = spec.and_then(|spec| spec.host_network).unwrap_or_default();
                Some(if is_host { "true" } else { "false" })
            }
            "status.phase" => status.and_then(|status| status.phase.as_deref()),
            // Like the API server: the first of several.
            "status.podIP" => status.and_then(|status| {
                let first = status.pod_ips.as_ref().and_then(|ips| ips.first());
                first.map_or(status.pod_ip.as_deref(), |ip| Some(&ip.ip))
            }),
            _ => None,
        };
        value.unwrap_or_default()
    }

    fn write_rest(&self, _: &Resource, out: &mut Vec<u8>) {
        rest(out, self.spec.as_ref(), self.status.as_ref());
    }

    fn cells(&self, now: Timestamp) -> Vec<String> {
        printed::cells(self, now).into()
    }

    fn kubelet_cells(&self) -> Vec<String> {
        kubelet_cells(self)
    }
}

/// The cells of a pod, in the order of [`TABLE_COLUMNS`].
pub(crate) fn kubelet_cells(pod: &Pod) -> Vec<String> {
    let [_, ready, status, restarts, ..] = printed::cells(pod, Timestamp::UNIX_EPOCH);
    let [node, ip] = ["spec.nodeName", "status.podIP"].map(|field| pod.field(field).to_owned());
    // Without the time of the last restart, which is relative to now.
    let restarts = restarts.split(' ').next().unwrap_or_default().to_owned();
    let created = pod.metadata.creation_timestamp.as_ref().map(|Time(time)| time.to_string());
    let workload = Workload::of::<ObjectMeta>(&pod.metadata, None);
    let owner = controller(&pod.metadata);
    let workload = workload.map(|Workload { kind, name, derived, .. }| {
        // The controller itself is a fact.
        let is_guess = derived && owner.is_some_and(|owner| owner.kind != kind);
        format!("{kind}/{name}{}", if is_guess { " (derived)" } else { "" })
    });
    let images =
        pod.spec.iter().flat_map(|spec| &spec.containers).filter_map(|container| container.image.clone());
    let labels = pod.metadata.labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let [images, labels] = [images.collect::<Vec<_>>(), labels.collect()].map(|all| all.join(","));
    let more = [node, ready, status, restarts, created.unwrap_or_default(), ip];
    let more = more.into_iter().chain([workload.unwrap_or_default(), images, labels]);
    table::row(pod).into_iter().map(str::to_owned).chain(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::selectors::Selector;

    fn pod() -> Pod {
        serde_json::from_value(serde_json::json!({
            "metadata": { "name": "web", "namespace": "shop" },
            "spec": { "nodeName": "node-1", "restartPolicy": "Always", "schedulerName": "s", "serviceAccountName": "sa",
                      "hostNetwork": true, "containers": [] },
            "status": { "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}] },
        }))
        .unwrap()
    }

    fn selects(selector: &str, pod: &Pod) -> Result<bool, String> {
        let selector = Selector::fields(selector, |field| PODS.fields.contains(&field))?;
        Ok(selector.matches(|field| Some(pod.field(field))))
    }

    #[test]
    fn every_served_field_is_selectable() {
        let pod = pod();
        for (selector, selected) in [
            ("", true),
            ("metadata.name=web", true),
            ("metadata.name==web", true),
            ("metadata.name!=web", false),
            ("metadata.namespace=shop,metadata.name=other", false),
            ("spec.nodeName=node-1", true),
            ("spec.restartPolicy=Always", true),
            ("spec.schedulerName=s", true),
            ("spec.serviceAccountName=sa", true),
            ("spec.hostNetwork=true", true),
            ("spec.hostNetwork!=true", false),
            ("status.phase!=Running", false),
            ("status.phase!=Failed,", true),
            ("status.podIP=10.0.0.1", true),
            ("status.podIP=fd00::1", false),
        ] {
            assert_eq!(selects(selector, &pod), Ok(selected), "{selector:?}");
        }
        assert_eq!(selects("spec.nodeName=,spec.hostNetwork=false,status.podIP=", &Pod::default()), Ok(true));
    }

    #[test]
    fn a_workload_that_follows_from_names_alone_is_marked() {
        let workload = |owner: serde_json::Value, labels: serde_json::Value| {
            let pod = serde_json::json!({
                "metadata": { "name": "web-7c5ddbdf54-q4x2n", "labels": labels, "ownerReferences": [owner] },
            });
            let at = TABLE_COLUMNS.iter().position(|column| *column == "Workload").unwrap();
            kubelet_cells(&serde_json::from_value(pod).unwrap()).swap_remove(at)
        };
        let owner = |kind: &str, name: &str| serde_json::json!({ "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "o", "controller": true });
        let hash = serde_json::json!({ "pod-template-hash": "7c5ddbdf54" });
        assert_eq!(workload(owner("ReplicaSet", "web-7c5ddbdf54"), hash), "Deployment/web (derived)");
        assert_eq!(workload(owner("StatefulSet", "db"), serde_json::json!({})), "StatefulSet/db");
    }

    #[test]
    fn invalid_field_selectors_and_unknown_fields_are_refused() {
        let invalid = r"spec.image=x metadata.name =x metadata.name=a=b metadata.name=\x metadata.name=\
                        metadata.labels.a=b a!b !=a ==a metadata.name===b metadata.name!==b";
        for selector in invalid.split_whitespace() {
            assert!(selects(selector, &pod()).is_err(), "{selector:?}");
        }
    }
}
