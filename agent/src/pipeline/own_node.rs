//! Reads this node's Node object, to check who owns the node's mirror pods.
//!
//! It is read only while the writer thread needs it: an agent on a node without mirror pods makes no such request. An agent
//! without the right to read the object makes none either; it only asks the API server for its rights.

use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::Api;
use pod_index_kubelet::backoff::Backoff;
use pod_index_kubelet::sources::static_pods::OwnNode;
use tokio::sync::watch;
use tokio::time::sleep;

use super::api_clients::{answer, may};
use super::writer::Command;

/// The shortest time between two reads. Anyone who may create pods can cause a read.
const PAUSE: Duration = Duration::from_secs(10);
/// The longest pause after a failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// Reads the Node object whenever the writer thread needs it. Ends with the writer thread.
pub(crate) async fn follow(
    client: Client,
    node: String,
    mut needed: watch::Receiver<bool>,
    writer: Sender<Command>,
) {
    let mut backoff = Backoff::new(PAUSE, LONGEST_PAUSE).forget_after(2 * LONGEST_PAUSE);
    while needed.wait_for(|needed| *needed).await.is_ok() {
        let found = look_up(&client, &node).await;
        let pause = if found.is_ok() { PAUSE } else { backoff.wait(Instant::now()) };
        if let Err(why) = &found {
            tracing::debug!("the UID of the Node object in mirror pods is not checked: {why}");
        }
        if writer.send(Command::OwnNode(found.ok())).is_err() {
            return;
        }
        sleep(pause).await;
    }
}

async fn look_up(client: &Client, name: &str) -> Result<OwnNode, String> {
    // A refused read would count as a refusal in the server's and in the agent's metrics.
    let get = ResourceAttributes {
        verb: Some("get".to_owned()),
        resource: Some("nodes".to_owned()),
        name: Some(name.to_owned()),
        ..ResourceAttributes::default()
    };
    if !may(client, get).await? {
        return Err(format!("the agent's account may not get the node {name:?}"));
    }
    let asked = Instant::now();
    let nodes: Api<Node> = Api::all(client.clone());
    let node = answer(nodes.get_metadata_opt(name)).await?;
    let meta = node.ok_or_else(|| format!("there is no node {name:?}"))?.metadata;
    let uid =
        meta.uid.filter(|uid| !uid.is_empty()).ok_or_else(|| format!("the node {name:?} has no UID"))?;
    Ok(OwnNode { uid, created: meta.creation_timestamp.map(|time| time.0), asked })
}
