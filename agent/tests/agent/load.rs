//! Long lists and the agent's memory.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::json;

use crate::api::{following, pod};
use crate::api_server::ApiServer;
use crate::life::fill;
use crate::support::{Agent, Directory, PATIENCE};

/// Requests and reads to the end, ignoring the content. Returns the number of bytes.
fn download(agent: SocketAddr) -> usize {
    let mut stream = TcpStream::connect(agent).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET /pods HTTP/1.1\r\nHost: l\r\nConnection: close\r\n\r\n").unwrap();
    let (mut buffer, mut bytes) = (vec![0; 1 << 18], 0);
    loop {
        match stream.read(&mut buffer).unwrap() {
            0 => return bytes,
            read => bytes += read,
        }
    }
}

/// A list that is written before it is sent takes its size in memory, for each client.
#[test]
fn a_long_list_is_sent_in_parts_and_never_whole_in_memory() {
    let directory = Directory::new();
    fill(&directory);
    let agent = Agent::on(&directory.0);
    let bytes = download(agent.address);
    std::fs::write(format!("/proc/{}/clear_refs", agent.pid()), "5").unwrap();
    let before = agent.kib("VmRSS");
    std::thread::scope(|scope| {
        let downloads: Vec<_> = (0..4).map(|_| scope.spawn(|| download(agent.address))).collect();
        assert!(downloads.into_iter().all(|download| download.join().unwrap() == bytes));
    });
    // The kernel counts the two a little apart, and an agent may need less than before.
    let grown = agent.kib("VmHWM").saturating_sub(before) / 1024;
    let whole = (bytes >> 20) as u64;
    assert!(whole >= 16 && grown < whole / 2, "{grown} MiB for four lists of {whole} MiB");
}

/// Decoded, it would take 30 times its JSON. Whoever may create and label one pod must not end the agent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_of_a_hundred_thousand_parts_is_named_and_found_and_takes_little_memory() {
    let (server, directory) = (ApiServer::start().await, Directory::new());
    let mut large = pod("large", "node-1", &json!({}));
    large["spec"]["containers"][0]["env"] = vec![json!({ "name": "a" }); 107_000].into();
    large["status"] = json!({ "podIP": "10.9.8.7" });
    server.put("pods", &large);
    let agent = following(&server, &directory, "");
    agent.wait_for_log("default/large");
    for change in 0..20 {
        let label = format!("change-{change}");
        large["metadata"]["labels"] = json!({ "app": label });
        server.put("pods", &large);
        let is_found = |body: &str| body.contains(r#""found":true"#) && body.contains(&label);
        agent.until("/whois?q=10.9.8.7", |answer| is_found(&answer.body));
    }
    let most = agent.kib("VmHWM") / 1024;
    assert!(most < 64, "{most} MiB");
}
