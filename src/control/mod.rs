//! What the outside is told while the engine runs: systemd's notifications.

pub mod notify;
