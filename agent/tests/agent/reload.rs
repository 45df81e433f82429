//! SIGHUP: the configuration file is read again, and what differs takes effect or is named.

use std::collections::BTreeSet;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::access::answer;
use crate::support::{Agent, Directory, PATIENCE, code, manifest, started_by};
use crate::tls::{Authority, Pki};

/// An agent with this configuration file and without a terminal, as a service manager starts it.
fn service(config: &Path, more: &[(&str, &str)]) -> Agent {
    let mut command = started_by(&["setsid"], &["--config", config.to_str().unwrap()]);
    command.envs(more.iter().copied());
    Agent::spawn(command)
}

#[test]
fn a_changed_file_takes_effect_or_is_named_with_a_restart() {
    let directory = Directory::new();
    std::fs::create_dir(directory.0.join("manifests")).unwrap();
    std::fs::write(directory.0.join("manifests/web.yaml"), manifest("web")).unwrap();
    directory.write("rules.yaml", "extract: {metadata: [k8s.pod.name]}\n");
    let configure = |more: &str| {
        let text = format!("staticPodPath: manifests\nnodeName: node-1\nextract: rules.yaml\n{more}");
        directory.write("config.yaml", &text);
    };
    configure("");
    let config = directory.0.join("config.yaml");
    let socket = directory.0.join("notify");
    let heard = UnixDatagram::bind(&socket).unwrap();
    heard.set_read_timeout(Some(PATIENCE)).unwrap();
    let until_status = |expected: &str| {
        loop {
            let mut bytes = [0; 1024];
            let length = heard.recv(&mut bytes).unwrap_or_else(|_| panic!("no status {expected:?}"));
            if String::from_utf8_lossy(&bytes[..length]) == format!("STATUS={expected}") {
                return;
            }
        }
    };
    let mut agent = service(&config, &[("NOTIFY_SOCKET", socket.to_str().unwrap())]).ready();

    agent.signal("HUP");
    until_status("the configuration was read again: nothing has changed");

    configure("logLevel: debug\n");
    agent.signal("HUP");
    agent.wait_for_log("the log level is DEBUG from now on");
    until_status("the configuration was read again, and every change is in effect");
    // The configured level is the new one.
    agent.signal("USR2");
    agent.wait_for_log("the log level is DEBUG from now on");

    let place = |line: u32, key: &str| format!("{}:{line}: {key}", config.display());
    configure("keepRemoved: 1h\nlogLevel: info\n");
    directory.write("rules.yaml", "extract: {metadata: [k8s.pod.uid]}\n");
    agent.signal("HUP");
    let (keep, rules) = (place(4, "keepRemoved"), format!("the file of {}", place(3, "extract")));
    agent.wait_for_log(&format!("{keep} has changed, and takes effect at the next restart"));
    agent.wait_for_log(&format!("{rules} has changed, and takes effect at the next restart"));
    agent.wait_for_log("the log level is INFO from now on");
    until_status(&format!("a restart is needed: {keep}, {rules} changed"));

    for (wrong, why) in [
        ("keepRemoved: soon\n", format!("{}: \"soon\" must be a number and a unit", place(4, "keepRemoved"))),
        ("logLevel: debug\nkubeletCa: missing.pem\nkubelet: https://a\n", "missing.pem".to_owned()),
        ("logLevle: debug\n", format!("{}: there is no such key", place(4, "logLevle"))),
    ] {
        configure(wrong);
        agent.signal("HUP");
        let line = agent.wait_for_log("the configuration stays as it was: ");
        assert!(line.contains(&why), "{wrong}: {line}");
    }
    directory.write("rules.yaml", "extract: {metadata: [k8s.pod.colour]}\n");
    configure("logLevel: debug\n");
    agent.signal("HUP");
    let line = agent.wait_for_log("the configuration stays as it was: ");
    assert!(line.contains("k8s.pod.colour"), "{line}");
    std::fs::remove_file(&config).unwrap();
    agent.signal("HUP");
    let line = agent.wait_for_log("the configuration stays as it was: ");
    assert!(line.contains("config.yaml: cannot be read"), "{line}");

    agent.has("/pods/default/web-node-1");
    agent.end();
    let debug = agent.whole_log().into_iter().filter(|line| line.contains("the log level is DEBUG")).count();
    assert_eq!(debug, 2, "a file with an error has changed the log level");
}

#[test]
fn a_client_that_is_no_longer_allowed_is_refused_without_a_restart() {
    let (pki, clients) = (Pki::new(), Authority::new());
    pki.directory.write("clients.pem", &clients.pem);
    std::fs::create_dir(pki.directory.0.join("manifests")).unwrap();
    std::fs::write(pki.directory.0.join("manifests/web.yaml"), manifest("web")).unwrap();
    let configure = |more: &str| {
        let text = format!(
            "staticPodPath: manifests\nnodeName: node-1\ntlsCertFile: node.crt\ntlsPrivateKeyFile: node.key\n\
             authentication: {{x509: {{clientCAFile: clients.pem}}}}\n{more}"
        );
        pki.directory.write("config.yaml", &text);
    };
    configure("allowedClientNames: [vector]\n");
    let mut agent = service(&pki.directory.0.join("config.yaml"), &[]);
    let code = |name: &str| answer(&pki, &agent, Some(clients.sign_for(name, "x")), None, "/pods").code;
    assert_eq!((code("vector"), code("prometheus")), (200, 403));

    configure("allowedClientNames: [prometheus]\n");
    agent.signal("HUP");
    agent.wait_for_log("every change is in effect");
    assert_eq!((code("vector"), code("prometheus")), (403, 200));

    // And by a group: a certificate's organization.
    let code_of_group = |group: &str| {
        let certificate = clients.sign_for("prometheus", group);
        answer(&pki, &agent, Some(certificate), None, "/pods").code
    };
    configure("allowedClientGroups: [monitoring]\n");
    agent.signal("HUP");
    agent.wait_for_log("every change is in effect");
    assert_eq!((code_of_group("monitoring"), code_of_group("x")), (200, 403));
    configure("allowedClientNames: [prometheus]\n");
    agent.signal("HUP");
    agent.wait_for_log("every change is in effect");

    // Without its names and before the other authority, the file would let in everybody.
    pki.directory.write("others.pem", &clients.pem);
    configure("");
    let config = pki.directory.0.join("config.yaml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("clients.pem", "others.pem")).unwrap();
    agent.signal("HUP");
    agent
        .wait_for_log("allowedClientNames, which is gone, has changed, and takes effect at the next restart");
    assert_eq!((code("vector"), code("prometheus")), (403, 200));
    agent.end();
}

/// A key that takes effect at a signal: two values, and how an agent with the one behaves otherwise than with the other.
struct Signalled {
    key: &'static str,
    before: &'static str,
    after: &'static str,
    behaviour: fn(&Asked<'_>) -> String,
}

/// An agent that clients with certificates ask.
struct Asked<'a> {
    agent: &'a Agent,
    pki: &'a Pki,
    clients: &'a Authority,
}

impl Asked<'_> {
    /// The status that a client of this name and this group gets.
    fn code(&self, name: &str, group: &str) -> u16 {
        self.code_at("/pods", name, group)
    }

    fn code_at(&self, path: &str, name: &str, group: &str) -> u16 {
        answer(self.pki, self.agent, Some(self.clients.sign_for(name, group)), None, path).code
    }

    /// The status of a watch, once the agent has read its manifests. The watch ends by itself.
    fn code_of_watch(&self) -> u16 {
        loop {
            let code = self.code_at("/api/v1/pods?watch=1&timeoutSeconds=1", "vector", "x");
            if code != 503 {
                return code;
            }
        }
    }
}

/// Each key that `docs/operators.md` says to take effect at a signal.
const SIGNALLED: [Signalled; 5] = [
    Signalled {
        key: "logLevel",
        before: "info",
        after: "debug",
        // The signal asks for the configured level.
        behaviour: |asked| {
            asked.agent.signal("USR2");
            let line = asked.agent.wait_for_log("the log level is ");
            line.split("the log level is ").last().unwrap().to_owned()
        },
    },
    Signalled {
        key: "allowedClientNames",
        before: "[vector]",
        after: "[prometheus]",
        behaviour: |asked| format!("{:?}", [asked.code("vector", "x"), asked.code("prometheus", "x")]),
    },
    Signalled {
        key: "allowedClientGroups",
        before: "[shippers]",
        after: "[monitoring]",
        behaviour: |asked| format!("{:?}", [asked.code("a", "shippers"), asked.code("a", "monitoring")]),
    },
    Signalled {
        key: "maxWatches",
        before: "0",
        after: "1",
        behaviour: |asked| asked.code_of_watch().to_string(),
    },
    Signalled {
        key: "maxWatchesPerClient",
        before: "0",
        after: "1",
        behaviour: |asked| asked.code_of_watch().to_string(),
    },
];

/// A change that is reported as done, and is not, would show in no log. So the changed agent is compared with one that started with
/// the new value.
#[test]
fn what_takes_effect_at_a_signal_holds_as_after_a_restart() {
    let operators = include_str!("../../../docs/operators.md");
    let documented: BTreeSet<_> =
        operators.lines().filter(|line| line.contains("| at SIGHUP")).flat_map(code).collect();
    assert_eq!(documented, SIGNALLED.iter().map(|signalled| signalled.key).collect(), "a case for each key");

    let pki = Pki::new();
    let clients = Authority::new();
    pki.directory.write("clients.pem", &clients.pem);
    std::fs::create_dir(pki.directory.0.join("manifests")).unwrap();
    let config = pki.directory.0.join("config.yaml");
    for Signalled { key, before, after, behaviour } in SIGNALLED {
        let configure = |value: &str| {
            let text = format!(
                "staticPodPath: manifests\nnodeName: node-1\ntlsCertFile: node.crt\ntlsPrivateKeyFile: node.key\n\
                 authentication: {{x509: {{clientCAFile: clients.pem}}}}\n{key}: {value}\n"
            );
            pki.directory.write("config.yaml", &text);
        };
        let behaviour = |agent: &Agent| {
            agent.forget_log();
            behaviour(&Asked { agent, pki: &pki, clients: &clients })
        };
        configure(before);
        let mut agent = service(&config, &[]);
        let at_first = behaviour(&agent);
        configure(after);
        agent.signal("HUP");
        agent.wait_for_log("every change is in effect");
        let signalled = behaviour(&agent);
        agent.end();
        let mut restarted = service(&config, &[]);
        let expected = behaviour(&restarted);
        restarted.end();
        assert_ne!(at_first, expected, "{key}: the case does not tell the values apart");
        assert_eq!(signalled, expected, "{key}: after the signal");
    }
}

/// A named pipe that nobody writes: to read it takes for ever.
#[test]
fn a_file_that_hung_is_read_at_the_next_signal() {
    let directory = Directory::new();
    std::fs::create_dir(directory.0.join("manifests")).unwrap();
    let config = directory.0.join("config.yaml");
    let settings = "staticPodPath: manifests\nnodeName: node-1\n";
    directory.write("config.yaml", settings);
    let mut agent = service(&config, &[]).ready();
    std::fs::remove_file(&config).unwrap();
    nix::unistd::mkfifo(&config, nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR).unwrap();
    agent.signal("HUP");
    agent.wait_for_log("a file could not be read within 10 s; the next SIGHUP tries again");
    std::fs::remove_file(&config).unwrap();
    directory.write("config.yaml", &format!("{settings}logLevel: debug\n"));
    agent.signal("HUP");
    agent.wait_for_log("every change is in effect");
    // A file without an end neither ends the agent nor changes anything.
    std::fs::remove_file(&config).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &config).unwrap();
    agent.signal("HUP");
    agent.wait_for_log("config.yaml: cannot be read: it is larger than 1 MiB");
    agent.end();
}

#[test]
fn a_file_that_cannot_be_read_to_its_end_delays_nothing_else() {
    let directory = Directory::new();
    std::fs::create_dir(directory.0.join("manifests")).unwrap();
    std::fs::write(directory.0.join("manifests/web.yaml"), manifest("web")).unwrap();
    let config = directory.0.join("config.yaml");
    directory.write("config.yaml", "staticPodPath: manifests\nnodeName: node-1\n");
    let mut agent = service(&config, &[]).ready();
    std::fs::remove_file(&config).unwrap();
    nix::unistd::mkfifo(&config, nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR).unwrap();
    for _ in 0..3 {
        agent.signal("HUP");
    }
    agent.wait_for_log("reading the configuration again");
    agent.has("/pods/default/web-node-1");
    let since = Instant::now();
    agent.end();
    assert!(since.elapsed() < Duration::from_secs(12), "{:?}", since.elapsed());
}
