//! Numbers that know their unit: bytes of a disk, mebibytes of memory, decimals PVE keeps as text.
//!
//! Proxmox spells a size `8G` and means gibibytes; people spell it `8GiB` and mean the same, or `8GB` and mean one
//! or the other, which is asked and never guessed. Sizes are read and printed here, and only here.

use std::fmt;
use std::str::FromStr;

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// It does not start with a number, or goes on after its unit.
    #[error("`{0}` is not a size")]
    NotASize(String),
    /// A number alone could mean bytes, megabytes or gigabytes.
    #[error("`{0}` has no unit")]
    NoUnit(String),
    /// A unit of powers of ten, or a spelling that could be one: Proxmox VE counts in powers of two, and so do
    /// the people who use it, whatever they write.
    #[error("`{text}` is not clear: `{unit}` may count in thousands, and Proxmox VE does not")]
    OtherUnit {
        /// The whole text.
        text: String,
        /// The unit in it.
        unit: String,
        /// The same number with the unit that was likely meant.
        meant: String,
    },
    /// More than we can count.
    #[error("`{0}` is more than Proxmox VE can count")]
    TooLarge(String),
    /// Not a plain decimal number.
    #[error("`{0}` is not a decimal number")]
    NotADecimal(String),
}

impl QuantityError {
    /// What to write instead, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotASize(_) => {
                Some("write a number and a unit, such as 16GiB or 512MiB".to_owned())
            }
            Self::NoUnit(text) => Some(format!("write {text}GiB or {text}MiB")),
            Self::OtherUnit { meant, .. } => Some(format!("write {meant}")),
            Self::TooLarge(_) => Some("write a smaller one, such as 16GiB".to_owned()),
            Self::NotADecimal(_) => None,
        }
    }
}

/// A size in bytes, printed as PVE prints it: with the largest binary unit that divides it exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    /// One kibibyte.
    pub const KIB: u64 = 1 << 10;
    /// One mebibyte.
    pub const MIB: u64 = 1 << 20;
    /// One gibibyte.
    pub const GIB: u64 = 1 << 30;
    /// One tebibyte.
    pub const TIB: u64 = 1 << 40;

    /// The units a person may write.
    pub const UNITS: &'static [(&'static [&'static str], u64)] = &[
        (&["B"], 1),
        (&["K", "KiB"], Self::KIB),
        (&["M", "MiB"], Self::MIB),
        (&["G", "GiB"], Self::GIB),
        (&["T", "TiB"], Self::TIB),
    ];

    /// Reads PVE's own form: digits, an optional fraction, an optional `K`, `M`, `G` or `T`. A number
    /// alone is bytes.
    pub fn from_pve(text: &str) -> Result<Self, QuantityError> {
        let (number, unit) = match text.strip_suffix(['K', 'M', 'G', 'T']) {
            Some(number) => (number, &text[number.len()..]),
            None => (text, ""),
        };
        let factor = match unit {
            "K" => Self::KIB,
            "M" => Self::MIB,
            "G" => Self::GIB,
            "T" => Self::TIB,
            _ => 1,
        };
        scale(number, factor, text)
    }

    /// Reads what a person writes: PVE's units, or `KiB` to `TiB`. A unit is required, because a bare number means
    /// bytes to PVE and gibibytes to most people; `GB` and its like are refused with the unit to write instead.
    pub fn from_person(text: &str) -> Result<Self, QuantityError> {
        let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let factor = match unit {
            "" => {
                return Err(match number.parse::<Decimal>() {
                    Ok(_) => QuantityError::NoUnit(text.to_owned()),
                    Err(_) => QuantityError::NotASize(text.to_owned()),
                });
            }
            unit => Self::UNITS
                .iter()
                .find(|(names, _)| names.contains(&unit))
                .map(|(_, factor)| *factor)
                .ok_or_else(|| other_unit(text, number, unit))?,
        };
        scale(number.trim_end_matches(' '), factor, text)
    }

    /// The size as a plan or a message shows it: `8 GiB`, `1536 MiB`. Never read back by anybody.
    pub fn shown(self) -> String {
        for (unit, factor) in
            [("TiB", Self::TIB), ("GiB", Self::GIB), ("MiB", Self::MIB), ("KiB", Self::KIB)]
        {
            if self.0 > 0 && self.0.is_multiple_of(factor) {
                return format!("{} {unit}", self.0 / factor);
            }
        }
        if self.0 == 1 { "1 byte".to_owned() } else { format!("{} bytes", self.0) }
    }

    /// Whole mebibytes, rounded down.
    pub fn whole_mib(self) -> u64 {
        self.0 / Self::MIB
    }

    /// The number of gibibytes as the plain decimal PVE takes in `STORAGE:GiB`. Twelve digits, rounded up:
    /// PVE rounds down to whole KiB, and then gets back every whole number of KiB that was meant.
    pub fn gib_decimal(self) -> String {
        const SCALE: u128 = 1_000_000_000_000;
        let scaled = (u128::from(self.0) * SCALE).div_ceil(u128::from(Self::GIB));
        let whole = scaled / SCALE;
        let fraction = scaled % SCALE;
        let text = format!("{whole}.{fraction:012}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

/// What people write for our units, in lower case.
const OTHER_UNITS: &[(&str, &[&str])] = &[
    ("KiB", &["k", "kb", "ki", "kib", "kilobyte", "kilobytes", "kibibytes"]),
    ("MiB", &["m", "mb", "mi", "mib", "meg", "megs", "megabyte", "megabytes", "mebibytes"]),
    ("GiB", &["g", "gb", "gi", "gib", "gig", "gigs", "gigabyte", "gigabytes", "gibibytes"]),
    ("TiB", &["t", "tb", "ti", "tib", "terabyte", "terabytes", "tebibytes"]),
];

/// The refusal of a unit that is none of ours, with the one that was likely meant.
fn other_unit(text: &str, number: &str, unit: &str) -> QuantityError {
    let number = number.trim_end_matches(' ');
    let lower = unit.to_ascii_lowercase();
    let meant = OTHER_UNITS.iter().find(|(_, words)| words.contains(&lower.as_str()));
    let is_number = number.parse::<Decimal>().is_ok() && !number.starts_with('-');
    match meant {
        Some((ours, _)) if is_number => QuantityError::OtherUnit {
            text: text.to_owned(),
            unit: unit.to_owned(),
            meant: format!("{number}{ours}"),
        },
        Some(_) | None => QuantityError::NotASize(text.to_owned()),
    }
}

/// `number` (digits with an optional fraction) times `factor`, rounded down.
fn scale(number: &str, factor: u64, whole: &str) -> Result<Bytes, QuantityError> {
    let decimal: Decimal = number.parse().map_err(|_| QuantityError::NotASize(whole.to_owned()))?;
    if number.starts_with('-') {
        return Err(QuantityError::NotASize(whole.to_owned()));
    }
    let scaled =
        i128::from(decimal.mantissa) * i128::from(factor) / 10_i128.pow(u32::from(decimal.scale));
    u64::try_from(scaled).map(Bytes).map_err(|_| QuantityError::TooLarge(whole.to_owned()))
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, factor) in
            [("T", Self::TIB), ("G", Self::GIB), ("M", Self::MIB), ("K", Self::KIB)]
        {
            if self.0.is_multiple_of(factor) {
                return write!(f, "{}{unit}", self.0 / factor);
            }
        }
        self.0.fmt(f)
    }
}

/// A decimal number by value: `2`, `2.0` and `02` are the same. Never a float, so that nothing that
/// PVE can store compares unequal to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decimal {
    mantissa: i64,
    scale: u8,
}

impl Decimal {
    /// Nothing at all.
    pub const ZERO: Self = Self { mantissa: 0, scale: 0 };

    /// How many digits a decimal has at most, before and after the point together: as many as any
    /// `i64` holds, and few enough that scaling one never leaves an `i128`.
    pub const DIGITS_MAX: usize = 18;

    /// A whole number.
    pub const fn whole(number: i64) -> Self {
        Self { mantissa: number, scale: 0 }
    }

    /// Reads a number as PVE stores one: what `Display` prints, and also with a plus sign or an exponent, because PVE
    /// checks `[+-]?` digits with a point and `[eE][+-]?` digits and keeps the text as it was given.
    pub fn from_pve(text: &str) -> Result<Self, QuantityError> {
        let refuse = || QuantityError::NotADecimal(text.to_owned());
        let unsigned = text.strip_prefix('+').unwrap_or(text);
        if unsigned.len() < text.len() && unsigned.starts_with('-') {
            return Err(refuse());
        }
        let Some((number, exponent)) = unsigned.split_once(['e', 'E']) else {
            return unsigned.parse().map_err(|_| refuse());
        };
        let Self { mantissa, scale } = number.parse().map_err(|_| refuse())?;
        let exponent: i32 = exponent.parse().map_err(|_| refuse())?;
        if mantissa == 0 {
            return Ok(Self::ZERO);
        }
        // Written out again: what has more digits than a decimal holds is refused there.
        let shift = i64::from(exponent) - i64::from(scale);
        let places = usize::try_from(shift.unsigned_abs()).map_err(|_| refuse())?;
        if places > Self::DIGITS_MAX {
            return Err(refuse());
        }
        let digits = mantissa.unsigned_abs().to_string();
        let sign = if mantissa < 0 { "-" } else { "" };
        if shift >= 0 {
            format!("{sign}{digits}{}", "0".repeat(places)).parse().map_err(|_| refuse())
        } else {
            let padded = format!("{digits:0>width$}", width = places + 1);
            let (whole, fraction) = padded.split_at(padded.len() - places);
            format!("{sign}{whole}.{fraction}").parse().map_err(|_| refuse())
        }
    }

    /// Whether it lies within `min..=max`.
    pub fn within(self, min: i64, max: i64) -> bool {
        let one = 10_i128.pow(u32::from(self.scale));
        let value = i128::from(self.mantissa);
        i128::from(min) * one <= value && value <= i128::from(max) * one
    }
}

impl FromStr for Decimal {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let refuse = || QuantityError::NotADecimal(text.to_owned());
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let fraction = fraction.trim_end_matches('0');
        let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if digits.bytes().all(|b| b == b'.') || !all_digits(whole) || !all_digits(fraction) {
            return Err(refuse());
        }
        if digits.bytes().filter(u8::is_ascii_digit).count() > Self::DIGITS_MAX {
            return Err(refuse());
        }
        let number: i64 = match format!("{whole}{fraction}").as_str() {
            "" => 0,
            joined => joined.parse().map_err(|_| refuse())?,
        };
        let scale = u8::try_from(fraction.len()).expect("the digits were counted");
        Ok(Self { mantissa: if negative { -number } else { number }, scale })
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.scale == 0 {
            return self.mantissa.fmt(f);
        }
        let sign = if self.mantissa < 0 { "-" } else { "" };
        let width = usize::from(self.scale) + 1;
        let digits = format!("{:0width$}", self.mantissa.unsigned_abs());
        let (whole, fraction) = digits.split_at(digits.len() - usize::from(self.scale));
        write!(f, "{sign}{whole}.{fraction}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_print_with_the_largest_unit_that_divides_them() {
        for (text, printed) in [
            ("1024G", "1T"),
            ("1536M", "1536M"),
            ("1.5G", "1536M"),
            ("8192M", "8G"),
            ("0", "0T"),
            ("7", "7"),
        ] {
            assert_eq!(Bytes::from_pve(text).unwrap().to_string(), printed, "{text}");
        }
    }

    #[test]
    fn people_must_name_a_unit() {
        assert_eq!(Bytes::from_person("16"), Err(QuantityError::NoUnit("16".into())));
        assert_eq!(Bytes::from_person("1.5 GiB").unwrap().0, 3 << 29);
        for text in ["", "GiB", "-1GiB", "-0GiB", "1GiBs", "1 2GiB", "1e3G", "99999999999999TiB"] {
            assert!(Bytes::from_person(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_unit_of_ten_is_refused_and_the_one_of_two_is_offered() {
        for (text, meant) in [
            ("2GB", "2GiB"),
            ("2 GB", "2GiB"),
            ("2gb", "2GiB"),
            ("2g", "2GiB"),
            ("2gib", "2GiB"),
            ("2Gi", "2GiB"),
            ("2gigabytes", "2GiB"),
            ("512MB", "512MiB"),
            ("512m", "512MiB"),
            ("1.5TB", "1.5TiB"),
            ("64kB", "64KiB"),
            ("64KB", "64KiB"),
        ] {
            let error = Bytes::from_person(text).unwrap_err();
            assert_eq!(error.hint(), Some(format!("write {meant}")), "{text}: {error}");
            assert!(Bytes::from_person(meant).is_ok(), "{meant}");
        }
        for text in ["2 apples", "GB", "2GBs", "-2GB", "2Gx"] {
            let error = Bytes::from_person(text).unwrap_err();
            assert_eq!(error, QuantityError::NotASize(text.into()), "{text}");
        }
        assert_eq!(Bytes::from_person("2G"), Ok(Bytes(2 * Bytes::GIB)), "as PVE means it");
    }

    #[test]
    fn people_are_shown_the_largest_unit_that_is_whole() {
        for (bytes, shown) in [
            (8 * Bytes::GIB, "8 GiB"),
            (1536 * Bytes::MIB, "1536 MiB"),
            (Bytes::TIB, "1 TiB"),
            (1000, "1000 bytes"),
            (1, "1 byte"),
            (0, "0 bytes"),
        ] {
            assert_eq!(Bytes(bytes).shown(), shown);
        }
    }

    #[test]
    fn gibibytes_are_exact_decimals() {
        for (size, text) in [("8G", "8"), ("1536M", "1.5"), ("1000M", "0.9765625"), ("0", "0")] {
            assert_eq!(Bytes::from_pve(size).unwrap().gib_decimal(), text);
        }
    }

    /// Scaling it would leave an `i128`.
    const TINY: &str = "0.0000000000000000000000000000000000000001";

    #[test]
    fn decimals_compare_by_value() {
        for (left, right) in [("2", "2.0"), ("02", "2"), (".5", "0.50"), ("-0", "0"), ("10.", "10")]
        {
            assert_eq!(left.parse::<Decimal>(), right.parse::<Decimal>(), "{left} {right}");
        }
        for text in ["", ".", "-", "1e3", "0x1", "1.2.3", " 1", "99999999999999999999", TINY] {
            assert!(text.parse::<Decimal>().is_err(), "{text}");
        }
        assert_eq!("-0.05".parse::<Decimal>().unwrap().to_string(), "-0.05");
        assert!("128".parse::<Decimal>().unwrap().within(0, 128));
        assert!(!"128.5".parse::<Decimal>().unwrap().within(0, 128));
    }

    #[test]
    fn a_stored_number_may_have_a_sign_and_an_exponent() {
        for (stored, plain) in [
            ("+1.5", "1.5"),
            ("+2", "2"),
            ("-1.5", "-1.5"),
            ("1e0", "1"),
            ("15e-1", "1.5"),
            ("+1.5E+1", "15"),
            ("2E2", "200"),
            ("-25e-3", "-0.025"),
            ("0e99", "0"),
            ("1.50", "1.5"),
        ] {
            assert_eq!(Decimal::from_pve(stored), plain.parse(), "{stored}");
        }
        for text in ["", "+", "++1", "+-1", "1e", "e1", "1e1.5", "1e99", "1e-99", "1e99999999999"] {
            assert!(Decimal::from_pve(text).is_err(), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn printed_quantities_read_back(bytes in 0_u64..(1 << 52), text in "-?[0-9]{1,9}(\\.[0-9]{1,6})?") {
            let size = Bytes(bytes);
            proptest::prop_assert_eq!(Bytes::from_pve(&size.to_string()), Ok(size));
            let decimal: Decimal = text.parse().unwrap();
            proptest::prop_assert_eq!(decimal.to_string().parse::<Decimal>(), Ok(decimal));
        }
    }
}
