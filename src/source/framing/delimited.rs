//! Messages with a delimiter between them: `lines` and `delimiter`.
//!
//! Decided: empty messages are passed over (a delimiter may also stand in front, as in RFC 7464, and CRLF devices send
//! stray line ends). `lines` ends at LF; one CR before it belongs to the line end, also at the end of the stream, and a
//! UTF-8 byte order mark at the very start is removed. NUL and all other bytes are data. `max_length` counts what
//! remains. A last message without delimiter counts at the end of the stream.

use memchr::{memchr, memmem};

use super::{BAD_BYTES_MAX, Framed, Framer, SPARE_BYTES_MAX};

const BOM: &[u8] = b"\xEF\xBB\xBF";
/// What `lines` strips from a message at most, in bytes: BOM and CR.
const STRIPPED_MAX: usize = 4;

/// See the module.
pub struct Delimited {
    delimiter: Vec<u8>,
    finder: memmem::Finder<'static>,
    is_text: bool,
    max_length: usize,
    at_start: bool,
    /// The message that has begun: all of it, or its first bytes once it is certainly too long.
    partial: Vec<u8>,
    /// Length in bytes of the message that has begun, of which `partial` may hold less.
    partial_length: u64,
    /// Last bytes of the message that has begun, fewer than a delimiter (but one at least): a delimiter or a CR can
    /// begin in them.
    tail: Vec<u8>,
}

impl Delimited {
    /// Text lines.
    pub fn lines(max_length: usize, at_start: bool) -> Delimited {
        Delimited { is_text: true, at_start, ..Delimited::new(b"\n", max_length) }
    }

    /// Messages between `delimiter`s, which are not empty.
    pub fn new(delimiter: &[u8], max_length: usize) -> Delimited {
        Delimited {
            delimiter: delimiter.to_vec(),
            finder: memmem::Finder::new(delimiter).into_owned(),
            is_text: false,
            max_length,
            at_start: false,
            partial: Vec::new(),
            partial_length: 0,
            tail: Vec::new(),
        }
    }

    fn find(&self, bytes: &[u8]) -> Option<usize> {
        match *self.delimiter.as_slice() {
            [byte] => memchr(byte, bytes),
            _ => self.finder.find(bytes),
        }
    }

    /// A delimiter that begins in the partial message and ends in `bytes`: how many of its bytes are in the latter.
    fn find_across(&self, bytes: &[u8]) -> Option<usize> {
        let overlap = self.delimiter.len() - 1;
        if overlap == 0 || self.tail.is_empty() {
            return None;
        }
        let mut window = self.tail.clone();
        window.extend_from_slice(bytes.get(..overlap).unwrap_or(bytes));
        let end = self.finder.find(&window)? + self.delimiter.len();
        end.checked_sub(self.tail.len()).filter(|within| *within > 0)
    }

    /// Emits a message whose first bytes are `kept`, without its delimiter.
    fn emit(&mut self, kept: &[u8], length: u64, delimiter_length: usize, out: &mut Framed) {
        let consumed = length + delimiter_length as u64;
        let is_whole = kept.len() as u64 == length;
        let mut kept = kept;
        let mut length = length;
        let mut lead = 0;
        if self.is_text {
            let ends_with_cr = if is_whole { kept.last() == Some(&b'\r') } else { self.tail.last() == Some(&b'\r') };
            if ends_with_cr {
                length -= 1;
                if is_whole {
                    kept = kept.split_last().map_or(kept, |(_, rest)| rest);
                }
            }
            if std::mem::take(&mut self.at_start)
                && let Some(rest) = kept.strip_prefix(BOM)
            {
                kept = rest;
                length -= BOM.len() as u64;
                lead = BOM.len();
            }
        }
        if length == 0 {
            out.skip(consumed);
        } else if length > self.max_length as u64 {
            let what = if self.is_text { "line" } else { "message" };
            let reason = format!("a {what} of {length} bytes is longer than max_length, {} bytes", self.max_length);
            out.bad(reason, kept, consumed);
        } else {
            out.message_behind(lead, kept, consumed);
        }
    }

    /// Adds `bytes` to the partial message.
    fn keep(&mut self, bytes: &[u8]) {
        let length_before = self.partial_length;
        self.partial_length += bytes.len() as u64;
        if self.partial_length <= (self.max_length + STRIPPED_MAX + self.delimiter.len()) as u64 {
            self.partial.extend_from_slice(bytes);
        } else {
            // Certainly too long: only the first bytes are of use, for the bad record.
            let wanted = BAD_BYTES_MAX + BOM.len();
            if self.partial.len() as u64 == length_before && self.partial.len() < wanted {
                let missing = wanted - self.partial.len();
                self.partial.extend_from_slice(bytes.get(..missing).unwrap_or(bytes));
            }
            self.partial.truncate(wanted);
        }
        let tail_length = (self.delimiter.len() - 1).max(1);
        match bytes.len().checked_sub(tail_length) {
            Some(start) => {
                self.tail.clear();
                self.tail.extend_from_slice(bytes.get(start..).unwrap_or_default());
            }
            None => {
                self.tail.extend_from_slice(bytes);
                let surplus = self.tail.len().saturating_sub(tail_length);
                self.tail.drain(..surplus);
            }
        }
    }

    /// Emits the partial message without its last `surplus` bytes, which are the first of its delimiter.
    fn emit_partial(&mut self, surplus: usize, delimiter_length: usize, out: &mut Framed) {
        let mut partial = std::mem::take(&mut self.partial);
        let length = self.partial_length - surplus as u64;
        partial.truncate(usize::try_from(length).unwrap_or(usize::MAX));
        self.emit(&partial, length, delimiter_length, out);
        self.reuse(partial);
    }

    fn reuse(&mut self, mut partial: Vec<u8>) {
        partial.clear();
        if partial.capacity() <= SPARE_BYTES_MAX {
            self.partial = partial;
        }
        self.partial_length = 0;
        self.tail.clear();
    }
}

impl Framer for Delimited {
    fn push(&mut self, bytes: &[u8], out: &mut Framed) {
        let mut rest = bytes;
        if self.partial_length > 0 {
            let delimiter_length = self.delimiter.len();
            if let Some(within) = self.find_across(rest) {
                self.emit_partial(delimiter_length - within, delimiter_length, out);
                rest = rest.get(within..).unwrap_or_default();
            } else if let Some(at) = self.find(rest) {
                let (head, tail) = rest.split_at(at);
                self.keep(head);
                self.emit_partial(0, delimiter_length, out);
                rest = tail.get(delimiter_length..).unwrap_or_default();
            } else {
                self.keep(rest);
                return;
            }
        }
        while let Some(at) = self.find(rest) {
            let (message, tail) = rest.split_at(at);
            self.emit(message, at as u64, self.delimiter.len(), out);
            rest = tail.get(self.delimiter.len()..).unwrap_or_default();
        }
        if !rest.is_empty() {
            self.keep(rest);
        }
    }

    fn finish(&mut self, out: &mut Framed) {
        if self.partial_length > 0 {
            self.emit_partial(0, 0, out);
        }
        self.at_start = self.is_text;
    }

    fn break_off(&mut self, why: &str, out: &mut Framed) {
        if self.partial_length > 0 {
            let partial = std::mem::take(&mut self.partial);
            out.bad(format!("{why} after {} bytes of a message", self.partial_length), &partial, self.partial_length);
            self.reuse(partial);
        }
        self.at_start = self.is_text;
    }

    fn is_partial(&self) -> bool {
        self.partial_length > 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::super::{FramingConfig, Method};

    fn lines(max_length: usize) -> FramingConfig {
        config(Method::Lines, max_length)
    }

    fn between(delimiter: &[u8]) -> FramingConfig {
        config(Method::Delimiter(delimiter.to_vec()), 100)
    }

    #[test]
    fn lf_crlf_empty_lines_and_a_last_line_without_end() {
        let found = frame_whole(&lines(100), b"a\r\n\n\r\nb\rc\n\nlast\r");
        assert_eq!(found, [good("a"), good("b\rc"), good("last")]);
    }

    #[test]
    fn a_bom_is_removed_at_the_start_only_and_nul_bytes_are_data() {
        let found = frame_whole(&lines(3), b"\xEF\xBB\xBFa\0b\n\xEF\xBB\xBF\n");
        assert_eq!(found, [good(b"a\0b"), good(b"\xEF\xBB\xBF")]);
        let found = frame(&mut *lines(100).framer(false), b"\xEF\xBB\xBFa", &[], Ending::Finish);
        assert_eq!(found, [good(b"\xEF\xBB\xBFa")]);
        assert_eq!(frame_whole(&lines(3), b"\xEF\xBB\xBF\r\nx"), [good("x")]);
    }

    #[test]
    fn an_overlong_line_is_one_bad_record_and_the_next_is_intact() {
        let mut input = b"first\n".to_vec();
        input.extend_from_slice(&[b'x'; 5000]);
        input.extend_from_slice(b"\r\nnext\n");
        let expected = [
            good("first"),
            Piece::Bad {
                reason: "a line of 5000 bytes is longer than max_length, 10 bytes".to_owned(),
                bytes: vec![b'x'; 1024],
            },
            good("next"),
        ];
        assert_eq!(frame_whole(&lines(10), &input), expected);
        let cuts: Vec<usize> = (0..input.len()).step_by(7).collect();
        assert_eq!(frame(&mut *lines(10).framer(true), &input, &cuts, Ending::Finish), expected);
    }

    #[test]
    fn max_length_counts_neither_the_line_end_nor_the_bom() {
        assert_eq!(frame_whole(&lines(3), b"\xEF\xBB\xBFabc\r\nabc\r\n"), [good("abc"), good("abc")]);
        let found = frame_whole(&lines(3), b"abcd\n");
        assert!(matches!(&found[..], [Piece::Bad { bytes, .. }] if bytes == b"abcd"), "{found:?}");
    }

    #[test]
    fn a_partial_line_of_a_broken_stream_is_bad() {
        let found = frame(&mut *lines(100).framer(true), b"a\npart", &[], Ending::BreakOff);
        let reason = "the stream broke off after 4 bytes of a message".to_owned();
        assert_eq!(found, [good("a"), Piece::Bad { reason, bytes: b"part".to_vec() }]);
    }

    #[test]
    fn delimiters_of_several_bytes_are_found_across_reads() {
        let input = b"a|||b||||||c";
        let config = between(b"||");
        assert_eq!(frame_whole(&config, input), [good("a"), good("|b"), good("c")]);
        let input = b"a|;|b;;||c;|";
        let config = between(b";|");
        let whole = frame_whole(&config, input);
        assert_eq!(whole, [good("a|"), good("b;"), good("|c")]);
        for cut in 0..input.len() {
            assert_eq!(frame(&mut *config.framer(true), input, &[cut], Ending::Finish), whole, "{cut}");
        }
    }

    #[test]
    fn a_delimiter_may_stand_in_front() {
        assert_eq!(frame_whole(&between(b"\x1e"), b"\x1e{}\n\x1e[]\n"), [good("{}\n"), good("[]\n")]);
    }
}
