//! How a manager goes about it.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use serde::{Deserialize, Serialize};

/// How changes of an object are found out.
///
/// Kubelet: `configMapAndSecretChangeDetectionStrategy` (`pkg/kubelet/apis/config/types.go`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum Strategy {
    /// One watch for each object, from the first reference to the last.
    #[default]
    Watch,
    /// It is fetched when it is asked for, and kept for a time ([`Options::ttl`]). Gets that come while it is being fetched
    /// wait for what that brings, be it an error; those of other objects do not. A pod that comes to name the object has it
    /// fetched anew. **Departure** from the kubelet, which fetches anew with every update of any pod that names it.
    Cache,
    /// It is fetched each time it is asked for, whoever names it.
    Get,
}

/// How a [`Manager`](super::Manager) goes about it: the kubelet's way, unless told otherwise.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use pod_index_kubelet::references::{Options, Strategy};
///
/// let options = Options::default().strategy(Strategy::Cache).ttl(Duration::from_secs(10));
/// # drop(options);
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing by themselves"]
pub struct Options {
    pub(super) strategy: Strategy,
    pub(super) first_sync: Duration,
    pub(super) idle: Duration,
    pub(super) ttl: Duration,
    pub(super) backoff: (Duration, Duration),
    pub(super) patience: Duration,
    pub(super) watch_time: Option<Duration>,
    pub(super) silence: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            strategy: Strategy::Watch,
            first_sync: Duration::from_secs(1),
            idle: Duration::from_secs(5 * 60),
            ttl: Duration::from_secs(60),
            backoff: (Duration::from_millis(800), Duration::from_secs(8)),
            patience: Duration::from_secs(30),
            watch_time: None,
            silence: Duration::from_secs(150),
        }
    }
}

impl Options {
    /// How changes are found out; by watches, if nothing is said.
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// How long a get waits for an object that is followed and of which nothing was heard yet; 1 s if nothing is said.
    pub fn first_sync(mut self, wait: Duration) -> Self {
        self.first_sync = wait;
        self
    }

    /// After how long a watch ends that nobody has asked for its object; 5 min if nothing is said. The next get starts it
    /// again. [`Duration::MAX`]: it ends with the last pod that names the object, and not before.
    pub fn idle(mut self, idle: Duration) -> Self {
        self.idle = idle;
        self
    }

    /// The time set with [`idle`](Self::idle).
    #[must_use]
    pub fn idle_after(&self) -> Duration {
        self.idle
    }

    /// How long what was fetched counts as fresh under [`Strategy::Cache`]; 1 min if nothing is said. See [`node_ttl`] and
    /// [`Manager::set_ttl`](super::Manager::set_ttl).
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// The waits after failures of a watch: the first, and the longest. Each is shortened at random by up to a third.
    /// 0.8 s and 8 s by default.
    pub fn backoff(mut self, least: Duration, most: Duration) -> Self {
        self.backoff = (least, most);
        self
    }

    /// How long an answer may take, and that to a watch until it begins; 30 s if nothing is said.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// For how long the API server is asked to let one watch live, in whole seconds; 200 to 290 s at random by default.
    pub fn watch_time(mut self, time: Duration) -> Self {
        self.watch_time = Some(time);
        self
    }

    /// After how long without an event or a bookmark a watch counts as dead, so that the object is listed anew; 150 s by
    /// default. API servers send a bookmark about once a minute.
    pub fn silence(mut self, silence: Duration) -> Self {
        self.silence = silence;
        self
    }
}

/// How long the cluster wants objects to count as fresh on this node: its annotation `node.alpha.kubernetes.io/ttl`, in
/// seconds. `None` if it has none, or one that is no number.
///
/// Kubelet: `GetObjectTTLFromNodeFunc` (`pkg/kubelet/util/manager/cache_based_manager.go`).
#[doc(alias = "GetObjectTTLFromNodeFunc")]
#[must_use]
pub fn node_ttl(node: &Node) -> Option<Duration> {
    let seconds =
        node.metadata.annotations.as_ref()?.get("node.alpha.kubernetes.io/ttl")?.parse::<i64>().ok()?;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_annotation_tells_the_ttl_in_seconds() {
        let node = |value: Option<&str>| {
            let mut node = Node::default();
            let annotation = value.map(|value| ("node.alpha.kubernetes.io/ttl".to_owned(), value.to_owned()));
            node.metadata.annotations = Some(annotation.into_iter().collect());
            node_ttl(&node)
        };
        assert_eq!(node(Some("15")), Some(Duration::from_secs(15)));
        assert_eq!(node(Some("-1")), Some(Duration::ZERO), "never fresh");
        for none in [None, Some(""), Some("1m"), Some("99999999999999999999")] {
            assert_eq!(node(none), None, "{none:?}");
        }
    }
}
