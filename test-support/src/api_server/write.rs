//! Create, replace and delete.

use hyper::Response;
use hyper::body::Bytes;
use serde_json::{Value, json};

use super::State;
use super::admission;
use super::answer::{Body, Refusal, json_answer, render};
use super::list::not_found;
use super::request::{Request, Verb};
use super::store::{Key, text};

const MIRROR: &str = "kubernetes.io/config.mirror";

/// A pod's grace period in seconds, if neither it nor the request sets one.
const DEFAULT_GRACE: u64 = 30;

fn key(request: &Request, name: &str) -> Key {
    Key::new(&request.selector.resource, &request.selector.namespace, name)
}

fn parsed(body: &Bytes) -> Result<Value, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::new(400, "BadRequest", error.to_string()))
}

/// A write and its result, including refused ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    pub verb: Verb,
    pub key: Key,
    /// The HTTP status.
    pub code: u16,
}

/// The object of a write.
pub(super) fn target(request: &Request, body: &Bytes) -> Key {
    let name = if request.verb == Verb::Create {
        parsed(body).map(|object| text(&object, "/metadata/name").to_owned()).unwrap_or_default()
    } else {
        request.name.clone()
    };
    key(request, &name)
}

/// The field manager.
fn managed(request: &Request, operation: &str) -> Value {
    let by_agent = || request.user_agent.split(['/', ' ']).next().filter(|name| !name.is_empty());
    let manager = request.query("fieldManager").or_else(by_agent).unwrap_or("unknown");
    json!([{ "manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {} }])
}

pub(super) fn create(state: &mut State, request: &Request, body: &Bytes) -> Result<Response<Body>, Refusal> {
    let mut object = parsed(body)?;
    let key = key(request, text(&object, "/metadata/name"));
    let namespace = text(&object, "/metadata/namespace");
    if !namespace.is_empty() && namespace != key.namespace {
        let what = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Refusal::new(400, "BadRequest", what));
    }
    if key.name.is_empty() {
        return Err(invalid(&key, "metadata.name: Required value: name or generateName is required"));
    }
    object["metadata"]["namespace"] = json!(key.namespace);
    let names_version = !text(&object, "/metadata/resourceVersion").is_empty();
    // Set by the server, whatever the client sends.
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for given in ["uid", "resourceVersion", "creationTimestamp", "deletionTimestamp"] {
            metadata.remove(given);
        }
        if key.namespace.is_empty() {
            metadata.remove("namespace");
        }
    }
    in_a_lasting_namespace(state, &key)?;
    if key.resource == "pods" {
        admission::create(state, &object)?;
        object["status"] = json!({ "phase": "Pending" });
    }
    if state.store.get(&key).is_some() {
        let message = format!("{} \"{}\" already exists", key.resource, key.name);
        return Err(Refusal::new(409, "AlreadyExists", message).about(&key));
    }
    if names_version {
        return Err(Refusal::new(500, "", "resourceVersion should not be set on objects to be created"));
    }
    object["metadata"]["managedFields"] = managed(request, "Update");
    let stored = state.store.put(&key.resource, object);
    Ok(json_answer(201, render(&stored, request.metadata_only)))
}

/// Nothing is created in a namespace that is being deleted. A namespace without a Namespace object counts as lasting,
/// unlike on a real server: most tests have none.
fn in_a_lasting_namespace(state: &State, key: &Key) -> Result<(), Refusal> {
    let name = &key.namespace;
    let namespace = state.store.get(&Key::new("namespaces", "", name));
    if namespace.is_none_or(|namespace| text(&namespace.value, "/status/phase") != "Terminating") {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {name} because it is being terminated");
    let cause = json!({
        "reason": "NamespaceTerminating", "message": format!("namespace {name} is being terminated"),
        "field": "metadata.namespace",
    });
    let details = json!({ "name": key.name, "kind": key.resource, "causes": [cause] });
    let message = format!("{} \"{}\" is forbidden: {why}", key.resource, key.name);
    Err(Refusal::new(403, "Forbidden", message).with(details))
}

pub(super) fn replace(state: &mut State, request: &Request, body: &Bytes) -> Result<Response<Body>, Refusal> {
    let mut object = parsed(body)?;
    let key = key(request, &request.name);
    admission::replace(state, request)?;
    let old = state.store.get(&key).cloned().ok_or_else(|| not_found(&key))?;
    let version = text(&object, "/metadata/resourceVersion");
    if !version.is_empty() && version != old.version.to_string() {
        let message = format!("{} \"{}\": the object has been modified", key.resource, key.name);
        return Err(Refusal::new(409, "Conflict", message).about(&key));
    }
    let uid = text(&object, "/metadata/uid");
    if !uid.is_empty() && uid != old.uid() {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{}\": Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            key.resource,
            key.name,
            old.uid()
        );
        return Err(Refusal::new(409, "Conflict", message).about(&key));
    }
    let mirror = |object: &Value| object["metadata"]["annotations"].get(MIRROR).cloned();
    if key.resource == "pods" && mirror(&object) != mirror(&old.value) {
        let what = "may not remove, add or update mirror pod annotation";
        return Err(invalid(&key, &format!("metadata.annotations[{MIRROR}]: Forbidden: {what}")));
    }
    for kept in ["uid", "creationTimestamp", "deletionTimestamp", "namespace"] {
        if let Some(value) = old.value["metadata"].get(kept) {
            object["metadata"][kept] = value.clone();
        }
    }
    // A write that changes nothing makes neither a version nor an event.
    let is_same = content(&object) == content(&old.value);
    let stored = if is_same { old } else { state.store.put(&key.resource, object) };
    Ok(json_answer(200, render(&stored, request.metadata_only)))
}

/// The object without what the server sets at each write.
fn content(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
    }
    object
}

pub(super) fn delete(state: &mut State, request: &Request, body: &Bytes) -> Result<Response<Body>, Refusal> {
    let options = if body.is_empty() { Value::Null } else { parsed(body)? };
    let key = key(request, &request.name);
    let old = state.store.get(&key).cloned().ok_or_else(|| not_found(&key))?;
    admission::delete(state, &old)?;
    let version = old.version.to_string();
    for (field, name, is) in [("uid", "UID", old.uid()), ("resourceVersion", "ResourceVersion", &version)] {
        let wanted = text(&options["preconditions"], &format!("/{field}"));
        if !wanted.is_empty() && wanted != is {
            let message = format!(
                "Operation cannot be fulfilled on {} \"{}\": Precondition failed: {name} in precondition: {wanted}, {name} in \
                 object meta: {is}",
                key.resource, key.name
            );
            return Err(Refusal::new(409, "Conflict", message).about(&key));
        }
    }
    let asked = options["gracePeriodSeconds"].as_u64();
    let graceful = key.resource == "pods" && !text(&old.value, "/spec/nodeName").is_empty();
    let default = old.value["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap_or(DEFAULT_GRACE);
    let grace = if graceful { asked.unwrap_or(default) } else { 0 };
    // An object with a finalizer stays, regardless of the grace period.
    let kept = old.value["metadata"]["finalizers"].as_array().is_some_and(|kept| !kept.is_empty());
    if grace == 0 && !kept {
        let gone = state.store.remove(&key).ok_or_else(|| not_found(&key))?;
        return Ok(json_answer(200, render(&gone, request.metadata_only)));
    }
    let mut terminating = old.value.clone();
    terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z");
    terminating["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    let stored = state.store.put(&key.resource, terminating);
    Ok(json_answer(200, render(&stored, request.metadata_only)))
}

fn invalid(key: &Key, what: &str) -> Refusal {
    Refusal::new(422, "Invalid", format!("{} \"{}\" is invalid: {what}", key.resource, key.name))
}
