//! Certificates that change while the agent runs: its own as a client of the API server, and those of the servers that it reads.

use std::sync::{Arc, Mutex};

use k8s_openapi::ByteString;
use pod_index_test_support::http_server::{self, Server};
use pod_index_test_support::kubelet::pod;
use serde_json::{Value, json};

use crate::access::answer;
use crate::api::kubeconfig_with;
use crate::api_server::ApiServer;
use crate::support::{Agent, Answer, Directory, manifest, node_1};
use crate::tls::{Authority, Pki};

const NODE: &str = "node-1";

/// A server with client certificates, and an agent that makes every kind of request.
struct Site {
    server: ApiServer,
    /// The agent's own TLS files.
    pki: Pki,
    /// Of the server and its clients.
    authority: Authority,
}

impl Site {
    async fn new() -> Self {
        let authority = Authority::new();
        let (certificate, key) = authority.sign("127.0.0.1");
        let server = ApiServer::start_with_tls(&certificate, &key).await;
        server.put("nodes", &json!({ "metadata": { "name": NODE } }));
        Self { server, pki: Pki::new(), authority }
    }

    /// From now on the server accepts only the returned certificate, which comes with its key.
    fn demand_another(&self) -> (String, String) {
        let identity = self.authority.sign(NODE);
        self.server.demand_certificate(&identity.0);
        identity
    }

    /// Writes the kubeconfig. Returns its path.
    fn kubeconfig(&self, user: &Value) -> String {
        let authority = ByteString(self.authority.pem.clone().into_bytes());
        let cluster = json!({ "server": self.server.url(), "certificate-authority-data": authority });
        kubeconfig_with(&self.pki.directory, &cluster, user)
    }

    /// Writes a manifest, and starts an agent with this kubeconfig. Waits until the mirror pod exists.
    async fn start(&self, kubeconfig: &str) -> Agent {
        let manifests = self.pki.directory.0.join("manifests");
        std::fs::create_dir(&manifests).unwrap();
        self.add_manifest("first");
        let flags = "--manage-mirror-pods --authentication-token-webhook";
        let args = format!("{} --kubeconfig {kubeconfig} {flags} {}", node_1(&manifests), self.pki.flags());
        let agent = Agent::start(&args);
        self.mirrored("first").await;
        agent
    }

    fn add_manifest(&self, name: &str) {
        let path = self.pki.directory.0.join("manifests").join(format!("{name}.yaml"));
        std::fs::write(path, manifest(name)).unwrap();
    }

    async fn mirrored(&self, name: &str) {
        let name = format!("{name}-{NODE}");
        let exists = |server: &ApiServer| server.object("pods", "default", &name).is_some();
        self.server.until(&name, exists).await;
    }

    /// Every part of the agent that makes requests gets what it asks for.
    async fn all_parts_are_served(&self, agent: &Agent, round: &str) {
        self.add_manifest(round);
        self.mirrored(round).await;

        self.server.know_token(round, "prometheus", &[]);
        let code = || answer(&self.pki, agent, None, Some(round), "/livez").code;
        assert_eq!(tokio::task::block_in_place(code), 200, "the token is reviewed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_requests_use_a_client_certificate_within_the_kubeconfig() {
    let site = Site::new().await;
    let (certificate, key) = site.demand_another();
    let base64 = |pem: String| ByteString(pem.into_bytes());
    let user = json!({ "client-certificate-data": base64(certificate), "client-key-data": base64(key) });
    let agent = site.start(&site.kubeconfig(&user)).await;
    site.all_parts_are_served(&agent, "one").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_rotation_all_requests_use_the_new_client_certificate() {
    let site = Site::new().await;
    let rotate = || {
        let (certificate, key) = site.demand_another();
        // One file for both, as the kubelet's.
        site.pki.directory.write("client.pem", &(certificate + &key));
    };
    rotate();
    let file = site.pki.at("client.pem");
    let kubeconfig = site.kubeconfig(&json!({ "client-certificate": file, "client-key": file }));
    let agent = site.start(&kubeconfig).await;
    site.all_parts_are_served(&agent, "one").await;
    rotate();
    site.all_parts_are_served(&agent, "two").await;
}

/// The authority rotates, and nobody restarts the agent: the server comes back with a certificate that the file does not vouch
/// for yet, and then the file is replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubelet_and_a_manifest_url_are_read_again_once_the_file_holds_their_new_authority() {
    for (flag, period_flag) in
        [("kubelet", "kubelet-check-frequency"), ("manifest-url", "http-check-frequency")]
    {
        let pods = Arc::new(Mutex::new(list_of("before")));
        let answered = Arc::clone(&pods);
        let answers = move |_: &str| Some(http_server::answer("200 OK", "", &answered.lock().unwrap()));
        let server = Server::start_with_tls(answers).await;
        let directory = Directory::new();
        directory.write("ca.crt", &server.authority);
        let url = server.url("/pods");
        let file = directory.0.join("ca.crt");
        let file = file.display();
        let agent = Agent::start(&format!(
            "--node-name {NODE} --{flag} {url} --{flag}-ca {file} --{period_flag} 50ms"
        ));
        agent.until("/pods", |answer| answer.body.contains("before"));
        agent.until("/sources", |answer| problems(answer).is_empty());

        let authority = server.rotate_certificate();
        server.close_connections();
        agent.until("/sources", |answer| problems(answer).iter().any(is_of_certificate));
        assert!(agent.get("/pods").body.contains("before"), "--{flag}: the pods stay");

        *pods.lock().unwrap() = list_of("after");
        directory.write("ca.crt", &authority);
        agent.until("/pods", |answer| answer.body.contains("after"));
        agent.until("/sources", |answer| problems(answer).is_empty());
    }
}

/// A list with one pod of this name. Not a static one: a kubelet that lists no others may have just started.
fn list_of(name: &str) -> String {
    let pod = pod(&format!("uid-{name}"), name, "api", "10.0.0.1");
    json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [pod] }).to_string()
}

/// The problems of the only source.
fn problems(sources: &Answer) -> Vec<Value> {
    sources.json::<Value>()["sources"][0]["problems"].as_array().unwrap().clone()
}

fn is_of_certificate(problem: &Value) -> bool {
    problem["kind"] == "request" && problem["message"].as_str().unwrap().contains("certificate")
}
