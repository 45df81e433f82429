//! Runs a program in its own terminal and reads the screen.

use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use vt100::{Parser, Screen};

use crate::support::{Args, PATIENCE};

pub struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
    keyboard: Box<dyn Write + Send>,
    shared: Arc<(Mutex<Seen>, Condvar)>,
}

/// The program's output, and the resulting screen.
struct Seen {
    parser: Parser,
    bytes: Vec<u8>,
    ended: bool,
    /// Whether nobody reads what the program writes.
    paused: bool,
}

fn size((width, height): (u16, u16)) -> PtySize {
    PtySize { rows: height, cols: width, pixel_width: 0, pixel_height: 0 }
}

fn some(cells: u16) -> NonZeroU16 {
    NonZeroU16::new(cells).unwrap()
}

impl Terminal {
    /// Runs the program in a terminal of this size.
    pub fn run(args: &(impl Args + ?Sized), size: (u16, u16)) -> Self {
        Self::run_after("", args, size)
    }

    /// As [`run`](Self::run), in a terminal in which these keys were pressed before.
    pub fn run_after(keys: &str, args: &(impl Args + ?Sized), (width, height): (u16, u16)) -> Self {
        let pair = native_pty_system().openpty(size((width, height))).unwrap();
        let mut keyboard = pair.master.take_writer().unwrap();
        keyboard.write_all(keys.as_bytes()).unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_pod-index"));
        command.args(args.list());
        command.env("TERM", "xterm-256color");
        command.env_remove("NO_COLOR");
        let child = pair.slave.spawn_command(command).unwrap();
        let seen = Seen {
            parser: Parser::new(some(height), some(width), 0),
            bytes: Vec::new(),
            ended: false,
            paused: false,
        };
        let shared = Arc::new((Mutex::new(seen), Condvar::new()));
        let mut output = pair.master.try_clone_reader().unwrap();
        let reader = Arc::clone(&shared);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            loop {
                // Fails once no process has the terminal open.
                let read = output.read(&mut buffer).unwrap_or(0);
                let mut seen = reader.0.lock().unwrap();
                seen.parser.process(&buffer[..read]);
                seen.bytes.extend_from_slice(&buffer[..read]);
                seen.ended = read == 0;
                reader.1.notify_all();
                if read == 0 {
                    return;
                }
                drop(reader.1.wait_while(seen, |seen| seen.paused).unwrap());
            }
        });
        Self { child, master: pair.master, keyboard, shared }
    }

    /// Sends keys as a terminal does.
    pub fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    pub fn resize(&self, (width, height): (u16, u16)) {
        self.shared.0.lock().unwrap().parser.screen_mut().set_size(some(height), some(width));
        self.master.resize(size((width, height))).unwrap();
    }

    /// From now on, nobody reads what the program writes, once it has written something more.
    pub fn stop_reading(&self) {
        self.shared.0.lock().unwrap().paused = true;
    }

    /// Whether the program's first thread waits in a write to the terminal, on standard output.
    pub fn is_blocked(&self) -> bool {
        // The number of the call, and its arguments. `running` while the thread does not wait.
        let call = std::fs::read_to_string(format!("/proc/{}/syscall", self.pid())).unwrap();
        let mut words = call.split_whitespace();
        let write = nix::libc::SYS_write.to_string();
        words.next() == Some(write.as_str()) && words.next() == Some("0x1")
    }

    /// Waits until the screen is as expected. Returns its text.
    pub fn until(&self, good: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = self.shared.0.lock().unwrap();
        loop {
            let text = seen.parser.screen().contents();
            if good(&text) {
                return text;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(seen);
                panic!("still to be seen:\n{text}");
            }
            seen = self.shared.1.wait_timeout(seen, left.min(Duration::from_secs(1))).unwrap().0;
        }
    }

    /// The current screen, with colours.
    pub fn screen(&self) -> Screen {
        self.shared.0.lock().unwrap().parser.screen().clone()
    }

    /// Everything written so far.
    pub fn bytes(&self) -> Vec<u8> {
        self.shared.0.lock().unwrap().bytes.clone()
    }

    /// The terminal's input modes, as comparable text.
    pub fn mode(&self) -> String {
        format!("{:?}", self.master.get_termios().unwrap())
    }

    pub fn pid(&self) -> u32 {
        self.child.process_id().unwrap()
    }

    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let killed = std::process::Command::new("kill").args(["-s", name, &pid]).status();
        assert!(killed.unwrap().success());
    }

    /// Waits for the program to end, but not for its last output. Returns the exit code.
    pub fn ended(&mut self) -> u32 {
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.child.wait().unwrap().exit_code()
    }

    /// Waits for the program to end and for its last output. Returns the exit code.
    pub fn wait(&mut self) -> u32 {
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut seen = self.shared.0.lock().unwrap();
        while !seen.ended {
            assert!(Instant::now() < deadline, "its output does not end");
            seen = self.shared.1.wait_timeout(seen, Duration::from_secs(1)).unwrap().0;
        }
        self.child.wait().unwrap().exit_code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Ok(mut seen) = self.shared.0.lock() {
            seen.paused = false;
        }
        self.shared.1.notify_all();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
