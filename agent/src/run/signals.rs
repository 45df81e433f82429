//! SIGTERM and Ctrl-C: the first shuts down gracefully, the second at once. SIGHUP reads the configuration again, or ends the
//! agent if its terminal was closed ([`HangUp`]). SIGUSR1 sets the level of the log to `debug`, and SIGUSR2 back to the
//! configured one.
//!
//! `doctor` and `--check` end at once ([`ending_plugins`]).
//!
//! A thread of its own receives them, so that nothing else can delay it. It also ends an agent that does not end by itself:
//! graceful shutdown needs the runtime and the writer, and they may have stopped.

use std::convert::Infallible;
use std::fs::{self, File};
use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use futures_util::future::OptionFuture;
use tokio::runtime::{self, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, watch};
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

/// The name of the thread that receives signals.
const THREAD: &str = "signals";

/// Does the work of a command that asks credential plugins, and ends these with it.
///
/// A plugin has a process group of its own, so it gets no Ctrl-C, and it may ignore other signals. A signal that ends the command
/// does so at once, whatever the command waits for.
pub(crate) fn ending_plugins(work: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    let Listener { runtime, registered } = Listener::new(HangUp::of_this_process(true))?;
    let until_signal = move || -> Infallible { runtime.block_on(end_at_signal(registered)) };
    let started = thread::Builder::new().name(THREAD.to_owned()).spawn(until_signal);
    started.map_err(|error| cannot_start(THREAD, error))?;
    let done = work();
    end_plugins();
    done
}

/// Ends the process and the credential plugins that it runs.
async fn end_at_signal(mut signals: Registered) -> Infallible {
    loop {
        if let Asked::End { kind, .. } = signals.next().await {
            end_plugins();
            std::process::exit(code_of_unhandled(kind));
        }
    }
}

/// The exit code that a shell shows for a process that does not handle this signal.
fn code_of_unhandled(kind: SignalKind) -> i32 {
    128 + kind.as_raw_value()
}

/// What SIGHUP means to this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HangUp {
    /// The process was started with SIGHUP ignored, as by `nohup`.
    Ignored,
    /// Its terminal was closed, and nobody is there any more for whom it runs.
    Ends,
    /// The process has no terminal: it is a service, and its configuration is to be read again.
    Reloads,
}

impl HangUp {
    /// `once`: whether the agent only prints the pods. Ask before the signal: a closed terminal is no longer the process's.
    pub(crate) fn of_this_process(once: bool) -> Self {
        // Fails for a process without a terminal, however its input and output are redirected.
        let has_terminal = || File::open("/dev/tty").is_ok();
        match () {
            () if ignores_hang_ups() => Self::Ignored,
            () if once || has_terminal() => Self::Ends,
            () => Self::Reloads,
        }
    }
}

/// What the signals have asked for.
pub(crate) struct Signals {
    /// The name of the first signal that ends the agent.
    first: watch::Receiver<Option<&'static str>>,
    /// Notified by a signal that asks to read the configuration again.
    reload: Arc<Notify>,
}

impl Signals {
    /// From now on, SIGTERM, SIGHUP and SIGINT do not end the process by themselves.
    pub(crate) fn start(
        tasks: &mut Tasks,
        log: Log,
        vitals: Vitals,
        deadline: Deadline,
        hang_up: HangUp,
    ) -> Result<Self, Failure> {
        let Listener { runtime, registered } = Listener::new(hang_up)?;
        let (sender, first) = watch::channel(None);
        let reload = Arc::new(Notify::new());
        let receiver = Receiver { log, vitals, deadline, first: sender, reload: Arc::clone(&reload) };
        tasks.thread(THREAD, move || match runtime.block_on(receiver.receive(registered)) {})?;
        Ok(Self { first, reload })
    }

    /// Waits for the first signal that ends the agent. Returns its name.
    pub(crate) async fn end(&mut self) -> &'static str {
        // Fails if the thread has panicked, which ends the agent.
        match self.first.wait_for(Option::is_some).await.map(|name| *name) {
            Ok(Some(name)) => name,
            _ => pending().await,
        }
    }

    /// Is notified by each signal that asks to read the configuration again; by several that come close together, once.
    pub(crate) fn reload(&self) -> Arc<Notify> {
        Arc::clone(&self.reload)
    }
}

/// What a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    End { name: &'static str, kind: SignalKind },
    Reload,
    MoreLines,
    UsualLines,
}

/// The signals that the process receives, and the runtime that has to run for that.
struct Listener {
    runtime: Runtime,
    registered: Registered,
}

impl Listener {
    fn new(hang_up: HangUp) -> Result<Self, Failure> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| cannot_start(THREAD, error))?;
        let registered = {
            let _inside = runtime.enter();
            Registered::new(hang_up)
        };
        let registered = registered.map_err(|error| Failure::unable("cannot listen for signals", error))?;
        Ok(Self { runtime, registered })
    }
}

/// The signals that the process receives.
struct Registered {
    terminate: Signal,
    /// `None` if it is ignored.
    hang_up: Option<Signal>,
    at_hang_up: Asked,
    interrupt: Signal,
    user_1: Signal,
    user_2: Signal,
}

impl Registered {
    fn new(hang_up: HangUp) -> io::Result<Self> {
        let is_heard = hang_up != HangUp::Ignored;
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            hang_up: is_heard.then(|| signal(SignalKind::hangup())).transpose()?,
            at_hang_up: match hang_up {
                HangUp::Reloads => Asked::Reload,
                HangUp::Ends | HangUp::Ignored => Asked::End { name: "SIGHUP", kind: SignalKind::hangup() },
            },
            interrupt: signal(SignalKind::interrupt())?,
            user_1: signal(SignalKind::user_defined1())?,
            user_2: signal(SignalKind::user_defined2())?,
        })
    }

    async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::End { name: "SIGTERM", kind: SignalKind::terminate() },
            Some(_) = OptionFuture::from(self.hang_up.as_mut().map(Signal::recv)) => self.at_hang_up,
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
    reload: Arc<Notify>,
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
                Asked::Reload => self.reload.notify_one(),
                Asked::MoreLines => self.log.set_debug(true),
                Asked::UsualLines => self.log.set_debug(false),
                Asked::End { name, kind } if self.first.send_replace(Some(name)).is_some() => {
                    self.deadline.set(LAST_LINES);
                    tracing::warn!(signal = name, "second signal, exiting at once");
                    self.exit(code_of_unhandled(kind));
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
