//! The port and the connections, so that both can be cut.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::Shared;
use super::handle::handle;

type Connections = Arc<Mutex<JoinSet<()>>>;

/// An open port. Dropping it closes it, and every connection that came through it.
pub(super) struct Listener {
    address: SocketAddr,
    accepting: Option<JoinHandle<()>>,
    connections: Connections,
}

impl Listener {
    pub(super) async fn bind(address: SocketAddr, tls: Option<TlsAcceptor>, shared: Arc<Shared>) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Connections::default();
        let accepting = tokio::spawn(accept(listener, tls, Arc::clone(&connections), shared));
        Self { address, accepting: Some(accepting), connections }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes the port, and every connection; what is returned ends when the port is free.
    pub(super) fn close(mut self) -> JoinHandle<()> {
        let accepting = self.accepting.take().expect("taken here alone");
        accepting.abort();
        accepting
    }

    pub(super) fn cut_connections(&self) {
        self.connections.lock().unwrap().abort_all();
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(accepting) = &self.accepting {
            accepting.abort();
        }
        self.cut_connections();
    }
}

async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    connections: Connections,
    shared: Arc<Shared>,
) {
    loop {
        let Ok((stream, _peer)) = listener.accept().await else { continue };
        let (shared, tls) = (Arc::clone(&shared), tls.clone());
        let mut connections = connections.lock().unwrap();
        while connections.try_join_next().is_some() {}
        connections.spawn(async move {
            match tls {
                None => serve(stream, shared).await,
                // Who does not like the certificate goes away.
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        serve(stream, shared).await;
                    }
                }
            }
        });
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, shared: Arc<Shared>) {
    let service = service_fn(move |request| handle(Arc::clone(&shared), request));
    // A connection that a test cut, or that the client closed, ends in an error; that is no news.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}
