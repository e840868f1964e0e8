//! The name Proxmox VE gives a task, taken apart strictly, and the seconds of a clock.
//!
//! The agent parses what PVE answers into these; recovery compares them with what an operation
//! could have started. A text that is not exactly a UPID is refused, never trimmed or repaired:
//! it would be put into a path and into the journal.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::{IdError, NodeName};

/// Whole seconds since 1970 on one clock. The field that holds it says whose clock it is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UnixSeconds(pub u64);

impl UnixSeconds {
    /// The moment so many seconds later.
    #[must_use]
    pub fn plus(self, seconds: u64) -> Self {
        Self(self.0.saturating_add(seconds))
    }

    /// The moment so many seconds earlier.
    #[must_use]
    pub fn minus(self, seconds: u64) -> Self {
        Self(self.0.saturating_sub(seconds))
    }
}

/// A PVE task: `UPID:node:pid:pstart:starttime:type:id:user:`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Upid {
    text: String,
    node: NodeName,
    started_at: UnixSeconds,
    task_type: String,
    task_id: String,
    user: String,
}

/// Longer than any UPID PVE can make (node 63, type and id under 64, user and token under 150).
const UPID_LENGTH_MAX: usize = 512;

impl Upid {
    /// The text as PVE gave it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The node the task runs on; its status can only be asked there.
    pub fn node(&self) -> &NodeName {
        &self.node
    }

    /// When it was started, by the node's clock.
    pub fn started_at(&self) -> UnixSeconds {
        self.started_at
    }

    /// What it does: `vzstart`, `qmclone`.
    pub fn task_type(&self) -> &str {
        &self.task_type
    }

    /// What it is done to: mostly a guest number, sometimes empty or `100-mp0>101-mp0`.
    pub fn task_id(&self) -> &str {
        &self.task_id
    }

    /// Who started it, token included. Task lists show running entries with `user@realm!token` in
    /// one field and archived ones split in two; the UPID itself always holds the whole, so this is
    /// what is compared.
    pub fn user(&self) -> &str {
        &self.user
    }
}

impl fmt::Display for Upid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Upid> for String {
    fn from(upid: Upid) -> Self {
        upid.text
    }
}

impl TryFrom<String> for Upid {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl FromStr for Upid {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let refuse = |why| Err(IdError { what: "task", text: shortened(text), why });
        if text.len() > UPID_LENGTH_MAX {
            return refuse("it is longer than any task name");
        }
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return refuse("only printable ASCII without blanks is allowed");
        }
        let parts: Vec<&str> = text.split(':').collect();
        let ["UPID", node, pid, pstart, started, task_type, task_id, user, ""] = parts[..] else {
            return refuse("it must look like UPID:node:pid:pstart:starttime:type:id:user:");
        };
        let hex = |part: &str| part.bytes().all(|b| b.is_ascii_hexdigit());
        // The start tick outgrows eight digits after 497 days of uptime.
        if pid.len() != 8 || !matches!(pstart.len(), 8 | 9) || !hex(pid) || !hex(pstart) {
            return refuse("process id and start tick must be 8 (or 9) hexadecimal digits");
        }
        let started_at = match u64::from_str_radix(started, 16) {
            Ok(seconds) if started.len() == 8 && hex(started) => UnixSeconds(seconds),
            Ok(_) | Err(_) => return refuse("the start time must be 8 hexadecimal digits"),
        };
        if task_type.is_empty() || task_type.contains('/') || task_id.contains('/') {
            return refuse("the type must not be empty, and type and id hold no slash");
        }
        let is_user = |(name, realm): (&str, &str)| !name.is_empty() && !realm.is_empty();
        if !user.split_once('@').is_some_and(is_user) || user.contains('/') {
            return refuse("the user must be user@realm, with or without a token");
        }
        Ok(Self {
            text: text.to_owned(),
            node: node.parse()?,
            started_at,
            task_type: task_type.to_owned(),
            task_id: task_id.to_owned(),
            user: user.to_owned(),
        })
    }
}

/// An error text must not carry ten kilobytes of somebody else's bytes.
fn shortened(text: &str) -> String {
    text.chars().take(80).collect::<String>().escape_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_taken_apart_and_printed_as_it_came() {
        for (text, task_id, user) in [
            (
                "UPID:pve1:00001234:0123ABCD:65000000:vzstart:100:agent@pve!ek:",
                "100",
                "agent@pve!ek",
            ),
            ("UPID:a-b:00001234:1F23ABCDE:65000000:vzdump::root@pam:", "", "root@pam"),
            (
                "UPID:n:00000001:00000001:65000000:qmmove:100-scsi0>101-scsi1:a@b:",
                "100-scsi0>101-scsi1",
                "a@b",
            ),
        ] {
            let upid: Upid = text.parse().unwrap();
            assert_eq!((upid.task_id(), upid.user()), (task_id, user));
            assert_eq!(upid.started_at(), UnixSeconds(0x6500_0000));
            assert_eq!(upid.to_string(), text);
        }
    }

    #[test]
    fn anything_but_a_whole_task_name_is_refused_with_a_short_error() {
        let long = format!("UPID:n:00000001:00000001:65000000:{}:100:a@b:", "t".repeat(10_000));
        for text in [
            "",
            "OK",
            "UPID:pve1:00001234:0123ABCD:65000000:vzstart:100:agent@pve",
            "UPID:pve1:00001234:0123ABCD:65000000:vzstart:100:agent@pve:x",
            "UPID:pve1:1234:0123ABCD:65000000:vzstart:100:agent@pve:",
            "UPID:pve1:00001234:0123ABCDEF:65000000:vzstart:100:agent@pve:",
            "UPID:pve1:00001234:0123ABCD:6500000:vzstart:100:agent@pve:",
            "UPID:pve1:00001234:0123ABCD:+6500000:vzstart:100:agent@pve:",
            "UPID:pve1:00001234:0123ABCD:65000000::100:agent@pve:",
            "UPID:pve1:00001234:0123ABCD:65000000:vz/start:100:agent@pve:",
            "UPID:pve1:00001234:0123ABCD:65000000:vzstart:../1:agent@pve:",
            "UPID:pve1:00001234:0123ABCD:65000000:vzstart:100::",
            "UPID:pve1:00001234:0123ABCD:65000000:vzstart:100:agent:",
            "UPID:pve_1:00001234:0123ABCD:65000000:vzstart:100:agent@pve:",
            "UPID:pve1:00001234:0123ABCD:65000000:vzstart:100:agent@pve:\n",
            " UPID:pve1:00001234:0123ABCD:65000000:vzstart:100:agent@pve:",
            &long,
        ] {
            let error = text.parse::<Upid>().unwrap_err();
            assert!(error.text.len() <= 200, "{text}");
        }
    }
}
