//! Reads the small files of `/proc/PID`.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use super::error::ResolveError;

/// No valid file is longer: `/proc/PID/cgroup` has at most 13 lines, one for each hierarchy, of 4 KiB each.
pub(super) const LONGEST: usize = 64 * 1024;

/// Why the file at `path` was not read. `None` if it vanished.
pub(super) fn unread(path: &Path, error: &io::Error) -> Option<ResolveError> {
    if Errno::from_io_error(error).is_some_and(is_gone) {
        return None;
    }
    // Errors of our own say what is wrong with the content.
    let is_own = error.get_ref().is_some();
    let own = || ResolveError::new(path, error.to_string());
    Some(if is_own { own() } else { ResolveError::unreadable(path, error) })
}

/// Whether the error means that the file has vanished. Reading an open file fails with `ESRCH` after its process has
/// ended, and with `ENODEV` after its cgroup was removed.
pub(super) fn is_gone(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::SRCH | Errno::NODEV)
}

/// Replaces `contents` by the whole file.
pub(super) fn read(directory: &OwnedFd, name: &CStr, contents: &mut Vec<u8>) -> io::Result<()> {
    contents.clear();
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(openat(directory, name, flags, Mode::empty())?);
    file.take(LONGEST as u64 + 1).read_to_end(contents)?;
    if contents.len() > LONGEST {
        return Err(io::Error::other(format!("is longer than {LONGEST} bytes")));
    }
    Ok(())
}

/// The start time in `/proc/PID/stat`, in clock ticks since the machine was started.
///
/// It is field 22. Only field 2, the program's name in parentheses, may contain spaces and parentheses itself.
pub(super) fn start_time(stat: &[u8]) -> Option<u64> {
    const BEFORE: usize = 22 - 3;
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = stat[name_end + 1..].trim_ascii().split(|byte| *byte == b' ');
    str::from_utf8(fields.nth(BEFORE)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::start_time;

    #[test]
    fn the_start_time_is_found_after_any_name() {
        let fields = "S 1 1 1 0 -1 4194304 100 0 0 0 0 0 0 0 20 0 1 0 1311870 3133440 376";
        for name in ["cat", "a b", ") S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22", "((", "\n"]
        {
            let stat = format!("42 ({name}) {fields}\n");
            assert_eq!(start_time(stat.as_bytes()), Some(1_311_870), "{name}");
        }
    }

    #[test]
    fn a_missing_or_invalid_start_time_is_none() {
        let before = "42 (cat) S 1 1 1 0 -1 4194304 100 0 0 0 0 0 0 0 20 0 1 0";
        let wrong = ["", " soon 3133440", " -1 3133440", " 99999999999999999999 3133440"];
        let wrong = wrong.map(|after| format!("{before}{after}").into_bytes());
        let short = [&b""[..], b"42", b"42 (cat)", b")", b"\xff)\xff"];
        for stat in short.into_iter().chain(wrong.iter().map(Vec::as_slice)) {
            assert_eq!(start_time(stat), None, "{}", stat.escape_ascii());
        }
    }
}
