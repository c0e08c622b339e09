//! Sink `stdout`: rows on standard output. At-least-once: after a crash the rows since the last checkpoint come again.
//! A reader that went away ([`SinkError::Closed`]) ends the run; what is in a pipe cannot be taken back or looked at.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use arrow_array::{Array as _, ArrayRef};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use super::{BUFFER_BYTES, Flushed, Sink, SinkError, write_all_waiting};
use crate::disk::Stop;
use crate::event::LogTime;
use crate::expr::Field;
use crate::format::{Encoder, FormatConfig};
use crate::settings::Section;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StdoutConfig {
    pub format: FormatConfig,
}

impl StdoutConfig {
    /// Reads the sink's keys.
    pub fn read(section: &mut Section<'_>) -> Option<StdoutConfig> {
        FormatConfig::read_output(section).map(|format| StdoutConfig { format })
    }
}

/// An open [`StdoutConfig`].
pub struct StdoutSink {
    output: OwnedFd,
    encoder: Box<dyn Encoder>,
    buffer: Vec<u8>,
    rows: u64,
    stop: Stop,
}

/// Where the sink stands; variants are versions.
#[derive(Serialize, Deserialize)]
enum Progress {
    V1 { rows: u64 },
}

const NAME: &str = "standard output";
/// A pipe that is ready takes so much without blocking (PIPE_BUF).
const WRITE_BYTES_MAX: usize = 4096;
/// How often a writer that waits for its reader looks whether it was asked to stop.
const STOP_LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

impl StdoutSink {
    /// Opens standard output.
    ///
    /// # Errors
    /// It is closed, or the progress is not of this sink.
    pub fn open(
        config: &StdoutConfig,
        schema: &[Field],
        progress: Option<&[u8]>,
        stop: Stop,
    ) -> Result<StdoutSink, SinkError> {
        let output = io::stdout().as_fd().try_clone_to_owned();
        let output = output.map_err(|error| SinkError::io("cannot open", Path::new(NAME), error))?;
        StdoutSink::onto(output, config, schema, progress, stop)
    }

    fn onto(
        output: OwnedFd,
        config: &StdoutConfig,
        schema: &[Field],
        progress: Option<&[u8]>,
        stop: Stop,
    ) -> Result<StdoutSink, SinkError> {
        let rows = match progress.map(postcard::from_bytes) {
            None => 0,
            Some(Ok(Progress::V1 { rows })) => rows,
            Some(Err(error)) => {
                return Err(SinkError::Progress { path: NAME.to_owned(), reason: error.to_string() });
            }
        };
        let encoder = config.format.encoder(schema);
        let buffer = encoder.header();
        Ok(StdoutSink { output, encoder, buffer, rows, stop })
    }
}

impl Sink for StdoutSink {
    fn write(&mut self, columns: &[ArrayRef], _time: LogTime) -> Result<(), SinkError> {
        for row in 0..columns.first().map_or(0, |column| column.len()) {
            self.encoder.encode(columns, row, &mut self.buffer);
            self.rows += 1;
            if self.buffer.len() >= BUFFER_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        // Held so that rows and what others print do not mix within a line.
        let _lock = io::stdout().lock();
        let mut stuck = false;
        let write = |rest: &[u8], _: usize| loop {
            // A reader that takes nothing would hold a blocking write beyond every request to stop.
            while poll(&mut [PollFd::new(&self.output, PollFlags::OUT)], Some(&STOP_LOOK))? == 0 {
                if self.stop.is_requested() {
                    stuck = true;
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            match rustix::io::write(&self.output, rest.get(..WRITE_BYTES_MAX).unwrap_or(rest)) {
                // Another program on the terminal may have made it non-blocking.
                Err(rustix::io::Errno::AGAIN) => {}
                written => return written.map_err(io::Error::from),
            }
        };
        let written = write_all_waiting(Path::new(NAME), &self.buffer, write, |delay| self.stop.pause(delay));
        self.buffer.clear();
        match written {
            Err(_) if stuck => Err(SinkError::Stuck),
            Err(SinkError::Io { source, .. }) if source.kind() == io::ErrorKind::BrokenPipe => Err(SinkError::Closed),
            written => written,
        }
    }

    fn checkpoint(&mut self) -> Flushed {
        let flushed = self.flush();
        let progress = postcard::to_allocvec(&Progress::V1 { rows: self.rows }).unwrap_or_default();
        Flushed { progress, rows: self.rows, sync: Box::new(move || flushed) }
    }

    fn committed(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn replayed(&mut self) -> Result<bool, SinkError> {
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::sync::Arc;

    use super::*;
    use crate::expr::DataType;

    fn open(output: impl Into<OwnedFd>, format: &FormatConfig, progress: Option<&[u8]>) -> StdoutSink {
        let config = StdoutConfig { format: format.clone() };
        StdoutSink::onto(output.into(), &config, &[Field::new("n", DataType::Int)], progress, Stop::default())
            .expect("opens")
    }

    fn column(values: Vec<i32>) -> Vec<ArrayRef> {
        vec![Arc::new(arrow_array::Int32Array::from(values))]
    }

    #[test]
    fn rows_come_out_and_are_counted_over_a_restart() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let mut sink = open(writer.try_clone().expect("dup"), &FormatConfig::Json, None);
        sink.write(&column(vec![1, 2]), LogTime(0)).expect("writes");
        let flushed = sink.checkpoint();
        (flushed.sync)().expect("syncs");
        assert_eq!(flushed.rows, 2);
        drop(sink);
        let mut sink = open(writer, &FormatConfig::Json, Some(&flushed.progress));
        sink.write(&column(vec![3]), LogTime(0)).expect("writes");
        sink.flush().expect("flushes");
        sink.replayed().expect("never ahead");
        assert_eq!(sink.checkpoint().rows, 3);
        drop(sink);
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("UTF-8");
        assert_eq!(text, "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n");
    }

    #[test]
    fn a_reader_that_went_away_is_told_apart() {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let mut sink = open(writer, &FormatConfig::Json, None);
        sink.write(&column(vec![1]), LogTime(0)).expect("buffers");
        assert!(matches!(sink.flush(), Err(SinkError::Closed)));
    }

    #[test]
    fn a_full_non_blocking_pipe_is_waited_for() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        rustix::io::ioctl_fionbio(&writer, true).expect("sets");
        let mut sink = open(writer, &FormatConfig::Json, None);
        let writing = std::thread::spawn(move || {
            let written = sink.write(&column((0..100_000).collect()), LogTime(0));
            written.and_then(|()| sink.flush())
        });
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("UTF-8");
        assert!(matches!(writing.join(), Ok(Ok(()))));
        assert_eq!(text.lines().count(), 100_000);
    }

    #[test]
    fn a_foreign_progress_is_refused() {
        let (_reader, writer) = io::pipe().expect("a pipe");
        let config = StdoutConfig { format: FormatConfig::Json };
        let opened = StdoutSink::onto(writer.into(), &config, &[], Some(&[9, 9]), Stop::default());
        assert!(opened.is_err_and(|error| error.exit_code() == 65));
    }
}
