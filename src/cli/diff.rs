//! `forebay checkpoint diff A B`: which keys of each operator are in only one of two checkpoints, and which have another
//! value. Each of A and B is a savepoint, a state directory, or a configuration that names one.
//!
//! Operators are matched by name. Both sides are read in the order of keys, a piece at a time, so memory does not grow
//! with the state. A state is read in one transaction: an engine may go on meanwhile.

use std::cmp::Ordering;
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::checkpoint::{EntryDecoder, table, undecoded};
use super::progress::ProgressBar;
use super::{Failure, Format, USAGE, dump};
use crate::checkpoint::layout::{self, StateEntry};
use crate::checkpoint::savepoint::{SavepointError, SavepointReader, operator_of, read_through};
use crate::checkpoint::{CheckpointError, CheckpointMeta, CheckpointReader, DIRECTORY, Pinned};
use crate::state::StoredPair;

/// Bytes of entries that are read from a state at once.
const PAGE_BYTES: usize = 1 << 20;
/// Length of the operator's number, with which a key begins.
const OPERATOR_BYTES: usize = 4;

/// One of the two.
struct Side {
    name: String,
    medium: Medium,
    /// The operator that is being read, and what was read ahead of it.
    operator: Option<u32>,
    ahead: VecDeque<StoredPair>,
    last_key: Option<Vec<u8>>,
}

enum Medium {
    Savepoint(SavepointReader<File>),
    State(Pinned),
}

impl Side {
    fn open(place: &Path) -> Result<Side, Failure> {
        let failure = |error: SavepointError| Failure::new(&error, error.exit_code());
        let medium = if super::savepoint::is_savepoint(place)? {
            let mut reader = SavepointReader::open(place).map_err(failure)?;
            // Once to its end: then all is known to be right, and where each operator's entries begin.
            let mut bar = ProgressBar::new("verifying");
            read_through(&mut reader, &mut |done, total| bar.at(done, total)).map_err(failure)?;
            Medium::Savepoint(reader)
        } else {
            let opened = CheckpointReader::open(&super::state_of(place)?.join(DIRECTORY)).and_then(|r| r.pin());
            Medium::State(opened.map_err(|error| failure(error.into()))?)
        };
        let name = place.display().to_string();
        Ok(Side { name, medium, operator: None, ahead: VecDeque::new(), last_key: None })
    }

    fn meta(&self) -> &CheckpointMeta {
        match &self.medium {
            Medium::Savepoint(reader) => reader.meta(),
            Medium::State(pinned) => pinned.meta(),
        }
    }

    /// Goes to the first entry of an operator.
    fn go_to(&mut self, operator: Option<u32>) -> Result<(), SavepointError> {
        self.operator = operator;
        self.ahead.clear();
        self.last_key = None;
        if let (Medium::Savepoint(reader), Some(operator)) = (&mut self.medium, operator)
            && !reader.go_to(operator)?
        {
            self.operator = None;
        }
        Ok(())
    }

    /// The next entry of the operator, which stays the next one.
    fn peek(&mut self) -> Result<Option<&StoredPair>, SavepointError> {
        if let Some(operator) = self.operator.filter(|_| self.ahead.is_empty()) {
            match &mut self.medium {
                Medium::Savepoint(reader) => {
                    let next = reader.next()?.filter(|(key, _)| operator_of(key) == Some(operator));
                    self.ahead.extend(next.map(|(key, stored)| (key.to_vec(), stored.to_vec())));
                }
                Medium::State(pinned) => {
                    self.ahead.extend(pinned.page(operator, self.last_key.as_deref(), PAGE_BYTES)?);
                    self.last_key = self.ahead.back().map(|(key, _)| key.clone());
                }
            }
            if self.ahead.is_empty() {
                self.operator = None;
            }
        }
        Ok(self.ahead.front())
    }

    fn decoder(&self, operator: &str) -> EntryDecoder {
        match self.meta().operator(operator) {
            Some(known) => dump::decoder(self.meta(), known),
            None => Box::new(undecoded),
        }
    }

    fn corrupt(&self, what: &str) -> SavepointError {
        CheckpointError::Corrupt { dir: self.name.clone().into(), what: what.to_owned() }.into()
    }
}

/// The entry of a key in each side, where it has one.
type InBoth = (Option<StoredPair>, Option<StoredPair>);

/// What of one operator differs.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    only_a: u64,
    only_b: u64,
    changed: u64,
    same: u64,
}

/// Prints the differences: at most `limit` of them one by one, then the counts of each operator.
///
/// # Errors
/// One of the two cannot be read or is corrupt; `out` failed.
pub fn diff(a: &Path, b: &Path, limit: Option<u64>, format: Format, out: &mut dyn Write) -> Result<(), Failure> {
    let same_file = a.canonicalize().is_ok_and(|a| b.canonicalize().is_ok_and(|b| a == b));
    if same_file {
        let message = format!("{} and {} are the same", a.display(), b.display());
        return Err(Failure { message, code: USAGE });
    }
    let (mut a, mut b) = (Side::open(a)?, Side::open(b)?);
    match print_differences(&mut a, &mut b, limit.unwrap_or(u64::MAX), format, out) {
        Err(SavepointError::Checkpoint(CheckpointError::Output { source }))
            if source.kind() == std::io::ErrorKind::BrokenPipe =>
        {
            Ok(())
        }
        done => done.map_err(|error| Failure::new(&error, error.exit_code())),
    }
}

fn print_differences(
    a: &mut Side,
    b: &mut Side,
    limit: u64,
    format: Format,
    out: &mut dyn Write,
) -> Result<(), SavepointError> {
    let output = |source| SavepointError::from(CheckpointError::Output { source });
    let names = |side: &Side| side.meta().operators.iter().map(|operator| operator.name.clone()).collect::<Vec<_>>();
    let all: BTreeSet<String> = names(a).into_iter().chain(names(b)).filter(|name| !name.is_empty()).collect();
    let mut left = limit;
    let mut totals = Vec::new();
    for name in all {
        let decoders = (a.decoder(&name), b.decoder(&name));
        a.go_to(a.meta().operator(&name).map(|operator| operator.id))?;
        b.go_to(b.meta().operator(&name).map(|operator| operator.id))?;
        let mut counts = Counts::default();
        loop {
            let (in_a, in_b) = next_pair(a, b)?;
            let entry_a = in_a.as_ref().map(|entry| decode(a, entry)).transpose()?;
            let entry_b = in_b.as_ref().map(|entry| decode(b, entry)).transpose()?;
            match (&entry_a, &entry_b) {
                (Some(a), Some(b)) if a.value == b.value && a.key == b.key => {
                    counts.same += 1;
                    continue;
                }
                (Some(_), Some(_)) => counts.changed += 1,
                (Some(_), None) => counts.only_a += 1,
                (None, Some(_)) => counts.only_b += 1,
                (None, None) => break,
            }
            if left > 0 {
                left -= 1;
                let shown_a = entry_a.as_ref().map(|entry| shown(&decoders.0, entry));
                let shown_b = entry_b.as_ref().map(|entry| shown(&decoders.1, entry));
                let namespace = entry_a.as_ref().or(entry_b.as_ref()).map_or(0, |entry| entry.namespace);
                print_one(out, format, &name, namespace, shown_a, shown_b).map_err(output)?;
            }
        }
        totals.push((name, counts));
    }
    print_totals(out, format, &totals).map_err(output)
}

/// The next entries of both sides: of both, where their keys are the same, else of the one whose key is first.
/// None of either: there are no more.
fn next_pair(a: &mut Side, b: &mut Side) -> Result<InBoth, SavepointError> {
    let place = |entry: &StoredPair| entry.0.get(OPERATOR_BYTES..).map(<[u8]>::to_vec).unwrap_or_default();
    let first = match (a.peek()?.map(place), b.peek()?.map(place)) {
        (None, None) => return Ok((None, None)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (Some(a), Some(b)) => a.cmp(&b),
    };
    let of_a = if first.is_le() { a.ahead.pop_front() } else { None };
    let of_b = if first.is_ge() { b.ahead.pop_front() } else { None };
    Ok((of_a, of_b))
}

fn decode<'e>(side: &Side, (key, stored): &'e StoredPair) -> Result<StateEntry<'e>, SavepointError> {
    layout::decode_state(key, stored).map_err(|what| side.corrupt(what))
}

fn shown(decode: &EntryDecoder, entry: &StateEntry<'_>) -> Value {
    decode(entry.namespace, &entry.key, entry.value)
}

fn print_one(
    out: &mut dyn Write,
    format: Format,
    operator: &str,
    namespace: i64,
    a: Option<Value>,
    b: Option<Value>,
) -> std::io::Result<()> {
    let change = match (&a, &b) {
        (Some(_), Some(_)) => "changed",
        (Some(_), None) => "only_a",
        _ => "only_b",
    };
    if format == Format::Json {
        let line = json!({"operator": operator, "change": change, "namespace": namespace, "a": a, "b": b});
        return writeln!(out, "{line}");
    }
    let mark = if change == "changed" { '~' } else { ' ' };
    for (sign, value) in [('-', a), ('+', b)] {
        if let Some(value) = value {
            writeln!(out, "{mark}{sign} {operator}  {namespace:>20}  {value}")?;
        }
    }
    Ok(())
}

fn print_totals(out: &mut dyn Write, format: Format, totals: &[(String, Counts)]) -> std::io::Result<()> {
    if format == Format::Json {
        return totals.iter().try_for_each(|(operator, counts)| {
            let Counts { only_a, only_b, changed, same } = counts;
            let total = json!({"only_a": only_a, "only_b": only_b, "changed": changed, "same": same});
            writeln!(out, "{}", json!({"operator": operator, "total": total}))
        });
    }
    let rows: Vec<Vec<String>> = totals
        .iter()
        .map(|(operator, counts)| {
            let Counts { only_a, only_b, changed, same } = counts;
            let counts = [only_a, only_b, changed, same].map(u64::to_string);
            std::iter::once(operator.clone()).chain(counts).collect()
        })
        .collect();
    table(out, &["OPERATOR", "ONLY IN A", "ONLY IN B", "CHANGED", "SAME"], &[1, 2, 3, 4], &rows)
}
