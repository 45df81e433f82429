//! Start, shutdown and exit codes.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;

use nix::sys::stat::Mode;
use pod_index_test_support::files::names;
use pod_index_test_support::port::Port;
use serde_json::{Value, json};

use crate::api::kubeconfig_with;
use crate::support::{
    Agent, Directory, PATIENCE, binary, manifest, node_1, refused, shipped, started_by, wait_for,
};

/// SIGHUP: of an agent in a terminal in `frozen`, of a service in `reload`.
#[test]
fn the_first_signal_ends_the_agent_with_0() {
    for signal in ["TERM", "INT"] {
        let mut agent = Agent::on(&shipped());
        agent.signal(signal);
        assert_eq!(agent.wait(), Some(0), "SIG{signal}");
    }
}

/// As by `nohup`.
#[test]
fn an_ignored_hang_up_stays_ignored() {
    let mut agent =
        Agent::spawn(started_by(&["sh", "-c", "trap '' HUP; exec \"$0\" \"$@\""], &node_1(&shipped())));
    agent.signal("HUP");
    agent.end();
    // It neither ends nor reads its configuration again.
    let is_heard = |line: &str| line.contains("SIGHUP") || line.contains("reading the configuration again");
    agent.whole_log().iter().for_each(|line| assert!(!is_heard(line), "{line}"));
}

#[test]
fn the_first_signal_waits_for_open_requests_and_the_second_does_not() {
    let directory = Directory::new();
    fill(&directory);
    let mut agent = Agent::on(&directory.0);
    // Requested but not read: the agent cannot finish its response.
    let stream = agent.connect("GET /pods HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.peek(&mut [0]).unwrap();
    agent.signal("TERM");
    agent.wait_for_log("shutting down after the open requests");
    agent.wait_until_nobody_listens();
    agent.signal("TERM");
    assert_eq!(agent.wait(), Some(143));
}

/// A named pipe replaces the file to which a checkpoint is written: opening it blocks, as on a disk that
/// hangs.
#[test]
fn a_disk_that_hangs_does_not_keep_the_agent_beyond_its_grace_period() {
    let (manifests, checkpoints) = (Directory::new(), Directory::new());
    manifests.write("one.yaml", &manifest("one"));
    let mut agent = Agent::start(&crate::restart::of_files(&manifests.0, &checkpoints.0));
    let saved = || names(&checkpoints.0).iter().filter(|name| name.starts_with("Pod_")).count();
    wait_for(|| "no checkpoint", || saved() > 0);
    nix::unistd::mkfifo(&checkpoints.0.join(".writing"), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    manifests.write("two.yaml", &manifest("two"));
    agent.has("/pods/default/two-node-1");

    agent.signal("TERM");
    agent.wait_for_log("shutting down without writing the last checkpoints");
    assert_eq!(agent.wait(), Some(0));
    assert_eq!(saved(), 1, "the disk did hang");
}

/// Starts the agent, waits until standard error has a line with this text, and ends the agent. Returns the line, and how it ended.
fn said_before_the_end(args: &str, text: &str) -> (Option<String>, ExitStatus) {
    let mut child = binary(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let log = BufReader::new(child.stderr.take().unwrap());
    let (sender, lines) = mpsc::channel();
    let reader =
        thread::spawn(move || log.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line))));
    let said = std::iter::from_fn(|| lines.recv_timeout(PATIENCE).ok()).find(|line| line.contains(text));
    let killed = Command::new("kill").args(["-s", "TERM", &child.id().to_string()]).status();
    assert!(killed.unwrap().success());
    let end = child.wait().unwrap();
    reader.join().unwrap();
    (said, end)
}

/// A named pipe that nobody writes: who opens it waits, as on a disk that hangs.
#[test]
fn a_start_that_waits_for_a_disk_says_so_and_obeys_signals() {
    let directory = Directory::new();
    let authorities = directory.0.join(".authorities.pem");
    nix::unistd::mkfifo(&authorities, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    let kubelet = format!("--kubelet https://127.0.0.1:1 --kubelet-ca {}", authorities.display());
    let args = format!("{kubelet} --port 0 {}", node_1(&shipped()));
    let (said, end) = said_before_the_end(&args, "the start is not complete after 10s");
    assert_eq!(end.code(), Some(0));
    assert!(said.is_some());
}

/// Before the settings are read, there is no log, and nothing is served.
#[test]
fn an_agent_that_waits_for_its_settings_names_their_file_in_the_form_of_the_log() {
    let directory = Directory::new();
    let config = directory.0.join("config.yaml");
    nix::unistd::mkfifo(&config, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    let args = format!("--config {} --log-format json --port 0", config.display());
    let (said, _) = said_before_the_end(&args, "has not been read after 10s");
    let said: Value = serde_json::from_str(&said.unwrap()).unwrap();
    assert!(said["message"].as_str().unwrap().starts_with(&config.display().to_string()), "{said}");
}

/// A credential plugin that never answers, and ignores signals. In a group of its own, it gets no Ctrl-C. It must not run on
/// while nobody asks for its answer.
struct StubbornPlugin {
    directory: Directory,
    kubeconfig: String,
}

impl StubbornPlugin {
    fn new() -> Self {
        let directory = Directory::new();
        // It ends after a test that fails, with its directory.
        let script = "trap '' TERM INT HUP PIPE; echo $$ > \"$0.pid\"; while [ -e \"$0\" ]; do sleep 1; done";
        let user = crate::secrets::plugin(&directory, script);
        let kubeconfig = kubeconfig_with(&directory, &json!({ "server": "https://127.0.0.1:1" }), &user);
        Self { directory, kubeconfig }
    }

    fn pid(&self) -> String {
        std::fs::read_to_string(self.directory.0.join(".plugin.pid")).unwrap_or_default()
    }

    fn wait_until_it_runs(&self) {
        wait_for(|| "the plugin does not run", || self.pid().ends_with('\n'));
    }

    fn wait_for_its_end(&self) {
        let status = format!("/proc/{}/status", self.pid().trim());
        // Whoever adopts it may not have waited for it.
        let runs = || std::fs::read_to_string(&status).is_ok_and(|status| !status.contains("\nState:\tZ"));
        wait_for(|| "the plugin runs on", || !runs());
    }
}

#[test]
fn a_credential_plugin_that_ignores_signals_ends_with_the_agent() {
    for (signals, code) in [(&["TERM"][..], 0), (&["INT"], 0), (&["TERM", "TERM"], 143)] {
        let plugin = StubbornPlugin::new();
        let mut agent = Agent::start(&format!("--kubeconfig {} {}", plugin.kubeconfig, node_1(&shipped())));
        agent.has("/pods/default/static-web-node-1");
        plugin.wait_until_it_runs();
        // A request that nobody reads: the second signal comes before the end.
        let _open =
            (signals.len() > 1).then(|| agent.connect("GET /pods?watch=1 HTTP/1.1\r\nHost: l\r\n\r\n"));
        for signal in signals {
            agent.signal(signal);
        }
        assert!([Some(code), Some(0)].contains(&agent.wait()), "{signals:?}");
        plugin.wait_for_its_end();
    }
}

#[test]
fn a_credential_plugin_that_ignores_signals_ends_with_doctor_and_with_check() {
    for command in ["doctor", "--check"] {
        for (signal, code) in [(Some("TERM"), 143), (Some("INT"), 130), (None, 2)] {
            let plugin = StubbornPlugin::new();
            let args = format!("{command} --kubeconfig {} {}", plugin.kubeconfig, node_1(&shipped()));
            let mut child = binary(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            plugin.wait_until_it_runs();
            // On a busy machine, the command may give the plugin up before the signal comes.
            if let Some(signal) = signal {
                let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
                assert!(sent.unwrap().success());
            }
            assert!([Some(code), Some(2)].contains(&child.wait().unwrap().code()), "{command}: {signal:?}");
            plugin.wait_for_its_end();
        }
    }
}

#[test]
fn the_level_of_the_log_changes_at_a_signal_and_back() {
    let directory = Directory::new();
    directory.write("web.yaml", &manifest("web"));
    let mut agent = Agent::on(&directory.0);
    agent.signal("USR1");
    agent.wait_for_log("the log level is DEBUG");
    directory.write("two.yaml", &manifest("two"));
    agent.wait_for_log("pod added");
    agent.signal("USR2");
    agent.wait_for_log("the log level is INFO");
    directory.write("three.yaml", &manifest("three"));
    agent.has("/pods/default/three-node-1");
    agent.end();
    assert!(!agent.whole_log().iter().any(|line| line.contains("pod added") && line.contains("three")));
}

/// The credential plugin is asked before anything else that the API server needs, and never answers.
#[test]
fn a_signal_ends_an_agent_whose_credential_plugin_hangs() {
    let directory = Directory::new();
    let user = crate::secrets::plugin(&directory, "exec sleep 600");
    let path = kubeconfig_with(&directory, &json!({ "server": "https://127.0.0.1:1" }), &user);
    directory.write("web.yaml", &manifest("web"));
    let mut agent = Agent::start(&format!("--kubeconfig {path} {}", node_1(&directory.0)));
    agent.has("/pods/default/web-node-1");
    agent.end();
}

#[test]
fn systemd_is_notified_of_start_and_shutdown() {
    let directory = Directory::new();
    directory.write("a.yaml", &manifest("a"));
    let socket = directory.0.join(".notify");
    let heard = UnixDatagram::bind(&socket).unwrap();
    heard.set_read_timeout(Some(PATIENCE)).unwrap();
    let hear = |word: &str| {
        loop {
            let mut bytes = [0; 512];
            let length = heard.recv(&mut bytes).unwrap_or_else(|_| panic!("nothing with {word}"));
            if String::from_utf8_lossy(&bytes[..length]).contains(word) {
                return;
            }
        }
    };
    let mut command = binary(&["--pod-manifest-path", directory.0.to_str().unwrap()]);
    command.env("NOTIFY_SOCKET", &socket);
    let mut agent = Agent::spawn(command);
    hear("READY=1");
    hear("STATUS=ready, started with 1 pods");
    agent.signal("TERM");
    hear("STOPPING=1");
    assert_eq!(agent.wait(), Some(0));
}

#[test]
fn the_soft_limit_of_open_files_is_raised_to_the_hard_one() {
    let limited = "ulimit -S -n 60 && ulimit -H -n 500 && exec \"$0\" \"$@\"";
    let agent = Agent::spawn(started_by(&["sh", "-c", limited], &node_1(&shipped())));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", agent.pid())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(line.split_whitespace().filter(|word| *word == "500").count(), 2, "{line}");
}

#[test]
fn a_wrong_command_line_is_exit_code_2() {
    for args in [
        "",
        "--no-such-flag",
        "--pod-manifest-path x --hostname-override \t",
        "--pod-manifest-path x get y",
        "--pod-manifest-path x --check --checkpoint-all-pods",
    ] {
        refused(args, 2, "\n");
    }
}

#[test]
fn an_address_in_use_is_exit_code_3_and_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    for (flags, named) in [
        (format!("--port {}", address.port()), format!("{address}")),
        (format!("--port 0 --health-address {address}"), format!("{address} (--health-address)")),
        (format!("--port 0 --metrics-address {address}"), format!("{address} (--metrics-address)")),
    ] {
        refused(&format!("{} {flags}", node_1(&shipped())), 3, &named);
    }
}

#[test]
fn asking_where_no_agent_is_is_exit_code_3() {
    let kept = Port::new();
    for command in ["get default/web", "list -w"] {
        refused(&format!("{command} --port {}", kept.address().port()), 3, "no agent answers");
    }
}

/// Pods of a quarter of a megabyte each: together more than the sockets between two processes hold.
pub(crate) fn fill(directory: &Directory) {
    let note = "x".repeat(250_000);
    for i in 0..80 {
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p{i}, annotations: {{note: {note}}}}}\nspec: {{containers: [{{name: c, image: i}}]}}\n"
        );
        directory.write(&format!("p{i}.yaml"), &text);
    }
}
