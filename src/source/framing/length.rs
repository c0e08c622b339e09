//! Messages behind their length: `u8`, or `u16`/`u32` of either byte order. The length counts the message alone.
//!
//! Decided: a length of zero is an empty message. A length above `max_length` makes one bad record of that many bytes,
//! and the message after it is intact if the length was true. A part of a message at the end of the stream, or before
//! a pause of `idle_flush`, is bad; so `idle_flush` also brings a line that lost bytes back into step.

use std::fmt;

use super::{BAD_BYTES_MAX, Framed, Framer, SPARE_BYTES_MAX};

/// The form of a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix {
    U8,
    U16Be,
    U16Le,
    U32Be,
    U32Le,
}

impl Prefix {
    /// All forms by the names that stand in a config.
    pub const NAMES: [(&str, Prefix); 5] = [
        ("u8", Prefix::U8),
        ("u16be", Prefix::U16Be),
        ("u16le", Prefix::U16Le),
        ("u32be", Prefix::U32Be),
        ("u32le", Prefix::U32Le),
    ];

    fn size_bytes(self) -> usize {
        match self {
            Prefix::U8 => 1,
            Prefix::U16Be | Prefix::U16Le => 2,
            Prefix::U32Be | Prefix::U32Le => 4,
        }
    }

    /// The length that stands at the start of `bytes`, if all of it is there.
    fn read(self, bytes: &[u8]) -> Option<u32> {
        Some(match self {
            Prefix::U8 => u32::from(*bytes.first()?),
            Prefix::U16Be => u32::from(u16::from_be_bytes(*bytes.first_chunk()?)),
            Prefix::U16Le => u32::from(u16::from_le_bytes(*bytes.first_chunk()?)),
            Prefix::U32Be => u32::from_be_bytes(*bytes.first_chunk()?),
            Prefix::U32Le => u32::from_le_bytes(*bytes.first_chunk()?),
        })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Prefix::NAMES.iter().find(|(_, prefix)| prefix == self).map_or("", |(name, _)| name))
    }
}

/// See the module.
pub struct LengthPrefixed {
    prefix: Prefix,
    max_length: usize,
    /// Prefix and message that have begun; of a message that is too long only the first bytes.
    partial: Vec<u8>,
    /// Bytes of the stream that the message that has begun took so far.
    partial_length: u64,
}

impl LengthPrefixed {
    /// Messages of up to `max_length` bytes behind a `prefix`.
    pub fn new(prefix: Prefix, max_length: usize) -> LengthPrefixed {
        LengthPrefixed { prefix, max_length, partial: Vec::new(), partial_length: 0 }
    }

    /// Prefix and message together, once the prefix is there.
    fn wanted(&self, bytes: &[u8]) -> Option<u64> {
        self.prefix.read(bytes).map(|length| self.prefix.size_bytes() as u64 + u64::from(length))
    }

    fn is_too_long(&self, wanted: u64) -> bool {
        wanted - self.prefix.size_bytes() as u64 > self.max_length as u64
    }

    /// Emits what takes `wanted` bytes of the stream and begins with `kept`, prefix included.
    fn emit(&self, kept: &[u8], wanted: u64, out: &mut Framed) {
        let message = kept.get(self.prefix.size_bytes()..).unwrap_or_default();
        if self.is_too_long(wanted) {
            let length = wanted - self.prefix.size_bytes() as u64;
            let reason = format!("a message of {length} bytes is longer than max_length, {} bytes", self.max_length);
            out.bad(reason, message, wanted);
        } else {
            out.message_behind(self.prefix.size_bytes(), message, wanted);
        }
    }

    /// Adds `bytes`, which do not go beyond the message.
    fn keep(&mut self, bytes: &[u8]) {
        self.partial_length += bytes.len() as u64;
        let too_long = self.wanted(&self.partial).is_some_and(|wanted| self.is_too_long(wanted));
        let room = if too_long {
            (BAD_BYTES_MAX + self.prefix.size_bytes()).saturating_sub(self.partial.len())
        } else {
            bytes.len()
        };
        self.partial.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }

    fn clear(&mut self) {
        self.partial.clear();
        if self.partial.capacity() > SPARE_BYTES_MAX {
            self.partial = Vec::new();
        }
        self.partial_length = 0;
    }
}

impl Framer for LengthPrefixed {
    fn push(&mut self, bytes: &[u8], out: &mut Framed) {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.partial_length == 0
                && let Some(wanted) = self.wanted(rest)
                && wanted <= rest.len() as u64
            {
                let (message, tail) = rest.split_at(usize::try_from(wanted).unwrap_or(rest.len()));
                self.emit(message, wanted, out);
                rest = tail;
                continue;
            }
            let wanted = self.wanted(&self.partial).unwrap_or(self.prefix.size_bytes() as u64);
            let missing = usize::try_from(wanted - self.partial_length).unwrap_or(usize::MAX);
            let (head, tail) = rest.split_at(missing.min(rest.len()));
            self.keep(head);
            rest = tail;
            if self.wanted(&self.partial) == Some(self.partial_length) {
                self.emit(&self.partial, self.partial_length, out);
                self.clear();
            }
        }
    }

    fn finish(&mut self, out: &mut Framed) {
        self.break_off("the stream ended or paused", out);
    }

    fn break_off(&mut self, why: &str, out: &mut Framed) {
        if self.partial_length > 0 {
            let reason = match self.wanted(&self.partial) {
                Some(wanted) => {
                    format!("{why} after {} of the {wanted} bytes of a message and its length", self.partial_length)
                }
                None => format!("{why} inside the length of a message"),
            };
            out.bad(reason, &self.partial, self.partial_length);
            self.clear();
        }
    }

    fn is_partial(&self) -> bool {
        self.partial_length > 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::Method;
    use super::super::testing::*;
    use super::*;

    fn found(prefix: Prefix, max_length: usize, input: &[u8]) -> Vec<Piece> {
        frame_whole(&config(Method::Length(prefix), max_length), input)
    }

    #[test]
    fn every_form_of_length() {
        for (prefix, input) in [
            (Prefix::U8, &b"\x02hi\x00\x01x"[..]),
            (Prefix::U16Be, b"\0\x02hi\0\0\0\x01x"),
            (Prefix::U16Le, b"\x02\0hi\0\0\x01\0x"),
            (Prefix::U32Be, b"\0\0\0\x02hi\0\0\0\0\0\0\0\x01x"),
            (Prefix::U32Le, b"\x02\0\0\0hi\0\0\0\0\x01\0\0\0x"),
        ] {
            assert_eq!(found(prefix, 10, input), [good("hi"), good(""), good("x")], "{prefix}");
        }
    }

    #[test]
    fn a_message_that_is_too_long_is_one_bad_record_and_the_next_is_intact() {
        let mut input = 3000u16.to_be_bytes().to_vec();
        input.extend_from_slice(&[7; 3000]);
        input.extend_from_slice(b"\0\x02ok");
        let reason = "a message of 3000 bytes is longer than max_length, 100 bytes".to_owned();
        let expected = [Piece::Bad { reason, bytes: vec![7; 1024] }, good("ok")];
        assert_eq!(found(Prefix::U16Be, 100, &input), expected);
        let config = config(Method::Length(Prefix::U16Be), 100);
        assert_eq!(frame(&mut *config.framer(true), &input, &[1, 2, 50, 2000], Ending::Finish), expected);
    }

    #[test]
    fn a_part_of_a_message_is_bad() {
        let cut = found(Prefix::U16Be, 100, b"\0\x05ab");
        let reason = "the stream ended or paused after 4 of the 7 bytes of a message and its length".to_owned();
        assert_eq!(cut, [Piece::Bad { reason, bytes: b"\0\x05ab".to_vec() }]);
        let cut = found(Prefix::U16Be, 100, b"\0");
        let reason = "the stream ended or paused inside the length of a message".to_owned();
        assert_eq!(cut, [Piece::Bad { reason, bytes: b"\0".to_vec() }]);
    }

    #[test]
    fn a_claimed_length_reserves_no_memory() {
        let mut framer = LengthPrefixed::new(Prefix::U32Be, 100);
        let mut out = framed();
        framer.push(b"\xff\xff\xff\xffabc", &mut out);
        framer.push(&[0; 100_000], &mut out);
        assert!(framer.partial.len() <= BAD_BYTES_MAX + 4);
        assert!(out.into_runs().is_empty());
    }
}
