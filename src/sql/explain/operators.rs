//! How OVER, ranks and joins are shown, what bounds their state, and what it means.

use std::fmt::{self, Write as _};

use super::{Call, Duration, Window};
use crate::expr::build::Expr;
use crate::expr::{Field, Schema};
use crate::sql::plan::{
    Frame, JoinKind, JoinMethod, JoinSpec, LookupSpec, Node, OverCall, OverFunction, OverSpec, Plan, RankKind,
    RankOrder, RankSpec,
};

/// What this module knows of a step, as lines of the plan.
pub(super) fn write(plan: &Plan, out: &mut String) -> fmt::Result {
    match &plan.node {
        Node::Over { input, over } => {
            writeln!(out, "Over")?;
            writeln!(out, "    PARTITION BY {}", list(&over.keys, &input.schema))?;
            let time = input.schema.fields.get(over.time_column).map_or("?", |field| &field.name);
            writeln!(out, "    ORDER BY {time} {}", FrameText(over.frame))?;
            for (field, call) in plan.schema.fields.iter().skip(input.schema.fields.len()).zip(&over.calls) {
                writeln!(out, "    `{}` {} = {}", field.name, field.data_type, OverText(call, &input.schema))?;
            }
            Ok(())
        }
        Node::Rank { input, rank } => {
            writeln!(out, "Rank")?;
            writeln!(out, "    {}", RankText(rank, &input.schema))
        }
        Node::Lookup { input, lookup } => {
            writeln!(out, "Lookup")?;
            writeln!(out, "    {}", LookupText(lookup, &input.schema))
        }
        Node::Join { left, right, join } => {
            writeln!(out, "Join")?;
            writeln!(out, "    {}", JoinText(join, &left.schema, &right.schema))
        }
        _ => Ok(()),
    }
}

/// A join of relations with these schemas.
struct JoinText<'a>(&'a JoinSpec, &'a Schema, &'a Schema);

impl fmt::Display for JoinText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let JoinSpec { method, kind, keys, condition } = self.0;
        let kind = format!("{kind:?}").to_uppercase();
        let name = |schema: &Schema, column: usize| {
            schema.fields.get(column).map_or_else(|| "?".to_owned(), |field| field.name.clone())
        };
        match method {
            JoinMethod::Interval { left_time, right_time, lower_ms, upper_ms } => write!(
                f,
                "{kind} within an interval: {} - {} from {} to {}",
                name(self.1, *left_time),
                name(self.2, *right_time),
                Duration(*lower_ms),
                Duration(*upper_ms)
            )?,
            JoinMethod::Temporal { left_time, .. } => {
                write!(f, "{kind} with the version at {}", name(self.1, *left_time))?;
            }
            JoinMethod::Window { window, .. } => write!(f, "{kind} in windows of {}", Window(window, self.1))?,
        }
        for (left, right) in keys {
            write!(f, "; {} = {}", left.display(self.1), right.display(self.2))?;
        }
        if let Some(condition) = condition {
            let fields = self.1.fields.iter().chain(&self.2.fields).cloned().collect();
            write!(f, "; {}", condition.display(&Schema::new(fields)))?;
        }
        Ok(())
    }
}

/// What the state of a join means.
pub(super) fn join_fingerprint(join: &JoinSpec, left: &Plan, right: &Plan) -> String {
    format!(
        "join {}; left: {}; right: {}",
        JoinText(join, &left.schema, &right.schema),
        types(&left.schema.fields),
        types(&right.schema.fields)
    )
}

/// What bounds the state of a join.
pub(super) fn join_bound(join: &JoinSpec) -> String {
    match join.method {
        JoinMethod::Interval { lower_ms, upper_ms, .. } => format!(
            "bounded by time: left rows until the watermark is {} past them, right rows {}",
            Duration(lower_ms.saturating_neg().max(0)),
            Duration(upper_ms.max(0))
        ),
        JoinMethod::Temporal { .. } => {
            "bounded by the number of keys: the valid version of each; and the rows that the watermark has not passed"
                .to_owned()
        }
        JoinMethod::Window { .. } => "bounded by open windows: the rows that the watermark has not passed".to_owned(),
    }
}

/// A rank on a relation with this schema.
struct RankText<'a>(&'a RankSpec, &'a Schema);

impl fmt::Display for RankText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RankSpec { kind, keys, order, limit, place: _ } = self.0;
        match kind {
            RankKind::Window { window, .. } => write!(f, "in {}", Window(window, self.1))?,
            RankKind::First => f.write_str("the first of each key")?,
            RankKind::Last => f.write_str("the last of each key")?,
        }
        write!(f, ": PARTITION BY {} ORDER BY", list(keys, self.1))?;
        for RankOrder { expr, descending, nulls_first } in order {
            let direction = if *descending { "DESC" } else { "ASC" };
            let nulls = if *nulls_first { "FIRST" } else { "LAST" };
            write!(f, " {} {direction} NULLS {nulls},", expr.display(self.1))?;
        }
        write!(f, " at most {}", limit.unwrap_or(0))
    }
}

/// What the state of a rank means.
pub(super) fn rank_fingerprint(rank: &RankSpec, schema: &Schema) -> String {
    format!("rank {}; rows: {}", RankText(rank, schema), types(&schema.fields))
}

/// What bounds the state of a rank.
pub(super) fn rank_bound(rank: &RankSpec) -> String {
    match &rank.kind {
        RankKind::Window { .. } => format!(
            "bounded by open windows: {} rows for each key of those that the watermark has not passed",
            rank.limit.unwrap_or(0)
        ),
        RankKind::First => {
            "bounded by the number of keys: one entry for each; and a row where the watermark has not passed it"
                .to_owned()
        }
        RankKind::Last => "bounded by the number of keys: the time of the last row of each".to_owned(),
    }
}

pub(super) fn list(exprs: &[Expr], schema: &Schema) -> String {
    match exprs {
        [] => "nothing: all rows are one key".to_owned(),
        exprs => exprs.iter().map(|expr| expr.display(schema).to_string()).collect::<Vec<_>>().join(", "),
    }
}

pub(super) fn types(fields: &[Field]) -> String {
    fields.iter().map(|field| format!("`{}` {}", field.name, field.data_type)).collect::<Vec<_>>().join(", ")
}

/// What the state of OVER means.
pub(super) fn over_fingerprint(over: &OverSpec, schema: &Schema) -> String {
    let calls: Vec<String> =
        over.calls.iter().map(|call| format!("{} {}", OverText(call, schema), call.data_type)).collect();
    format!(
        "over: keys: {}; time: {}; {}; calls: {}; rows: {}",
        list(&over.keys, schema),
        over.time_column,
        FrameText(over.frame),
        calls.join(", "),
        types(&schema.fields)
    )
}

/// What bounds the state of OVER.
pub(super) fn over_bound(over: &OverSpec) -> String {
    let waiting = "the rows that the watermark has not passed";
    match over.frame {
        Frame::Range { preceding_ms: Some(reach_ms) } => {
            format!("bounded by time: {waiting}, and those of the {} before", Duration(reach_ms))
        }
        Frame::Rows { preceding: Some(rows) } => {
            format!("bounded by the number of keys: {rows} rows for each; and {waiting}")
        }
        Frame::Range { preceding_ms: None } | Frame::Rows { preceding: None } => {
            format!("bounded by the number of keys: one entry for each; and {waiting}")
        }
    }
}

/// What a step keeps for each key for ever, where it does.
pub(super) fn kept_by_keys(node: &Node) -> Option<String> {
    match node {
        Node::Over { over, .. } if !over.frame.forgets() && !over.keys.is_empty() => Some(match over.frame {
            Frame::Rows { preceding: Some(rows) } => format!("OVER keeps {rows} rows of each key"),
            _ => "OVER keeps an entry of each key".to_owned(),
        }),
        Node::Rank { rank: RankSpec { kind: RankKind::First | RankKind::Last, .. }, .. } => {
            Some("the deduplication keeps an entry of each key".to_owned())
        }
        Node::Join { join: JoinSpec { method: JoinMethod::Temporal { .. }, .. }, .. } => {
            Some("the temporal join keeps the valid version of each key".to_owned())
        }
        _ => None,
    }
}

/// A frame as in SQL.
struct FrameText(Frame);

impl fmt::Display for FrameText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Frame::Range { preceding_ms: None } => f.write_str("RANGE UNBOUNDED PRECEDING"),
            Frame::Range { preceding_ms: Some(ms) } => write!(f, "RANGE {} PRECEDING", Duration(ms)),
            Frame::Rows { preceding: None } => f.write_str("ROWS UNBOUNDED PRECEDING"),
            Frame::Rows { preceding: Some(rows) } => write!(f, "ROWS {rows} PRECEDING"),
        }
    }
}

/// A call of OVER on a relation with this schema.
pub(super) struct OverText<'a>(pub &'a OverCall, pub &'a Schema);

impl fmt::Display for OverText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OverCall { function, args, data_type: _ } = self.0;
        let name = match function {
            OverFunction::Aggregate(call) => return write!(f, "{}", Call(call, self.1)),
            OverFunction::Lag { offset } => {
                let value = args.first().map(|value| value.display(self.1).to_string()).unwrap_or_default();
                let default = args.get(1).map(|value| value.display(self.1).to_string()).unwrap_or_default();
                return write!(f, "LAG({value}, {offset}, {default})");
            }
            OverFunction::Rank { dense: false } => return f.write_str("RANK()"),
            OverFunction::Rank { dense: true } => return f.write_str("DENSE_RANK()"),
            OverFunction::Changed => "CHANGED",
            OverFunction::Deadband => "DEADBAND",
            OverFunction::Hysteresis => "HYSTERESIS",
            OverFunction::Ewma => "EWMA",
            OverFunction::Rate => "RATE",
        };
        write!(f, "{name}({})", list(args, self.1))
    }
}

/// What the state of a lookup join is: the table's rows by key. The rest of the join can change.
pub(super) fn lookup_fingerprint(lookup: &LookupSpec) -> String {
    let keys: Vec<Expr> = lookup.keys.iter().map(|(_, right)| right.clone()).collect();
    format!("lookup in {} by {}: {}", lookup.table, list(&keys, &lookup.columns), types(&lookup.columns.fields))
}

/// A lookup join of a relation with this schema.
struct LookupText<'a>(&'a LookupSpec, &'a Schema);

impl fmt::Display for LookupText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LookupSpec { table, columns, kind, keys, condition } = self.0;
        let kind = if *kind == JoinKind::Left { "LEFT" } else { "INNER" };
        write!(f, "{kind} in the table `{table}` ON ")?;
        for (index, (left, right)) in keys.iter().enumerate() {
            let and = if index > 0 { " AND " } else { "" };
            write!(f, "{and}{} = {}", left.display(self.1), right.display(columns))?;
        }
        if let Some(condition) = condition {
            let both = Schema::new([self.1.fields.clone(), columns.fields.clone()].concat());
            write!(f, " AND {}", condition.display(&both))?;
        }
        Ok(())
    }
}
