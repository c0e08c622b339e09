//! The control socket `<state>/control.sock`: one line asked, one text answered, then the connection is closed.
//!
//! Only the owner may connect (mode 0600 from its first moment). It is reached through a descriptor of the directory, so
//! that the path may be longer than the 107 bytes that a socket's address has. A slow or silent client has a few seconds,
//! and there are few at a time; the others wait. Nobody is woken while nobody asks.

use std::fs::File;
use std::future::Future;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_lite::future::or;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use smol::{Async, Timer};

/// Name of the socket within the state directory.
pub const NAME: &str = "control.sock";

/// Connections that are served at the same time.
pub const CONNECTIONS_MAX: usize = 4;

/// Clients that may wait for their turn.
const BACKLOG: i32 = 16;
/// Bytes of a request at most.
const REQUEST_BYTES_MAX: usize = 256;
/// A client's time for its request and for taking the answer, each.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a client waits for its answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
/// After an accept failed (no descriptors are left, say).
const PAUSE: Duration = Duration::from_secs(1);

/// The engine's end. The socket file is removed when it is dropped.
pub struct ControlSocket {
    listener: Async<UnixListener>,
    path: PathBuf,
    identity: (u64, u64),
}

/// The directory's descriptor, and the socket's path through it.
fn through(state: &Path) -> io::Result<(File, PathBuf)> {
    let directory = File::open(state)?;
    let path = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(NAME);
    Ok((directory, path))
}

impl ControlSocket {
    /// Listens, in place of what a dead process left. Call it as the owner of the state's lock.
    ///
    /// # Errors
    /// Something else stands there, or the system refuses.
    pub fn bind(state: &Path) -> io::Result<ControlSocket> {
        let (_directory, path) = through(state)?;
        match path.symlink_metadata() {
            Ok(found) if found.file_type().is_socket() => std::fs::remove_file(&path)?,
            Ok(_) => return Err(io::Error::new(ErrorKind::AlreadyExists, "a file that is no socket stands there")),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // The file takes over the mode that the socket has when it is bound.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        bind(&socket, &SocketAddrUnix::new(&path)?)?;
        listen(&socket, BACKLOG)?;
        let metadata = path.symlink_metadata()?;
        Ok(ControlSocket {
            listener: Async::new(UnixListener::from(socket))?,
            path: state.join(NAME),
            identity: (metadata.dev(), metadata.ino()),
        })
    }

    /// Answers one client after the other, for ever. `answer` gives `None` for a request that it does not know.
    pub async fn serve<F: Future<Output = Option<String>>>(&self, answer: impl Fn(String) -> F) {
        loop {
            match self.listener.accept().await {
                // What becomes of a client is the client's business.
                Ok((stream, _)) => drop(converse(stream, &answer).await),
                Err(error) => {
                    tracing::warn!(%error, "the control socket cannot take a connection");
                    Timer::after(PAUSE).await;
                }
            }
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let found = self.path.symlink_metadata().map(|metadata| (metadata.dev(), metadata.ino()));
        if found.is_ok_and(|found| found == self.identity) {
            // If it cannot be removed, the next start replaces it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

async fn converse<F: Future<Output = Option<String>>>(
    mut stream: Async<UnixStream>,
    answer: impl Fn(String) -> F,
) -> io::Result<()> {
    let request = in_time(read_line(&mut stream)).await?;
    let text = answer(request).await.unwrap_or_default();
    in_time(async {
        stream.write_all(text.as_bytes()).await?;
        stream.flush().await
    })
    .await
}

async fn read_line(stream: &mut Async<UnixStream>) -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < REQUEST_BYTES_MAX && stream.read(&mut byte).await? == 1 && byte != [b'\n'] {
        line.extend_from_slice(&byte);
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

async fn in_time<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    or(work, async {
        Timer::after(PATIENCE).await;
        Err(ErrorKind::TimedOut.into())
    })
    .await
}

/// Asks the engine that runs on this state.
///
/// # Errors
/// `NotFound` or `ConnectionRefused`: none runs. Else it does not answer, or does not know
/// the request.
pub fn ask(state: &Path, request: &str) -> io::Result<String> {
    let (_directory, path) = through(state)?;
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
    stream.set_write_timeout(Some(ANSWER_PATIENCE))?;
    stream.write_all(format!("{request}\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.is_empty() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is busy, or does not know the request"));
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Instant;

    use super::*;

    /// Serves while `client` runs.
    fn serving<T: Send + 'static>(state: &Path, client: impl FnOnce() -> T + Send + 'static) -> T {
        let socket = ControlSocket::bind(state).unwrap();
        let answer = |request: String| async move { (request == "status").then(|| "fine".to_owned()) };
        let executor = smol::LocalExecutor::new();
        for _ in 1..CONNECTIONS_MAX {
            executor.spawn(socket.serve(answer)).detach();
        }
        let serve = async {
            socket.serve(answer).await;
            unreachable!("it serves for ever")
        };
        smol::block_on(executor.run(or(smol::unblock(client), serve)))
    }

    #[test]
    fn answers_what_it_knows_in_a_directory_of_any_length() {
        let temp = tempfile::tempdir().unwrap();
        let state = temp.path().join("a".repeat(150));
        std::fs::create_dir(&state).unwrap();
        // A dead process has left its socket.
        drop(ControlSocket::bind(&state).map(std::mem::forget));
        let there = state.clone();
        let (known, unknown, mode) = serving(&state, move || {
            let mode = there.join(NAME).symlink_metadata().unwrap().permissions().mode();
            (ask(&there, "status"), ask(&there, "sing"), mode & 0o777)
        });
        assert_eq!(known.unwrap(), "fine");
        assert_eq!(unknown.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(mode, 0o600);
        assert!(!state.join(NAME).exists(), "removed at the end");
        assert_eq!(ask(&state, "status").unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn silent_and_chatty_clients_do_not_keep_others_out() {
        let temp = tempfile::tempdir().unwrap();
        let state = temp.path().to_owned();
        let there = state.clone();
        serving(&state, move || {
            let mut bad = Vec::new();
            for _ in 0..2 * CONNECTIONS_MAX {
                let mut stream = UnixStream::connect(there.join(NAME)).unwrap();
                // As much as it takes; nobody reads beyond the bound.
                let _ = stream.write_all(&[b'x'; 100]);
                bad.push(stream);
            }
            let began = Instant::now();
            assert_eq!(ask(&there, "status").unwrap(), "fine");
            assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
            let mut stream = UnixStream::connect(there.join(NAME)).unwrap();
            let _ = stream.write_all(&[b'y'; 4 * REQUEST_BYTES_MAX]);
            assert_eq!(ask(&there, "status").unwrap(), "fine");
        });
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join(NAME), "mine").unwrap();
        assert!(ControlSocket::bind(temp.path()).is_err_and(|error| error.kind() == ErrorKind::AlreadyExists));
        assert_eq!(std::fs::read_to_string(temp.path().join(NAME)).unwrap(), "mine");
    }
}
