//! Regular expressions for numbers within bounds, for values that are text.
//!
//! `pattern.rs` builds the patterns of sizes, counts and slots from these. They match whole numbers
//! and decimals by value, as the reader does, and never look at what surrounds the number.

use crate::model::quantity::{Bytes, Decimal};

/// The largest whole number a [`Decimal`] holds.
const ALL_DIGITS: u128 = 10_u128.pow(18) - 1;
const _: () = assert!(Decimal::DIGITS_MAX == 18, "the two must go together");

/// A whole number without leading zeros.
pub(super) fn whole(min: u128, max: u128) -> String {
    let mut choices = Vec::new();
    let mut full: Option<(usize, usize)> = None;
    for length in digits(min).len()..=digits(max).len() {
        let least = 10_u128.pow(u32::try_from(length - 1).expect("a number has few digits"));
        let low = min.max(if length == 1 { 0 } else { least });
        let high = max.min(least * 10 - 1);
        if low == least && high == least * 10 - 1 {
            full = Some((full.map_or(length, |(first, _)| first), length));
        } else {
            choices.push(same_length(&digits(low), &digits(high)));
        }
    }
    if let Some((first, last)) = full {
        choices.push(format!("[1-9]{}", repeated(first - 1, last - 1)));
    }
    group(&choices)
}

/// A whole number that may have leading zeros.
pub(super) fn zero_padded(min: i64, max: i64) -> String {
    format!("0*{}", whole(natural(min), natural(max)))
}

/// A decimal number of at most `max`; `-0` is 0.
pub(super) fn decimal(max: i64) -> String {
    format!("(?:-(?=\\.?0)0*(?:\\.0*)?|{})", between(None, Top::Through(natural(max))))
}

/// The GiB after a storage.
pub(super) fn allocation() -> String {
    format!("(?=[0-9]){}", between(None, below_all_bytes(u128::from(Bytes::GIB))))
}

/// A size with its unit, of at least so many MiB.
pub(super) fn size(min_mib: i64) -> String {
    let least_bytes = natural(min_mib) * u128::from(Bytes::MIB);
    let choices: Vec<String> = Bytes::UNITS
        .iter()
        .map(|(names, factor)| {
            let factor = u128::from(*factor);
            let low = (least_bytes > 0).then(|| RangePoint::ratio(least_bytes, factor));
            format!("{} *(?:{})", between(low, below_all_bytes(factor)), names.join("|"))
        })
        .collect();
    group(&choices)
}

/// A finite decimal: whole part and the digits after the point, without trailing zeros.
struct RangePoint {
    whole: u128,
    fraction: String,
}

impl RangePoint {
    /// `over / under`, where `under` has no prime factors but 2 and 5.
    fn ratio(over: u128, under: u128) -> Self {
        let whole = over / under;
        let mut rest = over % under;
        let mut fraction = String::new();
        while rest > 0 {
            rest *= 10;
            fraction.push_str(&(rest / under).to_string());
            rest %= under;
        }
        Self { whole, fraction }
    }
}

/// Where a decimal must end.
enum Top {
    /// Anywhere: the number of its digits is bound enough.
    Anywhere,
    /// At this whole number, itself included.
    Through(u128),
    /// Below this.
    Below(RangePoint),
}

/// As many bytes as a `u64` counts, in units of `factor`.
fn below_all_bytes(factor: u128) -> Top {
    let top = RangePoint::ratio(1 << 64, factor);
    if top.whole > ALL_DIGITS { Top::Anywhere } else { Top::Below(top) }
}

fn between(low: Option<RangePoint>, top: Top) -> String {
    let mut choices = Vec::new();
    let mut first = 0;
    if let Some(low) = low {
        choices.push(format!("{}{}", exactly(low.whole), fraction_from(&low.fraction)));
        first = low.whole + 1;
    }
    let any_fraction = "(?:\\.[0-9]*)?";
    let last = match top {
        Top::Anywhere => ALL_DIGITS,
        Top::Through(last) => {
            choices.push(format!("{}(?:\\.0*)?", exactly(last)));
            last - 1
        }
        Top::Below(point) => {
            if !point.fraction.is_empty() {
                let below = fraction_below(&point.fraction);
                choices.push(format!("{}(?:\\.{below})?", exactly(point.whole)));
            }
            point.whole - 1
        }
    };
    if first == 0 {
        choices.push(format!("0*(?:{})?{any_fraction}", whole(1, last)));
    } else {
        choices.push(format!("0*{}{any_fraction}", whole(first, last)));
    }
    // A digit somewhere, and not more of them than a `Decimal` holds.
    let too_many = Decimal::DIGITS_MAX + 1;
    format!("(?=\\.?[0-9])(?!(?:\\.?[0-9]){{{too_many}}}){}", group(&choices))
}

/// One whole part. That of a number below 1 may be left out.
fn exactly(number: u128) -> String {
    if number == 0 { "0*".to_owned() } else { format!("0*{number}") }
}

/// The point and digits of a fraction of at least this.
fn fraction_from(least: &str) -> String {
    fn digits_from(least: &[u8]) -> String {
        match least {
            [] => "[0-9]*".to_owned(),
            [b'9', rest @ ..] => format!("9{}", digits_from(rest)),
            [digit, rest @ ..] => {
                let more = char::from(digit + 1);
                format!("(?:[{more}-9][0-9]*|{}{})", char::from(*digit), digits_from(rest))
            }
        }
    }
    if least.is_empty() {
        "(?:\\.[0-9]*)?".to_owned()
    } else {
        format!("\\.{}", digits_from(least.as_bytes()))
    }
}

/// The digits of a fraction below this.
fn fraction_below(bound: &str) -> String {
    let [digit, rest @ ..] = bound.as_bytes() else {
        return String::new();
    };
    let mut choices = Vec::new();
    if *digit > b'0' {
        choices.push(format!("[0-{}][0-9]*", char::from(digit - 1)));
    }
    if !rest.is_empty() {
        let rest = std::str::from_utf8(rest).expect("digits are text");
        choices.push(format!("{}{}", char::from(*digit), fraction_below(rest)));
    }
    format!("(?:{})?", choices.join("|"))
}

/// Numbers of one length.
fn same_length(low: &str, high: &str) -> String {
    let (Some(first), Some(last)) = (low.chars().next(), high.chars().next()) else {
        return String::new();
    };
    let low = &low[1..];
    let high = &high[1..];
    if first == last {
        return format!("{first}{}", same_length(low, high));
    }
    let next = |digit: char| char::from(u8::try_from(digit).expect("a digit is ASCII") + 1);
    let previous = |digit: char| char::from(u8::try_from(digit).expect("a digit is ASCII") - 1);
    let mut from = first;
    let mut through = last;
    let mut choices = Vec::new();
    if low.bytes().any(|b| b != b'0') {
        choices.push(format!("{first}{}", same_length(low, &"9".repeat(low.len()))));
        from = next(first);
    }
    if high.bytes().any(|b| b != b'9') {
        choices.push(format!("{last}{}", same_length(&"0".repeat(high.len()), high)));
        through = previous(last);
    }
    if from == through {
        choices.push(format!("{from}{}", repeated(low.len(), low.len())));
    } else if from < through {
        choices.push(format!("[{from}-{through}]{}", repeated(low.len(), low.len())));
    }
    group(&choices)
}

fn repeated(least: usize, most: usize) -> String {
    match (least, most) {
        (0, 0) => String::new(),
        (1, 1) => "[0-9]".to_owned(),
        (least, most) if least == most => format!("[0-9]{{{least}}}"),
        (least, most) => format!("[0-9]{{{least},{most}}}"),
    }
}

fn group(choices: &[String]) -> String {
    match choices {
        [one] => one.clone(),
        many => format!("(?:{})", many.join("|")),
    }
}

fn digits(number: u128) -> String {
    number.to_string()
}

/// Bounds are never negative.
fn natural(number: i64) -> u128 {
    u128::try_from(number).expect("the registry has no negative bounds")
}
