//! `/debug/pprof/profile`: where the agent's time goes, in the form that `go tool pprof` reads.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Agent, Answer, Directory, PATIENCE, Stop, binary, get, shipped};

const ONE_SECOND: &str = "/debug/pprof/profile?seconds=1";

fn agent(more: &[&str]) -> Agent {
    agent_in(&std::env::temp_dir(), more)
}

/// One that makes its temporary files there.
fn agent_in(temporary: &Path, more: &[&str]) -> Agent {
    let path = shipped().display().to_string();
    let args = ["--pod-manifest-path", &path, "--hostname-override", "node-1"];
    let mut command = binary(&[&args[..], more].concat());
    command.env("TMPDIR", temporary);
    let agent = Agent::spawn(command);
    agent.until("/readyz", |answer| answer.code == 200);
    agent
}

/// The answer as it came, as it is no text.
fn bytes(agent: &Agent, path: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(agent.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE * 2)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: l\r\nConnection: close\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let head = bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    assert!(bytes.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&bytes));
    bytes.split_off(head + 4)
}

/// A field of a message of protocol buffers: its number, and its value or its bytes.
enum Field<'a> {
    Number(u64, u64),
    Bytes(u64, &'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = bytes.split_first().expect("a number that ends");
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    number
}

fn fields(mut bytes: &[u8]) -> Vec<Field<'_>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = varint(&mut bytes);
        fields.push(match key & 7 {
            0 => Field::Number(key >> 3, value),
            2 => {
                let (inside, rest) = bytes.split_at(usize::try_from(value).unwrap());
                bytes = rest;
                Field::Bytes(key >> 3, inside)
            }
            other => panic!("wire type {other}"),
        });
    }
    fields
}

fn inside<'a>(fields: &[Field<'a>], wanted: u64) -> Vec<&'a [u8]> {
    let bytes = fields.iter().filter_map(|field| match field {
        Field::Bytes(number, bytes) if *number == wanted => Some(*bytes),
        _ => None,
    });
    bytes.collect()
}

fn number(fields: &[Field<'_>], wanted: u64) -> u64 {
    let mut values = fields.iter().filter_map(|field| match field {
        Field::Number(number, value) if *number == wanted => Some(*value),
        _ => None,
    });
    values.next().unwrap_or_default()
}

/// How many samples a profile has, and the names of the functions that are in them; that it hangs together.
fn read(gzipped: &[u8]) -> (u64, Vec<String>) {
    let mut profile = Vec::new();
    flate2::read::GzDecoder::new(gzipped).read_to_end(&mut profile).unwrap();
    let profile = fields(&profile);
    let strings: Vec<_> = inside(&profile, 6).into_iter().map(String::from_utf8_lossy).collect();
    assert_eq!(strings[0], "");
    let string = |number: u64| strings[usize::try_from(number).unwrap()].to_string();
    let types: Vec<_> = inside(&profile, 1).into_iter().map(fields).collect();
    let types: Vec<_> = types.iter().map(|of| (string(number(of, 1)), string(number(of, 2)))).collect();
    assert_eq!(types, [("samples".into(), "count".into()), ("cpu".into(), "nanoseconds".into())]);

    let functions: Vec<_> = inside(&profile, 5).into_iter().map(fields).collect();
    let locations: Vec<_> = inside(&profile, 4).into_iter().map(fields).collect();
    let mut samples = 0;
    for sample in inside(&profile, 2) {
        let sample = fields(sample);
        let (mut stack, mut values) = (inside(&sample, 1)[0], inside(&sample, 2)[0]);
        while !stack.is_empty() {
            let id = varint(&mut stack);
            assert!(locations.iter().any(|location| number(location, 1) == id), "location {id}");
        }
        let (count, nanoseconds) = (varint(&mut values), varint(&mut values));
        assert_eq!(nanoseconds, count * number(&profile, 12));
        samples += count;
    }
    for location in &locations {
        for line in inside(location, 4) {
            let id = number(&fields(line), 1);
            assert!(functions.iter().any(|function| number(function, 1) == id), "function {id}");
        }
    }
    (samples, functions.iter().map(|function| string(number(function, 2))).collect())
}

#[test]
fn a_profile_shows_the_function_that_keeps_the_agent_busy() {
    let agent = agent(&["--debug-endpoints"]);
    let (address, stop) = (agent.address, Stop::default());
    let profile = std::thread::scope(|scope| {
        let _end = stop.at_the_end();
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.is_set() {
                    get(address, "/pods");
                }
            });
        }
        bytes(&agent, "/debug/pprof/profile?seconds=5")
    });
    if let Some(path) = std::env::var_os("POD_INDEX_PROFILE") {
        std::fs::write(path, &profile).unwrap();
    }
    let (samples, functions) = read(&profile);
    println!("{samples} samples of {} functions in {} bytes", functions.len(), profile.len());
    assert!(samples > 0, "nothing was seen");
    let busy = |name: &String| name.contains("pod_index_agent::serve") || name.contains("serde_json");
    assert!(functions.iter().any(busy), "{functions:#?}");
    let profilers =
        |name: &&String| name.contains("trace_unsynchronized") || name.contains("pprof::backtrace");
    assert_eq!(functions.iter().find(profilers), None, "the profiler itself");
}

#[test]
fn one_profile_is_taken_at_a_time_and_who_goes_away_lets_the_next_have_a_turn() {
    let agent = agent(&["--debug-endpoints"]);
    let mut first = TcpStream::connect(agent.address).unwrap();
    first.write_all(b"GET /debug/pprof/profile?seconds=60 HTTP/1.1\r\nHost: l\r\n\r\n").unwrap();
    agent.wait_for_log("taking a CPU profile");
    let second = agent.get(ONE_SECOND);
    assert_eq!((second.code, &second.json::<Value>()["reason"]), (429, &"TooManyRequests".into()));
    assert_eq!(agent.get("/pods").code, 200, "others are served");
    let started = Instant::now();
    drop(first);
    let deadline = started + PATIENCE;
    let is_taken = |answer: &Answer| answer.head.starts_with("HTTP/1.1 200");
    while !is_taken(&head(&agent)) {
        assert!(Instant::now() < deadline, "the profile goes on although nobody waits for it");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(started.elapsed() < Duration::from_secs(55), "not before its time was over");
}

#[test]
fn no_profile_leaves_a_temporary_file_behind_be_it_given_up_or_not() {
    let temporary = Directory::new();
    let mut agent = agent_in(&temporary.0, &["--debug-endpoints"]);
    let files = || std::fs::read_dir(&temporary.0).unwrap().count();
    let until = |count: usize| {
        let deadline = Instant::now() + PATIENCE;
        while files() != count {
            assert!(Instant::now() < deadline, "{} files, not {count}", files());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    assert_eq!(files(), 0);
    // Twice: the second one has to do without the file of the first.
    for _ in 0..2 {
        let mut given_up = TcpStream::connect(agent.address).unwrap();
        given_up.write_all(b"GET /debug/pprof/profile?seconds=60 HTTP/1.1\r\nHost: l\r\n\r\n").unwrap();
        agent.wait_for_log("taking a CPU profile");
        until(1);
        drop(given_up);
        until(0);
    }
    // And so has one that is taken to its end, which reads it.
    let (samples, _) = read(&bytes(&agent, ONE_SECOND));
    println!("{samples} samples");
    assert_eq!(files(), 0);
    agent.signal("TERM");
    assert_eq!(agent.wait(), Some(0));
    assert_eq!(files(), 0);
}

/// The head of what comes of asking for a profile of a second.
fn head(agent: &Agent) -> Answer {
    let mut stream = TcpStream::connect(agent.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {ONE_SECOND} HTTP/1.1\r\nHost: l\r\nConnection: close\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    Answer::read(&bytes[..end])
}

#[test]
fn a_profile_is_for_those_who_are_allowed_and_no_longer_than_a_minute() {
    let closed = agent(&[]);
    assert_eq!(closed.get(ONE_SECOND).code, 404);
    let agent = agent(&["--debug-endpoints"]);
    for seconds in ["0", "61", "-1", "x", "", "1.5", "99999999999999999999"] {
        let answer = agent.get(&format!("/debug/pprof/profile?seconds={seconds}"));
        assert_eq!(answer.code, 400, "{seconds:?}");
        assert!(answer.body.contains("from 1 to 60"), "{}", answer.body);
    }
    assert_eq!(agent.send("POST /debug/pprof/profile", "", "").code, 405);
}
