//! Bytes on the wire: a watch compared with clients that poll the list. The documents quote the numbers.

use std::io::Read;

use super::*;

/// The number of changes. In the documents, there is one per second.
const CHANGES: usize = 30;

/// About 4 kB of JSON, with this many changes so far.
fn large(name: &str, change: usize) -> Value {
    let env: Vec<_> = (0..40)
        .map(|n| json!({ "name": format!("VARIABLE_{n}"), "value": format!("value {n} of {name}") }))
        .collect();
    let mut pod = pod("shop", name, &json!({ "app": "web", "change": change.to_string() }));
    pod["spec"]["containers"][0]["env"] = env.into();
    pod
}

/// All bytes of a response, its head included.
fn bytes(agent: &Agent, path: &str, headers: &str) -> usize {
    let mut stream = TcpStream::connect(agent.address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n").unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap()
}

/// The bytes of a watch until it has sent this many events.
fn watched(stream: &mut TcpStream, events: usize) -> usize {
    let (mut all, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    // Each event is one line of JSON. No line of the chunked encoding ends like one.
    while all.windows(3).filter(|bytes| bytes == b"}}\n").count() < events {
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "the watch has ended");
        all.extend_from_slice(&buffer[..read]);
    }
    all.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_costs_a_watch_one_pod_and_a_client_that_polls_all_of_them() {
    for pods in [110, 10_000] {
        let world = World::new().await;
        world.server.put_all("pods", (0..pods).map(|n| large(&format!("web-{n}"), 0)));
        world.agent.until_within(4 * PATIENCE, "/metrics", |answer| {
            crate::metrics::value(&answer.body, "pod_index_desired_pods{static=\"\"}") == pods
        });
        let list = bytes(&world.agent, "/pods", "");
        let compressed = bytes(&world.agent, "/pods", "Accept-Encoding: gzip\r\n");
        let open = |query: &str, headers: &str| {
            let mut stream = TcpStream::connect(world.agent.address).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let from = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
            write!(
                stream,
                "GET /api/v1/pods?watch=1&{from}{query} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"
            )
            .unwrap();
            stream
        };
        let (mut all, mut metadata, mut one) =
            (open("", ""), open("", PARTIAL), open("&fieldSelector=metadata.name%3Dweb-0", ""));
        world.agent.until("/metrics", |answer| crate::metrics::value(&answer.body, "pod_index_watches") == 3);
        for change in 1..=CHANGES {
            let name = format!("web-{}", change % 10);
            world.server.put("pods", &large(&name, change));
            let of = format!("labelSelector=change%3D{change}");
            world.until(&of, 1);
        }
        let (all, metadata) = (watched(&mut all, CHANGES), watched(&mut metadata, CHANGES));
        let one = watched(&mut one, CHANGES / 10);
        println!(
            "{pods} pods, {CHANGES} changes in {CHANGES} s: polling /pods each second {}, each 15 s {} (gzip: {}, {}); \
             watching all {all}, metadata {metadata}, one pod in ten changes {one} bytes",
            list * CHANGES,
            list * CHANGES / 15,
            compressed * CHANGES,
            compressed * CHANGES / 15,
        );
        assert!(all < CHANGES * list / 50, "{all} bytes for {CHANGES} changes; a list has {list}");
        assert!(metadata < all / 2 && one < all / 5, "{metadata} and {one} of {all} bytes");
    }
}
