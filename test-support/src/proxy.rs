//! A TCP proxy that can cut connections, lead to another server, and fall silent without closing anything, like a load
//! balancer that has dropped a connection.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// How much a connection forwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forwards {
    pub to_server: bool,
    pub to_client: bool,
}

impl Forwards {
    pub const ALL: Self = Self { to_server: true, to_client: true };
    pub const NOTHING: Self = Self { to_server: false, to_client: false };
}

/// The proxy. Dropping it closes everything.
pub struct Proxy {
    address: SocketAddr,
    /// The limit for connections opened since the last silence.
    forwards: Arc<Mutex<watch::Sender<Forwards>>>,
    accepted: Arc<AtomicUsize>,
    /// The port of the server.
    server: Arc<AtomicU16>,
    connections: Arc<Mutex<JoinSet<()>>>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// A proxy in front of a local port.
    pub async fn before(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let forwards = Arc::new(Mutex::new(watch::Sender::new(Forwards::ALL)));
        let accepted = Arc::new(AtomicUsize::new(0));
        let (server, connections) = (Arc::new(AtomicU16::new(port)), Arc::<Mutex<JoinSet<()>>>::default());
        let (current, count) = (Arc::clone(&forwards), Arc::clone(&accepted));
        let (to, all) = (Arc::clone(&server), Arc::clone(&connections));
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let forwards = current.lock().unwrap().subscribe();
                all.lock().unwrap().spawn(forward(client, to.load(Ordering::Relaxed), forwards));
            }
        });
        Self { address, forwards, accepted, server, connections, task }
    }

    /// Its address.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Number of connections so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Later connections lead to this local port.
    pub fn lead_to(&self, port: u16) {
        self.server.store(port, Ordering::Relaxed);
    }

    /// Closes all open connections.
    pub fn cut(&self) {
        self.connections.lock().unwrap().abort_all();
    }

    /// From now on, open connections forward only this much. Later connections forward everything.
    pub fn silence(&self, forwards: Forwards) {
        let mut current = self.forwards.lock().unwrap();
        current.send_replace(forwards);
        *current = watch::Sender::new(Forwards::ALL);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(client: TcpStream, port: u16, forwards: watch::Receiver<Forwards>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        () = copy(from_client, to_server, forwards.clone(), |forwards| forwards.to_server) => {}
        () = copy(from_server, to_client, forwards, |forwards| forwards.to_client) => {}
    }
}

/// Continues to read while it forwards nothing, so neither end notices.
async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    forwards: watch::Receiver<Forwards>,
    wanted: impl Fn(&Forwards) -> bool,
) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match from.read(&mut buffer).await {
            Ok(0) | Err(_) => {
                if wanted(&forwards.borrow()) {
                    return;
                }
                std::future::pending::<()>().await;
            }
            Ok(length) if wanted(&forwards.borrow()) => {
                if to.write_all(&buffer[..length]).await.is_err() {
                    return;
                }
            }
            Ok(_) => {}
        }
    }
}
