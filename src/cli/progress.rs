//! How far a long command is: one line on standard error that is written over, and only where that is a terminal.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

const WIDTH: u64 = 30;
/// A command that is done sooner shows nothing; later the line changes this often.
const PAUSE: Duration = Duration::from_millis(200);

/// A bar; wiped off when it is dropped.
pub struct ProgressBar {
    what: &'static str,
    /// When it was last drawn; `None`: nobody would see it.
    drawn: Option<Instant>,
    shown: bool,
}

impl ProgressBar {
    pub fn new(what: &'static str) -> ProgressBar {
        ProgressBar { what, drawn: std::io::stderr().is_terminal().then(Instant::now), shown: false }
    }

    /// So much is done.
    pub fn at(&mut self, done: u64, total: u64) {
        if self.drawn.is_some_and(|drawn| drawn.elapsed() >= PAUSE) {
            self.drawn = Some(Instant::now());
            self.shown = true;
            // Nothing depends on it.
            let _ = write!(std::io::stderr(), "\r{}", line(self.what, done, total));
        }
    }
}

fn line(what: &str, done: u64, total: u64) -> String {
    let (done, total) = (u128::from(done.min(total)), u128::from(total.max(1)));
    let full = (done * u128::from(WIDTH) / total) as usize;
    format!("{what} [{}{}] {:3} %", "#".repeat(full), " ".repeat(WIDTH as usize - full), done * 100 / total)
}

impl Drop for ProgressBar {
    fn drop(&mut self) {
        if self.shown {
            let blank = " ".repeat(line(self.what, 0, 1).chars().count());
            let _ = write!(std::io::stderr(), "\r{blank}\r");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_as_long_whatever_is_done() {
        assert_eq!(line("exporting", 0, 0), format!("exporting [{}]   0 %", " ".repeat(30)));
        assert_eq!(line("exporting", 5, 10), format!("exporting [{}{}]  50 %", "#".repeat(15), " ".repeat(15)));
        assert_eq!(line("exporting", u64::MAX, u64::MAX), format!("exporting [{}] 100 %", "#".repeat(30)));
        assert_eq!(line("exporting", 11, 10), line("exporting", 10, 10));
    }
}
