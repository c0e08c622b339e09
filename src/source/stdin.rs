//! Standard input, to its end. What was read before a restart is in the log; it cannot be read again.

use std::fmt;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::framing::{FramingConfig, Medium};
use super::stream::{Ending, Stream, is_transient, read_blocking};
use super::{End, Output, Running, Source, SourceError};
use crate::settings::Section;

/// Settings of a `stdin` source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StdinConfig {
    pub framing: FramingConfig,
}

impl StdinConfig {
    /// Reads the framing.
    pub fn read(section: &mut Section<'_>) -> Option<StdinConfig> {
        Some(StdinConfig { framing: FramingConfig::read(section, Medium::Stream) })
    }
}

impl fmt::Display for StdinConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stdin, {}", self.framing)
    }
}

/// See the module.
pub struct Stdin {
    config: StdinConfig,
}

impl Stdin {
    /// A source that has read nothing yet.
    pub fn new(config: StdinConfig) -> Stdin {
        Stdin { config }
    }
}

impl Source for Stdin {
    fn run(self: Box<Self>, out: Output) -> Running {
        Box::pin(async move {
            let input = std::io::stdin().as_fd().try_clone_to_owned().map_err(SourceError::io("open", "stdin"))?;
            read_input(input, &self.config.framing, &out).await
        })
    }
}

async fn read_input(input: OwnedFd, framing: &FramingConfig, out: &Output) -> Result<End, SourceError> {
    // Not made non-blocking: that would hold for every process that shares this input.
    let mut input = std::fs::File::from(input);
    let mut stream = Stream::open(out, framing, "stdin".into()).await?;
    let read = move |buffer: &mut [u8], wait: Duration| {
        let timeout = Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: wait.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) => return none_if_transient(error.into()),
        }
        input.read(buffer).map(Some).or_else(none_if_transient)
    };
    match read_blocking(&mut stream, read).await? {
        Ok(()) => {
            stream.end(Ending::Clean).await?;
            Ok(End::EndOfInput)
        }
        Err(error) => {
            stream.end(Ending::Broken(format!("stdin broke off ({error})"))).await?;
            Err(SourceError::io("read", "stdin")(error))
        }
    }
}

fn none_if_transient(error: std::io::Error) -> std::io::Result<Option<usize>> {
    if is_transient(&error) { Ok(None) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Instant;

    use super::super::queue::Popped;
    use super::super::testing::*;
    use super::*;

    #[test]
    fn a_pipe_is_read_to_its_end() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let (out, queue) = output(1 << 20);
        let framing = StdinConfig { framing: FramingConfig { idle_flush: Some(Duration::from_millis(10)), ..lines() } };
        let source = std::thread::spawn(move || smol::block_on(read_input(reader.into(), &framing.framing, &out)));
        let mut found = Vec::new();
        let mut expect = |expected: Seen| {
            let deadline = Instant::now() + Duration::from_secs(20);
            while !found.contains(&expected) {
                assert!(Instant::now() < deadline, "{found:?}");
                if let Popped::Runs(runs) = queue.pop_all(usize::MAX, Some(Duration::from_millis(5))) {
                    found.extend(runs.iter().flat_map(seen));
                }
            }
            found.clone()
        };
        writer.write_all(b"one\ntw").unwrap();
        expect(message("one"));
        expect(message("tw"));
        writer.write_all(b"three").unwrap();
        drop(writer);
        let found = expect(Seen::Disconnect);
        let expected = [Seen::Connect, message("one"), message("tw"), message("three"), Seen::Disconnect];
        assert_eq!(found, expected);
        assert_eq!(source.join().unwrap().unwrap(), End::EndOfInput);
    }

    fn lines() -> FramingConfig {
        let super::super::SourceConfig::Stdin(config) = read("type = \"stdin\"") else { panic!() };
        config.framing
    }
}
