//! `state_ttl`: what an operator knows of a key is dropped when the key has not been used for so long of log time.
//!
//! Only operators that are bounded by nothing but the number of their keys ask for it; rows that wait for the watermark are
//! never dropped. Log time comes with the records (ticks too), so which rows find a key gone follows from the log alone: the
//! engine tells each new log time before the rows that came at it, and a batch has one log time.
//!
//! State, beside the operator's own: namespace [`USED`]: when each key was last used. Namespace [`EXPIRIES`] + a log time in
//! ms: keys to be looked at then. A key has one such entry: one that was used since moves to its new time, so a busy key
//! costs a write for each log time at which it is used, and a move per `state_ttl`.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::event::LogTime;
use crate::state::{Key, KeyedState, StateError};

/// The least namespace that an operator with a [`Retention`] may give to an event time.
pub const EVENTS_FROM: i64 = i64::MIN / 2;

const USED: i64 = i64::MIN + 1;
const EXPIRIES: i64 = i64::MIN + 2;

/// An entry of a state that can also be a log time.
pub trait Stamp: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// A log time in milliseconds as an entry.
    fn stamp(at_ms: i64) -> Self;

    /// The log time that the entry is, if it is one.
    fn stamped(&self) -> Option<i64>;
}

/// How long keys are kept, and the log time.
#[derive(Default)]
pub struct Retention {
    /// `None`: for ever.
    ttl_ms: Option<i64>,
    now_ms: i64,
}

impl Retention {
    /// Keys that are not used for `ttl` are dropped.
    pub fn new(ttl: Option<Duration>) -> Retention {
        let ttl_ms = ttl.map(|ttl| i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX));
        Retention { ttl_ms, now_ms: 0 }
    }

    /// Notes that a key is used now.
    ///
    /// # Errors
    /// State could not be read.
    pub fn used<V: Stamp>(&self, state: &mut KeyedState<V>, key: &[u8]) -> Result<(), StateError> {
        let Some(ttl_ms) = self.ttl_ms else { return Ok(()) };
        let now = || V::stamp(self.now_ms);
        match state.get(USED, key)?.and_then(|used| used.stamped()) {
            Some(used_ms) if used_ms == self.now_ms => return Ok(()),
            Some(_) => {}
            None => {
                state.entry(expiry(self.now_ms.saturating_add(ttl_ms)), key, now)?;
            }
        }
        *state.entry(USED, key, now)? = now();
        Ok(())
    }

    /// Log time has come this far: gives the keys that were not used for long enough, in order.
    ///
    /// # Errors
    /// State could not be read.
    pub fn expired<V: Stamp>(&mut self, state: &mut KeyedState<V>, now: LogTime) -> Result<Vec<Key>, StateError> {
        self.now_ms = self.now_ms.max(now.millis());
        let mut expired = Vec::new();
        let Some(ttl_ms) = self.ttl_ms else { return Ok(expired) };
        while let Some(namespace) = state.namespaces().range(EXPIRIES..=expiry(self.now_ms)).next().copied() {
            let keys: Vec<Key> =
                state.take_namespace(namespace).map(|entry| Ok(entry?.0)).collect::<Result<_, StateError>>()?;
            for key in keys {
                let used_ms = state.get(USED, &key)?.and_then(|used| used.stamped()).unwrap_or(i64::MIN);
                let due_ms = used_ms.saturating_add(ttl_ms);
                if due_ms > self.now_ms {
                    state.entry(expiry(due_ms), &key, || V::stamp(used_ms))?;
                } else {
                    state.remove(USED, &key);
                    expired.push(key);
                }
            }
        }
        Ok(expired)
    }
}

/// The namespace of keys that are looked at at a log time.
fn expiry(at_ms: i64) -> i64 {
    EXPIRIES.saturating_add(at_ms.max(0)).min(EVENTS_FROM - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Stamp for i64 {
        fn stamp(at_ms: i64) -> i64 {
            at_ms
        }

        fn stamped(&self) -> Option<i64> {
            Some(*self)
        }
    }

    #[test]
    fn a_key_expires_when_it_was_not_used_for_the_ttl() {
        let mut state = KeyedState::<i64>::empty(1);
        let mut retention = Retention::new(Some(Duration::from_millis(100)));
        let mut at = |ms: i64, used: &[&[u8]]| -> Vec<Vec<u8>> {
            let expired = retention.expired(&mut state, LogTime(ms * 1000)).expect("reads");
            used.iter().for_each(|key| retention.used(&mut state, key).expect("reads"));
            expired.iter().map(|key| key.to_vec()).collect()
        };
        assert!(at(1000, &[b"b", b"a"]).is_empty());
        assert!(at(1050, &[b"a"]).is_empty());
        assert!(at(1099, &[]).is_empty());
        assert_eq!(at(1100, &[]), [b"b"]);
        assert!(at(1149, &[b"b"]).is_empty());
        assert_eq!(at(9000, &[]), [b"a", b"b"]);
        assert!(at(99_000, &[]).is_empty());
        assert!(state.namespaces().iter().all(|namespace| *namespace == USED), "{:?}", state.namespaces());
    }

    #[test]
    fn without_a_ttl_nothing_is_written() {
        let mut state = KeyedState::<i64>::empty(1);
        let mut retention = Retention::default();
        retention.used(&mut state, b"a").expect("reads");
        assert!(retention.expired(&mut state, LogTime(i64::MAX)).expect("reads").is_empty());
        assert!(state.namespaces().is_empty());
    }
}
