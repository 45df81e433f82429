//! Reads the configuration again, when a signal asks for it.
//!
//! What does an operator want to know afterwards? Whether the agent runs with what the file says now. So every setting
//! that differs either takes effect, or is named in the log with a restart as the remedy; `systemctl status` has the result
//! in a line. A file with an error changes nothing, and the file is checked as a start would check it.
//!
//! The files that settings name, such as certificates and tokens, need no signal: those who use them read them again. Only
//! the rules of `--extract` are read once.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::Level;

use super::{check, systemd};
use crate::api::table::sanitized;
use crate::config::changes::{ChangedSettings, RunningParts};
use crate::config::changing::{Changing, Stored};
use crate::config::failure::Failure;
use crate::config::log::Log;
use crate::config::read::read_small;
use crate::config::values::{AllowedClients, MostWatches};
use crate::config::{Invocation, Settings};

/// How long a read may take before the next signal begins another one.
const LONGEST_READ: Duration = Duration::from_secs(10);
/// The most reads that hang at a time. Each keeps a thread.
const MOST_HANGING: usize = 3;

/// The configuration with which the agent runs, and what a new one can change.
pub(super) struct Reload {
    /// The command line and the environment. They name the file, and go before it.
    invocation: Arc<Invocation>,
    running: Settings,
    /// What `--extract` had when the agent started.
    extract: Option<Vec<u8>>,
    parts: ChangingParts,
    /// For each read that has not ended.
    reads: Arc<Semaphore>,
}

/// Where the running agent looks up what a signal can change.
pub(super) struct ChangingParts {
    pub(super) log: Log,
    pub(super) allowed_clients: Changing<AllowedClients>,
    pub(super) most_watches: Changing<MostWatches>,
}

impl RunningParts for ChangingParts {
    fn log_at(&self, level: Level) -> Stored {
        self.log.set_level(level)
    }

    fn serve_only(&self, clients: AllowedClients) -> Stored {
        tracing::warn!(
            names = ?clients.names,
            groups = ?clients.groups,
            "requests are served for these clients from now on; open watches go on"
        );
        self.allowed_clients.set(clients)
    }

    fn permit_watches(&self, most: MostWatches) -> Stored {
        let MostWatches { of_all, of_client } = most;
        tracing::info!(
            of_all,
            of_client,
            "so many watches are permitted from now on; those that are open go on"
        );
        self.most_watches.set(most)
    }
}

impl Reload {
    /// `settings`: those with which the agent started. Reads the file of `--extract`, so this may block.
    pub(super) fn new(invocation: Invocation, settings: &Settings, parts: ChangingParts) -> Self {
        let extract = extract(settings);
        let reads = Arc::new(Semaphore::new(MOST_HANGING));
        let invocation = Arc::new(invocation);
        Self { invocation, running: settings.clone(), extract, parts, reads }
    }

    /// Reads the configuration whenever this is notified.
    pub(super) async fn follow(mut self, asked: Arc<Notify>) -> Infallible {
        loop {
            asked.notified().await;
            tracing::info!("reading the configuration again");
            let status = match self.read().await {
                Ok(new) => self.apply(&new),
                Err(why) => unchanged(&why),
            };
            systemd::notify(&format!("STATUS={status}"));
        }
    }

    /// Reads the files on a thread of its own, because they may be on a disk that hangs.
    async fn read(&self) -> Result<Read, String> {
        let Ok(permit) = Arc::clone(&self.reads).try_acquire_owned() else {
            return Err(format!(
                "{MOST_HANGING} reads of its files hang; restart the agent once the disk answers"
            ));
        };
        let read = Read::apart(Arc::clone(&self.invocation), permit);
        timeout(LONGEST_READ, read).await.unwrap_or_else(|_elapsed| {
            let longest = LONGEST_READ.as_secs();
            Err(format!("a file could not be read within {longest} s; the next SIGHUP tries again"))
        })
    }

    /// Applies what can change in a running agent, and logs what cannot. Returns the result in a line.
    fn apply(&mut self, new: &Read) -> String {
        let ChangedSettings { at_once, mut need_restart } =
            self.running.take_over(&new.settings, &self.parts);
        if new.extract != self.extract
            && new.settings.effective.content.extract == self.running.effective.content.extract
        {
            need_restart.push(format!("the file of {}", new.settings.written.name("extract")));
        }
        for name in &need_restart {
            tracing::warn!("{name} has changed, and takes effect at the next restart");
        }
        let result = match (!at_once.is_empty(), need_restart.is_empty()) {
            (_, false) => return format!("a restart is needed: {} changed", need_restart.join(", ")),
            (true, true) => "the configuration was read again, and every change is in effect",
            (false, true) => "the configuration was read again: nothing has changed",
        };
        tracing::info!("{result}");
        result.to_owned()
    }
}

/// Logs why the agent keeps its configuration. Returns the same in a line.
fn unchanged(why: &str) -> String {
    tracing::error!("the configuration stays as it was: {why}");
    format!("the configuration stays as it was: {}", sanitized(why))
}

/// The configuration as it is written now.
struct Read {
    settings: Settings,
    extract: Option<Vec<u8>>,
}

impl Read {
    /// Reads on a thread of its own, because the file may be on a disk that hangs. Gives the permit back when the read ends, even
    /// if nobody waits for it any more. Fails as [`now`](Self::now), or if that panics, which is logged.
    async fn apart(invocation: Arc<Invocation>, permit: OwnedSemaphorePermit) -> Result<Self, String> {
        let read = spawn_blocking(move || {
            let read = Self::now(&invocation);
            drop(permit);
            read
        });
        match read.await {
            Ok(Ok(read)) => Ok(read),
            Ok(Err(failure)) => Err(failure.message().unwrap_or_default().to_owned()),
            Err(panic) => Err(panic.to_string()),
        }
    }

    /// Fails if the agent would not start with it.
    fn now(invocation: &Invocation) -> Result<Self, Failure> {
        let settings = invocation.resolve()?;
        drop(check::local(&settings)?);
        let extract = extract(&settings);
        Ok(Self { settings, extract })
    }
}

/// What the file of `--extract` has. Whether it is valid is checked elsewhere.
fn extract(settings: &Settings) -> Option<Vec<u8>> {
    read_small(settings.effective.content.extract.as_deref()?).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::config::tests::invocation_of_file;

    /// A named pipe that nobody writes yet, in place of the file. This runtime has one thread. If the file was read on it, nobody
    /// could say that the pipe may be written.
    #[tokio::test]
    async fn a_file_that_cannot_be_read_holds_up_no_other_task() {
        let (path, invocation) = invocation_of_file("hangs");
        let mode = nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR;
        nix::unistd::mkfifo(&path, mode).unwrap();
        let (say, said) = mpsc::channel();
        let written = path.clone();
        let writer = thread::spawn(move || {
            // In the end also unasked: then the test fails, and does not hang.
            let is_asked = said.recv_timeout(Duration::from_secs(20)).is_ok();
            fs::write(written, "staticPodPath: /nowhere\nport: 7\n").unwrap();
            is_asked
        });
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let reading = tokio::spawn(Read::apart(Arc::new(invocation), permit));
        // Meanwhile the other task begins to read.
        tokio::time::sleep(Duration::from_millis(50)).await;
        say.send(()).unwrap();
        let read = reading.await.unwrap();
        fs::remove_file(path).unwrap();
        assert!(writer.join().unwrap(), "nothing else could run until the file was read");
        assert_eq!(read.unwrap().settings.server.port, 7);
    }
}
