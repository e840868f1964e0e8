//! Requests taken apart by their text alone: what the oracle knows of a call.

use std::collections::BTreeMap;

use evenkeel_agent::pve::exchange::Request;
use evenkeel_core::action_kind::ActionKind;
use evenkeel_core::id::GuestId;
use percent_encoding::percent_decode_str;

/// What a request is about, as far as the oracle looks at it.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    Status(GuestId),
    Pending(GuestId),
    Content,
    OtherRead,
    Write,
}

/// A request that changes something, taken apart.
pub(crate) struct Write {
    pub(crate) guest: GuestId,
    pub(crate) kind: ActionKind,
    pub(crate) params: BTreeMap<String, String>,
}

/// The guest a path names.
pub(crate) fn guest_of(target: &str) -> Option<GuestId> {
    let path = target.split('?').next().unwrap_or_default();
    let words: Vec<&str> = path.split('/').collect();
    words.windows(2).find_map(|pair| format!("{}/{}", pair[0], pair[1]).parse().ok())
}

pub(crate) fn read_call(target: &str) -> Call {
    let path = target.split('?').next().unwrap_or_default();
    match guest_of(target) {
        Some(guest) if path.ends_with("/status/current") => Call::Status(guest),
        Some(guest) if path.ends_with("/pending") => Call::Pending(guest),
        _ if path.ends_with("/content") => Call::Content,
        Some(_) | None => Call::OtherRead,
    }
}

/// The kinds this engine may send, by method and path; none for everything else.
pub(crate) fn write_of(request: &Request) -> Option<Write> {
    let target = request.target();
    let guest = guest_of(&target)?;
    let (_, call) = target.rsplit_once(&format!("/{guest}/"))?;
    let kind = match (request.method().as_str(), call) {
        ("PUT" | "POST", "config") => ActionKind::SetConfig,
        ("PUT", "resize") => ActionKind::Resize,
        ("POST", "status/start") => ActionKind::Start,
        ("POST", "status/shutdown") => ActionKind::Shutdown,
        ("POST", "status/stop") => ActionKind::Stop,
        _ => return None,
    };
    let body = request.body()?;
    let text = |part: &str| percent_decode_str(part).decode_utf8_lossy().into_owned();
    let pairs = body.split('&').filter_map(|pair| pair.split_once('='));
    let params: BTreeMap<String, String> =
        pairs.map(|(key, value)| (text(key), text(value))).collect();
    let destroys = |key: &str| matches!(key, "skiplock" | "force");
    let takes = params.get("delete").is_some_and(|list| list.contains("unused"));
    if takes || params.keys().any(|key| destroys(key)) {
        return None;
    }
    Some(Write { guest, kind, params })
}
