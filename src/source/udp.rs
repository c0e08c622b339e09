//! UDP: one datagram is one message, unless another framing is configured; then no message spans two datagrams.
//!
//! The peer is the sender's address. Datagrams that the kernel had no room for are counted in `/proc/net/udp` and
//! become a gap record; what the network lost cannot be known. No connect records: there are no connections.

use std::fmt;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use rustix::net::{SocketAddrAny, sockopt};
use smol::Async;

use super::datagram::{Drops, receive};
use super::framing::{FramingConfig, Medium};
use super::{Output, Running, Source, SourceError, bind, peer_name, read_address};
use crate::settings::Section;

const RECEIVE_BUFFER_MAX: u64 = 1 << 30;

/// Settings of a `udp` source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    pub address: String,
    /// Size in bytes of the kernel's receive buffer; `None`: the kernel's default.
    pub receive_buffer: Option<usize>,
    pub framing: FramingConfig,
}

impl UdpConfig {
    /// Reads `bind`, `receive_buffer` and the framing.
    pub fn read(section: &mut Section<'_>) -> Option<UdpConfig> {
        if !section.has("bind") {
            section.missing("bind", "bind = \"127.0.0.1:9000\"");
        }
        let address = read_address(section, "bind");
        let receive_buffer = section.size("receive_buffer");
        if receive_buffer.is_some_and(|size| !(1..=RECEIVE_BUFFER_MAX).contains(&size)) {
            section.problem_at("receive_buffer", "`receive_buffer` must be between 1B and 1GiB", None);
        }
        let framing = FramingConfig::read(section, Medium::Datagram);
        let receive_buffer = receive_buffer.and_then(|size| usize::try_from(size).ok());
        Some(UdpConfig { address: address?, receive_buffer, framing })
    }
}

impl fmt::Display for UdpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "udp, bound to {}, {}", self.address, self.framing)
    }
}

/// See the module.
pub struct Udp {
    config: UdpConfig,
}

impl Udp {
    /// A source that is not bound yet.
    pub fn new(config: UdpConfig) -> Udp {
        Udp { config }
    }
}

impl Source for Udp {
    fn run(self: Box<Self>, out: Output) -> Running {
        Box::pin(async move {
            let UdpConfig { address, receive_buffer, framing } = self.config;
            let socket = bind(&address, Async::<UdpSocket>::bind).await?;
            if let Some(wanted) = receive_buffer {
                set_receive_buffer(&socket, wanted, &out)
                    .map_err(|error| SourceError::io("set the receive buffer of", &address)(error.into()))?;
            }
            let inode = rustix::fs::fstat(&socket)
                .map_err(|error| SourceError::io("look at the socket of", &address)(error.into()))?
                .st_ino;
            tracing::info!(source = %out.name(), %address, "the source listens");
            let drops = ProcDrops { inode: inode.to_string(), last: 0 };
            receive(&socket, &address, &out, &framing, sender_name, drops).await
        })
    }
}

fn sender_name(sender: &SocketAddrAny) -> Option<Arc<str>> {
    SocketAddr::try_from(sender.clone()).ok().map(peer_name)
}

fn set_receive_buffer(socket: &Async<UdpSocket>, wanted: usize, out: &Output) -> rustix::io::Result<()> {
    sockopt::set_socket_recv_buffer_size(socket, wanted)?;
    // The kernel doubles what it grants, for its own book-keeping.
    let granted = sockopt::socket_recv_buffer_size(socket)? / 2;
    if granted < wanted {
        let name = out.name();
        tracing::warn!(source = %name, wanted, granted, "the receive buffer is smaller: raise net.core.rmem_max");
    }
    Ok(())
}

/// The drop count of a socket in `/proc/net/udp` or `/proc/net/udp6`.
struct ProcDrops {
    inode: String,
    last: u64,
}

impl Drops for ProcDrops {
    async fn since_last(&mut self) -> std::io::Result<u64> {
        let inode = self.inode.clone();
        let count = smol::unblock(move || -> std::io::Result<Option<u64>> {
            for table in ["/proc/net/udp", "/proc/net/udp6"] {
                match std::fs::read_to_string(table) {
                    Ok(text) => {
                        if let Some(count) = drops_of(&text, &inode) {
                            return Ok(Some(count));
                        }
                    }
                    // A kernel without IPv6 has no such table.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(None)
        })
        .await?
        .unwrap_or(self.last);
        Ok(count.saturating_sub(std::mem::replace(&mut self.last, count)))
    }
}

/// The last column of the line of the socket with this inode (its tenth column).
fn drops_of(table: &str, inode: &str) -> Option<u64> {
    let line = table.lines().skip(1).find(|line| line.split_whitespace().nth(9) == Some(inode))?;
    line.split_whitespace().nth(12)?.parse().ok()
}

#[cfg(test)]
mod tests {

    use super::super::testing::*;
    use super::*;

    fn start(more: &str, limit_bytes: usize) -> (Harness, SocketAddr) {
        let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let source = Harness::with_queue(&format!("type = \"udp\"\nbind = \"{address}\"\n{more}"), None, limit_bytes);
        (source, address)
    }

    fn sender() -> UdpSocket {
        UdpSocket::bind("127.0.0.1:0").unwrap()
    }

    const GREETING: &str = "hello";

    /// Sends until it arrives: the source may not be bound yet. More than one may arrive.
    fn greet(source: &mut Harness, from: &UdpSocket, address: SocketAddr) {
        eventually(|| {
            from.send_to(GREETING.as_bytes(), address).unwrap();
            source.pump();
            !source.runs.is_empty()
        });
    }

    fn without_greetings(mut seen: Vec<Seen>) -> Vec<Seen> {
        seen.retain(|seen| *seen != message(GREETING));
        seen
    }

    #[test]
    fn one_datagram_is_one_message_of_its_sender() {
        let (mut source, address) = start("", 1 << 20);
        let (a, b) = (sender(), sender());
        greet(&mut source, &a, address);
        a.send_to(b"a\n1", address).unwrap();
        b.send_to(b"b1", address).unwrap();
        a.send_to(&[b'x'; 65_000], address).unwrap();
        a.send_to(b"", address).unwrap();
        source.until(|s| without_greetings(s.seen()).len() == 4);
        let of_a = without_greetings(source.seen_by(&a.local_addr().unwrap().to_string()));
        assert_eq!(of_a, [message("a\n1"), message(&"x".repeat(65_000)), message("")]);
        assert_eq!(source.seen_by(&b.local_addr().unwrap().to_string()), messages(&["b1"]));
    }

    #[test]
    fn lines_end_with_their_datagram() {
        let (mut source, address) = start("framing = \"lines\"\nmax_length = \"5B\"", 1 << 20);
        let a = sender();
        greet(&mut source, &a, address);
        a.send_to(b"one\ntwo", address).unwrap();
        a.send_to(b"three\nfour and more", address).unwrap();
        source.until(|s| without_greetings(s.seen()).len() == 4);
        let seen = without_greetings(source.seen());
        assert_eq!(seen[..3], messages(&["one", "two", "three"]));
        assert!(matches!(&seen[3], Seen::Bad(reason) if reason.contains("13 bytes")), "{seen:?}");
    }

    #[test]
    fn what_the_kernel_drops_becomes_a_gap() {
        let (mut source, address) = start("receive_buffer = \"4KiB\"", 2_000);
        let a = sender();
        greet(&mut source, &a, address);
        const SENT: u64 = 2_000;
        for _ in 0..SENT {
            a.send_to(&[b'x'; 100], address).unwrap();
        }
        let lost = |s: &Harness| -> u64 {
            s.seen().iter().map(|seen| if let Seen::Gap(gap) = seen { gap.messages.unwrap() } else { 0 }).sum()
        };
        let came =
            |s: &Harness| s.seen().iter().filter(|seen| matches!(seen, Seen::Message(m) if m.len() == 100)).count();
        source.until(|s| lost(s) > 0 && lost(s) + came(s) as u64 >= SENT);
        assert_eq!(lost(&source) + came(&source) as u64, SENT);
    }

    #[test]
    fn the_drop_count_is_found_by_inode() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
            \x20 512: 0100007F:2328 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 77 2 0000000000000000 12\n";
        assert_eq!(drops_of(table, "77"), Some(12));
        assert_eq!(drops_of(table, "7"), None);
        assert_eq!(drops_of("", "77"), None);
    }

    #[test]
    fn a_port_in_use_is_an_error_that_names_it() {
        let taken = sender();
        let address = taken.local_addr().unwrap();
        let error = Harness::start(&format!("type = \"udp\"\nbind = \"{address}\"")).finish().expect_err("in use");
        assert!(
            error.to_string().starts_with(&format!("cannot listen on {address}: Address already in use")),
            "{error}"
        );
    }
}
