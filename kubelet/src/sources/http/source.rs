//! The http source: asks a URL every so often, and says when what it serves has changed.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::Stream;
use futures_util::stream::{BoxStream, StreamExt, unfold};
use hyper::body::Bytes;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::watch;

use super::HttpConfig;
use super::fetch::Fetcher;
use crate::sources::manifest::{self, Origin};
use crate::sources::status::{SourceStatus, StatusWriter};
use crate::sources::{NodeName, Problem, ProblemKind, Source, SourceUpdate, pod};

/// The pods that a URL serves, as a stream that never ends.
///
/// The first item comes with the first good answer; until then the source has not been seen. Later ones come when the
/// pods have changed. Each is a [`SourceUpdate::Set`] of all the pods, in which unchanged pods are the same [`Arc`]s
/// as before.
///
/// Nothing happens while nobody polls. The stream must be polled inside a tokio runtime with time and I/O enabled.
///
/// # Examples
/// ```no_run
/// use futures_util::StreamExt;
/// use pod_index_kubelet::sources::{NodeName, SourceUpdate, http::{HttpConfig, HttpSource}};
///
/// # async fn follow() -> Result<(), pod_index_kubelet::sources::Problem> {
/// let config = HttpConfig::new("http://localhost:8000/pods.yaml")?;
/// let mut source = HttpSource::new(config, NodeName::new("node-1"))?;
/// while let Some(SourceUpdate::Set(pods)) = source.next().await {
///     println!("{} pods", pods.len());
/// }
/// # Ok(())
/// # }
/// ```
///
/// Kubelet: `NewSourceURL` (`pkg/kubelet/config/http.go`).
#[doc(alias = "NewSourceURL")]
#[must_use = "a stream does nothing unless polled"]
pub struct HttpSource {
    updates: BoxStream<'static, SourceUpdate<Pod>>,
    status: watch::Receiver<SourceStatus>,
}

impl HttpSource {
    /// The pods that the configured URL serves for `node`.
    ///
    /// # Errors
    /// If the URL is an `https` one, no authorities are given and those of the system cannot be read.
    pub fn new(config: HttpConfig, node: NodeName) -> Result<Self, Problem> {
        let fetcher = Fetcher::new(&config)?;
        let status = StatusWriter::new(Source::Http, &*config.url);
        let receiver = status.subscribe();
        let asking = Asking {
            config,
            node,
            fetcher,
            status,
            asked: false,
            hasher: RandomState::new(),
            last: None,
            said: None,
        };
        let updates = unfold(asking, async |mut asking| {
            let update = asking.next().await?;
            Some((update, asking))
        });
        Ok(Self { updates: updates.boxed(), status: receiver })
    }

    /// How the source is doing. The receiver stays good as long as the source lives, and keeps the last status after.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<SourceStatus> {
        self.status.clone()
    }
}

impl Stream for HttpSource {
    type Item = SourceUpdate<Pod>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.updates.poll_next_unpin(context)
    }
}

impl fmt::Debug for HttpSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSource").field("status", &*self.status.borrow()).finish_non_exhaustive()
    }
}

/// The state between two updates.
struct Asking {
    config: HttpConfig,
    node: NodeName,
    fetcher: Fetcher,
    status: StatusWriter,
    asked: bool,
    hasher: RandomState,
    /// A hash of the last body that was decoded, and what was wrong with it.
    last: Option<(u64, Vec<Problem>)>,
    said: Option<Vec<Arc<Pod>>>,
}

impl Asking {
    /// The next set that differs from what was said before; `None` when the runtime shuts down.
    async fn next(&mut self) -> Option<SourceUpdate<Pod>> {
        loop {
            if self.asked {
                tokio::time::sleep(self.config.period).await;
            }
            self.asked = true;
            let (pods, problems) = match self.fetcher.fetch(&self.config).await {
                Err(message) => (None, vec![self.problem(ProblemKind::Request, &message)]),
                Ok(body) if body.is_empty() => {
                    let problem = self.problem(ProblemKind::Request, "answered with nothing");
                    // Never heard of a pod, it has none; having heard of some, it keeps them.
                    (self.said.is_none().then(Vec::new), vec![problem])
                }
                Ok(body) => match &self.last {
                    Some((last, problems)) if *last == self.hasher.hash_one(&body) => {
                        (None, problems.clone())
                    }
                    _ => self.decode(body).await?,
                },
            };
            let failed = !problems.is_empty();
            self.status.checked(problems, failed);
            let Some(pods) = pods else { continue };
            if self.said.as_ref().is_some_and(|said| pod::same(said, &pods)) {
                continue;
            }
            self.status.updated(pods.len());
            self.said = Some(pods.clone());
            return Some(SourceUpdate::Set(pods));
        }
    }

    /// The pods of a body, if all of them are good; `None` if the runtime shuts down.
    async fn decode(&mut self, body: Bytes) -> Option<(Option<Vec<Arc<Pod>>>, Vec<Problem>)> {
        let content = self.hasher.hash_one(&body);
        let (url, node) = (self.config.url.clone(), self.node.clone());
        // Ten megabytes take a while.
        let decoded =
            tokio::task::spawn_blocking(move || manifest::decode(&body, Origin::Url(&url), &node)).await;
        let mut decoded = match decoded {
            Ok(decoded) => decoded,
            Err(error) if error.is_cancelled() => return None,
            Err(error) => {
                let message = format!("the decoding broke off: {error}");
                return Some((None, vec![self.problem(ProblemKind::Syntax, &message)]));
            }
        };
        self.last = Some((content, decoded.problems.clone()));
        if !decoded.problems.is_empty() {
            return Some((None, decoded.problems));
        }
        decoded.pods.iter_mut().for_each(self.config.transform);
        let before = self.said.as_deref().unwrap_or_default();
        Some((Some(pod::as_first_seen(decoded.pods, before)), Vec::new()))
    }

    fn problem(&self, kind: ProblemKind, message: &str) -> Problem {
        Problem::new(kind, &*self.config.url, None, None, message)
    }
}
