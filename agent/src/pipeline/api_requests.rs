//! Counts requests to the API server and their outcomes.

use hyper::{Method, Request, StatusCode};
use kube::Client;
use kube::client::Body;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tower::service_fn;

use crate::api::request::{is_watch, resource};
use crate::metrics::registered;

const OK: &str = "ok";
const REFUSED: &str = "refused";
const SERVER_ERROR: &str = "server_error";
const NO_ANSWER: &str = "no_answer";

/// The request counters. Clones share the counts.
#[derive(Clone, Debug)]
pub(crate) struct ApiRequests(Family<[(&'static str, &'static str); 2], Counter>);

impl ApiRequests {
    /// All counts are zero.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let help = "Requests to the API server, by verb and outcome";
        let counts = registered(registry, "api_requests", help, Family::<[_; 2], Counter>::default());
        // Every agent makes these requests. A rate needs an initial value.
        for verb in ["list", "watch"] {
            for outcome in [OK, REFUSED, SERVER_ERROR, NO_ANSWER] {
                drop(counts.get_or_create(&[("verb", verb), ("outcome", outcome)]));
            }
        }
        Self(counts)
    }

    /// The same client, with its requests counted.
    pub(crate) fn counted(&self, client: Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        let Self(counts) = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let client = client.clone();
            let counts = counts.clone();
            let verb = verb(&request);
            async move {
                let response = client.send(request).await;
                let outcome = response.as_ref().map_or(NO_ANSWER, |response| outcome(response.status()));
                counts.get_or_create(&[("verb", verb), ("outcome", outcome)]).inc();
                response
            }
        });
        Client::new(service, namespace)
    }
}

/// The outcome of a request, as a label.
pub(crate) fn outcome(status: StatusCode) -> &'static str {
    if status.is_server_error() {
        SERVER_ERROR
    } else if status.is_client_error() {
        REFUSED
    } else {
        OK
    }
}

/// The API verb, as in RBAC.
fn verb<B>(request: &Request<B>) -> &'static str {
    let uri = request.uri();
    let is_named = || resource(uri.path()).is_some_and(|(.., is_named)| is_named);
    match *request.method() {
        Method::GET if is_watch(uri.query()) => "watch",
        Method::GET if is_named() => "get",
        Method::GET => "list",
        Method::POST => "create",
        Method::DELETE => "delete",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_counted_by_its_rbac_verb() {
        for (method, uri, expected) in [
            (Method::GET, "/api/v1/pods", "list"),
            (Method::GET, "/api/v1/pods?limit=500", "list"),
            (Method::GET, "/api/v1/namespaces/default/pods", "list"),
            (Method::GET, "/api/v1/namespaces/default/pods?fieldSelector=x&watch=true", "watch"),
            (Method::GET, "/api/v1/namespaces/default/pods/web", "get"),
            (Method::GET, "/api/v1/nodes/node-1", "get"),
            (Method::GET, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n", "get"),
            (Method::GET, "/apis/coordination.k8s.io/v1/leases", "list"),
            (Method::POST, "/api/v1/namespaces/default/pods", "create"),
            (Method::DELETE, "/api/v1/namespaces/default/pods/web", "delete"),
        ] {
            let request = Request::builder().method(method).uri(uri).body(()).unwrap();
            assert_eq!(verb(&request), expected, "{uri}");
        }
    }
}
