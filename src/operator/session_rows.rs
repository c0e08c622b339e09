//! The rows of open sessions, in order of arrival, in entries beside the sessions: [pages](Page) of a few KiB. A session
//! holds no rows itself but where they are, so neither a row that comes nor two sessions that become one move any.
//!
//! A run is what arrived in one session: numbered pages, of which only the last one grows. Sessions that become one put
//! their runs side by side, and the last one goes on; all of them are read by the numbers that rows got on arrival. So to
//! read a session takes the memory of one page for each of its runs: those that began apart from each other.
//!
//! State: namespace = [`ROWS`] + the time at which a run began, in gaps; key = the run's number (that of its first row) and
//! the page's. Where many sessions fire at once their pages stay until their namespace goes, which it does with the last
//! session that has a run in it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::rows::StoredRow;
use super::sessions::{Content, Entry, Sessions};
use crate::state::StateError;

/// Middle of the namespaces of rows: far from what any timestamp of a session can be, and from the timers.
const ROWS: i64 = i64::MAX / 4 * 3;
/// Namespaces from there to the last one on either side.
const REACH: i64 = 1 << 60;
/// A page that has reached so many bytes of rows is full: what it then takes is about one page of LMDB.
const PAGE_BYTES: u32 = if cfg!(test) { 64 } else { 3072 };

/// Rows with their numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Page(Vec<(u64, StoredRow)>);

/// Where the rows of a session are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rows(Vec<Run>);

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Run {
    namespace: i64,
    /// The number of its first row.
    first: u64,
    last_page: u32,
    /// Bytes of the rows in the last page.
    last_page_bytes: u32,
}

impl Run {
    fn key(&self, page: u32) -> [u8; 12] {
        let mut key = [0; 12];
        let (run, number) = key.split_at_mut(8);
        run.copy_from_slice(&self.first.to_be_bytes());
        number.copy_from_slice(&page.to_be_bytes());
        key
    }
}

impl Content for Rows {
    type Part = Page;

    fn merge(&mut self, later: Rows) {
        self.0.extend(later.0);
    }
}

/// The runs of all sessions.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Runs {
    /// Rows taken so far: the number of the next one.
    taken: u64,
    /// Runs in each namespace: the last one takes it away.
    open: BTreeMap<i64, u64>,
}

impl Runs {
    /// Finds the place for a row of so many bytes in the session that holds `rows`.
    pub fn place(&mut self, rows: &mut Rows, bytes: usize, time_in_gaps: i64) -> Place {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let number = self.taken;
        self.taken += 1;
        let run = match rows.0.last_mut() {
            Some(run) => {
                if run.last_page_bytes >= PAGE_BYTES {
                    (run.last_page, run.last_page_bytes) = (run.last_page + 1, 0);
                }
                run.last_page_bytes = run.last_page_bytes.saturating_add(bytes);
                *run
            }
            None => {
                let namespace = ROWS + time_in_gaps.clamp(-REACH, REACH);
                *self.open.entry(namespace).or_default() += 1;
                let run = Run { namespace, first: number, last_page: 0, last_page_bytes: bytes };
                rows.0.push(run);
                run
            }
        };
        Place { number, run }
    }

    fn closed(&mut self, namespace: i64, sessions: &mut Sessions<Rows>) {
        let left = self.open.entry(namespace).or_default();
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.open.remove(&namespace);
            sessions.state.remove_namespace(namespace);
        }
    }
}

/// Where a row is to be put.
pub struct Place {
    number: u64,
    run: Run,
}

impl Place {
    /// Puts the row there.
    ///
    /// # Errors
    /// State could not be read.
    pub fn put(&self, row: StoredRow, sessions: &mut Sessions<Rows>) -> Result<(), StateError> {
        let key = self.run.key(self.run.last_page);
        match sessions.state.entry(self.run.namespace, &key, || Entry::Part(Page::default()))? {
            Entry::Part(page) => page.0.push((self.number, row)),
            _ => return Err(sessions.corrupt("a page of a session's rows is another kind of entry")),
        }
        Ok(())
    }
}

/// Reads the rows of a session that has fired, and removes them.
pub struct Reader {
    /// By the number of the next row.
    next: BTreeMap<u64, Cursor>,
}

struct Cursor {
    run: Run,
    page: u32,
    /// The next row, and those behind it.
    row: StoredRow,
    rest: std::vec::IntoIter<(u64, StoredRow)>,
}

impl Reader {
    /// At the first row of `rows`.
    ///
    /// # Errors
    /// State could not be read.
    pub fn new(rows: Rows, sessions: &mut Sessions<Rows>) -> Result<Reader, StateError> {
        let mut next = BTreeMap::new();
        for run in rows.0 {
            let (number, cursor) = read_page(run, 0, sessions)?;
            next.insert(number, cursor);
        }
        Ok(Reader { next })
    }

    /// The next row in order of arrival.
    ///
    /// # Errors
    /// State could not be read.
    pub fn next(&mut self, runs: &mut Runs, sessions: &mut Sessions<Rows>) -> Result<Option<StoredRow>, StateError> {
        let Some((_, cursor)) = self.next.pop_first() else { return Ok(None) };
        let Cursor { run, page, row, mut rest } = cursor;
        if let Some((number, row)) = rest.next() {
            self.next.insert(number, Cursor { run, page, row, rest });
        } else if page < run.last_page {
            let (number, cursor) = read_page(run, page + 1, sessions)?;
            self.next.insert(number, cursor);
        } else {
            runs.closed(run.namespace, sessions);
        }
        Ok(Some(row))
    }
}

/// At the first row of a page, which is deleted if that may be.
fn read_page(run: Run, page: u32, sessions: &mut Sessions<Rows>) -> Result<(u64, Cursor), StateError> {
    let key = run.key(page);
    let entry = match sessions.may_delete() {
        true => sessions.state.take(run.namespace, &key)?,
        false => sessions.state.get(run.namespace, &key)?.map(Cow::into_owned),
    };
    let mut rest = match entry {
        Some(Entry::Part(page)) => page.0.into_iter(),
        _ => Vec::new().into_iter(),
    };
    match rest.next() {
        Some((number, row)) => Ok((number, Cursor { run, page, row, rest })),
        None => Err(sessions.corrupt("a page of a session's rows is missing")),
    }
}
