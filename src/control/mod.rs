//! What the outside is told while the engine runs: systemd's notifications, answers on the control socket.

pub mod notify;
pub mod socket;
