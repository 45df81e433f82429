//! A pod in the pod API: with the agent's own version, and the API server's in an annotation.

use std::sync::{Arc, Mutex};

use hyper::body::Bytes;
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

use super::shape::{Form, Kind};

/// Holds the API server's version of the object. `metadata.resourceVersion` is the agent's own.
pub(crate) const API_SERVER_VERSION: &str = "pod-index/api-server-resource-version";

/// A pod and the version of its last event.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) pod: Arc<Pod>,
    pub(super) version: u64,
    /// Its cached encodings; see [`Encodings`](super::encodings::Encodings).
    pub(super) encoded: Mutex<Vec<((Form, Kind), Bytes)>>,
}

/// The pod as serialized.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Whole<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: ObjectMeta,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<&'a PodSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a PodStatus>,
}

/// The pod without spec and status.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Partial {
    kind: &'static str,
    api_version: &'static str,
    metadata: ObjectMeta,
}

impl Object {
    pub(super) fn new(pod: Arc<Pod>, version: u64) -> Arc<Self> {
        Arc::new(Self { pod, version, encoded: Mutex::default() })
    }

    fn metadata(&self) -> ObjectMeta {
        let mut metadata = self.pod.metadata.clone();
        let theirs = metadata.resource_version.replace(self.version.to_string());
        if let Some(theirs) = theirs.filter(|version| !version.is_empty()) {
            metadata.annotations.get_or_insert_default().insert(API_SERVER_VERSION.to_owned(), theirs);
        }
        metadata
    }

    pub(super) fn whole(&self) -> impl Serialize + '_ {
        let (spec, status) = (self.pod.spec.as_ref(), self.pod.status.as_ref());
        Whole { kind: "Pod", api_version: "v1", metadata: self.metadata(), spec, status }
    }

    pub(super) fn partial(&self) -> impl Serialize + use<> {
        Partial { kind: "PartialObjectMetadata", api_version: "meta.k8s.io/v1", metadata: self.metadata() }
    }
}
