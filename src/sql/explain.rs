//! Plans as text: the tree that `explain` prints, and the fingerprints by which a changed query is noticed.

mod operators;
mod pattern;

use std::fmt::{self, Write as _};

use super::plan::{Node, Plan, WindowKind, WindowProperty, WindowSpec};
use crate::expr::aggregate::{AggregateKind, Parameter};
use crate::expr::build::{Expr, ExprKind};
use crate::expr::{AggregateCall, Field, Schema};

/// A step of a plan for people and programs.
pub struct Step {
    pub name: String,
    /// Its columns, keys, calls and what else it does, a line each.
    pub details: Vec<String>,
    /// Its rows.
    pub columns: Vec<Field>,
    /// The time attribute of its rows.
    pub time: Option<Field>,
    /// What bounds its state.
    pub state: String,
    pub inputs: Vec<Step>,
}

impl Step {
    fn write(&self, out: &mut String, depth: usize) {
        let pad = "  ".repeat(depth);
        let time = self.time.as_ref().map_or_else(|| "none".to_owned(), |f| format!("`{}` {}", f.name, f.data_type));
        let last = [format!("time attribute: {time}"), format!("state: {}", self.state)];
        *out += &format!("{pad}{}\n", self.name);
        for detail in self.details.iter().chain(&last) {
            *out += &format!("{pad}    {detail}\n");
        }
        self.inputs.iter().for_each(|input| input.write(out, depth + 1));
    }
}

impl Plan {
    /// The plan as an indented tree, the last step first: of each step its expressions with their types, the time
    /// attribute of its rows, and what bounds its state.
    pub fn explain(&self) -> String {
        let mut out = String::new();
        self.steps().write(&mut out, 0);
        out
    }

    /// The plan as a tree, the last step first.
    pub fn steps(&self) -> Step {
        let mut own = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut own);
        let mut lines = own.lines().map(|line| line.strip_prefix("    ").unwrap_or(line).to_owned());
        Step {
            name: lines.next().unwrap_or_default(),
            details: lines.collect(),
            columns: self.schema.fields.iter().filter(|field| !field.hidden).cloned().collect(),
            time: self.schema.time.and_then(|time| self.schema.fields.get(time)).cloned(),
            state: self.state_bound(),
            inputs: self.inputs().into_iter().map(Plan::steps).collect(),
        }
    }

    /// The steps that keep state, with their fingerprints, inputs before what reads them.
    pub fn stateful(&self) -> Vec<(&Plan, String)> {
        let mut found: Vec<(&Plan, String)> = self.inputs().into_iter().flat_map(Plan::stateful).collect();
        found.extend(self.fingerprint().map(|fingerprint| (self, fingerprint)));
        found
    }

    /// What the state of this step means: equal texts can go on with each other's state. `None`: it keeps none.
    pub fn fingerprint(&self) -> Option<String> {
        match &self.node {
            Node::WindowAggregate { input, window, keys, properties: _, aggregates } => {
                let keys: Vec<String> =
                    keys.iter().map(|key| format!("{} {}", key.display(&input.schema), key.data_type)).collect();
                let calls: Vec<String> =
                    aggregates.iter().map(|a| format!("{} {}", Call(a, &input.schema), a.data_type)).collect();
                Some(format!(
                    "window aggregate: {}; keys: {}; aggregates: {}",
                    Window(window, &input.schema),
                    keys.join(", "),
                    calls.join(", ")
                ))
            }
            Node::Window { input, window } if is_session(window) => {
                let rows = operators::types(&input.schema.fields);
                Some(format!("window: {}; rows: {rows}", Window(window, &input.schema)))
            }
            Node::Over { input, over } => Some(operators::over_fingerprint(over, &input.schema)),
            Node::Match { input, spec } => Some(pattern::fingerprint(spec, &input.schema)),
            Node::Join { left, right, join } => Some(operators::join_fingerprint(join, left, right)),
            Node::Lookup { lookup, .. } => Some(operators::lookup_fingerprint(lookup)),
            Node::Rank { input, rank } => Some(operators::rank_fingerprint(rank, &input.schema)),
            Node::Scan { .. }
            | Node::Project { .. }
            | Node::Filter { .. }
            | Node::UnionAll { .. }
            | Node::Unnest { .. }
            | Node::Expand { .. }
            | Node::Window { .. } => None,
        }
    }

    /// What bounds the state of this step.
    pub fn state_bound(&self) -> String {
        match &self.node {
            Node::WindowAggregate { window, keys, aggregates, .. } => {
                let slice = match &window.kind {
                    WindowKind::Session { .. } => {
                        return "bounded by open sessions: one entry for each key with a session that the watermark has \
                                not passed"
                            .to_owned();
                    }
                    WindowKind::Attached { .. } => "window end".to_owned(),
                    WindowKind::Tumble { size_ms, .. } => Duration(*size_ms).to_string(),
                    WindowKind::Hop { slide_ms, .. } => format!("slide of {}", Duration(*slide_ms)),
                    WindowKind::Cumulate { step_ms, .. } => format!("step of {}", Duration(*step_ms)),
                };
                let groups = if keys.is_empty() { "one entry" } else { "one entry for each key" };
                let distinct = if aggregates.iter().any(|call| call.distinct) { " and distinct value" } else { "" };
                format!(
                    "bounded by open windows: {groups}{distinct} for each {slice} of the windows that the watermark has not \
                     passed"
                )
            }
            Node::Window { window, .. } if is_session(window) => {
                "bounded by open sessions: the rows of those that the watermark has not passed".to_owned()
            }
            Node::Over { over, .. } => operators::over_bound(over),
            Node::Match { spec, .. } => pattern::bound(spec),
            Node::Rank { rank, .. } => operators::rank_bound(rank),
            Node::Join { join, .. } => operators::join_bound(join),
            Node::Lookup { lookup, .. } => format!("bounded by the size of the table `{}`", lookup.table),
            Node::Scan { .. }
            | Node::Project { .. }
            | Node::Filter { .. }
            | Node::UnionAll { .. }
            | Node::Unnest { .. }
            | Node::Expand { .. }
            | Node::Window { .. } => "none".to_owned(),
        }
    }

    /// The steps whose state nothing but the number of keys bounds: what each keeps. `state_ttl` bounds them.
    pub fn bounded_by_keys(&self) -> Vec<String> {
        let mut found: Vec<String> = self.inputs().into_iter().flat_map(Plan::bounded_by_keys).collect();
        found.extend(operators::kept_by_keys(&self.node));
        found
    }

    /// The output columns under names for people: an aggregate by its text.
    pub fn labels(&self) -> Vec<Field> {
        let mut fields = self.schema.fields.clone();
        if let Node::WindowAggregate { input, keys, properties, aggregates, .. } = &self.node {
            for (field, call) in fields.iter_mut().skip(keys.len() + properties.len()).zip(aggregates) {
                field.name = Call(call, &input.schema).to_string();
            }
        }
        if let Node::Over { input, over } = &self.node {
            for (field, call) in fields.iter_mut().skip(input.schema.fields.len()).zip(&over.calls) {
                field.name = operators::OverText(call, &input.schema).to_string();
            }
        }
        fields
    }

    /// This step alone: its name, then its details, a line each.
    fn write(&self, out: &mut String) -> fmt::Result {
        let column = |field: &Field| format!("`{}` {}", field.name, field.data_type);
        match &self.node {
            Node::Scan { relation } => {
                let columns: Vec<String> = self.schema.fields.iter().filter(|f| !f.hidden).map(column).collect();
                writeln!(out, "Scan {relation}")?;
                writeln!(out, "    columns: {}", columns.join(", "))?;
            }
            Node::Project { input, exprs } => {
                writeln!(out, "Project")?;
                for (field, expr) in self.schema.fields.iter().zip(exprs) {
                    writeln!(out, "    {} = {}", column(field), expr.display(&input.schema))?;
                }
            }
            Node::Filter { input, predicate } => {
                writeln!(out, "Filter")?;
                writeln!(out, "    {}", predicate.display(&input.schema))?;
            }
            Node::UnionAll { .. } => {
                let columns: Vec<String> = self.schema.fields.iter().map(column).collect();
                writeln!(out, "UnionAll")?;
                writeln!(out, "    columns: {}", columns.join(", "))?;
            }
            Node::Window { input, window } => {
                writeln!(out, "Window")?;
                writeln!(out, "    {}", Window(window, &input.schema))?;
            }
            Node::Unnest { input, array, outer, ordinality } => {
                writeln!(out, "Unnest")?;
                let rows = if *outer { ", rows without elements too" } else { "" };
                let number = if *ordinality { ", numbered" } else { "" };
                writeln!(out, "    {}{rows}{number}", array.display(&input.schema))?;
                let elements: Vec<String> =
                    self.schema.fields.iter().skip(input.schema.fields.len()).map(column).collect();
                writeln!(out, "    columns: {}", elements.join(", "))?;
            }
            Node::Expand { input, keys, sets } => {
                writeln!(out, "Expand")?;
                for (number, set) in sets.iter().enumerate() {
                    let own = keys.iter().zip(set).filter(|(_, has)| **has);
                    let own: Vec<String> = own.map(|(key, _)| key.display(&input.schema).to_string()).collect();
                    writeln!(out, "    set {number}: ({})", own.join(", "))?;
                }
            }
            Node::WindowAggregate { input, window, keys, properties, aggregates } => {
                writeln!(out, "WindowAggregate")?;
                writeln!(out, "    {}", Window(window, &input.schema))?;
                let mut fields = self.schema.fields.iter();
                for key in keys {
                    if let Some(field) = fields.next() {
                        writeln!(out, "    key {} = {}", column(field), key.display(&input.schema))?;
                    }
                }
                for property in properties {
                    if let Some(field) = fields.next() {
                        writeln!(out, "    window's {} {}", property_name(*property), column(field))?;
                    }
                }
                for call in aggregates {
                    if let Some(field) = fields.next() {
                        writeln!(out, "    {} = {}", column(field), Call(call, &input.schema))?;
                    }
                }
            }
            Node::Match { input, spec } => pattern::write(spec, &self.schema, &input.schema, out)?,
            Node::Over { .. } | Node::Rank { .. } | Node::Join { .. } | Node::Lookup { .. } => {}
        }
        operators::write(self, out)
    }
}

fn property_name(property: WindowProperty) -> &'static str {
    match property {
        WindowProperty::Start => "start",
        WindowProperty::End => "end",
        WindowProperty::Time => "time",
    }
}

fn is_session(window: &WindowSpec) -> bool {
    matches!(window.kind, WindowKind::Session { .. })
}

/// A window over a relation with this schema.
struct Window<'a>(&'a WindowSpec, &'a Schema);

impl fmt::Display for Window<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WindowSpec { kind, time_column, time_type } = self.0;
        let time = self.1.fields.get(*time_column).map_or("?", |field| &field.name);
        let offset_ms = match kind {
            WindowKind::Attached { start } => {
                let start = self.1.fields.get(*start).map_or("?", |field| &field.name);
                return write!(f, "the rows' own windows, from `{start}` to `{time}`");
            }
            WindowKind::Session { gap_ms, partition } => {
                write!(f, "SESSION with a gap of {}", Duration(*gap_ms))?;
                let names = partition.iter().filter_map(|column| self.1.fields.get(*column));
                for (i, field) in names.enumerate() {
                    write!(f, "{}`{}`", if i == 0 { ", for each " } else { ", " }, field.name)?;
                }
                0
            }
            WindowKind::Tumble { size_ms, offset_ms } => {
                write!(f, "TUMBLE {}", Duration(*size_ms))?;
                *offset_ms
            }
            WindowKind::Hop { size_ms, slide_ms, offset_ms } => {
                write!(f, "HOP {} every {}", Duration(*size_ms), Duration(*slide_ms))?;
                *offset_ms
            }
            WindowKind::Cumulate { size_ms, step_ms, offset_ms } => {
                write!(f, "CUMULATE {} in steps of {}", Duration(*size_ms), Duration(*step_ms))?;
                *offset_ms
            }
        };
        if offset_ms != 0 {
            write!(f, ", offset {}", Duration(offset_ms))?;
        }
        write!(f, ", on `{time}` {time_type}")
    }
}

/// An aggregate over a relation with this schema.
struct Call<'a>(&'a AggregateCall, &'a Schema);

impl fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AggregateCall { kind, argument, parameter, distinct, filter, data_type: _ } = self.0;
        let distinct = if *distinct { "DISTINCT " } else { "" };
        write!(f, "{}({distinct}", kind.name())?;
        match (argument, parameter) {
            (Some(Expr { kind: ExprKind::Row(items), .. }), Parameter::WithNulls(true)) if items.len() == 1 => {
                items.iter().try_for_each(|item| write!(f, "{}", item.display(self.1)))?;
            }
            (Some(argument), _) => write!(f, "{}", argument.display(self.1))?,
            (None, _) => f.write_str("*")?,
        }
        match parameter {
            Parameter::WithNulls(with_nulls) => f.write_str(match (kind, with_nulls) {
                (AggregateKind::ArrayAgg, true) => " RESPECT NULLS",
                (AggregateKind::ArrayAgg, false) => " IGNORE NULLS",
                (_, true) => " NULL ON NULL",
                (_, false) => " ABSENT ON NULL",
            })?,
            Parameter::None => {}
            Parameter::Separator(separator) => write!(f, ", '{}'", separator.replace('\'', "''"))?,
            Parameter::Percentages { values, array: false } => {
                values.iter().try_for_each(|value| write!(f, ", {value}"))?;
            }
            Parameter::Percentages { values, array: true } => write!(f, ", ARRAY{values:?}")?,
        }
        f.write_str(")")?;
        match filter {
            Some(filter) => write!(f, " FILTER (WHERE {})", filter.display(self.1)),
            None => Ok(()),
        }
    }
}

/// A duration as people write it: `1m30s`.
pub fn duration_text(duration: std::time::Duration) -> String {
    Duration(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)).to_string()
}

/// Milliseconds as people write them: `1m30s`.
struct Duration(i64);

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let mut rest = self.0.unsigned_abs();
        if rest == 0 {
            return f.write_str("0s");
        }
        for (unit, ms) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)] {
            if rest >= ms {
                write!(f, "{}{unit}", rest / ms)?;
                rest %= ms;
            }
        }
        Ok(())
    }
}
