//! What a person is shown before they sign: made from the bytes that are signed, and from nothing else.
//!
//! The command line prints these texts and then signs exactly the bytes they were made from. Whatever a
//! guest, a hub or a file put into a text comes out on one line, without control characters or marks that
//! turn the writing direction, and whole: nothing that is signed is cut.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::any_statement::AnyStatement;
use super::denial::DenialStatement;
use super::hash::{PayloadHash, PendingId};
use super::pending::{LastBackup, Loss, PendingItem};
use super::rotation::{ClockChange, Rotation, RotationAuthority};
use super::statement::{Expected, HostBinding, Statement, Window};
use super::time;
use super::trust::Validity;
use crate::fleet::{AcknowledgeStatement, JournalHead};
use crate::model::quantity::Bytes;
use crate::model::reason::Refusal;
use crate::words::shown_text;

/// A statement in words.
pub fn statement(bytes: &[u8]) -> Result<String, Refusal> {
    let Statement { op, host, guest, expected, params, item, nonce, window, trust_version, reason } =
        Statement::parse(bytes)?;
    let mut text = format!("{} {guest}\n", op.as_str().to_uppercase());
    put_host(&mut text, &host);
    put_expected(&mut text, &expected);
    put_params(&mut text, &params);
    put(&mut text, "reason", &visible(&reason));
    put_window(&mut text, window);
    put(&mut text, "trust", &format!("version {trust_version}"));
    put(&mut text, "pending", &item.to_string());
    put(&mut text, "nonce", &nonce.to_string());
    put(&mut text, "sha256", &PayloadHash::of(bytes).to_string());
    Ok(text)
}

/// A statement of whichever kind the bytes are, in words.
pub fn any_statement(bytes: &[u8]) -> Result<String, Refusal> {
    match AnyStatement::parse(bytes)? {
        AnyStatement::Op(_) => statement(bytes),
        AnyStatement::Deny(of) => Ok(denial(bytes, &of)),
        AnyStatement::Rotation(of) => rotation(bytes, of.authority),
        AnyStatement::Acknowledge(of) => Ok(acknowledgement(bytes, &of)),
    }
}

/// A denial in words.
fn denial(bytes: &[u8], of: &DenialStatement) -> String {
    let DenialStatement { host, item, window, trust_version, reason } = of;
    let mut text = "DENY this item\n".to_owned();
    put_host(&mut text, host);
    put(&mut text, "effect", "the item ends; signatures that are there are void");
    put(&mut text, "reason", &visible(reason));
    put_window(&mut text, *window);
    put(&mut text, "trust", &format!("version {trust_version}"));
    put(&mut text, "pending", &item.to_string());
    put(&mut text, "sha256", &PayloadHash::of(bytes).to_string());
    text
}

/// An acknowledged rollback in words.
fn acknowledgement(bytes: &[u8], of: &AcknowledgeStatement) -> String {
    let AcknowledgeStatement {
        host,
        hub_id,
        anchored,
        found,
        nonce,
        window,
        trust_version,
        reason,
    } = of;
    let head =
        |head: &JournalHead| format!("record {} of epoch {}, {}", head.seq, head.epoch, head.sum);
    let mut text = "ACKNOWLEDGE that the journal was put back to an older state\n".to_owned();
    put_host(&mut text, host);
    put(&mut text, "hub", &hub_id.to_string());
    put(&mut text, "anchored", &head(anchored));
    put(&mut text, "found", &head(found));
    put(&mut text, "reason", &visible(reason));
    put_window(&mut text, *window);
    put(&mut text, "trust", &format!("version {trust_version}"));
    put(&mut text, "nonce", &nonce.to_string());
    put(&mut text, "sha256", &PayloadHash::of(bytes).to_string());
    text
}

/// A rotation in words.
pub fn rotation(bytes: &[u8], authority: RotationAuthority) -> Result<String, Refusal> {
    let Rotation { authority, host, version, previous, signers, clock, approve, window, reason } =
        Rotation::parse(bytes, authority)?;
    let mut text = match authority {
        RotationAuthority::Planned => format!("ROTATE the signers to version {version}\n"),
        RotationAuthority::Recovery => {
            format!("RECOVER: replace the signers by version {version}\n")
        }
    };
    put_host(&mut text, &host);
    for signer in &signers {
        let name = &signer.name;
        let key = &signer.key;
        let mut line = format!("{name} {} {}", key.key_type(), key.fingerprint());
        if signer.validity != Validity::ALWAYS {
            let Validity { from, until } = signer.validity;
            let _ = write!(line, ", {} to {}", time::print(from), time::print(until));
        }
        if key.key_type().is_security_key() {
            let _ = write!(line, ", {}", signer.sk.as_str());
        }
        put(&mut text, signer.role.as_str(), &line);
    }
    match clock {
        ClockChange::Keep => {}
        ClockChange::Set { from, to } => {
            put(&mut text, "clock", &format!("{} -> {}", time::print(from), time::print(to)));
        }
    }
    if let Some(rules) = &approve {
        if rules.is_empty() {
            put(
                &mut text,
                "approvals",
                "one signer is enough for every act, but for what root's file says",
            );
        }
        for line in rules.lines() {
            put(&mut text, "approvals", &visible(&line));
        }
    }
    put(&mut text, "effect", "every approval that is outstanding becomes void");
    put(&mut text, "reason", &visible(&reason));
    put_window(&mut text, window);
    put(&mut text, "follows", &previous.to_string());
    put(&mut text, "sha256", &PayloadHash::of(bytes).to_string());
    Ok(text)
}

/// A pending item in words.
pub fn pending(bytes: &[u8]) -> Result<String, Refusal> {
    let item = PendingItem::parse(bytes)?;
    let PendingItem { op, host, guest, guest_name, expected, params, losses, .. } = &item;
    let op = op.as_str().to_uppercase();
    let mut text = format!("{op} {guest} \"{}\"\n", visible(guest_name));
    put_host(&mut text, host);
    for Loss { what, size_bytes } in losses {
        let size = size_bytes.map_or("size unknown".to_owned(), |size| Bytes(size).shown());
        put(&mut text, "lost", &format!("{}, {size}", visible(what)));
    }
    let backup = match item.last_backup {
        LastBackup::At(at) => time::print(at),
        LastBackup::Never => "none known".to_owned(),
        LastBackup::Unknown => "not known: a storage cannot be read".to_owned(),
    };
    put(&mut text, "last backup", &backup);
    if item.wants_final_backup() {
        put(&mut text, "advice", "have it saved first: final_backup=STORAGE");
    }
    put_expected(&mut text, expected);
    put_params(&mut text, params);
    put(&mut text, "raised", &time::print(item.raised_at));
    put(&mut text, "trust", &format!("version {}", item.trust_version));
    put(&mut text, "pending", &PendingId::of(bytes).to_string());
    Ok(text)
}

/// Foreign text as it is put before a person who signs: on one line, whole, harmless to a terminal and to the eye.
pub fn visible(text: &str) -> String {
    shown_text::exact(text)
}

fn put(text: &mut String, label: &str, value: &str) {
    let _ = writeln!(text, "  {label:<12} {value}");
}

fn put_host(text: &mut String, host: &HostBinding) {
    put(text, "host", &host.id.to_string());
    put(text, "host key", &host.key.to_string());
}

fn put_expected(text: &mut String, expected: &Expected) {
    match expected {
        Expected::Guest { identity, digest } => {
            put(text, "identity", &identity.to_string());
            put(text, "digest", &digest.to_string());
        }
        Expected::Free => put(text, "identity", "no guest may have this number"),
    }
}

fn put_params(text: &mut String, params: &BTreeMap<String, String>) {
    for (name, value) in params {
        let shown = if value.is_empty() { "(nothing)".to_owned() } else { visible(value) };
        put(text, "param", &format!("{} = {shown}", visible(name)));
    }
}

fn put_window(text: &mut String, window: Window) {
    let from = time::print(window.not_before());
    let until = time::print(window.expires_at());
    put(text, "valid", &format!("{from} until {until} ({} s)", window.life_s()));
}
