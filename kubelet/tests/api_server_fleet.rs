//! The requests of 2,000 nodes at one API server: a start of all at once, restarts of a tenth at a time, and a restart
//! of the server. Ignored by default, because it measures:
//!
//! ```text
//! cargo test --release -p pod-index-kubelet --test kubelet --all-features -- --ignored --nocapture
//! ```
//!
//! Every node has a client of its own, with TLS and HTTP/2, as an agent has. All of them and the server share this
//! process, so the times say little. The counts are exact.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use futures_util::StreamExt;
use kube::Config;
use pod_index_kubelet::api_client::{ApiClient, ConnectionOptions};
use pod_index_kubelet::sources::api_server::ApiServer as Source;
use pod_index_kubelet::sources::{NodeName, SourceUpdate};
use pod_index_test_support::api_server::{ApiServer, Verb};
use pod_index_test_support::proxy::Proxy;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const NODES: usize = 2_000;
const PODS_PER_NODE: usize = 10;
/// How long the server is away.
const OUTAGE: Duration = Duration::from_secs(20);
/// How long each part may take.
const LIMIT: Duration = Duration::from_secs(300);

fn pod(node: usize, number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": "shop", "name": format!("web-{node}-{number}"), "labels": { "app": "web" } },
        "spec": { "nodeName": format!("node-{node}"), "containers": [{ "name": "web", "image": "nginx:1.27" }] },
        "status": { "phase": "Running", "podIP": format!("10.{}.{}.{number}", node >> 8, node & 255) },
    })
}

/// The server behind a proxy that counts connections, and its clients.
struct Fleet {
    server: ApiServer,
    proxy: Proxy,
    config: Config,
    /// Whole lists that the nodes have received.
    served: Arc<AtomicUsize>,
    nodes: Vec<JoinHandle<()>>,
}

impl Fleet {
    async fn new() -> Self {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).unwrap();
        let server = ApiServer::start_with_tls(&cert.pem(), &signing_key.serialize_pem()).await;
        let pods = (0..NODES).flat_map(|node| (0..PODS_PER_NODE).map(move |number| pod(node, number)));
        server.put_all("pods", pods);
        let proxy = Proxy::before(server.port()).await;
        let mut config = Config::new(format!("https://127.0.0.1:{}", proxy.port()).parse().unwrap());
        config.root_cert = Some(vec![cert.der().to_vec()]);
        Self { server, proxy, config, served: Arc::default(), nodes: Vec::new() }
    }

    /// An agent's source of pods, without what it does with them.
    fn node(&self, number: usize) -> JoinHandle<()> {
        let (config, served) = (self.config.clone(), Arc::clone(&self.served));
        tokio::spawn(async move {
            let client = ApiClient::new(config, "pod-index/0", &ConnectionOptions::default()).await.unwrap();
            let node = NodeName::new(&format!("node-{number}"));
            let mut source = Source::new(client.client()).node(&node).pods();
            while let Some(update) = source.next().await {
                if let SourceUpdate::Set(pods) = update {
                    assert_eq!(pods.len(), PODS_PER_NODE, "the pods of {node}");
                    served.fetch_add(1, Relaxed);
                }
            }
        })
    }

    fn requests(&self) -> u64 {
        Verb::ALL.iter().map(|verb| self.server.requests(*verb)).sum()
    }

    /// Prints what the server was asked from now until every node follows its pods.
    async fn part(&mut self, what: &str, act: impl AsyncFnOnce(&mut Self)) {
        let count = |fleet: &Self| {
            let lists = fleet.server.listed_versions();
            let uncached = lists.iter().filter(|version| **version != Some(0)).count();
            (
                fleet.requests(),
                lists.len(),
                uncached,
                fleet.server.requests(Verb::Watch),
                fleet.proxy.accepted(),
            )
        };
        let before = count(self);
        let start = Instant::now();
        act(self).await;
        let (mut busiest, mut last) = (0, self.requests());
        while self.server.open_watches() < NODES {
            assert!(start.elapsed() < LIMIT, "{what}: {} of {NODES} follow", self.server.open_watches());
            sleep(Duration::from_secs(1)).await;
            let now = self.requests();
            (busiest, last) = (busiest.max(now - last), now);
        }
        let after = count(self);
        println!(
            "| {what} | {} | {} | {} | {} | {} | {} | {:.0?} |",
            after.0 - before.0,
            after.1 - before.1,
            after.2 - before.2,
            after.3 - before.3,
            after.4 - before.4,
            busiest,
            start.elapsed()
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: .ci/run figures"]
async fn two_thousand_nodes_list_from_the_watch_cache() {
    let mut fleet = Fleet::new().await;
    println!(
        "| {NODES} nodes, {PODS_PER_NODE} pods each | requests | lists | not from the cache | watches | connections | busiest second | time |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|");
    fleet
        .part("all start at once", async |fleet| {
            fleet.nodes = (0..NODES).map(|number| fleet.node(number)).collect();
        })
        .await;
    for tenth in 0..2 {
        fleet
            .part("a tenth restarts", async |fleet| {
                for number in tenth * NODES / 10..(tenth + 1) * NODES / 10 {
                    fleet.nodes[number].abort();
                    fleet.nodes[number] = fleet.node(number);
                }
                fleet
                    .server
                    .until("the watches of the old agents end", |server| server.open_watches() < NODES)
                    .await;
            })
            .await;
    }
    fleet
        .part("the server is away for 20 s", async |fleet| {
            fleet.server.refuse();
            sleep(OUTAGE).await;
            fleet.server.accept().await;
        })
        .await;
    assert!(fleet.served.load(Relaxed) >= NODES * 12 / 10);
    assert!(
        fleet.server.listed_versions().iter().all(|version| *version == Some(0)),
        "a list left the watch cache"
    );
}
