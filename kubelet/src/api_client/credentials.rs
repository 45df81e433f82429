//! What is added to every request: the server's address, the credentials and the configured headers.

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

/// Minimum time between two renewals (reading the token file or running the credential plugin), even if the
/// server keeps answering 401.
const RENEWAL_PAUSE: Duration = Duration::from_secs(1);
/// A token file is read again after this time, as in client-go.
const TOKEN_AGE: Duration = Duration::from_secs(60);

type Service = BoxCloneSyncService<Request<Body>, Response<Answer>, BoxError>;

/// Adds the credentials to requests and sends them.
pub(super) struct Credentials {
    config: Config,
    lanes: Arc<Lanes>,
    current: Mutex<Current>,
    /// Held during a renewal.
    renewing: AsyncMutex<()>,
}

#[derive(Clone)]
struct Current {
    service: Service,
    /// Number of renewals.
    version: u64,
    /// Time of the last attempt to renew, initially the time of creation.
    since: Instant,
    was_tried: bool,
}

impl Credentials {
    pub(super) fn new(config: Config, lanes: Arc<Lanes>) -> kube::Result<Self> {
        let service = service(&config, &lanes)?;
        let current = Current { service, version: 0, since: Instant::now(), was_tried: false };
        Ok(Self { config, lanes, current: Mutex::new(current), renewing: AsyncMutex::default() })
    }

    /// The current service and its version.
    pub(super) async fn current(&self) -> (Service, u64) {
        let Current { version, since, .. } = *self.lock();
        if self.config.auth_info.token_file.is_some() && since.elapsed() >= TOKEN_AGE {
            self.renew(version).await;
        }
        let current = self.lock();
        (current.service.clone(), current.version)
    }

    /// Reads the token file or runs the credential plugin again, unless another task has done so since
    /// `version`. Returns `false` if the credentials are still those of `version`. If the renewal fails, the
    /// old credentials stay in use (k/k#68164).
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
        // Reading a file and running a process may block.
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

/// The configuration with the token from its token file. kube would read the file itself, once a minute, but
/// keeps a trailing newline as part of the token.
fn with_token(config: &Config) -> kube::Result<Config> {
    let mut config = config.clone();
    let auth = &mut config.auth_info;
    if let (None, Some(path)) = (&auth.token, &auth.token_file) {
        let unread = |error| kube::Error::Auth(kube::client::AuthError::ReadTokenFile(error, path.into()));
        auth.token = Some(std::fs::read_to_string(path).map_err(unread)?.trim().to_owned().into());
    }
    Ok(config)
}
