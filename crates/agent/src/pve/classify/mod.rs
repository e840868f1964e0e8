//! From an answer that is not a success to the error it means, over all releases.
//!
//! The status decides first, then the text: PVE's own first line, found in the body from 8.3 on and
//! only in the reason phrase before. Texts whose class makes a caller believe the goal is reached
//! (`AlreadyRunning`, `GuestNotFound`, …) are matched whole, because guest owners choose parts of
//! other texts.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::error::{Error, ErrorClass, NotSent, PveRefusal, Unknown};
use super::exchange::{HttpAnswer, HttpRequest};
use super::scalar;
use super::text::clean;

/// The error an answer other than 2xx means.
pub(super) fn refuse(request: &HttpRequest, answer: &HttpAnswer) -> Error {
    let call = request.call();
    let status = answer.status;
    let (text, errors) = words(answer);
    let text = clean(&request.parameters().scrub(&text));
    match status {
        595 => Error::NotSent { call, why: NotSent::NodeNotReached { text } },
        500 if is_worker_lost(&text) => Error::Unknown { call, why: Unknown::WorkerLost { text } },
        596..=599 => Error::Unknown { call, why: Unknown::NodeLost { status, text } },
        // PVE's own codes; everything else above 499 comes from a machine in between, which does
        // not know what PVE did.
        500 | 501 | 506 if !is_html(&answer.body) => refused(call, status, text, errors, request),
        100..=499 => refused(call, status, text, errors, request),
        _ => Error::Unknown { call, why: Unknown::Gateway { status } },
    }
}

/// Whether PVE says that it forked a worker and then did not hear of it, or heard something else. The task is registered
/// by then: only the task list and the guest tell what became of it. Other texts that end so cost a look, nothing more.
fn is_worker_lost(text: &str) -> bool {
    let line = text.lines().next().unwrap_or_default().trim();
    line.ends_with("- start worker failed")
        || line.starts_with("starting worker failed: ")
        || line.starts_with("unable to fork worker - ")
}

fn refused(
    call: String,
    status: u16,
    text: String,
    errors: BTreeMap<String, String>,
    request: &HttpRequest,
) -> Error {
    let errors: BTreeMap<String, String> = errors
        .into_iter()
        .map(|(key, why)| (clean(&key), clean(&request.parameters().scrub(&why))))
        .collect();
    let class = class_of(status, &text, &errors);
    Error::Refused(Box::new(PveRefusal { call, class, status, text, errors }))
}

#[derive(Deserialize)]
struct ErrorBody {
    #[serde(default, deserialize_with = "scalar::opt_text")]
    message: Option<String>,
    #[serde(default, deserialize_with = "scalar::text_map")]
    errors: BTreeMap<String, String>,
}

/// PVE's words: the body's message, else the reason phrase, else a plain-text body.
fn words(answer: &HttpAnswer) -> (String, BTreeMap<String, String>) {
    let body = String::from_utf8_lossy(&answer.body);
    let parsed = serde_json::from_str::<ErrorBody>(&body).ok();
    let (message, errors) =
        parsed.map_or((None, BTreeMap::new()), |body| (body.message, body.errors));
    let spoken = message.filter(|message| !message.trim().is_empty());
    let text = match spoken {
        Some(message) => message,
        None if !answer.reason.trim().is_empty() => answer.reason.clone(),
        None if is_plain_text(&body) => body.into_owned(),
        None => "Proxmox gave no reason".to_owned(),
    };
    (text, errors)
}

fn is_plain_text(body: &str) -> bool {
    !matches!(body.trim_start().chars().next(), None | Some('<' | '{'))
}

pub(super) fn is_html(body: &[u8]) -> bool {
    body.trim_ascii_start().first() == Some(&b'<')
}

fn class_of(status: u16, text: &str, errors: &BTreeMap<String, String>) -> ErrorClass {
    match status {
        300..=399 => ErrorClass::Redirected,
        401 => ErrorClass::Authentication,
        403 if is_root_only(text) => ErrorClass::RootOnly,
        403 => ErrorClass::Permission,
        413 => ErrorClass::BodyTooLarge,
        501 if text.contains("data too large") => ErrorClass::BodyTooLarge,
        501 => ErrorClass::NotImplemented,
        400 => class_of_parameters(text, errors),
        _ => class_of_text(text),
    }
}

/// A 400 names the parameter; three of them mean more than a mistake in the call.
fn class_of_parameters(text: &str, errors: &BTreeMap<String, String>) -> ErrorClass {
    let about = |key: &str| errors.get(key).map_or("", String::as_str);
    if about("upid") == "no such task" {
        return ErrorClass::NoSuchTask;
    }
    let taken = about("vmid");
    if (taken.starts_with("VM ") || taken.starts_with("CT ")) && taken.ends_with("already exists") {
        return ErrorClass::AlreadyExists;
    }
    if errors.values().any(|why| is_root_only(why)) || is_root_only(text) {
        return ErrorClass::RootOnly;
    }
    ErrorClass::ParameterRefused
}

fn is_root_only(text: &str) -> bool {
    text.contains("only allowed for root@pam")
        || text.starts_with("only root can set ")
        || text.starts_with("Only root may use this option")
}

/// The class of an error text alone: a 500's, or the exit status of a failed task.
pub(super) fn class_of_text(text: &str) -> ErrorClass {
    let line = text.lines().next().unwrap_or_default().trim();
    if let Some(class) = whole_line(line) {
        return class;
    }
    if is_root_only(line) {
        return ErrorClass::RootOnly;
    }
    for (part, class) in [
        ("no quorum", ErrorClass::NoQuorum),
        ("can't lock file ", ErrorClass::LockTimeout),
        ("got lock request timeout", ErrorClass::LockTimeout),
        ("Failed to obtain guest migration lock", ErrorClass::LockTimeout),
        ("config lock, aborting", ErrorClass::LockTimeout),
        ("Lost 'create' config lock", ErrorClass::LockTimeout),
        ("protection mode enabled", ErrorClass::Protected),
        ("used in HA resources", ErrorClass::UsedInHa),
        ("Too many unused volumes", ErrorClass::TooManyUnused),
        ("unable to shrink disk size", ErrorClass::Shrink),
        ("shrinking disks is not supported", ErrorClass::Shrink),
        ("container did not stop", ErrorClass::DidNotStop),
        ("VM quit/powerdown failed", ErrorClass::DidNotStop),
        ("if it's a template", ErrorClass::IsTemplate),
        ("hostname lookup ", ErrorClass::UnknownNode),
        ("for data too large", ErrorClass::BodyTooLarge),
    ] {
        if line.contains(part) {
            return class;
        }
    }
    if line.ends_with("does not exist") {
        return ErrorClass::NotFound;
    }
    ErrorClass::Other
}

/// Texts matched from beginning to end.
fn whole_line(line: &str) -> Option<ErrorClass> {
    if let Some(class) = fixed(line) {
        return Some(class);
    }
    if between(line, "Configuration file 'nodes/", ".conf' does not exist").is_some() {
        return Some(ErrorClass::GuestNotFound);
    }
    if line.starts_with("unable to find configuration file for ") {
        return Some(ErrorClass::GuestNotFound);
    }
    let guest = ["CT ", "VM "].iter().find_map(|kind| line.strip_prefix(kind))?;
    if let Some(lock) = between(guest, "is locked (", ")") {
        return Some(ErrorClass::Locked { lock: lock.to_owned() });
    }
    let (number, rest) = guest.split_once(' ')?;
    let numbered = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    match rest {
        _ if !numbered => None,
        "already running" => Some(ErrorClass::AlreadyRunning),
        "not running" => Some(ErrorClass::NotRunning),
        "is running - destroy failed" => Some(ErrorClass::GuestRunning),
        _ => between(rest, "already exists on node '", "'").map(|_| ErrorClass::AlreadyExists),
    }
}

fn fixed(line: &str) -> Option<ErrorClass> {
    match line {
        "disk is already at specified size" => Some(ErrorClass::AlreadyAtSize),
        "no options specified" => Some(ErrorClass::NothingToDo),
        "no such task" => Some(ErrorClass::NoSuchTask),
        "detected modified configuration - file changed by other user? Try again."
        | "checksum mismatch (file change by other user?)"
        | "checksum missmatch (file change by other user?)" => Some(ErrorClass::DigestMismatch),
        _ => {
            let inner = line
                .strip_prefix("unable to create ")
                .or_else(|| line.strip_prefix("unable to destroy "));
            let reason = inner?.split_once(" - ")?.1;
            match reason {
                "container is running" => Some(ErrorClass::GuestRunning),
                _ => whole_line(reason),
            }
        }
    }
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    text.strip_prefix(start)?.strip_suffix(end)
}

#[cfg(test)]
mod tests;
