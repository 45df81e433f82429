//! Connects to the socket, watches, lists, and reports what has changed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use tokio::time::{sleep_until, timeout};

use super::grpc::{CallError, CallErrorKind, Connection, Messages};
use super::message::{self, EventKind, LIST_PODS, WATCH_PODS};
use super::pods::Pods;
use crate::backoff::bounded;
use crate::sources::completeness::{Completeness, Extent, INCOMPLETE};
use crate::sources::skeleton;
use crate::sources::skeleton::{Emitted, Follow};
use crate::sources::status::StatusWriter;
use crate::sources::{Nudge, Problem, ProblemKind, Source, SourceUpdate, Updates};

/// Where a kubelet serves its Pods API unless its root directory is another one.
pub const DEFAULT_SOCKET: &str = "/var/lib/kubelet/pods-api/pods-api.sock";

/// Size limit of a list: a thousand pods of 64 KiB. gRPC's usual limit of 4 MiB is less than 500 pods of 9 kB.
const LARGEST_LIST: usize = 64 << 20;
/// The same of an event: the API server stores no object of more than 3 MiB.
const LARGEST_EVENT: usize = 4 << 20;
/// The shortest time between two lists, and between two connections.
const LEAST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause after a failure that is none of the kubelet's absence.
const MOST_PAUSE: Duration = Duration::from_secs(30);
/// A list is requested so long after the last event: two events may have come in the wrong order.
const SETTLING: Duration = Duration::from_secs(1);
/// The most events that become one update.
const MOST_AT_ONCE: usize = 256;

/// The socket of a kubelet, and how to follow it.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use pod_index_kubelet::sources::kubelet_socket::{self, KubeletSocket};
///
/// let mut socket = KubeletSocket::new("/var/lib/kubelet/pods-api/pods-api.sock");
/// socket.period = Duration::from_secs(10);
/// let pods = kubelet_socket::follow(socket);
/// # drop(pods);
/// ```
#[derive(Clone, Debug)]
pub struct KubeletSocket {
    /// The path of the socket. The kubelet replaces the file when it starts, so a container must mount its directory.
    pub path: PathBuf,
    /// The longest time between two lists; 20 s by default, and at least 1 s. With [`Duration::MAX`], only an event, a nudge, or
    /// a list in doubt causes the next one.
    pub period: Duration,
    /// The time limit of an answer; 10 s by default.
    pub timeout: Duration,
    /// Changes each pod before it is stored, as [`redact_env`](crate::sources::redact_env) does.
    pub transform: fn(&mut Pod),
    /// Lists at once whenever this nudge is used.
    pub nudge: Nudge,
}

impl KubeletSocket {
    /// Follows the kubelet that serves at this path.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            period: Duration::from_secs(20),
            timeout: Duration::from_secs(10),
            transform: |_| {},
            nudge: Nudge::default(),
        }
    }

    /// The same, each time short enough to be added to any `Instant`.
    fn bounded(self) -> Self {
        let period = bounded(self.period).max(LEAST_PAUSE);
        Self { period, timeout: bounded(self.timeout), ..self }
    }
}

/// Follows the pods of a kubelet over its Pods API.
///
/// The first item comes with the first list. Later items come when pods have changed; changes that arrive together are emitted
/// together. Each is a [`SourceUpdate::Set`] of all pods, or [`Incomplete`](SourceUpdate::Incomplete); after an incomplete one, a
/// [`Remove`](SourceUpdate::Remove) of static pods may come. Unchanged pods are the same [`Arc`]s as before.
///
/// # Complexity
/// A list costs O(its bytes), and decodes only the pods that have changed. An update costs O(pods).
///
/// Kubelet: `podsServer` (`pkg/kubelet/apis/pods`).
pub fn follow(socket: KubeletSocket) -> Updates<Pod> {
    let socket = socket.bounded();
    let status = Arc::new(StatusWriter::new(Source::Kubelet, socket.path.display().to_string()));
    let following = Following::new(socket, Arc::clone(&status));
    skeleton::follow(following, status)
}

struct Following {
    socket: KubeletSocket,
    status: Arc<StatusWriter>,
    pods: Pods,
    session: Option<Session>,
    /// When to connect next. `None`: at once.
    next_try: Option<Instant>,
    /// The pause after the next failure.
    pause: Duration,
    completeness: Completeness,
    /// The last list that could be used.
    last_list: Option<LastList>,
    emitted: Emitted,
    /// The pause before the next list, while lists may be incomplete.
    pause_in_doubt: Duration,
}

/// What is known of the last list.
#[derive(Clone, Copy)]
struct LastList {
    extent: Extent,
}

/// A connection to the kubelet, and its watch.
struct Session {
    watch: Messages,
    connection: Connection,
    /// Whether a list was answered.
    is_answered: bool,
    /// When the last list was requested.
    listed: Option<Instant>,
    /// When to request the next one at the latest.
    due: Instant,
    /// The pause after the next list. It grows to the period.
    pause: Duration,
    /// When to request one because of an event: some time after the last of them.
    settled: Option<Instant>,
}

impl Session {
    /// Makes a list due at this time.
    fn list_by(&mut self, time: Instant) {
        self.due = self.due.min(time);
    }

    /// Makes a list due now, and more of them in growing intervals: the kubelet may not have the change yet.
    fn list_repeatedly(&mut self) {
        self.list_by(Instant::now());
        self.pause = LEAST_PAUSE;
    }

    /// Makes a list due at this time, unless another event comes before it.
    fn settle(&mut self, time: Instant) {
        self.settled = Some(time);
    }

    /// When to request the next list: at most one a second.
    fn next_list(&self) -> Instant {
        let due = self.settled.map_or(self.due, |settled| settled.min(self.due));
        self.listed.map_or(due, |listed| due.max(listed + LEAST_PAUSE))
    }
}

impl Follow<Pod> for Following {
    /// The next set that differs from the last one.
    async fn next(&mut self) -> SourceUpdate<Pod> {
        loop {
            if let Err(error) = self.progress().await {
                self.failed(&error);
            }
            if let Some(update) = self.news() {
                return update;
            }
        }
    }

    /// Connects again. While the source pauses after its panic, another kubelet may start.
    fn begin_anew(&mut self) {
        self.session = None;
        self.completeness.interrupted();
        self.doubt_lists();
    }
}

impl Following {
    fn new(socket: KubeletSocket, status: Arc<StatusWriter>) -> Self {
        Self {
            pods: Pods::new(socket.path.display().to_string(), socket.transform),
            socket,
            status,
            session: None,
            next_try: None,
            pause: LEAST_PAUSE,
            completeness: Completeness::new(),
            last_list: None,
            emitted: Emitted::default(),
            pause_in_doubt: LEAST_PAUSE,
        }
    }

    /// The set to emit, unless it says nothing new. Before the first list there is none: events tell of single pods.
    fn news(&mut self) -> Option<SourceUpdate<Pod>> {
        let LastList { extent } = self.last_list?;
        let news = self.emitted.news(Some(self.pods.all()), extent == Extent::All, &self.status);
        if news.is_none() && extent == Extent::PodsOfFiles {
            return self.emitted.gone_of_files(&self.status);
        }
        news
    }

    /// Connects, or waits for an event or for the time of a list, and applies it.
    async fn progress(&mut self) -> Result<(), CallError> {
        let Some(session) = &mut self.session else {
            if let Some(time) = self.next_try {
                self.status.tries_again(Some(time));
                sleep_until(time.into()).await;
                self.status.tries_again(None);
            }
            self.session = Some(self.connect().await?);
            return Ok(());
        };
        let message = tokio::select! {
            biased;
            () = sleep_until(session.next_list().into()) => return self.list().await,
            message = session.watch.next() => message?.ok_or_else(ended)?,
            () = self.socket.nudge.notified() => {
                session.list_repeatedly();
                return Ok(());
            }
        };
        self.events(message)
    }

    /// Connects and starts the watch, so that no change after the first list is missed.
    async fn connect(&self) -> Result<Session, CallError> {
        let connect = async {
            let mut connection = Connection::open(&self.socket.path).await?;
            let watch = connection.call(WATCH_PODS, LARGEST_EVENT).await?;
            let due = Instant::now();
            Ok(Session {
                watch,
                connection,
                is_answered: false,
                listed: None,
                due,
                pause: self.socket.period,
                settled: None,
            })
        };
        self.in_time(connect).await
    }

    /// Requests a list and applies it.
    async fn list(&mut self) -> Result<(), CallError> {
        let Some(session) = &mut self.session else { return Ok(()) };
        let began = Instant::now();
        session.listed = Some(began);
        session.settled = None;
        session.due = began + session.pause;
        session.pause = (session.pause * 2).min(self.socket.period);
        let connection = &mut session.connection;
        let request = async { connection.call(LIST_PODS, LARGEST_LIST).await?.only().await };
        let limit = self.socket.timeout;
        let answer = match timeout(limit, request).await.unwrap_or_else(|_elapsed| Err(late(limit))) {
            Ok(answer) => answer,
            // Other clients of the node have used up the kubelet's limit of requests. The watch goes on.
            Err(error) if error.kind == CallErrorKind::Exhausted => {
                session.due = began + self.pause;
                self.pause = (self.pause * 2).min(MOST_PAUSE);
                self.report(Some(error.message.clone()));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        session.is_answered = true;
        self.pause = LEAST_PAUSE;
        let mut problems = match self.pods.list(&answer) {
            Ok(problems) => problems,
            Err(problem) => {
                self.status.failed(vec![problem]);
                return Ok(());
            }
        };
        problems.extend(self.pods.problems());
        let listed = self.pods.listed();
        let extent = self.completeness.extent(began, listed);
        self.last_list = Some(LastList { extent });
        if extent == Extent::All {
            self.pause_in_doubt = LEAST_PAUSE;
            self.status.read(began, problems);
            return Ok(());
        }
        session.list_by(began + self.pause_in_doubt);
        // Only the API server's return ends a longer doubt.
        let has_none = listed.of_api_server == 0;
        self.pause_in_doubt =
            if has_none { (self.pause_in_doubt * 2).min(self.socket.period) } else { LEAST_PAUSE };
        let origin = self.socket.path.display().to_string();
        problems.push(Problem::new(ProblemKind::Incomplete, origin, None, None, INCOMPLETE));
        self.status.read_incompletely(began, problems);
        Ok(())
    }

    /// Applies an event, and those that have come after it.
    fn events(&mut self, first: Vec<u8>) -> Result<(), CallError> {
        self.status.heard();
        let mut message = first;
        for _ in 1..MOST_AT_ONCE {
            self.event(&message)?;
            let Some(session) = &mut self.session else { break };
            let Some(next) = session.watch.next().now_or_never() else { return Ok(()) };
            message = next?.ok_or_else(ended)?;
        }
        self.event(&message)
    }

    fn event(&mut self, message: &[u8]) -> Result<(), CallError> {
        let (kind, pod) = message::event(message).map_err(|error| {
            CallError::new(
                CallErrorKind::Other,
                format!("answered with something that is not an event: {error}"),
            )
        })?;
        if matches!(kind, EventKind::Synced | EventKind::Unknown) {
            return Ok(());
        }
        // A list reports a problem with a pod as well, and how it goes on.
        let is_problem = self.pods.event(kind, pod).is_err();
        let now = Instant::now();
        let Some(session) = &mut self.session else { return Ok(()) };
        session.settle(now + SETTLING);
        if kind == EventKind::Ended {
            // Its removal, which follows, has no event.
            session.list_repeatedly();
        } else if is_problem {
            session.list_by(now);
        }
        Ok(())
    }

    /// The session is over.
    fn failed(&mut self, error: &CallError) {
        let was_connected = self.session.take().is_some_and(|session| session.is_answered);
        let now = Instant::now();
        // Another process may answer next. Only a watch that was too slow is cut off by the same one.
        let is_slow = was_connected && error.kind == CallErrorKind::Exhausted;
        match error.kind {
            _ if is_slow => {}
            // It says itself when it knows all its pods.
            CallErrorKind::NotReady => self.completeness.announced(),
            _ => self.completeness.interrupted(),
        }
        if is_slow {
            self.pause_in_doubt = LEAST_PAUSE;
        } else {
            self.doubt_lists();
        }
        // A kubelet that is away or starts is tried every second: what it then says is worth more than what a connection to
        // this node costs.
        let is_other = error.kind == CallErrorKind::Other || error.kind == CallErrorKind::Exhausted;
        if !is_other || was_connected {
            self.pause = LEAST_PAUSE;
        }
        self.next_try = Some(now + self.pause);
        if is_other {
            self.pause = (self.pause * 2).min(MOST_PAUSE);
        }
        let message = match error.kind {
            CallErrorKind::NotReady => {
                format!("the kubelet is starting and does not know all its pods yet ({})", error.message)
            }
            _ => error.message.clone(),
        };
        // A watch that was too slow is connected again in a second, which is not worth a word.
        self.report((!is_slow).then_some(message));
    }

    /// Until the next list is judged, the events of the next watch may be all that a new kubelet knows.
    fn doubt_lists(&mut self) {
        if let Some(listed) = &mut self.last_list {
            listed.extent = Extent::Part;
        }
        self.pause_in_doubt = LEAST_PAUSE;
    }

    /// Records that a read has failed.
    fn report(&self, message: Option<String>) {
        let problem = message.map(|message| {
            Problem::new(ProblemKind::Request, self.socket.path.display().to_string(), None, None, message)
        });
        let mut problems = self.pods.problems();
        problems.extend(problem);
        self.status.failed(problems);
    }

    async fn in_time<T>(&self, call: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
        let limit = self.socket.timeout;
        timeout(limit, call).await.unwrap_or_else(|_elapsed| Err(late(limit)))
    }
}

fn late(limit: Duration) -> CallError {
    CallError::new(CallErrorKind::Other, format!("no complete answer within {limit:?}"))
}

fn ended() -> CallError {
    CallError::new(CallErrorKind::Absent, "the kubelet ended the watch")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::completeness::Listed;

    #[test]
    fn after_a_panic_lists_are_doubted_as_after_a_restart_of_the_kubelet() {
        let status = Arc::new(StatusWriter::new(Source::Kubelet, "socket"));
        let mut following = Following::new(KubeletSocket::new("socket"), status);
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let listed = |of_api_server| Listed { of_api_server, of_files: 0 };
        assert_eq!(following.completeness.extent(start, listed(2)), Extent::Part);
        assert_eq!(following.completeness.extent(start + second, listed(2)), Extent::All);
        following.last_list = Some(LastList { extent: Extent::All });

        following.begin_anew();
        assert!(matches!(following.news(), Some(SourceUpdate::Incomplete(_))), "before the next list");
        let extent = following.completeness.extent(start + 2 * second, listed(0));
        assert_eq!(extent, Extent::Part, "it may be another kubelet's first list");
    }
}
