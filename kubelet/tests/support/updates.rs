//! What a source says.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use pod_index::PodUid;
use pod_index_kubelet::sources::SourceUpdate;

pub fn set(pods: impl IntoIterator<Item = Pod>) -> SourceUpdate<Pod> {
    SourceUpdate::Set(pods.into_iter().map(Arc::new).collect())
}

pub fn upsert(pods: impl IntoIterator<Item = Pod>) -> SourceUpdate<Pod> {
    SourceUpdate::Upsert(pods.into_iter().map(Arc::new).collect())
}

pub fn remove(uid: &str) -> SourceUpdate<Pod> {
    SourceUpdate::Remove(vec![PodUid::from(uid)])
}
