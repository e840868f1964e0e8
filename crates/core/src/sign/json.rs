//! Strict JSON: the only reading of signed bytes, with nothing left to a parser's taste.
//!
//! Texts, non-negative integers, lists and objects; no null, no boolean, no fraction, no repeated name,
//! no NUL, nothing before or after the one object. Parsers differ on all of these, and a signature is
//! worth what both sides read in the same bytes. The statement readers take each field by name and then
//! ask that none is left.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// How deep objects and lists may nest. A statement needs three levels.
const DEPTH_MAX: usize = 8;

/// Why bytes are not the object they should be, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Malformed(pub(crate) String);

impl Malformed {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Json {
    Text(String),
    Integer(u64),
    List(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

/// Reads one object and nothing else.
pub(crate) fn parse(bytes: &[u8], bytes_max: usize) -> Result<JsonFields, Malformed> {
    if bytes.len() > bytes_max {
        return Err(Malformed::new(format!("longer than {bytes_max} bytes")));
    }
    if bytes.first() != Some(&b'{') || bytes.last() != Some(&b'}') {
        return Err(Malformed::new("not exactly one JSON object, with nothing before or after it"));
    }
    let mut parser = serde_json::Deserializer::from_slice(bytes);
    let value = JsonDepth(DEPTH_MAX)
        .deserialize(&mut parser)
        .and_then(|value| parser.end().map(|()| value))
        .map_err(|error| Malformed::new(error.to_string()))?;
    JsonFields::of("the statement", value)
}

/// An object whose fields are taken one by one.
#[derive(Debug)]
pub(crate) struct JsonFields {
    what: &'static str,
    left: BTreeMap<String, Json>,
}

impl JsonFields {
    /// The fields of a value that must be an object.
    pub(crate) fn of(what: &'static str, value: Json) -> Result<Self, Malformed> {
        match value {
            Json::Object(left) => Ok(Self { what, left }),
            Json::Text(_) | Json::Integer(_) | Json::List(_) => {
                Err(Malformed::new(format!("{what} is not an object")))
            }
        }
    }

    pub(crate) fn take(&mut self, name: &str) -> Result<Json, Malformed> {
        let what = self.what;
        self.left.remove(name).ok_or_else(|| Malformed::new(format!("{what} has no `{name}`")))
    }

    /// A field that came into a format later and need not be there.
    pub(crate) fn take_if_there(&mut self, name: &str) -> Option<Json> {
        self.left.remove(name)
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<String, Malformed> {
        match self.take(name)? {
            Json::Text(text) => Ok(text),
            Json::Integer(_) | Json::List(_) | Json::Object(_) => {
                Err(Malformed::new(format!("`{name}` is not text")))
            }
        }
    }

    /// A text that is the printed form of a value.
    pub(crate) fn parsed<T>(&mut self, name: &str) -> Result<T, Malformed>
    where
        T: std::str::FromStr<Err: fmt::Display>,
    {
        let text = self.text(name)?;
        text.parse().map_err(|error| Malformed::new(format!("`{name}`: {error}")))
    }

    pub(crate) fn integer(&mut self, name: &str) -> Result<u64, Malformed> {
        match self.take(name)? {
            Json::Integer(number) => Ok(number),
            Json::Text(_) | Json::List(_) | Json::Object(_) => {
                Err(Malformed::new(format!("`{name}` is not a whole number")))
            }
        }
    }

    pub(crate) fn list(&mut self, name: &str) -> Result<Vec<Json>, Malformed> {
        match self.take(name)? {
            Json::List(items) => Ok(items),
            Json::Text(_) | Json::Integer(_) | Json::Object(_) => {
                Err(Malformed::new(format!("`{name}` is not a list")))
            }
        }
    }

    pub(crate) fn object(&mut self, name: &'static str) -> Result<Self, Malformed> {
        Self::of(name, self.take(name)?)
    }

    /// The one text this field must hold.
    pub(crate) fn exactly(&mut self, name: &str, text: &str) -> Result<(), Malformed> {
        let found = self.text(name)?;
        if found == text {
            return Ok(());
        }
        Err(Malformed::new(format!("`{name}` is `{}`, not `{text}`", found.escape_debug())))
    }

    /// All fields as texts.
    pub(crate) fn into_texts(self) -> Result<BTreeMap<String, String>, Malformed> {
        let text = |(name, value)| match value {
            Json::Text(text) => Ok((name, text)),
            Json::Integer(_) | Json::List(_) | Json::Object(_) => {
                Err(Malformed::new(format!("`{name}` is not text")))
            }
        };
        self.left.into_iter().map(text).collect()
    }

    /// No field may be left that nobody asked for.
    pub(crate) fn finish(self) -> Result<(), Malformed> {
        match self.left.keys().next() {
            None => Ok(()),
            Some(name) => Err(Malformed::new(format!(
                "{} has an unknown field `{}`",
                self.what,
                name.escape_debug()
            ))),
        }
    }
}

/// How many levels may still be opened.
#[derive(Clone, Copy)]
struct JsonDepth(usize);

impl JsonDepth {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        match self.0.checked_sub(1) {
            Some(left) => Ok(Self(left)),
            None => Err(E::custom(format!("nested deeper than {DEPTH_MAX} levels"))),
        }
    }
}

impl<'de> DeserializeSeed<'de> for JsonDepth {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Only the visits of what is allowed are here; serde refuses every other value by itself.
impl<'de> Visitor<'de> for JsonDepth {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, a whole number, a list or an object")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Json, E> {
        plain(text).map(|()| Json::Text(text.to_owned()))
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Json, E> {
        Ok(Json::Integer(number))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let deeper = self.deeper()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(deeper)? {
            list.push(item);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Json, A::Error> {
        let deeper = self.deeper()?;
        let mut object = BTreeMap::new();
        while let Some(name) = entries.next_key::<String>()? {
            plain(&name)?;
            let value = entries.next_value_seed(deeper)?;
            if object.contains_key(&name) {
                return Err(A::Error::custom(format!(
                    "the name `{}` stands twice",
                    name.escape_debug()
                )));
            }
            object.insert(name, value);
        }
        Ok(Json::Object(object))
    }
}

/// A NUL ends a text for some readers and not for others.
fn plain<E: serde::de::Error>(text: &str) -> Result<(), E> {
    if text.contains('\0') { Err(E::custom("a NUL character")) } else { Ok(()) }
}
