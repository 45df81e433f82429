//! The objects of one resource, as clients see them: their history, and when it may be shown.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pod_index::Reader;
use pod_index_kubelet::sources::SourceStatus;
use tokio::sync::watch as channel;
use tokio::time::timeout;

use super::history::History;
use super::resource::Resource;
use super::status::Refusal;
use crate::pipeline::readiness::Readiness;

/// How long a request waits for the history to reach the latest publication.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a request waits for the first answer of the API server. Fluent Bit asks once for a Namespace and remembers a
/// refusal.
const START: Duration = Duration::from_secs(5);

/// Whether all objects of the API server were read, or why not. `None`: it has not answered yet.
pub(super) type Read = Option<Result<(), String>>;

/// Where objects come from.
#[derive(Debug)]
pub(super) enum Origin {
    Index {
        reader: Reader<Pod>,
        /// The generation that the history has reached.
        reached: channel::Receiver<u64>,
        readiness: Arc<Readiness>,
    },
    Server {
        read: channel::Receiver<Read>,
        status: Option<channel::Receiver<SourceStatus>>,
    },
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Collection {
    pub(super) history: Arc<History>,
    pub(super) origin: Origin,
}

impl Collection {
    pub(super) fn new(history: Arc<History>, origin: Origin) -> Arc<Self> {
        Arc::new(Self { history, origin })
    }

    pub(super) fn of(&self) -> &'static Resource {
        self.history.of
    }

    /// Waits until the history includes everything that happened before the request. If the list has to be complete, fails
    /// until it is: an incomplete list would show existing objects as gone.
    pub(super) async fn current(&self, complete: bool) -> Result<(), Refusal> {
        let why = match &self.origin {
            Origin::Index { readiness, .. } if complete && !readiness.has_pods() => {
                format!("not every source has been read: {}", readiness.missing().join("; "))
            }
            Origin::Index { reader, reached, .. } => {
                let (generation, mut reached) = (reader.load().generation(), reached.clone());
                match timeout(PATIENCE, reached.wait_for(|reached| *reached >= generation)).await {
                    Ok(Ok(_)) => return Ok(()),
                    _ => "the history has not reached the latest publication".to_owned(),
                }
            }
            Origin::Server { read, .. } => {
                let mut read = read.clone();
                let _ = timeout(START, read.wait_for(Option::is_some)).await;
                let why = match &*read.borrow() {
                    Some(Ok(())) => return Ok(()),
                    Some(Err(why)) => format!(": {why}"),
                    None => String::new(),
                };
                format!("{} have not been read yet{why}", self.of().name)
            }
        };
        Err(Refusal::unavailable(why))
    }

    /// The state of its own source, if it has one.
    pub(super) fn status(&self) -> Option<SourceStatus> {
        let Origin::Server { status, .. } = &self.origin else { return None };
        status.as_ref().map(|status| status.borrow().clone())
    }
}

/// The key of an object: its namespace, a slash and its name.
pub(super) fn key(metadata: &ObjectMeta) -> Arc<str> {
    let text = |text: &'_ Option<String>| text.clone().unwrap_or_default();
    format!("{}/{}", text(&metadata.namespace), text(&metadata.name)).into()
}
