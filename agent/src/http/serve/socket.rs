//! A Unix socket to serve on. Write permission on it grants access.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
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
        match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, "another file exists there"));
            }
            Ok(_) if StdUnixStream::connect(path).is_ok() => {
                return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process serves on it"));
            }
            _ => {}
        }
        // Rename after setting permissions: no client can connect before they are right.
        let name = path.file_name().unwrap_or_default().display();
        let beside = path.with_file_name(format!("{name}.{}", std::process::id()));
        let _ = fs::remove_file(&beside);
        let listener = UnixListener::bind(&beside)?;
        let named = fs::set_permissions(&beside, Permissions::from_mode(mode))
            .and_then(|()| fs::rename(&beside, path));
        if let Err(error) = named {
            let _ = fs::remove_file(&beside);
            return Err(error);
        }
        Ok(Self { listener, path: path.to_owned() })
    }

    /// The next connection and its peer.
    pub(crate) async fn accept(&self) -> io::Result<(UnixStream, String)> {
        let (stream, _) = self.listener.accept().await?;
        let client =
            stream.peer_cred().map_or_else(|_| "socket".to_owned(), |peer| format!("uid {}", peer.uid()));
        Ok((stream, client))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
