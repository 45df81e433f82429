//! The listener's TCP: options of accepted connections.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};

/// A client that is gone without closing its connection is noticed after this time: nothing was acknowledged, neither what was
/// sent nor the probes. The same as for the agent's own connections to the API server.
pub(super) const SILENCE: Duration = Duration::from_secs(40);
const PROBES: u32 = 3;

/// The next connection on the port.
pub(super) async fn accept(port: &TcpListener) -> io::Result<(TcpStream, IpAddr)> {
    let (stream, address) = port.accept().await?;
    // Options fail if the client has gone, which the first read finds.
    //
    // Otherwise an event of a watch may wait for the client's acknowledgement of the one before, which many clients delay by
    // 40 ms.
    let _ = stream.set_nodelay(true);
    // Otherwise a watch whose client has vanished keeps its place until the next event is sent, or for ever.
    let interval = SILENCE / (PROBES + 1);
    let keepalive = TcpKeepalive::new().with_time(interval).with_interval(interval).with_retries(PROBES);
    let socket = SockRef::from(&stream);
    let _ = socket.set_tcp_keepalive(&keepalive);
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let _ = socket.set_tcp_user_timeout(Some(SILENCE));
    Ok((stream, address.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn accepted() -> (TcpStream, IpAddr, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, origin) = accept(&listener).await.unwrap();
        (accepted, origin, client)
    }

    #[tokio::test]
    async fn what_is_written_to_a_client_is_sent_at_once() {
        let (accepted, origin, client) = accepted().await;
        assert!(accepted.nodelay().unwrap());
        assert_eq!(origin, client.local_addr().unwrap().ip());
    }

    #[tokio::test]
    async fn a_client_that_has_vanished_is_noticed() {
        let (accepted, ..) = accepted().await;
        let socket = SockRef::from(&accepted);
        assert!(socket.keepalive().unwrap());
        let (time, interval) =
            (socket.tcp_keepalive_time().unwrap(), socket.tcp_keepalive_interval().unwrap());
        assert_eq!(time + interval * socket.tcp_keepalive_retries().unwrap(), SILENCE);
        #[cfg(target_os = "linux")]
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(SILENCE));
    }
}
