//! Requests a URL periodically and reports changed pods. Independent of the format in which pods are served.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::unfold;
use hyper::body::Bytes;
use hyper::header::HeaderValue;
use k8s_openapi::api::core::v1::Pod;
use pod_index::{PodMeta, is_static_pod};
use tokio::time::sleep_until;

use super::HttpConfig;
use super::fetch::{Fetched, HttpClient, client, fetch};
use super::files::{Content, Files, of_authorities, of_token};
use crate::backoff::bounded;
use crate::sources::completeness::Completeness;
use crate::sources::status::{StatusWriter, is_same};
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

/// What to say of a list that may be incomplete.
const INCOMPLETE: &str = "the kubelet has just answered for the first time, or was restarted or unreachable, and may not \
    list the API server's pods yet; pods that it listed before stay, unconfirmed";

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
    files: Files,
    /// The content of the file of certificate authorities. Empty before it was read.
    authorities: Vec<u8>,
    /// Why that file could not be read.
    warning: Option<String>,
    status: StatusWriter,
    /// When the last request ended.
    asked: Option<Instant>,
    /// The pause after it.
    pause: Duration,
    hasher: RandomState,
    /// A hash of the last decoded body, and what was found in it, without the pods.
    last: Option<(u64, Look)>,
    said: Option<Said>,
    /// Of a kubelet. A URL's body is always complete.
    completeness: Option<Completeness>,
    /// If the last list may have been incomplete: the longest pause after it.
    doubt: Option<Duration>,
    /// The connection of the last answer, if it stayed open.
    connection: Option<SocketAddr>,
    /// How many pods of the API server the last usable list has.
    api_pods: usize,
}

/// The last list that was emitted.
struct Said {
    pods: Vec<Arc<Pod>>,
    is_complete: bool,
    /// The pods that earlier lists had, while this one may be incomplete.
    missing: Vec<Arc<Pod>>,
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
    config.period = bounded(config.period).max(Duration::from_millis(1));
    config.timeout = bounded(config.timeout);
    let asking = Asking {
        source,
        client: client(&config)?,
        files: Files::new(config.token_file.clone(), config.authorities_file.clone()),
        authorities: Vec::new(),
        warning: None,
        status: StatusWriter::new(source, &*config.url),
        pause: config.period,
        config,
        decode: Arc::new(decode),
        asked: None,
        hasher: RandomState::new(),
        last: None,
        said: None,
        completeness: (source == Source::Kubelet).then(Completeness::new),
        doubt: None,
        connection: None,
        api_pods: 0,
    };
    let status = asking.status.subscribe();
    let updates = unfold(asking, async |mut asking| {
        let update = asking.next().await?;
        Some((update, asking))
    });
    Ok(Updates::new(updates, status))
}

/// Whether a kubelet has this pod from the API server.
fn is_api_pod(pod: &Arc<Pod>) -> bool {
    !is_static_pod(&**pod)
}

impl Asking {
    /// The next set that differs from the last one; `None` when the runtime shuts down.
    async fn next(&mut self) -> Option<SourceUpdate<Pod>> {
        loop {
            self.wait().await;
            let began = Instant::now();
            let fetched = self.fetch().await;
            self.asked = Some(Instant::now());
            self.follow_connection(fetched.as_ref().ok());
            let warning = self
                .warning
                .as_deref()
                .map(|warning| Problem::new(ProblemKind::Warning, &*self.config.url, None, None, warning));
            let Look { pods, mut problems, failed } = match fetched.map(|fetched| fetched.body) {
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
            problems.extend(warning);
            if failed {
                self.status.read(began, problems, true);
                // A URL's first answer may be empty.
                if let Some(update) = pods.and_then(|pods| self.news(Some(pods), true)) {
                    return Some(update);
                }
                continue;
            }
            let is_complete = self.is_complete(began);
            if is_complete {
                self.status.read(began, problems, false);
            } else {
                let url = &*self.config.url;
                problems.push(Problem::new(ProblemKind::Incomplete, url, None, None, INCOMPLETE));
                self.status.read_incompletely(began, problems);
            }
            if let Some(update) = self.news(pods, is_complete) {
                return Some(update);
            }
        }
    }

    /// Finds out from an answer, or from its absence, whether another process than before may have answered.
    fn follow_connection(&mut self, fetched: Option<&Fetched>) {
        let Some(completeness) = &mut self.completeness else { return };
        let connection = fetched.and_then(|fetched| fetched.connection);
        // If the server closes each connection, a new one means nothing.
        let is_new = connection.is_some() && connection != self.connection;
        if fetched.is_none() || is_new {
            completeness.interrupted();
        }
        self.connection = connection;
    }

    /// Whether the last list, which was requested at this time, has all pods of its origin. If it may not, the next request
    /// is due soon.
    fn is_complete(&mut self, began: Instant) -> bool {
        let Some(completeness) = &mut self.completeness else { return true };
        let said = self.said.as_ref();
        let had_api_pods = said.is_some_and(|said| said.is_complete && said.pods.iter().any(is_api_pod));
        if self.connection.is_none() && had_api_pods && self.api_pods == 0 {
            // All of them are gone, and no connection tells whether the process is still the same.
            completeness.interrupted();
        }
        let is_complete = completeness.judge(began, self.api_pods);
        self.doubt = match self.doubt {
            _ if is_complete => None,
            Some(pause) if self.api_pods == 0 => Some(pause.saturating_mul(2)),
            _ => Some(SOON),
        };
        is_complete
    }

    /// The list to emit, unless it says nothing new. `pods` is `None` if they are the same as in the last answer.
    fn news(&mut self, pods: Option<Vec<Arc<Pod>>>, is_complete: bool) -> Option<SourceUpdate<Pod>> {
        let said = self.said.as_ref();
        let was_complete = said.is_none_or(|said| said.is_complete);
        // An incomplete list that nothing is missing from, after a complete one, says nothing new either.
        let is_said = |pods: &[Arc<Pod>]| said.is_some_and(|said| is_same(&said.pods, pods));
        let pods = match pods {
            Some(pods) if is_said(&pods) && (was_complete || !is_complete) => return None,
            Some(pods) => pods,
            None if is_complete && !was_complete => said?.pods.clone(),
            None => return None,
        };
        let missing = if is_complete { Vec::new() } else { self.missing_from(&pods) };
        self.status.updated(pods.len());
        self.said = Some(Said { pods: pods.clone(), is_complete, missing });
        Some(if is_complete { SourceUpdate::Set(pods) } else { SourceUpdate::Incomplete(pods) })
    }

    /// All pods that may exist according to the last lists.
    fn known(&self) -> Vec<Arc<Pod>> {
        self.said.iter().flat_map(|said| said.pods.iter().chain(&said.missing)).cloned().collect()
    }

    /// Those of them that this list lacks.
    fn missing_from(&self, pods: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
        let listed: HashSet<_> = pods.iter().map(|pod| pod.uid()).collect();
        let mut missing = self.known();
        missing.retain(|pod| !listed.contains(pod.uid()));
        missing
    }

    /// Waits until the next request is due. After a nudge, the pauses grow from a second to the period.
    async fn wait(&mut self) {
        let Some(asked) = self.asked else { return };
        let period = self.config.period;
        let pause = self.doubt.map_or(self.pause, |doubt| doubt.min(self.pause));
        tokio::select! {
            () = sleep_until((asked + pause).into()) => self.pause = (self.pause * 2).min(period),
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
        let transform = self.config.transform;
        // Decoding ten megabytes takes a while. A panic there ends nothing else.
        let decoded = tokio::task::spawn_blocking(move || {
            let mut decoded = decode(&body);
            decoded.pods.iter_mut().flatten().for_each(transform);
            decoded
        });
        let decoded = decoded.await;
        let Decoded { pods, problems, unusable } = match decoded {
            Ok(decoded) => decoded,
            Err(error) if error.is_cancelled() => return None,
            Err(error) => {
                return Some(self.failed(ProblemKind::Syntax, &format!("the decoding failed: {error}")));
            }
        };
        let look = Look { pods: None, failed: pods.is_none(), problems };
        self.last = Some((content, look.clone()));
        let Some(pods) = pods else { return Some(look) };
        let before = self.known();
        let mut pods = pod::as_first_seen(pods, &before);
        pods.extend(before.into_iter().filter(|pod| unusable.contains(pod.uid())));
        self.api_pods = pods.iter().filter(|pod| is_api_pod(pod)).count();
        Some(Look { pods: Some(pods), ..look })
    }

    async fn fetch(&mut self) -> Result<Fetched, String> {
        let Content { token, authorities } = self.files.read(self.config.timeout).await;
        self.follow_authorities(authorities);
        let header = token.transpose()?.map(|token| self.header(&token)).transpose()?;
        fetch(&self.client, &self.config, header).await
    }

    /// The header with this token.
    fn header(&self, token: &str) -> Result<HeaderValue, String> {
        // The error does not repeat the token.
        let mut header = HeaderValue::from_str(&format!("Bearer {}", token.trim())).map_err(|_| {
            let path = self.config.token_file.as_deref().unwrap_or(Path::new(""));
            of_token(path, "it cannot be sent in a header")
        })?;
        header.set_sensitive(true);
        Ok(header)
    }

    /// Trusts these certificate authorities from now on. If they are others than before, the old client ends, and with it
    /// its connections.
    fn follow_authorities(&mut self, read: Option<Result<Vec<u8>, String>>) {
        let Some(path) = &self.config.authorities_file else { return };
        let replaced = read.transpose().and_then(|pem| {
            let Some(pem) = pem.filter(|pem| *pem != self.authorities) else { return Ok(()) };
            let wrong = |problem: Problem| of_authorities(path, &problem.message);
            let mut config = self.config.clone();
            config.trust(&pem).map_err(wrong)?;
            self.client = client(&config).map_err(wrong)?;
            if !self.authorities.is_empty() {
                tracing::info!(source = self.source.as_str(), "the certificate authorities have changed");
            }
            self.authorities = pem;
            Ok(())
        });
        self.warning = replaced.err();
    }

    /// A look that gives no information.
    fn failed(&self, kind: ProblemKind, message: &str) -> Look {
        let problem = Problem::new(kind, &*self.config.url, None, None, message);
        Look { pods: None, problems: vec![problem], failed: true }
    }
}
