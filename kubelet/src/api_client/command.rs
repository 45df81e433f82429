//! Runs a command for its output. If the run is cancelled, its process group is killed.

use std::fs::File;
use std::io::{self, Read};
use std::mem;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::oneshot;

/// Maximum length of the standard output. More is an error.
const LONGEST_STDOUT: usize = 1 << 20;
/// Maximum length of the standard error. The rest is dropped.
const LONGEST_STDERR: usize = 64 << 10;

/// Runs the command in a new process group. Kills the group if the future is dropped, or if the standard output is
/// too long, unless the command has already ended.
///
/// Returns what the process and its children have written when it ends. Does not wait for the end of the pipes: a
/// process that the command leaves behind may keep them open.
///
/// # Errors
/// If the process cannot be started, or if its standard output is too long ([`io::ErrorKind::FileTooLarge`]).
pub(super) async fn output(mut command: Command) -> io::Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let run = Run::default();
    let _cancel = Cancel(run.clone());
    let (started, pipes) = oneshot::channel();
    let (ended, mut status) = oneshot::channel();
    // One thread for each run. The runtime's threads for blocking work are few, and the file source needs them.
    thread::Builder::new().name("plugin".to_owned()).spawn(move || match run.start(&mut command) {
        Ok(mut child) => {
            let _ = started.send(Ok((child.stdout.take(), child.stderr.take())));
            let _ = ended.send(run.wait(child));
        }
        Err(error) => {
            let _ = started.send(Err(error));
        }
    })?;
    let (stdout, stderr) = pipes.await.map_err(io::Error::other)??;
    let mut stdout = Captured::new(stdout, Limit::Fails(LONGEST_STDOUT))?;
    let mut stderr = Captured::new(stderr, Limit::Cuts(LONGEST_STDERR))?;
    let ended = tokio::select! {
        read = async { tokio::try_join!(stdout.read(), stderr.read()) } => {
            read?;
            None
        }
        status = &mut status => Some(status),
    };
    let status = match ended {
        Some(status) => status,
        // The process has closed both pipes and still runs.
        None => status.await,
    };
    let status = status.map_err(io::Error::other)??;
    Ok(Output { status, stdout: stdout.rest()?, stderr: stderr.rest()? })
}

/// One of the command's outputs.
struct Captured {
    pipe: Receiver,
    content: Vec<u8>,
    limit: Limit,
}

#[derive(Clone, Copy)]
enum Limit {
    Fails(usize),
    Cuts(usize),
}

impl Captured {
    fn new(pipe: Option<impl Into<OwnedFd>>, limit: Limit) -> io::Result<Self> {
        let pipe = pipe.ok_or_else(|| io::Error::other("no pipe"))?;
        Ok(Self { pipe: Receiver::from_owned_fd(pipe.into())?, content: Vec::new(), limit })
    }

    /// Reads to the end of the pipe. If the future is dropped earlier, what it has read stays in `content`.
    async fn read(&mut self) -> io::Result<()> {
        while self.pipe.read_buf(&mut self.content).await? > 0 {
            self.limit.apply(&mut self.content)?;
        }
        Ok(())
    }

    /// The content, and what is in the pipe now.
    fn rest(self) -> io::Result<Vec<u8>> {
        let Self { pipe, mut content, limit } = self;
        // tokio reads only after a notification, which may still be under way.
        let pipe = File::from(pipe.into_nonblocking_fd()?);
        // A process left behind may still write: read a limited amount.
        match pipe.take(LONGEST_STDOUT as u64).read_to_end(&mut content) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        limit.apply(&mut content)?;
        Ok(content)
    }
}

impl Limit {
    fn apply(self, content: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::Fails(limit) if content.len() > limit => return Err(io::ErrorKind::FileTooLarge.into()),
            Self::Fails(_) => {}
            Self::Cuts(limit) => content.truncate(limit),
        }
        Ok(())
    }
}

/// The process of a run.
#[derive(Clone, Default)]
struct Run(Arc<Mutex<State>>);

#[derive(Default)]
enum State {
    #[default]
    Starting,
    /// The process ID of the group's leader.
    Running(Pid),
    /// It has ended or was cancelled.
    Over,
}

impl Run {
    /// Starts the process. Kills it at once if the run was cancelled before.
    fn start(&self, command: &mut Command) -> io::Result<Child> {
        let child = command.spawn()?;
        let group = Pid::from_child(&child);
        let mut state = self.lock();
        if matches!(*state, State::Over) {
            let _ = kill_process_group(group, Signal::KILL);
        } else {
            *state = State::Running(group);
        }
        Ok(child)
    }

    fn wait(&self, mut child: Child) -> io::Result<ExitStatus> {
        // Do not reap the process yet: afterwards, another one may get its ID.
        let end = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let ended = rustix::io::retry_on_intr(|| waitid(WaitId::Pid(Pid::from_child(&child)), end));
        // Also after an error: the kernel has reaped the process if this one ignores SIGCHLD.
        *self.lock() = State::Over;
        ended?;
        child.wait()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Cancels a run when dropped.
struct Cancel(Run);

impl Drop for Cancel {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if let State::Running(group) = mem::replace(&mut *state, State::Over) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::process::ExitStatusExt;
    use std::time::Duration;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        command
    }

    async fn run(script: &str) -> io::Result<Output> {
        tokio::time::timeout(Duration::from_secs(60), output(shell(script))).await.expect("it hangs")
    }

    #[test]
    fn a_run_that_is_cancelled_before_the_process_starts_is_killed() {
        let run = Run::default();
        drop(Cancel(run.clone()));
        let child = run.start(Command::new("sleep").arg("1000").process_group(0)).unwrap();
        assert_eq!(run.wait(child).unwrap().signal(), Some(9));
    }

    /// As after the end of a process whose parent ignores SIGCHLD. Its ID may belong to another process.
    #[test]
    fn a_process_that_is_already_reaped_is_not_killed() {
        let run = Run::default();
        let child = run.start(Command::new("true").process_group(0)).unwrap();
        waitid(WaitId::Pid(Pid::from_child(&child)), WaitIdOptions::EXITED).unwrap();
        run.wait(child).unwrap_err();
        assert!(matches!(*run.lock(), State::Over));
    }

    #[tokio::test]
    async fn an_output_in_many_parts_is_complete() {
        let part = "x".repeat(1000);
        let output =
            run(&format!("for i in $(seq 300); do echo {part}; done; echo e >&2; exit 3")).await.unwrap();
        assert_eq!(
            (output.stdout.len(), &*output.stderr, output.status.code()),
            (300_300, &b"e\n"[..], Some(3))
        );
    }

    #[tokio::test]
    async fn what_is_left_in_the_pipe_is_taken_without_waiting_for_its_end() {
        let (reader, mut writer) = io::pipe().unwrap();
        let captured = Captured::new(Some(reader), Limit::Fails(LONGEST_STDOUT)).unwrap();
        writer.write_all(b"a").unwrap();
        assert_eq!(captured.rest().unwrap(), b"a");
    }

    #[tokio::test]
    async fn a_command_that_closes_its_output_and_runs_on_is_waited_for() {
        let output = run("echo a; exec >&- 2>&-; sleep 0.1; exit 4").await.unwrap();
        assert_eq!((&*output.stdout, output.status.code()), (&b"a\n"[..], Some(4)));
    }

    #[tokio::test]
    async fn an_endless_standard_output_is_an_error_and_a_long_standard_error_is_cut() {
        let error = run("exec yes").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        let output = run("head -c 1000000 /dev/zero >&2; echo a").await.unwrap();
        assert_eq!((&*output.stdout, output.stderr.len()), (&b"a\n"[..], LONGEST_STDERR));
    }

    /// The process has its own session, so it is not killed.
    #[tokio::test]
    async fn a_process_that_is_left_behind_and_writes_on_is_not_waited_for() {
        let script = "setsid sh -c 'while echo b; do sleep 0.01; done' >&2 & echo $!";
        let output = run(script).await.unwrap();
        let left = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
        let left = Pid::from_raw(left).unwrap();
        // It ends when it writes, since the pipe is closed.
        let end = async {
            while rustix::process::test_kill_process(left).is_ok() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), end).await.expect("it has ended");
    }
}
