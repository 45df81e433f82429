//! SIGTERM, SIGHUP and Ctrl-C: the first shuts down gracefully, the second at once. SIGUSR1 sets the level of the log to
//! `debug`, and SIGUSR2 back to the configured one.
//!
//! A thread of its own receives them, so that nothing else can delay it. It also ends an agent that does not end by itself:
//! graceful shutdown needs the runtime and the writer, and they may have stopped.

use std::fs;
use std::future::pending;
use std::pin::pin;
use std::time::Instant;

use futures_util::future::OptionFuture;
use tokio::runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::sleep_until;

use super::guard::Deadline;
use crate::config::failure::Failure;
use crate::config::log::Log;
use crate::config::shutdown::{BUDGET, LAST_LINES, STUCK};
use crate::tasks::{Tasks, cannot_start};
use crate::vitals::{Part, Vitals};
use pod_index_kubelet::api_client::end_plugins;

/// The exit code of an agent that had to be ended.
const UNABLE: i32 = 3;

/// The name of the first signal.
pub(crate) struct Signals(watch::Receiver<Option<&'static str>>);

impl Signals {
    /// From now on, SIGTERM, SIGHUP and SIGINT do not end the process by themselves. An ignored SIGHUP stays ignored.
    pub(crate) fn start(
        tasks: &mut Tasks,
        log: Log,
        vitals: Vitals,
        deadline: Deadline,
    ) -> Result<Self, Failure> {
        let name = "signals";
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| cannot_start(name, error))?;
        let register = |kind| {
            let _inside = runtime.enter();
            signal(kind).map_err(|error| Failure::unable("cannot listen for signals", error))
        };
        let mut terminate = register(SignalKind::terminate())?;
        // A terminal that is closed sends it.
        let mut hang_up = (!ignores_hang_ups()).then(|| register(SignalKind::hangup())).transpose()?;
        let mut interrupt = register(SignalKind::interrupt())?;
        let mut more_lines = register(SignalKind::user_defined1())?;
        let mut usual_lines = register(SignalKind::user_defined2())?;
        let (first, end) = watch::channel(None);
        let receive = async move {
            let mut beats = pin!(vitals.heartbeat(Part::Signals).keep());
            // When an agent that has received a signal is ended.
            let mut over = None::<Instant>;
            loop {
                let until_over = over.map(|over| sleep_until(over.into()));
                let (name, kind) = tokio::select! {
                    _ = terminate.recv() => ("SIGTERM", SignalKind::terminate()),
                    Some(_) = OptionFuture::from(hang_up.as_mut().map(Signal::recv)) => {
                        ("SIGHUP", SignalKind::hangup())
                    }
                    _ = interrupt.recv() => ("SIGINT", SignalKind::interrupt()),
                    _ = more_lines.recv() => {
                        log.set_debug(true);
                        continue;
                    }
                    _ = usual_lines.recv() => {
                        log.set_debug(false);
                        continue;
                    }
                    Some(()) = OptionFuture::from(until_over) => {
                        tracing::error!("the agent does not end by itself, exiting at once");
                        log.finish();
                        exit(UNABLE);
                    }
                    never = &mut beats => match never {},
                };
                if first.send_replace(Some(name)).is_some() {
                    deadline.set(LAST_LINES);
                    tracing::warn!(signal = name, "second signal, exiting at once");
                    log.finish();
                    // The exit code of an unhandled signal.
                    exit(128 + kind.as_raw_value());
                }
                let now = Instant::now();
                let limit = if vitals.are_well(now) { BUDGET + LAST_LINES } else { STUCK };
                over = Some(now + limit);
                deadline.set(limit + LAST_LINES);
            }
        };
        tasks.thread(name, move || runtime.block_on(receive))?;
        Ok(Self(end))
    }

    /// Waits for the first signal that ends the agent. Returns its name.
    pub(crate) async fn end(&mut self) -> &'static str {
        // Fails if the thread has panicked, which ends the agent.
        match self.0.wait_for(Option::is_some).await.map(|name| *name) {
            Ok(Some(name)) => name,
            _ => pending().await,
        }
    }
}

/// Ends the process, and the credential plugins that it runs.
fn exit(code: i32) -> ! {
    end_plugins();
    std::process::exit(code)
}

/// Whether the process was started with SIGHUP ignored, as by `nohup`.
fn ignores_hang_ups() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    // The first signal has the lowest bit.
    ignored.is_some_and(|signals| signals & 1 << (SignalKind::hangup().as_raw_value() - 1) != 0)
}
