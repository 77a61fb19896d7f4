//! The `schema` field of a document. The rest is checked for brackets and quotes and skipped: a result of a hundred MiB
//! is not kept in memory to learn its kind.

use std::fmt::{self, Formatter};

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// The schema of a document, if it is an object that has one, as text.
pub(super) fn schema(bytes: &[u8]) -> Result<Option<String>, serde_json::Error> {
    let Header(schema) = serde_json::from_slice(bytes)?;
    Ok(schema)
}

struct Header(Option<String>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Fields).map(Self)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Option<String>;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("a document")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut schema = None;
        while let Some(key) = map.next_key::<String>()? {
            if key == "schema" {
                schema = map.next_value::<Value>()?.as_str().map(str::to_owned);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(schema)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}
