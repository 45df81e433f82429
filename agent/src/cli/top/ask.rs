//! Asks the agent, and makes all of its text safe to show: what leaves this file has no control characters.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use pod_index::{PodMeta, PodUid};
use pod_index_kubelet::sources::SourceUpdate;
use pod_index_kubelet::sources::api_server::ApiServer;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::sleep;

use super::model::{COLUMNS, Model, Row};
use crate::api::seen::Sources;
use crate::api::table::sanitized;
use crate::api::view::View;
use crate::cli::client::{Refused, Server};
use crate::cli::follow::follow;
use crate::config::failure::Failure;
use crate::pod_api::kubelet_cells;

/// The shortest pause between two requests for the sources.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause is at least this many times the duration of the last request, to limit the load on the agent.
const REST: u32 = 4;

/// What changes the model.
pub(super) type News = Box<dyn FnOnce(&mut Model) + Send>;

/// Keeps the pods current as long as they are shown.
pub(super) async fn follow_pods(server: Server, news: UnboundedSender<News>) {
    let update = |update: SourceUpdate<Pod>| {
        let change: News = match update {
            SourceUpdate::Set(pods) => {
                let rows = rows(&pods);
                Box::new(|model| model.pods = rows.into_iter().collect())
            }
            SourceUpdate::Upsert(pods) | SourceUpdate::Incomplete(pods) => {
                let rows = rows(&pods);
                Box::new(|model| model.pods.extend(rows))
            }
            SourceUpdate::Remove(uids) => {
                Box::new(move |model| model.pods.retain(|uid, _| !uids.contains(uid)))
            }
        };
        Ok(news.send(change).is_ok())
    };
    // `follow` tries again for ever, so this ends when the user quits.
    let _ = follow(ApiServer::new(server.api(View::Kubelet)), update, |problem| {
        let problem = problem.map(|problem| sanitized(problem).into_owned());
        let _ = news.send(Box::new(|model| model.pods_problem = problem));
    })
    .await;
}

fn rows(pods: &[Arc<Pod>]) -> Vec<(PodUid, Arc<Row>)> {
    pods.iter().map(|pod| (pod.uid().into(), Arc::new(row(pod)))).collect()
}

fn row(pod: &Pod) -> Row {
    let cells = kubelet_cells(pod);
    COLUMNS.map(|(_, cell)| sanitized(&cells[cell]).into_owned())
}

/// Asks for the sources, again and again.
pub(super) async fn poll(server: Server, news: UnboundedSender<News>) {
    loop {
        let started = Instant::now();
        let answer = sources(&server).await;
        let pause = pause(started.elapsed(), answer.as_ref().err());
        let why = |refused: Refused| sanitized(refused.failure.message().unwrap_or_default()).into_owned();
        let answer = answer.map_err(why);
        if news.send(Box::new(|model| model.hear(answer, Timestamp::now()))).is_err() {
            return;
        }
        sleep(pause).await;
    }
}

/// The pause after a request that has taken so long. An agent that refuses for now says itself when it may be asked again.
fn pause(request: Duration, refused: Option<&Refused>) -> Duration {
    let after = refused.and_then(|refused| refused.after).unwrap_or_default();
    PAUSE.max(request * REST).max(after)
}

/// The sources, with safe text.
async fn sources(server: &Server) -> Result<Sources, Refused> {
    fn clean(value: &mut Value) {
        match value {
            Value::String(text) => *text = sanitized(text).into_owned(),
            Value::Array(items) => items.iter_mut().for_each(clean),
            Value::Object(members) => members.values_mut().for_each(clean),
            _ => {}
        }
    }
    let mut answer: Value = server.try_get_json("/sources").await?;
    clean(&mut answer);
    let sources = serde_json::from_value(answer);
    sources.map_err(|error| {
        Failure::unable(format_args!("cannot read what {} answers", server.place), error).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_refuses_for_now_is_asked_again_when_it_says() {
        let refused =
            |after: Option<Duration>| Some(Refused { failure: Failure::Unable("busy".to_owned()), after });
        for (request, refused, expected) in [
            (Duration::ZERO, None, PAUSE),
            (Duration::from_secs(2), None, Duration::from_secs(8)),
            (Duration::ZERO, refused(None), PAUSE),
            (Duration::ZERO, refused(Some(Duration::from_secs(5))), Duration::from_secs(5)),
            (Duration::from_secs(2), refused(Some(Duration::from_secs(5))), Duration::from_secs(8)),
        ] {
            assert_eq!(pause(request, refused.as_ref()), expected, "{request:?} {refused:?}");
        }
    }

    #[test]
    fn the_cells_of_a_pod_are_safe_to_show() {
        let mut pod = Pod::default();
        pod.metadata.name = Some("a\u{1b}b".to_owned());
        pod.metadata.labels = Some([("app".to_owned(), "\u{9b}x".to_owned())].into());
        let cells = row(&pod);
        assert_eq!((&*cells[1], &*cells[10], &*cells[13]), ("a\u{fffd}b", "api", "app=\u{fffd}x"));
    }
}
