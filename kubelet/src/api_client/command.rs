//! Runs a command for its output. If the run is cancelled, its process group is killed.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::process::{Command, Output, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, ChildStderr, ChildStdout};
use tokio::runtime::Handle;
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
pub(super) async fn output(command: Command) -> io::Result<Output> {
    let mut command = tokio::process::Command::from(command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let (started, run) = oneshot::channel();
    let runtime = Handle::current();
    // The plugin's file system may hang. The runtime's threads for blocking work are few, and the file source needs them.
    thread::Builder::new().name("plugin".to_owned()).spawn(move || {
        let _runtime = runtime.enter();
        // If the run is cancelled, this drops the process.
        let _ = started.send(command.spawn().map(Run));
    })?;
    let mut run = run.await.map_err(io::Error::other)??;
    let pipes = (run.0.stdout.take(), run.0.stderr.take());
    let fds = (pipes.0.map(ChildStdout::into_owned_fd), pipes.1.map(ChildStderr::into_owned_fd));
    let mut stdout = Captured::new(fds.0, Limit::Fails(LONGEST_STDOUT))?;
    let mut stderr = Captured::new(fds.1, Limit::Cuts(LONGEST_STDERR))?;
    let ended = tokio::select! {
        read = async { tokio::try_join!(stdout.read(), stderr.read()) } => {
            read?;
            None
        }
        status = run.0.wait() => Some(status?),
    };
    let status = match ended {
        Some(status) => status,
        // The process has closed both pipes and still runs.
        None => run.0.wait().await?,
    };
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
    fn new(pipe: Option<io::Result<OwnedFd>>, limit: Limit) -> io::Result<Self> {
        let pipe = pipe.ok_or_else(|| io::Error::other("no pipe"))??;
        Ok(Self { pipe: Receiver::from_owned_fd(pipe)?, content: Vec::new(), limit })
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

/// A process. Kills its group when dropped before its end.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        // No ID once it is reaped: another process may have it then.
        let leader = self.0.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(leader) = leader {
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::process::CommandExt;
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

    #[tokio::test]
    async fn a_run_that_is_cancelled_is_killed_with_its_children() {
        let (writer, mut alive) = tokio::net::unix::pipe::pipe().unwrap();
        let mut command = shell("sleep 1000 & sleep 1000");
        command.stdout(writer.into_blocking_fd().unwrap()).process_group(0);
        let run = Run(tokio::process::Command::from(command).spawn().unwrap());
        drop(run);
        let end = alive.read_u8();
        let end =
            tokio::time::timeout(Duration::from_secs(60), end).await.expect("no process holds the pipe");
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
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
        let captured = Captured::new(Some(Ok(reader.into())), Limit::Fails(LONGEST_STDOUT)).unwrap();
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
