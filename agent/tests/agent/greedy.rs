//! Clients that take all they can get: the others are served meanwhile.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::sys::stat::Mode;
use serde_json::Value;
use tokio::net::TcpSocket;

use crate::health::{health_address, metrics_address};
use crate::support::{Agent, Answer, Directory, PATIENCE, exchange, manifest, shipped, stderr, stdout};

fn encoded(selector: &str) -> String {
    form_urlencoded::byte_serialize(selector.as_bytes()).collect()
}

/// A connection from this address of the machine.
async fn connect_from(address: &str, agent: &Agent) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{address}:0").parse().unwrap()).unwrap();
    let stream = socket.connect(agent.address).await.unwrap().into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// The answer to a query that comes by the socket.
fn of_another_client(socket: &Path) -> Answer {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Answer::to(stream, "POST /whois", "", "kube-system/etcd-node-1\n")
}

#[test]
fn a_selector_may_repeat_terms_but_not_have_thousands() {
    let agent = Agent::on(&shipped());
    let many = |term: &dyn Fn(usize) -> String| (0..1500).map(term).collect::<Vec<_>>().join(",");
    for (parameter, selector, code) in [
        ("labelSelector", many(&|_| "!z".to_owned()), 200),
        ("labelSelector", many(&|n| format!("!z{n}")), 400),
        ("labelSelector", format!("app notin ({})", many(&|n| format!("v{n}"))), 400),
        ("fieldSelector", many(&|_| "metadata.name!=a".to_owned()), 431),
        ("fieldSelector", (0..300).map(|n| format!("status.phase!={n}")).collect::<Vec<_>>().join(","), 400),
    ] {
        let answer = agent.get(&format!("/api/v1/pods?{parameter}={}", encoded(&selector)));
        assert_eq!(answer.code, code, "{parameter}={selector:.40}: {}", answer.body);
        assert!(code != 400 || answer.body.contains("at most"), "{}", answer.body);
    }
}

/// DNS rebinding: a page in a browser that can reach the agent, whose name points to the agent's address, must not read
/// responses.
#[test]
fn a_request_has_one_host_which_is_no_public_name() {
    let node = "--hostname-override node-1.shop.example";
    let agent = Agent::start(&format!("--pod-manifest-path {} {node}", shipped().display())).ready();
    let end = "Connection: close\r\n\r\n";
    for (request, code) in [
        ("GET /livez HTTP/1.1\r\nHost: localhost\r\n", 200),
        ("GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n", 400),
        ("GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: public.example\r\n", 400),
        ("GET http://localhost/livez HTTP/1.1\r\nHost: localhost\r\n", 200),
        ("GET / HTTP/1.1\r\nHost: public.example\r\n", 421),
        ("GET /pods HTTP/1.1\r\nHost: public.example:80\r\n", 421),
        ("GET /nothing HTTP/1.1\r\nHost: public.example\r\n", 421),
        ("GET /pods HTTP/1.1\r\nHost: localhost:10270\r\n", 200),
        ("GET /nothing HTTP/1.1\r\nHost: [::1]\r\n", 404),
        ("GET http://public.example/livez HTTP/1.1\r\nHost: localhost\r\n", 421),
        ("GET http://localhost/livez HTTP/1.1\r\nHost: public.example\r\n", 421),
        ("GET /pods HTTP/1.1\r\nHost: node-1.shop.example:10270\r\n", 200),
        ("GET /pods HTTP/1.1\r\nHost: pod-index.monitoring.svc.cluster.local\r\n", 200),
    ] {
        let answer = exchange(agent.address, format!("{request}{end}").as_bytes());
        assert_eq!(answer.code, code, "{request}");
    }
    drop(agent);
    // On all addresses, and on those for health and metrics.
    let addresses =
        "--address 0.0.0.0 --allow-remote-clients --health-address 127.0.0.1:0 --metrics-address 127.0.0.1:0";
    let agent = Agent::on_with(&shipped(), &addresses.split(' ').collect::<Vec<_>>());
    let port = SocketAddr::from(([127, 0, 0, 1], agent.address.port()));
    let [health, metrics] = [health_address(&agent), metrics_address(&agent)];
    for (address, path) in [(port, "/pods"), (health, "/readyz"), (metrics, "/metrics")] {
        for (host, code) in [("127.0.0.1", 200), ("node", 200), ("public.example", 421)] {
            let answer =
                exchange(address, format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{end}").as_bytes());
            assert_eq!(answer.code, code, "{path} {host}");
        }
    }
}

/// Reads of processes block for ever: nothing else does.
#[test]
fn a_proc_that_blocks_delays_only_look_ups_of_processes() {
    let (directory, proc) = (Directory::new(), Directory::new());
    let socket = directory.0.join("agent.sock");
    for pid in 100..140 {
        let process = proc.0.join(pid.to_string());
        fs::create_dir(&process).unwrap();
        nix::unistd::mkfifo(&process.join("stat"), Mode::S_IRWXU).unwrap();
    }
    let (at, listens) = (proc.0.to_str().unwrap(), socket.to_str().unwrap());
    let agent = Agent::on_with(&shipped(), &["--proc", at, "--socket", listens]);
    let pids: String = (100..140).map(|pid| format!("{pid}\n")).collect::<Vec<_>>().concat();
    let mut open = Vec::new();
    for _ in 0..40 {
        let head = format!("POST /whois HTTP/1.1\r\nHost: l\r\nContent-Length: {}\r\n\r\n", pids.len());
        open.push(agent.connect(&(head + &pids)));
        open.push(agent.connect("GET /whois?q=101&q=102 HTTP/1.1\r\nHost: l\r\n\r\n"));
    }
    for path in ["/livez", "/pods", "/api/v1/pods", "/whois?q=kube-system/etcd-node-1"] {
        assert_eq!(agent.get(path).code, 200, "{path}");
    }
    let unit = include_str!("../../../deploy/systemd/pod-index.service");
    let most = unit.lines().find_map(|line| line.strip_prefix("TasksMax=")?.parse().ok()).unwrap();
    let tasks = fs::read_dir(format!("/proc/{}/task", agent.pid())).unwrap().count();
    assert!(tasks < most, "{tasks} threads; TasksMax={most}");
    // Another client's queries with a body are answered, too.
    let answer = of_another_client(&socket);
    assert!(answer.body.starts_with("{\"found\":true"), "{}", answer.body);
    drop(open);
}

#[test]
fn one_client_with_endless_bodies_does_not_refuse_another() {
    let directory = Directory::new();
    let socket = directory.0.join("agent.sock");
    let agent = Agent::on_with(&shipped(), &["--socket", socket.to_str().unwrap()]);
    let endless = "POST /whois HTTP/1.1\r\nHost: l\r\nContent-Length: 1000000\r\n\r\nx";
    let endless = [(); 100].map(|()| agent.connect(endless));
    assert_eq!(agent.get("/livez").code, 200);
    let answer = of_another_client(&socket);
    assert_eq!((answer.code, answer.body.starts_with("{\"found\":true")), (200, true), "{}", answer.body);
    drop(endless);
}

#[test]
fn bodies_of_small_chunks_take_little_memory() {
    let agent = Agent::on(&shipped());
    let before = agent.kib("VmRSS");
    let body = "POST /whois HTTP/1.1\r\nHost: l\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    let body = body.to_owned() + &"1\r\nx\r\n".repeat(100_000);
    for stream in [(); 16].map(|()| agent.connect(&body)) {
        assert_eq!(Answer::read(stream).code, 408);
    }
    let grown = (agent.kib("VmHWM") - before) / 1024;
    assert!(grown < 20, "{grown} MiB for 16 bodies of 100 kB");
}

#[tokio::test]
async fn all_addresses_of_the_loopback_are_one_client() {
    let agent = Agent::on_with(&shipped(), &["--max-watches-per-client", "2"]);
    let mut open = Vec::new();
    for (from, code) in [("127.0.0.1", "200"), ("127.0.0.2", "200"), ("127.0.0.3", "429")] {
        let mut stream = connect_from(from, &agent).await;
        stream.write_all(b"GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: l\r\n\r\n").unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        reader.read_line(&mut head).unwrap();
        assert_eq!(head.split(' ').nth(1), Some(code), "{from}");
        open.push(reader);
    }
}

#[test]
fn whois_says_as_what_it_took_a_query() {
    let agent = Agent::on(&shipped());
    // The name of one pod alone.
    let output = agent.ask(&["whois", "etcd-node-1"]);
    assert!(stdout(&output).contains("kube-system"), "{} {}", stdout(&output), stderr(&output));
    for (query, words) in [
        ("etcd", "did you mean kube-system/etcd-node-1?"),
        ("kube", "kube-scheduler-node-1?"),
        ("etc", "no pod has this UID\n"),
        ("web-3", "not recognised"),
        ("10.1.0.300", "not recognised"),
        ("0123456789ab", "no container ID, or several, begin with it"),
        ("10.1.0.30", "no pod has this IP address"),
        ("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", "no pod has this UID"),
        ("/var/log/pods/kube-system_etcd-node-1_b400a6d5b1b1c5f4c3b2a1908f7e6d5c/etcd/0.log", "of this log"),
    ] {
        agent.refuses(&["whois", query], 1, words);
    }
    let directory = Directory::new();
    for namespace in ["shop", "test"] {
        let pod = manifest("web").replace("name: web", &format!("name: web, namespace: {namespace}"));
        directory.write(&format!("{namespace}.yaml"), &pod);
    }
    let output = Agent::on(&directory.0).ask(&["whois", "web-node-1"]);
    for pod in ["shop/web-node-1", "test/web-node-1"] {
        assert!(stderr(&output).contains(pod), "{}", stderr(&output));
    }
}

#[test]
fn a_log_path_that_contradicts_its_pod_says_so() {
    let agent = Agent::on(&shipped());
    let pod: Value = agent.get("/pods/kube-system/etcd-node-1").json();
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    for (path, differs) in [
        (format!("/var/log/pods/kube-system_etcd-node-1_{uid}/etcd/0.log"), false),
        (format!("/var/log/pods/shop_other_{uid}/etcd/0.log"), true),
        (format!("/tmp/mine/var/log/pods/kube-system_etcd-node-1_{uid}/etcd/0.log"), true),
    ] {
        let answer: Value = agent.get(&format!("/whois?q={}", encoded(&path))).json();
        assert_eq!(answer["found"], true, "{path}: {answer}");
        assert_eq!(answer["contradiction"].is_string(), differs, "{path}: {answer}");
    }
}

/// The first event of a watch from this version, however long it takes.
fn first_event(agent: &Agent, version: u64) -> String {
    let request = format!("GET /pods?watch=true&resourceVersion={version} HTTP/1.1\r\nHost: l\r\n\r\n");
    let mut lines = BufReader::new(agent.connect(&request)).lines().map(Result::unwrap);
    lines.find(|line| line.contains("\"type\"")).unwrap_or_default()
}

#[test]
fn the_version_of_a_list_of_pods_is_one_to_watch_from() {
    let agent = Agent::on(&shipped());
    for path in ["/pods", "/api/v1/pods"] {
        let list: Value = agent.get(path).json();
        let version = list["metadata"]["resourceVersion"].as_str().unwrap();
        // A watch that is late for its time shows nothing. An error ends it at once, so its time may be long.
        let watch = |version: u64, seconds: u32| {
            let time = format!("timeoutSeconds={seconds}");
            let answer = agent.get(&format!("/pods?watch=true&{time}&resourceVersion={version}"));
            assert_eq!(answer.code, 200, "{path}: {version}");
            answer.body
        };
        let version: u64 = version.parse().unwrap();
        assert_eq!(watch(version, 1), "", "{path}");
        // Other versions are refused, or their events are shown.
        let event = first_event(&agent, version - 1);
        assert!(event.contains("\"ADDED\"") || event.contains("\"ERROR\""), "{path}: {event}");
        for other in [1, version + 1_000_000] {
            let answer = watch(other, 30);
            assert!(answer.contains("\"type\":\"ERROR\""), "{path} {other}: {answer}");
        }
    }
    let [pods, of_the_api]: [Value; 2] = ["/pods", "/api/v1/pods"].map(|path| agent.get(path).json());
    assert_eq!(pods, of_the_api);
}
