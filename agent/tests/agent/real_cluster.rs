//! Access control by a real API server. Ignored by default: it creates a service account and a role in a cluster, and deletes them.
//!
//! ```text
//! KUBECONFIG=~/.kube/config cargo test -p pod-index-agent --test agent real_cluster:: -- --ignored
//! ```
//! Use a test cluster, and a kubeconfig that may do everything there.

use std::sync::Arc;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject};
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams};
use pod_index_kubelet::sources::api_server::connect;

use crate::access::{REVIEWS, answer};
use crate::support::wait_for;
use crate::tls::Pki;

const NAMESPACE: &str = "default";

/// Where this test has its objects, all of one name.
struct Cluster {
    accounts: Api<ServiceAccount>,
    roles: Api<ClusterRole>,
    bindings: Api<ClusterRoleBinding>,
    name: String,
}

impl Cluster {
    fn metadata(&self) -> ObjectMeta {
        ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() }
    }

    /// Creates the service account. Returns a token of it.
    async fn create_account(&self) -> String {
        let account = ServiceAccount { metadata: self.metadata(), ..ServiceAccount::default() };
        self.accounts.create(&PostParams::default(), &account).await.expect("a service account");
        let request = TokenRequest { spec: Some(TokenRequestSpec::default()), ..TokenRequest::default() };
        let answer = self.accounts.create_token_request(&self.name, &PostParams::default(), &request).await;
        answer.expect("a token").status.and_then(|status| status.token).expect("a token")
    }

    /// Gives the service account the right to the metrics of every node.
    async fn grant_metrics(&self) {
        let may_get = PolicyRule {
            api_groups: Some(vec![String::new()]),
            resources: Some(vec!["nodes/metrics".to_owned()]),
            verbs: vec!["get".to_owned()],
            ..PolicyRule::default()
        };
        let role =
            ClusterRole { metadata: self.metadata(), rules: Some(vec![may_get]), ..ClusterRole::default() };
        self.roles.create(&PostParams::default(), &role).await.expect("a role");
        let subject = Subject {
            kind: "ServiceAccount".to_owned(),
            name: self.name.clone(),
            namespace: Some(NAMESPACE.to_owned()),
            ..Subject::default()
        };
        let of = RoleRef {
            api_group: Some("rbac.authorization.k8s.io".to_owned()),
            kind: "ClusterRole".to_owned(),
            name: self.name.clone(),
        };
        let binding =
            ClusterRoleBinding { metadata: self.metadata(), role_ref: of, subjects: Some(vec![subject]) };
        self.bindings.create(&PostParams::default(), &binding).await.expect("a binding");
    }

    /// Deletes what there is.
    async fn delete(&self) {
        let params = DeleteParams::default();
        let _ = self.bindings.delete(&self.name, &params).await;
        let _ = self.roles.delete(&self.name, &params).await;
        let _ = self.accounts.delete(&self.name, &params).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a cluster, and creates a service account and a role in it"]
async fn tokens_and_rights_are_reviewed_by_a_real_api_server() {
    let client = connect(None).await.expect("a kubeconfig");
    let cluster = Cluster {
        accounts: Api::namespaced(client.clone(), NAMESPACE),
        roles: Api::all(client.clone()),
        bindings: Api::all(client),
        name: format!("pod-index-test-{}", std::process::id()),
    };
    let cluster = Arc::new(cluster);
    let done = tokio::spawn(reviewed(Arc::clone(&cluster))).await;
    // Also if the test failed.
    cluster.delete().await;
    done.expect("see above");
}

async fn reviewed(cluster: Arc<Cluster>) {
    let kubeconfig = std::env::var("KUBECONFIG").expect("the variable KUBECONFIG");
    let pki = Pki::new();
    let agent = pki.start(&format!("--kubeconfig {kubeconfig} {REVIEWS}"));
    let code = |token: Option<&str>, path: &str| {
        tokio::task::block_in_place(|| answer(&pki, &agent, None, token, path).code)
    };
    let token = cluster.create_account().await;
    // The first review may come before the API server's cache has the account.
    wait_for(|| "the token is known", || code(Some(&token), "/metrics") == 403);
    assert_eq!(code(None, "/metrics"), 401);
    assert_eq!(code(Some(&format!("{token}x")), "/metrics"), 401);

    cluster.grant_metrics().await;
    wait_for(|| "the right is known", || code(Some(&token), "/metrics") == 200);
    assert_eq!(code(Some(&token), "/pods"), 403, "the right to the metrics is no right to the pods");
    let line = agent.wait_for_log("at this address for the first time");
    let name = format!("system:serviceaccount:{NAMESPACE}:{}", cluster.name);
    assert!(line.contains(&name), "{line}");
}
