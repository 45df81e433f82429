//! What every request bears: where it goes, who asks, and the headers of the configuration.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Request, Response};
use kube::Config;
use kube::client::{Body, ConfigExt};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Layer, service_fn};

use super::lanes::{Answer, Lanes};

/// A token file is not read, and a credential plugin not run, more often, however often the server says 401.
const RENEWAL_PAUSE: Duration = Duration::from_secs(1);
/// A token file is read again after so long, as by client-go.
const TOKEN_AGE: Duration = Duration::from_secs(60);

type Service = BoxCloneSyncService<Request<Body>, Response<Answer>, BoxError>;

/// A service that adds the credentials to a request and sends it.
pub(super) struct Credentials {
    config: Config,
    lanes: Arc<Lanes>,
    current: Mutex<Current>,
    /// Held by whoever renews.
    renewing: AsyncMutex<()>,
}

#[derive(Clone)]
struct Current {
    service: Service,
    /// How often it was renewed.
    version: u64,
    /// When that was tried last; at first, when it was made.
    since: Instant,
    was_tried: bool,
}

impl Credentials {
    pub(super) fn new(config: Config, lanes: Arc<Lanes>) -> kube::Result<Self> {
        let service = service(&config, &lanes)?;
        let current = Current { service, version: 0, since: Instant::now(), was_tried: false };
        Ok(Self { config, lanes, current: Mutex::new(current), renewing: AsyncMutex::default() })
    }

    /// The service, and its version.
    pub(super) async fn current(&self) -> (Service, u64) {
        let Current { version, since, .. } = *self.lock();
        if self.config.auth_info.token_file.is_some() && since.elapsed() >= TOKEN_AGE {
            self.renew(version).await;
        }
        let current = self.lock();
        (current.service.clone(), current.version)
    }

    /// Reads the token file or runs the credential plugin anew, unless somebody has done so since this version was used.
    /// `false`: nothing is newer than that. What cannot be read or run leaves the credentials as they are (k/k#68164).
    pub(super) async fn renew(&self, version: u64) -> bool {
        let auth = &self.config.auth_info;
        if auth.token_file.is_none() && auth.exec.is_none() && auth.auth_provider.is_none() {
            return false;
        }
        let _turn = self.renewing.lock().await;
        let Current { version: now, since, was_tried, .. } = *self.lock();
        if now != version || was_tried && since.elapsed() < RENEWAL_PAUSE {
            return now != version;
        }
        let (config, lanes) = (self.config.clone(), Arc::clone(&self.lanes));
        // A file, or a process, may be slow.
        let renewed = tokio::task::spawn_blocking(move || service(&config, &lanes)).await;
        let mut current = self.lock();
        (current.since, current.was_tried) = (Instant::now(), true);
        match renewed {
            Ok(Ok(service)) => {
                current.service = service;
                current.version += 1;
                true
            }
            Ok(Err(error)) => {
                tracing::warn!("credentials cannot be renewed: {}", crate::text::causes(&error));
                false
            }
            Err(_) => false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn service(config: &Config, lanes: &Arc<Lanes>) -> kube::Result<Service> {
    let lanes = Arc::clone(lanes);
    let send = service_fn(move |request| {
        let lanes = Arc::clone(&lanes);
        async move { lanes.send(request).await }
    });
    let send = config.extra_headers_layer()?.layer(send);
    let base = config.base_uri_layer();
    Ok(match with_token(config)?.auth_layer()? {
        Some(auth) => Service::new(base.layer(auth.layer(send))),
        None => Service::new(base.layer(send)),
    })
}

/// The configuration with what its token file holds. kube reads the file itself, once a minute, and takes the end of the line
/// for a part of the token.
fn with_token(config: &Config) -> kube::Result<Config> {
    let mut config = config.clone();
    let auth = &mut config.auth_info;
    if let (None, Some(path)) = (&auth.token, &auth.token_file) {
        let unread = |error| kube::Error::Auth(kube::client::AuthError::ReadTokenFile(error, path.into()));
        auth.token = Some(std::fs::read_to_string(path).map_err(unread)?.trim().to_owned().into());
    }
    Ok(config)
}
