//! The open sessions of an operator: where a row falls, which sessions it makes one, and which of them are over. A session
//! ends `gap` after its last row; a row that touches sessions on both sides makes them one. What a session holds is the
//! operator's own.
//!
//! State: namespace = the session's end rounded up to a multiple of the gap (two sessions of a key that do not touch end
//! more than a gap apart, so never in one namespace), key = the partition as comparable bytes, value = the session.
//! Bounded by the sessions that are open. Beside it an index of the open sessions is resident: their ends and keys. It
//! follows from the state.
//!
//! A row is late when the session that it would be part of, after merging, is over.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::window::Assigner;
use crate::event::EventTime;
use crate::state::{Checkpointed, Key, KeyedState, StateError};

/// What a session holds.
pub trait Content: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Takes what another session of the key holds, whose end is later.
    fn merge(&mut self, later: Self);
}

/// An open session, on the wall clock in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session<C> {
    pub start: i64,
    /// A gap after the last row.
    pub end: i64,
    pub content: C,
}

/// The open sessions.
pub struct Sessions<C> {
    pub assigner: Assigner,
    gap_ms: i64,
    by_key: BTreeSet<(Key, i64)>,
    /// By the watermark at which they are over, then the end.
    timers: BTreeSet<(EventTime, i64, Key)>,
    /// Sessions in each namespace: the last one takes it away.
    sizes: BTreeMap<i64, usize>,
    state: KeyedState<Session<C>>,
}

impl<C: Content> Sessions<C> {
    /// Sessions of this gap; `assigner` has their wall clock.
    pub fn new(assigner: Assigner, gap_ms: i64, state: KeyedState<Session<C>>) -> Sessions<C> {
        Sessions {
            assigner,
            gap_ms: gap_ms.max(1),
            by_key: BTreeSet::new(),
            timers: BTreeSet::new(),
            sizes: BTreeMap::new(),
            state,
        }
    }

    fn namespace(&self, end: i64) -> i64 {
        end.saturating_add((-end).rem_euclid(self.gap_ms))
    }

    fn open(&mut self, key: Key, end: i64) {
        *self.sizes.entry(self.namespace(end)).or_default() += 1;
        self.timers.insert((self.assigner.over_at(end), end, key.clone()));
        self.by_key.insert((key, end));
    }

    /// Takes an open session out.
    fn close(&mut self, key: &Key, end: i64) -> Result<Option<Session<C>>, StateError> {
        let namespace = self.namespace(end);
        self.by_key.remove(&(key.clone(), end));
        self.timers.remove(&(self.assigner.over_at(end), end, key.clone()));
        let session = self.state.get(namespace, key)?.map(Cow::into_owned);
        self.state.remove(namespace, key);
        let left = self.sizes.entry(namespace).or_default();
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.sizes.remove(&namespace);
            self.state.remove_namespace(namespace);
        }
        Ok(session)
    }

    /// Takes out the next session that is over at the watermark, in order of time, then key.
    ///
    /// # Errors
    /// State could not be read.
    pub fn due(&mut self, watermark: EventTime) -> Result<Option<(Key, Session<C>)>, StateError> {
        while let Some((over, end, key)) = self.timers.first().cloned() {
            if over > watermark {
                break;
            }
            if let Some(session) = self.close(&key, end)? {
                return Ok(Some((key, session)));
            }
        }
        Ok(None)
    }

    /// What the session holds that a row of this key and time is part of, `empty` where it is a new one; `None`: the row is
    /// late.
    ///
    /// # Errors
    /// State could not be read.
    pub fn take(
        &mut self,
        key: Key,
        time: EventTime,
        watermark: EventTime,
        empty: impl FnOnce() -> C,
    ) -> Result<Option<&mut C>, StateError> {
        let from = self.assigner.wall_of(time);
        let own = (from, from.saturating_add(self.gap_ms));
        let (mut window, mut touched) = (own, Vec::new());
        for (_, end) in self.by_key.range((key.clone(), own.0)..=(key.clone(), i64::MAX)) {
            let Some(session) = self.state.get(self.namespace(*end), &key)? else { continue };
            if session.start > own.1 {
                break;
            }
            window = (window.0.min(session.start), window.1.max(session.end));
            touched.push(*end);
        }
        let (start, end) = window;
        if self.assigner.over_at(end) <= watermark {
            return Ok(None);
        }
        let mut merged: Option<C> = None;
        if touched != [end] {
            for old in touched {
                match (&mut merged, self.close(&key, old)?) {
                    (Some(merged), Some(later)) => merged.merge(later.content),
                    (None, first) => merged = first.map(|session| session.content),
                    (Some(_), None) => {}
                }
            }
            self.open(key.clone(), end);
        }
        let namespace = self.namespace(end);
        let new = || Session { start, end, content: merged.unwrap_or_else(empty) };
        let session = self.state.entry(namespace, &key, new)?;
        session.start = start;
        Ok(Some(&mut session.content))
    }

    /// The keyed state.
    pub fn state(&mut self) -> &mut dyn Checkpointed {
        &mut self.state
    }

    /// The least watermark at which a session is over.
    pub fn next_timer(&self) -> Option<EventTime> {
        self.timers.first().map(|(over, _, _)| *over)
    }

    /// Finds the open sessions in the state.
    ///
    /// # Errors
    /// State could not be read.
    pub fn find_open(&mut self) -> Result<(), StateError> {
        (self.by_key, self.timers, self.sizes) = Default::default();
        let namespaces: Vec<i64> = self.state.namespaces().iter().copied().collect();
        for namespace in namespaces {
            let open: Vec<(Key, i64)> = self
                .state
                .entries(namespace)
                .map(|entry| entry.map(|(key, session)| (key, session.end)))
                .collect::<Result<_, _>>()?;
            for (key, end) in open {
                self.open(key, end);
            }
        }
        Ok(())
    }
}
