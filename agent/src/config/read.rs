//! Reading the files that settings name, which are read again while the agent runs.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The largest file that is read, in bytes. A configuration has some kilobytes.
const LARGEST: u64 = 1 << 20;

/// The content of a file of at most 1 MiB. A large one, or one without an end, must not end the agent that reads it again at SIGHUP.
pub(crate) fn read_small(path: &Path) -> io::Result<Vec<u8>> {
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
    fn a_file_without_an_end_is_refused() {
        let error = read_small(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(error.to_string(), "it is larger than 1 MiB");
        assert_eq!(read_small_text(Path::new("/dev/null")).unwrap(), "");
    }
}
