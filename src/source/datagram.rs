//! What UDP and unix datagram sockets have in common. Every datagram is a stream of its own: no message spans two.

use std::future::Future;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, SocketAddrAny, recvfrom};
use smol::Async;

use super::framing::FramingConfig;
use super::{End, Output, SourceError, within};
use crate::event::{Gap, Run};

/// Datagrams are collected into runs up to this size before they are handed over.
const BATCH_BYTES: usize = 128 * 1024;
/// Datagrams that are handed over at once, at most.
const BATCH_COUNT: usize = 1024;
/// No datagram of a socket with default settings is larger.
const DATAGRAM_BYTES_MAX: usize = 256 * 1024;
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Tells how many datagrams the kernel had no room for.
pub trait Drops: Send {
    /// Datagrams lost since the last call.
    fn since_last(&mut self) -> impl Future<Output = std::io::Result<u64>> + Send;
}

/// A kind of socket that waits for room instead of losing datagrams.
pub struct NoDrops;

impl Drops for NoDrops {
    async fn since_last(&mut self) -> std::io::Result<u64> {
        Ok(0)
    }
}

/// Receives datagrams for as long as it is polled. `name` names a sender.
pub async fn receive<S: AsFd>(
    socket: &Async<S>,
    what: &str,
    out: &Output,
    framing: &FramingConfig,
    name: impl Fn(&SocketAddrAny) -> Option<Arc<str>>,
    mut drops: impl Drops,
) -> Result<End, SourceError> {
    let mut buffer = vec![0; framing.max_length.max(DATAGRAM_BYTES_MAX)];
    // Lost datagrams can only be seen by looking; there is nothing to see if none came.
    let mut check_at: Option<Instant> = None;
    loop {
        let runs = batch(socket, out, framing, &name, &mut buffer).map_err(SourceError::io("receive on", what))?;
        let received = !runs.is_empty();
        for run in runs {
            out.send(run).await?;
        }
        if received {
            check_at.get_or_insert_with(|| Instant::now() + CHECK_INTERVAL);
        }
        let left = check_at.map(|at| at.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            check_at = None;
            let lost = drops.since_last().await.map_err(SourceError::io("read the drop count of", what))?;
            if lost > 0 {
                tracing::warn!(source = %out.name(), lost, "the socket's receive buffer was full: datagrams were lost");
                let reason = "the socket's receive buffer was full".to_owned();
                out.send_gap(&Gap { reason, messages: Some(lost), bytes: None }, None).await?;
            }
        } else if received {
            smol::future::yield_now().await;
        } else if let Some(ready) = within(left, socket.readable()).await {
            ready.map_err(SourceError::io("receive on", what))?;
        }
    }
}

/// What is there, without waiting.
fn batch<S: AsFd>(
    socket: &Async<S>,
    out: &Output,
    framing: &FramingConfig,
    name: &impl Fn(&SocketAddrAny) -> Option<Arc<str>>,
    buffer: &mut [u8],
) -> std::io::Result<Vec<Run>> {
    let mut framer = framing.framer(true);
    let mut runs = Vec::new();
    let mut current = None;
    let (mut bytes, mut count) = (0, 0);
    while bytes < BATCH_BYTES && count < BATCH_COUNT {
        // TRUNC: the length is the datagram's, also where the buffer is shorter.
        let (filled, length, sender) =
            match recvfrom(socket.get_ref(), &mut *buffer, RecvFlags::TRUNC | RecvFlags::DONTWAIT) {
                Ok(received) => received,
                Err(rustix::io::Errno::AGAIN) => break,
                // An earlier reply of ours cannot be what is refused: we send none. It is noise of the network.
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNREFUSED) => continue,
                Err(error) => return Err(error.into()),
            };
        bytes += length;
        count += 1;
        let (of, mut framed) = match current.take() {
            Some((of, framed)) if of == sender => (of, framed),
            before => {
                runs.extend(before.into_iter().flat_map(|(_, framed)| finished(framed)));
                let peer = sender.as_ref().and_then(name);
                let framed = out.framed(out.now(), peer.as_ref(), 0);
                (sender, framed)
            }
        };
        let datagram = buffer.get(..filled).unwrap_or_default();
        if filled < length {
            let reason = format!("a datagram of {length} bytes is longer than the {} that are taken", buffer.len());
            framed.bad(reason, datagram, length as u64);
        } else {
            framer.push(datagram, &mut framed);
            framer.finish(&mut framed);
        }
        current = Some((of, framed));
    }
    runs.extend(current.into_iter().flat_map(|(_, framed)| finished(framed)));
    Ok(runs)
}

fn finished(framed: super::framing::Framed) -> impl Iterator<Item = Run> {
    framed.into_runs().into_iter().map(|(run, _)| run)
}
