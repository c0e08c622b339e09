//! One datagram is one message: each push is a whole message, empty ones included.

use super::{Framed, Framer};

/// See the module.
pub struct Whole {
    max_length: usize,
}

impl Whole {
    /// Messages of up to `max_length` bytes.
    pub fn new(max_length: usize) -> Whole {
        Whole { max_length }
    }
}

impl Framer for Whole {
    fn push(&mut self, bytes: &[u8], out: &mut Framed) {
        let length = bytes.len();
        if length > self.max_length {
            let reason = format!("a datagram of {length} bytes is longer than max_length, {} bytes", self.max_length);
            out.bad(reason, bytes, length as u64);
        } else {
            out.message(bytes, length as u64);
        }
    }

    fn finish(&mut self, _out: &mut Framed) {}

    fn break_off(&mut self, _why: &str, _out: &mut Framed) {}

    fn is_partial(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::Method;
    use super::super::testing::*;

    #[test]
    fn a_datagram_is_a_message() {
        let config = config(Method::Whole, 4);
        assert_eq!(frame_whole(&config, b"a\nb"), [good("a\nb")]);
        assert_eq!(frame_whole(&config, b""), [good("")]);
        let reason = "a datagram of 5 bytes is longer than max_length, 4 bytes".to_owned();
        assert_eq!(frame_whole(&config, b"abcde"), [Piece::Bad { reason, bytes: b"abcde".to_vec() }]);
    }
}
