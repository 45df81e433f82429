//! Random interleavings of manifest edits, other clients' actions on the API server, and outages.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;

use super::support::{Agent, Manifests, NODE, agent, manifests, mirrored, on_server, plain, server};
use crate::seeded::seeded;
use pod_index_test_support::api_server::{ApiServer, Fault, Verb};

/// If a mirror is deleted before the agent has seen it, the agent waits half a minute. Everything else takes
/// a fraction of a second.
const PATIENCE: Duration = Duration::from_secs(300);
const NAMES: [&str; 5] = ["p0", "p1", "p2", "p3", "p4"];

/// A possible event. `name` is a static pod's.
#[derive(Clone, Debug)]
enum Step {
    /// The manifest is written, each time with another version.
    Write(&'static str),
    Remove(&'static str),
    /// Another client deletes the mirror, immediately or gracefully.
    Delete(&'static str),
    Terminate(&'static str),
    /// A pod that is not a mirror takes the name, if it is free, or is removed.
    Occupy(&'static str),
    Vacate(&'static str),
    /// The next request of this kind fails.
    Fail(Verb, Fault),
    /// The watch ends with 410 Gone.
    Expire,
    /// Connections are cut; the port is closed; it is opened again.
    Cut,
    Refuse,
    Accept,
    /// The agent is killed, and another one is started.
    Restart,
    /// Time passes.
    Pause(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let name = || select(&NAMES[..]);
    let fault = |faults: &'static [Fault]| select(faults);
    prop_oneof![
        6 => name().prop_map(Step::Write),
        3 => name().prop_map(Step::Remove),
        2 => name().prop_map(Step::Delete),
        1 => name().prop_map(Step::Terminate),
        1 => name().prop_map(Step::Occupy),
        1 => name().prop_map(Step::Vacate),
        1 => fault(&[Fault::Drop, Fault::DropAfter, Fault::Status(500), Fault::Status(403)])
            .prop_map(|fault| Step::Fail(Verb::Create, fault)),
        1 => fault(&[Fault::Drop, Fault::DropAfter, Fault::Status(503)])
            .prop_map(|fault| Step::Fail(Verb::Delete, fault)),
        1 => fault(&[Fault::Drop, Fault::Status(500)]).prop_map(|fault| Step::Fail(Verb::Get, fault)),
        1 => Just(Step::Expire),
        1 => Just(Step::Cut),
        1 => Just(Step::Refuse),
        2 => Just(Step::Accept),
        1 => Just(Step::Restart),
        4 => (0..30_u64).prop_map(Step::Pause),
    ]
}

/// A node with its API server and agent.
struct Node {
    server: ApiServer,
    agent: Agent,
    pods: Manifests,
    version: u64,
}

impl Node {
    async fn new() -> Self {
        let server = server().await;
        let pods = manifests(&[("p0", 0), ("p1", 0)]);
        let agent = agent(&server, &pods).await;
        Self { server, agent, pods, version: 0 }
    }

    fn stranger(&self, name: &str) -> bool {
        let pod = self.server.object("pods", "default", &on_server(name));
        pod.is_some_and(|pod| pod["spec"]["nodeName"] == "n2")
    }

    async fn take(&mut self, step: Step) {
        let server = &self.server;
        match step {
            Step::Write(name) => {
                self.version += 1;
                self.pods.insert(name.to_owned(), self.version);
                self.agent.has(&self.pods);
            }
            Step::Remove(name) => {
                self.pods.remove(name);
                self.agent.has(&self.pods);
            }
            Step::Delete(name) => {
                if !self.stranger(name) {
                    server.remove("pods", "default", &on_server(name));
                }
            }
            Step::Terminate(name) => {
                let mirror = server.object("pods", "default", &on_server(name));
                if let Some(mut mirror) = mirror.filter(|_| !self.stranger(name)) {
                    mirror["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z");
                    server.put("pods", &mirror);
                }
            }
            Step::Occupy(name) => {
                if server.object("pods", "default", &on_server(name)).is_none() {
                    server.put("pods", &plain(&on_server(name), "n2"));
                }
            }
            Step::Vacate(name) => self.vacate(name),
            Step::Fail(verb, fault) => server.fail(verb, fault),
            Step::Expire => server.expire_watches(),
            Step::Cut => server.cut_connections(),
            Step::Refuse => server.refuse(),
            Step::Accept => server.accept_again().await,
            Step::Restart => {
                let agent = std::mem::replace(&mut self.agent, Agent::start(&self.server));
                agent.kill().await;
                self.agent.has(&self.pods);
            }
            Step::Pause(milliseconds) => tokio::time::sleep(Duration::from_millis(milliseconds)).await,
        }
    }

    fn vacate(&self, name: &str) {
        if self.stranger(name) {
            self.server.remove("pods", "default", &on_server(name));
        }
    }

    /// No more events: the mirrors match the static pods, and there are no more writes.
    async fn rests(&mut self) {
        self.server.accept_again().await;
        self.server.heal();
        // Requests that a killed agent sent and the server has not read are lost now, not later.
        self.server.cut_connections();
        for name in NAMES {
            self.vacate(name);
        }
        mirrored(&self.server, &self.pods).await;
        self.agent.rests(self.pods.len()).await;
        let writes = self.server.writes();
        self.agent.looks(3).await;
        mirrored(&self.server, &self.pods).await;
        assert_eq!(self.server.writes(), writes, "at rest nothing is written");
    }
}

async fn happens(steps: Vec<Step>) {
    let mut node = Node::new().await;
    let mut mirror_of_another_node = plain("p0-n2", "n2");
    mirror_of_another_node["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "hash" });
    let strangers = [plain("job", NODE), plain("elsewhere", "n2"), mirror_of_another_node];
    let strangers = strangers.map(|pod| node.server.put("pods", &pod).value.clone());
    for step in steps {
        node.take(step).await;
    }
    // A shorter limit than elsewhere: shrinking a failure waits this long repeatedly.
    assert!(
        tokio::time::timeout(PATIENCE, node.rests()).await.is_ok(),
        "no rest; {:?}",
        *node.agent.status.borrow()
    );
    let objects = node.server.objects("pods");
    assert_eq!(objects.len(), node.pods.len() + strangers.len());
    for stranger in &strangers {
        assert!(objects.contains(stranger), "touched: {stranger}");
    }
}

proptest! {
    // Each case takes a quarter of a second, mostly waiting. Set `PROPTEST_CASES` for more.
    #![proptest_config(ProptestConfig { max_shrink_time: 3 * 60 * 1000, ..seeded(24) })]

    #[test]
    fn once_nothing_changes_the_mirrors_match_the_static_pods(
        steps in proptest::collection::vec(step(), 0..40)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(happens(steps));
    }
}
