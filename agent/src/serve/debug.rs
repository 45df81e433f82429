//! What an operator may change and look into from outside, if the agent was started to allow it.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use clap::ValueEnum;
use http_body_util::{BodyExt, Collected, Limited};
use tokio::sync::Semaphore;

use super::routes::refused;
use crate::cli::LogLevel;
use crate::log::Log;
use crate::profile::Recording;

/// The longest body, in bytes, that can say something.
const LONGEST: usize = 64;
/// How long it may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How long a profile is taken for: unless told otherwise, and at most, in seconds. Go's default is the same.
const PROFILE: u64 = 30;
const LONGEST_PROFILE: u64 = 60;

pub(super) fn router(log: Log) -> Router {
    let log = Router::new().route("/log-level", get(level).put(set_level)).with_state(log);
    // For one at a time.
    let turn = Arc::new(Semaphore::new(1));
    log.merge(Router::new().route("/debug/pprof/profile", get(profile)).with_state(turn))
}

/// A CPU profile. A client that goes away ends it: nobody polls this any more, and all that it holds is dropped. Only what is
/// being worked out by then is worked out to its end.
async fn profile(State(turn): State<Arc<Semaphore>>, uri: Uri) -> Response {
    let Some(seconds) = seconds(uri.query().unwrap_or_default()) else {
        let message = format!("seconds must be a number from 1 to {LONGEST_PROFILE}");
        return refused(StatusCode::BAD_REQUEST, "BadRequest", message);
    };
    let start = || {
        tracing::info!(seconds, "taking a CPU profile");
        Recording::start()
    };
    let Some(taken) = in_turn(turn, Duration::from_secs(seconds), start, Recording::finish).await else {
        let message = "another profile is being taken; there can be one at a time".to_owned();
        return refused(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
    };
    match taken {
        Ok(profile) => {
            let named = (header::CONTENT_DISPOSITION, "attachment; filename=\"pod-index.pb.gz\"");
            ([(header::CONTENT_TYPE, "application/octet-stream"), named], profile).into_response()
        }
        Err(error) => {
            let message = format!("the profile cannot be taken: {error}");
            refused(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
        }
    }
}

/// What comes of recording for this time; nothing: it is somebody else's turn. Whoever asked may go away at any moment, and
/// the turn is not over before nothing is left of the recording.
async fn in_turn<R: Send + 'static, T: Send + 'static>(
    turn: Arc<Semaphore>,
    time: Duration,
    start: impl FnOnce() -> Result<R, String>,
    finish: impl FnOnce(R) -> Result<T, String> + Send + 'static,
) -> Option<Result<T, String>> {
    let turn = turn.try_acquire_owned().ok()?;
    // After the turn, so that it is dropped before it.
    let recording = match start() {
        Ok(recording) => recording,
        Err(error) => return Some(Err(error)),
    };
    tokio::time::sleep(time).await;
    let finished = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        finish(recording)
    });
    Some(finished.await.unwrap_or_else(|error| Err(error.to_string())))
}

/// What the query says of them.
fn seconds(query: &str) -> Option<u64> {
    match query.split('&').find_map(|pair| pair.strip_prefix("seconds=")) {
        None => Some(PROFILE),
        Some(seconds) => seconds.parse().ok().filter(|seconds| (1..=LONGEST_PROFILE).contains(seconds)),
    }
}

async fn level(State(log): State<Log>) -> String {
    format!("{}\n", name(log.level()))
}

async fn set_level(State(log): State<Log>, request: Request) -> Response {
    let body = tokio::time::timeout(TIMEOUT, Limited::new(request.into_body(), LONGEST).collect()).await;
    let Ok(body) = body else {
        return refused(StatusCode::REQUEST_TIMEOUT, "Timeout", "the body does not end".to_owned());
    };
    let body = body.map(Collected::to_bytes).unwrap_or_default();
    let Ok(level) = LogLevel::from_str(String::from_utf8_lossy(&body).trim(), true) else {
        let levels: Vec<_> = LogLevel::value_variants().iter().map(|level| name(*level)).collect();
        let message = format!("the log level must be one of {}", levels.join(", "));
        return refused(StatusCode::BAD_REQUEST, "BadRequest", message);
    };
    log.set_level(level);
    tracing::warn!(level = name(level), "the log level was set");
    format!("{}\n", name(level)).into_response()
}

fn name(level: LogLevel) -> String {
    level.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    #[tokio::test]
    async fn who_goes_away_while_the_profile_is_worked_out_leaves_the_turn_to_nobody_before_it_is() {
        let turn = Arc::new(Semaphore::new(1));
        let (done, until_done) = channel::<()>();
        let start = || Ok(until_done);
        let finish = |done: Receiver<()>| done.recv().map_err(|error| error.to_string());
        let first = in_turn(Arc::clone(&turn), Duration::ZERO, start, finish);
        // It is gone once it is at work, which it cannot be kept from.
        assert!(tokio::time::timeout(Duration::from_millis(50), first).await.is_err());
        let at_once = || in_turn(Arc::clone(&turn), Duration::ZERO, || Ok(()), Ok);
        assert_eq!(at_once().await, None);
        done.send(()).unwrap();
        let next = async {
            while at_once().await.is_none() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(TIMEOUT * 6, next).await.expect("a turn that ends");
    }

    #[tokio::test]
    async fn who_goes_away_while_it_is_taken_ends_it_before_the_next_has_a_turn() {
        /// It looks at the turn when it ends.
        struct Recording(Arc<Semaphore>);
        impl Drop for Recording {
            fn drop(&mut self) {
                assert_eq!(self.0.available_permits(), 0, "the turn is over, and the recording is not");
            }
        }
        let turn = Arc::new(Semaphore::new(1));
        let start = || Ok(Recording(Arc::clone(&turn)));
        let first = in_turn(Arc::clone(&turn), Duration::from_secs(3600), start, |_| Ok(()));
        assert!(tokio::time::timeout(Duration::from_millis(50), first).await.is_err());
        assert_eq!(turn.available_permits(), 1);
    }
}
