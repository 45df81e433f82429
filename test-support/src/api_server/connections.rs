//! The port and the connections. Both can be cut.

use std::sync::{Arc, Mutex};

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::Shared;
use super::handle::handle;
use super::identity::PeerCertificate;
use crate::port::Port;

/// A real server's limit of streams per HTTP/2 connection.
const MOST_STREAMS: u32 = 100;

type Connections = Arc<Mutex<JoinSet<()>>>;

/// An open port. Dropping it closes the port and all its connections.
pub(super) struct Listener {
    accepting: Option<JoinHandle<()>>,
    connections: Connections,
}

impl Listener {
    pub(super) async fn bind(port: &Port, tls: Option<TlsAcceptor>, shared: Arc<Shared>) -> Self {
        let listener = port.listen().await;
        let connections = Connections::default();
        let accepting = tokio::spawn(accept(listener, tls, Arc::clone(&connections), shared));
        Self { accepting: Some(accepting), connections }
    }

    /// Closes the port and all connections. The returned future ends when the port is free.
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
            let _open = OpenConnection::new(&shared);
            match tls {
                None => serve(stream, false, PeerCertificate(None), Arc::clone(&shared)).await,
                // A client that rejects the certificate disconnects.
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        let session = stream.get_ref().1;
                        let is_http2 = session.alpn_protocol() == Some(b"h2");
                        let peer = PeerCertificate::of(session);
                        serve(stream, is_http2, peer, Arc::clone(&shared)).await;
                    }
                }
            }
        });
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    is_http2: bool,
    peer: PeerCertificate,
    shared: Arc<Shared>,
) {
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        handle(Arc::clone(&shared), request)
    });
    let stream = TokioIo::new(stream);
    // A connection that a test cut, or that the client closed, ends with an error; ignore it.
    if is_http2 {
        let mut server = http2::Builder::new(TokioExecutor::new());
        let _ = server.max_concurrent_streams(MOST_STREAMS).serve_connection(stream, service).await;
    } else {
        let _ = http1::Builder::new().serve_connection(stream, service).await;
    }
}

/// Counts a connection while it is open.
struct OpenConnection(Arc<Shared>);

impl OpenConnection {
    fn new(shared: &Arc<Shared>) -> Self {
        let mut state = shared.lock();
        state.open_connections += 1;
        state.connections += 1;
        drop(state);
        shared.announce();
        Self(Arc::clone(shared))
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.lock().open_connections -= 1;
        self.0.announce();
    }
}
