//! SIGHUP: reloads the configuration and updates the sources.
//!
//! A reload is atomic: if the new configuration is wrong, the old one stays. A pod in both configurations stays visible
//! throughout. Signals during a reload cause one more.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::check;
use super::systemd;
use crate::config::failure::Failure;
use crate::config::log::Log;
use crate::config::{Given, Settings};
use crate::pipeline::api_clients::ApiClients;
use crate::pipeline::sources::SourceTasks;

/// The shortest time between two reloads. Each one restarts the sources, which need time to read.
const PAUSE: Duration = Duration::from_secs(1);
/// Time limit for reading the configuration and the files that it names. A file system may hang.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of reads that hang at the same time. Each occupies a thread for blocking work.
pub(super) const READS: usize = 4;

/// What a reload needs.
pub(crate) struct Reload {
    pub(crate) given: Arc<Given>,
    /// The settings at the start, including those that cannot change.
    pub(crate) settings: Arc<Settings>,
    pub(crate) log: Log,
    pub(crate) source_tasks: SourceTasks,
    /// Creates the client of each reload. All requests except those of the sources use the current one.
    pub(crate) clients: ApiClients,
    /// Changes at each signal.
    pub(crate) hangups: watch::Receiver<()>,
}

impl Reload {
    /// Reloads on each signal and logs the result.
    pub(crate) async fn whenever_asked(mut self) -> ! {
        let reads = Arc::new(Semaphore::new(READS));
        loop {
            if self.hangups.changed().await.is_err() {
                // The thread that receives signals has panicked, which ends the agent.
                std::future::pending::<()>().await;
            }
            systemd::reloading();
            match self.follow(&reads).await {
                Ok(()) => tracing::info!("reloaded the configuration and the sources"),
                Err(failure) => {
                    let why = failure.message().unwrap_or_default();
                    tracing::error!("the configuration is unchanged: {why}");
                }
            }
            systemd::notify("READY=1");
            sleep(PAUSE).await;
        }
    }

    async fn follow(&mut self, reads: &Arc<Semaphore>) -> Result<(), Failure> {
        let settings = read(&self.given, reads).await?;
        if let Some(name) = self.settings.fixed_difference(&settings) {
            return Err(Failure::Usage(format!("{name} cannot change while the agent runs")));
        }
        check::credentials(&settings).await?;
        let clients = self.clients.create(&settings).await?;
        self.source_tasks.follow(&settings, clients.as_ref().map(|clients| clients.pods.clone())).await?;
        self.clients.replace(clients);
        self.log.show(settings.given.log_level);
        Ok(())
    }
}

/// The settings, with the current configuration file. Refuses what `--check` refuses.
async fn read(given: &Arc<Given>, reads: &Arc<Semaphore>) -> Result<Settings, Failure> {
    let hangs = |what: &str| Failure::Unable(format!("{what}: a file system may hang"));
    let permit = Arc::clone(reads).try_acquire_owned();
    let permit = permit.map_err(|_| hangs("earlier reloads still read the configuration"))?;
    let given = Arc::clone(given);
    let work = spawn_blocking(move || {
        let settings = given.resolve().and_then(|settings| check::files(&settings).map(|()| settings));
        drop(permit);
        settings
    });
    match timeout(PATIENCE, work).await {
        Ok(Ok(settings)) => settings,
        Ok(Err(_)) => Err(Failure::Unable("reading it panicked; see the log".to_owned())),
        Err(_) => Err(hangs(&format!("it cannot be read within {PATIENCE:?}"))),
    }
}
