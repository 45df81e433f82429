//! Reviews of tokens and of rights: `TokenReview` and `SubjectAccessReview`, and those of oneself.

use std::collections::{BTreeMap, BTreeSet};

use hyper::Response;
use hyper::body::Bytes;
use serde_json::{Value, json};

use super::ApiServer;
use super::answer::{Body, Refusal, json_answer};
use super::request::Request;
use super::rights::{Right, Rights};

/// Known users and rights, and the reviews so far.
#[derive(Default)]
pub(super) struct Reviews {
    /// The user of each token.
    users: BTreeMap<String, Value>,
    /// Users and groups with their verbs and subresources of nodes, or groups and resources.
    allowed: BTreeSet<(String, String, String)>,
    tokens_asked: u64,
    /// The attributes of each access review.
    rights_asked: Vec<Value>,
}

/// Whether the request is a review of the client itself, which every authenticated user may make
/// (`system:basic-user`).
pub(super) fn is_of_oneself(request: &Request) -> bool {
    ["selfsubjectreviews", "selfsubjectaccessreviews"].contains(&&*request.selector.resource)
}

/// The answer to a review of the client itself.
pub(super) fn of_oneself(
    request: &Request,
    user: &str,
    rights: &Rights,
    body: &Bytes,
) -> Result<Response<Body>, Refusal> {
    let Ok(mut review) = serde_json::from_slice::<Value>(body) else {
        return Err(Refusal::new(400, "BadRequest", "the body is not JSON"));
    };
    review["status"] = if request.selector.resource == "selfsubjectreviews" {
        json!({ "userInfo": { "username": user, "groups": ["system:authenticated"] } })
    } else {
        let attributes = &review["spec"]["resourceAttributes"];
        let text = |name: &str| attributes[name].as_str().unwrap_or_default().to_owned();
        let asked = Right {
            group: text("group"),
            resource: text("resource"),
            verb: text("verb"),
            namespace: text("namespace"),
        };
        json!({ "allowed": rights.allow(&asked) })
    };
    Ok(json_answer(201, review.to_string().into()))
}

impl Reviews {
    /// The answer to a review; `None` if the request is not a review.
    pub(super) fn answer(
        &mut self,
        request: &Request,
        body: &Bytes,
    ) -> Option<Result<Response<Body>, Refusal>> {
        let resource = &*request.selector.resource;
        if !["tokenreviews", "subjectaccessreviews"].contains(&resource) {
            return None;
        }
        let Ok(mut review) = serde_json::from_slice::<Value>(body) else {
            return Some(Err(Refusal::new(400, "BadRequest", "the body is no JSON")));
        };
        review["status"] = if resource == "tokenreviews" { self.token(&review) } else { self.right(&review) };
        Some(Ok(json_answer(201, review.to_string().into())))
    }

    fn token(&mut self, review: &Value) -> Value {
        self.tokens_asked += 1;
        let user = review["spec"]["token"].as_str().and_then(|token| self.users.get(token));
        match user {
            Some(user) => json!({ "authenticated": true, "user": user }),
            None => json!({ "user": {}, "error": "[invalid bearer token, unknown]" }),
        }
    }

    fn right(&mut self, review: &Value) -> Value {
        let spec = &review["spec"];
        self.rights_asked.push(spec.clone());
        let attributes = &spec["resourceAttributes"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let what = match attributes["subresource"].as_str() {
            Some(subresource) if attributes["resource"] == "nodes" => subresource.to_owned(),
            _ => format!("{}/{}", text(&attributes["group"]), text(&attributes["resource"])),
        };
        let mut who = std::iter::once(&spec["user"]).chain(spec["groups"].as_array().into_iter().flatten());
        let verb = text(&attributes["verb"]);
        let allowed = who.any(|who| self.allowed.contains(&(text(who), verb.clone(), what.clone())));
        json!({ "allowed": allowed })
    }
}

impl ApiServer {
    /// Makes this token belong to this user, with these groups and, as in a real API server, the one of all authenticated
    /// users.
    pub fn know_token(&self, token: &str, user: &str, groups: &[&str]) {
        let groups: Vec<_> = groups.iter().chain(&["system:authenticated"]).collect();
        let user = json!({ "username": user, "uid": format!("uid-of-{user}"), "groups": groups });
        self.shared.lock().reviews.users.insert(token.to_owned(), user);
    }

    /// Grants the user or the group this verb on this subresource of nodes, or on this `group/resource` in all namespaces.
    pub fn allow(&self, user: &str, verb: &str, what: &str) {
        let right = (user.to_owned(), verb.to_owned(), what.to_owned());
        self.shared.lock().reviews.allowed.insert(right);
    }

    /// The number of token reviews, and all access reviews.
    pub fn reviewed(&self) -> (u64, Vec<Value>) {
        let state = self.shared.lock();
        (state.reviews.tokens_asked, state.reviews.rights_asked.clone())
    }
}
