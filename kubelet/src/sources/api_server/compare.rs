//! Checks whether the server still has the pods that were followed. Done after each watch that was cut off,
//! because the server may have been restored from a backup.
//!
//! Nothing else detects that. If a watch starts at a version that a restored server has not reached, the
//! server stays silent. If the server has reached the version again, it sends later events but not what is
//! missing before. So the UIDs and versions held here are compared with those that the server lists, and the
//! version of the watch with that of the list.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http_body_util::BodyExt;
use kube::api::ListParams;
use kube::client::Body;
use kube::core::Request;
use kube::runtime::watcher;
use kube::{Client, Error};
use pod_index::PodUid;
use serde::Deserialize;
use tokio::time;

use crate::backoff::jitter;

/// A resource version. The API server's own versions are always numbers. Any other version is `None`, which equals
/// no version.
pub(super) type Version = Option<u64>;

/// A list of more pods than this is fetched in pages. With "any version", the server would send it as one
/// answer of any size.
const LARGE: usize = 5_000;
const PAGE: u32 = 500;

/// The server's list.
#[derive(Default)]
pub(super) struct Listed {
    pub(super) version: u64,
    pub(super) pods: HashMap<PodUid, Version>,
}

/// A running comparison and the events received meanwhile.
pub(super) struct Comparison {
    listed: BoxFuture<'static, Listed>,
    /// The version from which the watch continued.
    pub(super) resumed_from: u64,
    /// Pods with events since the watch continued. They need no comparison.
    pub(super) changed: HashSet<PodUid>,
}

/// Waits for the comparison's end; forever if there is none.
pub(super) async fn finished(comparison: &mut Option<Comparison>) -> Listed {
    match comparison {
        Some(comparison) => (&mut comparison.listed).await,
        None => std::future::pending().await,
    }
}

/// How to list the server's pods.
#[derive(Clone)]
pub(super) struct Comparer {
    pub(super) client: Client,
    /// The path of the list.
    pub(super) path: String,
    pub(super) config: watcher::Config,
    /// Time limit for an answer.
    pub(super) patience: Duration,
    /// Pause before the list, shortened at random: all agents of a cluster notice a server's restart at the
    /// same time.
    pub(super) delay: Duration,
}

impl Comparer {
    /// Starts to compare `pods` pods whose watch continued from this version.
    pub(super) fn begin(&self, pods: usize, resumed_from: u64) -> Comparison {
        let comparer = self.clone();
        let listed = async move {
            loop {
                time::sleep(comparer.delay.mul_f64(jitter())).await;
                match time::timeout(comparer.patience, comparer.list(pods > LARGE)).await {
                    Ok(Ok(listed)) => {
                        // The list may show changes that the watch has not sent yet.
                        time::sleep(comparer.delay / 4).await;
                        return listed;
                    }
                    Ok(Err(error)) => {
                        tracing::debug!("pods cannot be compared yet: {}", crate::text::api_causes(&error));
                    }
                    Err(_) => tracing::debug!("pods cannot be compared yet: no answer"),
                }
            }
        };
        Comparison { listed: listed.boxed(), resumed_from, changed: HashSet::new() }
    }

    async fn list(&self, in_pages: bool) -> Result<Listed, Error> {
        let mut params = ListParams {
            label_selector: self.config.label_selector.clone(),
            field_selector: self.config.field_selector.clone(),
            ..ListParams::default()
        };
        // Any version: the server answers from its cache.
        params = if in_pages { params.limit(PAGE) } else { params.at("0") };
        let mut listed = Listed::default();
        loop {
            let request = Request::new(&self.path).list_metadata(&params).map_err(Error::BuildRequest)?;
            let response = self.client.send(request.map(Body::from)).await?;
            let (head, body) = response.into_parts();
            let body = body.collect().await?.to_bytes();
            if !head.status.is_success() {
                let status = serde_json::from_slice(&body).unwrap_or_default();
                return Err(Error::Api(status));
            }
            let page: Page = serde_json::from_slice(&body).map_err(Error::SerdeError)?;
            let versions = page.items.into_iter().map(|Item { metadata }| {
                (PodUid::from(metadata.uid.as_str()), metadata.resource_version.parse().ok())
            });
            listed.pods.extend(versions);
            listed.version = page.metadata.resource_version.parse().unwrap_or_default();
            match page.metadata.next.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(listed),
            }
        }
    }
}

/// The needed part of a `PartialObjectMetadataList`.
#[derive(Deserialize)]
struct Page {
    metadata: PageMetadata,
    items: Vec<Item>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    resource_version: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Item {
    metadata: ItemMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ItemMetadata {
    uid: String,
    resource_version: String,
}

/// How the server's pods differ from those held here.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Difference {
    /// Listed by the server but not held here.
    missing: usize,
    /// Held here but not listed by the server.
    unknown: usize,
    /// Held here in another version.
    other: usize,
}

impl Difference {
    pub(super) fn between(
        held: &HashMap<PodUid, Version>,
        listed: &HashMap<PodUid, Version>,
        changed: &HashSet<PodUid>,
    ) -> Self {
        let unchanged = |uid: &&PodUid| !changed.contains(*uid);
        let missing = listed.keys().filter(unchanged).filter(|uid| !held.contains_key(*uid)).count();
        let unknown = held.keys().filter(unchanged).filter(|uid| !listed.contains_key(*uid)).count();
        let other = held
            .keys()
            .filter(unchanged)
            .filter(|uid| listed.get(*uid).is_some_and(|version| Some(version) != held.get(*uid)))
            .count();
        Self { missing, unknown, other }
    }

    pub(super) fn is_none(&self) -> bool {
        *self == Self { missing: 0, unknown: 0, other: 0 }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { missing, unknown, other } = self;
        write!(f, "{missing} more, {unknown} fewer, {other} of another version")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods<const N: usize>(pods: [(&str, u64); N]) -> HashMap<PodUid, Version> {
        pods.into_iter().map(|(uid, version)| (PodUid::from(uid), Some(version))).collect()
    }

    #[test]
    fn all_pods_without_later_events_are_compared() {
        let held = pods([("same", 1), ("ghost", 2), ("newer", 5), ("told", 9)]);
        let listed = pods([("same", 1), ("newer", 4), ("missed", 3), ("told", 8), ("told-and-gone", 8)]);
        let changed = ["told", "told-and-gone"].map(PodUid::from).into();
        let difference = Difference::between(&held, &listed, &changed);
        assert_eq!(difference, Difference { missing: 1, unknown: 1, other: 1 });
        assert!(!difference.is_none());
        assert!(Difference::between(&held, &held, &HashSet::new()).is_none());
    }
}
