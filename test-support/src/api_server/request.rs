//! A request's meaning, from its path and query.

use std::collections::HashMap;

use hyper::{Method, Uri, header};

use super::accept;
use super::answer::Refusal;
use super::selector::Selector;

/// The kinds of requests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Replace,
    Delete,
}

impl Verb {
    pub const ALL: [Self; 6] =
        [Self::Get, Self::List, Self::Watch, Self::Create, Self::Replace, Self::Delete];
}

/// The resources of this server: group and name.
const RESOURCES: [(&str, &str); 19] = [
    ("", "configmaps"),
    ("", "events"),
    ("", "namespaces"),
    ("", "nodes"),
    ("", "pods"),
    ("", "secrets"),
    ("", "serviceaccounts"),
    ("", "services"),
    ("apps", "daemonsets"),
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("batch", "cronjobs"),
    ("batch", "jobs"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
    ("coordination.k8s.io", "leases"),
];

/// A request without its body.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) verb: Verb,
    /// The API group; empty for the core group.
    pub(super) group: String,
    pub(super) selector: Selector,
    /// Empty for a list, a watch and a create.
    pub(super) name: String,
    pub(super) metadata_only: bool,
    pub(super) accepts_gzip: bool,
    pub(super) user_agent: String,
    query: HashMap<String, String>,
}

impl Request {
    pub(super) fn parse<B>(request: &hyper::Request<B>) -> Result<Self, Refusal> {
        let unknown = || Refusal::not_found("the server could not find the requested resource");
        let query = query(request.uri());
        let path = request.uri().path().trim_matches('/');
        let segments: Vec<&str> = path.split('/').collect();
        let (group, within) = match segments.as_slice() {
            ["api", _version, within @ ..] => ("", within),
            ["apis", group, _version, within @ ..] => (*group, within),
            _ => return Err(unknown()),
        };
        let (namespace, resource, name) = match *within {
            ["namespaces", namespace, resource, name] => (namespace, resource, name),
            ["namespaces", namespace, resource] => (namespace, resource, ""),
            [resource, name] => ("", resource, name),
            [resource] => ("", resource, ""),
            _ => return Err(unknown()),
        };
        if !RESOURCES.contains(&(group, resource)) {
            return Err(unknown());
        }
        let watching = query.get("watch").is_some_and(|value| value == "true" || value == "1");
        let verb = match (request.method(), name.is_empty()) {
            (&Method::GET, true) if watching => Verb::Watch,
            (&Method::GET, true) => Verb::List,
            (&Method::GET, false) => Verb::Get,
            (&Method::POST, true) => Verb::Create,
            (&Method::PUT, false) => Verb::Replace,
            (&Method::DELETE, false) => Verb::Delete,
            _ => return Err(Refusal::new(405, "MethodNotAllowed", "the server does not allow this method")),
        };
        let header =
            |name| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let metadata_only = accept::metadata_only(header(header::ACCEPT))?;
        let text = |key: &str| query.get(key).map(String::as_str).unwrap_or_default();
        let selector = Selector::parse(resource, namespace, text("fieldSelector"), text("labelSelector"))?;
        let group = group.to_owned();
        let user_agent = header(header::USER_AGENT).to_owned();
        let accepts_gzip = header(header::ACCEPT_ENCODING).split(',').any(|coding| coding.trim() == "gzip");
        Ok(Self {
            verb,
            group,
            selector,
            name: name.to_owned(),
            metadata_only,
            accepts_gzip,
            user_agent,
            query,
        })
    }

    pub(super) fn query(&self, key: &str) -> Option<&str> {
        self.query.get(key).map(String::as_str)
    }

    /// A resource version. `None` if it is missing, which differs from 0.
    pub(super) fn version(&self, key: &str) -> Result<Option<u64>, Refusal> {
        let text = self.query(key).unwrap_or_default();
        if text.is_empty() {
            return Ok(None);
        }
        let invalid = |error| {
            let message = format!("invalid resource version {text:?}: {error}");
            Refusal::new(400, "BadRequest", message)
        };
        text.parse().map(Some).map_err(invalid)
    }

    pub(super) fn asks_for(&self, key: &str) -> bool {
        self.query(key) == Some("true")
    }
}

fn query(uri: &Uri) -> HashMap<String, String> {
    let pairs = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), decoded(value))).collect()
}

/// Decodes form data.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next(), rest.next()].map(Option::unwrap_or_default);
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).unwrap()
}
