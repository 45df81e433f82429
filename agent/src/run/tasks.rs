//! Owns the tasks and threads of a running agent.
//!
//! The rule: none of them ends before the agent. One that ends or panics ends the agent with an error that names it,
//! and what started the agent starts it again. An agent that lacks a part would answer wrongly, or not at all, for
//! ever. What may fail and begin again, such as a request of a source, does so within its task.

use std::collections::HashMap;
use std::future::Future;
use std::{io, thread};

use tokio::sync::oneshot;
use tokio::task::{Id, JoinSet};

use crate::config::failure::Failure;

/// The running tasks and threads. Dropping this aborts the tasks and detaches the threads.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    running: JoinSet<()>,
    names: HashMap<Id, &'static str>,
}

/// Waits for the end of one task or thread. A panic is an end.
#[derive(Debug)]
pub(crate) struct End(oneshot::Receiver<()>);

impl Tasks {
    /// Runs a task.
    pub(crate) fn spawn(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> End {
        let (ending, ended) = oneshot::channel();
        let task = self.running.spawn(async move {
            let _ending = ending;
            task.await;
        });
        self.names.insert(task.id(), name);
        End(ended)
    }

    /// Runs `work` in a thread of its own.
    pub(crate) fn thread(
        &mut self,
        name: &'static str,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<End, Failure> {
        let (ending, ended) = oneshot::channel::<()>();
        let started = thread::Builder::new().name(name.to_owned()).spawn(move || {
            // Dropped at any end of the thread.
            let _ending = ending;
            work();
        });
        started.map_err(|error| cannot_start(name, error))?;
        Ok(self.spawn(name, async move {
            let _ = ended.await;
        }))
    }

    /// Waits until one of them ends.
    pub(crate) async fn ended(&mut self) -> Failure {
        let Some(ended) = self.running.join_next_with_id().await else {
            return std::future::pending().await;
        };
        let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
        let name = self.names.get(&id).copied().unwrap_or("a task");
        Failure::Unable(format!("{name} has ended; see the log"))
    }
}

impl End {
    pub(crate) async fn wait(self) {
        // Nothing is sent: the sender is dropped.
        let _ = self.0.await;
    }
}

/// The error of a thread or runtime that cannot be started.
pub(crate) fn cannot_start(name: &str, error: io::Error) -> Failure {
    Failure::unable(format_args!("cannot start {name}"), error)
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::task::Poll;

    use futures_util::stream;
    use k8s_openapi::api::core::v1::Pod;
    use pod_index_kubelet::sources::{NodeName, SourceUpdate, Updates, file};

    use super::*;
    use crate::pipeline::sources;

    #[tokio::test]
    async fn a_task_or_thread_that_ends_or_panics_is_named() {
        let ends: [fn(&mut Tasks); 4] = [
            |tasks| drop(tasks.spawn("a part", async {})),
            |tasks| drop(tasks.spawn("a part", async { panic!("a panic that the test wants") })),
            |tasks| drop(tasks.thread("a part", || {}).unwrap()),
            |tasks| drop(tasks.thread("a part", || panic!("a panic that the test wants")).unwrap()),
        ];
        for end in ends {
            let mut tasks = Tasks::default();
            tasks.spawn("another part", pending());
            end(&mut tasks);
            assert_eq!(tasks.ended().await, Failure::Unable("a part has ended; see the log".to_owned()));
        }
    }

    #[tokio::test]
    async fn a_source_that_panics_ends_the_agent_and_is_named() {
        let status = file::follow("/nonexistent", NodeName::new("n")).status();
        let panics =
            stream::poll_fn(|_| -> Poll<Option<SourceUpdate<Pod>>> { panic!("a panic that the test wants") });
        let updates = Updates::new(panics, status);
        let (reports, _received) = crossbeam_channel::bounded(1);
        let mut tasks = Tasks::default();
        tasks.spawn(sources::task_of(&updates), sources::pass_on(updates, reports));
        assert_eq!(tasks.ended().await, Failure::Unable("the source file has ended; see the log".to_owned()));
    }

    #[tokio::test]
    async fn the_end_of_a_task_can_be_awaited() {
        let mut tasks = Tasks::default();
        tasks.spawn("a part", async { panic!("a panic that the test wants") }).wait().await;
    }
}
