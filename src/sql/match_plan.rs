//! MATCH_RECOGNIZE as it is planned: a sequence of variables with quantifiers, what a row must be for each of them, and
//! what a match gives. How rows are matched is in `operator/pattern.rs`.

use super::plan::RankOrder;
use crate::expr::build::Expr;
use crate::expr::{AggregateCall, DataType};

/// A MATCH_RECOGNIZE over an input.
#[derive(Clone, Debug, PartialEq)]
pub struct MatchSpec {
    /// Index of the time attribute in the input: the first of ORDER BY.
    pub time_column: usize,
    /// `PARTITION BY`: columns of the input.
    pub keys: Vec<Expr>,
    /// The rest of ORDER BY: who comes first of rows of one time.
    pub ties: Vec<RankOrder>,
    pub pattern: Vec<Variable>,
    pub skip: Skip,
    /// From the first row of a match to the last; exclusive.
    pub within_ms: i64,
    /// What the outputs read of a match.
    pub slots: Vec<Slot>,
    /// The output's columns, over the slots.
    pub outputs: Vec<Expr>,
}

/// A variable of the pattern.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    pub name: String,
    /// Fewest rows.
    pub least: usize,
    /// Most rows; `None`: any number.
    pub most: Option<usize>,
    /// As many rows as it can take.
    pub greedy: bool,
    /// `None`: every row.
    pub condition: Option<Condition>,
}

/// What DEFINE says of a variable.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// Over the input's columns (those of the row that is looked at), then the slots.
    pub expr: Expr,
    /// What it reads of the match so far. The row that is looked at counts as one of the variable's.
    pub slots: Vec<Slot>,
}

/// What an expression reads of a match.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    pub kind: SlotKind,
    /// Whose rows; `None`: those of all variables.
    pub variable: Option<usize>,
    pub data_type: DataType,
}

/// The kinds of slots.
#[derive(Clone, Debug, PartialEq)]
pub enum SlotKind {
    /// A column of the row that is `offset` rows behind the first, or before the last; NULL where there is none.
    Row { column: usize, first: bool, offset: usize },
    /// An aggregate over the rows, its argument over the input's columns.
    Aggregate(Box<AggregateCall>),
    /// `MATCH_ROWTIME()`.
    Time,
}

/// `AFTER MATCH SKIP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    PastLastRow,
    ToNextRow,
    /// The number of the variable in the pattern.
    ToFirst(usize),
    ToLast(usize),
}

impl MatchSpec {
    /// Which of the outputs is the time of the match.
    pub fn output_time(&self) -> Option<usize> {
        let is_time = |expr: &Expr| {
            let [slot] = expr.columns()[..] else { return false };
            matches!(expr.kind, crate::expr::build::ExprKind::Column(_))
                && self.slots.get(slot).is_some_and(|slot| slot.kind == SlotKind::Time)
        };
        self.outputs.iter().position(is_time)
    }

    /// The columns of the input that are read, ascending.
    pub fn columns(&self, width: usize) -> Vec<usize> {
        let mut needed = vec![self.time_column];
        let conditions = self.pattern.iter().filter_map(|variable| variable.condition.as_ref());
        let exprs = self.keys.iter().chain(self.ties.iter().map(|tie| &tie.expr));
        needed.extend(exprs.chain(conditions.clone().map(|condition| &condition.expr)).flat_map(Expr::columns));
        needed.retain(|column| *column < width);
        for slot in self.slots.iter().chain(conditions.flat_map(|condition| &condition.slots)) {
            match &slot.kind {
                SlotKind::Row { column, .. } => needed.push(*column),
                SlotKind::Aggregate(call) => needed.extend(call.argument.iter().flat_map(Expr::columns)),
                SlotKind::Time => {}
            }
        }
        needed.sort_unstable();
        needed.dedup();
        needed
    }

    /// The same over an input of which only these columns are left.
    #[must_use]
    pub fn narrowed(mut self, kept: &[usize], width: usize) -> MatchSpec {
        let at = |column: usize| match column.checked_sub(width) {
            Some(slot) => kept.len() + slot,
            None => kept.binary_search(&column).unwrap_or(column),
        };
        let in_slot = |slot: Slot| Slot {
            kind: match slot.kind {
                SlotKind::Row { column, first, offset } => SlotKind::Row { column: at(column), first, offset },
                SlotKind::Aggregate(mut call) => {
                    call.argument = call.argument.map(|argument| argument.map_columns(&at));
                    SlotKind::Aggregate(call)
                }
                SlotKind::Time => SlotKind::Time,
            },
            ..slot
        };
        self.time_column = at(self.time_column);
        self.keys = self.keys.into_iter().map(|key| key.map_columns(&at)).collect();
        for tie in &mut self.ties {
            tie.expr = tie.expr.clone().map_columns(&at);
        }
        for variable in &mut self.pattern {
            variable.condition = variable.condition.take().map(|condition| Condition {
                expr: condition.expr.map_columns(&at),
                slots: condition.slots.into_iter().map(in_slot).collect(),
            });
        }
        self.slots = self.slots.into_iter().map(in_slot).collect();
        self
    }
}
