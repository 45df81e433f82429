//! What a node may do: `NodeRestriction`'s rules for mirror pods (`plugin/pkg/admission/noderestriction/admission.go`), and
//! the node authorizer's for lists.

use serde_json::Value;

use super::State;
use super::answer::Refusal;
use super::request::{Request, Verb};
use super::store::{Key, Object, text};

const MIRROR: &str = "kubernetes.io/config.mirror";

fn forbidden(name: &str, why: impl AsRef<str>) -> Refusal {
    Refusal::new(403, "Forbidden", format!("pods \"{name}\" is forbidden: {}", why.as_ref()))
}

/// A node may list and watch its own pods alone.
pub(super) fn read(state: &State, request: &Request) -> Result<(), Refusal> {
    let Some(node) = &state.restricted_to else { return Ok(()) };
    let many = matches!(request.verb, Verb::List | Verb::Watch);
    if many && request.selector.resource == "pods" && !request.selector.is_for_node(node) {
        let why = "can only list/watch pods with spec.nodeName field selector";
        return Err(Refusal::new(403, "Forbidden", format!("pods is forbidden: {why}")));
    }
    Ok(())
}

/// A node may create mirror pods of its own alone.
pub(super) fn create(state: &State, pod: &Value) -> Result<(), Refusal> {
    let Some(node) = &state.restricted_to else { return Ok(()) };
    let name = text(pod, "/metadata/name");
    let refuse = |why: String| Err(forbidden(name, why));
    if pod["metadata"]["annotations"].get(MIRROR).is_none() {
        return refuse(format!(
            "pod does not have \"{MIRROR}\" annotation, node \"{node}\" can only create mirror pods"
        ));
    }
    if text(pod, "/spec/nodeName") != node {
        return refuse(format!("node \"{node}\" can only create pods with spec.nodeName set to itself"));
    }
    let owners = pod["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    let [owner] = owners else {
        return refuse(format!(
            "node \"{node}\" can only create pods with a single owner reference set to itself"
        ));
    };
    let is_node = owner["apiVersion"] == "v1" && owner["kind"] == "Node" && owner["name"] == node.as_str();
    if !is_node {
        return refuse(format!("node \"{node}\" can only create pods with an owner reference set to itself"));
    }
    if owner["controller"] != true {
        return refuse(format!(
            "node \"{node}\" can only create pods with a controller owner reference set to itself"
        ));
    }
    if owner["blockOwnerDeletion"] == true {
        return refuse(format!("node \"{node}\" must not set blockOwnerDeletion on an owner reference"));
    }
    let uid = state.store.get(&Key::new("nodes", "", node)).map(|node| node.uid().to_owned());
    if uid.as_deref() != owner["uid"].as_str() || uid.is_none() {
        return refuse(format!("UID in owner reference does not match that of node \"{node}\""));
    }
    if !text(pod, "/spec/serviceAccountName").is_empty() {
        return refuse(format!("node \"{node}\" can not create pods that reference a service account"));
    }
    let volumes = pod["spec"]["volumes"].as_array().map(Vec::as_slice).unwrap_or_default();
    for kind in ["secret", "configMap", "persistentVolumeClaim"] {
        if volumes.iter().any(|volume| volume.get(kind).is_some()) {
            return refuse(format!("node \"{node}\" can not create pods that reference {kind} volumes"));
        }
    }
    Ok(())
}

/// A node may delete its own pods alone.
pub(super) fn delete(state: &State, object: &Object) -> Result<(), Refusal> {
    let Some(node) = &state.restricted_to else { return Ok(()) };
    if object.key.resource == "pods" && text(&object.value, "/spec/nodeName") != node {
        let why = format!("node \"{node}\" can only delete pods with spec.nodeName set to itself");
        return Err(forbidden(&object.key.name, why));
    }
    Ok(())
}
