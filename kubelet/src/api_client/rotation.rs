//! Follows the file of the certificate authorities, which is replaced when they rotate.

use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::authorities::unread;
use super::credentials::Credentials;
use crate::blocking;
use crate::text::api_causes;

/// How often the file is read.
const PERIOD: Duration = Duration::from_secs(30);

/// Reads the file now and again, as long as there are clients. A task of its own: an open watch causes no request for
/// minutes, and after a rotation it is a request that fails.
pub(super) fn follow(credentials: &Arc<Credentials>) {
    let Some(path) = credentials.authorities_file() else { return };
    let credentials = Arc::downgrade(credentials);
    tokio::spawn(async move {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // They were read just now.
        ticks.tick().await;
        let mut last = None;
        loop {
            ticks.tick().await;
            let Some(result) = read(&credentials, &path).await else { return };
            match result {
                Ok(true) => {
                    tracing::info!(path = %path.display(), "the certificate authorities have changed");
                }
                Ok(false) => {}
                // Each failure once.
                Err(error) if last.as_ref() == Some(&error) => continue,
                Err(error) => {
                    tracing::warn!("the last certificate authorities stay in use: {error}");
                    last = Some(error);
                    continue;
                }
            }
            last = None;
        }
    });
}

/// Whether the file holds other authorities than before. `None` if there is no client any more.
async fn read(credentials: &Weak<Credentials>, path: &Path) -> Option<Result<bool, String>> {
    let file = path.to_owned();
    // If this hangs, only this task waits.
    let read = blocking::run("authorities", move || std::fs::read(file)).await;
    let credentials = credentials.upgrade()?;
    let pem = match read {
        Ok(Ok(pem)) => pem,
        Ok(Err(error)) => return Some(Err(api_causes(&unread(path, &error.to_string())))),
        Err(unfinished) => return Some(Err(api_causes(&unread(path, &unfinished.to_string())))),
    };
    Some(credentials.trust(pem).await.map_err(|error| api_causes(&error)))
}
