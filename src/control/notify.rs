//! systemd's readiness protocol (`sd_notify(3)`): one datagram to the socket named by `NOTIFY_SOCKET`. Without that
//! variable nothing is sent.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::time::{ClockId, clock_gettime};

/// The service is up: sources are being read.
pub fn ready() {
    send("READY=1");
}

/// The service is about to take a changed configuration, and will be ready again.
pub fn reloading() {
    let now = clock_gettime(ClockId::Monotonic);
    send(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1000));
}

/// The service is on its way down.
pub fn stopping() {
    send("STOPPING=1");
}

fn send(message: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let path = socket.to_string_lossy();
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name.as_bytes()),
        None => SocketAddr::from_pathname(path.as_ref()),
    };
    let sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!(%error, socket = %path, "cannot notify systemd");
    }
}
