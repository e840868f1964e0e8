//! What one act takes of the token, on the very paths that Proxmox looks at.
//!
//! Asked before an act is put before a signer, before it is begun, and before anything is spent on it: a right that is
//! missing is known then, and named. Some calls, such as a backup's, answer 200 without it and fail later. It must never
//! allow anything: Proxmox itself refuses what was granted and taken back meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use crate::action_registry::ActionKind;
use crate::gate::approval::saves_first;
use crate::gate::final_backup;
use crate::model::id::{GuestId, GuestKind};
use crate::registry;

/// One right that an act takes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ActRight {
    /// Such as `/vms/100`.
    pub path: String,
    /// Any of these will do; the first is the one to grant.
    pub any: &'static [&'static str],
}

impl std::fmt::Display for ActRight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}", self.any.join(" or "), self.path)
    }
}

/// Every right that an act with these parameters takes on a guest.
pub fn of_act(
    op: ActionKind,
    guest: GuestId,
    params: &BTreeMap<String, String>,
) -> BTreeSet<ActRight> {
    let is_on = |name: &str| params.get(name).map(String::as_str) == Some("1");
    let text = |name: &str| params.get(name).map(String::as_str).unwrap_or_default();
    let mut needed = ActRights { guest, all: BTreeSet::new() };
    match op {
        ActionKind::Destroy => {
            needed.on_guest(&["VM.Allocate"]);
            if is_on("stop") {
                needed.on_guest(&["VM.PowerMgmt"]);
            }
            if is_on("unprotect") {
                needed.on_guest(&["VM.Config.Options"]);
            }
            if saves_first(params) {
                needed.save_to(text(final_backup::STORAGE));
            }
        }
        ActionKind::Backup => needed.save_to(text("storage")),
        ActionKind::Rollback => needed.on_guest(&["VM.Snapshot.Rollback", "VM.Snapshot"]),
        ActionKind::Snapshot | ActionKind::DeleteSnapshot => needed.on_guest(&["VM.Snapshot"]),
        ActionKind::DeleteVolume => match guest.kind {
            // A detached volume of a container falls under what no other right is for.
            GuestKind::Lxc => needed.on_guest(&["VM.Config.Options"]),
            GuestKind::Qemu => needed.on_guest(&["VM.Config.Disk"]),
        },
        ActionKind::SetConfig => needed.write(params),
        ActionKind::Template => needed.on_guest(&["VM.Allocate"]),
        ActionKind::Start | ActionKind::Shutdown | ActionKind::Stop => {
            needed.on_guest(&["VM.PowerMgmt"]);
        }
        ActionKind::Resize | ActionKind::MoveVolume => needed.on_guest(&["VM.Config.Disk"]),
        ActionKind::Migrate => needed.on_guest(&["VM.Migrate"]),
        // What makes a guest is planned: doctor names its rights, and a refusal spends nothing.
        ActionKind::Create | ActionKind::Clone | ActionKind::Restore => {}
        ActionKind::WipeStorage | ActionKind::Decommission => {}
    }
    needed.all
}

struct ActRights {
    guest: GuestId,
    all: BTreeSet<ActRight>,
}

impl ActRights {
    fn on(&mut self, path: String, any: &'static [&'static str]) {
        self.all.insert(ActRight { path, any });
    }

    fn on_guest(&mut self, any: &'static [&'static str]) {
        self.on(format!("/vms/{}", self.guest.vmid), any);
    }

    fn save_to(&mut self, storage: &str) {
        self.on_guest(&["VM.Backup"]);
        self.on(format!("/storage/{storage}"), &["Datastore.AllocateSpace"]);
    }

    /// What the keys take that are written or deleted.
    fn write(&mut self, params: &BTreeMap<String, String>) {
        let listed = ["delete", "revert"].iter().filter_map(|name| params.get(*name));
        let listed = listed.flat_map(|list| list.split([',', ';', ' ']));
        let names: BTreeSet<&str> = params.keys().map(String::as_str).chain(listed).collect();
        for name in names {
            let Some(key) = registry::find(self.guest.kind, name) else { continue };
            let key = key.key();
            for privilege in key.privilege.names().chunks(1) {
                match privilege {
                    ["Sys.Modify"] => self.on("/".to_owned(), privilege),
                    _ => self.on_guest(privilege),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed(op: ActionKind, guest: &str, params: &[(&str, &str)]) -> Vec<String> {
        let params = params.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned()));
        let all = of_act(op, guest.parse().unwrap(), &params.collect());
        all.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_destroy_takes_the_rights_of_each_of_its_steps() {
        let bare = [("stop", "0"), ("unprotect", "0"), ("final_backup", "")];
        assert_eq!(needed(ActionKind::Destroy, "lxc/100", &bare), ["VM.Allocate on /vms/100"]);
        let whole = [("stop", "1"), ("unprotect", "1"), ("final_backup", "store")];
        assert_eq!(
            needed(ActionKind::Destroy, "lxc/100", &whole),
            [
                "Datastore.AllocateSpace on /storage/store",
                "VM.Allocate on /vms/100",
                "VM.Backup on /vms/100",
                "VM.Config.Options on /vms/100",
                "VM.PowerMgmt on /vms/100",
            ]
        );
    }

    #[test]
    fn every_signed_or_asked_act_takes_a_right() {
        for op in ActionKind::ALL {
            let takes = !of_act(op, "lxc/100".parse().unwrap(), &BTreeMap::new()).is_empty();
            let is_free = op.creates_guest()
                || op == ActionKind::SetConfig
                || matches!(op, ActionKind::WipeStorage | ActionKind::Decommission);
            assert_eq!(takes, !is_free, "{op}");
        }
        let write =
            needed(ActionKind::SetConfig, "qemu/200", &[("startup", "1"), ("delete", "cores")]);
        assert_eq!(
            write,
            ["Sys.Modify on /", "VM.Config.CPU on /vms/200", "VM.Config.Options on /vms/200"]
        );
    }
}
