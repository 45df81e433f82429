//! Reads the pods that a URL serves. Independent of the format in which it serves them.

use std::collections::HashSet;
use std::future::pending;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;

use super::HttpConfig;
use super::kubelet::Lists;
use super::requests::{Requests, SOON};
use crate::backoff::bounded;
use crate::blocking::OneThread;
use crate::sources::completeness::{Extent, INCOMPLETE};
use crate::sources::skeleton::{Admitted, Pace, Read, ReadResult, Reading, as_first_seen, poll};
use crate::sources::status::StatusWriter;
use crate::sources::{Nudge, Problem, ProblemKind, Source, Updates};
use crate::text::PANICKED;

/// The content of a body.
#[derive(Default)]
pub(in crate::sources) struct DecodedBody {
    /// `None` if the body is unusable as a whole.
    pub(in crate::sources) pods: Option<Vec<Admitted>>,
    pub(in crate::sources) problems: Vec<Problem>,
    /// The UIDs of pods that are in the body and cannot be used. What was emitted of them stays.
    pub(in crate::sources) unusable: HashSet<String>,
}

type Decode = dyn Fn(&[u8]) -> DecodedBody + Send + Sync;

/// Requests the configured URL for ever, and decodes its bodies.
///
/// # Errors
/// If the URL is `https`, no authorities are given, and the system's cannot be read.
pub(in crate::sources) fn follow_url(
    source: Source,
    mut config: HttpConfig,
    decode: impl Fn(&[u8]) -> DecodedBody + Send + Sync + 'static,
) -> Result<Updates<Pod>, Problem> {
    config.timeout = bounded(config.timeout);
    let status = StatusWriter::new(source, &*config.url);
    let pace = Pace {
        period: config.period,
        nudge: Arc::clone(&config.nudge),
        hint: Nudge::default(),
        settle: |_took| Duration::ZERO,
        apart: SOON,
        repeats: true,
    };
    let reader = Served {
        url: config.url.clone(),
        requests: Requests::new(config)?,
        decode: Arc::new(decode),
        hasher: RandomState::new(),
        last: None,
        known: None,
        kubelet: (source == Source::Kubelet).then(Lists::new),
    };
    // For the files of the token and of the authorities.
    let thread = if source == Source::Kubelet { "source-kubelet" } else { "source-url" };
    Ok(poll(reader, pace, thread, status))
}

/// Requests a URL and decodes what it serves.
struct Served {
    url: String,
    requests: Requests,
    decode: Arc<Decode>,
    hasher: RandomState,
    last: Option<LastBody>,
    /// The pods that exist according to the last usable bodies. `None` before the first one.
    known: Option<ServedPods>,
    /// `Some` if the URL is a kubelet's. Any other body is complete.
    kubelet: Option<Lists>,
}

/// The last body that was decoded. The same body is not decoded again.
struct LastBody {
    hash: u64,
    /// Whether its pods could be used.
    is_usable: bool,
    problems: Vec<Problem>,
}

/// The pods of the bodies so far. Only their objects matter here: which pods stay while a list is incomplete, the merge decides.
#[derive(Default)]
struct ServedPods {
    /// Those of the last usable body.
    listed: Vec<Admitted>,
    /// Those of earlier bodies that this one lacks, although it may be incomplete.
    missing: Vec<Admitted>,
}

impl ServedPods {
    fn all(&self) -> Vec<Admitted> {
        self.listed.iter().chain(&self.missing).cloned().collect()
    }
}

impl Read for Served {
    async fn read(&mut self, thread: &OneThread) -> Reading {
        let began = Instant::now();
        let answer = self.requests.send(thread).await;
        if let Some(lists) = &mut self.kubelet {
            lists.answered(answer.as_ref().ok());
        }
        let mut reading = match answer {
            Err(message) => self.failed(began, &message),
            Ok(answer) if answer.body.is_empty() => self.empty(began),
            Ok(answer) => self.decoded(began, answer.body).await,
        };
        if let Some(warning) = self.requests.warning() {
            let warning = Problem::new(ProblemKind::Warning, &*self.url, None, None, warning);
            reading.problems.push(warning);
        }
        reading.again_within = self.kubelet.as_ref().and_then(Lists::pause);
        reading
    }

    fn begin_anew(&mut self) {
        self.requests.begin_anew();
        self.last = None;
    }
}

impl Served {
    /// What an empty body says.
    fn empty(&mut self, began: Instant) -> Reading {
        let failed = self.failed(began, "answered with nothing");
        // As in the kubelet, a URL that never reported a pod has none. A kubelet always answers with a list.
        if self.kubelet.is_some() || self.known.is_some() {
            return failed;
        }
        self.known = Some(ServedPods::default());
        Reading { pods: Some(Vec::new()), ..failed }
    }

    /// What a body says.
    async fn decoded(&mut self, began: Instant, body: Bytes) -> Reading {
        let hash = self.hasher.hash_one(&body);
        let pods = match &self.last {
            Some(last) if last.hash == hash => None,
            _ => self.decode(hash, body).await,
        };
        let Some(LastBody { is_usable: true, problems, .. }) = &self.last else {
            let problems = self.last.as_ref().map(|last| last.problems.clone()).unwrap_or_default();
            return Reading::failed(began, problems);
        };
        let mut reading = Reading::complete(began, pods, problems.clone());
        let Some(lists) = &mut self.kubelet else {
            self.listed(reading.pods.as_deref(), true);
            return reading;
        };
        let listed = self.known.as_ref().map(|known| &known.listed[..]).unwrap_or_default();
        let extent = lists.extent(began, reading.pods.as_deref().unwrap_or(listed));
        reading.result = match extent {
            Extent::All => ReadResult::Complete,
            Extent::PodsOfFiles => ReadResult::CompleteOfFiles,
            Extent::Part => ReadResult::Incomplete,
        };
        let is_complete = extent == Extent::All;
        if !is_complete {
            reading.problems.push(Problem::new(ProblemKind::Incomplete, &*self.url, None, None, INCOMPLETE));
        }
        self.listed(reading.pods.as_deref(), is_complete);
        reading
    }

    /// Decodes a body. Returns its pods, if they can be used; those that have not changed are the same objects as before.
    async fn decode(&mut self, hash: u64, body: Bytes) -> Option<Vec<Admitted>> {
        let decode = Arc::clone(&self.decode);
        // Decoding ten megabytes takes a while. It does not block, so it needs no thread of this source. If it panics, the
        // body is not decoded again.
        let work = move || catch_unwind(AssertUnwindSafe(|| decode(&body)));
        let decoded = match tokio::task::spawn_blocking(work).await {
            Ok(Ok(decoded)) => decoded,
            Ok(Err(_panic)) => DecodedBody { problems: vec![self.panicked()], ..DecodedBody::default() },
            // The runtime ends.
            Err(_cancelled) => pending().await,
        };
        let DecodedBody { pods, problems, unusable } = decoded;
        self.last = Some(LastBody { hash, is_usable: pods.is_some(), problems });
        let before = self.known.as_ref().map(ServedPods::all).unwrap_or_default();
        let mut pods = as_first_seen(pods?, &before);
        pods.extend(before.into_iter().filter(|pod| unusable.contains(pod.uid())));
        Some(pods)
    }

    /// Records which pods exist after a usable body. `pods`: those of the body, if it is a new one.
    fn listed(&mut self, pods: Option<&[Admitted]>, is_complete: bool) {
        let known = self.known.get_or_insert_default();
        if let Some(pods) = pods {
            let listed: HashSet<_> = pods.iter().map(|pod| pod.uid()).collect();
            let mut missing = known.all();
            missing.retain(|pod| !listed.contains(pod.uid()));
            *known = ServedPods { listed: pods.to_vec(), missing };
        }
        if is_complete {
            known.missing.clear();
        }
    }

    fn failed(&self, began: Instant, message: &str) -> Reading {
        Reading::failed(began, vec![Problem::new(ProblemKind::Request, &*self.url, None, None, message)])
    }

    fn panicked(&self) -> Problem {
        Problem::new(ProblemKind::Defect, &*self.url, None, None, PANICKED)
    }
}
