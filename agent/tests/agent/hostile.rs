//! Slow, greedy or broken clients harm only themselves; others are served meanwhile.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::life::fill;
use pod_index_test_support::skipped;

use crate::support::{Agent, Directory, PATIENCE, exchange, shipped};

fn is_well(agent: &Agent) {
    assert_eq!(agent.get("/healthz").code, 200);
    assert_eq!(agent.get("/pods/kube-system/etcd-node-1").code, 200);
}

#[test]
fn malformed_and_excessive_requests_are_refused_and_others_are_served() {
    let agent = Agent::on(&shipped());
    let long = "x".repeat(10 << 20);
    let many = "h: x\r\n".repeat(1_000);
    // 0: the connection was reset before the response could be read, which can happen with much unread data.
    for (what, request, codes) in [
        ("not HTTP", "\0\u{1}\u{2} nonsense\r\n\r\n".to_owned(), &[400][..]),
        ("a URL of 10 MiB", format!("GET /{long} HTTP/1.1\r\nHost: l\r\n\r\n"), &[431, 0]),
        ("a header of 10 MiB", format!("GET / HTTP/1.1\r\nHost: l\r\nx: {long}\r\n\r\n"), &[431, 0]),
        ("a thousand headers", format!("GET / HTTP/1.1\r\nHost: l\r\n{many}\r\n"), &[431]),
        (
            "another method",
            "DELETE /pods HTTP/1.1\r\nHost: l\r\nConnection: close\r\n\r\n".to_owned(),
            &[405],
        ),
        (
            "bytes that are not text",
            "GET /pods/%FF%00 HTTP/1.1\r\nHost: l\r\nConnection: close\r\n\r\n".to_owned(),
            &[400],
        ),
    ] {
        let answer = exchange(agent.address, request.as_bytes());
        assert!(codes.contains(&answer.code), "{what}: {}", answer.code);
        is_well(&agent);
    }
}

/// Raises this process's limit of open files, if permitted. Returns the limit.
fn allow_open_files(wanted: u64) -> u64 {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    if soft < wanted {
        // Only root may exceed the hard limit.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, wanted, hard.max(wanted))
            .or_else(|_| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    }
    getrlimit(Resource::RLIMIT_NOFILE).unwrap().0
}

#[test]
fn clients_that_hold_ten_thousand_connections_block_no_others() {
    /// Descriptors for the tests that run in parallel.
    const OTHERS: u64 = 2_000;
    let agent = Agent::on(&shipped());
    let limit = allow_open_files(10_000 + OTHERS);
    let connections = limit.saturating_sub(OTHERS).min(10_000);
    if connections < 10_000 {
        let why = format!("only {connections}: this process may have no more than {limit} files open");
        skipped("ten thousand connections", why);
    }
    let mut held = Vec::new();
    for i in 0..connections {
        // Some send nothing, some a part of a request.
        let mut stream = TcpStream::connect(agent.address).unwrap();
        if i % 2 == 0 {
            let _ = stream.write_all(b"GET /pods HTTP/1.1\r\nHo");
        }
        held.push(stream);
        if i % 500 == 0 {
            is_well(&agent);
        }
    }
    is_well(&agent);
    println!("{} connections were opened and held", held.len());
    let open = held.into_iter().filter_map(is_open).count();
    assert!(open <= 256, "{open} connections are still open");
}

/// The connection, unless the other side has closed it.
fn is_open(mut stream: TcpStream) -> Option<TcpStream> {
    stream.set_nonblocking(true).unwrap();
    let open = stream.read(&mut [0; 1024]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    open.then_some(stream)
}

#[test]
fn a_missing_or_endless_body_ends_the_request() {
    let agent = Agent::on(&shipped());
    let head = "POST /whois HTTP/1.1\r\nHost: l\r\nConnection: close\r\n";
    // Large chunks: a busy machine might read small ones for longer than a body may take.
    let (endless, chunk) =
        (format!("{head}Transfer-Encoding: chunked\r\n\r\n"), format!("1000\r\n{}\r\n", "x".repeat(4096)));
    let answer = exchange(agent.address, (endless + &chunk.repeat(500)).as_bytes());
    assert!(answer.code == 413 || answer.code == 0, "{}", answer.code);
    is_well(&agent);
    let broken = format!("{head}Transfer-Encoding: chunked\r\n\r\nzz\r\n");
    assert_eq!(exchange(agent.address, broken.as_bytes()).code, 400);
    // The body is announced and started, but never finished.
    let answer = exchange(agent.address, format!("{head}Content-Length: 5\r\n\r\nde").as_bytes());
    assert_eq!(answer.code, 408);
    is_well(&agent);
    // A request without a body may still send one.
    let answer = exchange(
        agent.address,
        b"GET /readyz HTTP/1.1\r\nHost: l\r\nConnection: close\r\nContent-Length: 1000000000\r\n\r\nx",
    );
    assert_eq!(answer.code, 200);
    is_well(&agent);
}

#[test]
fn thousands_of_requests_on_one_connection_are_answered_in_order_or_dropped() {
    let agent = Agent::on(&shipped());
    let mut stream = agent.connect("");
    let mut asking = stream.try_clone().unwrap();
    let asking = std::thread::spawn(move || {
        for i in 0..5_000 {
            asking.write_all(format!("GET /whois?q=u{i} HTTP/1.1\r\nHost: l\r\n\r\n").as_bytes()).unwrap();
        }
        asking.write_all(b"GET /livez HTTP/1.1\r\nHost: l\r\nConnection: close\r\n\r\n").unwrap();
    });
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    asking.join().unwrap();
    let asked: Vec<_> =
        answers.split("\"query\":\"u").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let numbers: Vec<usize> = asked.iter().map(|number| number.parse().unwrap()).collect();
    assert_eq!(numbers, (0..5_000).collect::<Vec<_>>());
    is_well(&agent);
}

#[test]
fn an_endless_request_header_ends_the_connection() {
    let agent = Agent::on(&shipped());
    let mut stream = TcpStream::connect(agent.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let started = Instant::now();
    // A header every half second, endlessly.
    stream.write_all(b"GET /pods HTTP/1.1\r\n").unwrap();
    while started.elapsed() < PATIENCE {
        match stream.read(&mut [0; 1024]) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            // Closed, with or without a response.
            Ok(_) | Err(_) => break,
        }
        if stream.write_all(b"x: y\r\n").is_err() {
            break;
        }
        is_well(&agent);
    }
    assert!(started.elapsed() < PATIENCE, "the agent keeps the connection open");
}

#[test]
fn clients_that_request_everything_and_read_nothing_are_disconnected() {
    let directory = Directory::new();
    fill(&directory);
    let mut agent = Agent::on_with(&directory.0, &["--log-level", "debug"]);
    let greedy = [(); 10].map(|()| agent.connect("GET /pods HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    assert_eq!(agent.get("/healthz").code, 200);
    for _ in &greedy {
        agent.wait_for_log("a connection ended early");
    }
    agent.end();
}
