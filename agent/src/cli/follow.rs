//! Follows the agent's pods for `top` and `list -w`, as the agent follows those of an API server.
//!
//! After a broken connection, the watch continues after the last version. If the agent no longer has that version, for
//! example because it was restarted, all pods are listed.

use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use pod_index_kubelet::Pauses;
use pod_index_kubelet::sources::api_server::{ApiServer, Times};
use pod_index_kubelet::sources::{ProblemKind, SourceUpdate};

use crate::config::failure::Failure;

/// Shortest and longest pause between attempts.
const WAITS: Pauses = Pauses::new(Duration::from_millis(100), Duration::from_secs(5));

/// Follows the pods until `update` returns `false`. `away`: the agent does not answer, for this reason, or answers
/// again.
pub(crate) async fn follow(
    pods: ApiServer,
    mut update: impl FnMut(SourceUpdate<Pod>) -> Result<bool, Failure>,
    away: impl Fn(Option<&str>),
) -> Result<(), Failure> {
    let times = Times { backoff: WAITS, ..Times::default() };
    let mut updates = ApiServer { times, ..pods }.objects::<Pod>();
    let mut status = updates.status();
    let mut is_away = false;
    loop {
        tokio::select! {
            Some(pods) = updates.next() => {
                if !update(pods)? {
                    return Ok(());
                }
            }
            Ok(()) = status.changed() => {
                let status = status.borrow_and_update();
                let problem = status.problems.iter().find(|problem| problem.kind == ProblemKind::Request);
                let problem = problem.map(|problem| &*problem.message);
                if problem.is_some() != is_away {
                    is_away = problem.is_some();
                    away(problem);
                }
            }
            else => return Ok(()),
        }
    }
}
