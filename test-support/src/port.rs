//! Ports for servers that are away for a while.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

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
}

impl Default for Port {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn connections_are_refused_until_a_server_listens_and_no_one_else_gets_the_port() {
        let port = Port::new();
        for _ in 0..2 {
            let refused = TcpStream::connect(port.address()).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
            let server = TcpListener::bind(port.address()).unwrap();
            TcpStream::connect(port.address()).unwrap();
            drop(server);
        }
        // As if the system gave it to a client or to a server that binds port 0.
        let given = TcpSocket::new_v4().unwrap().bind(port.address());
        assert_eq!(given.unwrap_err().kind(), ErrorKind::AddrInUse);
    }
}
