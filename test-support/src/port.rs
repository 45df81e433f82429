//! Ports for servers that are away for a while.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpSocket};

/// After this long, the port belongs to somebody else.
const PATIENCE: Duration = Duration::from_secs(300);

/// A local port on which nothing listens yet. Connections are refused.
///
/// Until it is dropped, the system gives the port to no client and to no server that binds port 0. Otherwise another test
/// could get it. A server that binds this very port can listen on it, and stop and start again.
pub struct Port(TcpSocket);

impl Port {
    pub fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        // Otherwise no server could listen on it. tokio's and std's listeners have this option, too.
        socket.set_reuseaddr(true).unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        Self(socket)
    }

    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    /// Listens, also on a port on which a server of this process listened before.
    ///
    /// The system may say for a moment that the old server still listens: a program that another test starts has a copy of all
    /// of this process's sockets until it executes, and on a busy machine that takes a while.
    pub async fn listen(&self) -> TcpListener {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match TcpListener::bind(self.address()).await {
                Ok(listener) => return listener,
                Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < deadline => {
                    // Not tokio's clock, which stands still in some tests.
                    tokio::task::spawn_blocking(|| thread::sleep(Duration::from_millis(10))).await.unwrap();
                }
                Err(error) => panic!("{}: {error}", self.address()),
            }
        }
    }
}

impl Default for Port {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn connections_are_refused_until_a_server_listens_and_no_one_else_gets_the_port() {
        let port = Port::new();
        for _ in 0..2 {
            let refused = TcpStream::connect(port.address()).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
            let server = port.listen().await;
            TcpStream::connect(port.address()).unwrap();
            drop(server);
        }
        // As if the system gave it to a client or to a server that binds port 0.
        let given = TcpSocket::new_v4().unwrap().bind(port.address());
        assert_eq!(given.unwrap_err().kind(), ErrorKind::AddrInUse);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_server_returns_although_a_program_that_is_starting_still_has_its_socket() {
        let port = Port::new();
        // The copy stands for that of a program between its creation and its execution.
        let server = port.listen().await.into_std().unwrap();
        let copy = server.try_clone().unwrap();
        drop(server);
        let returning = tokio::spawn(async move { port.listen().await });
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!returning.is_finished());
        drop(copy);
        returning.await.unwrap();
    }
}
