//! Kubelets that are restarted, with and without their API server, while pods come and go: what the judgement of their lists and the
//! merge make of it, in simulated time.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use pod_index::PodMeta;
use pod_index_test_support::dice::Dice;
use serde_json::json;

use super::completeness::{Completeness, Extent, Listed};
use super::skeleton::{Admission, Admitted, Emitted};
use super::status::StatusWriter;
use super::{Merge, Source, SourceUpdate};

/// A kubelet takes over one pod after the other, in this rhythm.
const PER_POD: Duration = Duration::from_millis(80);

/// A node, its kubelet, and the API server.
struct Node {
    now: Duration,
    pods_so_far: usize,
    manifests: BTreeSet<String>,
    api_pods: BTreeSet<String>,
    has_api_server: bool,
    kubelet: Option<Process>,
}

/// A process of the kubelet.
struct Process {
    /// When its container runtime answers. Before that, it reads no source.
    ready: Duration,
    /// What it has of the API server. `None` until that has answered it once.
    of_api_server: Option<Known>,
}

/// The API server's pods that a kubelet knows.
struct Known {
    /// When the API server first answered it.
    since: Duration,
    pods: BTreeSet<String>,
}

impl Node {
    fn new_pod(&mut self, source: &str) -> String {
        self.pods_so_far += 1;
        format!("{source}-{}", self.pods_so_far)
    }

    fn passes(&mut self, time: Duration) {
        self.now += time;
        let Some(kubelet) = &mut self.kubelet else { return };
        if !self.has_api_server || self.now < kubelet.ready {
            return;
        }
        let since = kubelet.of_api_server.as_ref().map_or(self.now, |known| known.since);
        kubelet.of_api_server = Some(Known { since, pods: self.api_pods.clone() });
    }

    /// What the kubelet lists now. `None`: it does not run.
    fn list(&self) -> Option<Vec<String>> {
        let kubelet = self.kubelet.as_ref()?;
        let Some(age) = self.now.checked_sub(kubelet.ready) else { return Some(Vec::new()) };
        let taken_over = |age: Duration| 1 + usize::try_from(age.as_millis() / PER_POD.as_millis()).unwrap();
        let mut pods: Vec<_> = self.manifests.iter().take(taken_over(age)).cloned().collect();
        if let Some(known) = &kubelet.of_api_server {
            let age = self.now.saturating_sub(known.since);
            pods.extend(known.pods.iter().take(taken_over(age)).cloned());
        }
        Some(pods)
    }

    fn is_running(&self, pod: &str) -> bool {
        self.manifests.contains(pod) || self.api_pods.contains(pod)
    }
}

/// A source that reads this node's kubelet, and the merge.
struct Reader {
    start: Instant,
    completeness: Completeness,
    emitted: Emitted,
    status: StatusWriter,
    merge: Merge,
    published: BTreeSet<String>,
}

impl Reader {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            completeness: Completeness::new(),
            emitted: Emitted::default(),
            status: StatusWriter::new(Source::Kubelet, "kubelet"),
            merge: Merge::new([Source::Kubelet]),
            published: BTreeSet::new(),
        }
    }

    /// Reads once, as both sources do.
    fn read(&mut self, node: &Node) {
        let Some(names) = node.list() else { return self.completeness.interrupted() };
        let pods: Vec<_> = names.iter().map(|name| admitted(name)).collect();
        let asked = self.start + node.now;
        let extent = self.completeness.extent(asked, Listed::of(pods.iter().map(|pod| &**pod)));
        let news = self.emitted.news(Some(pods), extent == Extent::All, &self.status);
        let gone = || self.emitted.gone_of_files(&self.status);
        let update = if extent == Extent::PodsOfFiles { news.or_else(gone) } else { news };
        if let Some(update) = update {
            self.apply(update);
        }
        let merged = self.merge.read(Source::Kubelet, asked, extent == Extent::All);
        assert!(merged.is_empty(), "{merged:?}");
    }

    fn apply(&mut self, update: SourceUpdate<k8s_openapi::api::core::v1::Pod>) {
        let merged = self.merge.update(Source::Kubelet, update);
        for pod in &merged.removed {
            self.published.remove(pod.name());
        }
        self.published.extend(merged.added.iter().map(|pod| pod.name().to_owned()));
    }
}

fn admitted(name: &str) -> Admitted {
    let (source, _) = name.split_once('-').unwrap();
    let annotations = json!({ "kubernetes.io/config.source": source, "kubernetes.io/config.seen": "" });
    let metadata = json!({ "name": name, "namespace": "a", "uid": name, "annotations": annotations });
    let pod = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
    Admission { role: Source::Kubelet, transform: |_| {} }.admit(pod, false).unwrap()
}

/// One thing that happens.
fn happens(node: &mut Node, reader: &mut Reader, dice: &mut Dice) -> &'static str {
    match dice.roll(12) {
        0 | 1 => {
            // A runtime that hangs for a minute is not rare.
            let delay = if dice.roll(3) == 0 { 60_000 } else { dice.roll(2000) };
            node.kubelet =
                Some(Process { ready: node.now + Duration::from_millis(delay), of_api_server: None });
            // The connection is another one.
            reader.completeness.interrupted();
            "the kubelet is restarted"
        }
        2 => {
            node.kubelet = None;
            "the kubelet ends"
        }
        3 => {
            node.has_api_server = !node.has_api_server;
            "the API server goes or comes"
        }
        4 => {
            let pod = node.new_pod("file");
            node.manifests.insert(pod);
            "a manifest comes"
        }
        5 | 6 => {
            let gone = dice.index(node.manifests.len().max(1));
            let gone = node.manifests.iter().nth(gone).cloned();
            gone.map(|gone| node.manifests.remove(&gone));
            "a manifest goes"
        }
        7 if node.has_api_server => {
            let pod = node.new_pod("api");
            node.api_pods.insert(pod);
            "a pod of the API server comes"
        }
        8 if node.has_api_server => {
            node.api_pods.pop_first();
            "a pod of the API server goes"
        }
        _ => "time passes",
    }
}

#[test]
fn no_running_pod_is_removed_and_each_one_that_has_gone_goes_once_the_kubelet_can_know_it() {
    let mut gone_early = 0;
    let mut unconfirmed = 0;
    for seed in 0..3000 {
        let mut dice = Dice(seed);
        let mut reader = Reader::new();
        let mut node = Node {
            now: Duration::ZERO,
            pods_so_far: 0,
            manifests: BTreeSet::new(),
            api_pods: BTreeSet::new(),
            has_api_server: true,
            kubelet: None,
        };
        let mut history = Vec::new();
        // Less than the hour after which a list counts all the same.
        for _ in 0..60 {
            let event = happens(&mut node, &mut reader, &mut dice);
            node.passes(Duration::from_millis(1 + dice.roll(4000)));
            let before = reader.published.clone();
            reader.read(&node);
            history.push(format!(
                "{:?} {event}: {:?} listed, {:?} known",
                node.now,
                node.list(),
                reader.published
            ));
            let lost: Vec<_> = before.difference(&reader.published).collect();
            gone_early += usize::from(!lost.is_empty() && !node.has_api_server);
            unconfirmed += reader.published.iter().filter(|pod| !node.is_running(pod)).count();
            let wrongly_lost: Vec<_> = lost.iter().filter(|pod| node.is_running(pod)).collect();
            assert!(wrongly_lost.is_empty(), "seed {seed}: {wrongly_lost:?} run\n{}", history.join("\n"));
        }
        // The kubelet is left alone. A manifest is enough for it to show that it has read them all.
        node.kubelet.get_or_insert(Process { ready: node.now, of_api_server: None });
        let pod = node.new_pod("file");
        node.manifests.insert(pod);
        let is_whole = dice.roll(2) == 0;
        node.has_api_server = is_whole;
        if is_whole {
            let pod = node.new_pod("api");
            node.api_pods.insert(pod);
        }
        node.passes(Duration::from_secs(61));
        for _ in 0..4 {
            node.passes(Duration::from_secs(1));
            reader.read(&node);
        }
        let known = |prefix: &str| -> BTreeSet<_> {
            reader.published.iter().filter(|pod| pod.starts_with(prefix)).cloned().collect()
        };
        assert_eq!(known("file"), node.manifests, "seed {seed}\n{}", history.join("\n"));
        if is_whole {
            assert_eq!(known("api"), node.api_pods, "seed {seed}\n{}", history.join("\n"));
        }
    }
    assert!(gone_early > 100, "hardly a static pod went while the API server was away: {gone_early}");
    assert!(unconfirmed > 1000, "hardly a pod was ever unconfirmed: {unconfirmed}");
}
