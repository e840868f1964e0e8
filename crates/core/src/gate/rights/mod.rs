//! The privileges a token needs: for reading, and for what is declared. Nothing more is asked for.
//!
//! Derived from the registry, for `doctor`: it compares them with what the token has and prints the
//! smallest role that would do.

mod act;
mod purpose;
mod tags;

use std::collections::{BTreeMap, BTreeSet};

pub use act::{ActRight, of_act};
pub use purpose::TokenPurpose;
pub use tags::guarded_tags;

use crate::action_registry::ActionKind;
use crate::desired::{DeclaredField, Desired, ReconcileMode, Spec, WantedState};
use crate::model::id::{GuestKind, NodeName};
use crate::model::release::Release;
use crate::registry::{Declarable, Hazard};
use crate::value::{Property, Value, VolumeRef};

/// Privileges by the path they are needed on.
pub type Rights = BTreeMap<&'static str, BTreeSet<&'static str>>;

/// The right to see what others did, and how the cluster stands.
pub const AUDIT: &str = "Sys.Audit";

/// Why the task list proves nothing, and what to grant.
pub fn lacks_tasks(node: &NodeName) -> String {
    format!(
        "the token lacks {AUDIT} on /nodes/{node}, and Proxmox hides other people's tasks from it: evenkeel cannot \
         tell whether someone replaced the guest; grant it a role with {AUDIT} there, such as PVEAuditor"
    )
}

/// Why the end of a destroy could not be proven, and what to grant.
pub fn lacks_quorum() -> String {
    format!(
        "the token lacks {AUDIT} on /, so evenkeel cannot read quorum, nor prove afterwards that the guest is \
         gone; grant it a role with {AUDIT} there, such as PVEAuditor"
    )
}

/// What reading a node takes.
pub fn to_read() -> Rights {
    BTreeMap::from([
        // Task lists, quorum and the datacenter's options.
        ("/", BTreeSet::from([AUDIT])),
        ("/storage", BTreeSet::from(["Datastore.Audit"])),
        ("/vms", BTreeSet::from(["VM.Audit"])),
    ])
}

/// What seeing everything takes that goes with a guest when it is destroyed. Without it such a guest is signed for, and the
/// signer is told what is not visible.
fn to_see_surroundings() -> Rights {
    BTreeMap::from([
        ("/", BTreeSet::from([AUDIT])),
        ("/access", BTreeSet::from([AUDIT])),
        ("/pool", BTreeSet::from(["Pool.Audit"])),
        ("/vms", BTreeSet::from(["VM.Audit"])),
    ])
}

/// What reading a node, keeping these guests and destroying those that are declared absent takes.
pub fn to_keep(desired: &Desired, release: Release) -> Rights {
    let mut rights = to_read();
    for guest in desired.guests.values() {
        if let (WantedState::Bin(_), ReconcileMode::Enforce) = (&guest.state, guest.mode) {
            // Down, not started with the node, and tagged.
            rights.entry("/vms").or_default().extend(["VM.Config.Options", "VM.PowerMgmt"]);
        }
        if let (WantedState::Absent { final_backup }, ReconcileMode::Enforce) =
            (&guest.state, guest.mode)
        {
            let saved = final_backup.as_ref().map(|_| TokenPurpose::BackUp);
            for purpose in [TokenPurpose::Destroy].into_iter().chain(saved) {
                add(&mut rights, purpose.rights(release));
            }
        }
        // What is only observed takes no right to change it.
        if let (WantedState::Present(spec), ReconcileMode::Enforce) = (&guest.state, guest.mode) {
            add_spec(&mut rights, guest.id.kind, spec, release);
        }
    }
    rights
}

fn add(rights: &mut Rights, more: Rights) {
    for (path, privileges) in more {
        rights.entry(path).or_default().extend(privileges);
    }
}

fn add_spec(rights: &mut Rights, kind: GuestKind, spec: &Spec, release: Release) {
    for purpose in TokenPurpose::of(kind, spec) {
        add(rights, purpose.rights(release));
    }
    let mut need = |path: &'static str, privilege: &'static str| {
        rights.entry(path).or_default().insert(privilege);
    };
    if spec.run.is_some() && !spec.ignore.run {
        for kind in [ActionKind::Start, ActionKind::Shutdown, ActionKind::Stop] {
            kind.row().rights.iter().for_each(|(path, privilege)| need(path, privilege));
        }
    }
    for field in spec.fields.iter().filter(|field| !spec.ignore.whole(field.key)) {
        let is_written = match field.key.key().declared {
            Declarable::Yes => true,
            // Written once, if the guest is made.
            Declarable::AtCreation => spec.source.is_some(),
            // No privilege lets a token set these.
            Declarable::RootOnly | Declarable::No(_) => false,
        };
        if is_written {
            add_field(&mut need, kind, field, release);
        }
    }
}

/// What writing one field takes.
fn add_field(
    need: &mut impl FnMut(&'static str, &'static str),
    kind: GuestKind,
    field: &DeclaredField,
    release: Release,
) {
    let key = field.key.key();
    for privilege in key.privilege.names() {
        need(if *privilege == "Sys.Modify" { "/" } else { "/vms" }, privilege);
    }
    let property = field.want.as_ref().and_then(Value::as_property);
    match key.hazard {
        Hazard::VolumeSlot | Hazard::RootVolume | Hazard::TpmState => {
            add_volume(need, kind, property);
        }
        Hazard::Safe
        | Hazard::Disrupts
        | Hazard::Guard
        | Hazard::GuestName
        | Hazard::UnusedVolume
        | Hazard::Forbidden => {}
    }
    // Devices and directories of the host come by a mapping, which since 8.0 is somebody's to allow.
    let is_mapped = property
        .is_some_and(|property| property.parts().iter().any(|(name, _)| *name == "mapping"));
    let shares = key.name == "virtiofs";
    if (is_mapped || shares) && release >= Release::V8_0 {
        need("/mapping", "Mapping.Use");
    }
    if key.name == "net" && release >= Release::V8_0 {
        need("/sdn/zones", "SDN.Use");
    }
    if kind == GuestKind::Lxc && key.name == "features" {
        need("/vms", "VM.Allocate");
    }
}

/// What a slot takes that holds a volume.
fn add_volume(
    need: &mut impl FnMut(&'static str, &'static str),
    kind: GuestKind,
    property: Option<&Property>,
) {
    need("/storage", "Datastore.AllocateSpace");
    // A container's volume grows by a call whose parameters fall under what no other right is for.
    if kind == GuestKind::Lxc {
        need("/vms", "VM.Config.Options");
    }
    if kind == GuestKind::Qemu && property.is_some_and(Property::is_cdrom) {
        need("/vms", "VM.Config.CDROM");
    }
    let volume = property.and_then(Property::volume);
    if matches!(volume, Some(VolumeRef::CloudInit { .. })) {
        need("/vms", "VM.Config.Cloudinit");
    }
}

/// Of the rights needed, those that are not among the rights held. A right held on `/` reaches everywhere.
pub fn missing(needed: &Rights, held: impl Fn(&str, &str) -> bool) -> Rights {
    let lacking = |path: &&'static str, privileges: &BTreeSet<&'static str>| {
        let lacking: BTreeSet<&'static str> = privileges
            .iter()
            .filter(|privilege| !held(path, privilege) && !held("/", privilege))
            .copied()
            .collect();
        (!lacking.is_empty()).then_some((*path, lacking))
    };
    needed.iter().filter_map(|(path, privileges)| lacking(path, privileges)).collect()
}

/// Whether a token has rights of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenSeparation {
    /// `--privsep 1`: it has what both it and its user were granted.
    Separated,
    /// `--privsep 0`: it has what its user was granted, whatever it was granted itself.
    AsUser,
    /// Nobody lets us see it.
    Unknown,
}

/// The commands, one a line, that make the smallest role that would do and grant it. A grant to a token alone never
/// helps: one with rights of its own needs its user's as well, and any other has only its user's.
pub fn grant_commands(needed: &Rights, token_id: &str, separation: TokenSeparation) -> Vec<String> {
    let all: BTreeSet<&str> = needed.values().flatten().copied().collect();
    let privileges: Vec<&str> = all.into_iter().collect();
    let (user, _) = token_id.split_once('!').unwrap_or((token_id, ""));
    let holders = match separation {
        TokenSeparation::AsUser => format!("--users '{user}'"),
        // Whoever may do everything needs no grant.
        TokenSeparation::Separated if user == "root@pam" => format!("--tokens '{token_id}'"),
        TokenSeparation::Separated | TokenSeparation::Unknown => {
            format!("--users '{user}' --tokens '{token_id}'")
        }
    };
    vec![
        format!("pveum role add Evenkeel --privs '{}'", privileges.join(" ")),
        format!("pveum acl modify / {holders} --roles Evenkeel"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::load;
    use crate::words::diagnostic::Sources;

    fn keep(text: &str, release: Release) -> Rights {
        let mut sources = Sources::default();
        sources.add("a.toml", text);
        to_keep(&load(&sources).unwrap(), release)
    }

    #[test]
    fn only_what_is_declared_asks_for_rights() {
        assert_eq!(keep("", Release::V8_4), to_read());
        let rights = keep(
            "[guest.101]\nkind = \"lxc\"\nrun = \"running\"\ncores = 2\nnet0 = \"name=eth0\"\n\
             [guest.102]\nkind = \"lxc\"\nstate = \"absent\"\n\
             [guest.200]\nkind = \"qemu\"\nstartup = 1\nide2 = \"none,media=cdrom\"\nargs = \"-x\"\n",
            Release::V8_4,
        );
        let vms = [
            "VM.Allocate",
            "VM.Audit",
            "VM.Config.CDROM",
            "VM.Config.CPU",
            "VM.Config.Disk",
            "VM.Config.Network",
        ];
        let vms = vms.into_iter().chain(["VM.Config.Options", "VM.PowerMgmt"]);
        assert_eq!(rights["/vms"], vms.collect());
        assert_eq!(rights["/"], BTreeSet::from(["Sys.Audit", "Sys.Modify"]));
        assert_eq!(rights["/sdn/zones"], BTreeSet::from(["SDN.Use"]));
        assert_eq!(rights["/pool"], BTreeSet::from(["Pool.Audit"]), "102 is to be destroyed");
        let old = keep("[guest.101]\nkind = \"lxc\"\nnet0 = \"name=eth0\"\n", Release::V7_4);
        assert!(!old.contains_key("/sdn/zones"));
    }

    #[test]
    fn what_is_to_be_destroyed_asks_for_each_of_its_steps() {
        let absent = "[guest.102]\nkind = \"lxc\"\nstate = \"absent\"\n";
        let rights = keep(absent, Release::V8_4);
        let steps = ["VM.Allocate", "VM.Audit", "VM.Config.Options", "VM.PowerMgmt"];
        assert_eq!(rights["/vms"], steps.into());
        let saved = format!("{absent}final_backup = \"store\"\n");
        let rights = keep(&saved, Release::V8_4);
        assert!(rights["/vms"].contains("VM.Backup"));
        assert!(rights["/storage"].contains("Datastore.AllocateSpace"));
    }

    #[test]
    fn y18_a_mapped_device_asks_for_the_use_of_its_mapping() {
        let mapped = "[guest.200]\nkind = \"qemu\"\nhostpci0 = \"mapping=card\"\n";
        assert_eq!(keep(mapped, Release::V8_4)["/mapping"], ["Mapping.Use"].into());
        let usb = "[guest.200]\nkind = \"qemu\"\nusb0 = \"mapping=stick\"\n";
        assert!(keep(usb, Release::V8_4).contains_key("/mapping"));
        let plain = "[guest.200]\nkind = \"qemu\"\nusb0 = \"spice\"\n";
        assert!(!keep(plain, Release::V8_4).contains_key("/mapping"));
    }

    #[test]
    fn a_containers_volume_and_every_restore_ask_for_its_options_too() {
        let grown =
            "[guest.101]\nkind = \"lxc\"\nrootfs = { storage = \"tank\", size = \"8GiB\" }\n";
        assert!(keep(grown, Release::V8_4)["/vms"].contains("VM.Config.Options"));
        let options = |kind: &str| {
            let text = format!(
                "[guest.222]\nkind = \"{kind}\"\nsource = {{ backup = \"s1:backup/x\" }}\n"
            );
            keep(&text, Release::V8_4)["/vms"].contains("VM.Config.Options")
        };
        // `onboot` comes with the backup and is set before anything else.
        assert!(options("lxc") && options("qemu"));
    }

    #[test]
    fn what_may_be_made_asks_for_what_its_making_takes_on_that_release() {
        let vms = |text: &str, release| keep(text, release).remove("/vms").unwrap();
        let root = |text: &str, release| keep(text, release).remove("/").unwrap();
        let template =
            "[guest.120]\nkind = \"lxc\"\nsource = { template = \"local:vztmpl/a.tar.zst\" }\n";
        assert_eq!(vms(template, Release::V8_4), BTreeSet::from(["VM.Allocate", "VM.Audit"]));
        let clone = "[guest.221]\nkind = \"qemu\"\nsource = { clone = 9000 }\n";
        assert!(vms(clone, Release::V8_4).contains("VM.Clone"));
        assert!(
            keep(clone, Release::V8_4).contains_key("/sdn/zones"),
            "it copies the source's cards"
        );
        assert!(!keep(clone, Release::V7_4).contains_key("/sdn/zones"));
        let backup = "[guest.222]\nkind = \"lxc\"\nsource = { backup = \"s1:backup/x\" }\n";
        assert!(vms(backup, Release::V8_4).contains("VM.Backup"));
        for text in [template, backup] {
            let privileged = format!("{text}unprivileged = false\n");
            assert!(root(&privileged, Release::V9_0).contains("Sys.Modify"), "{text}");
            assert!(!root(&privileged, Release::V8_4).contains("Sys.Modify"), "{text}");
            assert!(
                !root(&format!("{text}unprivileged = true\n"), Release::V9_0)
                    .contains("Sys.Modify")
            );
        }
        let cloud =
            "[guest.220]\nkind = \"qemu\"\nide2 = { storage = \"local-lvm\", cloudinit = true }\n";
        let needed = vms(cloud, Release::V8_4);
        assert!(needed.contains("VM.Config.Cloudinit") && needed.contains("VM.Config.CDROM"));
        assert!(
            vms("[guest.9000]\nkind = \"qemu\"\ntemplate = true\n", Release::V8_4)
                .contains("VM.Allocate")
        );
    }

    #[test]
    fn the_grant_names_whoever_has_the_rights_of_the_token() {
        let acl = |token, separation| grant_commands(&to_read(), token, separation).remove(1);
        let as_user = acl("ops@pve!keel", TokenSeparation::AsUser);
        assert_eq!(as_user, "pveum acl modify / --users 'ops@pve' --roles Evenkeel");
        for separation in [TokenSeparation::Separated, TokenSeparation::Unknown] {
            let both = acl("ops@pve!keel", separation);
            assert!(both.contains("--users 'ops@pve' --tokens 'ops@pve!keel'"), "{both}");
        }
        let root = acl("root@pam!keel", TokenSeparation::Separated);
        assert!(!root.contains("--users"), "{root}");
    }

    #[test]
    fn what_is_observed_or_ignored_asks_for_no_right_to_change_it() {
        let observed = "[guest.101]\nkind = \"lxc\"\nmode = \"observe\"\ncores = 2\n";
        assert_eq!(keep(observed, Release::V8_4), to_read());
        let ignored = "[guest.101]\nkind = \"lxc\"\nrun = \"running\"\ncores = 2\n\
                       ignore = [\"run\", \"cores\"]\n";
        assert_eq!(keep(ignored, Release::V8_4), to_read());
    }

    #[test]
    fn a_right_on_the_root_reaches_everywhere() {
        let needed = to_read();
        assert!(missing(&needed, |path, _| path == "/").is_empty());
        let lacking = missing(&needed, |path, _| path == "/vms");
        assert_eq!(lacking.keys().copied().collect::<Vec<_>>(), ["/", "/storage"]);
    }
}
