//! Tags the lines of log files with their pods, by the paths of the files. `cargo run --example tag_logs`
//!
//! A collector may read the last lines of a file after the pod was removed. So it keeps the pod as long as it follows
//! the file.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use pod_index::identity::Identity;
use pod_index::{CachedReader, PodMeta, Writer};

/// The state of the thread that reads the files.
struct Tagger {
    pods: CachedReader<Pod>,
    /// The last known pod of each file that is being followed. It costs a reference, not a copy.
    files: HashMap<String, Arc<Pod>>,
}

impl Tagger {
    /// The tags of the next line of this file.
    fn tag(&mut self, path: &str) -> String {
        let Ok(identity) = Identity::parse(path) else { return "not a pod's".to_owned() };
        let pods = self.pods.load();
        // The UID in the path distinguishes the pod from a newer pod with the same name.
        if let Some(found) = identity.resolve(pods) {
            let tags = format!("{}, {}", tags(found.pod), found.container.unwrap_or("?"));
            // Allocates only for the first line of a file.
            if let Some(pod) = self.files.get_mut(path) {
                pod.clone_from(found.pod);
            } else {
                self.files.insert(path.to_owned(), Arc::clone(found.pod));
            }
            return tags;
        }
        match (self.files.get(path), identity) {
            (Some(gone), _) => format!("{}, gone", tags(gone)),
            // The agent started after the pod was removed. The path contains the pod's name, but no labels.
            (None, Identity::PodLog(log)) => format!("{}/{}, never seen", log.namespace, log.name),
            _ => "unknown".to_owned(),
        }
    }

    /// The file has been read to its end and removed.
    fn close(&mut self, path: &str) {
        self.files.remove(path);
    }
}

fn tags(pod: &Pod) -> String {
    let team = pod.metadata.labels.as_ref().and_then(|labels| labels.get("team"));
    format!("{}/{} of team {}", pod.namespace(), pod.name(), team.map_or("?", String::as_str))
}

fn run() -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let (mut writer, reader) = pod_index::new();
    let mut tagger = Tagger { pods: reader.cached(), files: HashMap::new() };
    let first = "/var/log/pods/shop_web-0_u-1/nginx/0.log";
    let second = "/var/log/pods/shop_web-0_u-2/nginx/0.log";

    add(&mut writer, "u-1", "checkout")?;
    let mut lines = vec![tagger.tag(first)];
    // A StatefulSet replaces its pod by another one with the same name.
    writer.remove_pod_by_uid("u-1");
    add(&mut writer, "u-2", "search")?;
    lines.extend([tagger.tag(first), tagger.tag(second)]);
    tagger.close(first);
    lines.extend([tagger.tag(first), tagger.tag("/var/log/syslog")]);
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
        "shop/web-0 of team checkout, gone",
        "shop/web-0 of team search, nginx",
        "shop/web-0, never seen",
        "not a pod's",
    ];
    assert_eq!(run().expect("no error"), expected);
}
