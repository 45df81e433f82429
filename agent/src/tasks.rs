//! Owns the tasks and threads of a running agent.
//!
//! The rule: none of them ends before the agent. One that ends or panics ends the agent with an error that names it,
//! and what started the agent starts it again. An agent that lacks a part would answer wrongly, or not at all, for
//! ever. What may fail and begin again, such as a request of a source, does so within its task.
//!
//! Each subsystem is started in the same two steps. `build` makes it from the settings, registers its metrics, and returns
//! every error that the settings can cause. `spawn` then runs its work here. So an agent whose settings are wrong says so
//! before any of its work runs.

use std::borrow::Cow;
use std::convert::Infallible;
use std::future::{Future, pending};
use std::panic::AssertUnwindSafe;
use std::{io, thread};

use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::config::failure::Failure;

/// The running tasks and threads. Each returns why the agent ends with it. Dropping this aborts the tasks and detaches the
/// threads.
#[derive(Debug, Default)]
pub(crate) struct Tasks(JoinSet<Failure>);

/// The work of a thread, which `build` made and `spawn` runs.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// Resolves to an error when a task or thread ends or panics: the sender is dropped, and nothing is sent.
pub(crate) type End = oneshot::Receiver<Infallible>;

impl Tasks {
    /// Runs a task.
    pub(crate) fn spawn(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> End {
        let (ending, ended) = oneshot::channel();
        let name = name.into();
        self.0.spawn(async move {
            let _ending = ending;
            // A panic has been printed.
            let _ = AssertUnwindSafe(task).catch_unwind().await;
            has_ended(&name)
        });
        ended
    }

    /// Runs a task that ends only if the agent must end, and says why.
    pub(crate) fn spawn_with_reason(
        &mut self,
        name: &'static str,
        task: impl Future<Output = Failure> + Send + 'static,
    ) {
        self.0.spawn(async move {
            AssertUnwindSafe(task).catch_unwind().await.unwrap_or_else(|_panic| has_ended(name))
        });
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
        Ok(self.spawn(name, ended.map(drop)))
    }

    /// Waits until one of them ends.
    pub(crate) async fn ended(&mut self) -> Failure {
        let Some(ended) = self.0.join_next().await else { return pending().await };
        ended.unwrap_or_else(|_aborted| has_ended("a task"))
    }
}

/// The error of a task or thread that has ended although it should not.
fn has_ended(name: &str) -> Failure {
    Failure::Unable(format!("{name} has ended; see the log"))
}

/// The error of a thread or runtime that cannot be started.
pub(crate) fn cannot_start(name: &str, error: io::Error) -> Failure {
    Failure::unable(format_args!("cannot start {name}"), error)
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

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
    async fn a_task_with_a_reason_gives_it_unless_it_panics() {
        let mut tasks = Tasks::default();
        tasks.spawn_with_reason("a part", async { Failure::Kubelet("why".to_owned()) });
        assert_eq!(tasks.ended().await, Failure::Kubelet("why".to_owned()));
        tasks.spawn_with_reason("a part", async { panic!("a panic that the test wants") });
        assert_eq!(tasks.ended().await, Failure::Unable("a part has ended; see the log".to_owned()));
    }

    #[tokio::test]
    async fn the_end_of_a_task_can_be_awaited() {
        let mut tasks = Tasks::default();
        tasks.spawn("a part", async { panic!("a panic that the test wants") }).await.unwrap_err();
    }
}
