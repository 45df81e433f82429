//! SIGHUP: the sources follow the configuration file, and no other pod disappears. Also systemd's
//! notifications.

use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;

use crate::config::serve_manifests;
use crate::support::{Agent, Directory, PATIENCE, Stop, binary, manifest};

/// A configuration file, and an agent that reads it.
fn started(directory: &Directory, config: &str) -> (Agent, impl Fn(&str) + use<>) {
    let path = directory.0.join(".config.yaml");
    std::fs::write(&path, config).unwrap();
    let agent = Agent::start(&["--config", path.to_str().unwrap(), "--hostname-override", "node-1"]).ready();
    (agent, move |config| std::fs::write(&path, config).unwrap())
}

#[test]
fn a_reload_updates_the_sources() {
    let (one, other) = (Directory::new(), Directory::new());
    one.write("both.yaml", &manifest("both").replace("{name: both}", "{name: both, uid: u-both}"));
    one.write("one.yaml", &manifest("one"));
    other.write("both.yaml", &manifest("both").replace("{name: both}", "{name: both, uid: u-both}"));
    other.write("other.yaml", &manifest("other"));
    let url = serve_manifests(Arc::new(Mutex::new(manifest("served"))), Arc::default());
    let one_path = one.0.display().to_string();
    let (agent, configure) = started(&one, &format!("staticPodPath: {one_path}\n"));
    assert_eq!(agent.names(), ["both-node-1", "one-node-1"]);

    // Another directory, and a URL as well. Defaults that are written out are no change.
    let defaults = "keepRemoved: 60s\nlogFormat: text\nmaxWatches: 1024\n";
    configure(&format!("staticPodPath: {}\nstaticPodURL: {url}\n{defaults}", other.0.display()));
    agent.reload();
    let answer =
        agent.until("/pods", |answer| answer.body.contains("served") && answer.body.contains("other-node-1"));
    assert!(!answer.body.contains("one-node-1"), "{}", answer.body);
    assert_eq!(agent.get("/pods/u-both").code, 200);
    agent.has("/readyz");

    // Without the directory.
    configure(&format!("staticPodURL: {url}\n"));
    agent.signal("HUP");
    agent.lacks("/pods/default/both-node-1");
    assert_eq!(agent.names(), ["served-node-1"]);
    assert!(!agent.get("/sources").body.contains("\"file\""));

    // Back to the first configuration: changes are followed as before.
    configure(&format!("staticPodPath: {one_path}\n"));
    agent.signal("HUP");
    agent.has("/pods/default/both-node-1");
    agent.until("/pods", |answer| !answer.body.contains("served"));
    one.write("new.yaml", &manifest("new"));
    agent.has("/pods/default/new-node-1");
}

#[test]
fn an_invalid_configuration_or_unsupported_change_is_rejected() {
    let directory = Directory::new();
    directory.write("a.yaml", &manifest("a"));
    let path = directory.0.display().to_string();
    let (agent, configure) = started(&directory, &format!("staticPodPath: {path}\n"));
    for (config, why) in [
        ("staticPodPaht: /x\n".to_owned(), "staticPodPaht"),
        (String::new(), "no pods to read"),
        ("staticPodPath: /nonexistent\n".to_owned(), "/nonexistent: does not exist"),
        (format!("staticPodPath: {path}\ncheckpointAllPods: true\n"), "needs a directory"),
        ("kubeconfig: /nonexistent/kubeconfig\n".to_owned(), "/nonexistent/kubeconfig"),
        (format!("staticPodPath: {path}\naddress: 127.0.0.2\n"), "address cannot change"),
    ] {
        configure(&config);
        agent.signal("HUP");
        let line = agent.wait_for_log("the configuration is unchanged");
        assert!(line.contains(why), "{line}");
        assert_eq!(agent.names(), ["a-node-1"]);
    }
    directory.write("b.yaml", &manifest("b"));
    agent.has("/pods/default/b-node-1");
}

#[test]
fn no_pod_disappears_during_a_reload() {
    let directory = Directory::new();
    for i in 0..50 {
        directory.write(&format!("p{i}.yaml"), &manifest(&format!("p{i}")));
    }
    let (agent, _) = started(&directory, &format!("staticPodPath: {}\n", directory.0.display()));
    let before: List<Pod> = agent.get("/pods").json();
    let (stop, asked) = (Stop::default(), AtomicU64::new(0));
    thread::scope(|scope| {
        let end = stop.at_the_end();
        let asking = scope.spawn(|| {
            while !stop.is_set() {
                assert_eq!(agent.names().len(), 50);
                asked.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut reloads = 0;
        while reloads < 3 || (asked.load(Ordering::Relaxed) < 10 && !asking.is_finished()) {
            agent.reload();
            reloads += 1;
        }
        drop(end);
    });
    let uids = |list: List<Pod>| {
        let mut pods: Vec<_> =
            list.items.into_iter().map(|pod| (pod.metadata.uid, pod.metadata.annotations)).collect();
        pods.sort_unstable();
        pods
    };
    assert_eq!(
        uids(agent.get("/pods").json()),
        uids(before),
        "the same pods, seen for the first time when they were"
    );
}

#[test]
fn systemd_is_notified_of_start_reload_and_shutdown() {
    let directory = Directory::new();
    directory.write("a.yaml", &manifest("a"));
    let socket = directory.0.join(".notify");
    let heard = UnixDatagram::bind(&socket).unwrap();
    heard.set_read_timeout(Some(PATIENCE)).unwrap();
    let hear = |word: &str| {
        loop {
            let mut bytes = [0; 512];
            let length = heard.recv(&mut bytes).unwrap_or_else(|_| panic!("nothing with {word}"));
            let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
            if text.contains(word) {
                return text;
            }
        }
    };
    let mut command = binary(&["--pod-manifest-path", directory.0.to_str().unwrap()]);
    command.env("NOTIFY_SOCKET", &socket);
    let mut agent = Agent::spawn(command);
    hear("READY=1");
    hear("STATUS=ready, started with 1 pods");
    // In systemd's clock, which is also that of `Instant`, in microseconds.
    let reloading = || {
        let signalled = Instant::now();
        agent.signal("HUP");
        let said = hear("RELOADING=1");
        let heard = Instant::now();
        hear("READY=1");
        let at = said.split("MONOTONIC_USEC=").nth(1).unwrap().trim().parse().unwrap();
        (signalled, Duration::from_micros(at), heard)
    };
    let (first, second) = (reloading(), reloading());
    let between = second.1.checked_sub(first.1).expect("a clock that does not go back");
    let rounding = Duration::from_micros(2);
    assert!(between + rounding >= second.0 - first.2, "{between:?}: too few");
    assert!(between <= second.2 - first.0 + rounding, "{between:?}: too many");
    agent.signal("TERM");
    hear("STOPPING=1");
    assert_eq!(agent.wait(), Some(0));
}
