//! A simulated node and its events.

use std::error::Error;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;
use std::{env, fs, io, process};

use k8s_openapi::api::core::v1::Pod;

use crate::tagger::{Event, Tagger};

const WEB: &str = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
const NGINX: &str = "3e5f0b1c3e5f0b1c3e5f0b1c3e5f0b1c3e5f0b1c3e5f0b1c3e5f0b1c3e5f0b1c";
const STARTING: &str = "7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a";

/// Each event and its tag.
pub(crate) fn run() -> Result<Vec<String>, Box<dyn Error>> {
    // In an agent, a source does this.
    let (mut writer, reader) = pod_index::new();
    writer.upsert_pod(web()?)?;

    let node = Node::new()?;
    let mut tagger = Tagger::new(&reader, &node.path("proc"), &node.path("cgroup"))?;
    let second = Duration::from_secs(1);
    let root = 1;
    let nginx = node.process(11, second, &format!("kubepods/burstable/pod{WEB}/{NGINX}"))?;
    let starting = node.process(12, second, &format!("kubepods/burstable/pod{WEB}/{STARTING}"))?;
    node.process(13, 2 * second, "system.slice/sshd.service")?;
    let events = [
        Event { what: "open", cgroup_id: nginx, pid: 11, started: second },
        Event { what: "exec", cgroup_id: starting, pid: 12, started: second },
        Event { what: "connect, cgroup v1", cgroup_id: root, pid: 11, started: second },
        Event { what: "accept", cgroup_id: root, pid: 13, started: 2 * second },
        Event { what: "exit, of another 13", cgroup_id: root, pid: 13, started: second },
    ];
    events.iter().map(|event| Ok(format!("{}: {}", event.what, tagger.tag(event)?))).collect()
}

fn web() -> serde_json::Result<Pod> {
    serde_json::from_value(serde_json::json!({
        "metadata": {"name": "web-0", "namespace": "shop", "uid": WEB},
        "status": {"containerStatuses": [{
            "name": "nginx", "containerID": format!("containerd://{NGINX}"),
            "image": "", "imageID": "", "ready": true, "restartCount": 0,
        }]},
    }))
}

/// Directories with the structure of a node's.
struct Node(PathBuf);

impl Node {
    fn new() -> io::Result<Self> {
        let node = Self(env::temp_dir().join(format!("tag-events-{}", process::id())));
        fs::create_dir_all(node.0.join("cgroup"))?;
        fs::create_dir_all(node.0.join("proc"))?;
        Ok(node)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Creates a process and its cgroup. Returns the cgroup ID.
    fn process(&self, pid: u32, started: Duration, cgroup: &str) -> io::Result<u64> {
        let directory = self.0.join("cgroup").join(cgroup);
        let proc = self.0.join(format!("proc/{pid}"));
        fs::create_dir_all(&directory)?;
        fs::create_dir_all(&proc)?;
        // The start time is field 22, in clock ticks of 10 ms.
        let stat = format!("{pid} (name) S{} {}\n", " 0".repeat(18), started.as_millis() / 10);
        fs::write(proc.join("stat"), stat)?;
        fs::write(proc.join("cgroup"), format!("0::/{cgroup}\n"))?;
        Ok(fs::metadata(directory)?.ino())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
#[test]
fn every_event_gets_its_pod() {
    let expected = [
        "open: shop/web-0, nginx",
        "exec: shop/web-0, a container without a status",
        "connect, cgroup v1: shop/web-0, nginx",
        "accept: the host",
        "exit, of another 13: a process that has ended",
    ];
    assert_eq!(run().expect("no error"), expected);
}
