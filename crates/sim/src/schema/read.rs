//! Reads the three text tables. A row that cannot be read is a bug of this crate and stops the
//! process at the first use, which the unit tests reach.

use evenkeel_core::model::id::GuestKind;
use evenkeel_core::model::release::Release;

use super::{EndpointSchema, Schema, SchemaRule, SchemaShape, Who};

pub(super) fn tables() -> Schema {
    let mut lxc = Vec::new();
    let mut qemu = Vec::new();
    for line in rows(include_str!("keys.txt")) {
        let (kind, rest) = line.split_once(' ').expect("a key row names its kind first");
        if kind == "lxc" { lxc.push(rule(rest)) } else { qemu.push(rule(rest)) }
    }
    let mut formats = std::collections::BTreeMap::<String, Vec<SchemaRule>>::new();
    let mut current = String::new();
    for line in rows(include_str!("formats.txt")) {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            name.clone_into(&mut current);
        } else {
            formats.entry(current.clone()).or_default().push(rule(line));
        }
    }
    let endpoints = rows(include_str!("endpoints.txt")).map(endpoint).collect();
    Schema { endpoints, lxc, qemu, formats }
}

fn rows(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// `name[slots]!* shape len=N since=X until=Y`, or `name alias=X keyalias=Y`.
fn rule(line: &str) -> SchemaRule {
    let mut words = line.split_whitespace();
    let name = words.next().expect("a row is not empty");
    let bare = name.trim_end_matches(['!', '*']);
    let marks = &name[bare.len()..];
    let (bare, slots) = match bare.split_once('[') {
        Some((bare, slots)) => (bare, slots.trim_end_matches(']').parse().ok()),
        None => (bare, None),
    };
    let mut rule = SchemaRule {
        name: bare.to_owned(),
        slots,
        shape: SchemaShape::Text,
        also: None,
        max_length: None,
        required: marks.contains('!'),
        default_key: marks.contains('*'),
        alias: None,
        key_alias: None,
        requires: None,
        since: None,
        until: None,
    };
    for word in words {
        match word.split_once('=') {
            Some(("len", number)) => rule.max_length = number.parse().ok(),
            Some(("since", release)) => rule.since = release.parse().ok(),
            Some(("until", release)) => rule.until = release.parse().ok(),
            Some(("alias", other)) => rule.alias = Some(other.to_owned()),
            Some(("keyalias", other)) => rule.key_alias = Some(other.to_owned()),
            Some(("requires", other)) => rule.requires = Some(other.to_owned()),
            Some(_) | None => rule.shape = shape(word),
        }
    }
    rule
}

fn shape(word: &str) -> SchemaShape {
    let (name, inner) = match word.split_once('(') {
        Some((name, inner)) => (name, inner.trim_end_matches(')')),
        None => (word, ""),
    };
    let (low, high) = inner.split_once("..").unwrap_or(("", ""));
    match name {
        "text" => SchemaShape::Text,
        "list" => SchemaShape::List,
        "bool" => SchemaShape::Bool,
        "int" => SchemaShape::Int { min: low.parse().ok(), max: high.parse().ok() },
        "num" => SchemaShape::Num { min: low.parse().ok(), max: high.parse().ok() },
        "enum" => SchemaShape::Enum(inner.split('|').map(str::to_owned).collect()),
        "is" => SchemaShape::Is(inner.to_owned()),
        "like" => SchemaShape::Like(inner.to_owned()),
        "prop" => SchemaShape::Prop(inner.to_owned()),
        other => unreachable!("the tables name no shape `{other}`"),
    }
}

fn endpoint(line: &'static str) -> EndpointSchema {
    let mut words = line.split_whitespace();
    let mut next = || words.next().expect("an endpoint row has five columns");
    let method = next();
    let path = next();
    let call = next();
    let daemon = next();
    let who = next();
    let mut config_of = None;
    let mut rules = Vec::new();
    for word in words {
        match word {
            "@lxc" => config_of = Some(GuestKind::Lxc),
            "@qemu" => config_of = Some(GuestKind::Qemu),
            parameter => rules.push(self::parameter(parameter)),
        }
    }
    EndpointSchema {
        method: method.to_owned(),
        segments: path.split('/').filter(|s| !s.is_empty()).map(str::to_owned).collect(),
        call: call.parse().expect("an endpoint row names a call that exists"),
        protected: daemon == "P",
        who: match who {
            "world" => Who::World,
            "user" => Who::User,
            holder => {
                let (path, privileges) = holder.split_once(':').expect("path:privileges");
                let privileges = privileges.split('|').map(str::to_owned).collect();
                Who::Holder { path: path.to_owned(), privileges }
            }
        },
        rules,
        config_of,
    }
}

/// `!name=shape(length):format,since`.
fn parameter(word: &str) -> SchemaRule {
    let (name, mut kind) = word.split_once('=').expect("a parameter has a shape");
    let mut since: Option<Release> = None;
    if let Some((rest, release)) = kind.rsplit_once(',') {
        since = release.parse().ok();
        kind = rest;
    }
    let (kind, also) = match kind.split_once(':') {
        Some((kind, also)) => (kind, Some(also.to_owned())),
        None => (kind, None),
    };
    let (kind, max_length) = match kind.strip_suffix(')').and_then(|k| k.rsplit_once('(')) {
        Some((kind, number))
            if number.bytes().all(|b| b.is_ascii_digit()) && !number.is_empty() =>
        {
            (kind, number.parse().ok())
        }
        Some(_) | None => (kind, None),
    };
    let mut rule = rule(name.trim_start_matches('!'));
    rule.shape = shape(kind);
    rule.also = also;
    rule.max_length = max_length;
    rule.required = name.starts_with('!');
    rule.since = since;
    rule
}
