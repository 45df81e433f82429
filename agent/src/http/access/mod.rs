//! Access control: by the name or group in a client certificate or token, or by asking the API server.
//!
//! | flag | which clients are identified | which of them are served |
//! |---|---|---|
//! | `--client-ca-file` | those with a certificate from these authorities | all |
//! | `--authentication-token-webhook` | those with a token that the API server accepts | all |
//! | `--allowed-client-names`, `--allowed-client-groups` | | those with one of these names or groups |
//! | `--authorization-mode=Webhook` | | clients that the API server allows to make the same request to a kubelet |
//!
//! If the last two are combined, either is enough.
//!
//! This module knows identities and decisions. It must not know what is served.
//!
//! Kubelet: `InstallAuthFilter`, `NewNodeAuthorizerAttributesGetter` (`pkg/kubelet/server`).

mod budget;
mod cache;
mod identity;
mod webhook;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use kube::Client;

use self::budget::TooMany;
pub(crate) use self::identity::Identity;
use self::webhook::{Right, Webhook};
use crate::api::client::{Named, Peer};
use crate::api::refusal::refused;
use crate::config::values::{AccessSettings, Extra};
use crate::pod_api;

/// Decides on each request.
#[derive(Debug)]
pub(crate) struct Access {
    settings: AccessSettings,
    webhook: Option<Webhook>,
}

/// The client, identified by the certificate of its connection or by the token of its request.
#[derive(Clone, Debug)]
pub(crate) struct Certified(pub(crate) Option<Arc<Identity>>);

impl Access {
    /// `None` if every client that completes the handshake may ask everything.
    pub(crate) fn new(settings: &AccessSettings, client: Option<&Client>, node: &str) -> Option<Arc<Self>> {
        let webhook = client.filter(|_| settings.tokens || settings.rights);
        let webhook = webhook.map(|client| Webhook::new(client.clone(), node));
        settings.is_limited().then(|| Arc::new(Self { settings: settings.clone(), webhook }))
    }

    /// The client, if the request is allowed.
    async fn admit(&self, request: &Asked<'_>) -> Result<Identity, (StatusCode, &'static str, String)> {
        let known = match (request.certified, request.token()) {
            (Some(identity), _) => Some(identity.clone()),
            (None, Some(token)) if self.settings.tokens => match &self.webhook {
                Some(webhook) => webhook.identify(token, request.client).await.map_err(|TooMany| {
                    let message = "too many unknown tokens; try again later".to_owned();
                    (StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
                })?,
                None => None,
            },
            _ => None,
        };
        let Some(identity) = known else {
            return Err((StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized".to_owned()));
        };
        let AccessSettings { names, groups, rights, .. } = &self.settings;
        let is_listed = identity.names().any(|name| names.contains(name))
            || identity.groups.iter().any(|group| groups.contains(group));
        if is_listed || !(self.settings.lists_clients() || *rights) {
            return Ok(identity);
        }
        let needed = request.rights();
        if let Some(webhook) = self.webhook.as_ref().filter(|_| *rights) {
            for right in &needed {
                if webhook.may(&identity, *right).await {
                    return Ok(identity);
                }
            }
        }
        let Right { verb, resource, subresource, .. } = needed[0];
        let subresource =
            if subresource.is_empty() { String::new() } else { format!(", subresource={subresource}") };
        let message =
            format!("Forbidden (user={}, verb={verb}, resource={resource}{subresource})", identity.name);
        Err((StatusCode::FORBIDDEN, "Forbidden", message))
    }
}

/// A request and the client that made it.
struct Asked<'a> {
    /// The address of the client, or what stands for it.
    client: &'a str,
    certified: Option<&'a Identity>,
    headers: &'a HeaderMap,
    method: &'a Method,
    path: &'a str,
    query: &'a str,
}

impl Asked<'_> {
    fn token(&self) -> Option<&str> {
        let value = self.headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, token) = value.split_once(' ')?;
        let token = token.trim();
        (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
    }

    /// Kubelet: `getAPIVerb` (`pkg/kubelet/server/auth.go`).
    fn verb(&self) -> &'static str {
        match *self.method {
            // A query with a body.
            Method::POST if self.path == "/whois" => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "get",
        }
    }

    /// The rights of which one is enough. The API's own paths need the right to the resource on the API server, in all
    /// namespaces; like everything else, `nodes/proxy` allows them.
    fn rights(&self) -> Vec<Right> {
        let verb = self.verb();
        let of_node = |subresource: &&'static str| Right { verb, group: "", resource: "nodes", subresource };
        let own = (*self.method == Method::GET).then(|| self.resource()).flatten();
        own.into_iter().chain(self.subresources().iter().map(of_node)).collect()
    }

    /// The right to what a path of the API names.
    fn resource(&self) -> Option<Right> {
        let (group, resource, is_named) = pod_api::resource(self.path)?;
        // Not the client's own words: each right is cached.
        let mut known = Extra::ALL.into_iter().flat_map(Extra::resources).copied().chain([("", "pods")]);
        let (group, resource) = known.find(|known| *known == (group, resource))?;
        let verb = match () {
            () if is_named => "get",
            () if pod_api::is_watch(self.query) => "watch",
            () => "list",
        };
        Some(Right { verb, group, resource, subresource: "" })
    }

    /// The subresources of `nodes`; access to one of them is enough. Like the kubelet, falls back to `nodes/proxy`.
    ///
    /// Kubelet: `nodeAuthorizerAttributesGetter` (`pkg/kubelet/server/auth.go`).
    fn subresources(&self) -> &'static [&'static str] {
        let is_below = |prefix: &str| {
            self.path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
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
}

/// Middleware that rejects requests without access.
pub(crate) async fn guarded(State(access): State<Arc<Access>>, mut request: Request, next: Next) -> Response {
    let certified = request.extensions().get::<Certified>().and_then(|Certified(identity)| identity.clone());
    let peer = request.extensions().get::<Arc<Peer>>().map(|peer| Arc::clone(&peer.origin.name));
    let asked = Asked {
        client: peer.as_deref().unwrap_or_default(),
        certified: certified.as_deref(),
        headers: request.headers(),
        method: request.method(),
        path: request.uri().path(),
        query: request.uri().query().unwrap_or_default(),
    };
    match access.admit(&asked).await {
        Ok(identity) => {
            if let Some(name) = identity.names().next() {
                request.extensions_mut().insert(Named(name.into()));
            }
            next.run(request).await
        }
        Err((code, reason, message)) => refused(code, reason, message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked<'a>(path: &'a str, headers: &'a HeaderMap) -> Asked<'a> {
        Asked { client: "client", certified: None, headers, method: &Method::GET, path, query: "" }
    }

    #[test]
    fn a_path_needs_the_same_right_as_on_a_kubelet() {
        let headers = HeaderMap::new();
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
            assert_eq!(asked(path, &headers).subresources(), expected, "{path}");
        }
    }

    #[test]
    fn a_path_of_the_api_needs_the_right_to_its_resource() {
        let headers = HeaderMap::new();
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
            let right = Asked { query, ..asked(path, &headers) }.resource();
            assert_eq!(right.map(|right| (right.verb, right.resource)), expected, "{path}?{query}");
        }
    }

    #[test]
    fn a_query_with_a_body_is_a_read() {
        let headers = HeaderMap::new();
        for (path, verb) in [("/whois", "get"), ("/whois/x", "create"), ("/sources", "create")] {
            let asked = Asked { method: &Method::POST, ..asked(path, &headers) };
            assert_eq!(asked.verb(), verb, "{path}");
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
            assert_eq!(asked("/", &headers).token(), expected, "{value:?}");
        }
    }

    #[tokio::test]
    async fn only_an_allowed_name_alternative_name_or_group_is_accepted() {
        let set = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect();
        let settings = AccessSettings {
            names: set(&["prometheus", "a.example"]),
            groups: set(&["ops"]),
            ..AccessSettings::default()
        };
        let access = Access { settings, webhook: None };
        let headers = HeaderMap::new();
        let identity = |name: &str, alternative: &str, group: &str| Identity {
            name: name.to_owned(),
            alternative_names: vec![alternative.to_owned()],
            groups: vec![group.to_owned()],
            ..Identity::default()
        };
        for (who, code) in [
            (Some(identity("prometheus", "", "")), None),
            (Some(identity("", "a.example", "")), None),
            (Some(identity("x", "y", "ops")), None),
            (Some(identity("ops", "ops", "prometheus")), Some(StatusCode::FORBIDDEN)),
            (Some(identity("Prometheus", "b.a.example", "op")), Some(StatusCode::FORBIDDEN)),
            (Some(identity("", "", "")), Some(StatusCode::FORBIDDEN)),
            (None, Some(StatusCode::UNAUTHORIZED)),
        ] {
            let asked = Asked { certified: who.as_ref(), ..asked("/pods", &headers) };
            assert_eq!(access.admit(&asked).await.err().map(|(code, ..)| code), code, "{who:?}");
        }
    }
}
