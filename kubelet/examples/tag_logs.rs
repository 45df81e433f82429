//! Tags the lines of log files with the attributes of their pods, by the paths of the files. `cargo run -p
//! pod-index-kubelet --example tag_logs`
//!
//! A collector may read the last lines of a file after the pod was removed. So the index keeps removed pods for a
//! while.

use std::time::{Duration, SystemTime};

use k8s_openapi::api::core::v1::Pod;
use pod_index::identity::Identity;
use pod_index::{Moment, Operation, Options, Snapshot, Writer};
use pod_index_kubelet::records::{Change, Join, Record, Rules};

/// Which attributes: written as for OpenTelemetry's `k8sattributes` processor.
const RULES: &str = "
extract:
  metadata: [k8s.namespace.name, k8s.pod.name, k8s.container.name, container.image.tag]
  labels: [{ key: team, tag_name: team }]
";

/// The tags of a line of this file.
fn tag(pods: &Snapshot<Record>, path: &str) -> String {
    let Ok(identity) = Identity::parse(path) else { return "not a pod's".to_owned() };
    // The UID in the path distinguishes the pod from a newer pod with the same name.
    match (identity.resolve(pods), identity) {
        (Some(found), _) => {
            let container = found.container.and_then(|name| found.pod.container(name));
            let run = container.and_then(|container| container.latest());
            // They were made when the pod was written: this only walks over them.
            let tags: Vec<_> = found.pod.attributes_of(container, run).map(ToString::to_string).collect();
            let gone = if found.removed_at.is_some() { ", gone" } else { "" };
            tags.join(" ") + gone
        }
        // The pod was removed too long ago, or before the agent started. The path contains its name, but no labels.
        (None, Identity::PodLog(log)) => format!("{}/{}, unknown", log.namespace, log.name),
        _ => "unknown".to_owned(),
    }
}

/// In an agent, a source does this.
fn add(
    join: &mut Join,
    writer: &mut Writer<Record>,
    uid: &str,
    team: &str,
) -> Result<(), Box<dyn std::error::Error>> {
    let container = serde_json::json!({ "name": "nginx", "image": "registry.example:5000/nginx:1.29" });
    let pod = serde_json::json!({
        "metadata": { "name": "web-0", "namespace": "shop", "uid": uid, "labels": { "team": team } },
        "spec": { "containers": [container] },
    });
    let pod = serde_json::from_value::<Pod>(pod)?;
    let applied = join.write(writer, [Change::Pod(Operation::Upsert(pod.into()))]);
    assert!(applied.refused.is_empty());
    Ok(())
}

fn run() -> Result<Vec<String>, Box<dyn std::error::Error>> {
    // Keep removed pods for a minute, and at most 10,000 of them.
    let options = Options::new().keep_removed(Duration::from_secs(60), 10_000);
    let (mut writer, reader) = pod_index::with_options(options);
    let mut join = Join::new(Rules::parse(RULES)?.extract);
    // On the thread that reads the files.
    let mut pods = reader.cached();
    let first = "/var/log/pods/shop_web-0_u-1/nginx/0.log";
    let second = "/var/log/pods/shop_web-0_u-2/nginx/0.log";

    add(&mut join, &mut writer, "u-1", "checkout")?;
    let mut lines = vec![tag(pods.load(), first)];
    // A StatefulSet replaces its pod by another one with the same name.
    let _ = join.write(&mut writer, [Change::Pod(Operation::Remove("u-1".into()))]);
    add(&mut join, &mut writer, "u-2", "search")?;
    lines.extend([first, second].map(|path| tag(pods.load(), path)));
    // A minute later. The writer's loop wakes up at this time; here it does not wait.
    if let Some(deadline) = writer.next_deadline() {
        writer.advance(Moment::new(deadline, SystemTime::now()));
    }
    lines.extend([first, "/var/log/syslog"].map(|path| tag(pods.load(), path)));
    Ok(lines)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    run()?.iter().for_each(|line| println!("{line}"));
    Ok(())
}

#[cfg(test)]
#[test]
fn every_line_gets_its_attributes() {
    let of = |team: &str| {
        format!(
            "k8s.pod.name=web-0 k8s.namespace.name=shop team={team} container.image.tag=1.29 k8s.container.name=nginx"
        )
    };
    let expected = [
        of("checkout"),
        of("checkout") + ", gone",
        of("search"),
        "shop/web-0, unknown".to_owned(),
        "not a pod's".to_owned(),
    ];
    assert_eq!(run().expect("no error"), expected);
}
