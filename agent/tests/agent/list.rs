//! `pod-index get` and `list`. With `-w`, each change is one line, and a lost connection neither loses nor repeats one.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;

use pod_index_test_support::proxy::Proxy;
use serde_json::{Value, json};

use crate::api::following;
use crate::api_server::ApiServer;
use crate::support::{Agent, Directory, PATIENCE, binary, stderr, stdout};

/// A running `pod-index list -w`; killed when dropped.
struct Watch {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Watch {
    fn start(args: &[&str]) -> Self {
        let mut command = binary(&[&["list", "-w"], args].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            stdout.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
        });
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("no line came")
    }

    /// The next line of JSON: the pod, its label and its phase. Waits for it.
    fn next(&mut self) -> String {
        let pod: Value = serde_json::from_str(&self.line()).unwrap();
        let of_metadata = ["/namespace", "/name", "/labels/app"].map(|path| pod["metadata"].pointer(path));
        let [namespace, name, app] = of_metadata.map(|text| text.unwrap().as_str().unwrap());
        format!("{namespace}/{name} {app} {}", pod["status"]["phase"].as_str().unwrap())
    }

    fn take(&mut self, count: usize) -> Vec<String> {
        let mut lines: Vec<_> = (0..count).map(|_| self.next()).collect();
        lines.sort_unstable();
        lines
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pod(namespace: &str, name: &str, app: &str, phase: &str, password: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": namespace, "name": name, "uid": format!("uid-of-{name}"), "labels": { "app": app } },
        "spec": { "nodeName": "node-1", "containers": [
            { "name": "c", "image": "i", "env": [{ "name": "PASSWORD", "value": password }] },
        ] },
        "status": { "phase": phase },
    })
}

fn agent(server: &ApiServer, directory: &Directory, more: &[&str]) -> Agent {
    following(server, directory, more).ready()
}

/// Changes a pod, and waits until the agent serves the change.
fn put(server: &ApiServer, agent: &Agent, pod: &Value) {
    server.put("pods", pod);
    let metadata = &pod["metadata"];
    let path =
        format!("/pods/{}/{}", metadata["namespace"].as_str().unwrap(), metadata["name"].as_str().unwrap());
    tokio::task::block_in_place(|| {
        agent.until(&path, |answer| {
            answer.code == 200 && {
                let shown: Value = answer.json();
                shown["status"] == pod["status"]
                    && shown["metadata"]["labels"] == metadata["labels"]
                    && shown["spec"] == pod["spec"]
            }
        })
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_change_of_a_selected_pod_is_a_line() {
    let (server, directory) = (ApiServer::start().await, Directory::new());
    server.put("pods", &pod("a", "web", "web", "Pending", "hunter1"));
    server.put("pods", &pod("b", "db", "db", "Running", "hunter1"));
    let agent = agent(&server, &directory, &[]);
    let port = agent.port();
    let of = |more: &[&str]| Watch::start(&[&["-o", "json", "--port", &port], more].concat());
    let (mut all, mut in_a, mut selected) =
        (of(&[]), of(&["--namespace", "a"]), of(&["-l", "app in (db,cache)"]));
    assert_eq!(all.take(2), ["a/web web Pending", "b/db db Running"]);
    assert_eq!(in_a.next(), "a/web web Pending");
    assert_eq!(selected.next(), "b/db db Running");

    // Each line is read before the next change: a watch may have one event for changes that follow each other closely.
    for (changed, line) in [
        (Some(pod("a", "web", "web", "Running", "hunter1")), "a/web web Running"),
        (Some(pod("b", "db", "other", "Running", "hunter1")), "b/db other Running"),
        (Some(pod("a", "web", "web", "Running", "hunter2")), "a/web web Running"),
        (None, "a/web web Running"),
    ] {
        match changed {
            Some(pod) => drop(server.put("pods", &pod)),
            None => drop(server.remove("pods", "a", "web")),
        }
        assert_eq!(all.next(), line);
        if line.contains("a/web") {
            assert_eq!(in_a.next(), line);
        }
    }
    assert_eq!(selected.next(), "b/db db Running", "it is not selected any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_of_the_agent_only_differences_are_printed() {
    let (server, directory) = (ApiServer::start().await, Directory::new());
    for name in ["stays", "changes", "goes"] {
        server.put("pods", &pod("a", name, "x", "Running", "hunter1"));
    }
    let socket = directory.0.join("socket").display().to_string();
    let first = agent(&server, &directory, &["--socket", &socket]);
    let mut watch = Watch::start(&["-o", "json", "--socket", &socket]);
    assert_eq!(watch.take(3), ["a/changes x Running", "a/goes x Running", "a/stays x Running"]);
    // The list is complete once an event follows it.
    put(&server, &first, &pod("a", "stays", "w", "Running", "hunter1"));
    assert_eq!(watch.next(), "a/stays w Running");
    drop(first);
    server.put("pods", &pod("a", "changes", "x", "Failed", "hunter1"));
    server.remove("pods", "a", "goes");
    server.put("pods", &pod("a", "comes", "x", "Running", "hunter1"));
    let second = agent(&server, &directory, &["--socket", &socket]);
    assert_eq!(watch.take(3), ["a/changes x Failed", "a/comes x Running", "a/goes x Running"]);
    put(&server, &second, &pod("a", "stays", "y", "Running", "hunter1"));
    assert_eq!(watch.next(), "a/stays y Running", "nothing else was printed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_cut_connection_each_missed_event_is_a_line_of_its_own() {
    let (server, directory) = (ApiServer::start().await, Directory::new());
    server.put("pods", &pod("a", "web", "web", "Pending", "hunter1"));
    let agent = agent(&server, &directory, &[]);
    let proxy = Proxy::before(agent.address.port()).await;
    let mut watch = Watch::start(&["-o", "json", "--port", &proxy.port().to_string()]);
    assert_eq!(watch.next(), "a/web web Pending");
    // The list is complete once an event follows it.
    put(&server, &agent, &pod("a", "web", "web", "Running", "hunter1"));
    assert_eq!(watch.next(), "a/web web Running");
    let mut uncut = Watch::start(&["-o", "json", "--port", &agent.port()]);
    assert_eq!(uncut.next(), "a/web web Running");
    for round in 0..3 {
        // Nothing listens there, and no test gets this port.
        proxy.lead_to(1);
        proxy.cut();
        let app = format!("web-{round}");
        for phase in ["Running", "Unknown", "Running"] {
            put(&server, &agent, &pod("a", "web", &app, phase, "hunter1"));
            // While the agent has not made an event of a publication, the next one may become part of it.
            uncut.next();
        }
        proxy.lead_to(agent.address.port());
        // A list would show none of the first two.
        for phase in ["Running", "Unknown", "Running"] {
            assert_eq!(watch.next(), format!("a/web {app} {phase}"), "round {round}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_are_listed_in_kubectls_forms() {
    let (server, directory) = (ApiServer::start().await, Directory::new());
    let mut web = pod("shop", "web-3", "web", "Running", "hunter1");
    web["status"]["podIP"] = json!("10.0.0.7");
    server.put("pods", &web);
    server.put("pods", &pod("b", "db", "db", "Pending", "hunter1"));
    let agent = agent(&server, &directory, &[]);
    let words = |args: &str| {
        let output = agent.ask(&format!("list {args}"));
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        let lines = stdout(&output).lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        lines.collect::<Vec<_>>()
    };
    // The age is the last of the narrow columns.
    let without_age = |line: &String| line.rsplit_once(' ').unwrap().0.to_owned();
    let all = words("");
    assert_eq!(all[0], "NAMESPACE NAME READY STATUS RESTARTS AGE");
    assert_eq!(
        all[1..].iter().map(without_age).collect::<Vec<_>>(),
        ["b db 0/1 Pending 0", "shop web-3 0/1 Running 0"]
    );
    assert_eq!(words("-A")[0], all[0]);
    let of_shop = words("-n shop");
    assert_eq!(of_shop[0], "NAME READY STATUS RESTARTS AGE");
    assert_eq!(without_age(&of_shop[1]), "web-3 0/1 Running 0");
    assert_eq!(words("-l app=web -o name"), ["pod/web-3"]);
    assert_eq!(words("--field-selector status.phase=Pending -o name"), ["pod/db"]);
    let wide = words("-o wide -n shop");
    assert!(wide[0].ends_with("AGE IP NODE NOMINATED NODE READINESS GATES"), "{wide:?}");
    assert!(wide[1].ends_with(" 10.0.0.7 node-1 <none> <none>"), "{wide:?}");
    let one = agent.ask("get shop/web-3 -o wide");
    let one: Vec<_> = stdout(&one).lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
    assert_eq!(
        (one[0][0], one[0][6], one[1][0], one[1][6]),
        ("NAMESPACE", "IP", "shop", "10.0.0.7"),
        "{one:?}"
    );
    assert_eq!(stdout(&agent.ask("get web-3 -o name")), "pod/web-3\n");
    for (format, parse) in [
        ("json", (|text: &str| serde_json::from_str(text).unwrap()) as fn(&str) -> Value),
        ("yaml", |text: &str| serde_saphyr::from_str(text).unwrap()),
    ] {
        let list = parse(stdout(&agent.ask(&["list", "-l", "app=web", "-o", format])));
        assert_eq!(json!([list["kind"], list["items"][0]["metadata"]["name"]]), json!(["PodList", "web-3"]));
    }
    let nothing = agent.ask(&["list", "-n", "nowhere"]);
    assert_eq!((nothing.status.code(), stdout(&nothing), stderr(&nothing)), (Some(0), "", "No pods found\n"));
    for selector in ["a\tb", "a==b==c"] {
        agent.refuses(&format!("list -w --selector {selector}"), 2, "labelSelector");
    }
    for invalid in ["list -A -n shop", "list --field-selector spec.image=x", "whois db -o wide"] {
        agent.refuses(invalid, 2, "");
    }

    for args in ["web-3", "shop/web-3", "-n shop web-3"] {
        let output = agent.ask(&format!("get {args}"));
        assert!(stdout(&output).contains("shop       web-3  uid-of-web-3"), "{args:?}: {}", stdout(&output));
    }
    web["metadata"]["namespace"] = json!("b");
    web["metadata"]["uid"] = json!("another");
    put(&server, &agent, &web);
    let ambiguous = agent.ask(&["get", "web-3"]);
    let message = "pod-index: 2 pods have the name \"web-3\": b/web-3, shop/web-3\n";
    assert_eq!((ambiguous.status.code(), stderr(&ambiguous)), (Some(1), message));
    let elsewhere = "no pod \"web-3\" in namespace \"default\"; did you mean b/web-3 or shop/web-3?\n";
    for (args, code, end) in [
        ("web", 1, "\"web\"; did you mean b/web-3 or shop/web-3?\n"),
        ("we", 1, "\"we\"\n"),
        ("a,b=c", 1, "\"a,b=c\"\n"),
        ("default/web-3", 1, elsewhere),
        ("shop web-3", 2, ""),
    ] {
        agent.refuses(&format!("get {args}"), code, end);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watched_list_prints_a_pod_again_with_each_change() {
    let (server, directory) = (ApiServer::start().await, Directory::new());
    for name in ["web", "web-other"] {
        server.put("pods", &pod("a", name, name, "Pending", "hunter1"));
    }
    let agent = agent(&server, &directory, &[]);
    let port = agent.port();
    let mut rows = Watch::start(&["--port", &port]);
    let mut names = Watch::start(&["-o", "name", "--port", &port]);
    let mut whole = Watch::start(&["-o", "json", "--port", &port]);
    let phase = |line: &str| serde_json::from_str::<Value>(line).unwrap()["status"]["phase"].clone();
    let heading = rows.line();
    assert!(heading.starts_with("NAMESPACE  NAME       READY"), "as wide as the longest name: {heading}");
    assert!([rows.line(), rows.line()].iter().all(|row| row.contains("  Pending ")));
    let mut initial = [names.line(), names.line()];
    initial.sort();
    assert_eq!(initial, ["pod/web", "pod/web-other"]);
    assert_eq!([whole.line(), whole.line()].map(|line| phase(&line)), ["Pending", "Pending"]);
    put(&server, &agent, &pod("a", "web", "web", "Running", "hunter1"));
    assert!(rows.line().contains("  Running  "), "without another heading");
    assert_eq!((names.line(), phase(&whole.line())), ("pod/web".to_owned(), json!("Running")));
    server.remove("pods", "a", "web");
    assert!(rows.line().starts_with("a          web        0/1    Running"));
    assert_eq!(names.line(), "pod/web");
}
