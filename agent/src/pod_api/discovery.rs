//! Discovery: the versions, groups and resources that clients query before objects.

use std::collections::BTreeMap;

use axum::routing::{MethodRouter, get};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::resource::Resource;

/// The paths of discovery for these resources.
pub(super) fn router(resources: impl IntoIterator<Item = &'static Resource>) -> Router {
    let mut versions = BTreeMap::<_, Vec<Value>>::from([("v1", Vec::new())]);
    for resource in resources {
        versions.entry(resource.api_version).or_default().push(resource.described());
    }
    let groups = versions.keys().filter_map(|version| {
        let (name, number) = version.split_once('/')?;
        let version = json!({ "groupVersion": version, "version": number });
        Some(json!({
            "kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": [version], "preferredVersion": version,
        }))
    });
    let all: Vec<_> = groups.collect();
    let path = |group: &Value| format!("/apis/{}", group["name"].as_str().unwrap_or_default());
    let groups: Vec<_> = all.iter().map(|group| (path(group), group.clone())).collect();
    let lists = versions.into_iter().map(|(version, resources)| {
        let folder = if version == "v1" { "api" } else { "apis" };
        let list = json!({ "kind": "APIResourceList", "groupVersion": version, "resources": resources });
        (format!("/{folder}/{version}"), list)
    });
    let fixed = [
        ("/version", version_of_the_agent()),
        ("/api", json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] })),
        ("/apis", json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": all })),
    ];
    let fixed = fixed.map(|(path, answer)| (path.to_owned(), answer));
    fixed.into_iter().chain(groups).chain(lists).fold(Router::new(), |router, (path, answer)| {
        with_slash(router, &path, get(async move || Json(answer)))
    })
}

/// Clients generated from the `OpenAPI` description request some paths with a slash at the end.
pub(super) fn with_slash(router: Router, path: &str, handler: MethodRouter) -> Router {
    router.route(path, handler.clone()).route(&format!("{path}/"), handler)
}

/// Go's name of an architecture, as clients of Kubernetes know it.
fn architecture(name: &str) -> &str {
    match name {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
        "loongarch64" => "loong64",
        name => name,
    }
}

/// The Kubernetes version whose types and rules are served.
fn version_of_the_agent() -> Value {
    json!({
        "major": "1", "minor": "36",
        "gitVersion": concat!("v1.36.0+pod-index-", env!("CARGO_PKG_VERSION")),
        "gitCommit": "", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, architecture(std::env::consts::ARCH)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_have_their_names_in_go() {
        for (rust, go) in [("x86_64", "amd64"), ("aarch64", "arm64"), ("x86", "386"), ("riscv64", "riscv64")]
        {
            assert_eq!(architecture(rust), go);
        }
        let platform = version_of_the_agent()["platform"].clone();
        assert!(!platform.as_str().unwrap().contains("x86_64"), "{platform}");
    }
}
