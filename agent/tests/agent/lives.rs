//! One agent after another, each ended by SIGTERM during its work: nothing is left behind, no pod is lost, and open
//! requests are answered completely.
//!
//! Ten runs; `POD_INDEX_LIVES=100` for a hundred.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;
use pod_index_test_support::files;
use serde_json::json;

use crate::api::{kubeconfig, pod};
use crate::api_server::ApiServer;
use crate::restart::of_files;
use crate::support::{Agent, Answer, Directory, PATIENCE, Stop, binary, manifest};

/// Manifests that stay, manifests that are added and removed, and pods of the API server.
const STAY: usize = 40;
const CHURN: usize = 12;
const OF_THE_SERVER: usize = 10;

/// What the agent says before it exits with 3.
const ENDED_AT_ONCE: &str = "the agent does not end by itself, exiting at once";

/// What the agent says if the time of its shutdown was too short.
const LATE: [&str; 3] = [
    ENDED_AT_ONCE,
    "closing connections that did not end",
    "shutting down without writing the last checkpoints",
];

/// What the clients received in all runs.
#[derive(Debug, Default)]
struct Tally {
    lists: AtomicUsize,
    manifests: AtomicUsize,
    /// The answers of the present run that were cut off.
    cut_off: Mutex<Vec<String>>,
}

impl Tally {
    fn count(counter: &AtomicUsize) -> usize {
        counter.fetch_add(1, Ordering::Relaxed)
    }

    fn of(counter: &AtomicUsize) -> usize {
        counter.load(Ordering::Relaxed)
    }
}

/// The complete response, if there is one. A partial one is counted.
fn ask(agent: SocketAddr, path: &str, tally: &Tally) -> Option<Answer> {
    let mut stream = TcpStream::connect(agent).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: l\r\nConnection: close\r\n\r\n").ok()?;
    let mut bytes = Vec::new();
    let end = stream.read_to_end(&mut bytes);
    if bytes.is_empty() {
        return None;
    }
    let head_end = bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n").map(|start| start + 4);
    let is_whole = end.is_ok()
        && head_end.is_some_and(|head_end| {
            let head = String::from_utf8_lossy(&bytes[..head_end]);
            let mut lengths = head.lines().filter_map(|line| line.strip_prefix("content-length: "));
            let length = lengths.next().and_then(|length| length.parse::<usize>().ok());
            length.map_or(bytes.ends_with(b"\r\n0\r\n\r\n"), |length| bytes.len() == head_end + length)
        });
    if !is_whole {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
        let line = format!("{path}: {end:?}, {} bytes, and not the end, of {text}", bytes.len());
        tally.cut_off.lock().unwrap().push(line);
        return None;
    }
    Some(Answer::read(&*bytes))
}

fn names(list: &List<Pod>) -> BTreeSet<String> {
    let names: BTreeSet<_> = list.items.iter().map(|pod| pod.name().to_owned()).collect();
    assert_eq!(names.len(), list.items.len(), "no pod twice");
    names
}

/// The names of the pods with existing manifests, and of the server's.
fn expected(manifests: &Path) -> BTreeSet<String> {
    let of_files = files::names(manifests).into_iter().map(|file| file.replace(".yaml", "-node-1"));
    of_files.chain((0..OF_THE_SERVER).map(|number| format!("server-{number}"))).collect()
}

/// Agents and their child processes: all inherit the directory of temporary files.
fn processes(temporary: &Path) -> Vec<String> {
    let variable = format!("TMPDIR={}\0", temporary.display());
    let entries = fs::read_dir("/proc").unwrap().map_while(Result::ok).map(|entry| entry.path());
    let ours = entries.filter(|process| {
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(&variable)
    });
    ours.map(|process| format!("{}: {:?}", process.display(), fs::read_to_string(process.join("cmdline"))))
        .collect()
}

/// Number of the agent's descriptors and threads, and its memory in KiB.
fn held(agent: &Agent) -> (usize, usize, u64) {
    let count = |name: &str| fs::read_dir(format!("/proc/{}/{name}", agent.pid())).unwrap().count();
    (count("fd"), count("task"), agent.kib("VmRSS"))
}

/// The agent is gone or not running yet.
fn pause() {
    std::thread::sleep(Duration::from_millis(2));
}

/// Lookups, lists and manifests without a pause, until stopped. The agent may end meanwhile.
fn load(agent: SocketAddr, manifests: &Directory, stay: &BTreeSet<String>, tally: &Tally, stop: &Stop) {
    let until_stopped = |work: &(dyn Fn(usize) + Sync)| {
        let mut turn = 0;
        while !stop.is_set() {
            work(turn);
            turn += 1;
        }
    };
    let look_up = |turn: usize| {
        let number = turn % STAY;
        match ask(agent, &format!("/pods/default/stays-{number}-node-1"), tally) {
            Some(answer) => {
                assert_eq!(answer.code, 200, "stays-{number} is missing: {}", answer.body);
            }
            None => pause(),
        }
    };
    let list = |_| match ask(agent, "/pods", tally) {
        // On a busy machine, the last publication may not be in the history yet. The client is to ask again.
        Some(answer) if answer.code == 503 => pause(),
        Some(answer) => {
            let missing: Vec<_> = stay.difference(&names(&answer.json())).cloned().collect();
            assert_eq!(missing, [""; 0], "not in /pods");
            Tally::count(&tally.lists);
        }
        None => pause(),
    };
    let write = |_| {
        let turn = Tally::count(&tally.manifests);
        let name = format!("churn-{}", turn % CHURN);
        let file = format!("{name}.yaml");
        if turn / CHURN % 3 == 2 {
            fs::remove_file(manifests.0.join(file)).unwrap();
        } else {
            manifests.write(&file, &manifest(&name).replace("nginx", &format!("nginx:{turn}")));
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    std::thread::scope(|scope| {
        for work in [&look_up as &(dyn Fn(usize) + Sync), &look_up, &list, &write] {
            scope.spawn(move || until_stopped(work));
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_runs_under_load_leave_nothing_behind_and_lose_no_pod() {
    let lives: usize = std::env::var("POD_INDEX_LIVES").map_or(10, |lives| lives.parse().unwrap());
    let server = ApiServer::start().await;
    for number in 0..OF_THE_SERVER {
        server.put("pods", &pod(&format!("server-{number}"), "node-1", &json!({})));
    }
    let (manifests, scratch) = (Directory::new(), Directory::new());
    // A megabyte in total, so a list is always in transit.
    let note = "x".repeat(25_000);
    for number in 0..STAY {
        let text = manifest(&format!("stays-{number}"))
            .replace("metadata: {", &format!("metadata: {{annotations: {{note: {note}}}, "));
        manifests.write(&format!("stays-{number}.yaml"), &text);
    }
    let stay = expected(&manifests.0);
    let (checkpoints, temporary) = (scratch.0.join("checkpoints"), scratch.0.join("tmp"));
    fs::create_dir(&temporary).unwrap();
    let kubeconfig = kubeconfig(&scratch, &server);
    let args = format!("--kubeconfig {kubeconfig} {}", of_files(&manifests.0, &checkpoints));
    let tally = Tally::default();
    let mut of_first_life = None;
    let mut in_time = 0;

    for life in 1..=lives {
        let mut command = binary(&args);
        command.env("TMPDIR", &temporary);
        let mut agent = Agent::spawn(command);
        let living = processes(&temporary);
        assert_eq!(living.len(), 1, "life {life}: only the agent itself is found: {living:?}");
        // Every fifth is stopped before it has read its pods.
        if life % 5 != 0 {
            agent.has("/readyz");
            assert_eq!(names(&agent.has("/pods").json()), expected(&manifests.0), "life {life}");
            let held = held(&agent);
            let (descriptors, threads, memory) = of_first_life.get_or_insert(held);
            assert!(held.0 <= *descriptors + 8 && held.1 <= *threads + 8, "life {life}: {held:?}");
            assert!(held.2 < *memory * 2, "life {life}: {held:?}, the first {memory} KiB");
        }
        let stop = Stop::default();
        let address = agent.address;
        let mut code = None;
        std::thread::scope(|scope| {
            let _end = stop.at_the_end();
            let loading = scope.spawn(|| load(address, &manifests, &stay, &tally, &stop));
            if life % 5 != 0 {
                let (lists, written) = (Tally::of(&tally.lists) + 3, Tally::of(&tally.manifests) + 10);
                let deadline = Instant::now() + PATIENCE;
                while Tally::of(&tally.lists) < lists || Tally::of(&tally.manifests) < written {
                    assert!(Instant::now() < deadline && !loading.is_finished(), "life {life}: {tally:?}");
                    agent.must_live();
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            agent.signal("TERM");
            code = agent.wait();
        });
        // The time of a shutdown is limited. On a busy machine it may be too short for open requests, for the last checkpoints,
        // or for the end at all. The agent then says so, and cuts off what is open; one checkpoint may be half written.
        let log = agent.whole_log();
        let says = |words: &str| log.iter().any(|line| line.contains(words));
        let is_late = LATE.iter().any(|words| says(words));
        let expected = if says(ENDED_AT_ONCE) { 3 } else { 0 };
        assert_eq!(code, Some(expected), "life {life}: {:?}", log.last());
        let cut_off = std::mem::take(&mut *tally.cut_off.lock().unwrap());
        assert!(is_late || cut_off.is_empty(), "life {life}: {cut_off:?}");

        // Nothing listens there, so the address is free. Clients' connections may linger in TIME_WAIT.
        drop(TcpListener::bind(address).unwrap_or_else(|error| panic!("life {life}: {address}: {error}")));
        assert_eq!(processes(&temporary), [""; 0], "life {life}");
        server.watched_by(0).await;
        assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "life {life}: files in $TMPDIR");
        if life % 5 != 0 && !is_late {
            in_time += 1;
            let kept = files::names(&checkpoints);
            let is_of_pod = |name: &String| name.starts_with("Pod_") && name.strip_suffix(".yaml").is_some();
            assert!(kept.iter().all(is_of_pod), "life {life}: a file that is no checkpoint among {kept:?}");
            assert!((stay.len()..=stay.len() + CHURN).contains(&kept.len()), "life {life}: {}", kept.len());
        }
    }
    assert!(in_time > 0, "no agent wrote its last checkpoints");
}
