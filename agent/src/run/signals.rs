//! SIGTERM, SIGHUP and Ctrl-C: the first shuts down gracefully, the second at once.
//!
//! A thread of its own receives them, so that nothing else can delay it.

use std::fs;
use std::future::pending;

use futures_util::future::OptionFuture;
use tokio::runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::tasks::{Tasks, cannot_start};
use crate::config::failure::Failure;
use crate::config::log::Log;

/// The name of the first signal.
pub(crate) struct Signals(watch::Receiver<Option<&'static str>>);

impl Signals {
    /// From now on, SIGTERM, SIGHUP and SIGINT do not end the process by themselves. An ignored SIGHUP stays ignored.
    pub(crate) fn start(tasks: &mut Tasks, log: Log) -> Result<Self, Failure> {
        let name = "signals";
        let runtime = runtime::Builder::new_current_thread().enable_io().build();
        let runtime = runtime.map_err(|error| cannot_start(name, error))?;
        let register = |kind| {
            let _inside = runtime.enter();
            signal(kind).map_err(|error| Failure::unable("cannot listen for signals", error))
        };
        let mut terminate = register(SignalKind::terminate())?;
        // A terminal that is closed sends it.
        let mut hang_up = (!ignores_hang_ups()).then(|| register(SignalKind::hangup())).transpose()?;
        let mut interrupt = register(SignalKind::interrupt())?;
        let (first, end) = watch::channel(None);
        let receive = async move {
            loop {
                let (name, kind) = tokio::select! {
                    _ = terminate.recv() => ("SIGTERM", SignalKind::terminate()),
                    Some(_) = OptionFuture::from(hang_up.as_mut().map(Signal::recv)) => {
                        ("SIGHUP", SignalKind::hangup())
                    }
                    _ = interrupt.recv() => ("SIGINT", SignalKind::interrupt()),
                };
                if first.send_replace(Some(name)).is_some() {
                    tracing::warn!(signal = name, "second signal, exiting at once");
                    log.finish();
                    // The exit code of an unhandled signal.
                    std::process::exit(128 + kind.as_raw_value());
                }
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

/// Whether the process was started with SIGHUP ignored, as by `nohup`.
fn ignores_hang_ups() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    // The first signal has the lowest bit.
    ignored.is_some_and(|signals| signals & 1 << (SignalKind::hangup().as_raw_value() - 1) != 0)
}
