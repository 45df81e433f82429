//! An HTTP server on loopback, with or without TLS, that may behave badly.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::{TlsAcceptor, rustls};

use crate::certificate::Certificate;

/// The server's reaction to one request.
#[derive(Clone)]
pub enum Answer {
    Bytes(Vec<u8>),
    /// Sends this, then nothing, but keeps the connection open.
    Stall(Vec<u8>),
    /// Sends this chunk again and again, until the client closes the connection.
    Flood(Vec<u8>),
}

pub fn answer(status: &str, headers: &str, body: &str) -> Answer {
    let length = body.len();
    Answer::Bytes(
        format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}").into_bytes(),
    )
}

/// Decides the answer to the head of a request, which is in lower case. `None` closes the connection.
type Answers = Arc<Mutex<dyn FnMut(&str) -> Option<Answer> + Send>>;

/// The server. It runs until the test ends.
pub struct Server {
    pub address: SocketAddr,
    /// In PEM, if it has TLS.
    pub authority: String,
    certificate: Option<Arc<Certificate>>,
    /// Changes when all open connections have to end.
    ending: tokio::sync::watch::Sender<u64>,
    requests: Arc<Mutex<Vec<String>>>,
}

/// A certificate that is its own authority, and its key.
fn identity() -> (String, String) {
    let names = ["127.0.0.1".to_owned()];
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(names).expect("a certificate");
    (cert.pem(), signing_key.serialize_pem())
}

impl Server {
    pub async fn start(answers: impl FnMut(&str) -> Option<Answer> + Send + 'static) -> Self {
        Self::on("127.0.0.1:0".parse().expect("an address"), None, answers).await
    }

    /// With a certificate that is its own authority.
    pub async fn start_with_tls(answers: impl FnMut(&str) -> Option<Answer> + Send + 'static) -> Self {
        let (authority, key) = identity();
        let certificate = Certificate::new(&authority, &key);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&certificate) as _);
        Certificate::forget_sessions(&mut config);
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let address = "127.0.0.1:0".parse().expect("an address");
        Self { authority, certificate: Some(certificate), ..Self::on(address, Some(acceptor), answers).await }
    }

    pub async fn on(
        address: SocketAddr,
        tls: Option<TlsAcceptor>,
        answers: impl FnMut(&str) -> Option<Answer> + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let answers: Answers = Arc::new(Mutex::new(answers));
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let asked = Arc::clone(&requests);
        let ending = tokio::sync::watch::Sender::new(0);
        let ends = ending.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, answers, asked) = (tls.clone(), Arc::clone(&answers), Arc::clone(&asked));
                let mut end = ends.subscribe();
                tokio::spawn(async move {
                    let served = async {
                        match tls {
                            None => serve(stream, &answers, &asked).await,
                            Some(tls) => {
                                let Ok(stream) = tls.accept(stream).await else { return };
                                serve(stream, &answers, &asked).await;
                            }
                        }
                    };
                    tokio::select! {
                        () = served => {}
                        _ = end.changed() => {}
                    }
                });
            }
        });
        Self { address, authority: String::new(), certificate: None, ending, requests }
    }

    /// Shows another certificate to new connections. Returns its authority.
    pub fn rotate_certificate(&self) -> String {
        let (authority, key) = identity();
        self.certificate.as_ref().expect("a server with TLS").replace(&authority, &key);
        authority
    }

    /// Closes each open connection, as a process that ends.
    pub fn close_connections(&self) {
        self.ending.send_modify(|count| *count += 1);
    }

    /// The URL of this path.
    pub fn url(&self, path: &str) -> String {
        let scheme = if self.authority.is_empty() { "http" } else { "https" };
        format!("{scheme}://{}{path}", self.address)
    }

    /// The heads of all requests so far, in lower case.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("the requests").clone()
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answers: &Answers,
    requests: &Mutex<Vec<String>>,
) {
    loop {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let Ok(byte) = stream.read_u8().await else { return };
            request.push(byte);
        }
        let request = String::from_utf8_lossy(&request).to_lowercase();
        let answer = (answers.lock().expect("no panic"))(&request);
        requests.lock().expect("the requests").push(request);
        match answer {
            Some(Answer::Bytes(bytes)) => {
                let whole = bytes.windows(15).any(|window| window == b"content-length:");
                if stream.write_all(&bytes).await.is_err() || !whole {
                    return;
                }
                let _ = stream.flush().await;
            }
            Some(Answer::Stall(bytes)) => {
                let _ = stream.write_all(&bytes).await;
                // Until the client closes the connection.
                let _ = stream.read_u8().await;
                return;
            }
            Some(Answer::Flood(chunk)) => {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
                while stream.write_all(&chunk).await.is_ok() {}
                return;
            }
            None => return,
        }
    }
}
