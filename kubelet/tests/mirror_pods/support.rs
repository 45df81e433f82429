//! An agent in this process: an index fed by manifests and the API server, and its mirrors.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use pod_index::{CONFIG_HASH_ANNOTATION, CONFIG_MIRROR_ANNOTATION, PodMeta, Reader};
use pod_index_kubelet::Pauses;
use pod_index_kubelet::mirror::{
    KubeMirrorClient, MirrorState, MirrorStatus, Mirrors, MirrorsStatus, WaitsFor,
};
use pod_index_kubelet::sources::api_server::{ApiServer as PodsOfServer, Times};
use pod_index_kubelet::sources::manifest::{self, Origin};
use pod_index_kubelet::sources::{Merge, NodeName, Source, SourceUpdate};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use pod_index_test_support::api_server::{ApiServer, DEADLINE, shipped};

pub const NODE: &str = "n1";
pub const QUICK: Duration = Duration::from_millis(20);

/// A manifest directory: versions of static pods, by name.
pub type Manifests = BTreeMap<String, u64>;

/// A static pod as the file source makes it. Each version has another hash.
pub fn static_pod(name: &str, version: u64) -> Arc<Pod> {
    let text = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: c, image: 'i:{version}'}}]}}}}"
    );
    let path = format!("/manifests/{name}.yaml");
    let decoded = manifest::decode(text.as_bytes(), Origin::File(Path::new(&path)), &NodeName::new(NODE));
    assert!(decoded.problems.is_empty(), "{:?}", decoded.problems);
    Arc::new(decoded.pods.into_iter().next().unwrap())
}

pub fn on_server(name: &str) -> String {
    format!("{name}-{NODE}")
}

/// Mirrors with short waits.
pub fn mirrors_of(server: &ApiServer) -> Mirrors {
    let mut mirrors = Mirrors::new(KubeMirrorClient::new(server.client(), NODE));
    mirrors.backoff = Pauses::new(QUICK, 4 * QUICK);
    mirrors.contention = mirrors.backoff;
    mirrors.period = 5 * QUICK;
    mirrors
}

/// An agent: an index fed by manifests and the API server, and its mirrors.
pub struct Agent {
    manifests: mpsc::UnboundedSender<Manifests>,
    pub status: watch::Receiver<MirrorsStatus>,
    reader: Reader<Pod>,
    /// Counts updates applied to the index.
    steps: watch::Receiver<u64>,
    /// Number of manifest directory states passed to it, and how many of them the index shows.
    given: AtomicU64,
    applied: watch::Receiver<u64>,
    tasks: Vec<JoinHandle<()>>,
}

impl Agent {
    pub fn start(server: &ApiServer) -> Self {
        Self::start_with(server, mirrors_of(server))
    }

    pub fn start_with(server: &ApiServer, mirrors: Mirrors) -> Self {
        let (manifests, mut changed_manifests) = mpsc::unbounded_channel::<Manifests>();
        let (mut writer, reader) = pod_index::new();
        let (seen, sources_seen) = watch::channel(false);
        let (stepped, steps) = watch::channel(0_u64);
        let (has_applied, applied) = watch::channel(0_u64);
        let times = Times {
            backoff: Pauses::new(QUICK, 4 * QUICK),
            http1_watch: Duration::from_secs(600),
            ..Times::default()
        };
        let source = PodsOfServer { times, ..PodsOfServer::new(server.client()) };
        let mut pods = source.node(&NodeName::new(NODE)).pods();
        let feed = async move {
            let mut merge = Merge::new([Source::File, Source::Api]);
            loop {
                let (merged, manifests) = tokio::select! {
                    Some(update) = pods.next() => (merge.update(Source::Api, update), 0),
                    Some(manifests) = changed_manifests.recv() => {
                        let pods = manifests.iter().map(|(name, version)| static_pod(name, *version));
                        (merge.update(Source::File, SourceUpdate::Set(pods.collect())), 1)
                    }
                };
                assert_eq!(writer.apply(merged.into_operations()).refused, []);
                seen.send_replace(merge.all_sources_seen());
                has_applied.send_modify(|applied| *applied += manifests);
                stepped.send_modify(|steps| *steps += 1);
            }
        };
        let status = mirrors.status();
        let keep = mirrors.run(reader.clone(), sources_seen);
        let tasks = vec![tokio::spawn(feed), tokio::spawn(keep)];
        Self { manifests, status, reader, steps, given: AtomicU64::new(0), applied, tasks }
    }

    /// An agent whose index holds exactly these pods for ever.
    pub fn of_fixed_index(mirrors: Mirrors, pods: impl IntoIterator<Item = Pod>) -> Self {
        Self::of_seen_index(mirrors, pods, watch::channel(true).1)
    }

    /// The same, with its own signal that all sources were seen.
    pub fn of_seen_index(
        mirrors: Mirrors,
        pods: impl IntoIterator<Item = Pod>,
        sources_seen: watch::Receiver<bool>,
    ) -> Self {
        let (mut writer, reader) = pod_index::new();
        assert_eq!(writer.set_pods(pods).refused, []);
        let status = mirrors.status();
        let keep = mirrors.run(reader.clone(), sources_seen);
        let keep = async move {
            let _kept = writer;
            keep.await;
        };
        let (manifests, steps, applied) =
            (mpsc::unbounded_channel().0, watch::channel(0).1, watch::channel(0).1);
        let tasks = vec![tokio::spawn(keep)];
        Self { manifests, status, reader, steps, given: AtomicU64::new(0), applied, tasks }
    }

    pub fn has(&self, manifests: &Manifests) {
        self.given.fetch_add(1, Relaxed);
        self.manifests.send(manifests.clone()).unwrap();
    }

    /// Stops as if killed, possibly in the middle of an operation.
    pub async fn kill(mut self) {
        for task in self.tasks.drain(..) {
            task.abort();
            let _ = task.await;
        }
    }

    pub async fn until(&mut self, what: &str, holds: impl FnMut(&MirrorsStatus) -> bool) {
        let came = tokio::time::timeout(DEADLINE, self.status.wait_for(holds)).await;
        let came = came.is_ok_and(|status| status.is_ok());
        assert!(came, "never came: {what}; {:?}", *self.status.borrow());
    }

    /// Waits until its index has a pod of this name.
    pub async fn knows(&mut self, name: &str) {
        let reader = &self.reader;
        let knows = self.steps.wait_for(|_| reader.load().pod_by_name("default", name).is_some());
        let came = tokio::time::timeout(DEADLINE, knows).await;
        assert!(came.is_ok_and(|steps| steps.is_ok()), "never came: {name}");
    }

    /// Waits for this number of further comparisons, and until all requests that they started have ended.
    pub async fn looks(&mut self, more: u64) {
        let passes = self.status.borrow().passes;
        let is_idle = |status: &MirrorsStatus| {
            status.pods.iter().all(|pod| !matches!(pod.waits_for, Some(WaitsFor::Answer | WaitsFor::Turn)))
        };
        self.until("another look", |status| status.passes >= passes + more && is_idle(status)).await;
    }

    /// Waits until the status shows that everything matches the last manifests and that no request is open, even
    /// for names without a manifest.
    pub async fn rests(&mut self, pods: usize) {
        let given = self.given.load(Relaxed);
        let applied =
            tokio::time::timeout(DEADLINE, self.applied.wait_for(|applied| *applied == given)).await;
        assert!(applied.is_ok_and(|applied| applied.is_ok()), "the manifests never reached the index");
        // One look may still use the previous manifests.
        let passes = self.status.borrow().passes;
        let in_order = |status: &MirrorsStatus| {
            status.passes >= passes + 2
                && status.pending == 0
                && status.pods.len() == pods
                && status.pods.iter().all(|pod| pod.state == MirrorState::InSync)
        };
        self.until("all in order", in_order).await;
    }
}

/// The status of this static pod.
pub fn status_of<'a>(status: &'a MirrorsStatus, name: &str) -> Option<&'a MirrorStatus> {
    let full_name = format!("{}_default", on_server(name));
    status.pods.iter().find(|pod| pod.full_name == full_name)
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// A server that grants its client no more than a node's rights and no more than the shipped RBAC files.
pub async fn strict_server() -> ApiServer {
    let server = ApiServer::start().await;
    server.restrict_to_node(NODE);
    server.grant(shipped("pod-index-mirrors", &["base", "components/mirror-pods"]));
    server
}

/// The same server, with the node registered.
pub async fn server() -> ApiServer {
    let server = strict_server().await;
    server.put("nodes", &json!({ "metadata": { "name": NODE } }));
    server
}

pub fn manifests(pods: &[(&str, u64)]) -> Manifests {
    pods.iter().map(|(name, version)| ((*name).to_owned(), *version)).collect()
}

pub async fn agent(server: &ApiServer, pods: &Manifests) -> Agent {
    let mut agent = Agent::start(server);
    agent.has(pods);
    mirrored(server, pods).await;
    agent.rests(pods.len()).await;
    agent
}

/// The node's mirror pods on the server that are not being deleted: name and hash.
pub fn mirrors(server: &ApiServer) -> BTreeMap<String, String> {
    let pods = server.objects("pods").into_iter();
    let pods =
        pods.filter(|pod| pod["spec"]["nodeName"] == NODE && pod["metadata"]["deletionTimestamp"].is_null());
    let mirrors = pods.filter_map(|pod| {
        let hash = pod["metadata"]["annotations"][CONFIG_MIRROR_ANNOTATION].as_str()?.to_owned();
        Some((pod["metadata"]["name"].as_str()?.to_owned(), hash))
    });
    mirrors.collect()
}

pub fn wanted(pods: &Manifests) -> BTreeMap<String, String> {
    let pods = pods.iter().map(|(name, version)| static_pod(name, *version));
    pods.map(|pod| (pod.name().to_owned(), pod.annotation(CONFIG_HASH_ANNOTATION).unwrap().to_owned()))
        .collect()
}

/// Waits until the mirrors on the server match these static pods.
pub async fn mirrored(server: &ApiServer, pods: &Manifests) {
    let wanted = wanted(pods);
    server.until("the mirrors", |server| mirrors(server) == wanted).await;
}

pub fn plain(name: &str, node: &str) -> Value {
    json!({
        "metadata": { "namespace": "default", "name": name },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "other" }] },
    })
}
