//! Asks the API server who owns a token and what a client may do. Answers count for as long as in a kubelet, and longer while
//! the API server is away: see [`Reviews`].
//!
//! Kubelet: `BuildAuth` (`cmd/kubelet/app/auth.go`), with its defaults.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::{Api, PostParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Identity;
use super::digest::Digests;
use super::rate_limit::RateLimit;
use super::reviews::{Lifetimes, Limited, Reviews, Verdict};
use crate::pipeline::api_clients::answer;

/// Kubelet: `authentication.webhook.cacheTTL`.
pub(super) const TOKENS: Lifetimes = Lifetimes {
    renew_after: Duration::from_secs(60),
    accepted: Duration::from_secs(120),
    rejected: Duration::from_secs(120),
};
/// Kubelet: `authorization.webhook.cacheAuthorizedTTL`, `cacheUnauthorizedTTL`.
pub(super) const RIGHTS: Lifetimes = Lifetimes {
    renew_after: Duration::from_secs(150),
    accepted: Duration::from_secs(300),
    rejected: Duration::from_secs(30),
};

/// What a client may do: with a resource, or with a subresource of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Right {
    pub(super) verb: &'static str,
    pub(super) group: &'static str,
    pub(super) resource: &'static str,
    /// Of this node; empty for a right in all namespaces.
    pub(super) subresource: &'static str,
}

/// Authenticates and authorizes clients through the API server. Without `Debug`: it must not print tokens.
pub(super) struct Webhook {
    client: Client,
    node: String,
    digests: Digests,
    tokens: Reviews<Arc<Identity>>,
    rights: Reviews<()>,
    unknown_tokens: RateLimit,
}

impl Webhook {
    pub(super) fn new(client: Client, node: &str) -> Self {
        Self {
            client,
            node: node.to_owned(),
            digests: Digests::new(),
            tokens: Reviews::new("TokenReview", TOKENS),
            rights: Reviews::new("SubjectAccessReview", RIGHTS),
            unknown_tokens: RateLimit::new(),
        }
    }

    /// The owner of the token. `client` sent it: too many unknown tokens of one client are not reviewed.
    pub(super) async fn owner(&self, token: &str, client: &str) -> Verdict<Arc<Identity>> {
        let question = self.digests.of(&token);
        let limited = Limited { limit: &self.unknown_tokens, client };
        let review = || {
            let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
            let review = completed(self.client.clone(), TokenReview { spec, ..TokenReview::default() });
            let owner = async move {
                let status = review.await?.status.unwrap_or_default();
                let user = status.user.filter(|_| status.authenticated == Some(true));
                Ok(user.map(|user| Arc::new(identity(user).authenticated())))
            };
            owner.boxed()
        };
        self.tokens.ask(question, Some(limited), review).await
    }

    /// Whether the client has the right.
    pub(super) async fn may(&self, identity: &Identity, right: Right) -> Verdict<()> {
        let question = self.digests.of(&(identity, right));
        let review = || {
            let spec = self.access_review(identity, right);
            let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
            let review = completed(self.client.clone(), review);
            let may = async move {
                let status = review.await?.status;
                Ok(status.filter(|status| status.allowed && status.denied != Some(true)).map(drop))
            };
            may.boxed()
        };
        self.rights.ask(question, None, review).await
    }

    fn access_review(&self, identity: &Identity, right: Right) -> SubjectAccessReviewSpec {
        let Right { verb, group, resource, subresource } = right;
        let filled = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        SubjectAccessReviewSpec {
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
        }
    }
}

/// The review, completed by the API server.
async fn completed<K>(client: Client, review: K) -> Result<K, String>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>,
    K: Serialize + DeserializeOwned + Clone + std::fmt::Debug,
{
    let api = Api::<K>::all(client);
    answer(api.create(&PostParams::default(), &review)).await
}

fn identity(user: UserInfo) -> Identity {
    Identity {
        name: user.username.unwrap_or_default(),
        groups: user.groups.unwrap_or_default(),
        uid: user.uid.unwrap_or_default(),
        extra: user.extra.unwrap_or_default(),
    }
}
