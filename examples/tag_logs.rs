//! Tags the lines of log files with their pods, by the paths of the files. `cargo run --example tag_logs`
//!
//! A collector may read the last lines of a file after the pod was removed. So the index keeps removed pods for a
//! while.

use std::time::{Duration, SystemTime};

use k8s_openapi::api::core::v1::Pod;
use pod_index::identity::Identity;
use pod_index::{Moment, Options, PodMeta, Snapshot, Writer};

/// The tags of a line of this file.
fn tag(pods: &Snapshot<Pod>, path: &str) -> String {
    let Ok(identity) = Identity::parse(path) else { return "not a pod's".to_owned() };
    // The UID in the path distinguishes the pod from a newer pod with the same name.
    match (identity.resolve(pods), identity) {
        (Some(found), _) => {
            let team = found.pod.metadata.labels.as_ref().and_then(|labels| labels.get("team"));
            let gone = if found.removed_at.is_some() { ", gone" } else { "" };
            format!(
                "{}/{} of team {}, {}{gone}",
                found.pod.namespace(),
                found.pod.name(),
                team.map_or("?", String::as_str),
                found.container.unwrap_or("?"),
            )
        }
        // The pod was removed too long ago, or before the agent started. The path contains its name, but no labels.
        (None, Identity::PodLog(log)) => format!("{}/{}, unknown", log.namespace, log.name),
        _ => "unknown".to_owned(),
    }
}

fn run() -> Result<Vec<String>, Box<dyn std::error::Error>> {
    // Keep removed pods for a minute, and at most 10,000 of them.
    let options = Options::new().keep_removed(Duration::from_secs(60), 10_000);
    let (mut writer, reader) = pod_index::with_options(options);
    // On the thread that reads the files.
    let mut pods = reader.cached();
    let first = "/var/log/pods/shop_web-0_u-1/nginx/0.log";
    let second = "/var/log/pods/shop_web-0_u-2/nginx/0.log";

    add(&mut writer, "u-1", "checkout")?;
    let mut lines = vec![tag(pods.load(), first)];
    // A StatefulSet replaces its pod by another one with the same name.
    writer.remove_pod_by_uid("u-1");
    add(&mut writer, "u-2", "search")?;
    lines.extend([first, second].map(|path| tag(pods.load(), path)));
    // A minute later. The writer's loop wakes up at this time; here it does not wait.
    if let Some(deadline) = writer.next_deadline() {
        writer.advance(Moment::new(deadline, SystemTime::now()));
    }
    lines.extend([first, "/var/log/syslog"].map(|path| tag(pods.load(), path)));
    Ok(lines)
}

/// In an agent, a source does this.
fn add(writer: &mut Writer<Pod>, uid: &str, team: &str) -> Result<(), Box<dyn std::error::Error>> {
    let metadata =
        serde_json::json!({"name": "web-0", "namespace": "shop", "uid": uid, "labels": {"team": team}});
    writer.add_pod(serde_json::from_value::<Pod>(serde_json::json!({ "metadata": metadata }))?)?;
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    run()?.iter().for_each(|line| println!("{line}"));
    Ok(())
}

#[cfg(test)]
#[test]
fn every_line_gets_its_pod() {
    let expected = [
        "shop/web-0 of team checkout, nginx",
        "shop/web-0 of team checkout, nginx, gone",
        "shop/web-0 of team search, nginx",
        "shop/web-0, unknown",
        "not a pod's",
    ];
    assert_eq!(run().expect("no error"), expected);
}
