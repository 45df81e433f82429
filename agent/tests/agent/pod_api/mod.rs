//! The pod API as used by clients of the API server: raw HTTP for each rule, and real clients during random
//! changes.

mod bad_input;
mod clients;
mod joined;
mod kubectl;
mod limits;
mod lists;
mod owners;
mod resources;
mod watches;
mod wire;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use crate::api::kubeconfig;
use crate::api_server::ApiServer;
use crate::support::{Agent, Answer, Directory, PATIENCE};

const TABLE: &str = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json\r\n";
const PARTIAL: &str = "Accept: application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io\r\n";
const PARTIAL_LIST: &str = "Accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io\r\n";

/// An agent that follows all pods of an API server in this process.
struct World {
    server: ApiServer,
    directory: Directory,
    agent: Agent,
}

impl World {
    async fn new() -> Self {
        Self::with("").await
    }

    async fn with(args: &str) -> Self {
        let (server, directory) = (ApiServer::start().await, Directory::new());
        let agent = Self::agent(&server, &directory, args);
        Self { server, directory, agent }
    }

    fn agent(server: &ApiServer, directory: &Directory, args: &str) -> Agent {
        let kubeconfig = kubeconfig(directory, server);
        Agent::start(&format!("--all-nodes --kubeconfig {kubeconfig} {args}")).ready()
    }

    fn list(&self, query: &str) -> Value {
        let answer = self.agent.get(&format!("/api/v1/pods?{query}"));
        assert_eq!(answer.code, 200, "{query}: {}", answer.body);
        answer.json()
    }

    fn watch(&self, query: &str) -> Watch {
        Watch::open(self.agent.address, &format!("/api/v1/pods?watch=true&{query}"), "").unwrap()
    }

    /// Waits until a list by this query has this many items.
    fn until(&self, query: &str, pods: usize) -> Value {
        let path = format!("/api/v1/pods?{query}");
        let has = |answer: &Answer| {
            answer.json::<Value>()["items"].as_array().is_some_and(|items| items.len() == pods)
        };
        self.agent.until(&path, has).json()
    }
}

fn pod(namespace: &str, name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": namespace, "name": name, "labels": labels },
        "spec": { "nodeName": "node-1", "containers": [{ "name": "c", "image": "i" }] },
        "status": { "phase": "Running" },
    })
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|pod| pod["metadata"]["name"].as_str().unwrap()).collect()
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// A watch, read event by event.
struct Watch(BufReader<TcpStream>);

impl Watch {
    /// Starts the watch. `Err`: the response, if it is not a watch.
    fn open(agent: SocketAddr, path: &str, headers: &str) -> Result<Self, Answer> {
        let mut stream = TcpStream::connect(agent).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // The response to HTTP/1.0 is not chunked: it has one event a line. kube's clients read chunks.
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n{headers}\r\n").unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        reader.read_line(&mut head).unwrap();
        if !head.contains(" 200 ") {
            return Err(Answer::read(head.as_bytes().chain(reader)));
        }
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
        }
        assert!(head.contains("content-type: application/json\r\n"), "{head}");
        Ok(Self(reader))
    }

    /// The next event. `None` at the end.
    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        (self.0.read_line(&mut line).unwrap() > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    fn take(&mut self, events: usize) -> Vec<Value> {
        (0..events).map(|_| self.next().expect("an event")).collect()
    }
}

/// The type and the name of each event.
fn summary(events: &[Value]) -> Vec<(&str, &str)> {
    events
        .iter()
        .map(|event| {
            (
                event["type"].as_str().unwrap(),
                event["object"]["metadata"]["name"].as_str().unwrap_or_default(),
            )
        })
        .collect()
}
