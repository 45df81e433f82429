//! Everything that a node agent's writer owes its index, in one loop: a merge that derives static pods, a join with the
//! Namespaces, the node's Node object, times, and what is due while nothing changes.
//!
//! `cargo run -p pod-index-kubelet --example writer -- node-1` follows the API server that kubectl uses, and reads batches of
//! IPs from standard input, one batch a line.

mod coverage;
mod index;
mod tests;

use std::error::Error;
use std::io::BufRead;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use coverage::Reported;
use futures_util::stream::{StreamExt, select};
use index::{Index, News};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use pod_index::{Options, PodMeta, Snapshot};
use pod_index_kubelet::records::{Join, Record, Rules};
use pod_index_kubelet::sources::api_server::{ApiServer, connect};
use pod_index_kubelet::sources::static_pods::OwnNode;
use pod_index_kubelet::sources::{Merge, NodeName, Source};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

const RULES: &str =
    "extract: {metadata: [k8s.node.name], labels: [{key: team, from: namespace, tag_name: team}]}";
/// Anyone who may create pods can cause a read of the Node object.
const NODE_PAUSE: Duration = Duration::from_secs(10);

/// A line for each key of a batch, all of one moment: one load, and one call for all of them.
fn tags(snapshot: &Snapshot<Record>, batch: &[IpAddr]) -> Vec<String> {
    let found = snapshot.get_many(batch.iter().copied());
    let lines = found.map(|found| match found {
        Some(found) => {
            let attributes: Vec<_> = found.pod.attributes().map(ToString::to_string).collect();
            format!("{}/{} {}", found.pod.namespace(), found.pod.name(), attributes.join(" "))
        }
        None => "unknown".to_owned(),
    });
    lines.collect()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).ok_or("usage: writer NODE")?;
    let node = NodeName::new(&name);
    let client = connect(None).await?;
    let of_pods = ApiServer::new(client.clone()).node(&node).pods();
    let reported = Reported::new(vec![of_pods.status()]);
    let of_namespaces = ApiServer::new(client.clone()).objects();
    let mut updates = select(of_pods.map(News::Pods), of_namespaces.map(News::Namespaces));

    // Removed pods stay for five minutes, because events of a pod arrive after its end.
    let options = Options::new().keep_removed(Duration::from_secs(300), 1_000).keep_times(true);
    let (writer, reader) = pod_index::with_options(options);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let batch: Vec<_> = line.split_whitespace().filter_map(|ip| ip.parse().ok()).collect();
            for line in tags(&reader.load(), &batch) {
                println!("{line}");
            }
        }
    });

    let merge = Merge::new([Source::Api]).derive_static_pods(node);
    let mut index = Index { merge, join: Join::new(Rules::parse(RULES)?.extract), writer, reported };
    let (answer, mut answers) = mpsc::channel(1);
    let mut asked: Option<Instant> = None;
    let mut second = interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased; // news first: when a look is due, none waits
            Some(news) = updates.next() => index.hear(news),
            Some(node) = answers.recv() => index.hear(News::OwnNode(node)),
            _ = second.tick() => index.look(),
        }
        if index.merge.needs_own_node() && asked.is_none_or(|asked| asked.elapsed() >= NODE_PAUSE) {
            asked = Some(Instant::now());
            let node = own_node(client.clone(), name.clone());
            let answer = answer.clone();
            tokio::spawn(async move { answer.send(node.await.ok()).await });
        }
    }
}

async fn own_node(client: Client, name: String) -> kube::Result<OwnNode> {
    let asked = Instant::now();
    let metadata = Api::<Node>::all(client).get_metadata(&name).await?.metadata;
    let created = metadata.creation_timestamp.map(|time| time.0);
    Ok(OwnNode { uid: metadata.uid.unwrap_or_default(), created, asked })
}
