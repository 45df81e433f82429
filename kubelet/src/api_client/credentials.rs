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

/// A credential plugin is not run more often, however often the server says 401.
const RENEWAL_PAUSE: Duration = Duration::from_secs(1);

type Service = BoxCloneSyncService<Request<Body>, Response<Answer>, BoxError>;

/// A service that adds the credentials to a request and sends it.
pub(super) struct Credentials {
    config: Config,
    lanes: Arc<Lanes>,
    /// The service, and how often it was renewed.
    current: Mutex<(Service, u64)>,
    /// Held by whoever renews. When that was last.
    renewing: AsyncMutex<Option<Instant>>,
}

impl Credentials {
    pub(super) fn new(config: Config, lanes: Arc<Lanes>) -> kube::Result<Self> {
        let service = service(&config, &lanes)?;
        Ok(Self { config, lanes, current: Mutex::new((service, 0)), renewing: AsyncMutex::default() })
    }

    /// The service, and its version.
    pub(super) fn current(&self) -> (Service, u64) {
        self.lock().clone()
    }

    /// Reads the token file or runs the credential plugin anew, unless somebody has done so since this version was used.
    pub(super) async fn renew(&self, version: u64) -> kube::Result<()> {
        let auth = &self.config.auth_info;
        let is_fixed = auth.token_file.is_none() && auth.exec.is_none() && auth.auth_provider.is_none();
        if is_fixed {
            return Ok(());
        }
        let mut last = self.renewing.lock().await;
        let is_renewed = self.lock().1 != version;
        if is_renewed || last.is_some_and(|last| last.elapsed() < RENEWAL_PAUSE) {
            return Ok(());
        }
        *last = Some(Instant::now());
        let (config, lanes) = (self.config.clone(), Arc::clone(&self.lanes));
        // A file, or a process, may be slow.
        let renewed = tokio::task::spawn_blocking(move || service(&config, &lanes)).await;
        let renewed = renewed.map_err(|error| kube::Error::Service(error.into()))??;
        *self.lock() = (renewed, version + 1);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, (Service, u64)> {
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
    Ok(match config.auth_layer()? {
        Some(auth) => Service::new(base.layer(auth.layer(send))),
        None => Service::new(base.layer(send)),
    })
}
