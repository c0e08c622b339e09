//! Unix sockets: `stream` (connections, as with TCP) or `datagram`.
//!
//! The socket file is made at start and removed at the end. A file that a dead process left is replaced; a socket that
//! answers, or a file that is no socket, is an error. A connection's peer is `pid:PID#N`, its N-th connection since
//! the source was started; a datagram's peer is its sender's path, if it has one.

use std::fmt;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::net::{SocketAddrAny, SocketAddrUnix, sockopt};
use smol::Async;

use super::datagram::{NoDrops, receive};
use super::framing::{FramingConfig, Medium};
use super::stream::{Listener, read_max_connections, serve, with_backlog};
use super::{Output, Running, Source, SourceError};
use crate::settings::Section;

/// Settings of a `unix` source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixConfig {
    pub path: String,
    pub mode: Mode,
    /// Mode bits of the socket file; `None`: what the umask leaves.
    pub permissions: Option<u32>,
    pub framing: FramingConfig,
}

/// The kind of socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Stream { max_connections: usize },
    Datagram,
}

impl UnixConfig {
    /// Reads `path`, `mode`, `permissions`, `max_connections` and the framing.
    pub fn read(section: &mut Section<'_>) -> Option<UnixConfig> {
        let path = section.required("path", "path = \"/run/forebay/in.sock\"");
        if path.as_ref().is_some_and(String::is_empty) {
            section.problem_at("path", "`path` is empty", None);
        }
        let medium = section
            .choice("mode", &[("stream", Medium::Stream), ("datagram", Medium::Datagram)])
            .unwrap_or(Medium::Stream);
        let permissions = section.string("permissions").and_then(|text| {
            let bits = u32::from_str_radix(&text, 8).ok().filter(|bits| *bits <= 0o777);
            if bits.is_none() {
                let message = format!("`permissions` cannot be \"{text}\": it must be an octal number");
                section.problem_at(
                    "permissions",
                    message,
                    Some("write for example `permissions = \"0660\"`".to_owned()),
                );
            }
            bits
        });
        let max_connections = read_max_connections(section);
        if medium == Medium::Datagram && section.has("max_connections") {
            section.problem_at("max_connections", "`max_connections` is used only with mode \"stream\"", None);
        }
        let framing = FramingConfig::read(section, medium);
        let mode = match medium {
            Medium::Stream => Mode::Stream { max_connections },
            Medium::Datagram => Mode::Datagram,
        };
        Some(UnixConfig { path: path?, mode, permissions, framing })
    }
}

impl fmt::Display for UnixConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            Mode::Stream { .. } => "stream",
            Mode::Datagram => "datagram",
        };
        write!(f, "unix, {mode} socket {}, {}", self.path, self.framing)
    }
}

/// See the module.
pub struct Unix {
    config: UnixConfig,
}

impl Unix {
    /// A source that is not bound yet.
    pub fn new(config: UnixConfig) -> Unix {
        Unix { config }
    }
}

impl Source for Unix {
    fn run(self: Box<Self>, out: Output) -> Running {
        Box::pin(async move {
            let UnixConfig { path, mode, permissions, framing } = self.config;
            let failed = || SourceError::io("listen on", &path);
            let place = PathBuf::from(&path);
            match mode {
                Mode::Stream { max_connections } => {
                    let bound = smol::unblock(move || {
                        listen(&place, permissions, |path| UnixListener::bind(path).and_then(with_backlog))
                    });
                    let (socket, _file) = bound.await.map_err(failed())?;
                    let socket = Async::new(socket).map_err(failed())?;
                    tracing::info!(source = %out.name(), %path, "the source listens");
                    serve(Connections { socket, count: AtomicU64::new(0) }, out, framing, max_connections).await
                }
                Mode::Datagram => {
                    let bound = smol::unblock(move || listen(&place, permissions, |path| UnixDatagram::bind(path)));
                    let (socket, _file) = bound.await.map_err(failed())?;
                    let socket = Async::new(socket).map_err(failed())?;
                    tracing::info!(source = %out.name(), %path, "the source listens");
                    receive(&socket, &path, &out, &framing, sender_name, NoDrops).await
                }
            }
        })
    }
}

/// Makes the socket file; removes one that a dead process left.
fn listen<S>(
    path: &Path,
    permissions: Option<u32>,
    bind: impl Fn(&Path) -> std::io::Result<S>,
) -> std::io::Result<(S, SocketFile)> {
    match path.symlink_metadata() {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(std::io::Error::new(ErrorKind::AlreadyExists, "a file that is no socket stands there"));
        }
        Ok(_) => {
            if !is_dead(path) {
                return Err(std::io::Error::new(ErrorKind::AddrInUse, "another process listens there"));
            }
            std::fs::remove_file(path)?;
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let socket = bind(path)?;
    let file = SocketFile::of(path)?;
    if let Some(bits) = permissions {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(bits))?;
    }
    Ok((socket, file))
}

/// Whether nobody is behind a socket file: only then is a connection refused. With a datagram socket the question
/// neither blocks nor reaches a process that takes connections there.
fn is_dead(path: &Path) -> bool {
    let answer = UnixDatagram::unbound().and_then(|socket| socket.connect(path));
    answer.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// A socket file of ours, removed when it is no longer needed, if it is still ours.
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> std::io::Result<SocketFile> {
        Ok(SocketFile { path: path.to_owned(), identity: identity(path)? })
    }
}

fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    path.symlink_metadata().map(|metadata| (metadata.dev(), metadata.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // If it cannot be removed, the next start finds it dead and replaces it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

struct Connections {
    socket: Async<UnixListener>,
    count: AtomicU64,
}

impl Listener for Connections {
    type Socket = UnixStream;

    async fn accept(&self) -> std::io::Result<(Async<UnixStream>, Arc<str>)> {
        let (socket, _) = self.socket.accept().await?;
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let pid = sockopt::socket_peercred(&socket)?.pid.as_raw_nonzero();
        Ok((socket, format!("pid:{pid}#{number}").into()))
    }
}

fn sender_name(sender: &SocketAddrAny) -> Option<Arc<str>> {
    let address = SocketAddrUnix::try_from(sender.clone()).ok()?;
    address.path().map(|path| path.to_string_lossy().into())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::testing::*;
    use super::*;

    fn text(path: &Path, more: &str) -> String {
        format!("type = \"unix\"\npath = \"{}\"\n{more}", path.display())
    }

    fn place() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("in.sock");
        (dir, path)
    }

    fn dial(path: &Path) -> UnixStream {
        let mut client = None;
        eventually(|| {
            client = UnixStream::connect(path).ok();
            client.is_some()
        });
        client.unwrap()
    }

    #[test]
    fn connections_have_names_of_their_own_and_do_not_mix() {
        let (_dir, path) = place();
        let mut source = Harness::start(&text(&path, "permissions = \"0600\""));
        let (mut a, mut b) = (dial(&path), dial(&path));
        eventually(|| std::fs::metadata(&path).unwrap().permissions().mode() & 0o777 == 0o600);
        a.write_all(b"a1\na").unwrap();
        b.write_all(b"b1\nb").unwrap();
        source.until(|s| s.count(|c| &c.messages) == 2);
        a.write_all(b"2\n").unwrap();
        drop((a, b));
        source.until(|s| s.seen().iter().filter(|seen| **seen == Seen::Disconnect).count() == 2);
        let pid = std::process::id();
        let of = |number| source.seen_by(&format!("pid:{pid}#{number}"));
        assert_eq!(of(1), [Seen::Connect, message("a1"), message("a2"), Seen::Disconnect]);
        assert_eq!(of(2), [Seen::Connect, message("b1"), message("b"), Seen::Disconnect]);
    }

    #[test]
    fn datagrams_are_messages() {
        let (dir, path) = place();
        let mut source = Harness::start(&text(&path, "mode = \"datagram\""));
        eventually(|| path.exists());
        let unnamed = UnixDatagram::unbound().unwrap();
        let named = UnixDatagram::bind(dir.path().join("sender")).unwrap();
        eventually(|| unnamed.send_to(b"one\n", &path).is_ok());
        named.send_to(&[b'x'; 100_000], &path).unwrap();
        assert_eq!(source.until_seen(2), [message("one\n"), message(&"x".repeat(100_000))]);
        assert_eq!(source.runs[0].peer, None);
        assert!(source.runs[1].peer.as_ref().unwrap().ends_with("/sender"));
    }

    #[test]
    fn a_dead_socket_is_replaced_and_ours_is_removed_at_the_end() {
        let (_dir, path) = place();
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let mut source = Harness::start(&text(&path, ""));
        dial(&path).write_all(b"a\n").unwrap();
        source.until(|s| s.seen().contains(&message("a")));
        source.stop();
        assert!(!path.exists());
        drop(UnixDatagram::bind(&path).unwrap());
        let mut source = Harness::start(&text(&path, ""));
        dial(&path).write_all(b"b\n").unwrap();
        source.until(|s| s.seen().contains(&message("b")));
    }

    #[test]
    fn a_live_socket_and_another_file_are_left_alone() {
        let (_dir, path) = place();
        let live = UnixListener::bind(&path).unwrap();
        let error = Harness::start(&text(&path, "")).finish().expect_err("live").to_string();
        assert_eq!(error, format!("cannot listen on {}: another process listens there", path.display()));
        assert!(path.exists());
        drop(live);
        std::fs::remove_file(&path).unwrap();
        let live = UnixDatagram::bind(&path).unwrap();
        Harness::start(&text(&path, "")).finish().expect_err("live");
        drop(live);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "mine").unwrap();
        let error = Harness::start(&text(&path, "mode = \"datagram\"")).finish().expect_err("no socket").to_string();
        assert!(error.ends_with("a file that is no socket stands there"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }

    #[test]
    fn a_socket_file_that_is_no_longer_ours_stays() {
        let (_dir, path) = place();
        let (_socket, file) = listen(&path, None, |path| UnixListener::bind(path)).unwrap();
        std::fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(file);
        assert!(path.exists());
    }
}
