//! The sources of the agent, and the agent with all its features.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

use k8s_openapi::ByteString;
use pod_index_test_support::proxy::Proxy;
use pod_index_test_support::skipped;
use serde_json::json;

use super::doors::{Doors, listed};
use super::truth::Truth;
use super::watchers::shard;
use crate::api::{kubeconfig_with, pod};
use crate::api_server::ApiServer;
use crate::config::serve_manifests;
use crate::restart::of_files;
use crate::support::{Agent, Directory, manifest, started_by};
use crate::tls::Pki;

/// Manifests that stay; pods of the API server.
pub const STAY: u64 = 60;
pub const PODS: u64 = 2000;
/// The first of them name Secrets. Few, so that some Secrets lose their last pod and get another one later.
const NAMING: u64 = 200;
/// Number of Secrets. Coprime with [`NAMING`], because otherwise a pod would name the same one in all versions.
const SECRETS: u64 = 47;

/// The three sources, and the checkpoint directory.
pub struct Site {
    pub server: ApiServer,
    /// Between the agent and the API server.
    pub proxy: Proxy,
    pub truth: Truth,
    /// The agent's certificate.
    pub pki: Pki,
    pub manifests: Directory,
    pub scratch: Directory,
    /// Whether the checkpoints are on a small disk of their own.
    pub has_disk: bool,
    /// Whether the agent reads its clock from a file.
    pub has_clock: bool,
    /// The manifests at the URL.
    url: String,
    served: Arc<Mutex<String>>,
}

/// A manifest in this version.
fn versioned(name: &str, version: u64) -> String {
    manifest(name).replace(
        &format!("{{name: {name}}}"),
        &format!("{{name: {name}, annotations: {{version: '{version}'}}}}"),
    )
}

impl Site {
    pub async fn new() -> Self {
        let pki = Pki::new();
        let (certificate, key) = pki.authority.sign("127.0.0.1");
        let server = ApiServer::start_with_tls(&certificate, &key).await;
        let proxy = Proxy::before(server.port()).await;
        server.put("nodes", &json!({ "metadata": { "name": "node-1" } }));
        for number in 0..SECRETS {
            let name = format!("secret-{number}");
            let metadata = json!({ "namespace": "default", "name": name });
            server.put("secrets", &json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": { "k": "dg==" } }));
        }
        let body = Arc::new(Mutex::default());
        let url = serve_manifests(Arc::clone(&body), Arc::default());
        let site = Self {
            server,
            proxy,
            truth: Truth::default(),
            pki,
            manifests: Directory::new(),
            scratch: Directory::new(),
            has_disk: may_mount(),
            has_clock: fake_clock().is_some(),
            url,
            served: body,
        };
        (0..STAY).for_each(|number| site.write(&format!("stays-{number}"), 0));
        (0..PODS).for_each(|number| site.put(number, 0));
        site.serve(0);
        site
    }

    /// A version of a pod on the API server.
    pub fn put(&self, number: u64, version: u64) {
        let name = format!("pod-{number}");
        let mut pod = pod(&name, "node-1", &json!({ "version": version.to_string() }));
        pod["metadata"]["labels"] = json!({ "shard": shard(&name).unwrap().to_string() });
        if number < NAMING {
            let secret = format!("secret-{}", (number + 2 * version) % SECRETS);
            pod["spec"]["volumes"] = json!([{ "name": "v", "secret": { "secretName": secret } }]);
        }
        pod["spec"]["containers"][0]["env"] = json!([{ "name": "E", "value": "e".repeat(500) }]);
        self.truth.change(&name, Some(version), || drop(self.server.put("pods", &pod)));
    }

    pub fn remove(&self, number: u64) {
        let name = format!("pod-{number}");
        self.truth.change(&name, None, || drop(self.server.remove("pods", "default", &name)));
    }

    /// A version of a manifest in the directory.
    pub fn write(&self, name: &str, version: u64) {
        self.truth.change(&format!("{name}-node-1"), Some(version), || {
            self.manifests.write(&format!("{name}.yaml"), &versioned(name, version));
        });
    }

    /// An unusable version of the manifest: the pod of the last usable version stays.
    pub fn spoil(&self, name: &str) {
        self.manifests.write(&format!("{name}.yaml"), "kind: Pod\nspec: {containers: [}\n");
    }

    pub fn delete(&self, name: &str) {
        self.truth.change(&format!("{name}-node-1"), None, || {
            let _ = fs::remove_file(self.manifests.0.join(format!("{name}.yaml")));
        });
    }

    /// A version of the manifest at the URL.
    pub fn serve(&self, version: u64) {
        self.truth.change("served-node-1", Some(version), || {
            *self.served.lock().unwrap() = versioned("served", version);
        });
    }

    /// The agent with all optional features, and the ways to ask it.
    pub fn start(&self) -> (Agent, Doors) {
        let server = format!("https://127.0.0.1:{}", self.proxy.port());
        let ca = ByteString(self.pki.authority.pem.clone().into_bytes());
        let cluster = json!({ "server": server, "certificate-authority-data": ca });
        let kubeconfig = kubeconfig_with(&self.scratch, &cluster, &json!({}));
        let (socket, checkpoints) = (self.scratch.0.join("socket"), self.checkpoints());
        fs::create_dir(&checkpoints).unwrap();
        let args = format!(
            "{} --manifest-url {} --http-check-frequency 200ms --kubeconfig {kubeconfig} --manage-mirror-pods {} \
             --socket {} --log-format json",
            of_files(&self.manifests.0, &checkpoints),
            self.url,
            self.pki.flags(),
            socket.display()
        );
        let agent = Agent::spawn(self.surrounded(&args));
        let doors = Doors { address: agent.address, socket, tls: self.pki.client().config() };
        doors.until("/readyz", |answer| answer.code == 200);
        (agent, doors)
    }

    fn checkpoints(&self) -> PathBuf {
        self.scratch.0.join("checkpoints")
    }

    /// The checkpoints as the agent sees them in its own mounts.
    pub fn disk(&self, agent: &Agent) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}", agent.pid(), self.checkpoints().display()))
    }

    /// Sets the agent's clock: this many seconds ahead.
    pub fn set_clock(&self, seconds: i32) {
        self.scratch.write("clock", &format!("{seconds:+}s\n"));
    }

    /// The agent with a small disk for its checkpoints and a clock of its own, as far as this machine can.
    fn surrounded(&self, args: &str) -> Command {
        let (shell, disk) = if self.has_disk {
            (&["unshare", "-m", "sh", "-c"][..], "mount -t tmpfs -o size=24m none \"$DISK\" && ")
        } else {
            (&["sh", "-c"][..], "")
        };
        let library = fake_clock();
        let clock = if library.is_some() { "export LD_PRELOAD=\"$CLOCK\" && " } else { "" };
        let script = format!("{disk}{clock}exec \"$0\" \"$@\"");
        let mut command = started_by(&[shell, &[&script]].concat(), args);
        command.env("DISK", self.checkpoints());
        if let Some(library) = library {
            self.set_clock(0);
            // The file is read once a second. Only the wall clock jumps, as on a real machine.
            command
                .env("CLOCK", library)
                .env("FAKETIME_TIMESTAMP_FILE", self.scratch.0.join("clock"))
                .env("FAKETIME_CACHE_DURATION", "1")
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
                .env("NO_FAKE_STAT", "1");
        }
        command
    }
}

/// Whether processes may have their own mounts.
fn may_mount() -> bool {
    let tried =
        Command::new("unshare").args(["-m", "sh", "-c", "mount -t tmpfs -o size=64k none /mnt"]).output();
    let may = tried.is_ok_and(|output| output.status.success());
    if !may {
        skipped("a full disk for checkpoints", "no mount namespaces here");
    }
    may
}

/// The library that gives a process its own clock.
fn fake_clock() -> Option<PathBuf> {
    let libraries = fs::read_dir("/usr/lib").ok()?.flatten();
    let library =
        libraries.map(|entry| entry.path().join("faketime/libfaketimeMT.so.1")).find(|path| path.exists());
    if library.is_none() {
        skipped("jumps of the clock", "libfaketime is not installed");
    }
    library
}

impl Site {
    /// Waits until the agent shows exactly what the sources have. Call it after the last change.
    pub fn quiet(&self, doors: &Doors) {
        let expected = self.truth.now();
        doors.until("/pods", |answer| listed(answer) == expected);
    }
}
