//! Framing: cuts a stream of bytes into messages.
//!
//! Invariants, tested as properties:
//! - The messages do not depend on how the stream was cut into reads.
//! - Nothing is lost: every byte belongs to a message, to a bad record, or to a delimiter.
//! - Total: no input makes a framer panic or take more memory than its longest message and a few KiB.
//! - Good and bad messages keep their order.
//!
//! To add one: a file here with its framer and its unit tests; a variant in [`Method`]; a line in [`METHODS`] and in
//! [`FramingConfig::framer`].

mod delimited;
mod fixed;
mod length;
mod whole;

use std::fmt;
use std::time::Duration;

use crate::event::{Bad, RecordKind, Reference, Run};
use crate::settings::Section;

pub use length::Prefix;

/// Bytes of a refused message that its bad record keeps.
const BAD_BYTES_MAX: usize = 1024;
/// Buffers of partial messages larger than this are given back after use.
const SPARE_BYTES_MAX: usize = 64 * 1024;
const MAX_LENGTH_DEFAULT: u64 = 1 << 20;
/// The longest message that can be configured.
const MAX_LENGTH_MAX: u64 = 64 << 20;
const DELIMITER_BYTES_MAX: usize = 16;

/// Cuts one byte stream into messages. One framer per stream: its state never sees two of them mixed.
pub trait Framer: Send + Sync {
    /// Takes the next bytes of the stream.
    fn push(&mut self, bytes: &[u8], out: &mut Framed);

    /// The stream ended cleanly, or paused for `idle_flush`: what is there counts as a message where the framing
    /// allows it, else becomes a bad record. The next byte starts a new message.
    fn finish(&mut self, out: &mut Framed);

    /// The stream broke off: a partial message becomes a bad record. `why` is its reason, without the full stop.
    fn break_off(&mut self, why: &str, out: &mut Framed);

    /// Whether a message has begun and is not complete.
    fn is_partial(&self) -> bool;
}

/// What a framer made of some bytes: runs of good and bad messages in the order of the stream.
pub struct Framed {
    template: Run,
    run_bytes_max: usize,
    taken: u64,
    /// Bytes of messages that may come.
    expected: usize,
    runs: Vec<(Run, u64)>,
    /// Runs of messages say where in the stream these stand.
    refers: bool,
    /// Bytes of the stream up to the end of the last message.
    message_end: u64,
}

impl Framed {
    /// Collects runs that are like `template` (source, time, peer) and no larger than `run_bytes_max`, unless a single
    /// message is. `taken` bytes of the stream belong to earlier messages.
    pub fn new(template: Run, run_bytes_max: usize, taken: u64) -> Framed {
        Framed { template, run_bytes_max, taken, expected: 0, runs: Vec::new(), refers: false, message_end: 0 }
    }

    /// Makes room for the messages of so many bytes of the stream at once, when there is a first one.
    pub fn expect(&mut self, bytes: usize) {
        self.expected = bytes.min(self.run_bytes_max);
    }

    /// As `self`, with a reference in each run of messages: of a stream that can be read again, and a framing that is
    /// [verbatim](FramingConfig::is_verbatim).
    #[must_use]
    pub fn referring(self) -> Framed {
        Framed { refers: true, ..self }
    }

    /// Bytes of the stream that belong to complete messages, delimiters or bad records.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// The runs, each with the number of bytes of the stream up to the end of its last message.
    pub fn into_runs(mut self) -> Vec<(Run, u64)> {
        for (run, _) in &mut self.runs {
            if let Some(reference) = &mut run.reference {
                reference.crc = crc32c::crc32c(&run.payload);
            }
        }
        self.runs
    }

    /// Appends a message that took `consumed` bytes of the stream, its first bytes first.
    fn message(&mut self, payload: &[u8], consumed: u64) {
        self.message_behind(0, payload, consumed);
    }

    /// Appends a message that took `consumed` bytes of the stream and stands `lead` bytes behind the first of them.
    fn message_behind(&mut self, lead: usize, payload: &[u8], consumed: u64) {
        let start = self.taken + lead as u64;
        self.record(RecordKind::Data, payload, consumed);
        if !self.refers {
            return;
        }
        if let Some((run, _)) = self.runs.last_mut() {
            match &mut run.reference {
                Some(reference) => reference.push(start.saturating_sub(self.message_end)),
                none => *none = Some(Reference { offset: start, gaps: Vec::new(), crc: 0 }),
            }
        }
        self.message_end = start + payload.len() as u64;
    }

    /// Appends a bad record for `consumed` bytes of the stream, which began with `bytes`.
    pub(super) fn bad(&mut self, reason: String, bytes: &[u8], consumed: u64) {
        let bytes = bytes.get(..BAD_BYTES_MAX).unwrap_or(bytes).to_vec();
        let payload = super::encode(&Bad { reason, bytes });
        self.record(RecordKind::Bad, &payload, consumed);
    }

    /// Passes over bytes that belong to no message.
    fn skip(&mut self, consumed: u64) {
        self.taken += consumed;
    }

    fn record(&mut self, kind: RecordKind, payload: &[u8], consumed: u64) {
        self.taken += consumed;
        let fits = self
            .runs
            .last()
            .is_some_and(|(run, _)| run.kind == kind && run.size_bytes() + payload.len() + 4 <= self.run_bytes_max);
        if !fits {
            let mut run = Run { kind, ..self.template.clone() };
            run.payload.reserve_exact(std::mem::take(&mut self.expected));
            self.runs.push((run, 0));
        }
        if let Some((run, end)) = self.runs.last_mut() {
            run.push(payload);
            *end = self.taken;
        }
    }
}

/// How a source's bytes are cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FramingConfig {
    pub method: Method,
    /// The longest message, in bytes; a longer one becomes a bad record.
    pub max_length: usize,
    /// A pause of this length ends a message.
    pub idle_flush: Option<Duration>,
}

/// The ways of cutting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    Lines,
    Delimiter(Vec<u8>),
    Length(Prefix),
    /// Messages of this many bytes.
    Fixed(usize),
    /// One datagram is one message.
    Whole,
}

const METHODS: [(&str, Word); 5] = [
    ("lines", Word::Lines),
    ("delimiter", Word::Delimiter),
    ("length", Word::Length),
    ("fixed", Word::Fixed),
    ("whole", Word::Whole),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Lines,
    Delimiter,
    Length,
    Fixed,
    Whole,
}

/// What a source's reads are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// A stream without borders of its own; `lines` unless configured.
    Stream,
    /// Datagrams, each a stream of its own; `whole` unless configured.
    Datagram,
}

impl FramingConfig {
    /// Reads `framing`, `delimiter`, `length`, `size`, `max_length` and `idle_flush` of a source's section. Where
    /// something is wrong, it is reported and a default stands in.
    pub fn read(section: &mut Section<'_>, medium: Medium) -> FramingConfig {
        let default = match medium {
            Medium::Stream => Word::Lines,
            Medium::Datagram => Word::Whole,
        };
        let word = section.choice("framing", &METHODS).unwrap_or(default);
        if medium == Medium::Stream && word == Word::Whole {
            section.problem_at(
                "framing",
                "framing \"whole\" is for datagrams; this source gives a stream of bytes",
                Some("write `framing = \"lines\"`, or one of \"delimiter\", \"length\", \"fixed\"".to_owned()),
            );
        }
        let max_length = section.size("max_length").unwrap_or(MAX_LENGTH_DEFAULT);
        if !(1..=MAX_LENGTH_MAX).contains(&max_length) {
            section.problem_at("max_length", "`max_length` must be between 1B and 64MiB", None);
        }
        let max_length = usize::try_from(max_length.clamp(1, MAX_LENGTH_MAX)).unwrap_or(usize::MAX);
        let delimiter = section.string("delimiter");
        let prefix = section.choice("length", &Prefix::NAMES);
        let size = section.integer("size", 1..=i64::try_from(MAX_LENGTH_MAX).unwrap_or(i64::MAX));
        for (key, method, example) in [
            ("delimiter", Word::Delimiter, "delimiter = \"\\u001e\""),
            ("length", Word::Length, "length = \"u32be\""),
            ("size", Word::Fixed, "size = 16"),
        ] {
            let name = METHODS.iter().find(|(_, word)| *word == method).map_or("", |(name, _)| name);
            if word == method && !section.has(key) {
                section.missing(key, example);
            } else if word != method && section.has(key) {
                let message = format!("`{key}` is only used by framing \"{name}\"");
                section.problem_at(key, message, Some(format!("add `framing = \"{name}\"`, or remove `{key}`")));
            }
        }
        if delimiter.as_ref().is_some_and(|d| !(1..=DELIMITER_BYTES_MAX).contains(&d.len())) {
            section.problem_at("delimiter", format!("`delimiter` must have 1 to {DELIMITER_BYTES_MAX} bytes"), None);
        }
        let delimiter = delimiter.filter(|d| !d.is_empty()).unwrap_or_else(|| "\n".to_owned());
        let method = match word {
            Word::Lines => Method::Lines,
            Word::Delimiter => Method::Delimiter(delimiter.into_bytes()),
            Word::Length => Method::Length(prefix.unwrap_or(Prefix::U32Be)),
            Word::Fixed => Method::Fixed(size.and_then(|size| usize::try_from(size).ok()).unwrap_or(1)),
            Word::Whole => Method::Whole,
        };
        let idle_flush = section.duration("idle_flush");
        if idle_flush.is_some() && medium == Medium::Datagram {
            section.problem_at(
                "idle_flush",
                "`idle_flush` has no meaning here: a datagram ends its last message",
                Some("remove `idle_flush`".to_owned()),
            );
        }
        if idle_flush == Some(Duration::ZERO) {
            section.problem_at(
                "idle_flush",
                "`idle_flush` must be longer than 0s",
                Some("leave it out to wait for the end of each message".to_owned()),
            );
        }
        FramingConfig { method, max_length, idle_flush }
    }

    /// A framer for a new stream. `at_start`: the stream is read from its first byte, where a BOM can stand.
    pub fn framer(&self, at_start: bool) -> Box<dyn Framer> {
        match &self.method {
            Method::Lines => Box::new(delimited::Delimited::lines(self.max_length, at_start)),
            Method::Delimiter(delimiter) => Box::new(delimited::Delimited::new(delimiter, self.max_length)),
            Method::Length(prefix) => Box::new(length::LengthPrefixed::new(*prefix, self.max_length)),
            Method::Fixed(size) => Box::new(fixed::Fixed::new(*size)),
            Method::Whole => Box::new(whole::Whole::new(self.max_length)),
        }
    }

    /// Whether each message stands in the stream as it is, in one piece, so that the log can refer to it.
    pub fn is_verbatim(&self) -> bool {
        match self.method {
            Method::Lines | Method::Delimiter(_) | Method::Length(_) | Method::Fixed(_) | Method::Whole => true,
        }
    }

    /// The longest message, in bytes.
    pub fn message_bytes_max(&self) -> usize {
        match self.method {
            Method::Fixed(size) => size,
            _ => self.max_length,
        }
    }
}

/// What `explain` prints: `lines`, `messages between "\u{1e}"`, `messages of 16 bytes`.
impl fmt::Display for FramingConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.method {
            Method::Lines => f.write_str("lines"),
            Method::Delimiter(delimiter) => {
                write!(f, "messages between {:?}", String::from_utf8_lossy(delimiter))
            }
            Method::Length(prefix) => write!(f, "messages behind a {prefix} length"),
            Method::Fixed(size) => write!(f, "messages of {size} bytes"),
            Method::Whole => f.write_str("a message per datagram"),
        }
    }
}

#[cfg(test)]
pub(in crate::source) mod testing {
    use super::*;
    use crate::event::{LogTime, SourceId};

    /// A message or the reason of a bad record.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Piece {
        Good(Vec<u8>),
        Bad { reason: String, bytes: Vec<u8> },
    }

    pub fn good(bytes: impl AsRef<[u8]>) -> Piece {
        Piece::Good(bytes.as_ref().to_vec())
    }

    pub fn framed() -> Framed {
        framed_from(0)
    }

    fn framed_from(taken: u64) -> Framed {
        Framed::new(Run::new(SourceId(3), RecordKind::Data, LogTime(7)), 300, taken)
    }

    pub fn pieces(run: &Run) -> Vec<Piece> {
        run.records()
            .map(|record| match run.kind {
                RecordKind::Data => good(record),
                RecordKind::Bad => {
                    let Bad { reason, bytes } = postcard::from_bytes(record).unwrap();
                    Piece::Bad { reason, bytes }
                }
                kind => panic!("{kind:?}"),
            })
            .collect()
    }

    /// How a stream ends.
    #[derive(Clone, Copy, Debug)]
    pub enum Ending {
        Finish,
        BreakOff,
    }

    /// Frames `input` cut at `cuts`, and checks that every byte is accounted for.
    pub fn frame(framer: &mut dyn Framer, input: &[u8], cuts: &[usize], ending: Ending) -> Vec<Piece> {
        let mut found = Vec::new();
        let mut taken = 0;
        let mut collect = |out: Framed| {
            taken = out.taken();
            for (run, end) in out.into_runs() {
                assert!(end <= taken);
                found.extend(pieces(&run));
            }
            taken
        };
        let mut start = 0;
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (input.len() + 1)).collect();
        cuts.sort_unstable();
        cuts.push(input.len());
        let mut taken_now = 0;
        for cut in cuts {
            let mut out = framed_from(taken_now);
            framer.push(&input[start..cut], &mut out);
            start = cut;
            taken_now = collect(out);
            assert!(taken_now <= start as u64);
            assert_eq!(framer.is_partial(), taken_now < start as u64, "{taken_now} of {start} taken");
        }
        let mut out = framed_from(taken_now);
        match ending {
            Ending::Finish => framer.finish(&mut out),
            Ending::BreakOff => framer.break_off("the stream broke off", &mut out),
        }
        assert_eq!(collect(out), input.len() as u64);
        assert!(!framer.is_partial());
        found
    }

    /// Frames `input` in one read.
    pub fn frame_whole(config: &FramingConfig, input: &[u8]) -> Vec<Piece> {
        frame(&mut *config.framer(true), input, &[], Ending::Finish)
    }

    pub fn config(method: Method, max_length: usize) -> FramingConfig {
        FramingConfig { method, max_length, idle_flush: None }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::testing::*;
    use super::*;
    use crate::settings::read_document;

    fn read(text: &str, medium: Medium) -> Result<FramingConfig, String> {
        read_document("f.toml", text, |root| Some(FramingConfig::read(root, medium))).map_err(|e| e.to_string())
    }

    #[test]
    fn defaults_follow_the_medium() {
        let stream = read("", Medium::Stream).unwrap();
        assert_eq!(stream, config(Method::Lines, 1 << 20));
        assert_eq!(read("", Medium::Datagram).unwrap().method, Method::Whole);
    }

    #[test]
    fn every_method_is_read() {
        let text = "framing = \"delimiter\"\ndelimiter = \"\\u001e\\n\"\nmax_length = \"2KiB\"\nidle_flush = \"5ms\"";
        let found = read(text, Medium::Stream).unwrap();
        assert_eq!(found.method, Method::Delimiter(b"\x1e\n".to_vec()));
        assert_eq!((found.max_length, found.idle_flush), (2048, Some(Duration::from_millis(5))));
        let found = read("framing = \"length\"\nlength = \"u16le\"", Medium::Stream).unwrap();
        assert_eq!(found.method, Method::Length(Prefix::U16Le));
        let found = read("framing = \"fixed\"\nsize = 12", Medium::Stream).unwrap();
        assert_eq!(found.method, Method::Fixed(12));
        assert_eq!(found.to_string(), "messages of 12 bytes");
    }

    #[test]
    fn what_does_not_fit_is_a_problem() {
        for (text, medium, expected) in [
            ("framing = \"linse\"", Medium::Stream, "did you mean `lines`?"),
            ("framing = \"whole\"", Medium::Stream, "is for datagrams"),
            ("delimiter = \";\"", Medium::Stream, "`delimiter` is only used by framing \"delimiter\""),
            ("size = 3", Medium::Stream, "`size` is only used by framing \"fixed\""),
            ("framing = \"delimiter\"", Medium::Stream, "`delimiter` is missing"),
            ("framing = \"delimiter\"\ndelimiter = \"\"", Medium::Stream, "1 to 16 bytes"),
            ("framing = \"length\"\nlength = \"u64\"", Medium::Stream, "cannot be \"u64\""),
            ("framing = \"length\"", Medium::Stream, "`length` is missing"),
            ("framing = \"fixed\"", Medium::Stream, "`size` is missing"),
            ("framing = \"fixed\"\nsize = 0", Medium::Stream, "between 1 and"),
            ("max_length = \"0B\"", Medium::Stream, "between 1B and 64MiB"),
            ("idle_flush = \"1s\"", Medium::Datagram, "no meaning here"),
            ("idle_flush = \"0s\"", Medium::Stream, "longer than 0s"),
        ] {
            let shown = read(text, medium).expect_err(text);
            assert!(shown.contains(expected), "{text}: {shown}");
            assert!(!shown.contains("unknown key"), "{text}: {shown}");
        }
    }

    #[test]
    fn runs_are_bounded_and_know_where_they_end() {
        let mut framer = config(Method::Lines, 1000).framer(true);
        let mut out = framed();
        framer.push(&b"0123456789\n".repeat(30), &mut out);
        let runs = out.into_runs();
        assert!(runs.len() > 1);
        let mut records = 0;
        for (run, end) in runs {
            assert!(run.size_bytes() <= 300);
            records += run.len() as u64;
            assert_eq!(end, records * 11);
        }
        assert_eq!(records, 30);
    }

    fn any_config() -> impl Strategy<Value = FramingConfig> {
        let method = prop_oneof![
            Just(Method::Lines),
            prop::collection::vec(prop::sample::select(b"ab\n".to_vec()), 1..4).prop_map(Method::Delimiter),
            prop::sample::select(Prefix::NAMES.to_vec()).prop_map(|(_, prefix)| Method::Length(prefix)),
            (1usize..9).prop_map(Method::Fixed),
        ];
        (method, 1usize..40).prop_map(|(method, max_length)| config(method, max_length))
    }

    /// Bytes in which delimiters, line ends, BOMs and small lengths are frequent.
    fn any_input() -> impl Strategy<Value = Vec<u8>> {
        let token = prop_oneof![
            6 => prop::sample::select(vec![&b"a"[..], b"b", b"\n", b"\r\n", b"\r", b"ab", b"\0", b"\0\0\0\x03", b"\x02"])
                .prop_map(<[u8]>::to_vec),
            1 => Just(b"\xEF\xBB\xBF".to_vec()),
            2 => prop::collection::vec(any::<u8>(), 0..60),
            1 => prop::collection::vec(Just(b'x'), 0..2000),
        ];
        prop::collection::vec(token, 0..40).prop_map(|tokens| tokens.concat())
    }

    proptest! {
        #[test]
        fn messages_do_not_depend_on_the_reads(
            config in any_config(),
            input in any_input(),
            cuts in prop::collection::vec(any::<usize>(), 0..60),
            broken in any::<bool>(),
        ) {
            let ending = if broken { Ending::BreakOff } else { Ending::Finish };
            let whole = frame(&mut *config.framer(true), &input, &[], ending);
            let cut = frame(&mut *config.framer(true), &input, &cuts, ending);
            prop_assert_eq!(&whole, &cut);
            let bytes: Vec<usize> = (0..input.len()).collect();
            let single = frame(&mut *config.framer(true), &input, &bytes, ending);
            prop_assert_eq!(&whole, &single);
            for piece in whole {
                match piece {
                    Piece::Good(bytes) => prop_assert!(bytes.len() <= config.message_bytes_max()),
                    Piece::Bad { bytes, .. } => prop_assert!(bytes.len() <= BAD_BYTES_MAX),
                }
            }
        }

        #[test]
        fn a_framer_can_be_used_again_after_the_end(config in any_config(), first in any_input(), second in any_input()) {
            let mut used = config.framer(true);
            frame(&mut *used, &first, &[], Ending::BreakOff);
            prop_assert_eq!(
                frame(&mut *used, &second, &[], Ending::Finish),
                frame_whole(&config, &second)
            );
        }
    }
}
