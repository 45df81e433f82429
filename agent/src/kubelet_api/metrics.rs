//! What clients of the served Pods API do, and what it refuses.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::answer::End;
use super::wire::{Reason, Status};
use crate::metrics::registered;

/// What a call asks for. Clients must not be able to create label values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    ListPods,
    GetPod,
    WatchPods,
    Other,
}

impl Method {
    /// The method at this path.
    pub(super) fn at(path: &str) -> Self {
        match path {
            "/v1alpha1.Pods/ListPods" => Self::ListPods,
            "/v1alpha1.Pods/GetPod" => Self::GetPod,
            "/v1alpha1.Pods/WatchPods" => Self::WatchPods,
            _ => Self::Other,
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::ListPods => "ListPods",
            Self::GetPod => "GetPod",
            Self::WatchPods => "WatchPods",
            Self::Other => "other",
        }
    }
}

/// The metrics of the Pods API. Each series is one on every node, so most begin when they are needed.
pub(super) struct PodsApiMetrics {
    pub(super) connections: Gauge,
    watches: Gauge,
    ended: Family<[(&'static str, &'static str); 2], Counter>,
    refused: Family<[(&'static str, &'static str); 1], Counter>,
}

impl PodsApiMetrics {
    /// All counts are zero.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let help = "Open connections of clients of the Pods API";
        let connections = registered(registry, "pods_api_connections", help, Gauge::default());
        let help = "Open watches of the Pods API";
        let watches = registered(registry, "pods_api_watches", help, Gauge::default());
        let help = "Calls of the Pods API that have ended";
        let ended = registered(registry, "pods_api_calls", help, Family::<[_; 2], Counter>::default());
        drop(ended.get_or_create(&[("method", Method::ListPods.label()), ("outcome", OK)]));
        let help = "Calls of the Pods API that were refused";
        let refused = Family::<[(&'static str, &'static str); 1], Counter>::default();
        let refused = registered(registry, "pods_api_refused_calls", help, refused);
        drop(refused.get_or_create(&[("reason", Reason::Watches.label())]));
        Self { connections, watches, ended, refused }
    }

    /// Counts a call when the result is dropped.
    pub(super) fn begin(&self, method: Method) -> OpenCall<'_> {
        // What drops a call at work is the end of its connection.
        OpenCall { metrics: self, method, outcome: LEFT }
    }

    /// Counts a watch as open until the result is dropped: one that has a place, so refused and unread calls are none.
    pub(super) fn begin_watch(&self) -> OpenWatch<'_> {
        self.watches.inc();
        OpenWatch(&self.watches)
    }
}

/// An open watch.
pub(super) struct OpenWatch<'a>(&'a Gauge);

impl Drop for OpenWatch<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

const OK: &str = "ok";
/// The client has ended the call, as it ends a watch, or its connection.
const LEFT: &str = "left";

/// An open call.
pub(super) struct OpenCall<'a> {
    metrics: &'a PodsApiMetrics,
    method: Method,
    outcome: &'static str,
}

impl OpenCall<'_> {
    /// Counts the call as ended in this way.
    pub(super) fn end(mut self, end: &Result<(), End>) {
        self.outcome = match end {
            Ok(()) | Err(End::Status(Status { reason: None, .. })) => OK,
            Err(End::Gone) => LEFT,
            Err(End::Unread) => "unread",
            Err(End::Status(Status { reason: Some(reason), .. })) => match reason {
                Reason::NotFound => "not_found",
                Reason::Ending => "ending",
                refusal => {
                    self.metrics.refused.get_or_create(&[("reason", refusal.label())]).inc();
                    "refused"
                }
            },
        };
    }
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        let labels = [("method", self.method.label()), ("outcome", self.outcome)];
        self.metrics.ended.get_or_create(&labels).inc();
    }
}
