//! A client that does not hammer, and does not wait for ever.
//!
//! kube's watcher starts a watch that ended in good order anew at once, and a watch that the server closes at once over and
//! over without a pause; and it waits for the answer to a list without end. Neither can be helped from outside the
//! watcher, so it is done below it, between it and the client.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use tokio::time;
use tower::{BoxError, service_fn};

use crate::backoff::Backoff;

/// A watch that ended sooner than this was no watch. client-go's "very short watch".
const SHORT: Duration = Duration::from_secs(1);

struct Pace {
    last: Option<Instant>,
    backoff: Backoff,
}

impl Pace {
    /// How long a watch that is about to start has to wait.
    fn wait(&mut self, now: Instant) -> Duration {
        let short = self.last.is_some_and(|last| now.saturating_duration_since(last) < SHORT);
        let wait = if short { self.backoff.wait(now) } else { Duration::ZERO };
        self.last = Some(now + wait);
        wait
    }
}

/// The same client, but watches that end at once wait before they start again, and an answer has to begin within
/// `patience`; that of anything but a watch has to be complete by then. `watching` is called when a watch is open.
pub(super) fn paced(
    client: Client,
    backoff: Backoff,
    patience: Duration,
    watching: impl Fn() + Send + Sync + 'static,
) -> Client {
    let namespace = client.default_namespace().to_owned();
    let pace = Arc::new(Mutex::new(Pace { last: None, backoff }));
    let watching = Arc::new(watching);
    let service = service_fn(move |request: Request<Body>| {
        let (client, pace, watching) = (client.clone(), Arc::clone(&pace), Arc::clone(&watching));
        async move {
            let watch = is_watch(&request);
            if watch {
                let wait = pace.lock().unwrap_or_else(PoisonError::into_inner).wait(Instant::now());
                time::sleep(wait).await;
            }
            let answer = async {
                let response = client.send(request).await?;
                if watch {
                    if response.status().is_success() {
                        watching();
                    }
                    return Ok(response);
                }
                let (head, body) = response.into_parts();
                let body = body.collect().await?.to_bytes();
                Ok::<_, BoxError>(Response::from_parts(head, Body::from(body)))
            };
            time::timeout(patience, answer).await.unwrap_or_else(|_| {
                Err(std::io::Error::new(
                    std::io::ErrorKind::TimedOut,
                    format!("no answer within {} s", patience.as_secs_f32()),
                )
                .into())
            })
        }
    });
    Client::new(service, namespace)
}

fn is_watch(request: &Request<Body>) -> bool {
    request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_watches_that_end_at_once_wait() {
        let minute = Duration::from_secs(60);
        let mut pace = Pace { last: None, backoff: Backoff::new(SHORT, minute) };
        let start = Instant::now();
        assert_eq!(pace.wait(start), Duration::ZERO);
        assert_eq!(pace.wait(start + 2 * SHORT), Duration::ZERO);
        let first = pace.wait(start + 2 * SHORT);
        assert!(first > Duration::ZERO);
        // It is the watch that has to have lasted, not the wait before it.
        assert!(pace.wait(start + 2 * SHORT + first) > Duration::ZERO);
        assert_eq!(pace.wait(start + minute), Duration::ZERO);
    }
}
