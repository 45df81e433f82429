//! What pods are joined with is seen by `whois`, and is no event of the pods.

use std::fs;

use super::*;
use crate::metrics::value;

const RULES: &str = "extract: { metadata: [], labels: [{ key: team, tag_name: team, from: namespace }] }";

fn namespace(team: &str) -> Value {
    json!({ "metadata": { "name": "shop", "labels": { "team": team } }, "status": { "phase": "Active" } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relabelled_namespace_changes_attributes_and_is_no_event_of_its_pods() {
    let files = Directory::new();
    let (rules, checkpoints) = (files.0.join("rules.yaml"), files.0.join("checkpoints"));
    fs::write(&rules, RULES).unwrap();
    let world = World::with(&format!(
        "--serve-resources namespaces --extract {} --checkpoint-all-pods --checkpoint-dir {}",
        rules.display(),
        checkpoints.display(),
    ))
    .await;
    world.server.put("namespaces", &namespace("a"));
    world.server.put("pods", &pod("shop", "web", &json!({})));
    let team_is = |team: &str| {
        let expected = json!({ "team": team });
        world.agent.until("/whois?q=shop/web&fields=attributes", |answer| answer.json::<Value>() == expected);
    };
    let updates = |metrics: &Answer| value(&metrics.body, "pod_index_pod_events_total{event=\"updated\"}");
    let writes = |metrics: &Answer| value(&metrics.body, "pod_index_checkpoint_writes_total");
    team_is("a");
    world.agent.until("/metrics", |metrics| writes(metrics) == 1);
    let since = version(&world.until("", 1));
    let mut watch = world.watch(&format!("resourceVersion={since}"));

    world.server.put("namespaces", &namespace("b"));
    team_is("b");
    // The next event is that of the pod itself.
    world.server.put("pods", &pod("shop", "web", &json!({ "app": "web" })));
    let event = watch.next().unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["metadata"]["labels"]),
        (&json!("MODIFIED"), &json!({ "app": "web" }))
    );
    assert_eq!(version(&event["object"]), since + 1);
    let metrics = world.agent.until("/metrics", |metrics| updates(metrics) > 0 && writes(metrics) > 1);
    assert_eq!((updates(&metrics), writes(&metrics)), (1, 2));
}
