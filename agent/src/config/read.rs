//! Reading the files that settings name, which are read again while the agent runs.

use std::env;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::failure;
use super::log::format_in_use;

/// The largest file that is read, in bytes. A configuration has some kilobytes.
const LARGEST: u64 = 1 << 20;

/// A file that takes longer is reported. At the start, nothing is logged or served before the settings are read, so nothing else
/// says what the agent waits for.
const LATE: Duration = Duration::from_secs(10);

/// The content of a file of at most 1 MiB. A large one, or one without an end, must not end the agent that reads it again at SIGHUP.
pub(crate) fn read_small(path: &Path) -> io::Result<Vec<u8>> {
    let message = format!("{} has not been read after {LATE:?}; its disk may hang", path.display());
    reported_if_late(LATE, move || report(&message), || content(path))
}

/// Does this work. Calls `report` if the work takes longer than `limit`.
fn reported_if_late<T>(
    limit: Duration,
    report: impl FnOnce() + Send + 'static,
    work: impl FnOnce() -> T,
) -> T {
    let (done, is_done) = mpsc::channel::<()>();
    let watch = move || {
        // Nothing is sent: the sender is dropped.
        if is_done.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            report();
        }
    };
    // Without the thread, the work goes on unwatched.
    let _ = thread::Builder::new().name("late".to_owned()).spawn(watch);
    let result = work();
    drop(done);
    result
}

/// Before there is a log, a line on standard error in its form.
fn report(message: &str) {
    if tracing::dispatcher::has_been_set() {
        tracing::warn!("{message}");
    } else {
        let arguments: Vec<_> = env::args_os().collect();
        failure::print(message, format_in_use(&arguments));
    }
}

fn content(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(LARGEST + 1).read_to_end(&mut content)?;
    if content.len() as u64 > LARGEST {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    Ok(content)
}

/// As [`read_small`], if it is text.
pub(crate) fn read_small_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read_small(path)?).map_err(|_| io::Error::other("it is not valid UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_reported_once_it_takes_longer_than_its_limit_and_not_before() {
        let (reported, is_reported) = mpsc::channel();
        let report = move || reported.send(()).unwrap();
        // It waits for the report itself, so that no speed decides.
        reported_if_late(Duration::from_millis(1), report, || is_reported.recv().unwrap());

        let (reported, is_reported) = mpsc::channel::<()>();
        let report = move || reported.send(()).unwrap();
        assert_eq!(reported_if_late(Duration::from_secs(3600), report, || 7), 7);
        // Its thread has ended without a report.
        assert!(is_reported.recv().is_err());
    }

    #[test]
    fn a_file_without_an_end_is_refused() {
        let error = read_small(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(error.to_string(), "it is larger than 1 MiB");
        assert_eq!(read_small_text(Path::new("/dev/null")).unwrap(), "");
    }
}
