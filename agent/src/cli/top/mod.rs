//! `pod-index top`: shows a running agent on the terminal, refreshed until the user quits.
//!
//! ```text
//! HTTP ─> ask ─> model <─ keys
//!                  └─> draw ─> text ─> screen ─> terminal
//! ```
//! This module is a client like any other. It must not know how the agent computes its responses.

mod ask;
mod draw;
mod model;
mod screen;
mod seen;
mod text;

use std::io::{self, IsTerminal};
use std::time::Duration;

use crossterm::event::{Event, EventStream, KeyEventKind};
use futures_util::StreamExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use self::model::{Model, Moment, Wish};
use self::screen::Screen;
use super::client::Server;
use crate::config::failure::Failure;

/// Redraw interval without events, so that displayed times advance.
const TICK: Duration = Duration::from_secs(1);

/// Shows the agent on `server` until the user quits.
pub(crate) fn run(server: Server, every: Duration) -> Result<(), Failure> {
    if !io::stdout().is_terminal() {
        let message = "standard output is not a terminal; programs can query /pods, /sources and /metrics";
        return Err(Failure::Usage(message.to_owned()));
    }
    // A separate thread makes requests, so that a slow response does not delay keys.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::unable("cannot start the runtime", error))?;
    let done = runtime.block_on(show(server, every));
    // Abandon the open request.
    runtime.shutdown_background();
    done.map_err(|error| Failure::unable("the terminal", error))
}

async fn show(server: Server, every: Duration) -> io::Result<()> {
    // Install the handlers first: otherwise a signal could leave the terminal in raw mode.
    let [mut terminate, mut interrupt, mut hangup] =
        [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?];
    let mut screen = Screen::enter()?;
    let mut keys = EventStream::new();
    let (heard, mut news) = mpsc::channel(1);
    let mut model = Model::new(server.place.clone());
    let (filter, filters) = watch::channel(String::new());
    let (found, mut identified) = mpsc::channel(1);
    tokio::spawn(ask::identify(server.clone(), filters, found));
    tokio::spawn(ask::follow(server, every, heard));
    let mut tick = tokio::time::interval(TICK);
    loop {
        let (width, height) = screen.size()?;
        screen.draw(draw::frame(&mut model, Moment::now(), width, height))?;
        filter.send_if_modified(|asked| {
            let is_new = *asked != model.filter.text;
            if is_new {
                asked.clone_from(&model.filter.text);
            }
            is_new
        });
        tokio::select! {
            event = keys.next() => match event {
                Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => {
                    if model.key(key) == Wish::Leave {
                        return Ok(());
                    }
                }
                Some(Ok(Event::Resize(..))) => screen.forget(),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => return Ok(()),
            },
            answer = news.recv() => match answer {
                Some(answer) => model.hear(answer, Moment::now()),
                // The task panicked, which is logged already.
                None => return Err(io::Error::other("the polling task ended")),
            },
            Some((text, found)) = identified.recv() => model.identify(&text, &found),
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = hangup.recv() => return Ok(()),
            _ = tick.tick() => {}
        }
    }
}
