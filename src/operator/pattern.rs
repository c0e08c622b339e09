//! A pattern's automaton, and the matches of one key: which rows are a match, and which match comes first.
//!
//! It follows Flink's CEP library (`NFACompiler`, `NFA`, `AfterMatchSkipStrategy`) to the letter, also where that is not
//! what one would expect of a regular expression:
//!
//! - Every row goes on with each of the runs or ends it: nothing is skipped between the rows of a match.
//! - Behind a greedy variable a row can only leave for what follows if it is no row of that variable; there is no
//!   stepping back. So in `A B+ C` a row that is B and C is taken as B.
//! - A run is dropped when a row, or the watermark, is `within` or more past its first row.
//! - A match leaves when no run with an earlier first row is left that could still become one. Then the rows that
//!   AFTER MATCH SKIP leaves out can start no other.
//! - Of several runs with the same first row, the one at the root of the queue comes first; so the queue is Java's
//!   binary heap, comparison by comparison.
//!
//! Since nothing is skipped, the rows of a run follow each other: its first row and the number of rows of each variable
//! say all. Rows are numbered per key; this module does not see them.

use serde::{Deserialize, Serialize};

use crate::event::EventTime;
use crate::sql::match_plan::{Skip, Variable};

/// Index of the state in which a match is complete.
const FINAL: usize = 0;

/// A row's number within its key, and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RowId {
    pub number: u64,
    pub time: EventTime,
}

/// A way through the automaton so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    state: usize,
    /// `None`: nothing is taken yet.
    start: Option<RowId>,
    /// Variables with their numbers of rows, in order of the pattern.
    taken: Vec<(usize, u64)>,
}

impl Run {
    /// The first row.
    pub fn start(&self) -> Option<RowId> {
        self.start
    }

    /// The numbers of the rows of a variable; of all with `None`.
    pub fn rows(&self, variable: Option<usize>) -> std::ops::Range<u64> {
        let mut from = self.start.map_or(0, |start| start.number);
        let all = from..from + self.taken.iter().map(|(_, rows)| rows).sum::<u64>();
        let Some(wanted) = variable else { return all };
        for (variable, rows) in &self.taken {
            if *variable == wanted {
                return from..from + rows;
            }
            from += rows;
        }
        all.end..all.end
    }

    fn with(&self, row: RowId, variable: usize, state: usize) -> Run {
        let mut taken = self.taken.clone();
        match taken.last_mut() {
            Some((last, rows)) if *last == variable => *rows += 1,
            _ => taken.push((variable, 1)),
        }
        Run { state, start: Some(self.start.unwrap_or(row)), taken }
    }

    fn order(&self) -> u64 {
        self.start.map_or(u64::MAX, |start| start.number)
    }
}

/// Java's `PriorityQueue` of runs by their first row, with its order of equal ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Queue(Vec<Run>);

impl Queue {
    fn peek(&self) -> Option<&Run> {
        self.0.first()
    }

    fn add(&mut self, run: Run) {
        self.0.push(run);
        let mut at = self.0.len() - 1;
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.order(at) >= self.order(parent) {
                break;
            }
            self.0.swap(at, parent);
            at = parent;
        }
    }

    fn poll(&mut self) -> Option<Run> {
        if self.0.is_empty() {
            return None;
        }
        let first = self.0.swap_remove(0);
        self.sift_down(0);
        Some(first)
    }

    fn retain(&mut self, keep: impl Fn(&Run) -> bool) {
        let before = self.0.len();
        self.0.retain(keep);
        if self.0.len() < before {
            (0..self.0.len() / 2).rev().for_each(|at| self.sift_down(at));
        }
    }

    fn sift_down(&mut self, mut at: usize) {
        while at < self.0.len() / 2 {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let child = if right < self.0.len() && self.order(left) > self.order(right) { right } else { left };
            if self.order(at) <= self.order(child) {
                break;
            }
            self.0.swap(at, child);
            at = child;
        }
    }

    fn order(&self, at: usize) -> u64 {
        self.0.get(at).map_or(u64::MAX, Run::order)
    }
}

/// The runs of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runs {
    partial: Queue,
    /// Complete, but a run with an earlier first row is still open.
    complete: Queue,
}

impl Runs {
    /// The first rows of all runs that have begun.
    pub fn starts(&self) -> impl Iterator<Item = RowId> {
        self.partial.0.iter().chain(&self.complete.0).filter_map(Run::start)
    }

    /// The first rows of the runs that could still become a match.
    pub fn open(&self) -> impl Iterator<Item = RowId> {
        self.partial.0.iter().filter_map(Run::start)
    }

    /// Whether nothing has begun.
    pub fn is_empty(&self) -> bool {
        self.starts().next().is_none()
    }
}

/// A match, or why AFTER MATCH SKIP cannot go on from it.
pub struct Match {
    pub run: Run,
    pub refused: Option<&'static str>,
}

#[derive(Clone, Debug, Default)]
struct State {
    variable: usize,
    edges: Vec<Edge>,
}

#[derive(Clone, Debug)]
struct Edge {
    target: usize,
    /// The row is taken as one of the state's variable; else the edge is followed without.
    takes: bool,
    /// Greedy variables of which the row must be none.
    unless: Vec<usize>,
}

/// The automaton of a pattern.
#[derive(Clone, Debug)]
pub struct Automaton {
    states: Vec<State>,
    start: usize,
    skip: Skip,
    within_ms: i64,
}

impl Automaton {
    /// Builds the automaton from the last variable to the first.
    pub fn new(pattern: &[Variable], skip: Skip, within_ms: i64) -> Automaton {
        let mut this = Automaton { states: vec![State::default()], start: FINAL, skip, within_ms };
        for (variable, quantified) in pattern.iter().enumerate().rev() {
            this.start = this.quantified(variable, quantified, this.start);
        }
        this
    }

    fn quantified(&mut self, variable: usize, quantified: &Variable, sink: usize) -> usize {
        let Variable { least, most, greedy, .. } = quantified;
        let (optional, least) = (*least == 0, (*least).max(1));
        let mut next = sink;
        match most {
            None => {
                next = self.add(variable);
                self.edge(next, sink, false);
                if *greedy {
                    self.guard(sink, variable);
                }
                self.edge(next, next, true);
            }
            Some(most) => {
                if *greedy && least != *most {
                    self.guard(sink, variable);
                }
                for _ in least..*most {
                    next = self.single(variable, next, Some(sink));
                }
            }
        }
        for _ in 1..least {
            next = self.single(variable, next, None);
        }
        self.single(variable, next, optional.then_some(sink))
    }

    fn single(&mut self, variable: usize, next: usize, past: Option<usize>) -> usize {
        let state = self.add(variable);
        self.edge(state, next, true);
        if let Some(past) = past {
            self.edge(state, past, false);
        }
        state
    }

    fn add(&mut self, variable: usize) -> usize {
        self.states.push(State { variable, edges: Vec::new() });
        self.states.len() - 1
    }

    fn edge(&mut self, from: usize, target: usize, takes: bool) {
        if let Some(state) = self.states.get_mut(from) {
            state.edges.push(Edge { target, takes, unless: Vec::new() });
        }
    }

    fn guard(&mut self, state: usize, greedy: usize) {
        let edges = self.states.get_mut(state).into_iter().flat_map(|state| &mut state.edges);
        edges.for_each(|edge| edge.unless.push(greedy));
    }

    /// Before the first row of a key.
    pub fn runs(&self) -> Runs {
        let start = Run { state: self.start, start: None, taken: Vec::new() };
        Runs { partial: Queue(vec![start]), complete: Queue::default() }
    }

    /// Takes the key's next row. `holds(variable, run)` says whether it is one of the variable's after that run.
    ///
    /// # Errors
    /// Those of `holds`.
    pub fn take<E>(
        &self,
        runs: &mut Runs,
        row: RowId,
        mut holds: impl FnMut(usize, &Run) -> Result<bool, E>,
    ) -> Result<Vec<Match>, E> {
        let (mut partial, mut complete) = (Queue::default(), Queue::default());
        for run in std::mem::take(&mut runs.partial.0) {
            let mut known: Vec<(usize, bool)> = Vec::new();
            let mut holds = |variable: usize| match known.iter().find(|(known, _)| *known == variable) {
                Some((_, held)) => Ok(*held),
                None => {
                    let held = holds(variable, &run)?;
                    known.push((variable, held));
                    Ok(held)
                }
            };
            let mut taken = Vec::new();
            let mut reached = vec![run.state];
            while let Some((from, state)) = reached.pop().and_then(|from| Some((from, self.states.get(from)?))) {
                for edge in &state.edges {
                    if !self.follows(edge, from, &mut holds)? {
                        continue;
                    }
                    match edge.takes {
                        true => taken.push((state.variable, edge.target)),
                        false => reached.push(edge.target),
                    }
                }
            }
            for (variable, target) in taken {
                let next = run.with(row, variable, target);
                let ends = target != FINAL && self.can_end(target, &mut holds)?;
                if ends {
                    complete.add(Run { state: FINAL, ..next.clone() });
                }
                if target == FINAL { complete.add(next) } else { partial.add(next) }
            }
            if run.start.is_none() {
                partial.add(run);
            }
        }
        runs.partial = partial;
        complete.0.into_iter().for_each(|run| runs.complete.add(run));
        Ok(self.leave(runs))
    }

    fn follows<E>(
        &self,
        edge: &Edge,
        from: usize,
        holds: &mut impl FnMut(usize) -> Result<bool, E>,
    ) -> Result<bool, E> {
        if edge.takes {
            let variable = self.states.get(from).map_or(0, |state| state.variable);
            if !holds(variable)? {
                return Ok(false);
            }
        }
        for greedy in &edge.unless {
            if holds(*greedy)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the match can be complete in this state without another row.
    fn can_end<E>(&self, state: usize, holds: &mut impl FnMut(usize) -> Result<bool, E>) -> Result<bool, E> {
        let mut reached = vec![state];
        while let Some((from, state)) = reached.pop().and_then(|from| Some((from, self.states.get(from)?))) {
            for edge in state.edges.iter().filter(|edge| !edge.takes) {
                if !self.follows(edge, from, holds)? {
                    continue;
                }
                if edge.target == FINAL {
                    return Ok(true);
                }
                reached.push(edge.target);
            }
        }
        Ok(false)
    }

    /// No more rows before `time` come: runs that began too long before it are dropped.
    pub fn advance(&self, runs: &mut Runs, time: EventTime) -> Vec<Match> {
        let in_time = |run: &Run| run.start.is_none_or(|start| time.saturating_sub(start.time) < self.within_ms);
        if !runs.partial.0.iter().all(in_time) {
            let mut partial = Queue::default();
            runs.partial.0.drain(..).filter(in_time).for_each(|run| partial.add(run));
            runs.partial = partial;
        }
        self.leave(runs)
    }

    /// The matches that no earlier run holds back.
    fn leave(&self, runs: &mut Runs) -> Vec<Match> {
        let mut matches = Vec::new();
        while let Some(first) = runs.complete.peek() {
            if runs.partial.peek().is_some_and(|partial| partial.order() < first.order()) {
                break;
            }
            let Some(run) = runs.complete.poll() else { break };
            let begin = run.order();
            let (until, refused) = match self.next_start(&run) {
                Ok(until) => (until, None),
                Err(refused) => (begin + 1, Some(refused)),
            };
            let stays = |run: &Run| run.start.is_none_or(|start| start.number >= until);
            runs.partial.retain(stays);
            runs.complete.retain(stays);
            matches.push(Match { run, refused });
        }
        matches
    }

    /// Number of the first row at which another match may start.
    fn next_start(&self, run: &Run) -> Result<u64, &'static str> {
        let all = run.rows(None);
        let rows = match self.skip {
            Skip::PastLastRow => return Ok(all.end),
            Skip::ToNextRow => return Ok(all.start + 1),
            Skip::ToFirst(variable) | Skip::ToLast(variable) => run.rows(Some(variable)),
        };
        if rows.is_empty() {
            return Err("AFTER MATCH SKIP: the match has no row of that variable");
        }
        let target = if matches!(self.skip, Skip::ToFirst(_)) { rows.start } else { rows.end - 1 };
        if target == all.start {
            return Err("AFTER MATCH SKIP: the row to go on from is the first of the match, which would match again");
        }
        Ok(target)
    }
}
