//! How MATCH_RECOGNIZE is shown, what bounds its state, and what it means.

use std::fmt::{self, Write as _};

use super::operators::{list, types};
use super::{Call, Duration};
use crate::expr::{Field, Schema};
use crate::sql::match_plan::{MatchSpec, Skip, Slot, SlotKind, Variable};
use crate::sql::plan::RankOrder;

/// The lines of the plan, but for the time attribute and the state.
pub(super) fn write(spec: &MatchSpec, own: &Schema, input: &Schema, out: &mut String) -> fmt::Result {
    writeln!(out, "MatchRecognize")?;
    writeln!(out, "    PARTITION BY {}", list(&spec.keys, input))?;
    writeln!(out, "    ORDER BY {}", order(spec, input))?;
    writeln!(out, "    PATTERN {}", pattern(spec))?;
    for variable in &spec.pattern {
        writeln!(out, "    {} AS {}", variable.name, condition(spec, variable, input))?;
    }
    let slots = slots(spec, &Schema::new(Vec::new()), &spec.slots, input);
    for (field, output) in own.fields.iter().zip(&spec.outputs) {
        writeln!(out, "    `{}` {} = {}", field.name, field.data_type, output.display(&slots))?;
    }
    Ok(())
}

/// What the state means. Outputs may change: they are computed of the rows.
pub(super) fn fingerprint(spec: &MatchSpec, input: &Schema) -> String {
    let conditions: Vec<String> = spec
        .pattern
        .iter()
        .map(|variable| format!("{} AS {}", variable.name, condition(spec, variable, input)))
        .collect();
    format!(
        "match: keys: {}; order: {}; pattern {}; define {}; rows: {}",
        list(&spec.keys, input),
        order(spec, input),
        pattern(spec),
        conditions.join(", "),
        types(&input.fields)
    )
}

/// What bounds the state.
pub(super) fn bound(spec: &MatchSpec) -> String {
    format!(
        "bounded by time: the rows that the watermark has not passed, and for each key those of the {} before (WITHIN) \
         that could become a match",
        Duration(spec.within_ms)
    )
}

fn order(spec: &MatchSpec, input: &Schema) -> String {
    let mut text = input.fields.get(spec.time_column).map_or_else(|| "?".to_owned(), |field| field.name.clone());
    for RankOrder { expr, descending, nulls_first: _ } in &spec.ties {
        // Writing to a String cannot fail.
        let _ = write!(text, ", {} {}", expr.display(input), if *descending { "DESC" } else { "ASC" });
    }
    text
}

fn pattern(spec: &MatchSpec) -> String {
    let variables: Vec<String> = spec.pattern.iter().map(|variable| Quantified(variable).to_string()).collect();
    let name = |variable: usize| spec.pattern.get(variable).map_or("?", |variable| &variable.name);
    let skip = match spec.skip {
        Skip::PastLastRow => "PAST LAST ROW".to_owned(),
        Skip::ToNextRow => "TO NEXT ROW".to_owned(),
        Skip::ToFirst(variable) => format!("TO FIRST {}", name(variable)),
        Skip::ToLast(variable) => format!("TO LAST {}", name(variable)),
    };
    format!("({}) WITHIN {}, AFTER MATCH SKIP {skip}", variables.join(" "), Duration(spec.within_ms))
}

struct Quantified<'a>(&'a Variable);

impl fmt::Display for Quantified<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Variable { name, least, most, greedy, condition: _ } = self.0;
        let reluctant = if *greedy { "" } else { "?" };
        match (least, most) {
            (1, Some(1)) => f.write_str(name),
            (0, Some(1)) => write!(f, "{name}?"),
            (least, Some(most)) if least == most => write!(f, "{name}{{{least}}}"),
            (least, Some(most)) => write!(f, "{name}{{{least},{most}}}{reluctant}"),
            (least, None) => write!(f, "{name}{{{least},}}{reluctant}"),
        }
    }
}

fn condition(spec: &MatchSpec, variable: &Variable, input: &Schema) -> String {
    match &variable.condition {
        None => "TRUE".to_owned(),
        Some(condition) => condition.expr.display(&slots(spec, input, &condition.slots, input)).to_string(),
    }
}

/// The columns, then the slots under names for people.
fn slots(spec: &MatchSpec, columns: &Schema, slots: &[Slot], input: &Schema) -> Schema {
    let name = |slot: &Slot| {
        let variable = slot.variable.and_then(|variable| spec.pattern.get(variable));
        let variable = variable.map_or("*", |variable| &variable.name);
        match &slot.kind {
            SlotKind::Row { column, first, offset } => {
                let column = input.fields.get(*column).map_or("?", |field| &field.name);
                let side = if *first { "FIRST" } else { "LAST" };
                format!("{side}({variable}.{column}, {offset})")
            }
            SlotKind::Aggregate(call) => format!("{} of {variable}", Call(call, input)),
            SlotKind::Time => "MATCH_ROWTIME()".to_owned(),
        }
    };
    let own = slots.iter().map(|slot| Field::new(name(slot), slot.data_type.clone()));
    Schema::new(columns.fields.iter().cloned().chain(own).collect())
}
