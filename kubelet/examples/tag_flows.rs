//! Tags network flows with their workloads, by IP, although IPs are reused. `cargo run -p pod-index-kubelet --example
//! tag_flows`

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;
use pod_index::{CachedReader, Operation, PodMeta, Writer};
use pod_index_kubelet::records::{Change, Extract, Join, Record};

/// The state of the thread that reads the flows.
struct Tagger(CachedReader<Record>);

impl Tagger {
    /// Both ends of a flow, from one snapshot. What a record says was joined when it was written: nothing is made here.
    ///
    /// An IP finds the pod that has it now. If flows arrive late, a flow of a removed pod may be attributed to the
    /// next pod with its IP. To detect this, ask for the pod at the flow's time: see `Snapshot::at`.
    fn tag(&mut self, source: IpAddr, destination: IpAddr) -> String {
        let records = self.0.load();
        let [source, destination] = [source, destination].map(|ip| match records.pod_by_ip(ip) {
            Some(record) => match record.workload() {
                Some(workload) => format!("{} {}/{}", workload.kind, record.namespace(), workload.name),
                None => format!("{}/{}", record.namespace(), record.name()),
            },
            // A node, a service, an external address, or a pod in its node's network.
            None => ip.to_string(),
        });
        format!("{source} -> {destination}")
    }
}

/// The side that writes.
struct Index {
    writer: Writer<Record>,
    join: Join,
}

impl Index {
    /// In an agent, a source does this.
    fn add(
        &mut self,
        name: &str,
        second: u8,
        phase: &str,
        ip: IpAddr,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let owner = match name.rsplit_once('-') {
            Some((job, _)) => {
                serde_json::json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": true }])
            }
            None => serde_json::json!([]),
        };
        let pod = serde_json::json!({
            "metadata": {
                "name": name, "namespace": "shop", "uid": name, "ownerReferences": owner,
                "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
            },
            "spec": { "containers": [], "hostNetwork": name == "proxy" },
            "status": { "phase": phase, "podIP": ip, "podIPs": [{ "ip": ip }] },
        });
        let pod = serde_json::from_value::<Pod>(pod)?;
        let applied = self.join.write(&mut self.writer, [Change::Pod(Operation::Upsert(pod.into()))]);
        assert!(applied.refused.is_empty());
        Ok(())
    }

    fn remove(&mut self, name: &str) {
        let _ = self.join.write(&mut self.writer, [Change::Pod(Operation::Remove(name.into()))]);
    }
}

fn run() -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let (writer, reader) = pod_index::new();
    let mut index = Index { writer, join: Join::new(Extract::default()) };
    let mut tagger = Tagger(reader.cached());
    let web: IpAddr = "10.0.0.7".parse()?;
    let job: IpAddr = "10.0.0.8".parse()?;
    let node: IpAddr = "192.168.0.1".parse()?;
    // IPv4 as reported by a dual-stack socket.
    let mapped: IpAddr = "::ffff:10.0.0.7".parse()?;

    index.add("web", 1, "Running", web)?;
    index.add("proxy", 1, "Running", node)?;
    index.add("backup-29123456-x", 1, "Running", job)?;
    let mut lines = vec![tagger.tag(job, web), tagger.tag(mapped, node)];

    // A finished pod keeps the IP in its status. If another pod has the IP already, that pod gets the flows.
    index.add("backup-29123456-x", 1, "Succeeded", job)?;
    index.add("import-y", 2, "Running", job)?;
    lines.push(tagger.tag(job, web));

    index.remove("import-y");
    lines.push(tagger.tag(job, web));
    index.remove("backup-29123456-x");
    lines.push(tagger.tag(job, web));
    Ok(lines)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    run()?.iter().for_each(|line| println!("{line}"));
    Ok(())
}

#[cfg(test)]
#[test]
fn every_flow_gets_its_workloads() {
    let expected = [
        "CronJob shop/backup -> shop/web",
        "shop/web -> 192.168.0.1",
        "Job shop/import -> shop/web",
        // No other pod has the IP, so the flow belongs to the finished pod.
        "CronJob shop/backup -> shop/web",
        "10.0.0.8 -> shop/web",
    ];
    assert_eq!(run().expect("no error"), expected);
}
