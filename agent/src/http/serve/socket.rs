//! A Unix socket to serve on. Write permission on it grants access.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// The listening socket. It is removed when dropped.
#[derive(Debug)]
pub(crate) struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Creates the socket. Replaces one that a dead agent left behind, but no socket in use and no other file.
    pub(crate) fn bind(path: &Path, mode: u32) -> io::Result<Self> {
        if has_socket(path)? && StdUnixStream::connect(path).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process serves on it"));
        }
        let private = Private::beside(path, "")?;
        let unnamed = private.socket();
        let listener = UnixListener::bind(&unnamed)?;
        fs::set_permissions(&unnamed, Permissions::from_mode(mode))?;
        fs::rename(&unnamed, path)?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Whether [`bind`](Self::bind) can create the socket once nobody serves on it. Leaves everything as it was.
    pub(crate) fn check(path: &Path) -> io::Result<()> {
        has_socket(path)?;
        Private::beside(path, "check-").map(drop)
    }

    /// The next connection and its peer.
    pub(crate) async fn accept(&self) -> io::Result<(UnixStream, String)> {
        let (stream, _) = self.listener.accept().await?;
        let client =
            stream.peer_cred().map_or_else(|_| "socket".to_owned(), |peer| format!("uid {}", peer.uid()));
        Ok((stream, client))
    }
}

/// Whether a socket is there. Another file is an error.
fn has_socket(path: &Path) -> io::Result<bool> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(false) };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "another file exists there"));
    }
    Ok(true)
}

/// A directory in which a socket gets its permissions before others can reach it. Until then, it has those that the umask
/// leaves, which may let everyone connect. It is removed when dropped.
struct Private(PathBuf);

impl Private {
    /// `purpose`: a part of its name, so that a check does not remove the directory of an agent.
    fn beside(path: &Path, purpose: &str) -> io::Result<Self> {
        let directory = path.with_file_name(format!(".pod-index-{purpose}{}", std::process::id()));
        // Of an agent that was killed. In a container, each has the same process ID.
        let _ = fs::remove_dir_all(&directory);
        fs::DirBuilder::new().mode(0o700).create(&directory)?;
        Ok(Self(directory))
    }

    /// A short name: the path of a socket must not exceed 107 bytes.
    fn socket(&self) -> PathBuf {
        self.0.join("s")
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_is_made_where_nobody_else_can_reach_it_and_named_with_its_permissions() {
        let place = std::env::temp_dir().join(format!("pod-index-socket-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        let path = place.join("agent.sock");
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
        // Whatever the umask is, it cannot add permissions.
        let private = Private::beside(&path, "").unwrap();
        assert_eq!(mode(private.socket().parent().unwrap()), 0o700);
        assert_ne!(private.socket().parent(), path.parent());
        // As if this one had been killed.
        std::mem::forget(private);
        let socket = Socket::bind(&path, 0o620).unwrap();
        assert_eq!(mode(&path), 0o620);
        StdUnixStream::connect(&path).unwrap();
        assert_eq!(fs::read_dir(&place).unwrap().count(), 1, "nothing else is left");
        assert_eq!(Socket::bind(&path, 0o620).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        Socket::check(&path).unwrap();
        StdUnixStream::connect(&path).unwrap();
        assert_eq!(
            fs::read_dir(&place).unwrap().count(),
            1,
            "a check leaves nothing, and the socket as it was"
        );
        drop(socket);
        assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
        fs::remove_dir(&place).unwrap();
    }
}
