//! `pod-index top` in its own terminal, with a running agent.

use std::net::TcpStream;
use std::process::{Child, Stdio};

use serde_json::json;

use crate::api::{kubeconfig, pod};
use crate::api_server::ApiServer;
use crate::metrics::{asked, value};
use crate::support::{
    Agent, Directory, binary, manifest, node_1, refused, run, shipped, stderr, stdout, wait_for,
};
use crate::terminal::Terminal;

const SIZE: (u16, u16) = (120, 24);

fn top(agent: &Agent) -> Terminal {
    Terminal::run(&["top", "--port", &agent.port()], SIZE)
}

/// The terminal is in the state that a shell expects.
fn assert_given_back(terminal: &Terminal, mode: &str) {
    assert_eq!(terminal.mode(), mode);
    let screen = terminal.screen();
    assert!(!screen.alternate_screen() && !screen.hide_cursor());
    assert_eq!(screen.contents(), "", "nothing is left on it");
}

/// The terminal's settings before a program changes them.
fn untouched() -> String {
    let mut terminal = Terminal::run(&["--version"], SIZE);
    assert_eq!(terminal.wait(), 0);
    terminal.mode()
}

#[test]
fn a_new_pod_appears_and_is_found_and_q_restores_the_terminal() {
    let directory = Directory::new();
    directory.write("first.yaml", &manifest("first"));
    let agent = Agent::on(&directory.0);
    let mut terminal = top(&agent);
    terminal.until(|seen| seen.contains("first-node-1") && seen.contains("● ready"));
    assert!(terminal.screen().alternate_screen() && terminal.screen().hide_cursor());
    assert_ne!(terminal.mode(), untouched(), "keys come one by one");

    directory.write("second.yaml", &manifest("second"));
    let seen = terminal.until(|seen| seen.contains("second-node-1") && seen.contains("Pods 2"));
    assert!(seen.contains("first-node-1"));

    terminal.press("/sec");
    terminal.until(|seen| seen.contains("/sec") && !seen.contains("first-node-1"));
    terminal.press("\r");
    std::fs::remove_file(directory.0.join("second.yaml")).unwrap();
    terminal.until(|seen| seen.contains("nothing matches") && seen.contains("Pods 0/1"));

    terminal.press("q");
    assert_eq!(terminal.wait(), 0);
    assert_given_back(&terminal, &untouched());
}

#[test]
fn a_manifest_problem_is_shown_and_a_smaller_terminal_works() {
    let directory = Directory::new();
    directory.write("bad.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: {containers: []}\n");
    let agent = Agent::on(&directory.0);
    let mut terminal = top(&agent);
    terminal.until(|seen| seen.contains("1 problem") && seen.contains("bad.yaml: spec.containers:"));
    for size in [(30, 8), (1, 1), (200, 50)] {
        terminal.resize(size);
    }
    // The footer is on the last line of the new size.
    terminal.until(|seen| seen.lines().nth(49).is_some_and(|line| line.starts_with("q quit")));
    terminal.press("\x1b");
    assert_eq!(terminal.wait(), 0);
    assert_given_back(&terminal, &untouched());
}

#[test]
fn control_c_and_signals_restore_the_terminal() {
    let agent = Agent::on(&shipped());
    let untouched = untouched();
    for how in ["Ctrl-C", "TERM", "INT", "HUP"] {
        let mut terminal = top(&agent);
        terminal.until(|seen| seen.contains("Pods 5"));
        if how == "Ctrl-C" {
            terminal.press("\x03");
        } else {
            terminal.signal(how);
        }
        assert_eq!(terminal.wait(), 0, "{how}");
        assert_given_back(&terminal, &untouched);
    }
}

/// A terminal that nobody reads holds what `top` draws, and with it the thread that draws.
#[test]
fn a_signal_ends_top_on_a_terminal_that_nobody_reads() {
    let agent = Agent::on(&shipped());
    for signal in ["TERM", "INT", "HUP"] {
        let mut terminal = top(&agent);
        terminal.until(|seen| seen.contains("Pods 5"));
        terminal.stop_reading();
        // Each new size is drawn anew, until the system keeps no more of it. Then it stays so.
        let mut sizes = (40..80).cycle();
        let mut blocked = 0;
        let is_held = || {
            if terminal.is_blocked() {
                blocked += 1;
            } else {
                blocked = 0;
                terminal.resize((200, sizes.next().unwrap()));
            }
            blocked == 20
        };
        wait_for(|| "somebody reads the terminal", is_held);
        terminal.signal(signal);
        assert_eq!(terminal.ended(), 0, "SIG{signal}");
    }
}

/// An agent on a given port, killed on drop.
pub struct At(Child);

impl At {
    pub fn port(port: u16) -> Self {
        let mut command = binary(&format!("{} --port {port}", node_1(&shipped())));
        let agent = Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let serves = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        wait_for(|| format!("no agent serves on {port}"), serves);
        agent
    }
}

impl Drop for At {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn top_survives_a_restart_of_the_agent() {
    let kept = pod_index_test_support::port::Port::new();
    let port = kept.address().port();
    let mut terminal = Terminal::run(&["top", "--port", &port.to_string()], SIZE);
    terminal.until(|seen| seen.contains("no answer") && seen.contains("trying again"));
    for _ in 0..2 {
        let agent = At::port(port);
        terminal.until(|seen| seen.contains("● ready") && seen.contains("etcd-node-1"));
        drop(agent);
        let seen =
            terminal.until(|seen| seen.contains("no answer for ") && !seen.contains("no answer for 0 s"));
        assert!(seen.contains("etcd-node-1"), "the last data stays:\n{seen}");
    }
    terminal.press("q");
    assert_eq!(terminal.wait(), 0);
}

#[test]
fn top_watches_the_pods_and_both_it_and_get_use_the_socket() {
    let directory = Directory::new();
    directory.write("first.yaml", &manifest("first"));
    let socket = Directory::new();
    let socket = socket.0.join("agent.sock");
    let socket = socket.to_str().unwrap();
    let agent = Agent::on_with(&directory.0, &["--socket", socket]);
    let output = run(&["get", "default/first-node-1", "--socket", socket]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("first-node-1"));

    let mut terminal = Terminal::run(&["top", "--socket", socket], SIZE);
    terminal.until(|seen| seen.contains("first-node-1") && seen.contains("● ready"));
    let before = agent.until("/metrics", |answer| value(&answer.body, "pod_index_watches") == 1);
    directory.write("second.yaml", &manifest("second"));
    terminal.until(|seen| seen.contains("second-node-1") && seen.contains("Pods 2"));
    std::fs::remove_file(directory.0.join("first.yaml")).unwrap();
    terminal.until(|seen| !seen.contains("first-node-1") && seen.contains("Pods 1"));
    let rounds = asked(&before, "/sources") + 2;
    let after = agent.until("/metrics", |answer| asked(answer, "/sources") >= rounds);
    assert_eq!(asked(&after, "/pods"), asked(&before, "/pods"), "they are not requested again");
    drop(agent);
    terminal.until(|seen| seen.contains("no answer for "));
    terminal.press("q");
    assert_eq!(terminal.wait(), 0);
    refused(&["get", "default/first-node-1", "--socket", socket], 3, "(--socket)");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_name_reaches_the_terminal_as_anything_but_text() {
    let server = ApiServer::start().await;
    let directory = Directory::new();
    let hostile = "\x1b]0;owned\x07\x1b[2J\u{9b}31mred\r\n\u{202e}end";
    let mut evil = pod(hostile, "node-1", &json!({ "kubernetes.io/config.source": hostile }));
    evil["status"] = json!({ "phase": hostile });
    server.put("pods", &evil);
    directory.write("bad\x1b]0;owned\x07.yaml", "kind: Pod");
    let agent = Agent::on_with(&directory.0, &["--kubeconfig", &kubeconfig(&directory, &server)]);
    let mut terminal = top(&agent);
    terminal.until(|seen| seen.contains("31mred"));
    terminal.until(|seen| seen.contains("]0;owned.yaml"));
    terminal.press("q");
    assert_eq!(terminal.wait(), 0);
    let bytes = String::from_utf8(terminal.bytes()).unwrap();
    for shown in ["\u{fffd}]0;owned\u{fffd}\u{fffd}[2J\u{fffd}31mred", "bad\u{fffd}]0;owned\u{fffd}.yaml"] {
        assert!(bytes.contains(shown), "{shown:?}");
    }
    for forbidden in ["\x1b]", "\x07", "\x1b[2J", "\u{9b}", "\r", "\u{202e}"] {
        assert!(!bytes.contains(forbidden), "{forbidden:?}");
    }
}

#[test]
fn without_a_terminal_top_reports_it() {
    let output = run(&["top"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(2), ""));
    assert!(stderr(&output).contains("standard output is not a terminal"), "{}", stderr(&output));
}
