//! Limits on watches, and the cost of one that does not read.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::*;
use crate::metrics::value;
use crate::support::{manifest, run_within, started_by, stderr};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_have_limits_of_their_own_and_are_counted() {
    let world = World::with("--max-watches 3 --max-watches-per-client 2").await;
    let metric = |name: &str| value(&world.agent.get("/metrics").body, name);
    let open = || Watch::open(world.agent.address, "/api/v1/pods?watch=1", "");
    let mut first = open().unwrap();
    let _second = open().unwrap();
    let refused = open().err().unwrap();
    let status: Value = refused.json();
    assert_eq!((refused.code, &status["reason"]), (429, &json!("TooManyRequests")));
    assert!(status["message"].as_str().unwrap().contains("--max-watches-per-client"), "{status}");
    assert_eq!(refused.header("retry-after"), Some("5"));
    assert_eq!(metric("pod_index_watches"), 2);
    assert_eq!(metric(r#"pod_index_watch_drops_total{reason="limit"}"#), 1);

    world.server.put_all("pods", ["a", "b"].map(|name| pod("shop", name, &json!({}))));
    let _ = first.take(2);
    world.agent.until("/metrics", |answer| value(&answer.body, "pod_index_watch_events_sent_total") == 4);
    assert_eq!(metric("pod_index_watch_events_encoded_total"), 2, "once, however many watch");
    assert_eq!(metric("pod_index_watch_history_events"), 2);
    drop(first);
    world.agent.until("/metrics", |answer| value(&answer.body, "pod_index_watches") == 1);
    let _third = open().unwrap();
}

/// All programs of the loopback are one client, which is connected all the time.
#[test]
fn a_client_that_watches_may_have_more_watches_after_a_signal_and_loses_none() {
    let directory = Directory::new();
    std::fs::create_dir(directory.0.join("manifests")).unwrap();
    std::fs::write(directory.0.join("manifests/web.yaml"), manifest("web")).unwrap();
    let configure = |most: u32| {
        let text = format!("staticPodPath: manifests\nnodeName: node-1\nmaxWatchesPerClient: {most}\n");
        directory.write("config.yaml", &text);
    };
    configure(1);
    let config = directory.0.join("config.yaml");
    // Without a terminal, as a service manager starts it.
    let mut agent = Agent::spawn(started_by(&["setsid"], &["--config", config.to_str().unwrap()])).ready();
    let open = || Watch::open(agent.address, "/api/v1/pods?watch=1", "");
    let mut first = open().unwrap();
    assert_eq!(open().err().unwrap().code, 429);

    configure(2);
    agent.signal("HUP");
    agent.wait_for_log("every change is in effect");
    let _second = open().unwrap();
    assert!(open().err().unwrap().json::<Value>()["message"].as_str().unwrap().contains("may have 2 "));
    assert_eq!(first.take(1)[0]["object"]["metadata"]["name"], "web-node-1");

    configure(0);
    agent.signal("HUP");
    agent.wait_for_log("every change is in effect");
    assert_eq!(open().err().unwrap().code, 429);
    std::fs::remove_file(directory.0.join("manifests/web.yaml")).unwrap();
    assert_eq!(first.take(1)[0]["type"], "DELETED", "it goes on");
    agent.end();
}

/// A flood of connections closes the oldest of them, but no watch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_connections_ends_no_watch() {
    let world = World::new().await;
    let mut watch = world.watch("");
    let flood: Vec<_> = (0..400).map(|_| TcpStream::connect(world.agent.address).unwrap()).collect();
    world.server.put("pods", &pod("shop", "a", &json!({})));
    assert_eq!(summary(&watch.take(1)), [("ADDED", "a")]);
    drop(flood);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_is_not_read_is_closed_and_the_others_continue() {
    let world = World::with("--log-level debug").await;
    let mut reading = world.watch("");
    let mut silent = TcpStream::connect(world.agent.address).unwrap();
    silent.write_all(b"GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: l\r\n\r\n").unwrap();
    world.agent.until("/metrics", |answer| value(&answer.body, "pod_index_watches") == 2);
    let ballast = "x".repeat(200_000);
    let started = Instant::now();
    let mut round = 0;
    while value(&world.agent.get("/metrics").body, "pod_index_watches") == 2 {
        assert!(started.elapsed() < PATIENCE, "the agent does not close it");
        round += 1;
        let mut large = pod("shop", &format!("web-{}", round % 20), &json!({ "round": round.to_string() }));
        large["metadata"]["annotations"] = json!({ "ballast": ballast });
        world.server.put("pods", &large);
        let event = reading.next().unwrap();
        assert_eq!(event["object"]["metadata"]["labels"]["round"], round.to_string());
    }
    // Because it was not read, and not because its next event was no longer stored.
    world.agent.wait_for_log("the peer reads too slowly or not at all");
    let metrics = world.agent.get("/metrics").body;
    assert_eq!(value(&metrics, r#"pod_index_watch_drops_total{reason="history"}"#), 0);
    drop(silent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_socket_serves_the_same_as_the_port_to_users_with_write_permission() {
    let (server, directory) = (ApiServer::start().await, Directory::new());
    server.put("pods", &pod("shop", "web", &json!({})));
    let socket = directory.0.join("agent.sock");
    let args = format!("--socket {} --socket-mode 0600", socket.display());
    // The socket of a dead agent is replaced.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let mut agent = World::agent(&server, &directory, &args);
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let get = |path: &str| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: any.example\r\nConnection: close\r\n\r\n").unwrap();
        Answer::read(stream)
    };
    assert_eq!(names(&get("/api/v1/pods").json()), ["web"]);
    assert_eq!(get("/livez").code, 200);

    // Another agent does not replace it, and no other file is replaced.
    let kubeconfig = kubeconfig(&directory, &server);
    for (flags, code, why) in [
        (format!("--socket {}", socket.display()), 3, "another process serves on it"),
        (format!("--socket {kubeconfig}"), 3, ""),
        ("--socket-mode 0600".to_owned(), 2, "--socket"),
    ] {
        let args = format!("--all-nodes --kubeconfig {kubeconfig} --port 0 {flags}");
        let output = run_within(PATIENCE, &args);
        assert_eq!(output.status.code(), Some(code), "{flags}: {}", stderr(&output));
        assert!(stderr(&output).contains(why), "{flags}: {}", stderr(&output));
    }
    assert!(std::fs::read_to_string(&kubeconfig).unwrap().contains("clusters"));

    assert_eq!(get("/livez").code, 200);
    agent.end();
    assert!(!socket.exists(), "it is removed when the agent ends");
}
