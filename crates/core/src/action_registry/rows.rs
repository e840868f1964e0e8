//! The rows. Adding a kind means adding a row here and the code of its call.

use serde::{Deserialize, Serialize};

use super::param::{flag, param, text};
use super::{
    ActionCost, ActionRow, AppliesWaiting, ExecutionRight, FilledFrom, LaneUse, LossRule,
    NullAnswer, OriginEffect, ParamForm, Proof, RefusalMeaning, Replacement, TaskSubject,
    TaskTypes,
};
use crate::actual::Power;
use crate::gate::classify::ActionClass;
use crate::model::id::GuestKind;
use crate::operate::operation::OpPhase;

/// Makes the enum, its list and its rows out of one table.
macro_rules! actions {
    ($($kind:ident $name:literal $summary:literal { $($field:ident: $value:expr,)* })+) => {
        /// What an action does.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "&'static str")]
        pub enum ActionKind {
            $(#[doc = $summary] $kind,)+
        }

        impl ActionKind {
            /// Every kind, in the order the documentation lists them.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$kind),+];

            /// All facts about it.
            pub fn row(self) -> &'static ActionRow {
                match self {
                    $(Self::$kind => {
                        const ROW: ActionRow = ActionRow {
                            name: $name,
                            summary: $summary,
                            $($field: $value,)*
                            ..PLAIN
                        };
                        &ROW
                    })+
                }
            }
        }
    };
}

/// What a row says unless it says otherwise: an action without executor that destroys nothing.
const PLAIN: ActionRow = ActionRow {
    name: "",
    summary: "",
    execution: ExecutionRight::NotYet("it is not available yet"),
    cost: ActionCost::Always(ActionClass::Benign, ""),
    params: &[],
    takes_keys: false,
    only_listed: false,
    filled_from: FilledFrom::Defaults,
    prepared_by: &[],
    call: "",
    tasks: TaskTypes { lxc: &[], qemu: &[], subject: TaskSubject::Guest },
    null_answer: NullAnswer::Done,
    refusal: RefusalMeaning::NothingDone,
    proof: Proof::NotRead,
    loss: LossRule::AsParameters,
    origin: OriginEffect::Keeps,
    replaces: Replacement::Nothing,
    applies_waiting: AppliesWaiting::No,
    lanes: LaneUse::Guest,
    rights: &[],
};

const fn always(class: ActionClass, why: &'static str) -> ActionCost {
    ActionCost::Always(class, why)
}

const fn tasks(lxc: &'static [&'static str], qemu: &'static [&'static str]) -> TaskTypes {
    TaskTypes { lxc, qemu, subject: TaskSubject::Guest }
}

actions! {
    SetConfig "set_config" "Write configuration keys." {
        execution: ExecutionRight::PlannedOrSigned,
        cost: ActionCost::ByChanges,
        params: &[
            param("background_delay", ParamForm::Count),
            param("delete", ParamForm::Keys),
            text("digest"),
            flag("force").destroys_if_on("destroys what is deleted instead of detaching it"),
            param("revert", ParamForm::Keys),
        ],
        takes_keys: true,
        call: "PUT config; POST config for a virtual machine that gets a volume",
        tasks: tasks(&[], &["qmconfig"]),
        refusal: RefusalMeaning::PerhapsInPart,
        proof: Proof::Configuration,
        applies_waiting: AppliesWaiting::StoppedMachine,
    }
    Start "start" "Start the guest." {
        execution: ExecutionRight::Planned,
        call: "POST status/start",
        tasks: tasks(&["vzstart", "hastart"], &["qmstart", "hastart"]),
        proof: Proof::PowerState(Power::Running),
        applies_waiting: AppliesWaiting::Yes,
        rights: &[("/vms", "VM.PowerMgmt")],
    }
    Shutdown "shutdown" "Ask the guest to go down." {
        execution: ExecutionRight::Planned,
        cost: always(ActionClass::Disruptive, "takes the guest down"),
        params: &[flag("forceStop").interrupts(), param("timeout", ParamForm::Count)],
        call: "POST status/shutdown",
        tasks: tasks(&["vzshutdown", "hastop"], &["qmshutdown", "hastop"]),
        proof: Proof::PowerState(Power::Stopped),
        applies_waiting: AppliesWaiting::Yes,
        rights: &[("/vms", "VM.PowerMgmt")],
    }
    Stop "stop" "Take the guest down at once." {
        execution: ExecutionRight::Planned,
        cost: always(ActionClass::Disruptive, "cuts the guest's power"),
        params: &[flag("overrule-shutdown").interrupts(), param("timeout", ParamForm::Count)],
        call: "POST status/stop",
        tasks: tasks(&["vzstop", "hastop"], &["qmstop", "hastop"]),
        proof: Proof::PowerState(Power::Stopped),
        applies_waiting: AppliesWaiting::Yes,
        rights: &[("/vms", "VM.PowerMgmt")],
    }
    Resize "resize" "Grow a volume." {
        execution: ExecutionRight::Planned,
        cost: ActionCost::ByGrowth,
        params: &[text("digest"), param("disk", ParamForm::Slot), text("size")],
        call: "PUT resize",
        tasks: tasks(&["resize"], &["resize"]),
        refusal: RefusalMeaning::PerhapsInPart,
        proof: Proof::VolumeSize,
        rights: &[("/vms", "VM.Config.Disk"), ("/storage", "Datastore.AllocateSpace")],
    }
    Create "create" "Make a new guest." {
        execution: ExecutionRight::Planned,
        cost: ActionCost::ByFreeNumber,
        params: &[
            text("bwlimit"),
            flag("ha-managed").interrupts(),
            text("ostemplate"),
            text("pool"),
            text("ssh-public-keys"),
            flag("start"),
            param("storage", ParamForm::Storage),
        ],
        takes_keys: true,
        call: "POST",
        tasks: tasks(&["vzcreate"], &["qmcreate"]),
        proof: Proof::GuestMade,
        origin: OriginEffect::Begins,
        replaces: Replacement::OtherGuest,
        rights: &[("/vms", "VM.Allocate"), ("/storage", "Datastore.AllocateSpace")],
    }
    Clone "clone" "Make a new guest from another one." {
        execution: ExecutionRight::Planned,
        cost: ActionCost::ByFreeNumber,
        params: &[
            text("bwlimit"),
            text("description"),
            text("format"),
            flag("full"),
            text("hostname"),
            text("name"),
            param("newid", ParamForm::VmId),
            text("pool"),
            param("snapname", ParamForm::Snapshot),
            param("storage", ParamForm::Storage),
            param("target", ParamForm::Node),
        ],
        call: "POST clone",
        tasks: TaskTypes {
            lxc: &["vzclone"],
            qemu: &["qmclone"],
            subject: TaskSubject::CloneSource,
        },
        proof: Proof::GuestMade,
        origin: OriginEffect::Begins,
        // A clone's task carries its source's number, so it tells nothing of the number it takes. The destroy that must
        // come before it does.
        replaces: Replacement::Nothing,
        lanes: LaneUse::GuestAndSource,
        rights: &[
            ("/vms", "VM.Clone"),
            ("/vms", "VM.Allocate"),
            ("/storage", "Datastore.AllocateSpace"),
        ],
    }
    Restore "restore" "Make a guest from a backup." {
        execution: ExecutionRight::Planned,
        cost: ActionCost::ByFreeNumber,
        params: &[
            param("archive", ParamForm::Volume),
            text("bwlimit"),
            flag("force").destroys_if_on("destroys the guest that has this number").spelled_out(),
            text("ostemplate"),
            text("pool"),
            flag("restore"),
            flag("start"),
            param("storage", ParamForm::Storage),
            flag("unique"),
        ],
        takes_keys: true,
        call: "POST",
        tasks: tasks(&["vzrestore"], &["qmrestore"]),
        proof: Proof::GuestMade,
        origin: OriginEffect::Begins,
        replaces: Replacement::OtherGuest,
        rights: &[("/vms", "VM.Allocate"), ("/storage", "Datastore.AllocateSpace")],
    }
    Snapshot "snapshot" "Take a snapshot." {
        execution: ExecutionRight::Asked,
        params: &[text("description"), param("snapname", ParamForm::Snapshot), flag("vmstate")],
        call: "POST snapshot",
        tasks: tasks(&["vzsnapshot"], &["qmsnapshot"]),
        proof: Proof::SnapshotListed,
        rights: &[("/vms", "VM.Snapshot")],
    }
    Backup "backup" "Save the guest to a storage." {
        execution: ExecutionRight::Asked,
        params: &[
            flag("remove").destroys_if_on("removes older backups by the storage's retention"),
            param("storage", ParamForm::Storage),
        ],
        call: "POST /nodes/NODE/vzdump",
        tasks: tasks(&["vzdump"], &["vzdump"]),
        proof: Proof::ArchiveListed,
        rights: &[("/vms", "VM.Backup"), ("/storage", "Datastore.AllocateSpace")],
    }
    Destroy "destroy" "Remove the guest and its volumes." {
        execution: ExecutionRight::Signed,
        cost: ActionCost::ByOrigin,
        params: &[
            flag("destroy-unreferenced-disks")
                .destroys_if_on("destroys volumes of former guests of this number")
                .spelled_out(),
            param("final_backup", ParamForm::StorageOrNothing).spelled_out(),
            flag("force").interrupts().spelled_out().only(GuestKind::Lxc),
            param("not_in_backup", ParamForm::LeftOut).spelled_out(),
            flag("purge").destroys_if_on("removes backup jobs, replicas and HA entries").spelled_out(),
            flag("stop").interrupts().spelled_out(),
            flag("unprotect").destroys_if_on("takes off a protection somebody set").spelled_out(),
        ],
        only_listed: true,
        filled_from: FilledFrom::GuestToDestroy,
        prepared_by: &[OpPhase::Stop, OpPhase::Backup, OpPhase::Unprotect],
        call: "DELETE",
        tasks: tasks(&["vzdestroy"], &["qmdestroy"]),
        proof: Proof::NumberFree,
        loss: LossRule::WholeGuest,
        origin: OriginEffect::Ends,
        replaces: Replacement::OtherGuest,
        rights: &[("/vms", "VM.Allocate")],
    }
    Rollback "rollback" "Put the guest back to a snapshot." {
        execution: ExecutionRight::SignedRequest,
        cost: always(ActionClass::Destructive, "everything since the snapshot is lost"),
        // A snapshot's name is re-used; its time is not.
        params: &[
            param("snapname", ParamForm::Snapshot).spelled_out(),
            param("snaptime", ParamForm::Count).spelled_out(),
            flag("start").spelled_out().default("0"),
        ],
        only_listed: true,
        filled_from: FilledFrom::Snapshot,
        call: "POST snapshot/NAME/rollback",
        tasks: tasks(&["vzrollback"], &["qmrollback"]),
        proof: Proof::SnapshotParent,
        loss: LossRule::SinceSnapshot,
        replaces: Replacement::OtherData,
        rights: &[("/vms", "VM.Snapshot.Rollback")],
    }
    DeleteSnapshot "delete_snapshot" "Remove a snapshot." {
        execution: ExecutionRight::SignedRequest,
        cost: always(ActionClass::Destructive, "a point in time is lost"),
        params: &[
            flag("force").spelled_out().default("0"),
            param("snapname", ParamForm::Snapshot).spelled_out(),
            param("snaptime", ParamForm::Count).spelled_out(),
        ],
        only_listed: true,
        filled_from: FilledFrom::Snapshot,
        call: "DELETE snapshot/NAME",
        tasks: tasks(&["vzdelsnapshot"], &["qmdelsnapshot"]),
        proof: Proof::SnapshotGone,
        loss: LossRule::OneSnapshot,
        rights: &[("/vms", "VM.Snapshot")],
    }
    DeleteVolume "delete_volume" "Remove a volume that is no longer attached." {
        execution: ExecutionRight::SignedRequest,
        cost: always(ActionClass::Destructive, "the volume is freed"),
        // The slot is where it stands, the volume is what is lost.
        params: &[
            text("digest"),
            param("slot", ParamForm::Slot).spelled_out(),
            param("volume", ParamForm::Volume).spelled_out(),
        ],
        only_listed: true,
        filled_from: FilledFrom::DetachedVolume,
        call: "PUT config",
        tasks: tasks(&[], &["qmconfig"]),
        refusal: RefusalMeaning::PerhapsInPart,
        proof: Proof::VolumeGone,
        loss: LossRule::OneVolume,
        rights: &[("/vms", "VM.Config.Disk")],
    }
    MoveVolume "move_volume" "Move a volume to another storage; the old one stays, detached." {
        execution: ExecutionRight::Planned,
        cost: ActionCost::ByMove,
        params: &[
            text("bwlimit"),
            flag("delete").destroys_if_on("the source is freed after the copy").spelled_out(),
            text("digest"),
            param("disk", ParamForm::Slot),
            text("format"),
            param("storage", ParamForm::Storage),
            param("target-disk", ParamForm::Slot).destroys_if_on("gives the volume to another guest"),
            param("target-vmid", ParamForm::VmId).destroys_if_on("gives the volume to another guest"),
            param("target-volume", ParamForm::Slot)
                .destroys_if_on("gives the volume to another guest"),
            param("volume", ParamForm::Slot),
        ],
        call: "POST move_volume; POST move_disk for virtual machines",
        tasks: TaskTypes {
            lxc: &["move_volume"],
            qemu: &["qmmove"],
            subject: TaskSubject::VolumeGiver,
        },
        proof: Proof::VolumeOnStorage,
        rights: &[("/vms", "VM.Config.Disk"), ("/storage", "Datastore.AllocateSpace")],
    }
    Migrate "migrate" "Move the guest to another node." {
        cost: always(ActionClass::Disruptive, "moves the guest to another node"),
        params: &[
            text("bwlimit"),
            flag("online"),
            flag("restart"),
            param("target", ParamForm::Node),
            param("target-storage", ParamForm::Storage),
            param("targetstorage", ParamForm::Storage),
            param("timeout", ParamForm::Count),
            flag("with-local-disks"),
        ],
        call: "POST migrate",
        tasks: tasks(&["vzmigrate", "hamigrate"], &["qmigrate", "hamigrate"]),
        origin: OriginEffect::Ends,
        replaces: Replacement::OtherData,
        rights: &[("/vms", "VM.Migrate")],
    }
    Template "template" "Turn the guest into a template." {
        execution: ExecutionRight::Signed,
        cost: always(
            ActionClass::Destructive,
            "the guest can never start again, and its volumes become read-only",
        ),
        only_listed: true,
        call: "POST template",
        tasks: tasks(&["vztemplate"], &["qmtemplate"]),
        // A container's conversion is answered with nothing, and its task is not named.
        null_answer: NullAnswer::TaskHidden,
        proof: Proof::IsTemplate,
        loss: LossRule::Running,
        origin: OriginEffect::Ends,
        replaces: Replacement::OtherData,
        rights: &[("/vms", "VM.Allocate")],
    }
    WipeStorage "wipe_storage" "Known, never executed: empty a storage." {
        execution: ExecutionRight::Never,
        cost: always(ActionClass::Destructive, "everything on the storage is lost"),
        origin: OriginEffect::Ends,
    }
    Decommission "decommission" "Known, never executed: take the host out of service." {
        execution: ExecutionRight::Never,
        cost: always(ActionClass::Destructive, "the host is taken out of service"),
        origin: OriginEffect::Ends,
    }
}
