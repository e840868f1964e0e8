//! Property strings and sizes: reading `a=1,b=2` by a format table, printing it in PVE's order.
//!
//! Used by the schema check and by whatever re-prints a value (networks, mount points, drives).
//! This is the simulator's own reading, on purpose independent of the one in `core`.

use std::collections::BTreeMap;

use evenkeel_core::model::release::Release;

use crate::schema::{Schema, SchemaRule, SchemaShape};

/// The keys of one property string, by canonical name.
pub(crate) type Properties = BTreeMap<String, String>;

/// Reads a property string; the error is PVE's message without the prefix `invalid format - `.
pub(crate) fn parse(
    schema: &Schema,
    format: &str,
    value: &str,
    release: Release,
) -> Result<Properties, String> {
    let rules = schema.format(format);
    let known = |key: &str| rules.iter().find(|rule| rule.name == key && rule.exists_in(release));
    let default = rules.iter().find(|rule| rule.default_key);
    let mut read = Properties::new();
    for part in value.split(',').filter(|part| !part.trim().is_empty()) {
        let (key, text) = match part.split_once('=') {
            Some((key, text)) if !key.is_empty() && !text.is_empty() => (key, text),
            Some(_) => return Err("missing key in comma-separated list property\n".into()),
            None => {
                let Some(rule) = default else {
                    return Err(
                        "value without key, but schema does not define a default key\n".into()
                    );
                };
                let text =
                    if release >= Release::V9_1 { canonical(rule, part) } else { part.into() };
                insert(&mut read, &rule.name, text)?;
                continue;
            }
        };
        let Some(rule) = known(key) else {
            insert(&mut read, key, text.into())?;
            continue;
        };
        if let Some(alias) = &rule.alias {
            if let Some(model) = &rule.key_alias {
                insert(&mut read, model, key.into())?;
            }
            insert(&mut read, alias, text.into())?;
        } else {
            insert(&mut read, key, canonical(rule, text))?;
        }
    }
    Ok(read)
}

fn insert(read: &mut Properties, key: &str, text: String) -> Result<(), String> {
    match read.insert(key.to_owned(), text) {
        None => Ok(()),
        Some(_) => Err(format!("duplicate key in comma-separated list property: {key}\n")),
    }
}

/// Booleans inside property strings may be words; PVE turns them into digits.
fn canonical(rule: &SchemaRule, text: &str) -> String {
    if !matches!(rule.shape, SchemaShape::Bool) {
        return text.to_owned();
    }
    match text.to_ascii_lowercase().as_str() {
        "1" | "on" | "yes" | "true" => "1".into(),
        "0" | "off" | "no" | "false" => "0".into(),
        _ => text.to_owned(),
    }
}

/// Prints in PVE's order: the default key bare, required keys, the rest, each alphabetically.
pub(crate) fn print(schema: &Schema, format: &str, properties: &Properties) -> String {
    let rules = schema.format(format);
    let rule = |key: &str| rules.iter().find(|rule| rule.name == key);
    let mut parts = Vec::new();
    let shown = |key: &str, text: &str| match rule(key) {
        Some(SchemaRule { shape: SchemaShape::Is(name), .. }) if name == "size" => {
            parse_size(text).map_or_else(|| text.to_owned(), print_size)
        }
        Some(_) | None => text.to_owned(),
    };
    let model = rules.iter().any(|rule| rule.key_alias.is_some());
    let mut printed: Vec<&str> = Vec::new();
    for (key, text) in properties {
        if rule(key).is_some_and(|rule| rule.default_key) {
            match properties.get("macaddr") {
                Some(mac) if model => {
                    parts.push(format!("{text}={mac}"));
                    printed.push("macaddr");
                }
                Some(_) | None => parts.push(shown(key, text)),
            }
            printed.push(key);
        }
    }
    for required in [true, false] {
        for (key, text) in properties {
            if printed.contains(&key.as_str())
                || rule(key).is_some_and(|rule| rule.required) != required
            {
                continue;
            }
            parts.push(format!("{key}={}", shown(key, text)));
        }
    }
    parts.join(",")
}

const UNITS: [(char, u32); 4] = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];

/// Reads `8G`, `1.5T`, `512` into bytes.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let unit = UNITS.iter().find(|(letter, _)| text.ends_with(*letter));
    let number = unit.map_or(text, |_| &text[..text.len() - 1]);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty()
        || whole.len() > 12
        || fraction.len() > 9
        || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit())
    {
        return None;
    }
    let scale = 1_u128 << unit.map_or(0, |(_, shift)| *shift);
    let denominator = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    u64::try_from(digits * scale / denominator).ok()
}

/// Prints bytes with the largest unit that divides them exactly.
pub(crate) fn print_size(bytes: u64) -> String {
    for (letter, shift) in UNITS.iter().rev() {
        if bytes.is_multiple_of(1 << shift) {
            return format!("{}{letter}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// Reads the size of a resize call: whether it is relative, and the bytes.
pub(crate) fn parse_resize(text: &str) -> Option<(bool, u64)> {
    let (relative, number) = match text.strip_prefix('+') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    Some((relative, parse_size(number)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_print_with_the_largest_unit_that_divides_them() {
        for (text, printed) in
            [("1024G", "1T"), ("1.5G", "1536M"), ("0", "0T"), ("528K", "528K"), ("7", "7")]
        {
            assert_eq!(parse_size(text).map(print_size).as_deref(), Some(printed), "{text}");
        }
        assert_eq!(parse_size("1GB"), None);
        assert_eq!(parse_resize("+1.5G"), Some((true, 1_610_612_736)));
    }

    #[test]
    fn networks_are_printed_name_first_and_models_with_their_address() {
        let schema = Schema::shared();
        let read = |format, text| parse(schema, format, text, Release::V8_4).unwrap();
        let net = read("lxc-net", "type=veth,ip=dhcp,firewall=yes,bridge=vmbr0,name=eth0");
        assert_eq!(
            print(schema, "lxc-net", &net),
            "name=eth0,bridge=vmbr0,firewall=1,ip=dhcp,type=veth"
        );
        let net = read("qm-net", "bridge=vmbr0,virtio=BC:24:11:AA:BB:CC,rate=10.0");
        assert_eq!(
            print(schema, "qm-net", &net),
            "virtio=BC:24:11:AA:BB:CC,bridge=vmbr0,rate=10.0"
        );
    }
}
