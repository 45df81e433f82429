//! Instructions of the agent, counted by callgrind: of requests, and of the start. A busy machine hardly changes a count, so
//! CI can check it, which it cannot do with a time.
//!
//! Each test fails above 101 % of the recorded count. Counts differed by 0.1 % on a machine with a load of 13 on two cores, and
//! by 0.5 % with a load of 100; a build of CI, in another directory and without debug information, had the same. If your change
//! is worth its cost, or saves something, record the new count here: the median of five runs. The count depends on the compiler
//! and on the C library, and hardly on the processor: valgrind shows programs one of its own.
//!
//! The program is the one of the other tests, so it is not optimised: another build of all crates takes minutes. A count
//! therefore says how much work there is, and not how long that takes. What the standard library does counts too little beside
//! the agent's own code, because the library is optimised: two searches of each query, 4 % of an optimised batch, are 1.6 %
//! here. That is why the bound is narrow. Two things do not show at all: time spent in waiting, for a lock, a turn or the network,
//! and work that grows faster than the number of pods, because there are few pods here.
//!
//! Where are the instructions? Each test leaves a file: `callgrind_annotate --inclusive=yes target/tmp/callgrind.GET.out`

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use crate::support::{Agent, Directory, node_1, started_by, stderr, stdout, succeeded};

/// Polled for all that happens on a connection: requests are read, answered and written in it.
const CONNECTION: &str = "pod_index_agent::http::serve::connection::serve::{{closure}}";
/// Reads and decodes the manifests.
const LIST: &str = "pod_index_kubelet::sources::file::source::Look::list";
/// Merges the pods of the sources, and writes them to the index.
const PUBLISH: &str = "pod_index_agent::pipeline::writer::Work::publish";

/// `callgrind` on an agent of these manifests. It counts what happens in these functions, including all that they call, and
/// leaves a file with this name.
fn counting(name: &str, functions: &[&str], manifests: &Directory, flags: &str) -> Command {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("callgrind.{name}.out"));
    let file = format!("--callgrind-out-file={}", file.display());
    let toggles: Vec<_> = functions.iter().map(|function| format!("--toggle-collect={function}")).collect();
    let mut callgrind = vec!["valgrind", "--tool=callgrind", &file];
    callgrind.extend(toggles.iter().map(String::as_str));
    let mut command = started_by(&callgrind, &format!("{} {flags}", node_1(&manifests.0)));
    // The allocator keeps all freed chunks of up to 1 KB for the next requests. Otherwise, it merges them with some seeds of the
    // hashes, and the count differs from run to run.
    command.env("GLIBC_TUNABLES", "glibc.malloc.tcache_count=65535");
    command
}

/// The number that callgrind prints at its end.
fn collected(log: &str) -> u64 {
    let count = log.split("Collected :").nth(1).unwrap_or_else(|| panic!("no count in {log}"));
    count.split_whitespace().next().unwrap().parse().unwrap()
}

/// Fails above 101 % of the recorded instructions. Also below 90 %: a function that should be counted may have another name now.
#[track_caller]
fn assert_at_most(recorded: u64, counted: u64) {
    println!("{counted} instructions, recorded: {recorded}");
    assert!(counted <= recorded + recorded / 100, "{counted} instructions are more than 101 % of {recorded}");
    assert!(
        counted >= recorded / 10 * 9,
        "{counted} instructions are less than 90 % of {recorded}: if the work has become less, record the new count"
    );
}

/// A directory with so many manifests of a usual kind.
fn manifests(count: usize) -> Directory {
    let directory = Directory::new();
    for number in 0..count {
        directory.write(
            &format!("web-{number}.yaml"),
            &format!(
                "\
apiVersion: v1
kind: Pod
metadata:
  name: web-{number}
  namespace: shop
  uid: {uid}
  labels: {{ app: web, tier: front }}
spec:
  hostNetwork: true
  volumes:
    - {{ name: data, hostPath: {{ path: /var/lib/web, type: DirectoryOrCreate }} }}
  containers:
    - name: server
      image: registry.example/web:{number}
      args: [--listen=:8080, --data=/data]
      env: [{{ name: MODE, value: fast }}]
      ports: [{{ containerPort: 8080, name: http }}]
      resources: {{ requests: {{ cpu: 100m, memory: 64Mi }}, limits: {{ memory: 128Mi }} }}
      volumeMounts: [{{ name: data, mountPath: /data }}]
      livenessProbe: {{ httpGet: {{ path: /healthz, port: http }}, periodSeconds: 10 }}
",
                uid = uid(number)
            ),
        );
    }
    directory
}

fn uid(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

/// An agent with ten pods, of which only the work on connections is counted.
struct CountedAgent {
    agent: Agent,
    _manifests: Directory,
}

impl CountedAgent {
    const PODS: usize = 10;

    fn start(name: &str) -> Self {
        let manifests = manifests(Self::PODS);
        let agent = Agent::spawn(counting(name, &[CONNECTION], &manifests, ""));
        agent.wait_for_log("ready: the pods");
        Self { agent, _manifests: manifests }
    }

    fn connect(&self) -> BufReader<TcpStream> {
        BufReader::new(self.agent.connect(""))
    }

    /// Ends the agent.
    fn collected(mut self) -> u64 {
        self.agent.end();
        collected(&self.agent.whole_log().join("\n"))
    }
}

/// Reads until there were so many answers: lines that begin with a brace, with which no line of the head begins.
#[track_caller]
fn read_answers(stream: &mut BufReader<TcpStream>, count: usize) {
    let mut answers = 0;
    while answers < count {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the agent has closed the connection");
        if line.starts_with('{') {
            assert!(line.contains(r#""namespace":"shop""#), "not found: {line}");
            answers += 1;
        }
    }
}

/// Two hundred requests on one connection, one after the other.
#[test]
#[ignore = "needs valgrind: .ci/run agent_instructions"]
fn a_get_of_whois_takes_no_more_instructions_than_recorded() {
    let agent = CountedAgent::start("GET");
    let mut stream = agent.connect();
    for number in 0..200 {
        let pod = number % CountedAgent::PODS;
        let request = format!("GET /whois?q=shop/web-{pod}-node-1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.get_mut().write_all(request.as_bytes()).unwrap();
        read_answers(&mut stream, 1);
    }
    drop(stream);
    assert_at_most(52_680_000, agent.collected());
}

/// Five times a hundred queries on each of two connections, which both wait for their answers.
#[test]
#[ignore = "needs valgrind: .ci/run agent_instructions"]
fn batches_of_whois_on_two_connections_take_no_more_instructions_than_recorded() {
    const QUERIES: usize = 100;
    let agent = CountedAgent::start("batches");
    let query = |number: usize| {
        let pod = number % CountedAgent::PODS;
        if number.is_multiple_of(2) { format!("shop/web-{pod}-node-1\n") } else { format!("{}\n", uid(pod)) }
    };
    let body: String = (0..QUERIES).map(query).collect();
    let length = body.len();
    let request =
        format!("POST /whois HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}");
    let mut streams = [agent.connect(), agent.connect()];
    for _ in 0..5 {
        for stream in &mut streams {
            stream.get_mut().write_all(request.as_bytes()).unwrap();
        }
        for stream in &mut streams {
            read_answers(stream, QUERIES);
        }
    }
    drop(streams);
    assert_at_most(116_740_000, agent.collected());
}

/// From the files to pods in the index.
#[test]
#[ignore = "needs valgrind: .ci/run agent_instructions"]
fn a_start_with_sixty_manifests_takes_no_more_instructions_than_recorded() {
    const PODS: usize = 60;
    let manifests = manifests(PODS);
    let output = succeeded(counting("start", &[LIST, PUBLISH], &manifests, "--once").output().unwrap());
    assert!(stdout(&output).contains(&format!("{PODS} pods, {PODS} of them static")), "{}", stdout(&output));
    assert_at_most(427_200_000, collected(stderr(&output)));
}
