//! Owners of pods as resources of the API: metadata alone.

use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::{Metadata, NamespaceResourceScope};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::printed::{AGE, NAME, since};
use super::resource::Resource;

/// An object of this kind without its spec and its status.
#[derive(Debug, Deserialize)]
#[serde(bound = "")]
pub(super) struct Owner<K> {
    metadata: ObjectMeta,
    #[serde(skip)]
    kind: PhantomData<fn() -> K>,
}

/// A kind that owns pods, or owns what owns them.
pub(super) trait Kind:
    k8s_openapi::Resource<Scope = NamespaceResourceScope>
    + Metadata<Ty = ObjectMeta>
    + Clone
    + DeserializeOwned
    + fmt::Debug
    + 'static
{
    const SHORT_NAMES: &'static [&'static str];
}

impl Kind for ReplicaSet {
    const SHORT_NAMES: &'static [&'static str] = &["rs"];
}
impl Kind for Deployment {
    const SHORT_NAMES: &'static [&'static str] = &["deploy"];
}
impl Kind for StatefulSet {
    const SHORT_NAMES: &'static [&'static str] = &["sts"];
}
impl Kind for DaemonSet {
    const SHORT_NAMES: &'static [&'static str] = &["ds"];
}
impl Kind for Job {
    const SHORT_NAMES: &'static [&'static str] = &[];
}
impl Kind for CronJob {
    const SHORT_NAMES: &'static [&'static str] = &["cj"];
}

impl<K> Owner<K> {
    pub(super) fn new(metadata: ObjectMeta) -> Self {
        Self { metadata, kind: PhantomData }
    }
}

impl<K> Default for Owner<K> {
    fn default() -> Self {
        Self::new(ObjectMeta::default())
    }
}

impl<K: Kind> k8s_openapi::Resource for Owner<K> {
    const API_VERSION: &'static str = K::API_VERSION;
    const GROUP: &'static str = K::GROUP;
    const KIND: &'static str = K::KIND;
    const VERSION: &'static str = K::VERSION;
    const URL_PATH_SEGMENT: &'static str = K::URL_PATH_SEGMENT;
    type Scope = NamespaceResourceScope;
}

impl<K: Kind> Metadata for Owner<K> {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl<K: Kind> Resource for Owner<K> {
    const IS_NAMESPACED: bool = true;
    const SHORT_NAMES: &'static [&'static str] = K::SHORT_NAMES;
    const IS_IN_ALL: bool = true;
    const FIELDS: &'static [&'static str] = &["metadata.name", "metadata.namespace"];
    const COLUMNS: &'static [(&'static str, &'static str, u8)] = &[NAME, AGE];

    fn field(&self, at: usize) -> &str {
        let Self { metadata, .. } = self;
        let value = if at == 0 { &metadata.name } else { &metadata.namespace };
        value.as_deref().unwrap_or_default()
    }

    fn write_rest(&self, _: &mut Vec<u8>) {}

    fn cells(&self, now: Timestamp) -> Vec<String> {
        vec![self.field(0).to_owned(), since(self.metadata.creation_timestamp.as_ref(), now)]
    }
}
