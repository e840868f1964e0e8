//! The name Proxmox VE gives a task, of which node, start, type and id are read, and the seconds of a clock.
//!
//! The agent parses what PVE answers into these; recovery compares them with what an operation
//! could have started. Everything else of the text is opaque: whoever started it may have any name that a
//! directory gave them. A text without these parts is refused, never trimmed or repaired: it would be put
//! into a path and into the journal.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::model::id::{IdError, NodeName};
use crate::words::shown_text;

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

/// Longer than any UPID PVE can make: node 63, type and id under 64, and a file name, which a UPID is, has 255 bytes.
/// A name that is not ASCII may be listed with two characters, four bytes, for each of its bytes.
const UPID_LENGTH_MAX: usize = 1024;

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

    /// The same for a person to read: no name can steer a terminal or hide what stands beside it.
    pub fn shown_user(&self) -> String {
        shown_text::escaped(&self.user)
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
        if text.bytes().any(|b| b.is_ascii_whitespace() || b.is_ascii_control()) {
            return refuse("it holds a blank or a control character");
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
        // A slash would end the name where it stands in a path.
        if task_type.is_empty() || user.is_empty() || text.contains('/') {
            return refuse("type and user must not be empty, and nothing holds a slash");
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
    let escaped = text.chars().take(80).flat_map(char::escape_default);
    escaped.take(200).collect()
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
            ("UPID:n:00000001:00000001:65000000:vzstart:100:jürgen@pve:", "100", "jürgen@pve"),
            ("UPID:n:00000001:00000001:65000000:vzstart:100:jÃ¼rgen@pve:", "100", "jÃ¼rgen@pve"),
            ("UPID:n:00000001:00000001:65000000:vzstart:100:日本@ad!t:", "100", "日本@ad!t"),
            ("UPID:n:00000001:00000001:65000000:vzstart:100:nobody:", "100", "nobody"),
        ] {
            let upid: Upid = text.parse().unwrap();
            assert_eq!((upid.task_id(), upid.user()), (task_id, user));
            assert_eq!(upid.started_at(), UnixSeconds(0x6500_0000));
            assert_eq!(upid.to_string(), text);
        }
    }

    #[test]
    fn y03_a_name_cannot_steer_the_screen_it_is_shown_on() {
        let text = "UPID:n:00000001:00000001:65000000:vzstart:100:a\u{202E}b\u{85}é@pve:";
        assert_eq!(text.parse::<Upid>().unwrap().shown_user(), "a\\u{202e}b\\u{85}é@pve");
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
            "UPID:pve1:00001234:0123ABCD:65000000:vzstart:100:a/b@pve:",
            "UPID:pve1:00001234:0123ABCD:65000000:vzstart:100:a\u{1b}b@pve:",
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
