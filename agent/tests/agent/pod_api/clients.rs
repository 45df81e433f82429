//! Real clients during random changes, cut connections and agent restarts: in the end each has the pods of the index.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use pod_index_test_support::dice::Dice;
use pod_index_test_support::proxy::Proxy;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::*;
use crate::api_server::Verb;
use crate::metrics::value;

const CHANGES: usize = 10_000;
const PODS: u64 = 300;

fn client(proxy: &Proxy) -> Client {
    let url = format!("http://127.0.0.1:{}", proxy.port()).parse().unwrap();
    Client::try_from(kube::Config::new(url)).unwrap()
}

/// A reflector, and the number of its restarts.
struct Reflector {
    store: Store<Pod>,
    restarts: Arc<Mutex<usize>>,
    task: JoinHandle<()>,
}

impl Reflector {
    fn start(client: Client, config: watcher::Config) -> Self {
        let (store, writer) = reflector::store();
        let restarts = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&restarts);
        let task = tokio::spawn(async move {
            let mut stream = pin!(reflector::reflector(writer, watcher(Api::<Pod>::all(client), config)));
            while let Some(event) = stream.next().await {
                match event {
                    Ok(watcher::Event::Init) => *counted.lock().unwrap() += 1,
                    Ok(_) => {}
                    Err(_) => sleep(Duration::from_millis(10)).await,
                }
            }
        });
        Self { store, restarts, task }
    }

    fn knows(&self) -> BTreeMap<String, String> {
        let key = |pod: &Pod| format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
        self.store.state().iter().map(|pod| (key(pod), pod.labels()["change"].clone())).collect()
    }
}

/// The API server's objects that match this selection.
fn truth(server: &ApiServer, selected: impl Fn(&Value) -> bool) -> BTreeMap<String, String> {
    let objects = server.objects("pods").into_iter().filter(|object| selected(object));
    objects
        .map(|object| {
            let metadata = &object["metadata"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let key = format!("{}/{}", text(&metadata["namespace"]), text(&metadata["name"]));
            (key, text(&metadata["labels"]["change"]))
        })
        .collect()
}

/// Changes pods and cuts connections on both sides of the agent at random, loses the API server's
/// history, and replaces the agent by another one halfway.
async fn upheaval(world: &mut World, proxy: &Proxy) {
    let mut dice = Dice(17);
    for change in 0..CHANGES {
        let name = format!("web-{}", dice.roll(PODS));
        match dice.roll(10) {
            0 | 1 => drop(world.server.remove("pods", "shop", &name)),
            of => {
                let app = if of < 6 { "web" } else { "db" };
                let labels = json!({ "app": app, "change": change.to_string() });
                drop(world.server.put("pods", &pod("shop", &name, &labels)));
            }
        }
        match dice.roll(400) {
            0 | 1 => proxy.cut(),
            2 => world.server.cut_connections(),
            3 => {
                world.server.compact();
                world.server.expire_watches();
            }
            _ => {}
        }
        if change == CHANGES / 2 {
            // The new agent has none of the previous agent's versions.
            let agent = World::agent(&world.server, &world.directory, "");
            proxy.lead_to(agent.address.port());
            world.agent = agent;
            proxy.cut();
        }
        if change % 20 == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Waits until each reflector knows the server's objects, or those with the label `app=web`. Returns the least number of
/// starts.
async fn agree(reflectors: &[(Reflector, bool)], server: &ApiServer) -> usize {
    let deadline = Instant::now() + PATIENCE;
    let mut least = usize::MAX;
    for (number, (reflector, of_web)) in reflectors.iter().enumerate() {
        let expected = truth(server, if *of_web { is_web } else { everything });
        while reflector.knows() != expected {
            assert!(Instant::now() < deadline, "{number}: {} of {}", reflector.knows().len(), expected.len());
            assert!(!reflector.task.is_finished());
            sleep(Duration::from_millis(20)).await;
        }
        least = least.min(*reflector.restarts.lock().unwrap());
    }
    least
}

fn everything(_: &Value) -> bool {
    true
}

fn is_web(object: &Value) -> bool {
    object["metadata"]["labels"]["app"] == "web"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reflectors_end_with_the_pods_of_the_index() {
    let mut world = World::new().await;
    let proxy = Proxy::before(world.agent.address.port()).await;
    let lists = watcher::Config::default();
    let reflectors = [
        (Reflector::start(client(&proxy), lists.clone()), false),
        (Reflector::start(client(&proxy), lists.clone().page_size(50).labels("app=web")), true),
        (Reflector::start(client(&proxy), lists.clone().streaming_lists()), false),
        (Reflector::start(client(&proxy), lists.streaming_lists().labels("app in (web)").timeout(2)), true),
    ];
    upheaval(&mut world, &proxy).await;
    let starts = agree(&reflectors, &world.server).await;
    assert!(starts >= 2, "the second agent does not know the versions of the first");
    // The index has the same pods.
    let list: Value = world.agent.get("/pods").json();
    assert_eq!(names(&list).len(), truth(&world.server, everything).len());
}

/// Needs Python with the package `kubernetes`: `POD_INDEX_PYTHON` names it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Python's client for Kubernetes: .ci/run clients"]
async fn the_python_client_ends_with_the_pods_of_the_index() {
    let python = std::env::var("POD_INDEX_PYTHON").unwrap_or("python3".to_owned());
    let mut world = World::new().await;
    let proxy = Proxy::before(world.agent.address.port()).await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/agent/pod_api/follow.py");
    let url = format!("http://127.0.0.1:{}", proxy.port());
    let follow = |selector: &str, expected: &str| {
        let file = world.directory.0.join(expected);
        let mut command = std::process::Command::new(&python);
        command.args([script, &url, selector]).arg(&file).arg("120");
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        (command.spawn().unwrap(), file)
    };
    let all = follow("", "all.json");
    let web = follow("app=web", "web.json");
    let both = |answer: &Answer| value(&answer.body, "pod_index_watches") == 2;
    world.agent.until("/metrics", both);
    upheaval(&mut world, &proxy).await;
    for ((process, file), selected) in [(all, everything as fn(&Value) -> bool), (web, is_web)] {
        let truth = serde_json::to_string(&truth(&world.server, selected)).unwrap();
        std::fs::write(file.with_extension("new"), truth).unwrap();
        std::fs::rename(file.with_extension("new"), file).unwrap();
        let output = tokio::task::spawn_blocking(|| process.wait_with_output()).await.unwrap().unwrap();
        assert!(output.status.success(), "{}", crate::support::stderr(&output));
        println!("{}", crate::support::stdout(&output));
    }
}

/// How much the agent reduces the API server's load if other programs on its node follow it. The documents quote these
/// numbers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_followers_of_the_agent_cost_the_api_server_as_much_as_one() {
    const FOLLOWERS: usize = 10;
    let world = World::new().await;
    world.server.put_all("pods", (0..100).map(|n| pod("shop", &format!("web-{n}"), &json!({}))));
    let config = || watcher::Config::default().fields("spec.nodeName=node-1");
    let costs = || (world.server.open_watches(), world.server.requests(Verb::List));
    world.server.watched_by(1).await;
    let agents_own = costs();
    let follow = async |client: &dyn Fn() -> Client| {
        let followers: Vec<_> = (0..FOLLOWERS).map(|_| Reflector::start(client(), config())).collect();
        let deadline = Instant::now() + PATIENCE;
        while followers.iter().any(|follower| follower.store.state().len() < 100) {
            assert!(Instant::now() < deadline);
            sleep(Duration::from_millis(20)).await;
        }
        followers
    };
    let url = format!("http://{}", world.agent.address);
    let by_agent = follow(&|| Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap()).await;
    assert_eq!(agents_own, (1, 1));
    assert_eq!(costs(), agents_own);
    let _directly = follow(&|| world.server.client()).await;
    world.server.watched_by(1 + FOLLOWERS).await;
    assert_eq!(world.server.requests(Verb::List), 1 + FOLLOWERS as u64);
    drop(by_agent);
}

/// A hundred watches resume at once, each from its last version, some of which are too old.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_watches_that_resume_at_once_neither_lose_nor_repeat_an_event() {
    let world = World::new().await;
    let start = version(&world.list(""));
    world.server.put_all("pods", (0..1000).map(|n| pod("shop", &format!("web-{n}"), &json!({}))));
    let end = version(&world.until("", 1000));
    assert_eq!(end, start + 1000);
    let address = world.agent.address;
    std::thread::scope(|scope| {
        for n in 0..100 {
            scope.spawn(move || {
                let from = if n % 10 == 9 { start - 1 - n } else { start + n * 10 };
                let path = format!("/api/v1/pods?watch=1&resourceVersion={from}");
                let mut watch = Watch::open(address, &path, "").unwrap();
                if from < start {
                    assert_eq!(watch.next().unwrap()["object"]["code"], 410);
                    return;
                }
                for expected in from + 1..=end {
                    assert_eq!(version(&watch.next().unwrap()["object"]), expected);
                }
            });
        }
    });
}
