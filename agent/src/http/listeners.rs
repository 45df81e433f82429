//! Where the agent listens: its port, and the addresses for health and for metrics.

use std::net::SocketAddr;

use futures_util::future::OptionFuture;
use tokio::net::TcpListener;

use crate::config::Settings;
use crate::config::failure::Failure;

/// The TCP listeners of the server, bound before anything else starts: a taken port is then the only error.
pub(crate) struct Listeners {
    pub(super) main: TcpListener,
    pub(super) health: Option<TcpListener>,
    pub(super) metrics: Option<TcpListener>,
}

impl Listeners {
    /// `None` with `--once`, which serves nothing.
    pub(crate) async fn bind(settings: &Settings) -> Result<Option<Self>, Failure> {
        if settings.once {
            return Ok(None);
        }
        let written = &settings.written;
        let address = SocketAddr::new(settings.server.address, settings.server.port);
        let main = bind(address, &format!("{}, {}", written.name("address"), written.name("port"))).await?;
        let extra = async |address: Option<SocketAddr>, setting: &str| {
            let name = written.name(setting);
            OptionFuture::from(address.map(|address| bind(address, &name))).await.transpose()
        };
        let effective = &settings.effective.listeners;
        let health = extra(effective.health_address, "health-address").await?;
        let metrics = extra(effective.metrics_address, "metrics-address").await?;
        Ok(Some(Self { main, health, metrics }))
    }
}

/// Listens on this address. `setting`: what the user wrote to give it.
async fn bind(address: SocketAddr, setting: &str) -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|error| Failure::unable(format_args!("cannot serve on {address} ({setting})"), error))
}

pub(super) fn address_of(listener: &TcpListener) -> Result<SocketAddr, Failure> {
    listener.local_addr().map_err(|error| Failure::unable("cannot serve", error))
}
