//! What the sources of byte streams have in common: one [`Stream`] per connection, device or command, with its own
//! framing state, so that bytes of different streams never meet.

use std::future::Future;
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use smol::Async;

use super::framing::{Framed, Framer, FramingConfig};
use super::queue::Closed;
use super::{Backoff, End, Output, SourceError, Warnings, within};
use crate::event::RecordKind;
use crate::settings::Section;

/// Bytes that are read at once.
pub const READ_BYTES: usize = 64 * 1024;

const MAX_CONNECTIONS_DEFAULT: usize = 1024;

/// How a byte stream came to its end.
pub enum Ending {
    /// The other side closed it: a last message without delimiter counts.
    Clean,
    /// It broke: a partial message is bad, for this reason.
    Broken(String),
}

/// A byte stream that is open: its connect record was sent.
pub struct Stream {
    out: Output,
    peer: Arc<str>,
    framer: Box<dyn Framer>,
    idle_flush: Option<Duration>,
}

impl Stream {
    /// Opens a stream of `peer`, a name that no other open stream of the source has.
    pub async fn open(out: &Output, framing: &FramingConfig, peer: Arc<str>) -> Result<Stream, Closed> {
        out.send_one(RecordKind::Connect, Some(&peer), &[]).await?;
        Ok(Stream { out: out.clone(), peer, framer: framing.framer(true), idle_flush: framing.idle_flush })
    }

    /// After which silence [`Stream::flush`] is due.
    pub fn idle_flush(&self) -> Option<Duration> {
        self.idle_flush.filter(|_| self.framer.is_partial())
    }

    /// Cuts bytes that were just read; the result must be sent.
    pub fn frame(&mut self, bytes: &[u8]) -> Framed {
        let mut framed = self.out.framed(self.out.now(), Some(&self.peer), 0);
        framed.expect(bytes.len());
        self.framer.push(bytes, &mut framed);
        framed
    }

    /// Sends what was cut.
    pub async fn send(&self, framed: Framed) -> Result<(), Closed> {
        for (run, _) in framed.into_runs() {
            self.out.send(run).await?;
        }
        Ok(())
    }

    /// The stream has been silent for `idle_flush`.
    pub async fn flush(&mut self) -> Result<(), Closed> {
        let mut framed = self.out.framed(self.out.now(), Some(&self.peer), 0);
        self.framer.finish(&mut framed);
        self.send(framed).await
    }

    /// The stream came to its end.
    pub async fn end(mut self, ending: Ending) -> Result<(), Closed> {
        let mut framed = self.out.framed(self.out.now(), Some(&self.peer), 0);
        match ending {
            Ending::Clean => self.framer.finish(&mut framed),
            Ending::Broken(why) => self.framer.break_off(&why, &mut framed),
        }
        self.send(framed).await?;
        self.out.send_one(RecordKind::Disconnect, Some(&self.peer), &[]).await
    }
}

/// The memory that all connections of a source read into, one after the other: an idle connection holds none.
pub struct ReadBuffer(Mutex<Vec<u8>>);

impl ReadBuffer {
    /// A buffer of [`READ_BYTES`].
    pub fn new() -> ReadBuffer {
        ReadBuffer(Mutex::new(vec![0; READ_BYTES]))
    }

    /// Reads what is there without waiting and gives it to `then`.
    fn read<T>(&self, mut io: impl Read, then: impl FnOnce(&[u8]) -> T) -> std::io::Result<T> {
        let mut buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = io.read(&mut buffer)?;
        Ok(then(buffer.get(..count).unwrap_or_default()))
    }
}

/// Reads a connected socket to its end. Tells whether anything came.
pub async fn read_socket<S>(
    socket: &Async<S>,
    out: &Output,
    framing: &FramingConfig,
    buffer: &ReadBuffer,
    peer: Arc<str>,
) -> Result<bool, Closed>
where
    S: AsFd,
    for<'a> &'a S: Read,
{
    let mut stream = Stream::open(out, framing, peer).await?;
    let mut any = false;
    let ending = loop {
        let read = buffer.read(socket.get_ref(), |bytes| (!bytes.is_empty()).then(|| stream.frame(bytes)));
        match read {
            Ok(Some(framed)) => {
                any = true;
                stream.send(framed).await?;
                // The other connections of the source have their turn.
                smol::future::yield_now().await;
            }
            Ok(None) => break Ending::Clean,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                match within(stream.idle_flush(), socket.readable()).await {
                    None => stream.flush().await?,
                    Some(Err(error)) => break broken(&error),
                    Some(Ok(())) => {}
                }
            }
            Err(error) => break broken(&error),
        }
    };
    stream.end(ending).await?;
    Ok(any)
}

fn broken(error: &std::io::Error) -> Ending {
    Ending::Broken(format!("the connection broke off ({error})"))
}

/// Reads a stream to its end with `read`, which runs on a thread that may block. It fills its buffer and gives the
/// number of bytes, zero at the end; `None` if nothing came within the time it was given. It is given no more than
/// [`WAIT_MAX`], so that no thread stays behind for longer after the source was dropped.
pub async fn read_blocking(
    stream: &mut Stream,
    read: impl FnMut(&mut [u8], Duration) -> std::io::Result<Option<usize>> + Send + 'static,
) -> Result<std::io::Result<()>, Closed> {
    let mut state = (read, vec![0; READ_BYTES]);
    let mut last_data = Instant::now();
    loop {
        let wait = stream.idle_flush().unwrap_or(WAIT_MAX).min(WAIT_MAX);
        let result;
        (state, result) = smol::unblock(move || {
            let (read, buffer) = &mut state;
            let result = read(buffer, wait);
            (state, result)
        })
        .await;
        match result {
            Ok(Some(0)) => return Ok(Ok(())),
            Ok(Some(count)) => {
                last_data = Instant::now();
                let framed = stream.frame(state.1.get(..count).unwrap_or_default());
                stream.send(framed).await?;
            }
            Ok(None) if stream.idle_flush().is_some_and(|pause| last_data.elapsed() >= pause) => {
                stream.flush().await?;
            }
            Ok(None) => {}
            Err(error) => return Ok(Err(error)),
        }
    }
}

/// The longest that a blocking read waits.
const WAIT_MAX: Duration = Duration::from_millis(250);

/// A socket that takes connections.
pub trait Listener: Send + Sync {
    type Socket: AsFd + Send + Sync + 'static;

    /// The next connection and its name, which no other open connection has.
    fn accept(&self) -> impl Future<Output = std::io::Result<(Async<Self::Socket>, Arc<str>)>> + Send;
}

/// Connections that may wait to be taken; the system cuts it to its own limit (`somaxconn`).
const BACKLOG: i32 = 4096;

/// Lets a listening socket have more than the 128 waiting connections that it begins with: where many devices come back at
/// once, the others would be left to try again, each a second later.
///
/// # Errors
/// As `listen(2)`.
pub fn with_backlog<S: AsFd>(socket: S) -> std::io::Result<S> {
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Reads `max_connections` of a source that takes connections.
pub fn read_max_connections(section: &mut Section<'_>) -> usize {
    let count = section.integer("max_connections", 1..=65_536);
    count.and_then(|count| usize::try_from(count).ok()).unwrap_or(MAX_CONNECTIONS_DEFAULT)
}

/// Takes connections and reads each to its end, up to `max_connections` at a time; one more is closed at once.
pub async fn serve<L: Listener>(
    listener: L,
    out: Output,
    framing: FramingConfig,
    max_connections: usize,
) -> Result<End, SourceError>
where
    for<'a> &'a L::Socket: Read,
{
    // The executor owns the connections: they run and end with this future.
    let connections = smol::Executor::new();
    let shared = Arc::new((out.clone(), framing, ReadBuffer::new()));
    let accepting = async {
        let mut refused = Warnings::new();
        let mut failed = Warnings::new();
        loop {
            let (socket, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    if let Some(suppressed) = failed.count(&out) {
                        tracing::warn!(source = %out.name(), suppressed, %error, "a connection could not be accepted");
                    }
                    // Out of file descriptors, most likely: it does not help to try again at once.
                    smol::Timer::after(Backoff::FIRST).await;
                    continue;
                }
            };
            // Every open connection holds the shared part once.
            if Arc::strong_count(&shared) > max_connections {
                if let Some(suppressed) = refused.count(&out) {
                    let name = out.name();
                    tracing::warn!(source = %name, suppressed, %peer, max_connections, "a connection too many was closed");
                }
                continue;
            }
            let shared = Arc::clone(&shared);
            let connection = async move {
                let (out, framing, buffer) = &*shared;
                read_socket(&socket, out, framing, buffer, peer).await
            };
            // Its result does not matter: when the queue is closed, all of the source is about to be dropped.
            connections.spawn(connection).detach();
        }
    };
    connections.run(accepting).await
}

/// Whether a read that failed so is simply tried again.
pub fn is_transient(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn many_connections_may_wait_to_be_taken() {
        let limit = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").and_then(with_backlog).unwrap();
        let address = listener.local_addr().unwrap();
        let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(900)).unwrap();
        let waiting: Vec<TcpStream> = (0..400.min(limit)).map(connect).collect();
        assert_eq!(waiting.len(), 400.min(limit));
    }
}
