//! Gets of one object.

use std::marker::PhantomData;
use std::time::Duration;

use kube::Client;
use kube::api::GetParams;
use kube::core::Request;

use super::error::GetError;
use super::key::ObjectKey;
use super::kind::ReferencedKind;
use crate::reflector::{Failure, FailureKind, whole};

/// Objects of one kind on one API server.
pub(super) struct Endpoint<K> {
    pub(super) client: Client,
    patience: Duration,
    kind: PhantomData<fn() -> K>,
}

impl<K: ReferencedKind> Endpoint<K> {
    pub(super) fn new(client: Client, patience: Duration) -> Self {
        Self { client, patience, kind: PhantomData }
    }

    /// The object. With `stale`, the API server may answer from its cache.
    pub(super) async fn get(&self, key: &ObjectKey, stale: bool) -> Result<K, GetError> {
        let params = if stale { GetParams::any() } else { GetParams::default() };
        let request = Request::new(K::url_path(&(), Some(&key.namespace))).get(&key.name, &params);
        let answer = whole(&self.client, request, self.patience).await;
        let failed = |failure: Failure| match failure.kind {
            FailureKind::NotFound => GetError::not_found(K::WORD, key),
            _ => GetError::request(K::WORD, key, &failure.message),
        };
        let decoded =
            |(path, message): (_, String)| GetError::request(K::WORD, key, &format!("{path}: {message}"));
        crate::text::decode(&answer.map_err(failed)?).map_err(decoded)
    }
}
