//! TCP: takes connections (`listen`) or makes one (`connect`), which it makes again when it is lost.
//!
//! Every connection has a framing state of its own and begins with a connect record; its peer is the remote address.
//! A clean end by the other side ends its last message; a reset makes a partial message a bad record. Keep-alive
//! probes find a peer that went away without a word, after about a minute and a half.

use std::fmt;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;
use smol::Async;

use super::framing::{FramingConfig, Medium};
use super::stream::{Listener, ReadBuffer, read_max_connections, read_socket, serve, with_backlog};
use super::{
    Backoff, End, Output, Running, Source, SourceError, Warnings, bind, peer_name, read_address, resolve, within,
};
use crate::settings::Section;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Settings of a `tcp` source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    pub side: Side,
    pub framing: FramingConfig,
}

/// Who connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Side {
    /// The others, to this address.
    Listen { address: String, max_connections: usize },
    /// This source, to this address.
    Connect { address: String },
}

impl TcpConfig {
    /// Reads `listen` or `connect`, `max_connections` and the framing.
    pub fn read(section: &mut Section<'_>) -> Option<TcpConfig> {
        let has_both = section.has("listen") && section.has("connect");
        let has_none = !section.has("listen") && !section.has("connect");
        let listen = read_address(section, "listen");
        let connect = read_address(section, "connect");
        let max_connections = read_max_connections(section);
        let framing = FramingConfig::read(section, Medium::Stream);
        if has_both {
            let message = "a tcp source can `listen` or `connect`, not both";
            section.problem_at("connect", message, Some("make two sources of it".to_owned()));
        } else if has_none {
            section.missing("listen` or `connect", "listen = \"127.0.0.1:9000\"");
        } else if section.has("connect") && section.has("max_connections") {
            section.problem_at("max_connections", "`max_connections` is used only with `listen`", None);
        }
        let side = match (listen, connect) {
            (Some(address), None) => Side::Listen { address, max_connections },
            (None, Some(address)) => Side::Connect { address },
            _ => return None,
        };
        Some(TcpConfig { side, framing })
    }
}

impl fmt::Display for TcpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.side {
            Side::Listen { address, .. } => write!(f, "tcp, listens on {address}, {}", self.framing),
            Side::Connect { address } => write!(f, "tcp, connects to {address}, {}", self.framing),
        }
    }
}

/// See the module.
pub struct Tcp {
    config: TcpConfig,
}

impl Tcp {
    /// A source that is not connected yet.
    pub fn new(config: TcpConfig) -> Tcp {
        Tcp { config }
    }
}

impl Source for Tcp {
    fn run(self: Box<Self>, out: Output) -> Running {
        Box::pin(async move {
            let TcpConfig { side, framing } = self.config;
            match side {
                Side::Listen { address, max_connections } => {
                    let listener =
                        bind(&address, |at| TcpListener::bind(at).and_then(with_backlog).and_then(Async::new)).await?;
                    tracing::info!(source = %out.name(), %address, "the source listens");
                    serve(listener, out, framing, max_connections).await
                }
                Side::Connect { address } => connect(&address, &framing, &out).await,
            }
        })
    }
}

impl Listener for Async<TcpListener> {
    type Socket = TcpStream;

    async fn accept(&self) -> std::io::Result<(Async<TcpStream>, Arc<str>)> {
        let (socket, remote) = Async::<TcpListener>::accept(self).await?;
        keep_alive(&socket);
        Ok((socket, peer_name(remote)))
    }
}

async fn connect(address: &str, framing: &FramingConfig, out: &Output) -> Result<End, SourceError> {
    let buffer = ReadBuffer::new();
    let mut backoff = Backoff::new();
    let mut warnings = Warnings::new();
    loop {
        let lost = match within(Some(CONNECT_TIMEOUT), connect_once(address)).await {
            Some(Ok((socket, remote))) => {
                tracing::info!(source = %out.name(), %address, "the source is connected");
                if read_socket(&socket, out, framing, &buffer, peer_name(remote)).await? {
                    backoff.reset();
                }
                "the connection ended".to_owned()
            }
            Some(Err(error)) => error.to_string(),
            None => format!("no answer within {CONNECT_TIMEOUT:?}"),
        };
        if let Some(suppressed) = warnings.count(out) {
            let name = out.name();
            tracing::warn!(source = %name, suppressed, %address, reason = lost, "not connected; the source tries again");
        }
        backoff.wait(out).await;
    }
}

async fn connect_once(address: &str) -> std::io::Result<(Async<TcpStream>, SocketAddr)> {
    let mut failure = None;
    for remote in resolve(address).await? {
        match Async::<TcpStream>::connect(remote).await {
            Ok(socket) => {
                keep_alive(&socket);
                return Ok((socket, remote));
            }
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    Err(failure.unwrap_or_else(|| std::io::ErrorKind::AddrNotAvailable.into()))
}

/// Lets the kernel probe a silent connection.
fn keep_alive(socket: &Async<TcpStream>) {
    let set = || -> rustix::io::Result<()> {
        sockopt::set_socket_keepalive(socket, true)?;
        sockopt::set_tcp_keepidle(socket, Duration::from_secs(60))?;
        sockopt::set_tcp_keepintvl(socket, Duration::from_secs(10))?;
        sockopt::set_tcp_keepcnt(socket, 3)
    };
    if let Err(error) = set() {
        tracing::debug!(%error, "keep-alive could not be set");
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::Shutdown;

    use super::super::testing::*;
    use super::*;

    /// An address that was free a moment ago.
    fn free_address() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
    }

    fn listening(address: SocketAddr, more: &str) -> Harness {
        Harness::start(&format!("type = \"tcp\"\nlisten = \"{address}\"\n{more}"))
    }

    fn dial(address: SocketAddr) -> TcpStream {
        let mut client = None;
        eventually(|| {
            client = TcpStream::connect(address).ok();
            client.is_some()
        });
        client.unwrap()
    }

    fn name(client: &TcpStream) -> String {
        client.local_addr().unwrap().to_string()
    }

    #[test]
    fn interleaved_connections_do_not_mix() {
        let address = free_address();
        let mut source = listening(address, "");
        let mut clients: Vec<TcpStream> = (0..40).map(|_| dial(address)).collect();
        for part in ["fi", "rst\r\nsec", "ond\n", "last"] {
            for client in &mut clients {
                client.write_all(part.as_bytes()).unwrap();
            }
            let complete = match part {
                "rst\r\nsec" => 1,
                "ond\n" => 2,
                _ => 0,
            };
            source.until(|s| s.count(|c| &c.messages) >= 40 * complete);
        }
        let names: Vec<String> = clients.iter().map(name).collect();
        drop(clients);
        source.until(|s| s.seen().iter().filter(|seen| **seen == Seen::Disconnect).count() == 40);
        for name in names {
            let expected = [Seen::Connect, message("first"), message("second"), message("last"), Seen::Disconnect];
            assert_eq!(source.seen_by(&name), expected);
        }
    }

    #[test]
    fn a_reset_makes_a_partial_message_bad() {
        let address = free_address();
        let mut source = listening(address, "");
        let mut client = dial(address);
        client.write_all(b"whole\npart").unwrap();
        source.until(|s| s.seen().contains(&message("whole")));
        sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
        drop(client);
        let seen = source.until_seen(4);
        let Seen::Bad(reason) = &seen[2] else { panic!("{seen:?}") };
        assert!(reason.starts_with("the connection broke off ("), "{reason}");
        assert!(reason.ends_with("after 4 bytes of a message"), "{reason}");
        assert_eq!(seen[3], Seen::Disconnect);
        dial(address).write_all(b"next\n").unwrap();
        source.until(|s| s.seen().contains(&message("next")));
    }

    #[test]
    fn a_partial_length_prefixed_message_is_bad_even_at_a_clean_end() {
        let address = free_address();
        let mut source = listening(address, "framing = \"length\"\nlength = \"u8\"");
        dial(address).write_all(b"\x02ok\x05par").unwrap();
        let seen = source.until_seen(4);
        assert_eq!(seen[1], message("ok"));
        assert!(matches!(&seen[2], Seen::Bad(reason) if reason.contains("after 4 of the 6 bytes")), "{seen:?}");
    }

    #[test]
    fn a_connection_too_many_is_closed_and_its_place_is_free_again_later() {
        let address = free_address();
        let mut source = listening(address, "max_connections = 1");
        let mut first = dial(address);
        first.write_all(b"a\n").unwrap();
        source.until(|s| s.seen().contains(&message("a")));
        assert_eq!(dial(address).read(&mut [0; 1]).unwrap(), 0);
        assert_eq!(source.count(|c| &c.warnings), 1);
        drop(first);
        source.until(|s| s.seen().contains(&Seen::Disconnect));
        eventually(|| {
            dial(address).write_all(b"b\n").unwrap();
            source.pump();
            source.seen().contains(&message("b"))
        });
    }

    #[test]
    fn idle_flush_ends_a_message() {
        let address = free_address();
        let mut source = listening(address, "idle_flush = \"20ms\"");
        let mut client = dial(address);
        client.write_all(b"no end").unwrap();
        source.until(|s| s.seen().contains(&message("no end")));
        client.write_all(b"more\n").unwrap();
        source.until(|s| s.seen().contains(&message("more")));
    }

    #[test]
    fn a_full_queue_stops_reading_and_loses_nothing() {
        let address = free_address();
        let text = format!("type = \"tcp\"\nlisten = \"{address}\"");
        let mut source = Harness::with_queue(&text, None, 10_000);
        let client = dial(address);
        let writer = std::thread::spawn(move || {
            let mut client = client;
            for i in 0..200_000 {
                writeln!(client, "message number {i}").unwrap();
            }
        });
        eventually(|| source.blocked());
        assert!(!writer.is_finished());
        source.until(|s| s.count(|c| &c.messages) == 200_000);
        writer.join().unwrap();
        source.until(|s| s.runs.last().is_some_and(|run| run.kind == crate::event::RecordKind::Disconnect));
        let expected: Vec<Seen> = (0..200_000).map(|i| Seen::Message(format!("message number {i}"))).collect();
        assert_eq!(source.seen()[1..=200_000], expected);
    }

    #[test]
    fn dropping_the_source_closes_its_connections_and_frees_the_port() {
        let address = free_address();
        let mut source = listening(address, "");
        let mut client = dial(address);
        client.write_all(b"a\n").unwrap();
        source.until(|s| s.seen().contains(&message("a")));
        source.stop();
        assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
        let mut again = listening(address, "");
        dial(address).write_all(b"b\n").unwrap();
        again.until(|s| s.seen().contains(&message("b")));
    }

    #[test]
    fn a_port_in_use_is_an_error_that_names_it() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let error = listening(address, "").finish().expect_err("in use").to_string();
        assert!(error.starts_with(&format!("cannot listen on {address}: Address already in use")), "{error}");
    }

    #[test]
    fn connect_comes_back_after_a_lost_connection_and_waits_for_a_server() {
        let address = free_address();
        let mut source = Harness::start(&format!("type = \"tcp\"\nconnect = \"{address}\""));
        eventually(|| source.count(|c| &c.reconnects) > 0);
        let server = TcpListener::bind(address).unwrap();
        let (mut first, _) = server.accept().unwrap();
        first.write_all(b"one\ntail").unwrap();
        first.shutdown(Shutdown::Write).unwrap();
        let (mut second, _) = server.accept().unwrap();
        second.write_all(b"two\n").unwrap();
        source.until(|s| s.seen().contains(&message("two")));
        let expected =
            [Seen::Connect, message("one"), message("tail"), Seen::Disconnect, Seen::Connect, message("two")];
        assert_eq!(source.seen_by(&address.to_string()), expected);
    }

    #[test]
    fn ipv4_stays_ipv4_in_the_peers_name() {
        assert_eq!(&*peer_name("[::ffff:10.0.0.1]:5".parse().unwrap()), "10.0.0.1:5");
        assert_eq!(&*peer_name("[::1]:5".parse().unwrap()), "[::1]:5");
    }
}
