//! Config writes: what a PUT changes, key by key, and what is left when one of them fails.
//!
//! Handlers build a [`WriteChange`] and call [`lxc::update`] or [`qemu::update`] while the guest's file
//! lock is free; tasks call the `apply_pending` of the kind when a guest starts or stops.

pub(crate) mod disk;
pub(crate) mod lxc;
pub(crate) mod qemu;
pub(crate) mod rights;

use std::collections::BTreeMap;

use evenkeel_core::model::id::{GuestId, GuestKind};
use evenkeel_core::model::release::Release;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::format::split_list;
use crate::reply::ReplyFailure;
use crate::request::{Param, Params};
use crate::schema::Schema;
use crate::world::World;

/// What one write asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WriteChange {
    /// New values; `None` is an explicit null.
    pub(crate) set: BTreeMap<String, Option<String>>,
    pub(crate) delete: Vec<String>,
    pub(crate) revert: Vec<String>,
    /// Destroy the volumes of deleted drives.
    pub(crate) force: bool,
    pub(crate) digest: Option<String>,
}

impl WriteChange {
    /// Sorts parameters into a change and refuses contradictions, in PVE's order.
    pub(crate) fn read(
        kind: GuestKind,
        params: &Params,
        release: Release,
    ) -> Result<Self, ReplyFailure> {
        let text = |name: &str| match params.get(name) {
            Some(Param::Text(text)) => Some(text.clone()),
            Some(Param::List(list)) => Some(list.join(",")),
            Some(Param::Null | Param::Hash) | None => None,
        };
        let mut change = Self { digest: text("digest"), ..Self::default() };
        change.force = text("force").as_deref() == Some("1");
        let listed = |name: &str| -> Vec<String> {
            let names = text(name).unwrap_or_default();
            split_list(&names).into_iter().map(|name| alias(kind, name).to_owned()).collect()
        };
        (change.delete, change.revert) = (listed("delete"), listed("revert"));
        for (name, value) in params {
            if Schema::shared().key(kind, name, release).is_none() {
                continue;
            }
            let value = match value {
                Param::Text(text) => Some(text.clone()),
                Param::Null | Param::List(_) | Param::Hash => None,
            };
            change.set.insert(alias(kind, name).to_owned(), value);
        }
        change.check(kind, release)?;
        Ok(change)
    }

    fn check(&self, kind: GuestKind, release: Release) -> Result<(), ReplyFailure> {
        if self.set.is_empty() && self.delete.is_empty() && self.revert.is_empty() {
            return Err(ReplyFailure::died("no options specified"));
        }
        for (list, names) in [("delete", &self.delete), ("revert", &self.revert)] {
            for name in names {
                if self.set.contains_key(name) {
                    let message =
                        format!("you can't use '-{name}' and -{list} {name}' at the same time");
                    return Err(ReplyFailure::param(list, message));
                }
                let extra = matches!(name.as_str(), "parent" | "vmstate" | "meta" | "snaptime");
                if Schema::shared().key(kind, name, release).is_none() && !extra {
                    return Err(ReplyFailure::param(list, format!("unknown option '{name}'")));
                }
            }
        }
        Ok(())
    }
}

/// `cdrom` is another name for `ide2`.
fn alias(kind: GuestKind, name: &str) -> &str {
    match kind {
        GuestKind::Qemu if name == "cdrom" => "ide2",
        GuestKind::Lxc | GuestKind::Qemu => name,
    }
}

/// `Configuration file '...' does not exist`, PVE's only way to say there is no such guest.
pub(crate) fn no_config(world: &World, id: GuestId) -> String {
    let directory = match id.kind {
        GuestKind::Lxc => "lxc",
        GuestKind::Qemu => "qemu-server",
    };
    format!("Configuration file 'nodes/{}/{directory}/{}.conf' does not exist", world.node, id.vmid)
}

/// The guest's file, or PVE's words for its absence.
pub(crate) fn load(world: &World, id: GuestId) -> Result<&Config, ReplyFailure> {
    match world.guest(id) {
        Some(guest) => Ok(&guest.config),
        None => Err(ReplyFailure::Died(no_config(world, id))),
    }
}

/// `CT is locked (X)` or `VM is locked (X)`.
pub(crate) fn locked_text(kind: GuestKind, lock: &str) -> String {
    match kind {
        GuestKind::Lxc => format!("CT is locked ({lock})"),
        GuestKind::Qemu => format!("VM is locked ({lock})"),
    }
}

/// Refuses while a config lock is set.
pub(crate) fn check_lock(id: GuestId, config: &Config) -> Result<(), ReplyFailure> {
    match config.lock() {
        Some(lock) => Err(ReplyFailure::Died(locked_text(id.kind, lock))),
        None => Ok(()),
    }
}

/// Refuses a digest that is not that of the file; an empty one is ignored.
pub(crate) fn check_digest(
    id: GuestId,
    config: &Config,
    digest: Option<&str>,
    release: Release,
) -> Result<(), ReplyFailure> {
    match digest {
        Some(digest) if !digest.is_empty() && digest != config.digest(id.kind) => {
            Err(ReplyFailure::died(match id.kind {
                GuestKind::Lxc => MODIFIED,
                GuestKind::Qemu if release < Release::V8_0 => {
                    "checksum missmatch (file change by other user?)"
                }
                GuestKind::Qemu => "checksum mismatch (file change by other user?)",
            }))
        }
        Some(_) | None => Ok(()),
    }
}

/// What LXC writes and QEMU moves say to a stale digest.
pub(crate) const MODIFIED: &str =
    "detected modified configuration - file changed by other user? Try again.";

/// Drops waiting values that equal the active ones, and waiting removals of absent keys.
pub(crate) fn cleanup_pending(config: &mut Config) {
    let active = &config.active;
    config.pending.retain(|key, value| active.get(key) != Some(value));
    config.pending_delete.retain(|key, _| active.contains_key(key));
}

/// Tags as PVE stores them under the datacenter's rules: lower case, sorted, each once.
pub(crate) fn stored_tags(world: &World, text: &str) -> String {
    let style = world.options.get("tag-style").map_or("", String::as_str);
    let keep_case = style.split(',').any(|part| part == "case-sensitive=1");
    let keep_order = style.split(',').any(|part| part == "ordering=config");
    let mut tags: Vec<String> = Vec::new();
    for tag in split_list(text) {
        let tag = if keep_case { tag.to_owned() } else { tag.to_lowercase() };
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    if !keep_order {
        tags.sort();
    }
    tags.join(";")
}

/// Shares and weights are clamped to what the second control group version takes.
pub(crate) fn clamped_cpu_units(text: &str) -> String {
    match text.parse::<u64>() {
        Ok(units) => units.min(10_000).to_string(),
        Err(_) => text.to_owned(),
    }
}

/// PVE hands each key to `ssh-keygen`; here the blob must be whole and name its own type.
pub(crate) fn check_ssh_keys(text: &str) -> Result<(), ReplyFailure> {
    let good =
        text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')).all(|line| {
            let mut words = line.split_whitespace();
            let (Some(kind), Some(blob)) = (words.next(), words.next()) else { return false };
            ssh_blob_is_whole(kind, blob)
        });
    if good { Ok(()) } else { Err(ReplyFailure::died("SSH public key validation error")) }
}

fn ssh_blob_is_whole(kind: &str, base64: &str) -> bool {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bits = 0_u32;
    let mut count = 0;
    let mut bytes = Vec::new();
    for byte in base64.trim_end_matches('=').bytes() {
        let Some(value) = ALPHABET.iter().position(|c| *c == byte) else { return false };
        bits = (bits << 6) | u32::try_from(value).unwrap_or_default();
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from((bits >> count) & 0xff).unwrap_or_default());
        }
    }
    let mut at = 0;
    let mut fields = Vec::new();
    while let Some(length) = bytes.get(at..at + 4) {
        let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
        let Some(field) = bytes.get(at + 4..(at + 4).saturating_add(length)) else { return false };
        fields.push(field);
        at += 4 + length;
    }
    at == bytes.len() && fields.len() >= 2 && fields[0] == kind.as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_key_is_refused_and_a_whole_one_is_taken() {
        let cut = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ x@y\n";
        assert!(check_ssh_keys(cut).is_err());
        let whole =
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f x";
        assert_eq!(check_ssh_keys(whole), Ok(()));
    }
}
