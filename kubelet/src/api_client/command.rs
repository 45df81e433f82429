//! Runs a command for its output. If the run is cancelled, its process group is killed. So are all at the end of the process,
//! if it calls [`end_all`]: a command in a group of its own gets no signal of the terminal, and may ignore others.

use std::collections::BTreeSet;
use std::io;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Child;
use tokio::runtime::Handle;
use tokio::time;

use crate::blocking::OneThread;

/// Maximum length of the standard output. More is an error.
const LONGEST_STDOUT: usize = 1 << 20;
/// Maximum length of the standard error. The rest is dropped.
const LONGEST_STDERR: usize = 64 << 10;

/// How long the output is read after the command's end if a process that it has left behind keeps it open.
const GRACE: Duration = Duration::from_secs(1);

/// What a command has written until its end.
pub(super) struct Ended {
    pub(super) output: Output,
    /// Whether that is all. It may not be if a process that the command has left behind keeps its output open, and so may go on
    /// writing.
    pub(super) is_whole: bool,
}

/// Runs the command in a new process group. Kills the group if the future is dropped, or if the standard output is
/// too long, unless the command has already ended.
///
/// The process is started on `thread`, because the command's file system may hang. (The runtime's threads for blocking work are few,
/// and the file source needs them.)
///
/// # Errors
/// If the process cannot be started, also because an earlier start on `thread` hangs; or if its standard output is too long
/// ([`io::ErrorKind::FileTooLarge`]).
pub(super) async fn output(thread: &OneThread, command: Command) -> io::Result<Ended> {
    let mut command = tokio::process::Command::from(command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let runtime = Handle::current();
    // If nobody waits for the process any more, the job drops it.
    let start = thread.start(move || {
        let _runtime = runtime.enter();
        Run::start(&mut command)
    });
    let mut start = start.map_err(|unfinished| io::Error::other(unfinished.to_string()))?;
    let mut run = start.ended().await?;
    let (Some(stdout), Some(stderr)) = (run.0.stdout.take(), run.0.stderr.take()) else {
        return Err(io::Error::other("no pipe"));
    };
    let mut out = Vec::new();
    let mut err = Vec::new();
    let mut read = Box::pin(async {
        tokio::try_join!(
            read(stdout, &mut out, LONGEST_STDOUT, true),
            read(stderr, &mut err, LONGEST_STDERR, false)
        )
    });
    let mut is_whole = true;
    let status = tokio::select! {
        ended = &mut read => {
            ended?;
            // The process has closed both pipes and may still run.
            run.ended().await?
        }
        status = run.ended() => {
            // Its output is in the pipes. A process that it leaves behind may keep them open.
            match time::timeout(GRACE, &mut read).await {
                Ok(ended) => {
                    ended?;
                }
                Err(_elapsed) => is_whole = false,
            }
            status?
        }
    };
    drop(read);
    Ok(Ended { output: Output { status, stdout: out, stderr: err }, is_whole })
}

/// Reads to the end of the pipe. If the future is dropped earlier, what it has read stays in `content`. What is longer
/// than `most` fails, or is cut.
async fn read(
    mut pipe: impl AsyncRead + Unpin,
    content: &mut Vec<u8>,
    most: usize,
    fails: bool,
) -> io::Result<()> {
    while pipe.read_buf(content).await? > 0 {
        if fails && content.len() > most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        content.truncate(most);
    }
    Ok(())
}

/// The process groups that run.
static RUNNING: Mutex<Running> = Mutex::new(Running { leaders: BTreeSet::new(), is_over: false });

struct Running {
    leaders: BTreeSet<u32>,
    /// The process is ending. No command may start.
    is_over: bool,
}

/// Kills the process groups of all commands that run, and lets no other start. For the end of the process, at which nothing
/// is dropped.
pub(super) fn end_all() {
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    running.is_over = true;
    running.leaders.iter().for_each(|leader| kill(*leader));
}

/// Kills the group of this process.
fn kill(leader: u32) {
    if let Some(leader) = Pid::from_raw(leader.cast_signed()) {
        // Fails if it has ended.
        let _ = kill_process_group(leader, Signal::KILL);
    }
}

/// A process. Kills its group when dropped before its end.
struct Run(Child);

impl Run {
    fn start(command: &mut tokio::process::Command) -> io::Result<Self> {
        // Without the lock: the file system of the command may hang.
        let run = Self(command.spawn()?);
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_over {
            drop(running);
            drop(run);
            return Err(io::Error::other("the process is ending"));
        }
        running.leaders.extend(run.0.id());
        drop(running);
        Ok(run)
    }

    /// Waits for the end of the process.
    async fn ended(&mut self) -> io::Result<ExitStatus> {
        let leader = self.0.id();
        let status = self.0.wait().await;
        if let Some(leader) = leader {
            // Another process may have its ID from now on.
            RUNNING.lock().unwrap_or_else(PoisonError::into_inner).leaders.remove(&leader);
        }
        status
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // No ID once it is reaped: another process may have it then.
        if let Some(leader) = self.0.id() {
            kill(leader);
            RUNNING.lock().unwrap_or_else(PoisonError::into_inner).leaders.remove(&leader);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        command
    }

    async fn run(script: &str) -> io::Result<Output> {
        let thread = OneThread::new("test");
        let ended = tokio::time::timeout(Duration::from_secs(60), output(&thread, shell(script)));
        ended.await.expect("it hangs").map(|ended| ended.output)
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
}
