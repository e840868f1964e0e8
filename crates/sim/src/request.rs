//! What arrives: a request as the wire carries it, and PVE's own way of decoding it.
//!
//! Both fronts build a [`SimRequest`]; the engine decodes it here. Decoding keeps PVE's quirks (fields
//! are split at `&` and `;`, a value ends at its second `=`, a repeated key becomes a list).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use evenkeel_core::model::release::Release;
use serde_json::Value;

use crate::reply::Reply;

/// One request, before anything was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimRequest {
    /// `GET`, `PUT`, and so on, as sent.
    pub method: String,
    /// Path and query, still percent-encoded.
    pub target: String,
    /// Header fields in the order sent; names in any case.
    pub headers: Vec<(String, String)>,
    /// The body, empty if none.
    pub body: Vec<u8>,
    /// Whether the peer's address is a loopback address; only such peers reach `/sim/`.
    pub from_loopback: bool,
}

impl SimRequest {
    /// A request without headers and body, from this machine.
    pub fn new(method: &str, target: &str) -> Self {
        Self {
            method: method.to_owned(),
            target: target.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            from_loopback: true,
        }
    }

    /// The same with one more header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same with an API token, given as `user@realm!id=secret`.
    #[must_use]
    pub fn token(self, token: &str) -> Self {
        self.header("Authorization", &format!("PVEAPIToken={token}"))
    }

    /// The same with a form body, strictly encoded.
    #[must_use]
    pub fn form(mut self, fields: &[(&str, &str)]) -> Self {
        let pairs: Vec<String> =
            fields.iter().map(|(k, v)| format!("{}={}", encode(k), encode(v))).collect();
        self.body = pairs.join("&").into_bytes();
        self.header("Content-Type", "application/x-www-form-urlencoded")
    }

    /// The same with a JSON body.
    #[must_use]
    pub fn json(mut self, value: &Value) -> Self {
        self.body = value.to_string().into_bytes();
        self.header("Content-Type", "application/json")
    }

    /// The first header of that name, in any case.
    pub(crate) fn find(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// The path without its query.
    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    fn query(&self) -> &str {
        self.target.split_once('?').map_or("", |(_, query)| query)
    }
}

/// The value of one parameter as PVE's decoders leave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Param {
    Text(String),
    /// JSON null, or a form field without `=`: not the same as absent.
    Null,
    List(Vec<String>),
    Hash,
}

/// Parameters by name.
pub(crate) type Params = BTreeMap<String, Param>;

/// Larger bodies are refused; the limit grew with release 8.4.
const BODY_LIMIT: usize = 512 * 1024;
const BODY_LIMIT_BEFORE_8_4: usize = 64 * 1024;

/// Query and body merged into parameters, or the answer that refuses the body.
pub(crate) fn decode(request: &SimRequest, release: Release) -> Result<Params, Reply> {
    let mut params = Params::new();
    decode_form(request.query(), &mut params);
    if request.find("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked")) {
        return Err(Reply::plain(501, "chunked transfer encoding not supported"));
    }
    let writes = matches!(request.method.as_str(), "POST" | "PUT");
    if !writes {
        if request.body.is_empty() {
            return Ok(params);
        }
        let message = format!("Unexpected content for method '{}'", request.method);
        return Err(Reply::plain(501, &message));
    }
    let limit = if release >= Release::V8_4 { BODY_LIMIT } else { BODY_LIMIT_BEFORE_8_4 };
    if request.body.len() > limit {
        return Err(Reply::plain(501, "for data too large"));
    }
    let content_type = request.find("content-type").unwrap_or("");
    let media = content_type.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    match media.as_str() {
        "" | "application/x-www-form-urlencoded" => {
            decode_form(&String::from_utf8_lossy(&request.body), &mut params);
        }
        "application/json" => decode_json(&request.body, release, &mut params)?,
        _ => {
            let message = format!("upload 'Content-Type '{content_type}' not implemented");
            return Err(Reply::plain(506, &message));
        }
    }
    Ok(params)
}

fn decode_form(text: &str, params: &mut Params) {
    for field in text.split(['&', ';']).filter(|field| !field.is_empty()) {
        let mut parts = field.split('=');
        let key = percent_decode(parts.next().unwrap_or_default(), true);
        let value = parts.next().map_or(Param::Null, |v| Param::Text(percent_decode(v, true)));
        add(params, key, value);
    }
}

fn add(params: &mut Params, key: String, value: Param) {
    let text = |param: Param| match param {
        Param::Text(text) => vec![text],
        Param::List(list) => list,
        Param::Null | Param::Hash => vec![String::new()],
    };
    let value = match params.remove(&key) {
        None => value,
        Some(old) => Param::List([text(old), text(value)].concat()),
    };
    params.insert(key, value);
}

fn decode_json(body: &[u8], release: Release, params: &mut Params) -> Result<(), Reply> {
    // PVE answers with the line of its Perl source, which moved between the releases.
    let (parse_line, use_line) = if release >= Release::V9_0 { (934, 978) } else { (917, 957) };
    let module = "/usr/share/perl5/PVE/APIServer/AnyEvent.pm";
    let text = String::from_utf8_lossy(body);
    match serde_json::from_str::<Value>(&text) {
        Ok(Value::Object(map)) => {
            for (key, value) in map {
                params.insert(key, json_param(value, release));
            }
            Ok(())
        }
        Ok(Value::Array(_)) => {
            Err(Reply::died_plain(&format!("Not a HASH reference at {module} line {use_line}.")))
        }
        Ok(other) => {
            let shown = other.as_str().map_or_else(|| other.to_string(), str::to_owned);
            Err(Reply::died_plain(&format!(
                "Can't use string (\"{shown}\") as a HASH ref while \"strict refs\" in use at \
                 {module} line {use_line}."
            )))
        }
        Err(_) => {
            let what = if text.trim_start().starts_with('{') {
                ", or } expected while parsing object/hash"
            } else {
                "malformed JSON string, neither tag, array, object, number, string or atom"
            };
            let offset = text.chars().count();
            Err(Reply::died_plain(&format!(
                "{what}, at character offset {offset} (before \"(end of string)\") at {module} \
                 line {parse_line}."
            )))
        }
    }
}

fn json_param(value: Value, release: Release) -> Param {
    match value {
        Value::Null => Param::Null,
        // Until 7.4 the decoder kept JSON booleans as objects no check accepted.
        Value::Bool(b) if release < Release::V8_0 => Param::Text(b.to_string()),
        Value::Bool(b) => Param::Text(u8::from(b).to_string()),
        Value::Number(number) => Param::Text(number.to_string()),
        Value::String(text) => Param::Text(text),
        Value::Array(values) => Param::List(
            values
                .into_iter()
                .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
                .collect(),
        ),
        Value::Object(_) => Param::Hash,
    }
}

/// Percent-decodes; broken escapes stay as they are, broken UTF-8 becomes the replacement sign.
pub(crate) fn percent_decode(text: &str, plus_is_blank: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|pair| std::str::from_utf8(pair).ok());
        match (bytes[at], hex.and_then(|pair| u8::from_str_radix(pair, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
                continue;
            }
            (b'+', _) if plus_is_blank => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Percent-encodes everything but unreserved characters.
pub(crate) fn encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _infallible = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(text: &str) -> Params {
        let mut params = Params::new();
        decode_form(text, &mut params);
        params
    }

    #[test]
    fn semicolons_split_fields_and_the_second_equals_sign_ends_a_value() {
        assert_eq!(form("tags=a;b")["b"], Param::Null);
        assert_eq!(form("net0=name=eth0,bridge=vmbr0")["net0"], Param::Text("name".into()));
        assert_eq!(form("cores=1&cores=2")["cores"], Param::List(vec!["1".into(), "2".into()]));
        assert_eq!(form("d=100%zz+x")["d"], Param::Text("100%zz x".into()));
    }

    #[test]
    fn bodies_pve_cannot_read_are_refused_with_its_own_status() {
        let status = |request: SimRequest| decode(&request, Release::V8_4).unwrap_err().status;
        let put = || SimRequest::new("PUT", "/");
        assert_eq!(status(put().header("Transfer-Encoding", "chunked")), 501);
        assert_eq!(status(put().header("Content-Type", "text/plain")), 506);
        assert_eq!(status(put().header("Content-Type", "application/json")), 500);
        assert_eq!(
            status(SimRequest { body: b"x=1".to_vec(), ..SimRequest::new("DELETE", "/") }),
            501
        );
    }
}
