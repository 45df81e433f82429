//! Drives Chromium through `chromedriver` (W3C `WebDriver`), with only the commands that the tests need.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Directory, PATIENCE};

/// The key that marks a reference to an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// No requests except for the page. Containers do not allow a sandbox.
const FLAGS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
];

/// A browser with one window, closed on drop.
pub struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    profile: Directory,
}

impl Browser {
    /// A window of this many CSS pixels with the page at `url`.
    pub fn open(url: &str, (width, height): (u32, u32)) -> Self {
        let profile = Directory::new();
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver; on Debian: apt-get install chromium chromium-driver");
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            line.strip_prefix("ChromeDriver was started successfully on port ")?
                .trim_end_matches('.')
                .parse()
                .ok()
        });
        let address = SocketAddr::from(([127, 0, 0, 1], port.expect("the driver says where it listens")));
        let mut browser = Self { driver, address, session: String::new(), profile };
        let mut flags: Vec<String> = FLAGS.map(str::to_owned).to_vec();
        flags.push(format!("--user-data-dir={}", browser.profile.0.display()));
        flags.push(format!("--window-size={width},{height}"));
        let wanted = json!({
            "browserName": "chrome",
            "goog:chromeOptions": { "args": flags },
            "goog:loggingPrefs": { "browser": "ALL" },
            // A script that returns while the page renders 100,000 rows.
            "timeouts": { "script": 300_000 },
        });
        let session = browser.call("POST", "/session", &json!({ "capabilities": { "alwaysMatch": wanted } }));
        browser.session = format!("/session/{}", session["sessionId"].as_str().unwrap());
        // The page gets this size, whatever the window's frame takes.
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        browser.devtools("Emulation.setDeviceMetricsOverride", &metrics);
        browser.go(url);
        browser
    }

    pub fn go(&self, url: &str) {
        self.ask("POST", "/url", &json!({ "url": url }));
    }

    /// Runs a script in the page. Returns its result.
    pub fn run(&self, script: &str) -> Value {
        self.ask("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// The visible text of the selected element.
    pub fn text(&self, selector: &str) -> String {
        let script = format!("return document.querySelector({}).innerText", json!(selector));
        self.run(&script).as_str().unwrap().to_owned()
    }

    /// Waits until the script returns true.
    pub fn until(&self, script: &str) {
        self.until_within(PATIENCE, script);
    }

    pub fn until_within(&self, patience: Duration, script: &str) {
        let deadline = Instant::now() + patience;
        while self.run(&format!("return Boolean({script})")) != json!(true) {
            let is_late = Instant::now() > deadline;
            assert!(!is_late, "not so: {script}; the page says:\n{}\n{:?}", self.text("body"), self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn click(&self, selector: &str) {
        self.ask("POST", &format!("/element/{}/click", self.find(selector)), &json!({}));
    }

    /// Types into the selected element.
    pub fn type_into(&self, selector: &str, text: &str) {
        self.ask("POST", &format!("/element/{}/value", self.find(selector)), &json!({ "text": text }));
    }

    fn find(&self, selector: &str) -> String {
        let found = self.ask("POST", "/element", &json!({ "using": "css selector", "value": selector }));
        found[ELEMENT].as_str().unwrap().to_owned()
    }

    /// A command specific to Chromium.
    pub fn devtools(&self, command: &str, params: &Value) -> Value {
        self.ask("POST", "/goog/cdp/execute", &json!({ "cmd": command, "params": params }))
    }

    /// The browser's log entries since the last call.
    pub fn log(&self) -> Vec<String> {
        let entries = self.ask("POST", "/se/log", &json!({ "type": "browser" }));
        let message = |entry: &Value| entry["message"].as_str().unwrap_or_default().to_owned();
        entries.as_array().unwrap().iter().map(message).collect()
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        self.call(method, &format!("{}{path}", self.session), body)
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(3 * PATIENCE)).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut stream = BufReader::new(stream);
        let mut length = 0;
        let mut line = String::new();
        while stream.read_line(&mut line).unwrap() > 2 {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            line.clear();
        }
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).unwrap();
        let mut answer: Value = serde_json::from_slice(&bytes).unwrap();
        let value = answer["value"].take();
        assert!(value.get("error").is_none(), "{method} {path} {body}: {value}");
        value
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends the browser only on request.
        if !self.session.is_empty()
            && let Ok(mut stream) = TcpStream::connect(self.address)
        {
            let _ = write!(
                stream,
                "DELETE {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
                self.session
            );
            let _ = stream.set_read_timeout(Some(PATIENCE));
            let _ = stream.read(&mut [0; 64]);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
