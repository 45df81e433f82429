//! Options of a manager.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use serde::{Deserialize, Serialize};

/// How a manager detects changes of an object.
///
/// Kubelet: `configMapAndSecretChangeDetectionStrategy` (`pkg/kubelet/apis/config/types.go`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum Strategy {
    /// One watch per object, from the first reference to the last.
    #[default]
    Watch,
    /// Objects are fetched on request and cached for a while ([`Options::ttl`]). Gets during a fetch wait for
    /// its result, which may be an error; gets of other objects do not. When a pod newly names an object, the
    /// object is fetched again. **Difference from the kubelet**, which fetches again after every update of
    /// any pod that names the object.
    Cache,
    /// Objects are fetched at each get, whether a pod names them or not.
    Get,
}

/// Options of a [`Manager`](super::Manager). The defaults are the kubelet's.
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
    /// How changes are detected; [`Strategy::Watch`] by default.
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// How long a get waits for an object that is followed but not yet received; 1 s by default.
    pub fn first_sync(mut self, wait: Duration) -> Self {
        self.first_sync = wait;
        self
    }

    /// A watch ends if its object has not been requested for this long; 5 min by default. The next get starts
    /// it again. With [`Duration::MAX`], it ends only when no pod names the object any more.
    pub fn idle(mut self, idle: Duration) -> Self {
        self.idle = idle;
        self
    }

    /// How long a fetched object counts as fresh with [`Strategy::Cache`]; 1 min by default. See [`node_ttl`]
    /// and [`Manager::set_ttl`](super::Manager::set_ttl).
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

    /// Time limit for an answer, and for the start of a watch; 30 s by default.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The lifetime of a watch requested from the API server, in whole seconds; 200 to 290 s at random by
    /// default.
    pub fn watch_time(mut self, time: Duration) -> Self {
        self.watch_time = Some(time);
        self
    }

    /// A watch without an event or a bookmark for this long counts as dead, and the object is listed again;
    /// 150 s by default. API servers send a bookmark about once a minute.
    pub fn silence(mut self, silence: Duration) -> Self {
        self.silence = silence;
        self
    }
}

/// How long objects count as fresh on this node, according to its annotation `node.alpha.kubernetes.io/ttl`
/// in seconds. `None` if the annotation is missing or not a number.
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
    fn the_nodes_annotation_sets_the_ttl_in_seconds() {
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
