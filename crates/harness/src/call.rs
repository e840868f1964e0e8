//! Requests taken apart by their text alone: what the oracle knows of a call.

use std::collections::BTreeMap;

use evenkeel_agent::pve::exchange::HttpRequest;
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::GuestId;
use percent_encoding::percent_decode_str;

/// What a request is about, as far as the oracle looks at it.
#[derive(Debug, Clone)]
pub(crate) enum RequestKind {
    Status(GuestId),
    Pending(GuestId),
    Content,
    /// Another question to a storage, or to all of them.
    Storage,
    /// Whether a number is free.
    NumberFree(u32),
    ClusterStatus,
    OtherRead,
    Write,
}

/// A request that changes something, taken apart.
pub(crate) struct WriteRequest {
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

pub(crate) fn read_call(target: &str) -> RequestKind {
    let path = target.split('?').next().unwrap_or_default();
    match guest_of(target) {
        Some(guest) if path.ends_with("/status/current") => RequestKind::Status(guest),
        Some(guest) if path.ends_with("/pending") => RequestKind::Pending(guest),
        _ if path.ends_with("/content") => RequestKind::Content,
        None if path.ends_with("/storage") || path.ends_with("/extractconfig") => {
            RequestKind::Storage
        }
        None if path.ends_with("/cluster/status") => RequestKind::ClusterStatus,
        None if path.ends_with("/cluster/nextid") => {
            let vmid = target.split_once("vmid=").and_then(|(_, vmid)| vmid.parse().ok());
            vmid.map_or(RequestKind::OtherRead, RequestKind::NumberFree)
        }
        Some(_) | None => RequestKind::OtherRead,
    }
}

/// What only a signature allows.
pub(crate) fn needs_signature(write: &WriteRequest) -> bool {
    let lifts = write.params.get("protection").is_some_and(|on| on != "1");
    let deletes = write.params.get("delete").is_some_and(|list| list.contains("protection"));
    let always = [
        ActionKind::Destroy,
        ActionKind::Rollback,
        ActionKind::DeleteSnapshot,
        ActionKind::DeleteVolume,
        ActionKind::Template,
    ];
    let frees = write.kind == ActionKind::MoveVolume
        && (write.params.get("delete").map(String::as_str) != Some("0")
            || write.params.keys().any(|key| key.starts_with("target")));
    // Whether anything else is declared is asked elsewhere.
    always.contains(&write.kind)
        || frees
        || (write.kind == ActionKind::SetConfig && (lifts || deletes))
}

/// Invariant 9: calls that take a digest carry one.
pub(crate) fn has_a_digest(write: &WriteRequest) -> Option<String> {
    let takes_one = matches!(
        write.kind,
        ActionKind::SetConfig
            | ActionKind::Resize
            | ActionKind::DeleteVolume
            | ActionKind::MoveVolume
    );
    let digest = write.params.get("digest").map(String::as_str).unwrap_or_default();
    (takes_one && digest.is_empty()).then(|| "(9) no digest".to_owned())
}

/// The number of the guest that a request saves: a backup's path names none.
pub(crate) fn saved_number(request: &HttpRequest) -> Option<u32> {
    let is_backup = request.method().as_str() == "POST" && request.target().ends_with("/vzdump");
    let body = request.body().filter(|_| is_backup)?;
    pairs(&body).get("vmid")?.parse().ok()
}

/// The kinds this engine may send, by method and path; none for everything else. `saved` is the guest of a backup.
pub(crate) fn write_of(request: &HttpRequest, saved: Option<GuestId>) -> Option<WriteRequest> {
    let target = request.target();
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    if let Some(new) = making(request, path) {
        return Some(new);
    }
    if let (Some(guest), Some(body)) = (saved, request.body()) {
        let kind = ActionKind::Backup;
        let mut params = pairs(&body);
        // Older backups stay, whatever is saved.
        let prunes = params.remove("remove").as_deref() != Some("0");
        return (!prunes).then_some(WriteRequest { guest, kind, params });
    }
    let guest = guest_of(path)?;
    let (_, call) = path.split_once(&format!("/{guest}"))?;
    let words: Vec<&str> = call.split('/').skip(1).collect();
    let body = request.body();
    let mut params = pairs(body.as_deref().unwrap_or(query));
    let mut kind = match (request.method().as_str(), words.as_slice()) {
        ("PUT" | "POST", ["config"]) => ActionKind::SetConfig,
        ("PUT", ["resize"]) => ActionKind::Resize,
        ("POST", ["status", "start"]) => ActionKind::Start,
        ("POST", ["status", "shutdown"]) => ActionKind::Shutdown,
        ("POST", ["status", "stop"]) => ActionKind::Stop,
        ("POST", ["move_volume" | "move_disk"]) => ActionKind::MoveVolume,
        ("POST", ["template"]) => ActionKind::Template,
        ("POST", ["snapshot"]) => ActionKind::Snapshot,
        ("DELETE", []) => ActionKind::Destroy,
        ("POST", ["snapshot", name, "rollback"]) => {
            params.insert("snapname".to_owned(), decoded(name));
            ActionKind::Rollback
        }
        ("DELETE", ["snapshot", name]) => {
            params.insert("snapname".to_owned(), decoded(name));
            ActionKind::DeleteSnapshot
        }
        _ => return None,
    };
    if kind == ActionKind::SetConfig
        && params.get("delete").is_some_and(|list| list.contains("unused"))
    {
        kind = ActionKind::DeleteVolume;
    }
    let forces = |key: &str| matches!(key, "skiplock" | "force");
    (!params.keys().any(|key| forces(key))).then_some(WriteRequest { guest, kind, params })
}

/// A request that makes a guest.
fn making(request: &HttpRequest, path: &str) -> Option<WriteRequest> {
    if request.method().as_str() != "POST" {
        return None;
    }
    let params = pairs(&request.body().unwrap_or_default());
    let words: Vec<&str> = path.split('/').collect();
    let (kind, guest_kind, number) = match words.as_slice() {
        [.., kind @ ("lxc" | "qemu")] => {
            let restores = params.contains_key("archive") || params.contains_key("restore");
            let act = if restores { ActionKind::Restore } else { ActionKind::Create };
            (act, *kind, params.get("vmid")?)
        }
        [.., kind @ ("lxc" | "qemu"), _, "clone"] => {
            (ActionKind::Clone, *kind, params.get("newid")?)
        }
        _ => return None,
    };
    let guest = format!("{guest_kind}/{number}").parse().ok()?;
    let overwrites = params.contains_key("force") || params.contains_key("start");
    (!overwrites).then_some(WriteRequest { guest, kind, params })
}

fn pairs(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (decoded(key), decoded(value))).collect()
}

fn decoded(part: &str) -> String {
    percent_decode_str(part).decode_utf8_lossy().into_owned()
}
