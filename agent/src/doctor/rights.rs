//! Checks each right that the settings need on the API server with a `SelfSubjectAccessReview`.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{FieldSelectorAttributes, ResourceAttributes};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::FieldSelectorRequirement;
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::time::timeout;

use super::PATIENCE;
use super::report::Finding;
use crate::config::Settings;
use crate::config::values::{Extra, Management};
use crate::pipeline::api_clients;

const CHECK: &str = "rights";

/// Kubelet: `NamespaceNodeLease`.
const LEASES: &str = "kube-node-lease";

/// A right.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Right {
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    /// `None`: in all namespaces, or of a resource without a namespace.
    namespace: Option<String>,
    name: Option<String>,
    /// The node of the pods.
    node: Option<String>,
    /// The part of `deploy/kubernetes` that grants it.
    part: &'static str,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if let Some(name) = &self.name {
            write!(f, " {name:?}")?;
        }
        if let Some(namespace) = &self.namespace {
            write!(f, " in the namespace {namespace:?}")?;
        }
        Ok(())
    }
}

impl Right {
    fn new(verb: &'static str, group: &'static str, resource: &'static str, part: &'static str) -> Self {
        Self { verb, group, resource, namespace: None, name: None, node: None, part }
    }

    /// To read the lease of this node's kubelet.
    pub(super) fn lease(settings: &Settings) -> Self {
        Self {
            namespace: Some(LEASES.to_owned()),
            name: Some(settings.node.to_string()),
            ..Self::new("get", "coordination.k8s.io", "leases", "components/mirror-pods")
        }
    }

    fn attributes(&self) -> ResourceAttributes {
        let requirement = |node: &String| FieldSelectorRequirement {
            key: "spec.nodeName".to_owned(),
            operator: "In".to_owned(),
            values: Some(vec![node.clone()]),
        };
        let field_selector = self.node.as_ref().map(|node| FieldSelectorAttributes {
            requirements: Some(vec![requirement(node)]),
            ..FieldSelectorAttributes::default()
        });
        ResourceAttributes {
            verb: Some(self.verb.to_owned()),
            group: Some(self.group.to_owned()),
            resource: Some(self.resource.to_owned()),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            field_selector,
            ..ResourceAttributes::default()
        }
    }

    fn fix(&self) -> String {
        format!("grant the agent's user what deploy/kubernetes/{}/rbac.yaml grants", self.part)
    }
}

/// The rights that an agent with these settings uses on the API server.
pub(super) fn needed(settings: &Settings) -> Vec<Right> {
    let mut rights = Vec::new();
    if let Some(api) = &settings.api {
        let node = (!api.all_nodes).then(|| settings.node.to_string());
        let namespace = api.selection.namespace().map(str::to_owned);
        rights.extend(["list", "watch"].map(|verb| Right {
            namespace: namespace.clone(),
            node: node.clone(),
            ..Right::new(verb, "", "pods", "base")
        }));
    }
    if settings.mirrors != Management::Off {
        let mirrors = "components/mirror-pods";
        rights.extend(["create", "delete", "get"].map(|verb| Right::new(verb, "", "pods", mirrors)));
        rights
            .push(Right { name: Some(settings.node.to_string()), ..Right::new("get", "", "nodes", mirrors) });
    }
    if settings.mirrors == Management::Careful {
        rights.push(Right::lease(settings));
    }
    for extra in &settings.pod_api.extra {
        let own = *extra == Extra::Nodes && settings.api.as_ref().is_some_and(|api| !api.all_nodes);
        rights.extend(extra.resources().iter().flat_map(|(group, resource)| {
            extra.verbs().iter().map(move |verb| Right {
                name: own.then(|| settings.node.to_string()),
                ..Right::new(verb, group, resource, "components/resources")
            })
        }));
    }
    let reviews = "components/client-reviews";
    if settings.access.tokens {
        rights.push(Right::new("create", "authentication.k8s.io", "tokenreviews", reviews));
    }
    if settings.access.rights {
        rights.push(Right::new("create", "authorization.k8s.io", "subjectaccessreviews", reviews));
    }
    rights
}

/// Whether the API server grants the right. The error is the reason why that is unknown.
pub(super) async fn may(client: &Client, right: &Right) -> Result<bool, String> {
    api_clients::may(client, right.attributes()).await
}

/// The name that the API server has for the agent. `None` before Kubernetes 1.28, which cannot be asked.
async fn user(client: &Client) -> Option<String> {
    let reviews = Api::<SelfSubjectReview>::all(client.clone());
    let review = SelfSubjectReview::default();
    let review = timeout(PATIENCE, reviews.create(&PostParams::default(), &review)).await.ok()?.ok()?;
    review.status?.user_info?.username
}

/// Whether the node authorizer grants this right only for single objects. A review of the right as a whole would then
/// say no.
fn is_per_object(user: &str, right: &Right) -> bool {
    user.starts_with("system:node:") && right.resource == "pods" && right.verb == "get"
}

/// Reviews all rights. Also returns `false` if the server says that pods may not be listed or watched.
pub(super) async fn check(settings: &Settings, client: &Client) -> (Vec<Finding>, bool) {
    let user = user(client).await.unwrap_or_else(|| "this user".to_owned());
    let mut granted = BTreeMap::<&'static str, Vec<String>>::new();
    let (mut findings, mut may_read) = (Vec::new(), true);
    for right in needed(settings) {
        if is_per_object(&user, &right) {
            let why =
                format!("{right}: the node authorizer grants it to {user} for each object that a pod names");
            findings.push(Finding::skipped(CHECK, why));
            continue;
        }
        match may(client, &right).await {
            Ok(true) => granted.entry(right.part).or_default().push(right.to_string()),
            Ok(false) => {
                may_read &= right.part != "base";
                findings.push(Finding::failure(CHECK, format!("{user} may not {right}"), right.fix()));
            }
            Err(why) => {
                findings.push(Finding::skipped(CHECK, format!("{right}: cannot be checked: {why}")));
            }
        }
    }
    let granted = granted.into_values().map(|rights| {
        let message = format!("{user} may {}", rights.join(", "));
        Finding::ok(CHECK, message)
    });
    (granted.chain(findings).collect(), may_read)
}
