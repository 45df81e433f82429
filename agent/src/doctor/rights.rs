//! Checks each right that the settings need on the API server with a `SelfSubjectAccessReview`.

use std::fmt;

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{FieldSelectorAttributes, ResourceAttributes};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::FieldSelectorRequirement;
use kube::Client;
use kube::api::{Api, PostParams};

use super::report::Finding;
use crate::config::Settings;
use crate::config::values::Extra;
use crate::pipeline::api_clients;
use pod_index_kubelet::sources::NodeName;

const CHECK: &str = "rights";

/// Kubelet: `NamespaceNodeLease`.
const LEASES: &str = "kube-node-lease";

/// How many characters of the user's name are shown. That of a service account has up to 339.
const LONGEST_NAME: usize = 512;

/// The parts of `deploy/kubernetes` that grant rights.
const BASE: &str = "base";
const MIRRORS: &str = "components/mirror-pods";
const RESOURCES: &str = "components/resources";
const REVIEWS: &str = "components/client-reviews";

/// A right, and the part of `deploy/kubernetes` that grants it.
struct Right(ResourceAttributes, &'static str);

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [verb, group, resource] = self.rule();
        write!(f, "{verb} {resource}")?;
        if !group.is_empty() {
            write!(f, ".{group}")?;
        }
        if let Some(name) = &self.0.name {
            write!(f, " {name:?}")?;
        }
        if let Some(namespace) = &self.0.namespace {
            write!(f, " in the namespace {namespace:?}")?;
        }
        Ok(())
    }
}

impl Right {
    fn new(verb: &str, group: &str, resource: &str, part: &'static str) -> Self {
        let [verb, group, resource] = [verb, group, resource].map(|word| Some(word.to_owned()));
        Self(ResourceAttributes { verb, group, resource, ..ResourceAttributes::default() }, part)
    }

    /// The right to one object.
    fn named(mut self, name: &NodeName) -> Self {
        self.0.name = Some(name.to_string());
        self
    }

    /// The verb, the group and the resource.
    fn rule(&self) -> [&str; 3] {
        [&self.0.verb, &self.0.group, &self.0.resource].map(|word| word.as_deref().unwrap_or_default())
    }

    /// How to grant it.
    fn fix(&self, user: &str) -> String {
        let [verb, group, resource] = self.rule();
        let kind = if self.0.namespace.is_some() { "Role" } else { "ClusterRole" };
        format!(
            "bind {user} to a {kind} with the rule {{apiGroups: [{group:?}], resources: [{resource}], verbs: [{verb}]}}, \
             as in the release's deploy/kubernetes/{}/rbac.yaml",
            self.1
        )
    }
}

/// The rights that an agent with these settings uses on the API server.
fn needed(settings: &Settings) -> Vec<Right> {
    let mut rights = Vec::new();
    let node = &settings.node;
    let effective = &settings.effective;
    if effective.api_server.is_configured() {
        let of_the_node = || FieldSelectorAttributes {
            requirements: Some(vec![FieldSelectorRequirement {
                key: "spec.nodeName".to_owned(),
                operator: "In".to_owned(),
                values: Some(vec![node.to_string()]),
            }]),
            ..FieldSelectorAttributes::default()
        };
        rights.extend(["list", "watch"].map(|verb| {
            let mut right = Right::new(verb, "", "pods", BASE);
            right.0.namespace.clone_from(&effective.api_server.namespace);
            right.0.field_selector = (!effective.api_server.all_nodes).then(of_the_node);
            right
        }));
    }
    if settings.mirrors {
        rights.extend(["create", "delete", "get"].map(|verb| Right::new(verb, "", "pods", MIRRORS)));
        rights.push(Right::new("get", "", "nodes", MIRRORS).named(node));
        let mut lease = Right::new("get", "coordination.k8s.io", "leases", MIRRORS).named(node);
        lease.0.namespace = Some(LEASES.to_owned());
        rights.push(lease);
    }
    for extra in &effective.pod_api.serve_resources {
        for (group, resource) in extra.resources() {
            rights.extend(extra.verbs().iter().map(|verb| {
                let right = Right::new(verb, group, resource, RESOURCES);
                if *extra == Extra::Nodes && !effective.api_server.all_nodes {
                    right.named(node)
                } else {
                    right
                }
            }));
        }
    }
    let access = effective.access_rules();
    if access.tokens {
        rights.push(Right::new("create", "authentication.k8s.io", "tokenreviews", REVIEWS));
    }
    if access.rights {
        rights.push(Right::new("create", "authorization.k8s.io", "subjectaccessreviews", REVIEWS));
    }
    rights
}

/// The name that the API server has for the agent. `None` before Kubernetes 1.28, which cannot be asked.
async fn user(client: &Client) -> Option<String> {
    let reviews = Api::<SelfSubjectReview>::all(client.clone());
    let review = SelfSubjectReview::default();
    let review = api_clients::answer(reviews.create(&PostParams::default(), &review)).await.ok()?;
    let name = review.status?.user_info?.username?;
    Some(name.chars().take(LONGEST_NAME).collect())
}

/// Reviews all rights. Returns `false` if the server says that pods may not be listed or watched.
pub(super) async fn check(settings: &Settings, client: &Client, findings: &mut Vec<Finding>) -> bool {
    let user = user(client).await.unwrap_or_else(|| "this user".to_owned());
    let mut granted = Vec::new();
    let mut may_read = true;
    for right in needed(settings) {
        // The node authorizer grants it for single pods. A review without a name would be denied.
        if user.starts_with("system:node:") && right.rule() == ["get", "", "pods"] {
            let why =
                format!("{right}: the node authorizer grants it to {user} for the pods of its node alone");
            findings.push(Finding::skipped(CHECK, why));
            continue;
        }
        match api_clients::may(client, right.0.clone()).await {
            Ok(true) => granted.push(right.to_string()),
            Ok(false) => {
                may_read &= right.1 != BASE;
                findings.push(Finding::failure(CHECK, format!("{user} may not {right}"), right.fix(&user)));
            }
            // Nor can the others.
            Err(why) => {
                findings.push(Finding::skipped(CHECK, format!("{right}: cannot be checked: {why}")));
                break;
            }
        }
    }
    if !granted.is_empty() {
        findings.push(Finding::ok(CHECK, format!("{user} may {}", granted.join(", "))));
    }
    may_read
}
