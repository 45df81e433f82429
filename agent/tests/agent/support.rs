//! The real binary as a process, and an HTTP client that is simple enough to misbehave.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, Once, mpsc};
use std::time::{Duration, Instant};

use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use nix::sys::signal::{SigHandler, Signal, signal};
use pod_index::PodMeta;
use serde::de::DeserializeOwned;

/// Waits for a condition.
#[track_caller]
pub fn wait_for<W: Display>(what: impl Fn() -> W, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{}", what());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Timeout for everything, generous for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Arguments of the binary: a list, or one text, in which none has a space.
pub trait Args {
    fn list(&self) -> Vec<&str>;
}

impl Args for str {
    fn list(&self) -> Vec<&str> {
        self.split(' ').filter(|word| !word.is_empty()).collect()
    }
}

impl Args for String {
    fn list(&self) -> Vec<&str> {
        self.as_str().list()
    }
}

impl<T: AsRef<str>> Args for [T] {
    fn list(&self) -> Vec<&str> {
        self.iter().map(AsRef::as_ref).collect()
    }
}

impl<T: AsRef<str>, const N: usize> Args for [T; N] {
    fn list(&self) -> Vec<&str> {
        self.as_slice().list()
    }
}

impl<T: AsRef<str>> Args for Vec<T> {
    fn list(&self) -> Vec<&str> {
        self.as_slice().list()
    }
}

/// The binary, without environment variables that it would read. `POD_INDEX_AGENT` names another binary than the one
/// built with the tests.
pub fn binary(args: &(impl Args + ?Sized)) -> Command {
    let program =
        std::env::var_os("POD_INDEX_AGENT").unwrap_or_else(|| env!("CARGO_BIN_EXE_pod-index").into());
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("POD_INDEX_"))
    {
        command.env_remove(name);
    }
    command.args(args.list()).stdin(Stdio::null());
    hang_ups_end_programs();
    command
}

/// A program inherits which signals are ignored. `nohup cargo test`, as some job runners start it, ignores SIGHUP, and the
/// agent keeps a SIGHUP ignored that it finds ignored: the tests that send one would wait for ever.
fn hang_ups_end_programs() {
    static ONCE: Once = Once::new();
    // SAFETY: the default action is no handler, so there is none that could run at a wrong moment.
    ONCE.call_once(|| unsafe {
        signal(Signal::SIGHUP, SigHandler::SigDfl).unwrap();
    });
}

/// As [`binary`], started by this program and its arguments.
pub fn started_by(program: &[&str], args: &(impl Args + ?Sized)) -> Command {
    let plain = binary(args);
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).arg(plain.get_program()).args(plain.get_args()).stdin(Stdio::null());
    for (name, _) in plain.get_envs() {
        command.env_remove(name);
    }
    command
}

/// Runs it to its end.
pub fn run(args: &(impl Args + ?Sized)) -> Output {
    binary(args).output().unwrap()
}

/// Runs it, and expects this exit code and these words on standard error.
#[track_caller]
pub fn refused(args: &(impl Args + ?Sized), code: i32, why: &str) {
    let (args, output) = (args.list(), run(args));
    assert_eq!(output.status.code(), Some(code), "{args:?}: {} {}", stdout(&output), stderr(&output));
    assert!(stderr(&output).contains(why), "{args:?}: {why:?} is not in {}", stderr(&output));
}

/// As [`run`], but fails the test if it never ends.
pub fn run_within(patience: Duration, args: &(impl Args + ?Sized)) -> Output {
    let mut child = binary(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + patience;
    // The output is short enough for the pipes.
    while child.try_wait().unwrap().is_none() {
        if Instant::now() >= deadline {
            let _ = child.kill();
            panic!("{:?}: no end within {patience:?}: {:?}", args.list(), child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// The output, after which it must have ended with 0.
#[track_caller]
pub fn succeeded(output: Output) -> Output {
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

pub fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

pub fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// A running agent; killed when dropped.
pub struct Agent {
    child: Child,
    pub address: SocketAddr,
    log: Mutex<Log>,
}

/// What the agent has logged.
struct Log {
    coming: mpsc::Receiver<String>,
    /// All lines, and whether a caller has waited for each.
    lines: Vec<(String, bool)>,
}

impl Log {
    /// The first line with `text` that no caller has waited for.
    fn take(&mut self, text: &str) -> Option<String> {
        self.lines.extend(self.coming.try_iter().map(|line| (line, false)));
        let (line, taken) = self.lines.iter_mut().find(|(line, taken)| !taken && line.contains(text))?;
        *taken = true;
        Some(line.clone())
    }
}

impl Agent {
    /// Starts the agent on a free port and waits until it serves.
    pub fn start(args: &(impl Args + ?Sized)) -> Self {
        Self::spawn(binary(args))
    }

    /// As [`start`](Self::start), with additional arguments and environment.
    pub fn spawn(command: Command) -> Self {
        Self::spawn_read_by(command, |stderr, sender| {
            // Read to the end, so that the agent never blocks on its log.
            stderr.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
        })
    }

    /// As [`spawn`](Self::spawn), but stops reading the log once the agent serves.
    pub fn spawn_unread(command: Command) -> Self {
        Self::spawn_read_by(command, |mut stderr, sender| {
            let mut line = String::new();
            while !line.contains("serving on http") {
                line.clear();
                assert!(stderr.read_line(&mut line).unwrap() > 0, "the agent ended");
                let _ = sender.send(line.trim_end().to_owned());
            }
            // The pipe stays open while this process lives.
            std::mem::forget(stderr);
        })
    }

    fn spawn_read_by(
        mut command: Command,
        read: impl FnOnce(BufReader<ChildStderr>, mpsc::Sender<String>) + Send + 'static,
    ) -> Self {
        command.args(["--port", "0"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, log) = mpsc::channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || read(stderr, sender));
        let log = Mutex::new(Log { coming: log, lines: Vec::new() });
        let mut agent = Self { child, address: SocketAddr::from(([0, 0, 0, 0], 0)), log };
        let line = agent.wait_for_log("serving on http");
        let address = line.split("://").nth(1).unwrap().split([' ', '"']).next().unwrap();
        agent.address = address.parse().unwrap();
        agent
    }

    /// As [`start`](Self::start) on a directory of manifests. Waits until the agent is ready.
    pub fn on(path: &Path) -> Self {
        Self::on_with(path, &[])
    }

    /// As [`on`](Self::on), with additional arguments.
    pub fn on_with(path: &Path, more: &[&str]) -> Self {
        let agent = Self::start(&[&node_1(path).list()[..], more].concat());
        // On a busy machine, a debug build decodes 20 MB of manifests for more than a minute.
        agent.until_within(5 * PATIENCE, "/readyz", |answer| answer.code == 200);
        agent
    }

    /// Waits for a log line that contains `text`, unless there is one already. Returns each line once.
    pub fn wait_for_log(&self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut log = self.log.lock().unwrap();
        loop {
            if let Some(line) = log.take(text) {
                return line;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match log.coming.recv_timeout(left) {
                Ok(line) => log.lines.push((line, false)),
                Err(error) => panic!("no log line with {text:?} ({error}) among {:#?}", log.lines),
            }
        }
    }

    /// All lines logged so far.
    pub fn logged(&self) -> Vec<String> {
        let mut log = self.log.lock().unwrap();
        let log = &mut *log;
        log.lines.extend(log.coming.try_iter().map(|line| (line, false)));
        log.lines.iter().map(|(line, _)| line.clone()).collect()
    }

    /// Discards the logged lines, for tests that never read them.
    pub fn forget_log(&self) {
        let mut log = self.log.lock().unwrap();
        log.coming.try_iter().for_each(drop);
        log.lines.clear();
    }

    /// All lines, up to the end of the log.
    pub fn whole_log(&self) -> Vec<String> {
        let mut log = self.log.lock().unwrap();
        loop {
            match log.coming.recv_timeout(PATIENCE) {
                Ok(line) => log.lines.push((line, false)),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("the log does not end"),
            }
        }
        log.lines.iter().map(|(line, _)| line.clone()).collect()
    }

    pub fn get(&self, path: &str) -> Answer {
        get(self.address, path)
    }

    /// A connection on which these words were sent.
    pub fn connect(&self, words: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(words.as_bytes()).unwrap();
        stream
    }

    /// Sends a request with additional headers and a body.
    pub fn send(&self, request: &str, headers: &str, body: &str) -> Answer {
        Answer::to(self.connect(""), request, headers, body)
    }

    /// Repeats the request until the response is as expected.
    pub fn until(&self, path: &str, good: impl Fn(&Answer) -> bool) -> Answer {
        self.until_within(PATIENCE, path, good)
    }

    /// As [`until`](Self::until), with a longer timeout.
    pub fn until_within(&self, patience: Duration, path: &str, good: impl Fn(&Answer) -> bool) -> Answer {
        let deadline = Instant::now() + patience;
        loop {
            let answer = self.get(path);
            if good(&answer) {
                return answer;
            }
            assert!(Instant::now() < deadline, "{path} still answers {} {}", answer.code, answer.body);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the agent is ready.
    pub fn ready(self) -> Self {
        self.has("/readyz");
        self
    }

    /// Waits until this is there.
    pub fn has(&self, path: &str) -> Answer {
        self.until(path, |answer| answer.code == 200)
    }

    /// Waits until this is not there.
    pub fn lacks(&self, path: &str) -> Answer {
        self.until(path, |answer| answer.code == 404)
    }

    /// The names of its pods, sorted.
    pub fn names(&self) -> Vec<String> {
        let list: List<Pod> = self.get("/pods").json();
        let mut names: Vec<_> = list.items.iter().map(|pod| pod.name().to_owned()).collect();
        names.sort_unstable();
        names
    }

    /// Waits until the agent accepts no more connections.
    pub fn wait_until_nobody_listens(&self) {
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(self.address).is_ok() {
            assert!(Instant::now() < deadline, "the agent still accepts connections");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn port(&self) -> String {
        self.address.port().to_string()
    }

    /// Runs `pod-index` as a client of this agent.
    pub fn ask(&self, args: &(impl Args + ?Sized)) -> Output {
        run(&self.asking(args))
    }

    /// As [`refused`], as a client of this agent.
    #[track_caller]
    pub fn refuses(&self, args: &(impl Args + ?Sized), code: i32, why: &str) {
        refused(&self.asking(args), code, why);
    }

    fn asking(&self, args: &(impl Args + ?Sized)) -> Vec<String> {
        let port = ["--port".to_owned(), self.port()];
        args.list().into_iter().map(str::to_owned).chain(port).collect()
    }

    /// A figure in `/proc/PID/status`, in KiB.
    pub fn kib(&self, key: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Ends it by a signal.
    #[track_caller]
    pub fn end(&mut self) {
        self.signal("TERM");
        assert_eq!(self.wait(), Some(0));
    }

    /// Fails the test if the agent has ended.
    pub fn must_live(&mut self) {
        let status = self.child.try_wait().unwrap();
        assert!(
            status.is_none(),
            "the agent has ended: {status:?}; the end of its log: {:?}",
            self.logged().last()
        );
    }

    /// Waits for the agent to end. Returns the exit code.
    pub fn wait(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "the agent does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Tells the threads of a test to stop.
#[derive(Debug, Default)]
pub struct Stop(AtomicBool);

impl Stop {
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the flag when dropped, also by a panic: otherwise a failing test would wait for its threads forever. Create
    /// it in the scope of the threads.
    pub fn at_the_end(&self) -> AtTheEnd<'_> {
        AtTheEnd(self)
    }
}

#[must_use = "dropped at once, it stops everybody"]
pub struct AtTheEnd<'a>(&'a Stop);

impl Drop for AtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a request to the agent on this port.
pub fn get(address: SocketAddr, path: &str) -> Answer {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    exchange(address, request.as_bytes())
}

/// Sends these bytes and reads the response until the agent closes the connection.
pub fn exchange(address: SocketAddr, bytes: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The agent may refuse a long request before its end, and close the connection after its response.
    let _ = stream.write_all(bytes);
    Answer::read(stream)
}

/// The agent's response.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    /// Names in lower case, as the agent writes them.
    pub head: String,
    pub body: String,
}

impl Answer {
    /// Sends a request with additional headers and a body, and reads its response.
    pub fn to(mut stream: impl Read + Write, request: &str, headers: &str, body: &str) -> Self {
        let length = body.len();
        let head = format!("Host: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}");
        // The agent may refuse a request before its end, and close the connection after its response.
        let _ = stream.write_all(format!("{request} HTTP/1.1\r\n{head}\r\n{body}").as_bytes());
        Self::read(stream)
    }

    pub fn read(mut stream: impl Read) -> Self {
        let mut bytes = Vec::new();
        // The agent may reset the connection after its response.
        let _ = stream.read_to_end(&mut bytes);
        let (head, body) = parted(&bytes);
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        let head = head.to_owned();
        let body = if head.contains("transfer-encoding: chunked") { unchunk(body) } else { body.to_vec() };
        let body = if head.contains("content-encoding: gzip") { unzip(&body) } else { body };
        Self { code, head, body: String::from_utf8(body).unwrap() }
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub fn json<T: DeserializeOwned>(&self) -> T {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {}", self.body))
    }
}

/// The parts before and after the first empty line.
fn parted(bytes: &[u8]) -> (&str, &[u8]) {
    let end = bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap_or(bytes.len());
    (std::str::from_utf8(&bytes[..end]).unwrap(), bytes.get(end + 4..).unwrap_or_default())
}

fn unchunk(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|bytes| bytes == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        whole.extend_from_slice(&body[end + 2..][..size]);
        body = &body[end + 2 + size + 2..];
    }
    whole
}

fn unzip(body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    flate2::read::GzDecoder::new(body).read_to_end(&mut whole).unwrap();
    whole
}

/// A directory of manifests, removed with the test.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("agent-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Writes a file atomically: under another name, then renamed.
    pub fn write(&self, name: &str, text: &str) {
        let beside = self.0.join(format!(".{name}"));
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(beside, self.0.join(name)).unwrap();
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server that answers the head of each request with a status and a text, until the test ends. Returns its address. The status
/// may have headers in the lines below it.
pub fn serve(answer: impl Fn(&str) -> (&'static str, String) + Send + 'static) -> String {
    serve_bodies(move |head, _| answer(head))
}

/// As [`serve`], for requests with a body.
pub fn serve_bodies(answer: impl Fn(&str, &str) -> (&'static str, String) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(&stream);
            let lines = reader.by_ref().lines().map_while(Result::ok);
            let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
            let length = |line: &String| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok();
            let mut asked = String::new();
            let _ = reader.take(head.iter().find_map(length).unwrap_or(0)).read_to_string(&mut asked);
            let (status, body) = answer(&head.join("\n"), &asked);
            let length = body.len();
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all((head + &body).as_bytes());
        }
    });
    address
}

/// How an agent refuses for now: the status with its header, and the body.
pub fn refusal(code: u16) -> (&'static str, String) {
    let (status, reason) = match code {
        429 => ("429 Too Many Requests\r\nRetry-After: 1", "TooManyRequests"),
        503 => ("503 Service Unavailable\r\nRetry-After: 1", "ServiceUnavailable"),
        _ => panic!("an agent does not refuse with {code} for now"),
    };
    let body = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "planted",
        "reason": reason, "details": { "retryAfterSeconds": 1 }, "code": code,
    });
    (status, body.to_string())
}

/// The rows of the only table of a document with this heading: their cells.
pub fn table(document: &'static str, heading: &str) -> Vec<Vec<&'static str>> {
    let table = document.split(heading).nth(1).unwrap_or_else(|| panic!("no table {heading}"));
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.split('|').skip(1).map(str::trim).collect()).collect()
}

/// What is formatted as code.
pub fn code(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

pub const REFERENCE: &str = include_str!("../../../docs/reference.md");

/// A small valid manifest.
pub fn manifest(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: c, image: nginx}}]}}\n"
    )
}

/// The arguments of an agent of `node-1` with the manifests in this directory.
pub fn node_1(manifests: &Path) -> String {
    format!("--pod-manifest-path {} --hostname-override node-1", manifests.display())
}

pub fn shipped() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("examples/manifests")
}
