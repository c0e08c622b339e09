//! Functions that make arrays or look through them.
//!
//! Items are the same when their keys are (`row.rs`): NULL is NULL, NaN is NaN, −0.0 and 0.0 are two. Only
//! ARRAY_POSITION and ARRAY_REMOVE compare with `=`, as Flink does. Source: the classes `Array…Function` of Flink.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, ListArray, UInt32Array, new_null_array};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::Field as ArrowField;
use arrow_select::concat::concat;
use arrow_select::take::take;

use super::conditional::{Lists, equal_items, per_row};
use super::{Function, Refusal, Resolved, call, exactly, fallible_call, int, string, typed};
use crate::expr::build::{self, Expr};
use crate::expr::row::RowKeys;
use crate::expr::types::DataType;
use crate::expr::vector::{Operand, Scope, make_numbers, make_strings};

pub const FUNCTIONS: &[Function] = &[
    Function { name: "ARRAY_APPEND", parameters: "ARRAY, value", resolve: |args| extended("ARRAY_APPEND", args) },
    Function { name: "ARRAY_PREPEND", parameters: "ARRAY, value", resolve: |args| extended("ARRAY_PREPEND", args) },
    Function { name: "ARRAY_CONCAT", parameters: "ARRAY [, ARRAY …]", resolve: array_concat },
    Function { name: "ARRAY_DISTINCT", parameters: "ARRAY", resolve: |args| sets("ARRAY_DISTINCT", args, 1, union) },
    Function { name: "ARRAY_UNION", parameters: "ARRAY, ARRAY", resolve: |args| sets("ARRAY_UNION", args, 2, union) },
    Function {
        name: "ARRAY_EXCEPT",
        parameters: "ARRAY, ARRAY",
        resolve: |args| sets("ARRAY_EXCEPT", args, 2, except),
    },
    Function {
        name: "ARRAY_INTERSECT",
        parameters: "ARRAY, ARRAY",
        resolve: |args| sets("ARRAY_INTERSECT", args, 2, intersect),
    },
    Function { name: "ARRAY_JOIN", parameters: "ARRAY<STRING>, STRING [, STRING]", resolve: array_join },
    Function { name: "ARRAY_MAX", parameters: "ARRAY", resolve: |args| extreme("ARRAY_MAX", args) },
    Function { name: "ARRAY_MIN", parameters: "ARRAY", resolve: |args| extreme("ARRAY_MIN", args) },
    Function { name: "ARRAY_POSITION", parameters: "ARRAY, value", resolve: array_position },
    Function { name: "ARRAY_REMOVE", parameters: "ARRAY, value", resolve: array_remove },
    Function { name: "ARRAY_REVERSE", parameters: "ARRAY", resolve: array_reverse },
    Function { name: "ARRAY_SLICE", parameters: "ARRAY, INT [, INT]", resolve: array_slice },
    Function { name: "ARRAY_SORT", parameters: "ARRAY [, BOOLEAN [, BOOLEAN]]", resolve: array_sort },
    Function { name: "SPLIT", parameters: "STRING, STRING", resolve: split },
];

/// The items of the first arguments of a call as one column.
struct Items<'a> {
    lists: Vec<(Lists<'a>, usize)>,
    values: ArrayRef,
    /// Of each item; without rows where nobody asked for them.
    keys: RowKeys,
}

impl<'a> Items<'a> {
    fn new(args: &'a [Operand], arrays: usize, item: &DataType, keyed: bool) -> Option<Items<'a>> {
        let mut lists = Vec::new();
        let mut parts: Vec<&dyn Array> = Vec::new();
        let mut base = 0;
        for arg in args.get(..arrays)? {
            let list = Lists::of(arg);
            lists.push((list, base));
            let values = arg.array().as_list_opt::<i32>()?.values();
            base += values.len();
            parts.push(values.as_ref());
        }
        let values = concat(&parts).ok()?;
        let mut keys = RowKeys::new(std::slice::from_ref(item)).ok()?;
        if keyed {
            keys.encode(&[Arc::clone(&values)], values.len()).ok()?;
        }
        Some(Items { lists, values, keys })
    }

    /// Items of an array argument in a row; `None` for a NULL array.
    fn of(&self, argument: usize, row: usize) -> Option<Range<usize>> {
        let (list, base) = self.lists.get(argument)?;
        list.range(row).map(|(start, end)| base + start..base + end)
    }

    fn key(&self, item: usize) -> &[u8] {
        self.keys.row(item)
    }
}

/// Arrays of items that `choose` picks for each row; `None` is a NULL array.
fn picked(items: &Items<'_>, scope: &mut Scope<'_>, mut choose: impl FnMut(usize) -> Option<Vec<usize>>) -> ArrayRef {
    let data_type = items.values.data_type().clone();
    let mut indices: Vec<u32> = Vec::new();
    let mut offsets: Vec<i32> = vec![0];
    let mut valid = Vec::with_capacity(scope.rows);
    let mut end = 0_i32;
    for row in 0..scope.rows {
        let chosen = choose(row);
        valid.push(chosen.is_some());
        let chosen = chosen.unwrap_or_default();
        match i32::try_from(chosen.len()).ok().and_then(|length| end.checked_add(length)) {
            Some(longer) => {
                end = longer;
                indices.extend(chosen.into_iter().map(|item| u32::try_from(item).unwrap_or(0)));
            }
            None => scope.fail(row, "the arrays of a batch would have more than 2147483647 items"),
        }
        offsets.push(end);
    }
    let field = Arc::new(ArrowField::new("item", data_type, true));
    let missing = new_null_array(&arrow_schema::DataType::List(Arc::clone(&field)), scope.rows);
    let Ok(values) = take(&items.values, &UInt32Array::from(indices), None) else { return missing };
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    match ListArray::try_new(field, offsets, values, Some(NullBuffer::from(valid))) {
        Ok(array) => Arc::new(array),
        Err(_) => missing,
    }
}

fn item_of(array: &Expr) -> Result<DataType, Refusal> {
    match &array.data_type {
        DataType::Array(item) => Ok(item.as_ref().clone()),
        _ => Err(Refusal::Arguments),
    }
}

/// Array arguments in their common type.
fn arrays(args: Vec<Expr>) -> Result<(Vec<Expr>, DataType), Refusal> {
    if args.is_empty() || args.iter().any(|arg| !matches!(arg.data_type, DataType::Array(_))) {
        return Err(Refusal::Arguments);
    }
    let (args, common) = build::coerce_common(args)?;
    let item = args.first().map(item_of).ok_or(Refusal::Arguments)??;
    debug_assert!(matches!(common, DataType::Array(_)));
    Ok((args, item))
}

/// An array and a value in the common type of the value and the array's items.
fn array_and_value(args: Vec<Expr>) -> Result<([Expr; 2], DataType), Refusal> {
    let [array, value] = exactly(args)?;
    let item = item_of(&array)?;
    let (values, common) = build::coerce_common(vec![value, build::literal(build::Value::Null, item)])?;
    let value = values.into_iter().next().ok_or(Refusal::Arguments)?;
    let array = build::cast(array, &DataType::Array(Box::new(common.clone())), false)?;
    Ok(([array, value], common))
}

/// A call that makes an array of the type of its first argument.
fn made(
    name: &'static str,
    args: Vec<Expr>,
    (item, arrays, keyed): (DataType, usize, bool),
    choose: impl Fn(&Items<'_>, &[Operand], usize) -> Option<Vec<usize>> + Send + Sync + 'static,
) -> Expr {
    let data_type = DataType::Array(Box::new(item.clone()));
    let arrow_type = data_type.arrow();
    call(name, args, data_type, move |args, scope| match Items::new(args, arrays, &item, keyed) {
        Some(items) => picked(&items, scope, |row| choose(&items, args, row)),
        None => new_null_array(&arrow_type, scope.rows),
    })
}

fn array_concat(args: Vec<Expr>) -> Resolved {
    let (args, item) = arrays(args)?;
    Ok(concatenation("ARRAY_CONCAT", args, item))
}

fn concatenation(name: &'static str, args: Vec<Expr>, item: DataType) -> Expr {
    let count = args.len();
    made(name, args, (item, count, false), move |items, _, row| {
        let mut all = Vec::new();
        for argument in 0..count {
            all.extend(items.of(argument, row)?);
        }
        Some(all)
    })
}

/// ARRAY_APPEND and ARRAY_PREPEND: the value as an array of one item, behind or before the others.
fn extended(name: &'static str, args: Vec<Expr>) -> Resolved {
    let ([array, value], item) = array_and_value(args)?;
    let one = build::array(vec![value])?;
    let args = if name == "ARRAY_APPEND" { vec![array, one] } else { vec![one, array] };
    Ok(concatenation(name, args, item))
}

type Choose = fn(&Items<'_>, &[Range<usize>]) -> Vec<usize>;

/// A function of the arrays as sets; NULL where one of them is.
fn sets(name: &'static str, args: Vec<Expr>, count: usize, choose: Choose) -> Resolved {
    let (args, item) = arrays(args)?;
    if args.len() != count || item.has_map() {
        return Err(Refusal::Arguments);
    }
    Ok(made(name, args, (item, count, true), move |items, _, row| {
        let ranges: Option<Vec<Range<usize>>> = (0..count).map(|argument| items.of(argument, row)).collect();
        ranges.map(|ranges| choose(items, &ranges))
    }))
}

/// The first of each item, in order.
fn union(items: &Items<'_>, ranges: &[Range<usize>]) -> Vec<usize> {
    let mut seen = std::collections::BTreeSet::new();
    ranges.iter().cloned().flatten().filter(|item| seen.insert(items.key(*item))).collect()
}

/// Those of the first that are not in the second, each once.
fn except(items: &Items<'_>, ranges: &[Range<usize>]) -> Vec<usize> {
    let [first, second] = ranges else { return Vec::new() };
    let mut seen: std::collections::BTreeSet<&[u8]> = second.clone().map(|item| items.key(item)).collect();
    first.clone().filter(|item| seen.insert(items.key(*item))).collect()
}

/// Those of the first that are in the second, each once.
fn intersect(items: &Items<'_>, ranges: &[Range<usize>]) -> Vec<usize> {
    let [first, second] = ranges else { return Vec::new() };
    let mut left: std::collections::BTreeSet<&[u8]> = second.clone().map(|item| items.key(item)).collect();
    first.clone().filter(|item| left.remove(items.key(*item))).collect()
}

fn array_reverse(args: Vec<Expr>) -> Resolved {
    let [array] = exactly(args)?;
    let item = item_of(&array)?;
    Ok(made("ARRAY_REVERSE", vec![array], (item, 1, false), |items, _, row| {
        items.of(0, row).map(|range| range.rev().collect())
    }))
}

/// Positions count from 1, negative ones from the end; both ends are part of the slice.
fn array_slice(args: Vec<Expr>) -> Resolved {
    let mut args = args.into_iter();
    let (Some(array), Some(from)) = (args.next(), args.next()) else { return Err(Refusal::Arguments) };
    let item = item_of(&array)?;
    let mut list = vec![array, int(from)?];
    if let Some(to) = args.next() {
        list.push(int(to)?);
    }
    if args.next().is_some() {
        return Err(Refusal::Arguments);
    }
    Ok(made("ARRAY_SLICE", list, (item, 1, false), |items, args, row| {
        let range = items.of(0, row)?;
        let length = i64::try_from(range.len()).unwrap_or(i64::MAX);
        let given = |index: usize| args.get(index).map(Operand::numbers::<Int32Type>);
        let place = |position: i32| i64::from(position) + if position < 0 { length + 1 } else { 0 };
        let from = place(given(1)?.get(row)?).max(1);
        let to = match given(2) {
            Some(to) => place(to.get(row)?),
            None => length,
        };
        // In Flink an end of 0 is the first position.
        let to = if to == 0 { 1 } else { to.min(length) };
        let skip = usize::try_from(from - 1).unwrap_or(0);
        let count = usize::try_from(to - from + 1).unwrap_or(0);
        Some(range.skip(skip).take(count).collect())
    }))
}

/// Ascending with NULLs first, unless the arguments say otherwise; descending puts NULLs last.
fn array_sort(args: Vec<Expr>) -> Resolved {
    let count = args.len();
    let mut args = args.into_iter();
    let array = args.next().ok_or(Refusal::Arguments)?;
    let item = ordered_item(&array)?;
    if count > 3 {
        return Err(Refusal::Arguments);
    }
    let mut list = vec![array];
    for flag in args {
        list.push(typed(flag, DataType::Boolean)?);
    }
    Ok(made("ARRAY_SORT", list, (item, 1, true), |items, args, row| {
        let flag = |index: usize| args.get(index).map(|flag| flag.booleans().get(row));
        let ascending = flag(1).unwrap_or(Some(true))?;
        let nulls_first = flag(2).unwrap_or(Some(ascending))?;
        let (nulls, mut values): (Vec<usize>, Vec<usize>) =
            items.of(0, row)?.partition(|item| items.values.is_null(*item));
        values.sort_by(|a, b| {
            let order = items.key(*a).cmp(items.key(*b));
            if ascending { order } else { order.reverse() }
        });
        Some(if nulls_first { [nulls, values].concat() } else { [values, nulls].concat() })
    }))
}

/// The type of the items of an array whose items have an order.
fn ordered_item(array: &Expr) -> Result<DataType, Refusal> {
    match item_of(array)? {
        DataType::Array(_) | DataType::Row(_) | DataType::Map(..) => Err(Refusal::Arguments),
        item => Ok(item),
    }
}

/// The greatest or least item that is not NULL.
fn extreme(name: &'static str, args: Vec<Expr>) -> Resolved {
    let [array] = exactly(args)?;
    let item = ordered_item(&array)?;
    let arrow_type = item.arrow();
    Ok(call(name, vec![array], item.clone(), move |args, scope| {
        let missing = || new_null_array(&arrow_type, scope.rows);
        let Some(items) = Items::new(args, 1, &item, true) else { return missing() };
        let best = |row: usize| {
            let valid = items.of(0, row)?.filter(|item| items.values.is_valid(*item));
            let key = |item: &usize| items.key(*item);
            let found = if name == "ARRAY_MAX" {
                valid.max_by(|a, b| key(a).cmp(key(b)))
            } else {
                valid.min_by(|a, b| key(a).cmp(key(b)))
            };
            found.and_then(|item| u32::try_from(item).ok())
        };
        let indices: UInt32Array = (0..scope.rows).map(best).collect();
        take(&items.values, &indices, None).unwrap_or_else(|_| missing())
    }))
}

/// From 1; 0 where no item equals the value.
fn array_position(args: Vec<Expr>) -> Resolved {
    let ([array, value], item) = array_and_value(args)?;
    if item.has_map() {
        return Err(Refusal::Arguments);
    }
    let types = (item.clone(), item);
    Ok(call("ARRAY_POSITION", vec![array, value], DataType::Int, move |args, scope| {
        let missing = new_null_array(&DataType::Int.arrow(), scope.rows);
        let args = per_row(args, scope.rows);
        let (Some(equal), [array, value]) = (equal_items(&args, &types, scope), &args[..]) else { return missing };
        let (equal, lists) = (Operand::Rows(equal), Lists::of(array));
        let equal = equal.booleans();
        make_numbers::<Int32Type>(scope, &DataType::Int.arrow(), |row| {
            let (Some((start, end)), false) = (lists.range(row), is_null(value, row)) else { return Ok(None) };
            let found = (start..end).position(|item| equal.get(item) == Some(true));
            Ok(found.map_or(Some(0), |position| i32::try_from(position + 1).ok()))
        })
    }))
}

/// Without the items that equal the value; without NULLs where it is NULL.
fn array_remove(args: Vec<Expr>) -> Resolved {
    let ([array, value], item) = array_and_value(args)?;
    if item.has_map() {
        return Err(Refusal::Arguments);
    }
    let types = (item.clone(), item.clone());
    let data_type = array.data_type.clone();
    let arrow_type = data_type.arrow();
    Ok(call("ARRAY_REMOVE", vec![array, value], data_type, move |args, scope| {
        let missing = new_null_array(&arrow_type, scope.rows);
        let args = per_row(args, scope.rows);
        let (Some(equal), Some(value)) = (equal_items(&args, &types, scope), args.get(1)) else { return missing };
        let Some(items) = Items::new(&args, 1, &item, false) else { return missing };
        let equal = Operand::Rows(equal);
        let equal = equal.booleans();
        picked(&items, scope, |row| {
            let no_value = is_null(value, row);
            let kept = |item: &usize| match no_value {
                true => items.values.is_valid(*item),
                false => equal.get(*item) != Some(true),
            };
            Some(items.of(0, row)?.filter(kept).collect())
        })
    }))
}

fn is_null(value: &Operand, row: usize) -> bool {
    let index = value.index(row);
    index >= value.array().len() || value.array().is_null(index)
}

/// NULLs are left out unless a third argument stands for them.
fn array_join(args: Vec<Expr>) -> Resolved {
    let count = args.len();
    let mut args = args.into_iter();
    let (Some(array), Some(separator)) = (args.next(), args.next()) else { return Err(Refusal::Arguments) };
    if item_of(&array)? != DataType::String || count > 3 {
        return Err(Refusal::Arguments);
    }
    let mut list = vec![array, string(separator)?];
    for replacement in args {
        list.push(string(replacement)?);
    }
    Ok(fallible_call("ARRAY_JOIN", list, DataType::String, |args, scope| {
        let missing = new_null_array(&DataType::String.arrow(), scope.rows);
        let Some(items) = Items::new(args, 1, &DataType::String, false) else { return missing };
        let Some(values) = items.values.as_string_opt::<i32>() else { return missing };
        let separator = args.get(1).map(Operand::strings);
        let replacement = args.get(2).map(Operand::strings);
        make_strings(scope, |row, out| {
            let (Some(range), Some(separator)) = (items.of(0, row), separator.and_then(|s| s.get(row))) else {
                return Ok(false);
            };
            let replacement = match replacement {
                Some(replacement) => match replacement.get(row) {
                    Some(replacement) => Some(replacement),
                    None => return Ok(false),
                },
                None => None,
            };
            let texts =
                range.filter_map(|item| if values.is_valid(item) { Some(values.value(item)) } else { replacement });
            for (index, text) in texts.enumerate() {
                if index > 0 {
                    out.push_str(separator);
                }
                out.push_str(text);
            }
            Ok(true)
        })
    }))
}

/// The parts between separators; the characters, where the separator is empty. An empty string has no parts.
fn split(args: Vec<Expr>) -> Resolved {
    let [s, separator] = exactly(args)?;
    Ok(string_lists("SPLIT", vec![string(s)?, string(separator)?], |args, row| {
        let [s, separator] = args else { return None };
        let (s, separator) = (s.strings().get(row)?, separator.strings().get(row)?);
        let mut buffer = [0; 4];
        Some(match separator {
            _ if s.is_empty() => Vec::new(),
            "" => s.chars().map(|c| Some(c.encode_utf8(&mut buffer).to_owned())).collect(),
            separator => s.split(separator).map(|part| Some(part.to_owned())).collect(),
        })
    }))
}

/// A call that makes an array of strings; `None` is a NULL array.
pub fn string_lists(
    name: &'static str,
    args: Vec<Expr>,
    value: impl Fn(&[Operand], usize) -> Option<Vec<Option<String>>> + Send + Sync + 'static,
) -> Expr {
    call(name, args, DataType::Array(Box::new(DataType::String)), move |args, scope| {
        make_string_lists(scope, |row| Ok(value(args, row)))
    })
}

/// The same of a call that can fail on a row.
pub fn fallible_string_lists(
    name: &'static str,
    args: Vec<Expr>,
    value: impl Fn(&[Operand], usize) -> Result<Option<Vec<Option<String>>>, String> + Send + Sync + 'static,
) -> Expr {
    fallible_call(name, args, DataType::Array(Box::new(DataType::String)), move |args, scope| {
        make_string_lists(scope, |row| value(args, row))
    })
}

fn make_string_lists(
    scope: &mut Scope<'_>,
    mut value: impl FnMut(usize) -> Result<Option<Vec<Option<String>>>, String>,
) -> ArrayRef {
    let field = ArrowField::new("item", DataType::String.arrow(), true);
    let mut builder = ListBuilder::new(StringBuilder::new()).with_field(field);
    for row in 0..scope.rows {
        let parts = match value(row) {
            Ok(parts) => parts,
            Err(reason) => {
                scope.fail(row, reason);
                None
            }
        };
        let valid = parts.is_some();
        for part in parts.unwrap_or_default() {
            builder.values().append_option(part);
        }
        builder.append(valid);
    }
    Arc::new(builder.finish())
}
