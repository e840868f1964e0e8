//! JSON scalars as Proxmox VE sends them: numbers as text, text as numbers, booleans as 0, 1 or "1".
//!
//! Numbers keep the very characters PVE printed, so that a value read is a value that can be
//! compared; they are never passed through a float.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::value::RawValue;

/// One JSON value, read leniently. It borrows from the answer: most are numbers and words that nobody keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scalar<'a> {
    /// `null`.
    Null,
    /// A string's content, a number's characters, or `0`/`1` for a boolean.
    Text(Cow<'a, str>),
    /// A list or object, as JSON.
    Nested(&'a str),
}

impl<'de: 'a, 'a> Deserialize<'de> for Scalar<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        Ok(match raw.as_bytes().first() {
            // Most strings have nothing to decode, and are many in every answer.
            Some(b'"') if !raw.contains('\\') => Self::Text(raw[1..raw.len() - 1].into()),
            Some(b'"') => {
                let text: String = serde_json::from_str(raw).map_err(D::Error::custom)?;
                Self::Text(text.into())
            }
            Some(b'[' | b'{') => Self::Nested(raw),
            _ => match raw {
                "null" => Self::Null,
                "true" => Self::Text("1".into()),
                "false" => Self::Text("0".into()),
                number => Self::Text(number.into()),
            },
        })
    }
}

impl<'a> Scalar<'a> {
    /// The value as text; `None` for null.
    fn into_text(self) -> Option<Cow<'a, str>> {
        match self {
            Self::Null => None,
            Self::Text(text) => Some(text),
            Self::Nested(json) => Some(json.into()),
        }
    }

    /// The same, to be kept.
    pub(super) fn into_string(self) -> Option<String> {
        self.into_text().map(Cow::into_owned)
    }

    /// The value as a boolean in any of PVE's spellings; none if it is no such.
    pub(super) fn into_flag(self) -> Option<bool> {
        match self.into_word().as_deref() {
            None | Some("0" | "false" | "no" | "off") => Some(false),
            Some("1" | "true" | "yes" | "on") => Some(true),
            Some(_) => None,
        }
    }

    /// The value as text if it says anything: not null, not empty, not a list or object.
    fn into_word(self) -> Option<Cow<'a, str>> {
        match self {
            Self::Text(text) if !text.is_empty() => Some(text),
            Self::Null | Self::Text(_) | Self::Nested(_) => None,
        }
    }
}

/// Any scalar as text; null is none.
pub(super) fn opt_text<'de, D: Deserializer<'de>>(d: D) -> Result<Option<String>, D::Error> {
    Ok(Scalar::deserialize(d)?.into_string())
}

/// Any scalar as text; null is refused.
pub(super) fn text<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    word(d).map(Cow::into_owned)
}

/// The same, for whoever only looks at it.
pub(super) fn word<'de, D: Deserializer<'de>>(d: D) -> Result<Cow<'de, str>, D::Error> {
    let text = Scalar::deserialize(d)?.into_text();
    text.ok_or_else(|| D::Error::custom("null where a text is due"))
}

/// A whole number, also inside a string, also written with a fraction; null and "" are none.
pub(super) fn opt_u64<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
    match Scalar::deserialize(d)?.into_word() {
        None => Ok(None),
        Some(word) => whole(&word).map(Some).ok_or_else(|| D::Error::custom("not a number")),
    }
}

/// A number that is no more than known or not: what is odd is none.
pub(super) fn known_u64<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
    Ok(Scalar::deserialize(d)?.into_word().and_then(|word| whole(&word)))
}

/// The moment of something that has happened if the field is there, also when nobody can say when.
pub(super) fn some_moment<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
    Ok(match Scalar::deserialize(d)? {
        Scalar::Null => None,
        Scalar::Text(word) => Some(whole(&word).unwrap_or(0)),
        Scalar::Nested(_) => Some(0),
    })
}

/// The rows of a list inside a row, without those that cannot be read; anything but a list has none.
pub(super) fn readable_rows<'de, D, T>(d: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: for<'r> Deserialize<'r>,
{
    let raw = <&RawValue>::deserialize(d)?.get();
    let rows: Vec<&RawValue> = serde_json::from_str(raw).unwrap_or_default();
    Ok(rows.into_iter().filter_map(|row| serde_json::from_str(row.get()).ok()).collect())
}

/// The whole part of a number that is not negative.
fn whole(word: &str) -> Option<u64> {
    if let Ok(number) = word.parse::<u64>() {
        return Some(number);
    }
    let number: f64 = word.parse().ok()?;
    // 2^53: beyond it a float no longer tells neighbouring integers apart.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked, and dropping the fraction is meant"
    )]
    (0.0..=9_007_199_254_740_992.0).contains(&number).then_some(number as u64)
}

/// A boolean in any of PVE's spellings; absent, null and "" are false.
pub(super) fn flag<'de, D: Deserializer<'de>>(d: D) -> Result<bool, D::Error> {
    Scalar::deserialize(d)?.into_flag().ok_or_else(|| D::Error::custom("not a boolean"))
}

/// A value with a text form, such as a guest number, from any scalar.
pub(super) fn parsed<'de, D, T>(d: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
    T::Err: fmt::Display,
{
    word(d)?.parse().map_err(D::Error::custom)
}

/// Like [`parsed`]; null and "" are none.
pub(super) fn opt_parsed<'de, D, T>(d: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
    T::Err: fmt::Display,
{
    let value = Scalar::deserialize(d)?;
    // Something is there, so none would say more than is known.
    if let Scalar::Nested(_) = value {
        return Err(D::Error::custom("a list or an object where one value belongs"));
    }
    match value.into_word() {
        None => Ok(None),
        Some(word) => word.parse().map(Some).map_err(D::Error::custom),
    }
}

/// An object of scalars; null values are left out, and anything but an object is empty.
pub(super) fn text_map<'de, D: Deserializer<'de>>(
    d: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let raw = <&RawValue>::deserialize(d)?.get();
    Ok(serde_json::from_str(raw).map(|TextMap(texts)| texts).unwrap_or_default())
}

/// An object of scalars, such as `GET /cluster/options`; null values are left out, nested ones stay JSON.
pub(super) struct TextMap(pub(super) BTreeMap<String, String>);

impl<'de> Deserialize<'de> for TextMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entries = BTreeMap::<String, Scalar<'_>>::deserialize(deserializer)?.into_iter();
        Ok(Self(entries.filter_map(|(key, value)| Some((key, value.into_string()?))).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Sample {
        #[serde(default, deserialize_with = "opt_text")]
        text: Option<String>,
        #[serde(default, deserialize_with = "opt_u64")]
        number: Option<u64>,
        #[serde(default, deserialize_with = "flag")]
        flag: bool,
    }

    fn sample(json: &str) -> serde_json::Result<Sample> {
        serde_json::from_str(json)
    }

    #[test]
    fn a_scalar_becomes_the_text_pve_printed() {
        for (json, text) in [
            (r#"{"text":"1.50"}"#, Some("1.50")),
            (r#"{"text":1.50}"#, Some("1.50")),
            (r#"{"text":12345678901234567890123}"#, Some("12345678901234567890123")),
            (r#"{"text":1e+20}"#, Some("1e+20")),
            (r#"{"text":0}"#, Some("0")),
            (r#"{"text":true}"#, Some("1")),
            (r#"{"text":" "}"#, Some(" ")),
            (r#"{"text":"a\nb"}"#, Some("a\nb")),
            (r#"{"text":null}"#, None),
            (r#"{"text":[["lxc.a","b"]]}"#, Some(r#"[["lxc.a","b"]]"#)),
            ("{}", None),
        ] {
            assert_eq!(sample(json).unwrap().text.as_deref(), text, "{json}");
        }
    }

    #[test]
    fn numbers_and_booleans_are_read_from_numbers_and_texts() {
        for (json, number) in [
            (r#"{"number":7}"#, Some(7)),
            (r#"{"number":"7"}"#, Some(7)),
            (r#"{"number":7.9}"#, Some(7)),
            (r#"{"number":""}"#, None),
            (r#"{"number":null}"#, None),
        ] {
            assert_eq!(sample(json).unwrap().number, number, "{json}");
        }
        for (json, flag) in [
            (r#"{"flag":1}"#, true),
            (r#"{"flag":"1"}"#, true),
            (r#"{"flag":true}"#, true),
            (r#"{"flag":0}"#, false),
            (r#"{"flag":""}"#, false),
            (r#"{"flag":null}"#, false),
            ("{}", false),
        ] {
            assert_eq!(sample(json).unwrap().flag, flag, "{json}");
        }
        for json in
            [r#"{"number":-1}"#, r#"{"number":"x"}"#, r#"{"number":1e300}"#, r#"{"flag":2}"#]
        {
            assert!(sample(json).is_err(), "{json}");
        }
    }
}
