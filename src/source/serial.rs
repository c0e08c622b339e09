//! A serial port. A device that is not there, is busy or was unplugged is tried again; each time it is opened counts
//! as a connection, whose peer is the device.
//!
//! Bytes in the UART and the kernel are lost when a device is unplugged or the process dies; neither says how many.

use std::fmt;
use std::io::Read;
use std::time::{Duration, Instant};

use serialport::{DataBits, ErrorKind, FlowControl, Parity, SerialPort, StopBits, TTYPort};

use super::framing::{FramingConfig, Medium};
use super::stream::{Ending, Stream, is_transient, read_blocking};
use super::{Backoff, End, Output, Running, Source, SourceError, Warnings};
use crate::settings::Section;

/// A read goes on for this long while bytes come, so that a slow line does not cost a run for each byte.
const GATHER: Duration = Duration::from_millis(20);
/// A pause of this length ends a read.
const GATHER_PAUSE: Duration = Duration::from_millis(5);

/// Settings of a `serial` source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SerialConfig {
    pub device: String,
    pub baud: u32,
    pub data_bits: DataBits,
    pub parity: Parity,
    pub stop_bits: StopBits,
    pub flow_control: FlowControl,
    pub framing: FramingConfig,
}

impl SerialConfig {
    /// Reads `device`, `baud`, `data_bits`, `parity`, `stop_bits`, `flow_control` and the framing.
    pub fn read(section: &mut Section<'_>) -> Option<SerialConfig> {
        let device = section.required("device", "device = \"/dev/ttyUSB0\"");
        if device.as_ref().is_some_and(String::is_empty) {
            section.problem_at("device", "`device` is empty", None);
        }
        if !section.has("baud") {
            section.missing("baud", "baud = 9600");
        }
        let baud = section.integer("baud", 50..=4_000_000).and_then(|baud| u32::try_from(baud).ok());
        let data_bits = match section.integer("data_bits", 5..=8) {
            Some(5) => DataBits::Five,
            Some(6) => DataBits::Six,
            Some(7) => DataBits::Seven,
            _ => DataBits::Eight,
        };
        let parity = section
            .choice("parity", &[("none", Parity::None), ("even", Parity::Even), ("odd", Parity::Odd)])
            .unwrap_or(Parity::None);
        let stop_bits = match section.integer("stop_bits", 1..=2) {
            Some(2) => StopBits::Two,
            _ => StopBits::One,
        };
        let flow_control = section
            .choice(
                "flow_control",
                &[
                    ("none", FlowControl::None),
                    ("software", FlowControl::Software),
                    ("hardware", FlowControl::Hardware),
                ],
            )
            .unwrap_or(FlowControl::None);
        let framing = FramingConfig::read(section, Medium::Stream);
        Some(SerialConfig { device: device?, baud: baud?, data_bits, parity, stop_bits, flow_control, framing })
    }

    fn open(&self) -> serialport::Result<TTYPort> {
        serialport::new(&self.device, self.baud)
            .data_bits(self.data_bits)
            .parity(self.parity)
            .stop_bits(self.stop_bits)
            .flow_control(self.flow_control)
            .open_native()
    }
}

impl fmt::Display for SerialConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parity = match self.parity {
            Parity::None => 'N',
            Parity::Even => 'E',
            Parity::Odd => 'O',
        };
        let (data, stop) = (u8::from(self.data_bits), u8::from(self.stop_bits));
        write!(f, "serial {}, {} baud {data}{parity}{stop}, {}", self.device, self.baud, self.framing)
    }
}

/// See the module.
pub struct Serial {
    config: SerialConfig,
}

impl Serial {
    /// A source whose device is not open yet.
    pub fn new(config: SerialConfig) -> Serial {
        Serial { config }
    }
}

impl Source for Serial {
    fn run(self: Box<Self>, out: Output) -> Running {
        Box::pin(run(self.config, out))
    }
}

async fn run(config: SerialConfig, out: Output) -> Result<End, SourceError> {
    let mut backoff = Backoff::new();
    let mut warnings = Warnings::new();
    let device = &config.device;
    loop {
        let opening = config.clone();
        let lost = match smol::unblock(move || opening.open()).await {
            Ok(port) => {
                tracing::info!(source = %out.name(), %device, "the serial device is open");
                backoff.reset();
                read_port(port, &config, &out).await?
            }
            // Settings that the device cannot take do not become right by waiting; a missing device does.
            Err(source) if source.kind() == ErrorKind::InvalidInput => {
                return Err(SourceError::Serial { action: "open", device: device.clone(), source });
            }
            Err(error) => format!("it cannot be opened: {error}"),
        };
        if let Some(suppressed) = warnings.count(&out) {
            let name = out.name();
            tracing::warn!(source = %name, suppressed, %device, reason = lost, "no serial device; the source tries again");
        }
        backoff.wait(&out).await;
    }
}

/// Reads an open port until it is lost. Tells why.
async fn read_port(mut port: TTYPort, config: &SerialConfig, out: &Output) -> Result<String, SourceError> {
    let mut stream = Stream::open(out, &config.framing, config.device.as_str().into()).await?;
    let result = read_blocking(&mut stream, move |buffer, wait| read_some(&mut port, buffer, wait)).await?;
    let lost = match result {
        Ok(()) => "the device hung up".to_owned(),
        Err(error) => format!("the device is gone ({error})"),
    };
    stream.end(Ending::Broken(lost.clone())).await?;
    Ok(lost)
}

/// Waits for the first byte, then gathers what follows closely.
fn read_some(port: &mut TTYPort, buffer: &mut [u8], wait: Duration) -> std::io::Result<Option<usize>> {
    let mut until = None;
    let mut count = 0;
    let mut timeout = wait;
    loop {
        port.set_timeout(timeout)?;
        let Some(room) = buffer.get_mut(count..).filter(|room| !room.is_empty()) else { return Ok(Some(count)) };
        match port.read(room) {
            Ok(0) => return Ok(Some(count)),
            Ok(more) => count += more,
            Err(error) if is_transient(&error) => return Ok((count > 0).then_some(count)),
            Err(error) if count == 0 => return Err(error),
            // What was read comes first; the next read finds the error again.
            Err(_) => return Ok(Some(count)),
        }
        let until = *until.get_or_insert_with(|| Instant::now() + GATHER);
        timeout = until.saturating_duration_since(Instant::now()).min(GATHER_PAUSE);
        if timeout.is_zero() {
            return Ok(Some(count));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};

    use super::super::testing::*;
    use super::*;

    /// A pair of pseudo terminals: the far end, and the device that a link at `place` stands for.
    fn plug_in(place: &Path) -> TTYPort {
        let (far, near) = TTYPort::pair().unwrap();
        symlink(near.name().unwrap(), place).unwrap();
        // Its own handle would keep the device locked.
        drop(near);
        far
    }

    fn place() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ttyTEST");
        (dir, path)
    }

    fn start(place: &Path, more: &str) -> Harness {
        Harness::start(&format!("type = \"serial\"\ndevice = \"{}\"\nbaud = 115200\n{more}", place.display()))
    }

    #[test]
    fn lines_of_a_device() {
        let (_dir, place) = place();
        let mut far = plug_in(&place);
        let mut source = start(&place, "idle_flush = \"30ms\"");
        source.until_seen(1);
        far.write_all(b"$GPGGA,1\r\n$GP").unwrap();
        source.until_seen(2);
        far.write_all(b"GGA,2\r\n\0bin\n").unwrap();
        source.until(|s| s.seen().contains(&message("\0bin")));
        far.write_all(b"prompt>").unwrap();
        source.until(|s| s.seen().contains(&message("prompt>")));
        let mut seen = source.seen();
        seen.retain(|seen| *seen != message("$GP") && *seen != message("GGA,2") && *seen != message("$GPGGA,2"));
        assert_eq!(seen, [Seen::Connect, message("$GPGGA,1"), message("\0bin"), message("prompt>")]);
        assert_eq!(source.runs[1].peer.as_deref(), place.to_str());
    }

    #[test]
    fn a_device_that_is_missing_or_unplugged_is_awaited() {
        let (_dir, place) = place();
        let mut source = start(&place, "");
        eventually(|| source.count(|c| &c.reconnects) > 0);
        let mut far = plug_in(&place);
        source.until_seen(1);
        far.write_all(b"before\npart").unwrap();
        source.until(|s| s.seen().contains(&message("before")));
        drop(far);
        std::fs::remove_file(&place).unwrap();
        source.until(|s| s.seen().contains(&Seen::Disconnect));
        let mut far = plug_in(&place);
        source.until(|s| s.seen().iter().filter(|seen| **seen == Seen::Connect).count() == 2);
        far.write_all(b"after\n").unwrap();
        source.until(|s| s.seen().contains(&message("after")));
        let seen = source.seen();
        assert!(matches!(&seen[2], Seen::Bad(reason) if reason.ends_with("after 4 bytes of a message")), "{seen:?}");
        let kinds =
            [Seen::Connect, message("before"), seen[2].clone(), Seen::Disconnect, Seen::Connect, message("after")];
        assert_eq!(seen, kinds);
    }

    #[test]
    fn dropping_the_source_frees_the_device() {
        let (_dir, place) = place();
        let _far = plug_in(&place);
        let mut source = start(&place, "");
        source.until_seen(1);
        source.stop();
        let device = place.to_str().unwrap().to_owned();
        eventually(|| serialport::new(&device, 9600).open_native().is_ok());
    }

    #[test]
    fn line_settings_reach_the_device() {
        let (_dir, place) = place();
        let far = plug_in(&place);
        let mut source = start(&place, "stop_bits = 2\nflow_control = \"hardware\"");
        source.until_seen(1);
        // On Linux both ends of a pair have the same settings.
        assert_eq!(far.baud_rate().unwrap(), 115_200);
        assert_eq!(far.stop_bits().unwrap(), StopBits::Two);
        assert_eq!(far.flow_control().unwrap(), FlowControl::Hardware);
    }
}
