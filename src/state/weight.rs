//! How much memory a value takes, about, from the shape in which it is serialized: no second description of every type
//! that could go out of date. The size on disk says little: a counter of one byte there is an enum of 64 here.

use std::fmt;

use serde::ser::{self, Serialize, Serializer};

/// A number, a tag, a position in a struct.
const WORD_BYTES: usize = 8;
/// Of an allocation: the pointer to it, length and capacity, what the allocator adds.
const ALLOCATION_BYTES: usize = 40;
/// Of a variant with content: about what the content leaves free of the largest of its enum, or a box around it.
const VARIANT_BYTES: usize = 24;
/// Places in a node of a B-tree, which the smallest map has whole; two thirds of a large one are taken.
const NODE_PLACES: usize = 11;
/// Of such a place: what an entry owns beside it is not there for those that are free.
const PLACE_BYTES_MAX: usize = 64;

/// About how many bytes of memory a value takes, with all it owns; 0 where its type refuses to be serialized.
pub fn memory_bytes<V: Serialize + ?Sized>(value: &V) -> usize {
    let mut bytes = 0;
    match value.serialize(Weigher(&mut bytes)) {
        Ok(()) => bytes,
        Err(Refused) => 0,
    }
}

/// As [`memory_bytes`], without the value's own place.
pub fn heap_bytes<V: Serialize>(value: &V) -> usize {
    memory_bytes(value).saturating_sub(size_of::<V>())
}

struct Weigher<'a>(&'a mut usize);

#[derive(Debug)]
struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value refuses to be serialized")
    }
}

impl std::error::Error for Refused {}

impl ser::Error for Refused {
    fn custom<T: fmt::Display>(_: T) -> Refused {
        Refused
    }
}

type Weighed = Result<(), Refused>;

impl Weigher<'_> {
    fn add(self, bytes: usize) -> Weighed {
        *self.0 += bytes;
        Ok(())
    }
}

macro_rules! words {
    ($($method:ident: $type:ty),*) => {
        $(fn $method(self, _: $type) -> Weighed {
            self.add(WORD_BYTES.max(size_of::<$type>()))
        })*
    };
}

impl<'a> Serializer for Weigher<'a> {
    type Ok = ();
    type Error = Refused;
    type SerializeSeq = Weigher<'a>;
    type SerializeTuple = Weigher<'a>;
    type SerializeTupleStruct = Weigher<'a>;
    type SerializeTupleVariant = Weigher<'a>;
    type SerializeMap = MapWeigher<'a>;
    type SerializeStruct = Weigher<'a>;
    type SerializeStructVariant = Weigher<'a>;

    words! {
        serialize_bool: bool, serialize_char: char, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32,
        serialize_i64: i64, serialize_i128: i128, serialize_u8: u8, serialize_u16: u16, serialize_u32: u32,
        serialize_u64: u64, serialize_u128: u128, serialize_f32: f32, serialize_f64: f64
    }

    fn serialize_str(self, text: &str) -> Weighed {
        self.add(ALLOCATION_BYTES + text.len())
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Weighed {
        self.add(ALLOCATION_BYTES + bytes.len())
    }

    fn serialize_none(self) -> Weighed {
        self.add(WORD_BYTES)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Weighed {
        *self.0 += WORD_BYTES;
        value.serialize(self)
    }

    fn serialize_unit(self) -> Weighed {
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Weighed {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Weighed {
        self.add(WORD_BYTES)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Weighed {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Weighed {
        *self.0 += VARIANT_BYTES;
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Weigher<'a>, Refused> {
        *self.0 += ALLOCATION_BYTES;
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Weigher<'a>, Refused> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Weigher<'a>, Refused> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Weigher<'a>, Refused> {
        *self.0 += VARIANT_BYTES;
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<MapWeigher<'a>, Refused> {
        *self.0 += ALLOCATION_BYTES;
        Ok(MapWeigher { before: *self.0, bytes: self.0, entries: 0 })
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Weigher<'a>, Refused> {
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Weigher<'a>, Refused> {
        *self.0 += VARIANT_BYTES;
        Ok(self)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

macro_rules! parts {
    ($($kind:ident: $method:ident($($name:ty)?)),*) => {
        $(impl ser::$kind for Weigher<'_> {
            type Ok = ();
            type Error = Refused;

            fn $method<T: Serialize + ?Sized>(&mut self, $(_: $name,)? value: &T) -> Weighed {
                value.serialize(Weigher(self.0))
            }

            fn end(self) -> Weighed {
                Ok(())
            }
        })*
    };
}

parts! {
    SerializeSeq: serialize_element(), SerializeTuple: serialize_element(), SerializeTupleStruct: serialize_field(),
    SerializeTupleVariant: serialize_field(), SerializeStruct: serialize_field(&'static str),
    SerializeStructVariant: serialize_field(&'static str)
}

/// Of a map: the places of its nodes that are free take memory too.
struct MapWeigher<'a> {
    bytes: &'a mut usize,
    before: usize,
    entries: usize,
}

impl ser::SerializeMap for MapWeigher<'_> {
    type Ok = ();
    type Error = Refused;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Weighed {
        self.entries += 1;
        key.serialize(Weigher(self.bytes))
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Weighed {
        value.serialize(Weigher(self.bytes))
    }

    fn end(self) -> Weighed {
        let entry = (*self.bytes - self.before) / self.entries.max(1);
        let free = NODE_PLACES.saturating_sub(self.entries).max(self.entries / 2);
        *self.bytes += entry.min(PLACE_BYTES_MAX) * free;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Serialize;

    use super::heap_bytes;

    #[derive(Serialize)]
    enum Kept {
        Sum { sum: i64, count: i64 },
        Texts(Vec<Box<str>>),
    }

    #[test]
    fn what_is_small_on_disk_is_weighed_as_it_lies_in_memory() {
        let sums = || (0..3).map(|_| Kept::Sum { sum: 1, count: 1 }).collect::<Vec<_>>();
        let lies = 3 * size_of::<Kept>() + 16;
        assert!((lies..=2 * lies).contains(&heap_bytes(&sums())), "{}", heap_bytes(&sums()));
        let texts = Kept::Texts(vec!["x".repeat(1000).into(), "y".repeat(500).into()]);
        assert!((1500..=1700).contains(&heap_bytes(&texts)), "{}", heap_bytes(&texts));
    }

    #[test]
    fn a_map_is_weighed_with_the_places_that_are_free() {
        for entries in [1, 2, 11, 100, 1000] {
            let map: BTreeMap<Box<[u8]>, (u64, u64, u64)> =
                (0..entries).map(|i: u32| (i.to_be_bytes().into(), (0, 0, 0))).collect();
            let nodes = entries.div_ceil(6) as usize;
            let lies = nodes * 11 * (16 + 24) + entries as usize * 24;
            assert!((lies / 3 * 2..=lies * 3).contains(&heap_bytes(&map)), "{entries}: {} {lies}", heap_bytes(&map));
        }
        assert!(heap_bytes(&BTreeMap::<u8, u8>::new()) < 64);
    }
}
