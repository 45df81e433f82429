//! A thread that hangs, and an output that nobody reads: probes notice the first, and signals end the agent in both cases.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use pod_index_test_support::skipped;

use crate::health::health_address;
use crate::support::{Agent, Answer, Directory, PATIENCE, binary, get, manifest, node_1, wait_for};
use crate::terminal::Terminal;

/// A part has stopped after 20 s without a heartbeat. The rest is for a busy machine.
const NOTICED: Duration = PATIENCE;

/// A signal ends the agent within 3 s. The rest is for a busy machine: before, it never did, or took 12 to 16 s.
const ENDED: Duration = Duration::from_secs(9);

/// The IDs of the process's threads of this name.
fn threads(process: u32, name: &str) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().map_while(Result::ok);
    let named = tasks.filter(|task| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    });
    named.map(|task| Pid::from_raw(task.file_name().to_str().unwrap().parse().unwrap())).collect()
}

/// Stops these threads until their process ends, as a debugger does. `false` if this process may not.
fn freeze(threads: Vec<Pid>) -> bool {
    assert!(!threads.is_empty());
    let (done, frozen) = mpsc::channel();
    // Whoever attaches has to wait for them, too.
    thread::spawn(move || {
        let attached = threads.iter().all(|thread| ptrace::attach(*thread).is_ok());
        let wait = |thread: &Pid| waitpid(*thread, Some(WaitPidFlag::__WALL));
        let stopped = attached && threads.iter().all(|thread| wait(thread).is_ok());
        done.send(stopped).unwrap();
        if stopped {
            // They end with the process.
            for thread in &threads {
                let _ = wait(thread);
            }
        }
    });
    frozen.recv().unwrap()
}

/// The notifications of the agent that have arrived.
fn notified(socket: &UnixDatagram, text: &str) -> usize {
    let mut bytes = [0; 512];
    let mut count = 0;
    while let Ok(length) = socket.recv(&mut bytes) {
        count += usize::from(&bytes[..length] == text.as_bytes());
    }
    count
}

/// Which threads of the agent are frozen, and what must follow.
#[derive(Clone, Copy)]
struct Frozen {
    what: &'static str,
    /// The name of the threads.
    name: &'static str,
    which: Which,
    /// One of these parts has to be reported.
    parts: &'static [&'static str],
    /// Whether the agent's main port can still answer.
    port_answers: bool,
}

#[derive(Clone, Copy)]
enum Which {
    All,
    /// The worker of the runtime that was started as this one.
    Worker(usize),
}

impl Which {
    fn of(self, process: u32, name: &str) -> Vec<Pid> {
        let Self::Worker(number) = self else { return threads(process, name) };
        // The runtime's threads for blocking work have the same name. They end after ten idle seconds.
        let mut workers = Vec::new();
        wait_for(
            || "more than two workers",
            || {
                workers = threads(process, name);
                workers.len() == 2
            },
        );
        workers.sort_unstable();
        vec![workers[number]]
    }
}

/// Freezes threads. `/livez` must fail on every listener that can still answer, and SIGTERM must end the agent at once.
fn notices_frozen(case: Frozen) {
    let Frozen { what, name, which, parts, port_answers } = case;
    let directory = Directory::new();
    directory.write("web.yaml", &manifest("web"));
    directory.write(".rules", "extract: {metadata: [k8s.pod.name]}\n");
    let rules = directory.0.join(".rules");
    let socket = directory.0.join(".notify");
    let notifications = UnixDatagram::bind(&socket).unwrap();
    notifications.set_nonblocking(true).unwrap();
    let mut command = binary(&format!(
        "{} --health-address 127.0.0.1:0 --metrics-address 127.0.0.1:0 --extract {}",
        node_1(&directory.0),
        rules.display()
    ));
    command.env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "30000000");
    let mut agent = Agent::spawn(command).ready();
    let health = health_address(&agent);
    let livez = || get(health, "/livez");
    let watchdog = || notified(&notifications, "WATCHDOG=1");
    wait_for(|| "no notification of the watchdog", || watchdog() > 0);
    assert_eq!(livez().code, 200);
    if !freeze(which.of(agent.pid(), name)) {
        return skipped("a frozen thread", "this process may not trace another");
    }
    let frozen = Instant::now();
    let is_named =
        |text: &str| parts.iter().any(|part| text.contains(&format!("no heartbeat of {part} for ")));
    // On a busy machine, another part may be late, too.
    let answer = loop {
        let answer = livez();
        if answer.code != 200 && is_named(&answer.body) {
            break answer;
        }
        assert!(frozen.elapsed() < NOTICED, "{what}: it is not noticed: {} {}", answer.code, answer.body);
        thread::sleep(Duration::from_millis(100));
    };
    println!("{what}: /livez failed {:.1} s after it was frozen", frozen.elapsed().as_secs_f64());
    assert!(frozen.elapsed() > Duration::from_secs(15), "{what}: too early");
    assert_eq!(answer.code, 503, "{what}: {}", answer.body);
    assert_eq!(get(health, "/readyz").code, 503);
    if port_answers {
        for path in ["/livez", "/healthz", "/readyz"] {
            let answer = agent.get(path);
            assert!(answer.code == 503 && is_named(&answer.body), "{path}: {}", answer.body);
        }
        let metrics = agent.get("/metrics").body;
        let part = parts[0];
        let line =
            metrics.lines().find(|line| line.contains(&format!("heartbeat_age_seconds{{part=\"{part}\"")));
        let age: f64 = line.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
        assert!(age > 20.0, "{age}");
    }
    let _ = watchdog();
    thread::sleep(Duration::from_secs(3));
    assert_eq!(watchdog(), 0, "{what}: systemd is told that all is well");
    agent.signal("TERM");
    let signalled = Instant::now();
    let code = agent.wait();
    println!("{what}: ended {:.1} s after SIGTERM", signalled.elapsed().as_secs_f64());
    assert_eq!(code, Some(3), "{what}: as if nothing had hung");
    assert!(signalled.elapsed() < ENDED, "{what}: {:?}", signalled.elapsed());
}

/// A worker of the runtime may be asleep when it is frozen. If it is the one that waits for events, nothing goes on; otherwise
/// the other one serves until a request needs both.
#[test]
fn a_part_that_is_frozen_fails_liveness_on_every_listener_and_sigterm_ends_the_agent() {
    let thread = |name: &'static str, parts: &'static [&'static str]| Frozen {
        what: name,
        name,
        which: Which::All,
        parts,
        port_answers: true,
    };
    let worker = |what: &'static str, which: Which| Frozen {
        what,
        name: "tokio-rt-worker",
        which,
        parts: &["tasks", "worker-0", "worker-1"],
        port_answers: false,
    };
    let cases = [
        thread("index", &["index"]),
        thread("changes", &["changes"]),
        worker("both workers", Which::All),
        worker("the first worker", Which::Worker(0)),
        worker("the second worker", Which::Worker(1)),
    ];
    thread::scope(|scope| {
        let cases = cases.map(|case| scope.spawn(move || notices_frozen(case)));
        // In any case, all of them end: an agent that is left over would be traced by nobody.
        let done = cases.map(thread::ScopedJoinHandle::join);
        assert!(done.iter().all(Result::is_ok));
    });
}

/// Waits until the agent's thread that prints cannot go on.
fn until_it_prints(process: u32) {
    wait_for(|| "it prints nothing", || !threads(process, "print").is_empty());
    // It may have begun only now, and end.
    thread::sleep(Duration::from_millis(200));
    assert!(!threads(process, "print").is_empty(), "somebody reads its output");
}

#[track_caller]
fn ended_by(signal: &str, since: Instant) {
    println!("SIG{signal}: ended after {:.1} s", since.elapsed().as_secs_f64());
    assert!(since.elapsed() < ENDED, "SIG{signal}: {:?}", since.elapsed());
}

#[test]
fn a_signal_ends_an_agent_whose_terminal_was_stopped() {
    for signal in ["TERM", "INT", "HUP"] {
        let directory = Directory::new();
        directory.write("web.yaml", &manifest("web"));
        let socket = directory.0.join("agent.sock");
        let args = format!("{} --port 0 --socket {}", node_1(&directory.0), socket.display());
        // Ctrl-S, before the agent begins to print: no output leaves the terminal.
        let mut terminal = Terminal::run_after("\x13", &args, (120, 20));
        let is_ready = |socket: &Path| {
            let answer = UnixStream::connect(socket).map(|stream| Answer::to(stream, "GET /readyz", "", ""));
            answer.is_ok_and(|answer| answer.code == 200)
        };
        wait_for(|| "it is not ready", || is_ready(&socket));
        until_it_prints(terminal.pid());
        let since = Instant::now();
        terminal.signal(signal);
        assert_eq!(terminal.ended(), 0, "SIG{signal}");
        ended_by(signal, since);
    }
}

#[test]
fn a_signal_ends_an_agent_whose_output_nobody_reads() {
    let directory = Directory::new();
    // More than a pipe holds.
    let note = format!("name: web, annotations: {{note: {}}}", "x".repeat(200_000));
    directory.write("web.yaml", &manifest("web").replace("name: web", &note));
    for signal in ["TERM", "INT", "HUP"] {
        let mut command = binary(&format!("--once -o json {}", node_1(&directory.0)));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        until_it_prints(child.id());
        let since = Instant::now();
        let killed =
            std::process::Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
        assert!(killed.unwrap().success());
        assert_eq!(exit_code(&mut child), Some(1), "SIG{signal}");
        ended_by(signal, since);
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(
            said.ends_with(&format!("pod-index: received SIG{signal} before the pods were printed\n")),
            "{said}"
        );
    }
}

fn exit_code(child: &mut Child) -> Option<i32> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if Instant::now() >= deadline {
            let _ = child.kill();
            panic!("it does not end");
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Whoever collects the log as JSON must be able to read why there is no agent.
#[test]
fn errors_of_the_command_line_are_json_if_the_log_is() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let missing = "--pod-manifest-path x --config /nonexistent";
    for (args, code, why) in [
        ("--no-such-flag".to_owned(), 2, "--no-such-flag"),
        (missing.to_owned(), 2, "/nonexistent"),
        ("--pod-manifest-path x --log-level much".to_owned(), 2, "much"),
        (
            format!("{} --port {}", node_1(&crate::support::shipped()), taken.local_addr().unwrap().port()),
            3,
            "cannot serve on",
        ),
        (format!("{} --check", node_1(Path::new("/nonexistent"))), 1, "does not exist"),
    ] {
        let args = format!("{args} --log-format json");
        let output = crate::support::run(&args);
        assert_eq!(output.status.code(), Some(code), "{args}");
        let text = crate::support::stderr(&output);
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{text}")))
            .collect();
        let last = lines.last().unwrap();
        assert!(last["message"].as_str().unwrap().contains(why), "{args}: {last}");
        assert_eq!(last["level"], "ERROR", "{args}");
    }
}
