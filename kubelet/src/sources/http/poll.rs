//! Requests a URL periodically and reports changed pods. Independent of the format in which pods are served.

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::unfold;
use hyper::body::Bytes;
use hyper::header::HeaderValue;
use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;
use tokio::time::sleep_until;

use super::HttpConfig;
use super::fetch::{HttpClient, client, fetch};
use crate::sources::status::StatusWriter;
use crate::sources::{Problem, ProblemKind, Source, SourceUpdate, Updates, pod};

/// The content of a body.
#[derive(Default)]
pub(in crate::sources) struct Decoded {
    /// `None` if the body is unusable as a whole.
    pub(in crate::sources) pods: Option<Vec<Pod>>,
    pub(in crate::sources) problems: Vec<Problem>,
    /// The UIDs of pods that are in the body and cannot be used. What was emitted of them stays.
    pub(in crate::sources) unusable: HashSet<String>,
}

/// The shortest time between two requests that are made because of nudges.
const SOON: Duration = Duration::from_secs(1);

type Decode = dyn Fn(&[u8]) -> Decoded + Send + Sync;

/// What a look has found.
#[derive(Clone, Default)]
struct Look {
    /// `None` if the look gives no information, or the same as the last one.
    pods: Option<Vec<Arc<Pod>>>,
    problems: Vec<Problem>,
    failed: bool,
}

/// The state between two updates.
struct Asking {
    source: Source,
    config: HttpConfig,
    decode: Arc<Decode>,
    client: HttpClient,
    status: StatusWriter,
    /// When the last request ended.
    asked: Option<Instant>,
    /// The pause after it.
    pause: Duration,
    hasher: RandomState,
    /// A hash of the last decoded body, and what was found in it, without the pods.
    last: Option<(u64, Look)>,
    said: Option<Vec<Arc<Pod>>>,
}

/// Requests the configured URL for ever.
///
/// # Errors
/// If the URL is `https`, no authorities are given, and the system's cannot be read.
pub(in crate::sources) fn ask(
    source: Source,
    mut config: HttpConfig,
    decode: impl Fn(&[u8]) -> Decoded + Send + Sync + 'static,
) -> Result<Updates<Pod>, Problem> {
    config.period = config.period.max(Duration::from_millis(1));
    let asking = Asking {
        source,
        client: client(&config)?,
        status: StatusWriter::new(source, &*config.url),
        pause: config.period,
        config,
        decode: Arc::new(decode),
        asked: None,
        hasher: RandomState::new(),
        last: None,
        said: None,
    };
    let status = asking.status.subscribe();
    let updates = unfold(asking, async |mut asking| {
        let update = asking.next().await?;
        Some((update, asking))
    });
    Ok(Updates::new(updates, status))
}

impl Asking {
    /// The next set that differs from the last one; `None` when the runtime shuts down.
    async fn next(&mut self) -> Option<SourceUpdate<Pod>> {
        loop {
            self.wait().await;
            let began = Instant::now();
            let fetched = self.fetch().await;
            self.asked = Some(Instant::now());
            let Look { pods, problems, failed } = match fetched {
                Err(message) => self.failed(ProblemKind::Request, &message),
                Ok(body) if body.is_empty() => {
                    // As in the kubelet, a URL that never reported a pod has none. A kubelet always answers
                    // with a list.
                    let is_first = self.source == Source::Http && self.said.is_none();
                    let look = self.failed(ProblemKind::Request, "answered with nothing");
                    Look { pods: is_first.then(Vec::new), ..look }
                }
                Ok(body) => match &self.last {
                    Some((last, look)) if *last == self.hasher.hash_one(&body) => look.clone(),
                    _ => self.decode(body).await?,
                },
            };
            self.status.read(began, problems, failed);
            if let Some(update) = pods.and_then(|pods| self.status.news(&mut self.said, pods)) {
                return Some(update);
            }
        }
    }

    /// Waits until the next request is due. After a nudge, the pauses grow from a second to the period.
    async fn wait(&mut self) {
        let Some(asked) = self.asked else { return };
        let period = self.config.period;
        tokio::select! {
            () = sleep_until((asked + self.pause).into()) => self.pause = (self.pause * 2).min(period),
            () = self.config.nudge.notified() => {
                self.pause = SOON.min(period);
                sleep_until((asked + self.pause).into()).await;
            }
        }
    }

    /// What a body holds; `None` if the runtime shuts down.
    async fn decode(&mut self, body: Bytes) -> Option<Look> {
        let content = self.hasher.hash_one(&body);
        let decode = Arc::clone(&self.decode);
        // Decoding ten megabytes takes a while.
        let decoded = tokio::task::spawn_blocking(move || decode(&body)).await;
        let Decoded { pods, problems, unusable } = match decoded {
            Ok(decoded) => decoded,
            Err(error) if error.is_cancelled() => return None,
            Err(error) => {
                return Some(self.failed(ProblemKind::Syntax, &format!("the decoding failed: {error}")));
            }
        };
        let look = Look { pods: None, failed: pods.is_none(), problems };
        self.last = Some((content, look.clone()));
        let Some(mut pods) = pods else { return Some(look) };
        pods.iter_mut().for_each(self.config.transform);
        let before = self.said.as_deref().unwrap_or_default();
        let mut pods = pod::as_first_seen(pods, before);
        pods.extend(before.iter().filter(|pod| unusable.contains(pod.uid())).cloned());
        Some(Look { pods: Some(pods), ..look })
    }

    async fn fetch(&self) -> Result<Bytes, String> {
        let Some(path) = &self.config.token_file else {
            return fetch(&self.client, &self.config, None).await;
        };
        let wrong = |error: &dyn fmt::Display| format!("the token in {}: {error}", path.display());
        // The file may be on a file system that hangs.
        let file = path.clone();
        let token = tokio::task::spawn_blocking(|| std::fs::read_to_string(file));
        let token = tokio::time::timeout(self.config.timeout, token).await;
        let late = |_| wrong(&format_args!("not read within {:?}", self.config.timeout));
        let token = token.map_err(late)?.map_err(|error| wrong(&error))?.map_err(|error| wrong(&error))?;
        // The error does not repeat the token.
        let mut header = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
            .map_err(|_| wrong(&"it cannot be sent in a header"))?;
        header.set_sensitive(true);
        fetch(&self.client, &self.config, Some(header)).await
    }

    /// A look that gives no information.
    fn failed(&self, kind: ProblemKind, message: &str) -> Look {
        let problem = Problem::new(kind, &*self.config.url, None, None, message);
        Look { pods: None, problems: vec![problem], failed: true }
    }
}
