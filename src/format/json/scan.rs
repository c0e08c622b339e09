//! The fast way for the usual message: one flat object, strings without escapes, values that the columns take.
//!
//! It takes a subset of what the general decoder takes and gives the same row for it. At anything else (an escape, a
//! nested value, a refusal, a syntax error) it gives up, and the general decoder, which knows the reasons, starts anew.
//! `every_message_decodes_the_same_both_ways` holds the two against each other.

use super::super::columns::{Column, Row, Values};

/// The keys of the messages before, as they were written: which column each one was. A message whose keys are the same in
/// the same order, as a device's mostly are, is compared with them instead of being looked up key by key.
#[derive(Default)]
pub(super) struct Layout {
    keys: Vec<Option<LaidOut>>,
}

/// A key with its quotes and colon, without white space: at most 16 bytes, else it is not kept.
struct LaidOut {
    /// The first eight bytes, and the last eight of those that are longer; unused ones are zero.
    head: u64,
    tail: u64,
    bytes: usize,
    column: Option<usize>,
}

/// Keys that are kept.
const KEYS_MAX: usize = 64;

impl Layout {
    /// The next message is expected to have this key in this place.
    fn lay(&mut self, place: usize, key: Option<LaidOut>) {
        let kept = self.keys.len();
        match self.keys.get_mut(place) {
            Some(known) => *known = key,
            None if place == kept && place < KEYS_MAX => self.keys.push(key),
            None => {}
        }
    }
}

impl LaidOut {
    fn new(key: &[u8], column: Option<usize>) -> Option<LaidOut> {
        let at = |from: usize| key.get(from..)?.first_chunk::<8>().map(|word| u64::from_le_bytes(*word));
        let (head, tail) = match key.len() {
            0..8 => {
                let mut word = [0; 8];
                word.get_mut(..key.len())?.copy_from_slice(key);
                (u64::from_le_bytes(word), 0)
            }
            8..=16 => (at(0)?, at(key.len() - 8)?),
            _ => return None,
        };
        Some(LaidOut { head, tail, bytes: key.len(), column })
    }

    /// Whether the key stands at the start of `text`.
    #[inline]
    fn starts(&self, text: &[u8]) -> bool {
        let at =
            |from: usize| text.get(from..).and_then(<[u8]>::first_chunk::<8>).map(|word| u64::from_le_bytes(*word));
        let Some(head) = at(0) else { return false };
        match self.bytes {
            bytes @ 0..8 => (head ^ self.head) << (64 - 8 * bytes) == 0,
            bytes => head == self.head && at(bytes - 8) == Some(self.tail),
        }
    }
}

/// Decodes a message (UTF-8) into row `done` of the columns. `None`: not the usual kind; the columns are to be truncated.
#[inline]
pub(super) fn message(row: &mut Row, layout: &mut Layout, done: usize, text: &str) -> Option<()> {
    let mut cursor = Cursor { text, at: 0 };
    cursor.skip_space();
    cursor.expect(b'{')?;
    cursor.skip_space();
    if cursor.peek() == Some(b'}') {
        cursor.at += 1;
    } else {
        let mut expected = 0;
        for place in 0.. {
            let column = match layout.keys.get(place).and_then(Option::as_ref).filter(|key| key.starts(cursor.rest())) {
                Some(key) => {
                    cursor.at += key.bytes;
                    key.column
                }
                None => {
                    let start = cursor.at;
                    cursor.expect(b'"')?;
                    let key = cursor.string()?;
                    let end = cursor.at;
                    cursor.skip_space();
                    cursor.expect(b':')?;
                    let column = row.names.find(key, expected);
                    if cursor.at == end + 1 {
                        layout.lay(place, LaidOut::new(text.as_bytes().get(start..=end)?, column));
                    }
                    column
                }
            };
            cursor.skip_space();
            match column {
                Some(index) => {
                    expected = index + 1;
                    let column = row.columns.get_mut(index)?;
                    if column.rows() > done {
                        column.truncate(done);
                    }
                    value(&mut cursor, column)?;
                }
                None => skip(&mut cursor)?,
            }
            cursor.skip_space();
            match cursor.next()? {
                b',' => cursor.skip_space(),
                b'}' => break,
                _ => return None,
            }
        }
    }
    cursor.skip_space();
    (cursor.at == text.len()).then_some(())
}

/// Appends the value that comes next.
#[inline]
fn value(cursor: &mut Cursor<'_>, column: &mut Column) -> Option<()> {
    match cursor.peek()? {
        b'"' => {
            cursor.at += 1;
            let text = cursor.string()?;
            column.push_text(text).ok()
        }
        b'-' | b'0'..=b'9' => {
            let number = cursor.number()?;
            match (&column.values, number.exact()) {
                (Values::Double(_), Some(value)) => {
                    column.push_double(value);
                    Some(())
                }
                (Values::Bytes(_), _) => None,
                _ => column.push_text(number.text).ok(),
            }
        }
        b'n' => {
            cursor.word("null")?;
            column.push_null();
            Some(())
        }
        b't' if !matches!(column.values, Values::Bytes(_)) => column.push_text(cursor.word("true")?).ok(),
        b'f' if !matches!(column.values, Values::Bytes(_)) => column.push_text(cursor.word("false")?).ok(),
        _ => None,
    }
}

/// Passes over the scalar that comes next.
#[inline]
fn skip(cursor: &mut Cursor<'_>) -> Option<()> {
    match cursor.peek()? {
        b'"' => {
            cursor.at += 1;
            cursor.string().map(drop)
        }
        b'-' | b'0'..=b'9' => cursor.number().map(drop),
        b'n' => cursor.word("null").map(drop),
        b't' => cursor.word("true").map(drop),
        b'f' => cursor.word("false").map(drop),
        _ => None,
    }
}

/// A number as written, and its digits as far as they fit.
struct Number<'m> {
    text: &'m str,
    negative: bool,
    /// All digits, whole part and fraction, as one number; right where there are at most 15.
    digits: u64,
    digit_count: usize,
    fraction_digits: usize,
    has_exponent: bool,
}

/// Powers of ten that a double holds exactly, as far as 15 digits need them.
const POWERS: [f64; 16] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

impl Number<'_> {
    /// The nearest double, where one division of two exact doubles gives it (Clinger's fast path).
    #[inline]
    fn exact(&self) -> Option<f64> {
        if self.digit_count > 15 || self.has_exponent {
            return None;
        }
        let magnitude = self.digits as f64 / POWERS.get(self.fraction_digits)?;
        Some(if self.negative { -magnitude } else { magnitude })
    }
}

struct Cursor<'m> {
    text: &'m str,
    at: usize,
}

impl<'m> Cursor<'m> {
    #[inline]
    fn rest(&self) -> &'m [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    #[inline]
    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    #[inline]
    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    #[inline]
    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// This word.
    fn word(&mut self, word: &'static str) -> Option<&'static str> {
        let end = self.at + word.len();
        (self.text.as_bytes().get(self.at..end)? == word.as_bytes()).then(|| {
            self.at = end;
            word
        })
    }

    /// What stands before the closing quote; behind it afterwards. `None` for escapes and control characters.
    #[inline]
    fn string(&mut self) -> Option<&'m str> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        loop {
            let (at, byte) = match bytes.get(self.at..)?.first_chunk::<8>() {
                Some(chunk) => match special(*chunk) {
                    Some(offset) => (self.at + offset, *chunk.get(offset)?),
                    None => {
                        self.at += 8;
                        continue;
                    }
                },
                None => {
                    let rest = bytes.get(self.at..)?;
                    let offset = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20))?;
                    (self.at + offset, *rest.get(offset)?)
                }
            };
            if byte != b'"' {
                return None;
            }
            self.at = at + 1;
            return self.text.get(start..at);
        }
    }

    /// A number in JSON's grammar.
    #[inline]
    fn number(&mut self) -> Option<Number<'m>> {
        let start = self.at;
        let negative = self.peek() == Some(b'-');
        self.at += usize::from(negative);
        let mut digits = 0;
        let whole = self.at;
        self.digits(&mut digits);
        let whole_digits = self.at - whole;
        let leading_zero = whole_digits > 1 && self.text.as_bytes().get(whole) == Some(&b'0');
        if whole_digits == 0 || leading_zero {
            return None;
        }
        let mut fraction_digits = 0;
        if self.peek() == Some(b'.') {
            self.at += 1;
            let fraction = self.at;
            self.digits(&mut digits);
            fraction_digits = self.at - fraction;
            if fraction_digits == 0 {
                return None;
            }
        }
        let has_exponent = matches!(self.peek(), Some(b'e' | b'E'));
        if has_exponent {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            let exponent = self.at;
            self.digits(&mut 0);
            if self.at == exponent {
                return None;
            }
        }
        Some(Number {
            text: self.text.get(start..self.at)?,
            negative,
            digits,
            digit_count: whole_digits + fraction_digits,
            fraction_digits,
            has_exponent,
        })
    }

    #[inline]
    fn digits(&mut self, value: &mut u64) {
        while let Some(byte @ b'0'..=b'9') = self.peek() {
            *value = value.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
            self.at += 1;
        }
    }
}

/// Index of the first quote, backslash or control character among eight bytes.
#[inline]
fn special(chunk: [u8; 8]) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    let word = u64::from_le_bytes(chunk);
    // The lowest byte that these mark is always a true one; a borrow can only mark bytes above it.
    let zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    let found = (zero(word ^ (ONES * u64::from(b'"'))) | zero(word ^ (ONES * u64::from(b'\\'))) | control) & HIGH;
    (found != 0).then_some(found.trailing_zeros() as usize / 8)
}
