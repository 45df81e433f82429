//! An index of your own pod type. A tracer that maps container IDs to pods keeps a few words per pod, not the
//! whole Kubernetes object. `cargo run --example slim --no-default-features`

use std::sync::Arc;

use pod_index::{Change, PodMeta};

/// Everything this agent needs of a pod.
struct Traced {
    uid: Box<str>,
    name: Box<str>,
    namespace: Box<str>,
    /// The value of `kubernetes.io/config.mirror`, which marks mirror pods.
    mirrors: Option<Box<str>>,
    team: Box<str>,
}

impl PodMeta for Traced {
    fn uid(&self) -> &str {
        &self.uid
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn namespace(&self) -> &str {
        &self.namespace
    }
    fn annotation(&self, key: &str) -> Option<&str> {
        (key == pod_index::CONFIG_MIRROR_ANNOTATION).then_some(self.mirrors.as_deref()?)
    }
}

fn pod(uid: &str, name: &str, team: &str) -> Arc<Traced> {
    Arc::new(Traced {
        uid: uid.into(),
        name: name.into(),
        namespace: "shop".into(),
        mirrors: None,
        team: team.into(),
    })
}

fn main() {
    let (mut writer, reader) = pod_index::new::<Traced>();
    let before = reader.snapshot();
    let applied = writer.set_pods([pod("u1", "cart-0", "checkout"), pod("u2", "search-0", "discovery")]);
    println!("{} pods at generation {}", reader.load().pods().len(), applied.generation);

    if let Some(pod) = reader.pod(("shop", "cart-0")) {
        println!("an event from {} goes to team {}", pod.name, pod.team);
    }

    // Keep the last snapshot to follow the index at your own pace without missing changes.
    for change in reader.snapshot().changes_since(&before) {
        if let Change::Added(pod) = change {
            println!("new: {}/{}", pod.namespace, pod.name);
        }
    }
}
