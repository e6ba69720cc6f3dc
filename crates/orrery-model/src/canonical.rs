//! Canonical JSON text of attributes, for storage, hashing and comparison, written without an
//! intermediate tree.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// Deserializer that appends a value as canonical JSON: keys sorted, no spaces, the last of
/// duplicate keys wins.
pub(crate) struct CanonicalWriter<'a> {
    pub(crate) out: &'a mut Vec<u8>,
    /// Keys to omit from this object, but not from nested objects.
    pub(crate) without: &'a [&'a str],
}

impl CanonicalWriter<'_> {
    fn write<T: serde::Serialize + ?Sized, E: serde::de::Error>(self, value: &T) -> Result<(), E> {
        serde_json::to_writer(self.out, value).map_err(E::custom)
    }
}

impl<'de> DeserializeSeed<'de> for CanonicalWriter<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for CanonicalWriter<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.write(&())
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<(), E> {
        self.write(&())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.write(&value)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.write(&value)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.write(&value)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        self.write(&value)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        self.write(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.out.push(b'[');
        let begin = self.out.len();
        loop {
            let end = self.out.len();
            if end > begin {
                self.out.push(b',');
            }
            let item = CanonicalWriter { out: &mut *self.out, without: &[] };
            if items.next_element_seed(item)?.is_none() {
                self.out.truncate(end);
                break;
            }
        }
        self.out.push(b']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        self.out.push(b'{');
        let begin = self.out.len();
        // Range of each key's value in the output.
        let mut found: Vec<(Cow<'de, str>, std::ops::Range<usize>)> = Vec::new();
        while let Some(key) = entries.next_key_seed(Key)? {
            if self.without.contains(&&*key) {
                entries.next_value::<serde::de::IgnoredAny>()?;
                continue;
            }
            let start = self.out.len();
            serde_json::to_writer(&mut *self.out, &*key).map_err(A::Error::custom)?;
            self.out.push(b':');
            entries.next_value_seed(CanonicalWriter { out: &mut *self.out, without: &[] })?;
            self.out.push(b',');
            found.push((key, start..self.out.len()));
        }
        if !found.is_sorted_by(|(one, _), (other, _)| one < other) {
            // Stable, so that the last of equal keys stays last.
            found.sort_by(|(one, _), (other, _)| one.cmp(other));
            let written = self.out.split_off(begin);
            for (place, (key, range)) in found.iter().enumerate() {
                if found.get(place + 1).is_none_or(|(next, _)| next != key) {
                    self.out.extend_from_slice(&written[range.start - begin..range.end - begin]);
                }
            }
        }
        // Trailing comma.
        if !found.is_empty() {
            self.out.pop();
        }
        self.out.push(b'}');
        Ok(())
    }
}

/// Key of an object, borrowed where possible.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, key: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(key))
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(key.to_owned()))
    }

    fn visit_string<E: serde::de::Error>(self, key: String) -> Result<Self::Value, E> {
        Ok(Cow::Owned(key))
    }
}
