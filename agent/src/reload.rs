//! SIGHUP: reloads the configuration and updates the sources.
//!
//! A reload is atomic: if the new configuration is wrong, the old one stays. A pod in both configurations stays visible
//! throughout.

use super::api_clients::ApiClients;
use super::exit::Failure;
use super::log::Log;
use super::settings::{Given, Settings};
use super::signals::Hangups;
use super::source_tasks::SourceTasks;
use super::systemd;

/// What a reload needs.
pub(super) struct Reload<'a> {
    pub(super) given: &'a Given,
    /// The settings at the start, including those that cannot change.
    pub(super) settings: &'a Settings,
    pub(super) log: Log,
    pub(super) source_tasks: SourceTasks,
    /// Creates the client of each reload. All requests except those of the sources use the current one.
    pub(super) clients: ApiClients,
    pub(super) hangups: Hangups,
}

impl Reload<'_> {
    /// Reloads on each signal and logs the result.
    pub(super) async fn whenever_asked(mut self) -> ! {
        loop {
            self.hangups.next().await;
            systemd::reloading();
            match self.follow().await {
                Ok(()) => tracing::info!("reloaded the configuration and the sources"),
                Err(failure) => {
                    let why = failure.message().unwrap_or_default();
                    tracing::error!("the configuration is unchanged: {why}");
                }
            }
            systemd::reloaded();
        }
    }

    async fn follow(&mut self) -> Result<(), Failure> {
        let settings = self.given.resolve()?;
        if let Some(name) = self.settings.fixed_difference(&settings) {
            return Err(Failure::Usage(format!("{name} cannot change while the agent runs")));
        }
        let client = self.clients.create(&settings).await?;
        self.source_tasks.follow(&settings, client.clone()).await?;
        self.clients.replace(client);
        if let Some(tls) = &self.settings.tls {
            // Do not use what was read above: the certificate may be newer by now.
            tls.renew().await;
        }
        self.log.show(settings.log_filter.clone());
        Ok(())
    }
}
