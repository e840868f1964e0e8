//! Checks parameters in PVE's order: type, format or pattern, length, range, enumeration.

use std::collections::BTreeMap;

use evenkeel_core::model::release::Release;

use super::{EndpointSchema, Schema, SchemaRule, SchemaShape};
use crate::format::{self, FormatRefusal};
use crate::property;
use crate::request::{Param, Params};

/// Messages by parameter, as PVE's `errors` object.
pub(crate) type Errors = BTreeMap<String, String>;

const UNKNOWN: &str =
    "property is not defined in schema and the schema does not allow additional properties";
const MISSING: &str = "property is missing and it is not optional";

/// A parameter that contradicts the path.
const CONFLICTING: &str = "duplicate parameter (already defined in URI) with conflicting values!";

/// Checks everything a call was given; lists for list-typed parameters are joined in place.
pub(crate) fn check_parameters(
    schema: &Schema,
    endpoint: &EndpointSchema,
    holes: &[(String, String)],
    params: &mut Params,
    release: Release,
) -> Errors {
    let mut errors = Errors::new();
    // Clients repeat what stands in the path: the same value is taken as one, and nothing else is looked at
    // when it is another.
    for (name, value) in holes {
        match params.remove(name) {
            Some(Param::Text(again)) if again == *value => {}
            Some(_) => return Errors::from([(name.clone(), CONFLICTING.to_owned())]),
            None => {}
        }
    }
    for (name, value) in holes {
        if let Some(message) = check_hole(name, value) {
            errors.insert(name.clone(), message);
        }
    }
    for (name, value) in params.iter_mut() {
        let own = endpoint.rules.iter().find(|rule| rule.exists_in(release) && rule.names(name));
        let rule = own.or_else(|| schema.key(endpoint.config_of?, name, release));
        let message = match rule {
            None => Some(UNKNOWN.to_owned()),
            Some(rule) => check_param(schema, rule, name, value, release),
        };
        if let Some(message) = message {
            errors.insert(name.clone(), message);
        }
    }
    for rule in &endpoint.rules {
        if rule.required && rule.exists_in(release) && !params.contains_key(&rule.name) {
            errors.insert(rule.name.clone(), MISSING.to_owned());
        }
    }
    errors
}

fn check_hole(name: &str, value: &str) -> Option<String> {
    match name {
        "vmid" if !is_integer(value) => {
            Some(format!("type check ('integer') failed - got '{value}'"))
        }
        "vmid" => refusal(format::check("vmid", value)),
        "snapname" => refusal(format::check("configid", value)),
        "storage" => refusal(format::check("storage", value)),
        _ => None,
    }
}

fn refusal(result: Result<(), FormatRefusal>) -> Option<String> {
    match result {
        Ok(()) => None,
        Err(FormatRefusal::Text(message)) => Some(format!("invalid format - {message}\n")),
        Err(FormatRefusal::Pattern) => Some("value does not match the regex pattern".to_owned()),
    }
}

fn check_param(
    schema: &Schema,
    rule: &SchemaRule,
    name: &str,
    value: &mut Param,
    release: Release,
) -> Option<String> {
    let listed = match &rule.shape {
        SchemaShape::List => true,
        SchemaShape::Is(format) => format.ends_with("-list"),
        SchemaShape::Text
        | SchemaShape::Bool
        | SchemaShape::Int { .. }
        | SchemaShape::Num { .. }
        | SchemaShape::Enum(_)
        | SchemaShape::Like(_)
        | SchemaShape::Prop(_) => false,
    };
    let text = match value {
        // An explicit null passes every check in PVE; what happens then is the handler's affair.
        Param::Null => return None,
        Param::Hash => return Some(format!("type check ('{}') failed - got HASH", kind(rule))),
        Param::List(parts) if listed && release >= Release::V8_0 => parts.join(","),
        Param::List(_) => return Some(format!("type check ('{}') failed - got ARRAY", kind(rule))),
        Param::Text(text) => text.clone(),
    };
    let message = check_value(schema, rule, name, &text, release);
    *value = Param::Text(text);
    message
}

fn kind(rule: &SchemaRule) -> &'static str {
    match &rule.shape {
        SchemaShape::Bool => "boolean",
        SchemaShape::Int { .. } => "integer",
        SchemaShape::Num { .. } => "number",
        SchemaShape::Text
        | SchemaShape::List
        | SchemaShape::Enum(_)
        | SchemaShape::Is(_)
        | SchemaShape::Like(_)
        | SchemaShape::Prop(_) => "string",
    }
}

fn check_value(
    schema: &Schema,
    rule: &SchemaRule,
    name: &str,
    text: &str,
    release: Release,
) -> Option<String> {
    let wrong_type = || Some(format!("type check ('{}') failed - got '{text}'", kind(rule)));
    let message = match &rule.shape {
        SchemaShape::Bool if !matches!(text, "0" | "1") => wrong_type(),
        SchemaShape::Int { .. } if !is_integer(text) => wrong_type(),
        SchemaShape::Num { .. } if !is_number(text) => wrong_type(),
        SchemaShape::Int { min, max } => {
            let also = rule.also.as_ref().and_then(|also| refusal(format::check(also, text)));
            // Numbers beyond i64 are beyond every limit in the tables too.
            let number = text.parse().unwrap_or(i64::MAX);
            also.or_else(|| range(&number, min.as_ref(), max.as_ref()))
        }
        SchemaShape::Num { min, max } => {
            range(&text.parse::<f64>().unwrap_or(f64::MAX), min.as_ref(), max.as_ref())
        }
        SchemaShape::Enum(choices) if !choices.iter().any(|choice| choice == text) => {
            Some(format!(
                "value '{text}' does not have a value in the enumeration '{}'",
                choices.join(", ")
            ))
        }
        SchemaShape::Is(format) => refusal(format::check(format, text)),
        SchemaShape::Like(pattern) if !format::matches(pattern, text) => {
            refusal(Err(FormatRefusal::Pattern))
        }
        SchemaShape::Prop(format) => check_property(schema, format, name, text, release),
        SchemaShape::Text
        | SchemaShape::List
        | SchemaShape::Bool
        | SchemaShape::Enum(_)
        | SchemaShape::Like(_) => None,
    };
    message.or_else(|| {
        let limit = rule.max_length?;
        (text.chars().count() > limit).then(|| format!("value may only be {limit} characters long"))
    })
}

fn range<T: PartialOrd + std::fmt::Display>(
    number: &T,
    min: Option<&T>,
    max: Option<&T>,
) -> Option<String> {
    if let Some(max) = max.filter(|max| number > *max) {
        return Some(format!("value must have a maximum value of {max}"));
    }
    min.filter(|min| number < *min).map(|min| format!("value must have a minimum value of {min}"))
}

fn check_property(
    schema: &Schema,
    format: &str,
    name: &str,
    text: &str,
    release: Release,
) -> Option<String> {
    let read = match property::parse(schema, format, text, release) {
        Ok(read) => read,
        Err(message) => return Some(format!("invalid format - {message}")),
    };
    let rules: Vec<&SchemaRule> =
        schema.format(format).iter().filter(|rule| rule.exists_in(release)).collect();
    let mut lines = BTreeMap::new();
    for (key, value) in &read {
        let message = match rules.iter().find(|rule| rule.name == *key && rule.alias.is_none()) {
            None => Some(UNKNOWN.to_owned()),
            Some(rule) => match rule.requires.as_ref().filter(|other| !read.contains_key(*other)) {
                Some(other) => {
                    lines.insert(
                        other.clone(),
                        format!("missing property required by '{name}.{key}'"),
                    );
                    None
                }
                None => check_value(schema, rule, key, value, release),
            },
        };
        if let Some(message) = message {
            lines.insert(key.clone(), message);
        }
    }
    for rule in rules.iter().filter(|rule| rule.required && !read.contains_key(&rule.name)) {
        lines.insert(rule.name.clone(), MISSING.to_owned());
    }
    if lines.is_empty() {
        return None;
    }
    let lines: Vec<String> = lines
        .iter()
        .map(|(key, line)| {
            format!(
                "{name}.{key}: {line}
"
            )
        })
        .collect();
    let lines = lines.concat();
    Some(format!("invalid format - format error\n{lines}"))
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

fn is_number(text: &str) -> bool {
    text.bytes().any(|b| b.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b))
        && text.parse::<f64>().is_ok()
}
