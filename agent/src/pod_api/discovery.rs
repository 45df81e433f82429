//! Discovery: the versions, groups and resources that clients query before pods.

use axum::Json;
use serde_json::{Value, json};

/// The Kubernetes version whose types and rules are served.
const KUBERNETES: (&str, &str) = ("1", "36");

/// `/api`.
pub(super) async fn versions() -> Json<Value> {
    Json(json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] }))
}

/// `/apis`: no groups.
pub(super) async fn groups() -> Json<Value> {
    Json(json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [] }))
}

/// `/api/v1`: pods.
pub(super) async fn resources() -> Json<Value> {
    let pods = json!({
        "name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod", "verbs": ["get", "list", "watch"],
        "shortNames": ["po"], "categories": ["all"],
    });
    Json(json!({ "kind": "APIResourceList", "groupVersion": "v1", "resources": [pods] }))
}

/// `/version`.
pub(super) async fn version() -> Json<Value> {
    let (major, minor) = KUBERNETES;
    Json(json!({
        "major": major, "minor": minor,
        "gitVersion": concat!("v1.36.0+pod-index-", env!("CARGO_PKG_VERSION")),
        "gitCommit": "", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    }))
}
