//! Functions that make maps or look into them.
//!
//! A key is the same as another when their keys are (`row.rs`): NULL is NULL, NaN is NaN, −0.0 and 0.0 are two. A map
//! keeps the order in which its keys first came (Flink's has the order of a hash table); the last value of a key counts.
//! Sources: Flink's `Map…Function`, `SqlFunctionUtils.strToMap`.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, ListArray, StringArray, StructArray, UInt32Array, new_null_array};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType as ArrowType, Field as ArrowField};
use arrow_select::interleave::interleave;
use arrow_select::take::take;
use regex::Regex;

use super::conditional::Lists;
use super::java_regex;
use super::pattern::Pattern;
use super::{Function, Refusal, Resolved, call, exactly, fallible_call, string, with_form};
use crate::expr::build::{self, Expr, TypeError};
use crate::expr::row::RowKeys;
use crate::expr::types::DataType;
use crate::expr::vector::{Operand, Scope};

pub const FUNCTIONS: &[Function] = &[
    Function { name: "MAP", parameters: "key, value [, key, value …]", resolve: map },
    Function { name: "MAP_ENTRIES", parameters: "MAP", resolve: map_entries },
    Function { name: "MAP_FROM_ARRAYS", parameters: "ARRAY, ARRAY", resolve: map_from_arrays },
    Function { name: "MAP_KEYS", parameters: "MAP", resolve: |args| column("MAP_KEYS", args) },
    Function { name: "MAP_UNION", parameters: "MAP [, MAP …]", resolve: map_union },
    Function { name: "MAP_VALUES", parameters: "MAP", resolve: |args| column("MAP_VALUES", args) },
    Function { name: "STR_TO_MAP", parameters: "STRING [, STRING [, STRING]]", resolve: str_to_map },
];

/// Which array, and which of its values.
type Place = (usize, usize);
/// Key and value.
type Entry = (Place, Place);

/// The entries of an argument.
struct Entries<'a> {
    lists: Lists<'a>,
    keys: &'a ArrayRef,
    values: &'a ArrayRef,
}

impl<'a> Entries<'a> {
    fn of(arg: &'a Operand) -> Option<Entries<'a>> {
        let [keys, values] = arg.array().as_list_opt::<i32>()?.values().as_struct_opt()?.columns() else { return None };
        Some(Entries { lists: Lists::of(arg), keys, values })
    }

    /// Of a row; `None` for NULL.
    fn range(&self, row: usize) -> Option<Range<usize>> {
        self.lists.range(row).map(|(start, end)| start..end)
    }
}

fn encoded(key: &DataType, column: &ArrayRef) -> Option<RowKeys> {
    let mut keys = RowKeys::new(std::slice::from_ref(key)).ok()?;
    keys.encode(std::slice::from_ref(column), column.len()).ok()?;
    Some(keys)
}

/// Maps of what `choose` picks for each row; `None` is a NULL map, an error fails the row.
fn picked(
    data_type: &DataType,
    (keys, values): (&[&dyn Array], &[&dyn Array]),
    scope: &mut Scope<'_>,
    mut choose: impl FnMut(usize) -> Result<Option<Vec<Entry>>, String>,
) -> ArrayRef {
    let (mut lengths, mut valid) = (Vec::with_capacity(scope.rows), Vec::with_capacity(scope.rows));
    let (mut key_places, mut value_places): (Vec<Place>, Vec<Place>) = (Vec::new(), Vec::new());
    for row in 0..scope.rows {
        let chosen = choose(row).unwrap_or_else(|reason| {
            scope.fail(row, reason);
            None
        });
        valid.push(chosen.is_some());
        let chosen = chosen.unwrap_or_default();
        lengths.push(chosen.len());
        for (key, value) in chosen {
            key_places.push(key);
            value_places.push(value);
        }
    }
    let columns = interleave(keys, &key_places).ok().zip(interleave(values, &value_places).ok());
    columns
        .and_then(|(keys, values)| assembled(data_type, lengths, keys, values, valid))
        .unwrap_or_else(|| new_null_array(&data_type.arrow(), scope.rows))
}

/// A column of maps from all their keys and values, one behind the other.
fn assembled(
    data_type: &DataType,
    lengths: Vec<usize>,
    keys: ArrayRef,
    values: ArrayRef,
    valid: Vec<bool>,
) -> Option<ArrayRef> {
    i32::try_from(keys.len()).ok()?;
    let ArrowType::List(field) = data_type.arrow() else { return None };
    let ArrowType::Struct(fields) = field.data_type() else { return None };
    let entries = StructArray::try_new(fields.clone(), vec![keys, values], None).ok()?;
    let offsets = OffsetBuffer::from_lengths(lengths);
    let maps = ListArray::try_new(field, offsets, Arc::new(entries), Some(NullBuffer::from(valid))).ok()?;
    Some(Arc::new(maps))
}

/// `MAP[key, value, …]`.
fn map(args: Vec<Expr>) -> Resolved {
    if args.is_empty() || args.len() % 2 == 1 {
        return Err(Refusal::Arguments);
    }
    let form = format!("MAP[{}]", vec!["{}"; args.len()].join(", "));
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for (index, arg) in args.into_iter().enumerate() {
        let side = if index % 2 == 0 { &mut keys } else { &mut values };
        side.push(arg);
    }
    let (keys, key) = build::coerce_common(keys)?;
    let (values, value) = build::coerce_common(values)?;
    if key == DataType::Null || value == DataType::Null {
        return Err(Refusal::Because(TypeError {
            message: "the type of the map's keys or values is not known".to_owned(),
            help: Some("CAST one of them: MAP['a', CAST(NULL AS INT)]".to_owned()),
        }));
    }
    comparable(&key)?;
    let data_type = DataType::Map(Box::new(key.clone()), Box::new(value));
    let of = data_type.clone();
    let args = keys.into_iter().zip(values).flat_map(|(key, value)| [key, value]).collect();
    let made = call("MAP", args, data_type, move |args, scope| {
        let pairs: Vec<(&Operand, &Operand)> = args.chunks_exact(2).filter_map(pair).collect();
        let identities: Option<Vec<RowKeys>> = pairs.iter().map(|(keys, _)| encoded(&key, keys.array())).collect();
        let Some(identities) = identities else { return new_null_array(&of.arrow(), scope.rows) };
        let keys: Vec<&dyn Array> = pairs.iter().map(|(keys, _)| keys.array().as_ref()).collect();
        let values: Vec<&dyn Array> = pairs.iter().map(|(_, values)| values.array().as_ref()).collect();
        picked(&of, (&keys, &values), scope, |row| {
            let mut entries: Vec<Entry> = Vec::with_capacity(pairs.len());
            let mut places: HashMap<&[u8], usize> = HashMap::new();
            for (part, ((keys, values), identity)) in pairs.iter().zip(&identities).enumerate() {
                let (key, value) = ((part, keys.index(row)), (part, values.index(row)));
                let at = *places.entry(identity.row(key.1)).or_insert(entries.len());
                match entries.get_mut(at) {
                    Some(known) => known.1 = value,
                    None => entries.push((key, value)),
                }
            }
            Ok(Some(entries))
        })
    });
    Ok(with_form(made, form))
}

fn pair(args: &[Operand]) -> Option<(&Operand, &Operand)> {
    match args {
        [key, value] => Some((key, value)),
        _ => None,
    }
}

fn comparable(key: &DataType) -> Result<(), Refusal> {
    if !key.has_map() {
        return Ok(());
    }
    Err(Refusal::Because(TypeError {
        message: format!("{key} cannot be the key of a MAP"),
        help: Some("take a STRING or a number as the key".to_owned()),
    }))
}

/// The key and value types of a MAP.
fn types_of(map: &Expr) -> Result<(DataType, DataType), Refusal> {
    match &map.data_type {
        DataType::Map(key, value) => Ok((key.as_ref().clone(), value.as_ref().clone())),
        _ => Err(Refusal::Arguments),
    }
}

/// `map[key]`: NULL where there is no such key, or the key is NULL.
pub fn item(map: Expr, key: Expr, key_type: DataType, value_type: DataType) -> Result<Expr, TypeError> {
    let refused = format!("the keys of {} are of type {key_type}, not {}", map.data_type, key.data_type);
    let typed = build::coerce_common(vec![key, build::literal(build::Value::Null, key_type.clone())]);
    let key = typed.ok().filter(|(_, common)| *common == key_type).and_then(|(keys, _)| keys.into_iter().next());
    let Some(key) = key else {
        return Err(TypeError { message: refused, help: Some(format!("write CAST(x AS {key_type})")) });
    };
    let arrow_type = value_type.arrow();
    let made = call("ITEM", vec![map, key], value_type, move |args, scope| {
        let missing = || new_null_array(&arrow_type, scope.rows);
        let [map, key] = args else { return missing() };
        let Some(entries) = Entries::of(map) else { return missing() };
        let (Some(keys), Some(wanted)) = (encoded(&key_type, entries.keys), encoded(&key_type, key.array())) else {
            return missing();
        };
        let found = |row: usize| {
            let at = key.index(row);
            if at >= key.array().len() || key.array().is_null(at) {
                return None;
            }
            let entry = entries.range(row)?.find(|entry| keys.row(*entry) == wanted.row(at))?;
            u32::try_from(entry).ok()
        };
        let indices: UInt32Array = (0..scope.rows).map(found).collect();
        take(entries.values, &indices, None).unwrap_or_else(|_| missing())
    });
    Ok(with_form(made, "{}[{}]".to_owned()))
}

/// MAP_KEYS and MAP_VALUES.
fn column(name: &'static str, args: Vec<Expr>) -> Resolved {
    let [map] = exactly(args)?;
    let (key, value) = types_of(&map)?;
    let at = usize::from(name == "MAP_VALUES");
    let data_type = DataType::Array(Box::new(if at == 0 { key } else { value }));
    let arrow_type = data_type.arrow();
    Ok(call(name, vec![map], data_type, move |args, scope| {
        let made = args.first().and_then(|map| {
            let maps = map.clone().into_rows(scope.rows);
            let list = maps.as_list_opt::<i32>()?;
            let items = Arc::clone(list.values().as_struct_opt()?.columns().get(at)?);
            let field = Arc::new(ArrowField::new("item", items.data_type().clone(), true));
            ListArray::try_new(field, list.offsets().clone(), items, list.nulls().cloned()).ok()
        });
        made.map_or_else(|| new_null_array(&arrow_type, scope.rows), |list| Arc::new(list) as ArrayRef)
    }))
}

/// The map itself: it is held as this array.
fn map_entries(args: Vec<Expr>) -> Resolved {
    let [map] = exactly(args)?;
    let (key, value) = types_of(&map)?;
    let data_type = DataType::Array(Box::new(DataType::entry(&key, &value)));
    let arrow_type = data_type.arrow();
    Ok(call("MAP_ENTRIES", vec![map], data_type, move |args, scope| match args.first() {
        Some(map) => map.clone().into_rows(scope.rows),
        None => new_null_array(&arrow_type, scope.rows),
    }))
}

/// Keys that come twice stay, as in Flink.
fn map_from_arrays(args: Vec<Expr>) -> Resolved {
    let [keys, values] = exactly(args)?;
    let (DataType::Array(key), DataType::Array(value)) = (&keys.data_type, &values.data_type) else {
        return Err(Refusal::Arguments);
    };
    comparable(key)?;
    let data_type = DataType::Map(key.clone(), value.clone());
    let of = data_type.clone();
    Ok(fallible_call("MAP_FROM_ARRAYS", vec![keys, values], data_type, move |args, scope| {
        let missing = new_null_array(&of.arrow(), scope.rows);
        let [keys, values] = args else { return missing };
        let (key_lists, value_lists) = (Lists::of(keys), Lists::of(values));
        let (Some(keys), Some(values)) = (key_lists.values(), value_lists.values()) else { return missing };
        picked(&of, (&[keys.as_ref()], &[values.as_ref()]), scope, |row| {
            let (Some(keys), Some(values)) = (key_lists.range(row), value_lists.range(row)) else { return Ok(None) };
            let (own, other) = (keys.1 - keys.0, values.1 - values.0);
            if own != other {
                return Err(format!("MAP_FROM_ARRAYS of {own} keys and {other} values"));
            }
            Ok(Some((keys.0..keys.1).zip(values.0..values.1).map(|(key, value)| ((0, key), (0, value))).collect()))
        })
    }))
}

/// The entries of each further map come before those so far that it does not replace, as in Flink.
fn map_union(args: Vec<Expr>) -> Resolved {
    if args.is_empty() || args.iter().any(|arg| !matches!(arg.data_type, DataType::Map(..))) {
        return Err(Refusal::Arguments);
    }
    let (args, data_type) = build::coerce_common(args)?;
    let DataType::Map(key, _) = &data_type else { return Err(Refusal::Arguments) };
    let (key, of) = (key.as_ref().clone(), data_type.clone());
    Ok(call("MAP_UNION", args, data_type, move |args, scope| {
        let missing = new_null_array(&of.arrow(), scope.rows);
        let maps: Option<Vec<Entries<'_>>> = args.iter().map(Entries::of).collect();
        let Some(maps) = maps else { return missing };
        let identities: Option<Vec<RowKeys>> = maps.iter().map(|map| encoded(&key, map.keys)).collect();
        let Some(identities) = identities else { return missing };
        let identity = |place: Place| identities.get(place.0).map_or(&[][..], |keys| keys.row(place.1));
        let keys: Vec<&dyn Array> = maps.iter().map(|map| map.keys.as_ref()).collect();
        let values: Vec<&dyn Array> = maps.iter().map(|map| map.values.as_ref()).collect();
        picked(&of, (&keys, &values), scope, |row| {
            let mut united: Vec<Place> = Vec::new();
            for (part, map) in maps.iter().enumerate() {
                let Some(range) = map.range(row) else { return Ok(None) };
                let mut next: Vec<Place> = range.map(|entry| (part, entry)).collect();
                let known: std::collections::HashSet<&[u8]> = next.iter().map(|place| identity(*place)).collect();
                next.extend(united.into_iter().filter(|place| !known.contains(identity(*place))));
                united = next;
            }
            Ok(Some(united.into_iter().map(|place| (place, place)).collect()))
        })
    }))
}

/// Pairs between `,`, key and value between `=`, unless the arguments give other patterns. A pair without the second
/// has a NULL value.
fn str_to_map(args: Vec<Expr>) -> Resolved {
    let mut args = args.into_iter();
    let text = string(args.next().ok_or(Refusal::Arguments)?)?;
    let mut delimiter = |default: &str| match args.next() {
        Some(given) => string(given),
        None => Ok(build::string_literal(default)),
    };
    let (pairs, keys) = (delimiter(",")?, delimiter("=")?);
    if args.next().is_some() {
        return Err(Refusal::Arguments);
    }
    let (pair_pattern, key_pattern) = (Pattern::of(&pairs)?, Pattern::of(&keys)?);
    let data_type = DataType::Map(Box::new(DataType::String), Box::new(DataType::String));
    let of = data_type.clone();
    Ok(fallible_call("STR_TO_MAP", vec![text, pairs, keys], data_type, move |args, scope| {
        let missing = new_null_array(&of.arrow(), scope.rows);
        let [text, pairs, keys] = args else { return missing };
        let (text, pairs, keys) = (text.strings(), pairs.strings(), keys.strings());
        let (mut last_pair, mut last_key) = (None, None);
        let mut all: Vec<(&str, Option<&str>)> = Vec::new();
        let (mut lengths, mut valid) = (Vec::new(), Vec::new());
        for row in 0..scope.rows {
            let before = all.len();
            let given = text.get(row).zip(pairs.get(row)).zip(keys.get(row));
            valid.push(given.is_some());
            if let Some(((text, pairs), keys)) = given {
                match (pair_pattern.get(pairs, &mut last_pair), key_pattern.get(keys, &mut last_key)) {
                    (Some(pairs), Some(keys)) => all.extend(read_pairs(text, pairs, keys)),
                    _ => scope.fail(row, "a delimiter of STR_TO_MAP is no regular expression that is supported"),
                }
            }
            lengths.push(all.len() - before);
        }
        let keys: StringArray = all.iter().map(|(key, _)| Some(*key)).collect();
        let values: StringArray = all.iter().map(|(_, value)| *value).collect();
        assembled(&of, lengths, Arc::new(keys), Arc::new(values), valid).unwrap_or(missing)
    }))
}

fn read_pairs<'a>(text: &'a str, pairs: &Regex, keys: &Regex) -> Vec<(&'a str, Option<&'a str>)> {
    let mut entries: Vec<(&str, Option<&str>)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut parts = split(pairs, text, usize::MAX);
    // Java's split leaves out empty parts at the end.
    while parts.last() == Some(&"") {
        parts.pop();
    }
    for part in parts {
        let (key, value) = match split(keys, part, 2).as_slice() {
            [key, value] => (*key, Some(*value)),
            _ => (part, None),
        };
        let at = *places.entry(key).or_insert(entries.len());
        match entries.get_mut(at) {
            Some(known) => known.1 = value,
            None => entries.push((key, value)),
        }
    }
    entries
}

/// At most `most` parts between matches; a match of no width in front makes no empty part.
fn split<'a>(regex: &Regex, text: &'a str, most: usize) -> Vec<&'a str> {
    let (mut parts, mut from) = (Vec::new(), 0);
    for found in java_regex::places(regex, text) {
        if parts.len() + 1 >= most {
            break;
        }
        if found.end > 0 {
            parts.push(text.get(from..found.start).unwrap_or_default());
            from = found.end;
        }
    }
    parts.push(text.get(from..).unwrap_or_default());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, pairs: &str, keys: &str) -> String {
        let regex = |pattern: &str| Regex::new(pattern).unwrap();
        let entries = read_pairs(text, &regex(pairs), &regex(keys));
        let shown = entries.iter().map(|(key, value)| format!("{key}={}", value.unwrap_or("NULL")));
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn texts_are_split_as_java_splits() {
        assert_eq!(read("a=1,b=2", ",", "="), "a=1 b=2");
        assert_eq!(read("a=1,b,c=", ",", "="), "a=1 b=NULL c=");
        assert_eq!(read("a=1=2,,a=3,,", ",", "="), "a=3 =NULL");
        assert_eq!(read("", ",", "="), "");
        assert_eq!(read(",,", ",", "="), "");
        assert_eq!(read("a1b2", "", "[0-9]"), "a=NULL = b=NULL");
    }
}
