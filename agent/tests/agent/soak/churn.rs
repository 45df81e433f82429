//! The load: pods are added, changed and removed in all three sources, and clients of all kinds make requests.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;
use serde_json::{Value, json};

use crate::api::{kubeconfig, pod};
use crate::api_server::ApiServer;
use crate::config::serve_manifests;
use crate::support::{Agent, Answer, Directory, PATIENCE, get, manifest};

/// Manifests that stay, and that come and go; pods of the API server.
const STAY: u64 = 60;
const CHURN: u64 = 20;
const PODS: u64 = 200;
/// Number of Secrets that they name; coprime with [`PODS`], because otherwise a pod would name the same one
/// in all versions.
const SECRETS: u64 = 47;
/// How many of these are referenced at any time. Some lose their last pod and get another one later.
const NAMED: u64 = 30;

/// One iteration of a worker.
pub type Work<'a> = Box<dyn Fn(u64) + Send + Sync + 'a>;

/// The counts so far.
#[derive(Debug, Default)]
pub struct Counts {
    requests: AtomicU64,
    changes: AtomicU64,
    /// Clients that disconnected early or never finished a request.
    rude: AtomicU64,
    /// Times that the API server ended its watches.
    interruptions: AtomicU64,
    hangups: AtomicU64,
}

fn one(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn rest(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

impl Counts {
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    pub fn report(&self) -> String {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        format!(
            "{} requests answered, {} clients that left or hung, {} changes of pods, {} times watches ended, {} SIGHUPs",
            of(&self.requests),
            of(&self.rude),
            of(&self.changes),
            of(&self.interruptions),
            of(&self.hangups)
        )
    }
}

/// The three sources, and the checkpoint directory.
pub struct Site {
    server: ApiServer,
    manifests: Directory,
    scratch: Directory,
    /// The manifests at the URL.
    url: String,
    served: Arc<Mutex<String>>,
}

impl Site {
    pub fn new(server: ApiServer) -> Self {
        server.put("nodes", &json!({ "metadata": { "name": "node-1" } }));
        for number in 0..SECRETS {
            let name = format!("secret-{number}");
            let metadata = json!({ "namespace": "default", "name": name });
            server.put("secrets", &json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": { "k": "dg==" } }));
        }
        let (manifests, scratch) = (Directory::new(), Directory::new());
        for number in 0..STAY {
            manifests.write(&format!("stays-{number}.yaml"), &manifest(&format!("stays-{number}")));
        }
        let body = Arc::new(Mutex::new(manifest("served")));
        let url = serve_manifests(Arc::clone(&body), Arc::default());
        let site = Self { server, manifests, scratch, url, served: body };
        (0..PODS).for_each(|number| site.put_pod(number, 0));
        site
    }

    /// All optional features are on.
    pub fn start(&self) -> Agent {
        let kubeconfig = kubeconfig(&self.scratch, &self.server);
        let checkpoints = self.scratch.0.join("checkpoints");
        let agent = Agent::start(&[
            "--pod-manifest-path",
            self.manifests.0.to_str().unwrap(),
            "--manifest-url",
            &self.url,
            "--http-check-frequency",
            "200ms",
            "--kubeconfig",
            &kubeconfig,
            "--node-name",
            "node-1",
            "--manage-mirror-pods",
            "--config-map-and-secret-change-detection-strategy",
            "Watch",
            "--checkpoint-dir",
            checkpoints.to_str().unwrap(),
            "--checkpoint-all-pods",
            "--debug-endpoints",
            "--kubelet-metrics",
            "--log-format",
            "json",
        ]);
        agent.until("/readyz", |answer| answer.code == 200);
        agent.until("/references", |answer| named(answer) == SECRETS);
        agent
    }

    /// The number of Secret watches opened.
    pub fn watches_begun(&self) -> u64 {
        let begun = self.server.begun_watches_by_object();
        begun.iter().filter(|(object, _)| object.resource == "secrets").map(|(_, begun)| begun).sum()
    }

    /// A version of a pod on the API server.
    fn put_pod(&self, number: u64, version: u64) {
        let mut pod = pod(&format!("pod-{number}"), "node-1", &json!({ "version": version.to_string() }));
        let secret = format!("secret-{}", (number + 2 * version) % SECRETS);
        pod["spec"]["volumes"] = json!([{ "name": "v", "secret": { "secretName": secret } }]);
        pod["spec"]["containers"][0]["env"] = json!([{ "name": "E", "value": "e".repeat(500) }]);
        self.server.put("pods", &pod);
    }

    /// Starts all workers.
    pub fn works<'a>(&'a self, agent: &'a Agent, counts: &'a Counts) -> Vec<Work<'a>> {
        let address = agent.address;
        let asks = move |path: &str| {
            let answer = get(address, path);
            one(&counts.requests);
            answer
        };
        vec![
            Box::new(|turn| self.change_manifests(turn, counts)),
            Box::new(|turn| self.change_pods(turn, counts)),
            Box::new(|turn| {
                *self.served.lock().unwrap() = manifest("served").replace("nginx", &format!("nginx:{turn}"));
                one(&counts.changes);
                rest(500);
            }),
            Box::new(move |turn| {
                assert_eq!(asks(&format!("/pods/default/stays-{}-node-1", turn % STAY)).code, 200);
                asks(&format!("/translate/unknown-{turn}"));
                asks(
                    ["/mirrors", "/sources", "/references", "/readyz", "/nowhere", "/log-level"]
                        [usize::try_from(turn % 6).unwrap()],
                );
                rest(15);
            }),
            Box::new(move |_| {
                assert_eq!(asks("/metrics").code, 200);
                let named = named(&asks("/references"));
                assert!(named > NAMED, "the pods name {named} Secrets");
                rest(200);
            }),
            Box::new(move |turn| lists(turn, agent, counts)),
            Box::new(move |turn| on_one_connection(turn, address, counts)),
            Box::new(move |turn| rude(turn, address, counts)),
            Box::new(move |turn| {
                // Nothing else reads the log.
                agent.forget_log();
                if turn % 20 == 19 {
                    agent.signal("HUP");
                    one(&counts.hangups);
                }
                agent.send("PUT /log-level", "", if turn.is_multiple_of(2) { "debug" } else { "info" });
                one(&counts.requests);
                rest(500);
            }),
        ]
    }

    fn change_manifests(&self, turn: u64, counts: &Counts) {
        let name = format!("churn-{}", turn % CHURN);
        let file = format!("{name}.yaml");
        match turn / CHURN % 4 {
            0 | 1 => self.manifests.write(&file, &manifest(&name).replace("nginx", &format!("nginx:{turn}"))),
            2 => self.manifests.write(&file, "kind: Pod\nspec: {containers: [}\n"),
            _ => fs::remove_file(self.manifests.0.join(file)).unwrap(),
        }
        one(&counts.changes);
        rest(60);
    }

    fn change_pods(&self, turn: u64, counts: &Counts) {
        // The same numbers again, in another order.
        let number = turn * 7919 % PODS;
        if turn.is_multiple_of(3) {
            self.server.remove("pods", "default", &format!("pod-{number}"));
        }
        self.put_pod(number, turn);
        one(&counts.changes);
        if turn % 250 == 249 {
            let server = &self.server;
            match turn / 250 % 4 {
                0 => server.close_watches(),
                1 => server.cut_connections(),
                2 => server.expire_watches(),
                _ => server.send_bookmarks(),
            }
            server.compact();
            one(&counts.interruptions);
        }
        rest(40);
    }

    /// All workers have stopped: waits until the agent has exactly the existing pods.
    pub fn quiet(&self, agent: &Agent) {
        for number in 0..CHURN {
            let _ = fs::remove_file(self.manifests.0.join(format!("churn-{number}.yaml")));
        }
        let stay = (0..STAY).map(|number| format!("stays-{number}-node-1"));
        let pods = (0..PODS).map(|number| format!("pod-{number}"));
        let expected: BTreeSet<_> = stay.chain(pods).chain(["served-node-1".to_owned()]).collect();
        agent.until("/pods", |answer| {
            let pods = answer.json::<List<Pod>>().items;
            pods.len() == expected.len()
                && pods.iter().map(|pod| pod.name().to_owned()).collect::<BTreeSet<_>>() == expected
        });
    }
}

/// Number of Secrets that are referenced according to the agent.
fn named(references: &Answer) -> u64 {
    references.json::<Value>()["secrets"]["objects"].as_u64().unwrap()
}

/// `/pods` plain, compressed, and conditional.
fn lists(turn: u64, agent: &Agent, counts: &Counts) {
    let headers = if turn.is_multiple_of(2) { "Accept-Encoding: gzip\r\n" } else { "" };
    let answer = agent.send("GET /pods", headers, "");
    let pods = answer.json::<List<Pod>>().items.len() as u64;
    assert!((STAY + PODS - 1..=STAY + CHURN + PODS + 1).contains(&pods), "{pods} pods");
    let tag = format!("If-None-Match: {}\r\n", answer.header("etag").unwrap());
    agent.send("GET /pods", &tag, "");
    counts.requests.fetch_add(2, Ordering::Relaxed);
    rest(100);
}

/// One request after another on a kept connection.
fn on_one_connection(turn: u64, agent: SocketAddr, counts: &Counts) {
    let mut stream = TcpStream::connect(agent).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    for number in 0..100 {
        let last = if number == 99 { "Connection: close\r\n" } else { "" };
        write!(stream, "GET /translate/u-{turn}-{number} HTTP/1.1\r\nHost: l\r\n{last}\r\n").unwrap();
        // A response of this size arrives in one piece.
        let read = stream.read(&mut [0; 4096]).unwrap();
        assert!(read > 0, "the connection ended");
        one(&counts.requests);
        rest(8);
    }
}

/// Half a header, a list that is not read, garbage; then disconnects.
fn rude(turn: u64, agent: SocketAddr, counts: &Counts) {
    let words: &[u8] = match turn % 4 {
        0 => b"GET /pods HTTP/1.1\r\nHo",
        1 => b"GET /pods HTTP/1.1\r\nHost: l\r\n\r\n",
        2 => b"\x16\x03\x01nonsense\r\n\r\n",
        _ => b"",
    };
    let mut held: Vec<_> = (0..5).map(|_| TcpStream::connect(agent).unwrap()).collect();
    for stream in &mut held {
        let _ = stream.write_all(words);
    }
    counts.rude.fetch_add(held.len() as u64, Ordering::Relaxed);
    rest(250);
    if turn % 4 == 2 {
        let answer = Answer::read(held.swap_remove(0));
        assert!(answer.code == 400 || answer.code == 0, "{}", answer.code);
    }
}
