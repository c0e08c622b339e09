//! Keys of entries: short ones without a heap allocation.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::ops::Deref;

/// Longest key that is kept inline: with it a [`Key`] is 32 bytes.
const INLINE_MAX: usize = 30;

/// The bytes of a key. Ordered bytewise.
#[derive(Clone)]
pub struct Key(Repr);

#[derive(Clone)]
enum Repr {
    Inline { len: u8, bytes: [u8; INLINE_MAX] },
    Heap(Box<[u8]>),
}

impl Key {
    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        match &self.0 {
            Repr::Inline { .. } => 0,
            Repr::Heap(bytes) => bytes.len(),
        }
    }
}

impl From<&[u8]> for Key {
    fn from(key: &[u8]) -> Key {
        let mut bytes = [0; INLINE_MAX];
        match (bytes.get_mut(..key.len()), u8::try_from(key.len())) {
            (Some(head), Ok(len)) => {
                head.copy_from_slice(key);
                Key(Repr::Inline { len, bytes })
            }
            _ => Key(Repr::Heap(key.into())),
        }
    }
}

impl Deref for Key {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Repr::Heap(bytes) => bytes,
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        **self == **other
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Hash of a key in memory; fixed seed, so that two runs do the same work. Never stored.
#[inline]
pub(super) fn hash_key(key: &[u8]) -> u64 {
    let mut hasher = foldhash::fast::FixedState::with_seed(0).build_hasher();
    hasher.write(key);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_all_lengths_keep_their_bytes_and_order() {
        assert_eq!(size_of::<Key>(), 32);
        for len in [0, 1, 29, 30, 31, 255, 256, 5000] {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let key = Key::from(bytes.as_slice());
            assert_eq!(&*key, bytes.as_slice());
            assert_eq!(key.heap_bytes() > 0, len > 30);
        }
        assert!(Key::from([1u8, 255].as_slice()) < Key::from([2u8].as_slice()));
        assert!(Key::from([7u8; 40].as_slice()) < Key::from([8u8].as_slice()));
    }
}
