//! Polls the agent and sends each result to the model.

use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::seen::{Answer, Counts};
use crate::client::Server;
use crate::exit::Failure;

/// Timeout of a round.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The pause after a round is at least this many times the round's duration, to limit the load on the agent.
const REST: u32 = 4;
/// The shortest pause.
const SHORTEST: Duration = Duration::from_millis(100);
/// The pods in a form with only the columns shown.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// Sends the agent's responses, or its errors, to `heard` until the receiver is gone.
pub(super) async fn follow(server: Server, every: Duration, heard: mpsc::Sender<Result<Answer, String>>) {
    let mut tag = None;
    loop {
        let started = Instant::now();
        let answer = match timeout(TIMEOUT, round(&server, &mut tag)).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer within {TIMEOUT:?}")),
        };
        if heard.send(answer).await.is_err() {
            return;
        }
        sleep(every.max(SHORTEST).max(started.elapsed() * REST)).await;
    }
}

/// Makes one round of requests. `tag` is the tag of the last pods received.
async fn round(server: &Server, tag: &mut Option<String>) -> Result<Answer, String> {
    let told = |failure: Failure| failure.message().unwrap_or_default().to_owned();
    let mut headers = vec![("accept", TABLE)];
    headers.extend(tag.as_deref().map(|tag| ("if-none-match", tag)));
    let table = server.get_unless_known("/pods", &headers).await.map_err(told)?;
    let mirrors = server.get_json("/mirrors").await.map_err(told)?;
    let sources = server.get_json("/sources").await.map_err(told)?;
    let metrics = server.get("/metrics", &[]).await.map_err(told)?;
    let pods = match table {
        Some(body) => {
            let table = serde_json::from_slice(&body.bytes)
                .map_err(|error| format!("cannot read its pods: {error}"))?;
            *tag = body.tag;
            Some(table)
        }
        None => None,
    };
    let counts = Counts::read(&String::from_utf8_lossy(&metrics.bytes));
    Ok(Answer { pods, mirrors, sources, counts })
}
