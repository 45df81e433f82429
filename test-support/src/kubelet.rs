//! A kubelet's `/pods`, as measured at a kubelet 1.36, and its restarts.
//!
//! The kubelet answers before it has read its own sources, and nothing in the answer says so. With an API server, it lists
//! no pod for 0.3 s after its start, then the static ones, and all of them after 1.4 s. Without, it lists the static ones
//! until 0.4 s after the API server has come back. Here the test decides when a stage ends. Connections stay open between
//! requests and end with the process.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use serde_json::{Value, json};

/// What a kubelet has read of its sources.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    Nothing,
    Manifests,
    /// The manifests, and the API server's pods.
    All,
}

pub struct Kubelet {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

struct State {
    /// `None` while no process runs.
    stage: Option<Stage>,
    static_pods: Vec<Value>,
    api_pods: Vec<Value>,
    requests: usize,
    connections: Vec<TcpStream>,
}

impl Kubelet {
    /// A kubelet that has had its sources for long.
    pub fn start(static_pods: Vec<Value>, api_pods: Vec<Value>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State {
            stage: Some(Stage::All),
            static_pods,
            api_pods,
            requests: 0,
            connections: Vec::new(),
        }));
        let shared = Arc::clone(&state);
        thread::spawn(move || listener.incoming().map_while(Result::ok).for_each(|it| accept(it, &shared)));
        Self { address, state }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The process ends, and with it its connections. The containers run on.
    pub fn stop(&self) {
        let mut state = lock(&self.state);
        state.stage = None;
        for connection in state.connections.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// A new process has read these of its sources.
    pub fn restart(&self, stage: Stage) {
        self.stop();
        self.reach(stage);
    }

    pub fn reach(&self, stage: Stage) {
        lock(&self.state).stage = Some(stage);
    }

    pub fn set_static_pods(&self, pods: Vec<Value>) {
        lock(&self.state).static_pods = pods;
    }

    pub fn set_api_pods(&self, pods: Vec<Value>) {
        lock(&self.state).api_pods = pods;
    }

    pub fn requests(&self) -> usize {
        lock(&self.state).requests
    }
}

/// A pod as a kubelet lists it, from this source.
pub fn pod(uid: &str, name: &str, source: &str, ip: &str) -> Value {
    let container = json!({
        "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
        "containerID": format!("containerd://{uid:0<64}"), "state": { "running": { "startedAt": "2026-01-01T00:00:00Z" } },
    });
    json!({
        "metadata": {
            "uid": uid, "name": name, "namespace": "shop", "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": { "kubernetes.io/config.source": source, "kubernetes.io/config.seen": "2026-01-01T00:00:00Z" },
        },
        "spec": { "nodeName": "node-1", "containers": [{ "name": "c", "image": "i" }] },
        "status": {
            "phase": "Running", "podIP": ip, "podIPs": [{ "ip": ip }], "startTime": "2026-01-01T00:00:00Z",
            "containerStatuses": [container],
        },
    })
}

/// Serves a connection, unless no process runs.
fn accept(connection: TcpStream, shared: &Arc<Mutex<State>>) {
    let mut state = lock(shared);
    if state.stage.is_some() {
        state.connections.push(connection.try_clone().unwrap());
        let shared = Arc::clone(shared);
        thread::spawn(move || serve(&connection, &shared));
    }
}

fn serve(mut connection: &TcpStream, shared: &Mutex<State>) {
    let mut requests = BufReader::new(connection);
    loop {
        let mut line = String::new();
        let mut has_line = false;
        loop {
            line.clear();
            match requests.read_line(&mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) if line.trim().is_empty() && has_line => break,
                Ok(_) => has_line = true,
            }
        }
        let pods = {
            let mut state = lock(shared);
            state.requests += 1;
            match state.stage {
                None => return,
                Some(Stage::Nothing) => Vec::new(),
                Some(Stage::Manifests) => state.static_pods.clone(),
                Some(Stage::All) => [&state.static_pods[..], &state.api_pods].concat(),
            }
        };
        let items = if pods.is_empty() { Value::Null } else { Value::Array(pods) };
        let body =
            json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items }).to_string();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
        let answer = format!("{head} {}\r\n\r\n{body}", body.len());
        if connection.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
