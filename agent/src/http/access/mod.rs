//! Access control: by the name or group in a client certificate or token, or by asking the API server.
//!
//! | flag | which clients are identified | which of them are served |
//! |---|---|---|
//! | `--client-ca-file` | those with a certificate from these authorities that has a common name | all |
//! | `--authentication-token-webhook` | those with a token that the API server accepts | all |
//! | `--allowed-client-names`, `--allowed-client-groups` | | those with one of these names or groups |
//! | `--authorization-mode=Webhook` | | clients that the API server allows to make the same request to a kubelet |
//!
//! If the last two are combined, either is enough. Whoever is not identified gets 401, whoever is not served 403. If only the
//! API server could decide and it does not answer, the response is 503.
//!
//! This module knows identities and decisions. It must not know what is served.
//!
//! Kubelet: `InstallAuthFilter`, `NewNodeAuthorizerAttributesGetter` (`pkg/kubelet/server`).

#[cfg(test)]
mod attacks;
mod decisions;
mod digest;
#[cfg(test)]
mod documented;
mod identity;
pub(super) mod rate_limit;
mod reviews;
mod webhook;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use kube::Client;

use self::decisions::Decision;
pub(crate) use self::decisions::Decisions;
pub(crate) use self::identity::Identity;
use self::reviews::Verdict;
use self::webhook::{Right, Webhook};
use crate::api::client::Peer;
use crate::api::refusal::{Reason, Refusal};
use crate::api::request;
use crate::config::changing::Changing;
use crate::config::values::{AccessRules, AllowedClients, Extra};

/// After this time, a client may try again.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Decides on each request.
pub(crate) struct Access {
    /// Whether clients may present tokens of the API server.
    takes_tokens: bool,
    /// Whether the API server decides what a client may do.
    asks_for_rights: bool,
    allowed: Changing<AllowedClients>,
    webhook: Option<Webhook>,
    decisions: Decisions,
}

/// Who a request comes from, as far as that is known.
enum Authentication {
    /// Identified by a certificate or a token.
    Known(Arc<Identity>),
    /// Identified by a token that the API server accepted before.
    KnownBefore(Arc<Identity>),
    Unknown(Decision),
}

/// A decision, and the client that it is about, if that is known.
struct Decided {
    decision: Decision,
    identity: Option<Arc<Identity>>,
}

impl Access {
    /// `None` if clients need not identify themselves.
    pub(crate) fn new(
        rules: &AccessRules,
        client: Option<&Client>,
        node: &str,
        decisions: Decisions,
    ) -> Option<Arc<Self>> {
        let webhook = client.filter(|_| rules.tokens || rules.rights);
        let webhook = webhook.map(|client| Webhook::new(client.clone(), node));
        (*rules != AccessRules::default()).then(|| {
            Arc::new(Self {
                takes_tokens: rules.tokens,
                asks_for_rights: rules.rights,
                allowed: Changing::new(rules.allowed.clone()),
                webhook,
                decisions,
            })
        })
    }

    /// The clients that are served, from the next request after a change on. A watch that is open stays open.
    pub(crate) fn allowed(&self) -> Changing<AllowedClients> {
        self.allowed.clone()
    }

    /// Decides on a request. `address`: of the client, or what stands for it.
    async fn decide(
        &self,
        address: &str,
        certified: Option<&Arc<Identity>>,
        request: &Parts,
        needed: &[Right],
    ) -> Decided {
        let authentication = self.authenticate(address, certified, &request.headers).await;
        let (identity, was_before) = match authentication {
            Authentication::Known(identity) => (identity, false),
            Authentication::KnownBefore(identity) => (identity, true),
            Authentication::Unknown(decision) => return Decided { decision, identity: None },
        };
        let mut decision = self.authorize(&identity, needed).await;
        if was_before && decision == Decision::Allowed {
            decision = Decision::AllowedBefore;
        }
        Decided { decision, identity: Some(identity) }
    }

    /// A certificate comes first; a token counts without one.
    async fn authenticate(
        &self,
        address: &str,
        certified: Option<&Arc<Identity>>,
        headers: &HeaderMap,
    ) -> Authentication {
        if let Some(identity) = certified {
            return Authentication::Known(Arc::clone(identity));
        }
        let webhook = self.webhook.as_ref().filter(|_| self.takes_tokens);
        let (Some(webhook), Some(token)) = (webhook, token(headers)) else {
            return Authentication::Unknown(Decision::Unauthorized);
        };
        match webhook.owner(token, address).await {
            Verdict::Accepted(identity) => Authentication::Known(identity),
            Verdict::AcceptedBefore(identity) => Authentication::KnownBefore(identity),
            Verdict::Rejected => Authentication::Unknown(Decision::Unauthorized),
            Verdict::RateLimited => Authentication::Unknown(Decision::TooManyTokens),
            Verdict::Unanswered => Authentication::Unknown(Decision::Unavailable),
        }
    }

    /// An allowed name, an allowed group, or one of the needed rights is enough. Without any of these settings, every
    /// identified client is allowed.
    async fn authorize(&self, identity: &Identity, needed: &[Right]) -> Decision {
        let allowed = self.allowed.get();
        let AllowedClients { names, groups } = &*allowed;
        let has_rules = !names.is_empty() || !groups.is_empty() || self.asks_for_rights;
        let is_listed =
            names.contains(&identity.name) || identity.groups.iter().any(|group| groups.contains(group));
        if is_listed || !has_rules {
            return Decision::Allowed;
        }
        let mut decision = Decision::Forbidden;
        if let Some(webhook) = self.webhook.as_ref().filter(|_| self.asks_for_rights) {
            for right in needed {
                match webhook.may(identity, *right).await {
                    Verdict::Accepted(()) => return Decision::Allowed,
                    Verdict::AcceptedBefore(()) => return Decision::AllowedBefore,
                    Verdict::Rejected => {}
                    Verdict::RateLimited | Verdict::Unanswered => decision = Decision::Unavailable,
                }
            }
        }
        decision
    }
}

/// The response to a request that is refused.
fn refusal(decision: Decision, identity: Option<&Identity>, needed: &[Right]) -> Response {
    let refusal = match decision {
        Decision::TooManyTokens => {
            Refusal::too_many_requests("too many unknown tokens; try again later", RETRY_AFTER)
        }
        Decision::Unavailable => {
            let message = "the API server, which knows who may do this, does not answer; try again later";
            Refusal::unavailable(message, RETRY_AFTER)
        }
        Decision::Forbidden => {
            let Right { verb, resource, subresource, .. } = needed[0];
            let subresource =
                if subresource.is_empty() { String::new() } else { format!(", subresource={subresource}") };
            let user = identity.map_or("", |identity| &*identity.name);
            let message = format!("Forbidden (user={user}, verb={verb}, resource={resource}{subresource})");
            Refusal::new(Reason::Forbidden, message)
        }
        Decision::Allowed | Decision::AllowedBefore | Decision::Unauthorized => {
            Refusal::new(Reason::Unauthorized, "Unauthorized")
        }
    };
    refusal.into_response()
}

fn token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// The verb of a right to the node. A kubelet knows more, but everything except reads is refused in any case.
fn verb(method: &Method, path: &str) -> &'static str {
    let is_read = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    // A query with a body.
    let is_query = *method == Method::POST && path == "/whois";
    if is_read || is_query { "get" } else { "create" }
}

/// The rights of which one is enough for a request. The API's own paths need the right to the resource on the API server,
/// in all namespaces; like everything else, `nodes/proxy` allows them.
fn rights_for(request: &Parts) -> Vec<Right> {
    let path = request.uri.path();
    let verb = verb(&request.method, path);
    let of_node = |subresource: &&'static str| Right { verb, group: "", resource: "nodes", subresource };
    let own = if request.method == Method::GET { resource(path, request.uri.query()) } else { None };
    own.into_iter().chain(subresources(path).iter().map(of_node)).collect()
}

/// The right to what a path of the API names.
fn resource(path: &str, query: Option<&str>) -> Option<Right> {
    let (group, resource, is_named) = request::resource(path)?;
    // Not the client's own words: each right is cached.
    let mut known = Extra::all().flat_map(Extra::resources).copied().chain([("", "pods")]);
    let (group, resource) = known.find(|known| *known == (group, resource))?;
    let verb = match () {
        () if is_named => "get",
        () if request::is_watch(query) => "watch",
        () => "list",
    };
    Some(Right { verb, group, resource, subresource: "" })
}

/// The subresources of `nodes`; access to one of them is enough. Like the kubelet, falls back to `nodes/proxy`.
///
/// Kubelet: `nodeAuthorizerAttributesGetter` (`pkg/kubelet/server/auth.go`).
fn subresources(path: &str) -> &'static [&'static str] {
    let is_below =
        |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if is_below("/metrics") {
        &["metrics"]
    } else if ["/healthz", "/livez", "/readyz"].into_iter().any(is_below) {
        &["healthz", "proxy"]
    } else if is_below("/pods") || is_below("/whois") {
        &["pods", "proxy"]
    } else {
        &["proxy"]
    }
}

/// Middleware that rejects requests without access.
pub(crate) async fn guarded(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let certified = parts.extensions.get::<Arc<Identity>>();
    let address = parts.extensions.get::<Arc<Peer>>().map_or("", |peer| peer.address().as_str());
    let needed = rights_for(&parts);
    let Decided { decision, identity } = access.decide(address, certified, &parts, &needed).await;
    access.decisions.add(decision, address, identity.as_deref(), &parts);
    let (Decision::Allowed | Decision::AllowedBefore, Some(identity)) = (decision, &identity) else {
        return refusal(decision, identity.as_deref(), &needed);
    };
    let mut request = Request::from_parts(parts, body);
    if let Some(name) = identity.named() {
        request.extensions_mut().insert(name);
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_needs_the_same_right_as_on_a_kubelet() {
        for (path, expected) in [
            ("/metrics", &["metrics"][..]),
            ("/metricsx", &["proxy"]),
            ("/pods", &["pods", "proxy"]),
            ("/pods/default/web", &["pods", "proxy"]),
            ("/whois", &["pods", "proxy"]),
            ("/livez", &["healthz", "proxy"]),
            ("/mirrors", &["proxy"]),
            ("/", &["proxy"]),
        ] {
            assert_eq!(subresources(path), expected, "{path}");
        }
    }

    #[test]
    fn a_path_of_the_api_needs_the_right_to_its_resource() {
        for (path, query, expected) in [
            ("/api/v1/pods", "", Some(("list", "pods"))),
            ("/api/v1/pods/", "a=b&watch=True", Some(("watch", "pods"))),
            ("/api/v1/pods", "watch=false", Some(("list", "pods"))),
            ("/api/v1/namespaces/shop/pods", "watch", Some(("watch", "pods"))),
            ("/api/v1/namespaces/shop/pods/web", "watch=1", Some(("get", "pods"))),
            ("/api/v1/namespaces", "", Some(("list", "namespaces"))),
            ("/api/v1/namespaces/shop", "", Some(("get", "namespaces"))),
            ("/api/v1/nodes/node-1", "", Some(("get", "nodes"))),
            ("/apis/apps/v1/pods", "", None),
            ("/api/v1/secrets", "", None),
            ("/api/v1", "", None),
            ("/pods", "watch=1", None),
        ] {
            let right = resource(path, Some(query));
            assert_eq!(right.map(|right| (right.verb, right.resource)), expected, "{path}?{query}");
        }
    }

    #[test]
    fn a_query_with_a_body_is_a_read() {
        for (path, expected) in [("/whois", "get"), ("/whois/x", "create"), ("/sources", "create")] {
            assert_eq!(verb(&Method::POST, path), expected, "{path}");
        }
        // Who may list pods may not create them.
        let request = Request::post("/api/v1/pods").body(axum::body::Body::empty()).unwrap().into_parts().0;
        let proxy = Right { verb: "create", group: "", resource: "nodes", subresource: "proxy" };
        assert_eq!(rights_for(&request), [proxy]);
        let request = Request::get("/api/v1/pods").body(axum::body::Body::empty()).unwrap().into_parts().0;
        let pods = Right { verb: "list", group: "", resource: "pods", subresource: "" };
        assert_eq!(rights_for(&request), [pods, Right { verb: "get", ..proxy }]);
    }

    #[tokio::test]
    async fn a_refusal_says_what_is_missing_and_when_to_come_back_if_that_helps() {
        let identity = Identity { name: "alice".to_owned(), ..Identity::default() };
        let pods = Right { verb: "list", group: "", resource: "pods", subresource: "" };
        let proxy = Right { verb: "get", group: "", resource: "nodes", subresource: "proxy" };
        let of_pods = "Forbidden (user=alice, verb=list, resource=pods)";
        let of_proxy = "Forbidden (user=alice, verb=get, resource=nodes, subresource=proxy)";
        for (decision, needed, status, message, retry_after) in [
            (Decision::Unauthorized, pods, 401, "Unauthorized", None),
            (Decision::Forbidden, pods, 403, of_pods, None),
            (Decision::Forbidden, proxy, 403, of_proxy, None),
            (Decision::TooManyTokens, pods, 429, "too many unknown tokens", Some("5")),
            (Decision::Unavailable, pods, 503, "the API server", Some("5")),
        ] {
            let response = refusal(decision, Some(&identity), &[needed]);
            assert_eq!(response.status(), status);
            let header = response.headers().get(header::RETRY_AFTER).map(|value| value.to_str().unwrap());
            assert_eq!(header, retry_after, "{decision:?}");
            let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let said = body["message"].as_str().unwrap();
            let is_said = if status == 403 { said == message } else { said.starts_with(message) };
            assert!(is_said, "{decision:?}: {said}");
        }
    }

    #[test]
    fn a_token_follows_the_word_bearer() {
        for (value, expected) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Basic abc", None),
            ("Bearer", None),
            ("Bearer ", None),
        ] {
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]);
            assert_eq!(token(&headers), expected, "{value:?}");
        }
    }
}
