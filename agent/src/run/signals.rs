//! SIGTERM, SIGHUP and Ctrl-C: the first shuts down gracefully, the second at once. SIGUSR1 sets the level of the log to
//! `debug`, and SIGUSR2 back to the configured one.
//!
//! A thread of its own receives them, so that nothing else can delay it. It also ends an agent that does not end by itself:
//! graceful shutdown needs the runtime and the writer, and they may have stopped.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::time::Instant;
use std::{fs, io};

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
        let registered = {
            let _inside = runtime.enter();
            Registered::new()
        };
        let registered = registered.map_err(|error| Failure::unable("cannot listen for signals", error))?;
        let (first, end) = watch::channel(None);
        let receiver = Receiver { log, vitals, deadline, first };
        tasks.thread(name, move || match runtime.block_on(receiver.receive(registered)) {})?;
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

/// What a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    End { name: &'static str, kind: SignalKind },
    MoreLines,
    UsualLines,
}

/// The signals that the process receives.
struct Registered {
    terminate: Signal,
    /// A terminal that is closed sends it. `None` if it is ignored.
    hang_up: Option<Signal>,
    interrupt: Signal,
    user_1: Signal,
    user_2: Signal,
}

impl Registered {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            hang_up: (!ignores_hang_ups()).then(|| signal(SignalKind::hangup())).transpose()?,
            interrupt: signal(SignalKind::interrupt())?,
            user_1: signal(SignalKind::user_defined1())?,
            user_2: signal(SignalKind::user_defined2())?,
        })
    }

    async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::End { name: "SIGTERM", kind: SignalKind::terminate() },
            Some(_) = OptionFuture::from(self.hang_up.as_mut().map(Signal::recv)) => {
                Asked::End { name: "SIGHUP", kind: SignalKind::hangup() }
            }
            _ = self.interrupt.recv() => Asked::End { name: "SIGINT", kind: SignalKind::interrupt() },
            _ = self.user_1.recv() => Asked::MoreLines,
            _ = self.user_2.recv() => Asked::UsualLines,
        }
    }
}

/// What the thread that receives signals does with them.
struct Receiver {
    log: Log,
    vitals: Vitals,
    deadline: Deadline,
    /// Becomes the name of the first signal that ends the agent.
    first: watch::Sender<Option<&'static str>>,
}

impl Receiver {
    async fn receive(self, mut signals: Registered) -> Infallible {
        let mut beats = pin!(self.vitals.heartbeat(Part::Signals).keep());
        // When an agent that has received a signal is ended.
        let mut over = None::<Instant>;
        loop {
            let until_over = over.map(|over| sleep_until(over.into()));
            let asked = tokio::select! {
                asked = signals.next() => asked,
                Some(()) = OptionFuture::from(until_over) => {
                    tracing::error!("the agent does not end by itself, exiting at once");
                    self.exit(UNABLE);
                }
                never = &mut beats => match never {},
            };
            match asked {
                Asked::MoreLines => self.log.set_debug(true),
                Asked::UsualLines => self.log.set_debug(false),
                Asked::End { name, kind } if self.first.send_replace(Some(name)).is_some() => {
                    self.deadline.set(LAST_LINES);
                    tracing::warn!(signal = name, "second signal, exiting at once");
                    // The exit code of an unhandled signal.
                    self.exit(128 + kind.as_raw_value());
                }
                Asked::End { .. } => {
                    let now = Instant::now();
                    let limit = if self.vitals.are_well(now) { BUDGET + LAST_LINES } else { STUCK };
                    over = Some(now + limit);
                    self.deadline.set(limit + LAST_LINES);
                }
            }
        }
    }

    /// Ends the process, and the credential plugins that it runs.
    fn exit(&self, code: i32) -> ! {
        self.log.finish();
        end_plugins();
        std::process::exit(code)
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
