//! What a request asks for, read off its path and query.

use std::collections::HashMap;

use hyper::{Method, Uri, header};

use super::answer::Refusal;
use super::selector::{self, Selector};

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

/// A request without its body.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) verb: Verb,
    /// The API group; empty for the core's.
    pub(super) group: String,
    pub(super) selector: Selector,
    /// Empty for a list, a watch and a create.
    pub(super) name: String,
    pub(super) metadata_only: bool,
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
        let accept = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
        let metadata_only = accept.is_some_and(|accept| accept.contains("as=PartialObjectMetadata"));
        let terms = |key: &str| query.get(key).map(|text| selector::parse(text)).unwrap_or_default();
        let selector = Selector {
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            fields: terms("fieldSelector"),
            labels: terms("labelSelector"),
        };
        let group = group.to_owned();
        Ok(Self { verb, group, selector, name: name.to_owned(), metadata_only, query })
    }

    pub(super) fn query(&self, key: &str) -> Option<&str> {
        self.query.get(key).map(String::as_str)
    }

    pub(super) fn asks_for(&self, key: &str) -> bool {
        self.query(key) == Some("true")
    }
}

fn query(uri: &Uri) -> HashMap<String, String> {
    let pairs = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), decoded(value))).collect()
}

/// Undoes the encoding of form data.
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
