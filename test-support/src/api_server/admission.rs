//! What a node may do: the node authorizer's rules for reads, and the admission plugin `NodeRestriction`'s
//! for writes (`plugin/pkg/auth/authorizer/node`, `plugin/pkg/admission/noderestriction/admission.go`).

use std::collections::BTreeSet;

use serde_json::Value;

use super::State;
use super::answer::Refusal;
use super::list::not_found;
use super::request::{Request, Verb};
use super::store::{Key, Object, text};

const MIRROR: &str = "kubernetes.io/config.mirror";

fn forbidden(name: &str, why: impl AsRef<str>) -> Refusal {
    let message = format!("pods \"{name}\" is forbidden: {}", why.as_ref());
    Refusal::new(403, "Forbidden", message).about(&Key::new("pods", "", name))
}

/// A node may read itself, its own pods, and the objects they name.
pub(super) fn read(state: &State, request: &Request) -> Result<(), Refusal> {
    let Some(node) = &state.restricted_to else { return Ok(()) };
    let selector = &request.selector;
    let (resource, namespace) = (selector.resource.as_str(), selector.namespace.as_str());
    let many = matches!(request.verb, Verb::List | Verb::Watch);
    if many && resource == "pods" {
        if selector.is_for_node(node) {
            return Ok(());
        }
        let why = "can only list/watch pods with spec.nodeName field selector";
        return Err(Refusal::new(403, "Forbidden", format!("pods is forbidden: {why}")));
    }
    let name = if many { selector.key().name } else { request.name.clone() };
    let is_related = match (request.verb, resource) {
        (Verb::Get, "pods") => {
            let pod = state.store.get(&Key::new("pods", namespace, &name));
            pod.is_some_and(|pod| is_on(pod, node))
        }
        (Verb::Get | Verb::List | Verb::Watch, "nodes" | "leases") => name == *node,
        (Verb::Get | Verb::List | Verb::Watch, "secrets" | "configmaps") => {
            let mut pods =
                state.store.all("pods").filter(|pod| is_on(pod, node) && pod.key.namespace == namespace);
            pods.any(|pod| references(&pod.value).contains(&(kind_of(resource), name.clone())))
        }
        _ => true,
    };
    if is_related {
        return Ok(());
    }
    let verb = format!("{:?}", request.verb).to_lowercase();
    let message = format!(
        "{resource} \"{name}\" is forbidden: User \"system:node:{node}\" cannot {verb} resource \"{resource}\" in API group \
         \"{}\" in the namespace \"{namespace}\": no relationship found between node '{node}' and this object",
        request.group
    );
    Err(Refusal::new(403, "Forbidden", message).about(&Key::new(resource, namespace, &name)))
}

fn is_on(pod: &Object, node: &str) -> bool {
    text(&pod.value, "/spec/nodeName") == node
}

/// A node may create only its own mirror pods.
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
    let key = Key::new("nodes", "", node);
    let Some(known) = state.store.get(&key) else { return Err(not_found(&key)) };
    if Some(known.uid()) != owner["uid"].as_str() {
        return refuse(format!("UID in owner reference does not match that of node \"{node}\""));
    }
    if !text(pod, "/spec/serviceAccountName").is_empty() {
        return refuse(format!("node \"{node}\" can not create pods that reference a service account"));
    }
    match references(pod).first() {
        Some((kind, _)) => refuse(format!("node \"{node}\" can not create pods that reference {kind}")),
        None => Ok(()),
    }
}

fn kind_of(resource: &str) -> &'static str {
    if resource == "secrets" { "secrets" } else { "configmaps" }
}

/// All API server objects that the pod names: kind and name.
fn references(pod: &Value) -> BTreeSet<(&'static str, String)> {
    let mut found = BTreeSet::new();
    collect(&pod["spec"], &mut found);
    found
}

/// `VisitPodSecretNames` and `VisitPodConfigmapNames` (`pkg/api/pod/util.go`), by field name: each name has
/// the same meaning everywhere in a pod.
fn collect(value: &Value, found: &mut BTreeSet<(&'static str, String)>) {
    let name_in = |value: &Value, field: &str| value[field].as_str().map(str::to_owned);
    match value {
        Value::Object(fields) => {
            for (field, inner) in fields {
                let named = match field.as_str() {
                    "secretRef" | "secretKeyRef" | "nodePublishSecretRef" => {
                        name_in(inner, "name").map(|name| ("secrets", name))
                    }
                    // In a volume, and in a projected one.
                    "secret" => name_in(inner, "secretName")
                        .or_else(|| name_in(inner, "name"))
                        .map(|name| ("secrets", name)),
                    "azureFile" => name_in(inner, "secretName").map(|name| ("secrets", name)),
                    "imagePullSecrets" => {
                        let names =
                            inner.as_array().into_iter().flatten().filter_map(|inner| name_in(inner, "name"));
                        found.extend(names.map(|name| ("secrets", name)));
                        None
                    }
                    "configMap" | "configMapRef" | "configMapKeyRef" => {
                        name_in(inner, "name").map(|name| ("configmaps", name))
                    }
                    "persistentVolumeClaim" => {
                        name_in(inner, "claimName").map(|name| ("persistentvolumeclaims", name))
                    }
                    "clusterTrustBundle" => Some(("clustertrustbundles", String::new())),
                    "resourceClaims" => {
                        let any = inner.as_array().is_some_and(|claims| !claims.is_empty());
                        any.then(|| ("resourceclaims", String::new()))
                    }
                    _ => None,
                };
                found.extend(named);
                collect(inner, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        _ => {}
    }
}

/// A node may not update pods; updating their status has other rules.
pub(super) fn replace(state: &State, request: &Request) -> Result<(), Refusal> {
    let Some(node) = &state.restricted_to else { return Ok(()) };
    if request.selector.resource == "pods" {
        let why = format!("User \"system:node:{node}\" cannot update resource \"pods\" in API group \"\"");
        return Err(forbidden(&request.name, why));
    }
    Ok(())
}

/// A node may delete only its own pods.
pub(super) fn delete(state: &State, object: &Object) -> Result<(), Refusal> {
    let Some(node) = &state.restricted_to else { return Ok(()) };
    if object.key.resource == "pods" && !is_on(object, node) {
        let why = format!("node \"{node}\" can only delete pods with spec.nodeName set to itself");
        return Err(forbidden(&object.key.name, why));
    }
    Ok(())
}
