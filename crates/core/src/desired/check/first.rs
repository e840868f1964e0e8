//! What a new container gets once, under `first`: keys and a password; no message may quote a value of it.

use super::super::field;
use super::super::source::{FirstUse, SSH_KEYS_MAX, is_public_key, is_stored_secret};
use super::super::tree::{Node, Tree, TreeEntry};
use super::DesiredChecker;
use crate::model::id::GuestKind;
use crate::words::diagnostic::{Code, Diagnostic};

const KEYS_HINT: &str = "write ssh_keys = [\"ssh-ed25519 AAAA… you@example\"]";

impl DesiredChecker<'_> {
    /// `[guest.120.first]`: what a new container gets once.
    pub(super) fn first(&mut self, kind: GuestKind, entry: &TreeEntry) -> Option<FirstUse> {
        if kind == GuestKind::Qemu {
            let message = "`first` is for containers, and this one is qemu";
            let diagnostic = Diagnostic::new(Code::Contradiction, message);
            let hint = "a machine gets its user and keys from cloud-init: write ciuser, sshkeys and \
                        ide2 = { storage = \"local-lvm\", cloudinit = true }";
            self.errors.push(diagnostic.at(entry.key_span, "not for a machine").hint(hint));
            return None;
        }
        let entries = self.table(&entry.value, "`first`")?;
        let mut first = FirstUse::default();
        for entry in entries {
            match entry.key.as_str() {
                "ssh_keys" => first.ssh_keys = self.ssh_keys(entry),
                "password" => first.password = self.first_password(entry),
                _ => self.unknown(entry, "`first`", ["password", "ssh_keys"].into_iter()),
            }
        }
        Some(first)
    }

    fn ssh_keys(&mut self, entry: &TreeEntry) -> Vec<String> {
        let must = "`first.ssh_keys` must be a list of public keys";
        let Tree::List(items) = &entry.value.value else {
            let error = field::wrong_type(&entry.value, must);
            self.errors.push(error.hint(KEYS_HINT));
            return Vec::new();
        };
        if items.len() > SSH_KEYS_MAX {
            let message = format!("more than {SSH_KEYS_MAX} SSH keys are given");
            let diagnostic = Diagnostic::new(Code::Limit, message);
            let hint = "give the keys of those who set the guest up; it brings the others itself";
            self.errors.push(diagnostic.at(entry.key_span, "too many").hint(hint));
        }
        items.iter().filter_map(|item| self.ssh_key(item, must)).collect()
    }

    fn ssh_key(&mut self, item: &Node, must: &str) -> Option<String> {
        let Tree::Text(text) = &item.value else {
            self.errors.push(field::wrong_type(item, must).hint(KEYS_HINT));
            return None;
        };
        let text = text.trim_ascii();
        if is_public_key(text) {
            return Some(text.to_owned());
        }
        let diagnostic = if text.contains("PRIVATE KEY") {
            Diagnostic::new(Code::BadValue, "this is a private key, which nobody else may know")
                .hint("write the line of its .pub file, and make a new key: this one was shown")
        } else {
            Diagnostic::new(Code::BadValue, "an SSH key must be one line of a .pub file")
                .hint(KEYS_HINT)
        };
        self.errors.push(diagnostic.at(item.span, ""));
        None
    }

    /// `password = { secret = "NAME" }`: never the password itself.
    fn first_password(&mut self, entry: &TreeEntry) -> Option<String> {
        let hint = "write password = { secret = \"NAME\" }, and let root put it into the secrets directory of the host";
        let Tree::Table(entries) = &entry.value.value else {
            let message = "`first.password` must name a secret: many people read a desired file";
            self.errors.push(field::wrong_type(&entry.value, message).hint(hint));
            return None;
        };
        for stranger in entries.iter().filter(|entry| entry.key != "secret") {
            self.unknown(stranger, "`first.password`", ["secret"].into_iter());
        }
        let Some(secret) = entries.iter().find(|entry| entry.key == "secret") else {
            let message = "`first.password` must name a secret";
            let diagnostic = Diagnostic::new(Code::Structure, message);
            self.errors.push(diagnostic.at(entry.key_span, "which one?").hint(hint));
            return None;
        };
        match secret.value.value.as_text() {
            Some(name) if is_stored_secret(name) => Some(name.to_owned()),
            Some(_) => {
                let message = "the name of a secret must be 1 to 64 letters, digits, `-`, `_` or `.`, beginning with a \
                               letter or digit";
                let diagnostic = Diagnostic::new(Code::BadValue, message);
                self.errors.push(diagnostic.at(secret.value.span, "not a name").hint(hint));
                None
            }
            None => {
                let message = "the name of a secret must be text in quotes";
                self.errors.push(field::wrong_type(&secret.value, message).hint(hint));
                None
            }
        }
    }
}
