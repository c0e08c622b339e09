//! What the aggregating operators share: the keys and arguments of a chunk's rows, and the accumulators of a group.

use arrow_array::ArrayRef;
use arrow_buffer::BooleanBuffer;
use arrow_row::{RowConverter, Rows, SortField};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::accumulator::{Accumulator, Argument, finish};
use super::{Chunk, Named, OperatorError, Position, Sides};
use crate::expr::aggregate::AggregateKind;
use crate::expr::build::Expr;
use crate::expr::row::RowKeys;
use crate::expr::{AggregateCall, Batch, EvalContext, RowErrors, eval::eval, eval::eval_predicate};

/// The accumulators of one group, in the order of the aggregates: two without an allocation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Group(pub SmallVec<[Accumulator; 2]>);

impl Group {
    /// Folds in the rows of another group, which is of the same aggregates and later in time.
    pub fn merge(&mut self, later: Group) {
        for (accumulator, later) in self.0.iter_mut().zip(later.0) {
            accumulator.merge(later);
        }
    }

    /// As [`Group::merge`], but what is listed of the other one comes behind all that is listed here.
    pub fn append(&mut self, other: Group) {
        for (accumulator, other) in self.0.iter_mut().zip(other.0) {
            accumulator.append(other);
        }
    }
}

/// Keys and aggregates over an operator's input.
pub struct Aggregation {
    pub named: Named,
    keys: Vec<Expr>,
    row_keys: RowKeys,
    calls: Vec<AggregateCall>,
    empty: Group,
}

/// The keys, arguments and filters of a chunk's rows, evaluated.
pub struct Evaluated {
    /// The chunk without the rows on which an expression failed.
    pub input: Chunk,
    arguments: Vec<Option<ArrayRef>>,
    /// Comparable bytes of arguments whose identity counts and that have no shorter one.
    opaque: Vec<Option<Rows>>,
    filters: Vec<Option<BooleanBuffer>>,
}

/// The arguments of a chunk's rows, ready to be folded in.
pub struct Arguments<'a> {
    arguments: Vec<Argument<'a>>,
    filters: &'a [Option<BooleanBuffer>],
    positions: &'a [Position],
}

impl Aggregation {
    /// Groups by `keys`, with these aggregates.
    ///
    /// # Errors
    /// A key's type has no order (the planner refuses such keys).
    pub fn new(named: Named, keys: Vec<Expr>, calls: Vec<AggregateCall>) -> Result<Aggregation, OperatorError> {
        let types: Vec<_> = keys.iter().map(|key| key.data_type.clone()).collect();
        Ok(Aggregation {
            named,
            row_keys: RowKeys::new(&types)?,
            empty: Group(calls.iter().map(Accumulator::new).collect()),
            keys,
            calls,
        })
    }

    /// Evaluates keys and arguments. The keys stay readable by [`Aggregation::key`] until the next call.
    ///
    /// # Errors
    /// A key cannot be encoded.
    pub fn evaluate(
        &mut self,
        input: &Chunk,
        context: &EvalContext,
        sides: &mut Sides,
    ) -> Result<Evaluated, OperatorError> {
        let columns = |chunk: &Chunk, errors: &mut RowErrors| {
            let batch = Batch { columns: &chunk.columns, rows: chunk.rows() };
            let keys: Vec<ArrayRef> = self.keys.iter().map(|key| eval(key, &batch, context, errors)).collect();
            let mut arguments = Vec::with_capacity(self.calls.len());
            let mut filters = Vec::with_capacity(self.calls.len());
            for call in &self.calls {
                arguments.push(call.argument.as_ref().map(|expr| eval(expr, &batch, context, errors)));
                filters.push(call.filter.as_ref().map(|expr| eval_predicate(expr, &batch, context, errors)));
            }
            (keys, arguments, filters)
        };
        let (input, (keys, arguments, filters)) = input.evaluated(&self.named, sides, columns);
        self.row_keys.encode(&keys, input.rows())?;
        let opaque = self.calls.iter().zip(&arguments).map(|(call, column)| opaque_rows(call, column)).collect();
        Ok(Evaluated { input, arguments, opaque, filters })
    }

    /// The grouping keys of a row of the chunk that was evaluated last.
    pub fn key(&self, row: usize) -> &[u8] {
        self.row_keys.row(row)
    }

    /// The accumulators of a group without rows.
    pub fn empty(&self) -> &Group {
        &self.empty
    }

    /// The stored value of a group, if it is one of these aggregates.
    pub fn decode_group(&self, value: &[u8]) -> Option<Group> {
        postcard::from_bytes(value).ok().filter(|group: &Group| group.0.len() == self.empty.0.len())
    }

    /// The columns of grouping keys.
    ///
    /// # Errors
    /// The bytes are not keys.
    pub fn key_columns<'k>(&self, keys: impl IntoIterator<Item = &'k [u8]>) -> Result<Vec<ArrayRef>, OperatorError> {
        Ok(self.row_keys.decode(keys)?)
    }

    /// The columns of the aggregates' results.
    pub fn results(&self, groups: &[Group]) -> impl Iterator<Item = ArrayRef> {
        self.calls.iter().enumerate().map(|(i, call)| finish(call, groups.iter().map(|group| group.0.get(i))))
    }

    /// The arguments of the rows that were evaluated.
    pub fn arguments<'e>(&self, evaluated: &'e Evaluated) -> Arguments<'e> {
        let columns = self.calls.iter().zip(&evaluated.arguments).zip(&evaluated.opaque);
        let arguments =
            columns.map(|((call, column), rows)| match (Argument::new(column.as_ref(), call.argument_type()), rows) {
                (Argument::Opaque(column, _), Some(rows)) => Argument::Opaque(column, Some(rows)),
                (argument, _) => argument,
            });
        Arguments { arguments: arguments.collect(), filters: &evaluated.filters, positions: &evaluated.input.positions }
    }
}

impl Arguments<'_> {
    /// Folds a row into a group.
    #[inline]
    pub fn fold(&self, row: usize, group: &mut Group) {
        let position = self.positions.get(row).copied().unwrap_or_default();
        for ((accumulator, argument), filter) in group.0.iter_mut().zip(&self.arguments).zip(self.filters) {
            if !argument.is_null(row) && filter.as_ref().is_none_or(|truth| truth.value(row)) {
                accumulator.update(argument, row, position);
            }
        }
    }
}

/// Comparable bytes of an argument whose identity counts.
pub(super) fn opaque_rows(call: &AggregateCall, column: &Option<ArrayRef>) -> Option<Rows> {
    let identity = call.distinct || call.kind == AggregateKind::ApproxCountDistinct;
    let column = column.as_ref().filter(|_| identity)?;
    let field = SortField::new(column.data_type().clone());
    RowConverter::new(vec![field]).ok()?.convert_columns(std::slice::from_ref(column)).ok()
}
