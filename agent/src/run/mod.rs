//! The agent's life: start, be ready, serve, end.
//!
//! Whatever ends the agent, it ends in [`end`]: a signal, a failure, and a part that has ended.

pub(crate) mod check;
mod guard;
mod print;
mod reload;
pub(crate) mod signals;
mod start;
mod systemd;

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use pod_index_kubelet::api_client::end_plugins;
use pod_index_kubelet::checkpoint::Checkpointing;
use tokio::sync::watch;
use tokio::task::block_in_place;
use tokio::time::{sleep, timeout};

use self::guard::Deadline;
use self::reload::Reload;
use self::signals::{HangUp, Signals};
use self::start::{Started, start};
use crate::config::descriptors;
use crate::config::failure::Failure;
use crate::config::log::Log;
use crate::config::shutdown::{BUDGET, STUCK};
use crate::config::{Invocation, Settings};
use crate::http::build::RunningServer;
use crate::pipeline::writer::Command;
use crate::tasks::{End, Tasks, cannot_start};
use crate::vitals::{Part, Vitals};

/// Maximum number of the runtime's threads for blocking work: to decode the bodies of polled sources, to read certificates and
/// the configuration again, and to go on with a worker's tasks while it waits in `block_in_place`. Files of sources and names
/// of servers have threads of their own, since they may hang. Together with the other threads they stay below the unit's limit
/// (`TasksMax`). Work that finds no free thread waits.
const BLOCKING: usize = 16;

/// A start that takes longer is reported. The agent serves nothing before it, so nothing else says why.
const LATE_START: Duration = Duration::from_secs(10);

/// Runs the agent to its end. `settings`: those of `given`.
pub(crate) fn run(invocation: Invocation, settings: Settings) -> Result<(), Failure> {
    let log = Log::start(settings.effective.log.level, settings.effective.log.format);
    for ignored in &invocation.ignored_variables {
        tracing::warn!("{ignored}");
    }
    descriptors::raise_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(BLOCKING)
        .enable_all()
        .build()
        .map_err(|error| cannot_start("the runtime", error))?;
    let done = runtime.block_on(live(invocation, Arc::new(settings), log.clone()));
    // Do not wait for a source: it may hang in a read on an unresponsive file system.
    runtime.shutdown_background();
    end_plugins();
    log.finish();
    done
}

/// From the first moment on, the agent hears signals. Nothing here blocks the thread.
async fn live(invocation: Invocation, settings: Arc<Settings>, log: Log) -> Result<(), Failure> {
    let began = Instant::now();
    let vitals = Vitals::new(began);
    let mut tasks = Tasks::default();
    let hang_up = HangUp::of_this_process(settings.once);
    let mut signals = watch_over(&mut tasks, &log, &vitals, began, hang_up)?;
    let mut beats = pin!(vitals.heartbeat(Part::Main).keep());
    let (stop, stopped) = watch::channel(false);
    let start = tokio::spawn(start(Arc::clone(&settings), log.clone(), vitals.clone(), tasks, stopped));
    let started = tokio::select! {
        started = start => started.map_err(|error| Failure::unable("cannot start", error))??,
        signal = signals.end() => return unfinished(&settings, signal, "the start is complete"),
        never = report_late_start() => match never {},
        never = &mut beats => match never {},
    };
    let Started { mut tasks, reader, readiness, changing, server, commands, checkpoints, follower } = started;
    let reload = block_in_place(|| Reload::new(invocation, &settings, changing));
    let reload = reload.follow(signals.reload());
    tasks.spawn("the reader of the configuration", async { match reload.await {} });
    let url = server.as_ref().map(|server| &*server.url);
    let done = tokio::select! {
        failure = tasks.ended() => Err(failure),
        done = print::when_ready(&settings, &reader, &readiness, url) => done,
        signal = signals.end() => {
            if settings.once {
                unfinished(&settings, signal, "the pods were printed")
            } else {
                tracing::info!(signal, "shutting down after the open requests");
                Ok(())
            }
        }
        never = &mut beats => match never {},
    };
    // Said now, because the end may take seconds. With `--once` it takes none, and the command's last line says the same.
    if let Some(message) = done.as_ref().err().and_then(Failure::message)
        && !settings.once
    {
        tracing::error!("shutting down: {message}");
    }
    let hung = vitals.stopped(Instant::now());
    let budget = if hung.is_empty() { BUDGET } else { STUCK };
    end(Ending { stop, server, commands, follower, checkpoints }, budget).await;
    // It cannot have done all that the end asks of it.
    if let (Ok(()), Some(part)) = (&done, hung.first()) {
        return Err(Failure::unable("a part of the agent hung", part));
    }
    done
}

async fn report_late_start() -> Infallible {
    sleep(LATE_START).await;
    tracing::warn!(
        "the start is not complete after {LATE_START:?}: it reads the files that the settings name, and the checkpoints; \
         a disk may hang"
    );
    pending().await
}

/// Starts the threads that receive signals and watch over all others.
fn watch_over(
    tasks: &mut Tasks,
    log: &Log,
    vitals: &Vitals,
    began: Instant,
    hang_up: HangUp,
) -> Result<Signals, Failure> {
    let deadline = Deadline::new(began);
    let signals = Signals::start(tasks, log.clone(), vitals.clone(), deadline.clone(), hang_up)?;
    let workers = tokio::runtime::Handle::current().metrics();
    let watched = vitals.clone();
    tasks.thread("vitals", move || guard::watch(&watched, &workers, &deadline))?;
    let beats = guard::wake_workers(vitals.heartbeat(Part::Tasks));
    tasks.spawn("the heartbeat of the tasks", async { match beats.await {} });
    Ok(signals)
}

/// What has to be ended.
struct Ending {
    /// Tells the listeners to stop.
    stop: watch::Sender<bool>,
    server: Option<RunningServer>,
    commands: Sender<Command>,
    follower: End,
    checkpoints: Option<Checkpointing>,
}

/// Ends the agent: lets open requests finish, then writes and logs every change. Takes at most `budget`.
async fn end(parts: Ending, budget: Duration) {
    let Ending { stop, server, commands, follower, checkpoints } = parts;
    let began = Instant::now();
    let left = || budget.saturating_sub(began.elapsed());
    if let Some(server) = server {
        systemd::notify("STOPPING=1");
        stop.send_replace(true);
        // Nothing is sent. The server limits the time itself, unless its threads have stopped.
        let _ = timeout(left(), server.end).await;
    }
    // Fails if the thread has ended.
    let _ = commands.send(Command::Stop);
    // Let every change be written and logged, but not longer than the shutdown may take.
    let _ = timeout(left(), follower).await;
    if let Some(checkpoints) = checkpoints
        && let Err(late) = checkpoints.finish(left()).await
    {
        tracing::error!("shutting down without writing the last checkpoints: {late}");
    }
}

/// The result of a signal that came first.
fn unfinished(settings: &Settings, signal: &str, what: &str) -> Result<(), Failure> {
    if settings.once {
        return Err(Failure::No(Some(format!("received {signal} before {what}"))));
    }
    tracing::info!(signal, "shutting down before {what}");
    Ok(())
}
