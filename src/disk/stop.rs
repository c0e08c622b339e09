//! Being asked to stop, for those who wait for the disk: a full disk is waited for, but not after SIGTERM.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Whether the process was asked to stop; clones share it. It is never taken back.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    /// Asks to stop and ends every [`Stop::pause`].
    pub fn request(&self) {
        let (requested, changed) = &*self.0;
        *requested.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }

    /// Whether it was asked to stop.
    pub fn is_requested(&self) -> bool {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps for so long, or until asked to stop. Gives whether it was asked.
    pub fn pause(&self, duration: Duration) -> bool {
        let (requested, changed) = &*self.0;
        let requested = requested.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(requested, duration, |requested| !*requested);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_request_ends_pauses_and_stays() {
        let stop = Stop::default();
        assert!(!stop.pause(Duration::from_millis(1)));
        let waiter = stop.clone();
        let began = Instant::now();
        let waiting = std::thread::spawn(move || waiter.pause(Duration::from_secs(60)));
        stop.request();
        assert!(waiting.join().unwrap_or(false));
        assert!(began.elapsed() < Duration::from_secs(30));
        assert!(stop.is_requested() && stop.pause(Duration::from_secs(60)));
    }
}
