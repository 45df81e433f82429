//! Connections to the agent, by TLS and by its Unix socket, and the pods that clients read over them.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde::Deserialize;

use super::truth::Pods;
use crate::support::{Answer, PATIENCE};
use crate::tls::Client;

pub trait Stream: Read + Write + Send {
    /// How long a read waits.
    fn set_timeout(&self, timeout: Duration);
}

impl Stream for StreamOwned<ClientConnection, TcpStream> {
    fn set_timeout(&self, timeout: Duration) {
        self.sock.set_read_timeout(Some(timeout)).unwrap();
    }
}

impl Stream for UnixStream {
    fn set_timeout(&self, timeout: Duration) {
        self.set_read_timeout(Some(timeout)).unwrap();
    }
}

pub struct Doors {
    pub address: SocketAddr,
    pub socket: PathBuf,
    /// Shared, so that TLS sessions resume.
    pub tls: Arc<ClientConfig>,
}

impl Doors {
    /// A connection: by TLS on even turns, otherwise by the socket.
    pub fn connect(&self, turn: u64) -> Box<dyn Stream> {
        let stream: Box<dyn Stream> = if turn.is_multiple_of(2) {
            Box::new(Client::connect_by(&self.tls, self.address))
        } else {
            Box::new(UnixStream::connect(&self.socket).unwrap())
        };
        stream.set_timeout(PATIENCE);
        stream
    }

    /// A connection to the port, without TLS.
    pub fn knock(&self) -> TcpStream {
        TcpStream::connect(self.address).unwrap()
    }

    pub fn get(&self, turn: u64, path: &str) -> Answer {
        self.send(turn, &format!("GET {path}"), "", "")
    }

    pub fn send(&self, turn: u64, request: &str, headers: &str, body: &str) -> Answer {
        Answer::to(self.connect(turn), request, headers, body)
    }

    /// Repeats the request until the response is as expected.
    pub fn until(&self, path: &str, good: impl Fn(&Answer) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.get(1, path);
            if good(&answer) {
                return;
            }
            let start: String = answer.body.chars().take(2000).collect();
            assert!(Instant::now() < deadline, "{path} still answers {} {start}", answer.code);
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// The part of a pod that is compared.
#[derive(Deserialize)]
pub struct Shown {
    pub metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub resource_version: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl Shown {
    /// `None` for a mirror pod: the pod API shows it if the agent does not have its static pod any more.
    pub fn version(&self) -> Option<u64> {
        let annotations = &self.metadata.annotations;
        let is_mirror = annotations.contains_key("kubernetes.io/config.mirror");
        (!is_mirror).then(|| annotations["version"].parse().unwrap())
    }
}

#[derive(Deserialize)]
struct List {
    items: Vec<Shown>,
}

/// The pods of a list.
pub fn listed(answer: &Answer) -> Pods {
    let list: List = answer.json();
    let pods: Vec<_> =
        list.items.into_iter().filter_map(|pod| Some((pod.version()?, pod.metadata.name))).collect();
    let (count, pods) =
        (pods.len(), pods.into_iter().map(|(version, name)| (name, version)).collect::<Pods>());
    assert_eq!(pods.len(), count, "a pod is listed twice");
    pods
}
