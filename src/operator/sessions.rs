//! The sessions of an operator: where a row falls, which sessions it makes one, and which of them are over. A session ends
//! `gap` after its last row; a row that touches sessions on both sides makes them one. What a session holds is the
//! operator's own.
//!
//! State: namespace = the session's end rounded up to a multiple of the gap (two sessions of a key that do not touch end
//! more than a gap apart, so never in one namespace), key = the partition as comparable bytes, value = the session. A
//! row looks for sessions of its key from the namespace of its own time on. Beside them the timers (`session_timers.rs`).
//! So the state is bounded by the sessions that are open and those that were within the last gap.
//!
//! - For each session there is a timer at or before its end, made when the session came into its namespace. Rows that only
//!   move the end within the namespace leave the timer as it is; when its turn comes and the session goes on, there is a
//!   new one at the end that it then has.
//! - Sessions that are over have fired. Where many fire at once their entries stay until their namespace goes, which it
//!   does with its last open session: else what is left to be deleted would itself take memory for each.
//!
//! Resident are the number of open sessions in each namespace, the next timers, and for some keys where their newest
//! session stands. A row is late when the session that it would be part of, after merging, is over.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::session_timers::{Timer, Timers};
use super::window::Assigner;
use crate::event::EventTime;
use crate::state::{Checkpointed, Key, KeyedState, StateError};

/// Of what fires in one batch, the entries that are deleted one by one.
const DELETIONS_MAX: usize = if cfg!(test) { 2 } else { 8192 };

/// Where a row would look through more namespaces than this it is noted for its key where the newest session stands.
const LOOKED_THROUGH_MAX: usize = if cfg!(test) { 1 } else { 4 };
/// Keys for which that is noted.
const NOTED_MAX: usize = if cfg!(test) { 3 } else { 8192 };

/// What a session holds.
pub trait Content: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// What is kept of it in entries of their own, which are the operator's to find and to remove.
    type Part: Clone + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Takes what another session of the key holds, whose end is later.
    fn merge(&mut self, later: Self);
}

/// One entry of the state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound = "C: Content")]
pub enum Entry<C: Content> {
    Session(Session<C>),
    Timer,
    Part(C::Part),
}

/// A session, on the wall clock in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound = "C: Content")]
pub struct Session<C> {
    pub start: i64,
    /// A gap after the last row.
    pub end: i64,
    pub content: C,
}

/// A session where it was found.
struct Found<C> {
    namespace: i64,
    start: i64,
    end: i64,
    /// The session itself, where it was read from the checkpoint: what is in memory is taken from there.
    read: Option<Session<C>>,
}

/// The sessions in the state.
pub struct Sessions<C: Content> {
    gap_ms: i64,
    /// Open sessions in each namespace: the last one takes it away.
    open: BTreeMap<i64, u64>,
    timers: Timers,
    /// For some keys: the namespace behind which there is no session of theirs.
    newest: HashMap<Box<[u8]>, i64>,
    /// Of [`DELETIONS_MAX`].
    deletions_left: usize,
    pub state: KeyedState<Entry<C>>,
}

impl<C: Content> Sessions<C> {
    /// Sessions of this gap.
    pub fn new(gap_ms: i64, state: KeyedState<Entry<C>>) -> Sessions<C> {
        let gap_ms = gap_ms.max(1);
        let (timers, newest) = (Timers::new(gap_ms), HashMap::new());
        Sessions { gap_ms, open: BTreeMap::new(), timers, newest, deletions_left: 0, state }
    }

    /// To be called before what one batch frees.
    pub fn begin_batch(&mut self) {
        self.deletions_left = DELETIONS_MAX;
    }

    /// Whether one more entry that has fired is to be deleted for itself.
    pub fn may_delete(&mut self) -> bool {
        let may = self.deletions_left > 0;
        self.deletions_left = self.deletions_left.saturating_sub(1);
        may
    }

    /// Takes a row of this key, and time on the wall clock, into the session that it is part of, `empty` where it is a new
    /// one; `None`: the row is late.
    ///
    /// # Errors
    /// State could not be read.
    pub fn take_row<R>(
        &mut self,
        key: &[u8],
        time: i64,
        watermark: EventTime,
        assigner: &Assigner,
        empty: impl FnOnce() -> C,
        add: impl FnOnce(&mut C) -> R,
    ) -> Result<Option<R>, StateError> {
        let end = time.saturating_add(self.gap_ms);
        let touched = self.touching(key, (time, end), |end| assigner.over_at(end) <= watermark)?;
        let start = touched.first().map_or(time, |first| first.start.min(time));
        let end = touched.last().map_or(end, |last| last.end.max(end));
        let over = assigner.over_at(end);
        if over <= watermark {
            return Ok(None);
        }
        let namespace = self.namespace(end);
        let before = match touched.as_slice() {
            [one] if one.namespace == namespace => Some(one.end),
            _ => None,
        };
        let Some(before) = before else {
            let mut merged: Option<C> = None;
            for found in touched {
                match (&mut merged, self.take(key, found)?) {
                    (Some(merged), Some(later)) => merged.merge(later.content),
                    (None, first) => merged = first.map(|first| first.content),
                    (Some(_), None) => {}
                }
            }
            let mut content = merged.unwrap_or_else(empty);
            let added = add(&mut content);
            self.put(Key::from(key), Session { start, end, content }, over);
            return Ok(Some(added));
        };
        let read = touched.into_iter().find_map(|found| found.read);
        let entry = match read {
            Some(session) => self.state.put(namespace, key, Entry::Session(session)),
            // It is there.
            None => self.state.entry(namespace, key, || Entry::Timer)?,
        };
        let Entry::Session(session) = entry else { return Err(self.corrupt("a session is another kind of entry")) };
        (session.start, session.end) = (start, end);
        let added = add(&mut session.content);
        // Where the wall clock skips, a later end is over earlier: before the timer that stands.
        if end != before && over < assigner.over_at(before) {
            self.timers.insert(Timer { over, end, key: Key::from(key) }, &mut self.state);
        }
        Ok(Some(added))
    }

    /// Takes out the next session that is over at the watermark, in order of time, then key. To be called until there is
    /// none.
    ///
    /// # Errors
    /// State could not be read.
    pub fn due(&mut self, watermark: EventTime, assigner: &Assigner) -> Result<Option<(Key, Session<C>)>, StateError> {
        while let Some((timer, found)) = self.next_over(watermark, assigner)? {
            if let Some(session) = self.finish(&timer.key, found)? {
                return Ok(Some((timer.key, session)));
            }
        }
        self.timers.forget(watermark, &mut self.state);
        Ok(None)
    }

    /// Looks ahead, so that the first timer is that of a session which ends then.
    ///
    /// # Errors
    /// State could not be read.
    pub fn look_ahead(&mut self, assigner: &Assigner) -> Result<(), StateError> {
        if let Some((timer, _)) = self.next_over(EventTime::MAX, assigner)? {
            self.timers.put_back(timer);
        }
        Ok(())
    }

    /// The least watermark at which a session is over, as of the last [`Sessions::look_ahead`].
    pub fn next_timer(&self) -> Option<EventTime> {
        self.timers.peek().map(|timer| timer.over)
    }

    /// The open sessions in each namespace: what is to be saved with a checkpoint.
    pub fn open(&self) -> &BTreeMap<i64, u64> {
        &self.open
    }

    /// Goes on with the sessions in the state.
    ///
    /// # Errors
    /// State could not be read.
    pub fn resume(
        &mut self,
        open: BTreeMap<i64, u64>,
        watermark: EventTime,
        assigner: &Assigner,
    ) -> Result<(), StateError> {
        self.open = open;
        self.timers.resume(watermark);
        self.look_ahead(assigner)
    }

    /// What is said where an entry is not what it has to be.
    pub fn corrupt(&self, what: &str) -> StateError {
        StateError::Corrupt { operator: self.state.operator(), what: what.to_owned() }
    }

    fn namespace(&self, end: i64) -> i64 {
        end.saturating_add((self.gap_ms - end.rem_euclid(self.gap_ms)) % self.gap_ms)
    }

    /// The session of a key in a namespace.
    fn find(&self, namespace: i64, key: &[u8]) -> Result<Option<Found<C>>, StateError> {
        Ok(match self.state.get(namespace, key)? {
            Some(Cow::Owned(Entry::Session(session))) => {
                Some(Found { namespace, start: session.start, end: session.end, read: Some(session) })
            }
            Some(Cow::Borrowed(Entry::Session(session))) => {
                Some(Found { namespace, start: session.start, end: session.end, read: None })
            }
            _ => None,
        })
    }

    /// The open sessions of a key that a stretch of time touches, in order of time.
    fn touching(
        &mut self,
        key: &[u8],
        (from, to): (i64, i64),
        is_over: impl Fn(i64) -> bool,
    ) -> Result<Vec<Found<C>>, StateError> {
        let first = self.namespace(from);
        let many = self.open.range(first..).nth(LOOKED_THROUGH_MAX).is_some();
        let noted = if many { self.newest.get(key).copied() } else { None };
        // Older ones are not looked at.
        let (mut touched, mut newest) = (Vec::new(), first);
        for namespace in self.open.range(first..).map(|(namespace, _)| *namespace) {
            if noted.is_some_and(|noted| namespace > noted) {
                break;
            }
            let Some(found) = self.find(namespace, key)? else { continue };
            newest = namespace;
            if found.start > to {
                if many && noted.is_none() { continue } else { break }
            }
            if found.end >= from && !is_over(found.end) {
                touched.push(found);
            }
        }
        if many && noted.is_none() {
            if self.newest.len() >= NOTED_MAX {
                self.newest.clear();
            }
            self.newest.insert(key.into(), newest);
        }
        Ok(touched)
    }

    /// Takes an open session out.
    fn take(&mut self, key: &[u8], found: Found<C>) -> Result<Option<Session<C>>, StateError> {
        let namespace = found.namespace;
        let session = match found.read {
            Some(session) => {
                self.state.remove(namespace, key);
                Some(session)
            }
            None => match self.state.take(namespace, key)? {
                Some(Entry::Session(session)) => Some(session),
                _ => None,
            },
        };
        self.closed(namespace);
        Ok(session)
    }

    /// Takes a session that is over out.
    fn finish(&mut self, key: &[u8], found: Found<C>) -> Result<Option<Session<C>>, StateError> {
        if self.may_delete() {
            return self.take(key, found);
        }
        let namespace = found.namespace;
        let session = match found.read {
            Some(session) => Some(session),
            None => match self.state.get(namespace, key)?.map(Cow::into_owned) {
                Some(Entry::Session(session)) => Some(session),
                _ => None,
            },
        };
        self.closed(namespace);
        Ok(session)
    }

    fn closed(&mut self, namespace: i64) {
        let left = self.open.entry(namespace).or_default();
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.open.remove(&namespace);
            self.state.remove_namespace(namespace);
        }
    }

    /// Puts an open session where it belongs.
    fn put(&mut self, key: Key, session: Session<C>, over: EventTime) {
        let namespace = self.namespace(session.end);
        *self.open.entry(namespace).or_default() += 1;
        self.timers.insert(Timer { over, end: session.end, key: key.clone() }, &mut self.state);
        if let Some(newest) = self.newest.get_mut(&*key) {
            *newest = namespace.max(*newest);
        }
        self.state.put(namespace, &key, Entry::Session(session));
    }

    /// The first session by the watermark at which it is over, if that is not beyond `until`. Its timer is taken.
    fn next_over(&mut self, until: EventTime, assigner: &Assigner) -> Result<Option<(Timer, Found<C>)>, StateError> {
        while let Some(timer) = self.timers.first(&self.state)?.filter(|timer| timer.over <= until).cloned() {
            self.timers.take_first();
            let Some(found) = self.find(self.namespace(timer.end), &timer.key)? else { continue };
            if found.end == timer.end {
                return Ok(Some((timer, found)));
            }
            let at_end = Timer { over: assigner.over_at(found.end), end: found.end, key: timer.key.clone() };
            if found.end > timer.end && at_end > timer {
                self.timers.insert(at_end, &mut self.state);
            }
        }
        Ok(None)
    }
}
