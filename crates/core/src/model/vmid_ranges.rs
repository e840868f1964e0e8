//! Sets of guest numbers as a person writes them: `1000-1999, 2500`.
//!
//! The host's policy says with them which numbers a hub may use and which guests may be scratch; a secret says which
//! guests it serves. An empty set holds nothing: whoever leaves it out allows nothing.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::model::id::{IdError, VmId};

/// How many ranges one text may list: more than anybody keeps apart, and few enough to be asked one by one.
const RANGES_MAX: usize = 64;

/// A set of guest numbers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VmidRanges(Vec<(VmId, VmId)>);

impl VmidRanges {
    /// Whether a number is in it.
    pub fn has(&self, vmid: VmId) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&vmid))
    }

    /// Whether no number is in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for VmidRanges {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let refuse = |why| IdError {
            what: "set of guest numbers",
            text: crate::model::name::shown(text),
            why,
        };
        if text.trim_ascii().is_empty() {
            return Ok(Self::default());
        }
        let number = |text: &str| {
            let why = "write numbers and ranges from 100 on, such as \"1000-1999, 2500\"";
            text.trim_ascii().parse::<VmId>().map_err(|_| refuse(why))
        };
        let mut ranges = Vec::new();
        for piece in text.split(',') {
            let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
            let first = number(first)?;
            let last = number(last)?;
            if last < first {
                return Err(refuse("a range begins with its smaller number"));
            }
            ranges.push((first, last));
        }
        if ranges.len() > RANGES_MAX {
            return Err(refuse("it has more than 64 ranges"));
        }
        Ok(Self(ranges))
    }
}

impl TryFrom<String> for VmidRanges {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<VmidRanges> for String {
    fn from(ranges: VmidRanges) -> String {
        ranges.to_string()
    }
}

impl fmt::Display for VmidRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = |(first, last): &(VmId, VmId)| {
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        };
        f.write_str(&self.0.iter().map(range).collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_is_written_and_nothing_else() {
        let ranges: VmidRanges = "1000-1999, 2500,100".parse().unwrap();
        let has = |number: u32| ranges.has(number.try_into().unwrap());
        assert!(has(1000) && has(1999) && has(2500) && has(100));
        assert!(!has(999) && !has(2000) && !has(2501) && !has(101));
        assert_eq!(ranges.to_string(), "1000-1999, 2500, 100");
        let nothing: VmidRanges = " ".parse().unwrap();
        assert!(nothing.is_empty() && !nothing.has(VmId::try_from(100).unwrap()));
    }

    #[test]
    fn what_cannot_hold_is_refused() {
        for text in [
            "99",
            "2000-1000",
            "1000-",
            "-1000",
            "1000--1999",
            "a",
            "1000 1999",
            "1000,",
            "*",
            "01000",
        ] {
            assert!(text.parse::<VmidRanges>().is_err(), "{text}");
        }
        let many = vec!["1000"; RANGES_MAX + 1].join(",");
        assert!(many.parse::<VmidRanges>().is_err());
        assert!(vec!["1000"; RANGES_MAX].join(",").parse::<VmidRanges>().is_ok());
    }
}
