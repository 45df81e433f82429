//! `pod-index top`: shows a running agent on the terminal, refreshed until the user quits.
//!
//! ```text
//! HTTP ─> ask ─> model <─ keys
//!                  └─> draw ─> terminal
//! ```
//! This module is a client like any other. It must not know how the agent computes its responses.

mod ask;
mod draw;
mod model;

use std::io::{self, IsTerminal};
use std::time::Duration;

use crossterm::event::{Event, EventStream, KeyEventKind};
use futures_util::StreamExt;
use k8s_openapi::jiff::Timestamp;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::sleep;

use self::model::Model;
use super::client::Server;
use super::runtime;
use crate::config::failure::Failure;
use crate::config::rule;

/// Redraw interval without events, so that displayed times advance.
const TICK: Duration = Duration::from_secs(1);

/// How long a signal waits for the terminal to take what is left to draw, and what restores it.
const LAST_WRITES: Duration = Duration::from_secs(2);

/// Shows the agent on `server` until the user quits.
pub(crate) fn run(server: Server) -> Result<(), Failure> {
    let message = "standard output is not a terminal; programs can query /pods, /sources and /metrics";
    rule(io::stdout().is_terminal(), message)?;
    // A separate thread makes requests, so that a slow response does not delay keys.
    let runtime = runtime()?;
    let done = runtime.block_on(show(server));
    // The terminal may be gone.
    let _ = ratatui::try_restore();
    // Abandon the open requests.
    runtime.shutdown_background();
    done.map_err(|error| Failure::unable("the terminal", error))
}

async fn show(server: Server) -> io::Result<()> {
    // Install the handlers first: otherwise a signal could leave the terminal in raw mode.
    let mut signals = EndSignals::new()?;
    tokio::spawn(end_if_blocked(EndSignals::new()?));
    // A panic restores the terminal before it is printed.
    let mut terminal = ratatui::try_init()?;
    let mut keys = EventStream::new();
    let mut model = Model { server: server.place.clone(), ..Model::default() };
    let (heard, mut news) = mpsc::unbounded_channel::<ask::News>();
    tokio::spawn(ask::follow_pods(server.clone(), heard.clone()));
    tokio::spawn(ask::poll(server, heard));
    let mut tick = tokio::time::interval(TICK);
    loop {
        terminal.draw(|frame| draw::draw(&mut model, Timestamp::now(), frame))?;
        tokio::select! {
            event = keys.next() => match event {
                Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => {
                    if model.key(key) {
                        return Ok(());
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => return Ok(()),
            },
            Some(first) = news.recv() => {
                first(&mut model);
                while let Ok(next) = news.try_recv() {
                    next(&mut model);
                }
            }
            () = signals.next() => return Ok(()),
            _ = tick.tick() => {}
        }
    }
}

/// The signals that end the program.
struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl EndSignals {
    /// From now on, these signals do not end the process by themselves.
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}

/// Ends a process that a signal has not ended. A terminal that nobody reads, or whose output was stopped, blocks each write: the
/// thread that draws then hears no signal, and the terminal cannot be restored.
async fn end_if_blocked(mut signals: EndSignals) {
    signals.next().await;
    sleep(LAST_WRITES).await;
    // Its input can be restored, since that needs no write.
    let _ = crossterm::terminal::disable_raw_mode();
    std::process::exit(0)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use portable_pty::{CommandBuilder, PtySize, native_pty_system};

    use super::*;

    const MESSAGE: &str = "a panic that the test wants";

    #[test]
    #[ignore = "panics on purpose: the other test runs it in a separate terminal"]
    fn panics() {
        assert!(io::stdout().is_terminal());
        let mut terminal = ratatui::try_init().unwrap();
        terminal.draw(|frame| frame.render_widget("drawn", frame.area())).unwrap();
        panic!("{MESSAGE}");
    }

    #[test]
    fn a_panic_restores_the_terminal_before_it_is_printed() {
        let pair = native_pty_system().openpty(PtySize::default()).unwrap();
        let before = pair.master.get_termios().unwrap();
        let mut command = CommandBuilder::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "--nocapture", "cli::top::tests::panics"]);
        let mut output = pair.master.try_clone_reader().unwrap();
        let mut child = pair.slave.spawn_command(command).unwrap();
        let mode = pair.slave;
        // Read while it runs: after the last writer closes the terminal, reading fails.
        drop(mode);
        let mut bytes = Vec::new();
        let _ = output.read_to_end(&mut bytes);
        assert!(!child.wait().unwrap().success());
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("drawn"), "{text}");
        let left = text.find("\x1b[?1049l").expect("the other screen is left");
        let message = text.find(MESSAGE).expect("the panic is printed");
        assert!(left < message, "{text}");
        assert!(text.contains("\x1b[?25h"), "the cursor is seen again");
        assert!(pair.master.get_termios().unwrap() == before);
    }
}
