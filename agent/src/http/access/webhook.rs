//! Asks the API server who owns a token and what a client may do. Caches the answers for as long as a kubelet does.
//!
//! Kubelet: `BuildAuth` (`cmd/kubelet/app/auth.go`), with its defaults.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::{Api, PostParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Identity;
use super::budget::{Budget, TooMany};
use super::cache::Cache;
use crate::pipeline::api_clients::answer;

/// Kubelet: `authentication.webhook.cacheTTL`.
const TOKEN_TTL: Duration = Duration::from_secs(120);
/// Kubelet: `authorization.webhook.cacheAuthorizedTTL`.
const AUTHORIZED_TTL: Duration = Duration::from_secs(300);
/// Kubelet: `authorization.webhook.cacheUnauthorizedTTL`.
const UNAUTHORIZED_TTL: Duration = Duration::from_secs(30);

/// What a client may do: with a resource, or with a subresource of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Right {
    pub(super) verb: &'static str,
    pub(super) group: &'static str,
    pub(super) resource: &'static str,
    /// Of this node; empty for a right in all namespaces.
    pub(super) subresource: &'static str,
}

/// Authenticates and authorizes clients through the API server. Without `Debug`, which would print tokens.
pub(super) struct Webhook {
    client: Client,
    node: String,
    /// The owner of a token.
    accepted: Cache<String, Identity>,
    /// Apart from the others: made-up tokens must not clear the cache of the real ones.
    rejected: Cache<String, ()>,
    budget: Budget,
    rights: Cache<(Identity, Right), bool>,
    /// Whether the last request to the API server failed.
    fails: AtomicBool,
}

impl Webhook {
    pub(super) fn new(client: Client, node: &str) -> Self {
        Self {
            client,
            node: node.to_owned(),
            accepted: Cache::new(),
            rejected: Cache::new(),
            budget: Budget::new(),
            rights: Cache::new(),
            fails: AtomicBool::new(false),
        }
    }

    /// The owner of the token. `None` if the API server rejects the token or does not answer. A review of an unknown token
    /// is taken from the budget of `client`.
    pub(super) async fn identify(&self, token: &str, client: &str) -> Result<Option<Identity>, TooMany> {
        let key = token.to_owned();
        if let Some(identity) = self.accepted.get(&key) {
            return Ok(Some(identity));
        }
        if self.rejected.get(&key).is_some() {
            return Ok(None);
        }
        self.budget.take(client)?;
        let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
        let Some(review) = self.asked(&TokenReview { spec, ..TokenReview::default() }).await else {
            return Ok(None);
        };
        let status = review.status.unwrap_or_default();
        let identity = status.user.filter(|_| status.authenticated == Some(true)).map(identity);
        match &identity {
            Some(identity) => self.accepted.put(key, identity.clone(), TOKEN_TTL),
            None => self.rejected.put(key, (), TOKEN_TTL),
        }
        Ok(identity)
    }

    /// Whether the client has the right. `false` if the API server does not answer.
    pub(super) async fn may(&self, identity: &Identity, right: Right) -> bool {
        let key = (identity.clone(), right);
        if let Some(known) = self.rights.get(&key) {
            return known;
        }
        let Right { verb, group, resource, subresource } = right;
        let filled = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let spec = SubjectAccessReviewSpec {
            user: filled(&identity.name),
            uid: filled(&identity.uid),
            groups: Some(identity.groups.clone()),
            extra: Some(identity.extra.clone()),
            resource_attributes: Some(ResourceAttributes {
                verb: Some(verb.to_owned()),
                group: Some(group.to_owned()),
                version: Some("v1".to_owned()),
                resource: Some(resource.to_owned()),
                subresource: filled(subresource),
                name: filled(subresource).map(|_| self.node.clone()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        };
        let Some(review) = self.asked(&SubjectAccessReview { spec, ..SubjectAccessReview::default() }).await
        else {
            return false;
        };
        let allowed = review.status.is_some_and(|status| status.allowed);
        self.rights.put(key, allowed, if allowed { AUTHORIZED_TTL } else { UNAUTHORIZED_TTL });
        allowed
    }

    /// The review, completed by the API server. Failures are not cached.
    async fn asked<K>(&self, review: &K) -> Option<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>,
        K: Serialize + DeserializeOwned + Clone + std::fmt::Debug,
    {
        let api = Api::<K>::all(self.client.clone());
        let (parameters, kind) = (PostParams::default(), K::kind(&()));
        let answer = answer(api.create(&parameters, review)).await;
        let failed = self.fails.swap(answer.is_err(), Ordering::Relaxed);
        match &answer {
            Ok(_) if failed => tracing::info!("the API server answers client reviews again"),
            Err(error) if !failed => tracing::warn!(
                "clients without a cached review are refused: the API server does not answer a {kind}: {error}"
            ),
            _ => {}
        }
        answer.ok()
    }
}

fn identity(user: UserInfo) -> Identity {
    Identity {
        name: user.username.unwrap_or_default(),
        groups: user.groups.unwrap_or_default(),
        uid: user.uid.unwrap_or_default(),
        extra: user.extra.unwrap_or_default(),
    }
}
