//! Messages of a fixed size. A part of one at the end of the stream, or before a pause of `idle_flush`, is bad.

use super::{Framed, Framer};

/// See the module.
pub struct Fixed {
    size: usize,
    partial: Vec<u8>,
}

impl Fixed {
    /// Messages of `size` bytes, at least one.
    pub fn new(size: usize) -> Fixed {
        Fixed { size: size.max(1), partial: Vec::new() }
    }
}

impl Framer for Fixed {
    fn push(&mut self, bytes: &[u8], out: &mut Framed) {
        let mut rest = bytes;
        if !self.partial.is_empty() {
            let missing = self.size - self.partial.len();
            let (head, tail) = rest.split_at(missing.min(rest.len()));
            self.partial.extend_from_slice(head);
            rest = tail;
            if self.partial.len() < self.size {
                return;
            }
            out.message(&self.partial, self.size as u64);
            self.partial.clear();
        }
        let mut messages = rest.chunks_exact(self.size);
        for message in &mut messages {
            out.message(message, self.size as u64);
        }
        self.partial.extend_from_slice(messages.remainder());
    }

    fn finish(&mut self, out: &mut Framed) {
        self.break_off("the stream ended or paused", out);
    }

    fn break_off(&mut self, why: &str, out: &mut Framed) {
        if !self.partial.is_empty() {
            let length = self.partial.len();
            out.bad(
                format!("{why} after {length} of the {} bytes of a message", self.size),
                &self.partial,
                length as u64,
            );
            self.partial.clear();
        }
    }

    fn is_partial(&self) -> bool {
        !self.partial.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Method;
    use super::super::testing::*;

    #[test]
    fn whole_messages_are_good_and_a_part_is_bad() {
        let reason = "the stream ended or paused after 1 of the 3 bytes of a message".to_owned();
        let found = frame(&mut *config(Method::Fixed(3), 1).framer(true), b"abcdefg", &[2, 4], Ending::Finish);
        assert_eq!(found, [good("abc"), good("def"), Piece::Bad { reason, bytes: b"g".to_vec() }]);
    }
}
