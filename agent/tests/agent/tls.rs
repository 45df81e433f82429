//! TLS on the agent's port: who is served, who is not, and what happens when the certificate changes.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::support::{
    Agent, Answer, Args, Directory, PATIENCE, binary, get, node_1, refused, run, shipped, stderr, stdout,
    succeeded, wait_for,
};

/// A certificate authority.
pub struct Authority {
    pub issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for this name or address, and its key.
    pub fn sign(&self, name: &str) -> (String, String) {
        self.sign_until(name, 4096)
    }

    /// A certificate valid until this year.
    fn sign_until(&self, name: &str, year: i32) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// Files of certificates, and the paths to them.
pub struct Pki {
    pub authority: Authority,
    pub directory: Directory,
}

impl Pki {
    /// A directory with `ca.pem`, and `node.crt` and `node.key` for the agent.
    pub fn new() -> Self {
        let pki = Self { authority: Authority::new(), directory: Directory::new() };
        pki.directory.write("ca.pem", &pki.authority.pem);
        pki.renew("node", "127.0.0.1");
        pki
    }

    /// Writes a new certificate and its key. Returns the certificate.
    pub fn renew(&self, file: &str, name: &str) -> CertificateDer<'static> {
        self.renew_until(file, name, 4096)
    }

    /// A certificate valid until this year.
    fn renew_until(&self, file: &str, name: &str, year: i32) -> CertificateDer<'static> {
        let (certificate, key) = self.authority.sign_until(name, year);
        self.directory.write(&format!("{file}.key"), &key);
        self.directory.write(&format!("{file}.crt"), &certificate);
        CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()
    }

    pub fn at(&self, name: &str) -> String {
        self.directory.0.join(name).display().to_string()
    }

    pub fn start(&self, more: &(impl Args + ?Sized)) -> Agent {
        let agent = self.start_unready(more);
        agent.wait_for_log("ready: the pods");
        agent
    }

    /// As [`start`](Self::start), for an agent that is not ready at once.
    pub fn start_unready(&self, more: &(impl Args + ?Sized)) -> Agent {
        Agent::start(&format!("{} {} {}", node_1(&shipped()), self.flags(), more.list().join(" ")))
    }

    /// The flags for the agent's certificate.
    pub fn flags(&self) -> String {
        format!("--tls-cert-file {} --tls-private-key-file {}", self.at("node.crt"), self.at("node.key"))
    }

    /// A client that trusts the authority.
    pub fn client(&self) -> Client {
        Client { trusts: self.authority.pem.clone(), is: None }
    }
}

/// A TLS client.
pub struct Client {
    pub trusts: String,
    /// A certificate and its key.
    pub is: Option<(String, String)>,
}

impl Client {
    pub fn connect(&self, agent: SocketAddr) -> StreamOwned<ClientConnection, TcpStream> {
        Self::connect_by(&self.config(), agent)
    }

    /// A client's TLS configuration, including its session cache.
    pub fn config(&self) -> Arc<ClientConfig> {
        let mut authorities = RootCertStore::empty();
        authorities.add(CertificateDer::from_pem_slice(self.trusts.as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(authorities);
        Arc::new(match &self.is {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        })
    }

    pub fn connect_by(
        config: &Arc<ClientConfig>,
        agent: SocketAddr,
    ) -> StreamOwned<ClientConnection, TcpStream> {
        let connection =
            ClientConnection::new(Arc::clone(config), IpAddr::from([127, 0, 0, 1]).into()).unwrap();
        let stream = TcpStream::connect(agent).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        StreamOwned::new(connection, stream)
    }

    /// The response and the agent's certificate, or the error.
    fn get(
        &self,
        agent: SocketAddr,
        path: &str,
    ) -> Result<(Answer, CertificateDer<'static>), std::io::Error> {
        let mut stream = self.connect(agent);
        write!(stream, "GET {path} HTTP/1.1\r\nHost: l\r\nConnection: close\r\n\r\n")?;
        let mut bytes = Vec::new();
        // Read until the TLS close: a truncated response is an error.
        stream.read_to_end(&mut bytes)?;
        let presented = stream.conn.peer_certificates().unwrap()[0].clone().into_owned();
        Ok((Answer::read(&*bytes), presented))
    }

    pub fn code(&self, agent: &Agent, path: &str) -> Result<u16, String> {
        self.get(agent.address, path).map(|(answer, _)| answer.code).map_err(|error| error.to_string())
    }

    /// Waits until the agent presents this certificate.
    pub fn meets(&self, agent: &Agent, certificate: &CertificateDer<'_>) {
        let meets = || self.get(agent.address, "/livez").unwrap().1 == *certificate;
        wait_for(|| "still another certificate", meets);
    }
}

#[test]
fn clients_that_trust_the_agents_authority_are_served_and_others_see_why_not() {
    let pki = Pki::new();
    let agent = pki.start("");
    let (answer, _) = pki.client().get(agent.address, "/pods").unwrap();
    assert_eq!(answer.json::<serde_json::Value>()["items"].as_array().unwrap().len(), 5);
    let other = Client { trusts: Authority::new().pem, is: None };
    let refused = other.code(&agent, "/pods").unwrap_err();
    assert!(refused.contains("invalid peer certificate"), "{refused}");

    let get = "get kube-system/etcd-node-1 -o json";
    let (ca, other) = (pki.at("ca.pem"), pki.at("other.pem"));
    let output = agent.ask(&format!("{get} --certificate-authority {ca}"));
    assert!(output.status.success() && stdout(&output).contains("etcd-node-1"), "{}", stderr(&output));
    pki.directory.write("other.pem", &Authority::new().pem);
    for (more, why) in [
        (format!("--ca-file {other}"), "invalid peer certificate"),
        (String::new(), "does it speak TLS? See --certificate-authority"),
        (format!("--ca-file {ca} --tls-server-name another"), "another"),
    ] {
        agent.refuses(&format!("{get} {more}"), 3, why);
    }

    // A certificate for a name, as nodes have, requested over loopback.
    pki.renew("node", "node-1.example.com");
    agent.wait_for_log("new connections use the new TLS certificate");
    succeeded(agent.ask(&format!("{get} --ca-file {ca} --tls-server-name node-1.example.com")));
}

#[test]
fn plain_http_on_the_tls_port_gets_no_answer_and_delays_nobody() {
    let pki = Pki::new();
    let agent = pki.start("");
    for path in ["/pods", &format!("/{}", "x".repeat(100_000))] {
        assert_eq!(get(agent.address, path).code, 0, "{}", path.len());
    }
    assert_eq!(pki.client().code(&agent, "/livez"), Ok(200));
}

/// A resumed session does not present the client's certificate again, which may have expired.
#[test]
fn a_required_certificate_is_checked_on_each_connection() {
    let pki = Pki::new();
    let is = Some(pki.authority.sign("somebody"));
    for (more, expected) in [(format!("--client-ca-file {}", pki.at("ca.pem")), false), (String::new(), true)]
    {
        let agent = pki.start(&more);
        let config = Client { trusts: pki.authority.pem.clone(), is: is.clone() }.config();
        let taken_up = [(); 3].map(|()| {
            let mut stream = Client::connect_by(&config, agent.address);
            write!(stream, "GET /livez HTTP/1.1\r\nHost: l\r\nConnection: close\r\n\r\n").unwrap();
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).unwrap();
            assert_eq!(Answer::read(&*bytes).code, 200);
            stream.conn.handshake_kind() == Some(rustls::HandshakeKind::Resumed)
        });
        assert_eq!(taken_up, [false, expected, expected]);
    }
}

#[test]
fn clients_without_a_handshake_block_no_others_and_are_disconnected() {
    let pki = Pki::new();
    let mut agent = pki.start("");
    let mut greeted = pki.client().connect(agent.address);
    let mut held = Vec::new();
    for number in 0..600 {
        let mut stream = TcpStream::connect(agent.address).unwrap();
        // Nothing; the start of a handshake; the start, then garbage.
        let words: &[u8] =
            [&b""[..], b"\x16\x03\x01\x02\x00\x01", b"\x16\x03\x01\x00\x05rubbish"][number % 3];
        let _ = stream.write_all(words);
        held.push(stream);
        if number % 50 == 0 {
            assert_eq!(pki.client().code(&agent, "/pods/kube-system/etcd-node-1"), Ok(200), "{number}");
            greeted.write_all(b"GET /livez HTTP/1.1\r\nHost: l\r\n\r\n").unwrap();
            let mut answer = [0; 512];
            let read = greeted.read(&mut answer).unwrap();
            assert!(
                answer[..read].starts_with(b"HTTP/1.1 200"),
                "established connections continue, {number}"
            );
        }
    }
    assert_eq!(pki.client().code(&agent, "/livez"), Ok(200));
    for mut stream in held {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut said = Vec::new();
        let end = stream.read_to_end(&mut said);
        let waits = end.is_err_and(|error| {
            matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
        });
        assert!(!waits, "the agent still waits for the client");
    }
    // A client without a finished handshake does not block a shutdown either.
    let _held = TcpStream::connect(agent.address).unwrap();
    agent.end();
    let waited = agent.whole_log().into_iter().find(|line| line.contains("closing connections"));
    assert_eq!(waited, None, "it waited for the handshake");
}

#[test]
fn new_connections_use_a_new_certificate_but_never_an_invalid_one() {
    let pki = Pki::new();
    let agent = pki.start("");
    let client = pki.client();
    let mut open = client.connect(agent.address);
    let mut still_served = || {
        open.write_all(b"GET /livez HTTP/1.1\r\nHost: l\r\n\r\n").unwrap();
        let mut answer = [0; 512];
        let read = open.read(&mut answer).unwrap();
        assert!(answer[..read].starts_with(b"HTTP/1.1 200"), "an open connection continues");
    };
    still_served();
    let has = |line: &str| {
        let (answer, _) = client.get(agent.address, "/metrics").unwrap();
        answer.body.contains(&format!("\n{line}\n"))
    };
    let is_current = || has("pod_index_tls_certificate_current 1");
    let ends =
        |seconds: u64| has(&format!("pod_index_tls_certificate_not_after_timestamp_seconds {seconds}"));
    assert!(is_current());
    // The year 4096.
    assert!(ends(67_090_118_400));

    let second = pki.renew_until("node", "127.0.0.1", 2900);
    wait_for(
        || "still another certificate",
        || {
            still_served();
            client.get(agent.address, "/livez").unwrap().1 == second
        },
    );
    still_served();
    assert!(ends(29_348_006_400));

    // A mismatched key.
    fs::write(pki.at("node.key"), pki.authority.sign("127.0.0.1").1).unwrap();
    let line = agent.wait_for_log("the TLS certificate is unchanged");
    assert!(line.contains("--tls-cert-file") && line.contains("node.key"), "{line}");
    assert!(!line.contains("PRIVATE KEY"), "{line}");
    client.meets(&agent, &second);
    assert!(!is_current() && ends(29_348_006_400), "of what is presented");

    let third = pki.renew("node", "127.0.0.1");
    client.meets(&agent, &third);
    assert!(is_current());
    assert!(!agent.logged().join("\n").contains("PRIVATE KEY"));
}

#[test]
fn with_a_client_authority_only_its_clients_are_served() {
    let (pki, clients) = (Pki::new(), Authority::new());
    pki.directory.write("clients.pem", &clients.pem);
    let agent = pki.start(&["--client-ca-file", &pki.at("clients.pem")]);
    let client = |is| Client { trusts: pki.authority.pem.clone(), is };
    assert_eq!(client(Some(clients.sign("me"))).code(&agent, "/pods"), Ok(200));
    for (who, is) in [("nobody", None), ("another authority's", Some(pki.authority.sign("me")))] {
        for path in ["/pods", "/metrics", "/livez"] {
            // An alert, or a connection that ended before the request was written.
            assert!(client(is.clone()).code(&agent, path).is_err(), "{who}: {path}");
        }
    }

    let (certificate, key) = clients.sign("me");
    pki.directory.write("me.crt", &certificate);
    pki.directory.write("me.key", &key);
    let ca = pki.at("ca.pem");
    let get = format!("get kube-system/etcd-node-1 --ca-file {ca}");
    let output = agent.ask(&get);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).to_lowercase().contains("certificate"), "{}", stderr(&output));
    let (certificate, key) = (pki.at("me.crt"), pki.at("me.key"));
    succeeded(agent.ask(&format!("{get} --client-certificate {certificate} --client-key {key}")));
    // Variables and flags complete each other.
    for (variables, flags) in [
        (vec![("CLIENT_CERTIFICATE", &certificate), ("CLIENT_KEY", &key)], format!("--ca-file {ca}")),
        (
            vec![("CERTIFICATE_AUTHORITY", &ca)],
            format!("--client-certificate {certificate} --client-key {key}"),
        ),
    ] {
        let mut command = binary(&format!("get kube-system/etcd-node-1 --port {} {flags}", agent.port()));
        let variables = variables.into_iter().map(|(name, value)| (format!("POD_INDEX_{name}"), value));
        let output = command.envs(variables).output().unwrap();
        assert!(output.status.success(), "{flags}: {}", stderr(&output));
    }

    // Only clients of the new authority are accepted.
    let newer = Authority::new();
    pki.directory.write("clients.pem", &newer.pem);
    agent.wait_for_log("new connections use the new TLS certificate");
    assert_eq!(client(Some(newer.sign("me"))).code(&agent, "/pods"), Ok(200));
    assert!(client(Some(clients.sign("me"))).code(&agent, "/pods").is_err());
}

#[test]
fn invalid_tls_files_prevent_the_start_and_are_named() {
    let pki = Pki::new();
    pki.renew("other", "127.0.0.1");
    pki.directory.write("junk.pem", "junk");
    pki.directory.write("torn.pem", "-----BEGIN CERTIFICATE-----\nAAAA");
    pki.directory.write("large.pem", &"x".repeat(2 << 20));
    let (ca, key, junk) = (pki.at("ca.pem"), pki.at("node.key"), pki.at("junk.pem"));
    // The flags' files of certificate, key and authority, and the file that the message names.
    for (files, setting, named) in [
        (["node.crt", "", ""], "--tls-private-key-file", ""),
        (["", "node.key", ""], "--tls-cert-file", ""),
        (["", "", "ca.pem"], "--client-ca-file", ""),
        (["nowhere.crt", "node.key", ""], "--tls-cert-file", "nowhere.crt"),
        (["junk.pem", "node.key", ""], "--tls-cert-file", "junk.pem"),
        (["torn.pem", "node.key", ""], "--tls-cert-file", "torn.pem"),
        (["large.pem", "node.key", ""], "--tls-cert-file", "large.pem: is larger than 1 MiB"),
        (["node.key", "node.key", ""], "--tls-cert-file", "node.key"),
        (["node.crt", "junk.pem", ""], "--tls-private-key-file", "junk.pem"),
        (["node.crt", "node.crt", ""], "--tls-private-key-file", "node.crt"),
        (["node.crt", "other.key", ""], "--tls-cert-file", "other.key"),
        (["node.crt", "node.key", "junk.pem"], "--client-ca-file", "junk.pem"),
    ] {
        let flags = ["--tls-cert-file", "--tls-private-key-file", "--client-ca-file"].into_iter().zip(files);
        let flags = flags.filter(|(_, file)| !file.is_empty());
        let args: Vec<_> = flags.map(|(flag, file)| format!("{flag} {}", pki.at(file))).collect();
        let output = run(&format!("{} {} --check", node_1(&shipped()), args.join(" ")));
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{files:?}: {said}");
        assert!(said.contains(setting) && said.contains(named), "{files:?}: {said}");
    }
    let start = format!("{} --port 0", node_1(&shipped()));
    refused(&format!("{start} --tls-cert-file {junk} --tls-private-key-file {key}"), 2, "junk.pem");
    refused(&format!("{start} --certificate-authority {ca}"), 2, "--client-ca-file");
    for (args, word) in [
        (format!("--ca-file {junk}"), "junk.pem"),
        (format!("--client-key {key}"), "--certificate-authority"),
        (format!("--ca-file {ca} --client-key {key}"), "--client-certificate"),
        (format!("--ca-file {ca} --tls-server-name a\tb"), "a\\tb"),
    ] {
        refused(&format!("get a/b {args}"), 2, word);
    }
}

/// The file of a setting that a variable gives, and the word that the message begins with.
#[test]
fn an_error_about_a_clients_tls_file_names_the_variable_that_gave_it() {
    let pki = Pki::new();
    pki.directory.write("junk.pem", "junk");
    let [ca, certificate, key, junk] =
        ["ca.pem", "node.crt", "node.key", "junk.pem"].map(|file| pki.at(file));
    for wrong in ["CERTIFICATE_AUTHORITY", "CLIENT_CERTIFICATE", "CLIENT_KEY", "TLS_SERVER_NAME"] {
        let mut command = binary("get a/b");
        for (setting, right) in
            [("CERTIFICATE_AUTHORITY", &ca), ("CLIENT_CERTIFICATE", &certificate), ("CLIENT_KEY", &key)]
        {
            command.env(format!("POD_INDEX_{setting}"), if setting == wrong { &junk } else { right });
        }
        if wrong == "TLS_SERVER_NAME" {
            command.env("POD_INDEX_TLS_SERVER_NAME", "a\tb");
        }
        let output = command.output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.starts_with(&format!("pod-index: POD_INDEX_{wrong}")), "{said}");
    }
    let output = binary("get a/b").env("POD_INDEX_PORT", "1").output().unwrap();
    assert!(stderr(&output).contains("no agent answers on 127.0.0.1:1 (--address, POD_INDEX_PORT): "));
    let output = binary("get a/b").env("POD_INDEX_SOCKET", pki.at("none.sock")).output().unwrap();
    assert!(stderr(&output).contains("none.sock (POD_INDEX_SOCKET): "), "{}", stderr(&output));
}

#[test]
fn the_configuration_file_has_the_kubelets_keys_and_tls_is_enough_to_serve_beyond_loopback() {
    let pki = Pki::new();
    let config = |more: &str| {
        let text = format!(
            "staticPodPath: .\naddress: 0.0.0.0\ntlsCertFile: node.crt\ntlsPrivateKeyFile: node.key\n{more}"
        );
        pki.directory.write("config.yaml", &text);
        run(&["--config", &pki.at("config.yaml"), "--check"])
    };
    let output = succeeded(config(""));
    let shows = |output: &std::process::Output, [key, value]: [&str; 2]| {
        let said = stdout(output);
        let is_shown = |line: &str| line.split_whitespace().eq([key, value]);
        assert!(said.lines().any(is_shown), "{key}: {said}");
    };
    shows(&output, ["address", "0.0.0.0"]);
    shows(&output, ["tlsCertFile", &pki.at("node.crt")]);
    let output = config("authentication: {x509: {clientCAFile: ca.pem}}\n");
    shows(&output, ["authentication.x509.clientCAFile", &pki.at("ca.pem")]);
    let output = config("authentication: {x509: {clientCAFile: nowhere.pem}}\n");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("config.yaml:5: authentication.x509.clientCAFile")
            && stderr(&output).contains("nowhere.pem"),
        "{}",
        stderr(&output)
    );
}
