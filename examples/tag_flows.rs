//! Tags network flows with their pods, by IP, although IPs are reused. `cargo run --example tag_flows`

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;
use pod_index::{CachedReader, PodMeta, Writer};

/// The state of the thread that reads the flows.
struct Tagger(CachedReader<Pod>);

impl Tagger {
    /// Both ends of a flow, from one snapshot.
    ///
    /// An IP finds the pod that has it now. If flows arrive late, a flow of a removed pod may be attributed to the
    /// next pod with its IP. To detect this, compare the flow's time with the pod's `creation_timestamp`.
    fn tag(&mut self, source: IpAddr, destination: IpAddr) -> String {
        let pods = self.0.load();
        let [source, destination] = [source, destination].map(|ip| match pods.pod_by_ip(ip) {
            Some(pod) => format!("{}/{}", pod.namespace(), pod.name()),
            // A node, a service, an external address, or a pod in its node's network.
            None => ip.to_string(),
        });
        format!("{source} -> {destination}")
    }
}

fn run() -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let (mut writer, reader) = pod_index::new();
    let mut tagger = Tagger(reader.cached());
    let web: IpAddr = "10.0.0.7".parse()?;
    let job: IpAddr = "10.0.0.8".parse()?;
    let node: IpAddr = "192.168.0.1".parse()?;
    // IPv4 as reported by a dual-stack socket.
    let mapped: IpAddr = "::ffff:10.0.0.7".parse()?;

    add(&mut writer, "web-0", 1, "Running", web, false)?;
    add(&mut writer, "proxy", 1, "Running", node, true)?;
    add(&mut writer, "job-1", 1, "Running", job, false)?;
    let mut lines = vec![tagger.tag(job, web), tagger.tag(mapped, node)];

    // A finished pod keeps the IP in its status. If another pod has the IP already, that pod gets the flows.
    add(&mut writer, "job-1", 1, "Succeeded", job, false)?;
    add(&mut writer, "job-2", 2, "Running", job, false)?;
    lines.push(tagger.tag(job, web));

    writer.remove_pod_by_uid("job-2");
    lines.push(tagger.tag(job, web));
    writer.remove_pod_by_uid("job-1");
    lines.push(tagger.tag(job, web));
    Ok(lines)
}

/// In an agent, a source does this.
fn add(
    writer: &mut Writer<Pod>,
    name: &str,
    second: u8,
    phase: &str,
    ip: IpAddr,
    host_network: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let created = format!("2026-01-01T00:00:{second:02}Z");
    let pod = serde_json::json!({
        "metadata": {"name": name, "namespace": "shop", "uid": name, "creationTimestamp": created},
        "spec": {"containers": [], "hostNetwork": host_network},
        "status": {"phase": phase, "podIP": ip, "podIPs": [{"ip": ip}]},
    });
    writer.add_pod(serde_json::from_value::<Pod>(pod)?)?;
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    run()?.iter().for_each(|line| println!("{line}"));
    Ok(())
}

#[cfg(test)]
#[test]
fn every_flow_gets_its_pods() {
    let expected = [
        "shop/job-1 -> shop/web-0",
        "shop/web-0 -> 192.168.0.1",
        "shop/job-2 -> shop/web-0",
        // No other pod has the IP, so the flow belongs to the finished pod.
        "shop/job-1 -> shop/web-0",
        "10.0.0.8 -> shop/web-0",
    ];
    assert_eq!(run().expect("no error"), expected);
}
