//! Reviews of tokens and of rights: `TokenReview` and `SubjectAccessReview`.

use std::collections::{BTreeMap, BTreeSet};

use hyper::Response;
use hyper::body::Bytes;
use serde_json::{Value, json};

use super::ApiServer;
use super::answer::{Body, Refusal, json_answer};
use super::request::Request;

/// What the server knows of users, and how often it was asked.
#[derive(Default)]
pub(super) struct Reviews {
    /// Each token's user.
    users: BTreeMap<String, Value>,
    /// Users, verbs and subresources of nodes.
    allowed: BTreeSet<(String, String, String)>,
    tokens_asked: u64,
    /// The attributes of each review of rights.
    rights_asked: Vec<Value>,
}

impl Reviews {
    /// The answer to a review; `None` if the request is none.
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
        let right = (text(&spec["user"]), text(&attributes["verb"]), text(&attributes["subresource"]));
        let allowed = attributes["resource"] == "nodes" && self.allowed.contains(&right);
        json!({ "allowed": allowed })
    }
}

impl ApiServer {
    /// This token is this user's, who is in these groups.
    pub fn know_token(&self, token: &str, user: &str, groups: &[&str]) {
        let user = json!({ "username": user, "uid": format!("uid-of-{user}"), "groups": groups });
        self.shared.lock().reviews.users.insert(token.to_owned(), user);
    }

    /// The user may do this with this subresource of nodes.
    pub fn allow(&self, user: &str, verb: &str, subresource: &str) {
        let right = (user.to_owned(), verb.to_owned(), subresource.to_owned());
        self.shared.lock().reviews.allowed.insert(right);
    }

    /// How many tokens it was asked about, and each right that it was asked about.
    pub fn reviewed(&self) -> (u64, Vec<Value>) {
        let state = self.shared.lock();
        (state.reviews.tokens_asked, state.reviews.rights_asked.clone())
    }
}
