//! One row a condition: with everything as it must be a guest may go, and with any one thing otherwise it may not.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use crate::actual::identity_proof::TaskListMark;
use crate::actual::surroundings::{HiddenCause, PartReading};
use crate::actual::{ConfigEntry, Unreadable};
use crate::model::id::GuestId;
use crate::operate::operation::{
    IdentityHash, Ledger, OpEvent, OpRecord, StartedIntent, UnixSeconds,
};

const OURS: &str = "keel@pve!agent";
const OTHER: &str = "root@pam";

/// A removal and everything it is judged by, to be changed one thing at a time.
#[derive(Clone)]
struct Scene {
    ground: RemovalGround,
    fresh: Guest,
    made: MadeGuest,
    provenance: Provenance,
    tasks: TaskReading,
    source: SourceNow,
    scratch_vmids: VmidRanges,
    around: GuestSurroundings,
}

impl Scene {
    fn judge(&self) -> RemovalVerdict {
        let Self { ground, fresh, made, provenance, tasks, source, scratch_vmids, around } = self;
        let evidence = RemovalEvidence { fresh, made, provenance, tasks, source, scratch_vmids };
        may_remove(*ground, &evidence, around)
    }
}

fn upid(kind: &str, id: &str, user: &str, started_at: u32) -> Upid {
    format!("UPID:pve1:00000457:00001111:{started_at:08X}:{kind}:{id}:{user}:").parse().unwrap()
}

fn listed(upid: Upid) -> ListedTask {
    ListedTask { upid, state: TaskState::Done }
}

fn entry(key: &str, value: Option<&str>, pending: Option<&str>) -> ConfigEntry {
    let text = |text: &str| text.to_owned();
    ConfigEntry {
        key: key.to_owned(),
        value: value.map(text),
        pending: pending.map(text),
        delete: 0,
    }
}

fn config(keys: &[(&str, &str)]) -> GuestConfig {
    let entries = keys.iter().map(|(key, value)| entry(key, Some(value), None));
    GuestConfig::from_pending(GuestKind::Qemu, entries)
}

const WHOLE: [(&str, &str); 3] = [
    ("memory", "512"),
    ("scsi0", "local-lvm:vm-120-disk-0,size=8G"),
    ("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0"),
];

fn guest(keys: &[(&str, &str)]) -> Guest {
    Guest {
        id: "qemu/120".parse().unwrap(),
        power: Power::Stopped,
        template: false,
        ha: None,
        lock: None,
        config: Ok(config(keys).into()),
    }
}

fn backup() -> SourceMark {
    SourceMark::Volume {
        volume: "store:backup/vzdump-qemu-100-2026_11_01-02_00_00.vma.zst".parse().unwrap(),
        size_bytes: 1_000,
        made_at: UnixSeconds(500),
    }
}

/// What a restore of ours left that failed half way: nobody was there since.
fn half_made() -> Scene {
    let before = upid("qmstart", "7", OTHER, 900);
    let making = upid("qmrestore", "120", OURS, 1_010);
    let tasks = TaskReading {
        tasks: vec![listed(before.clone()), listed(making.clone())],
        unread: Vec::new(),
        filtered: None,
        node_now: UnixSeconds(2_000),
    };
    let mark = TaskListMark {
        at: UnixSeconds(1_000),
        task: Some(before),
        replaced: BTreeSet::new(),
        unread: BTreeSet::new(),
    };
    Scene {
        ground: RemovalGround::HalfMade,
        fresh: guest(&[("memory", "128")]),
        made: MadeGuest {
            making: OperationId::from_parts(1, 1),
            guest: "qemu/120".parse().unwrap(),
            kind: ActionKind::Restore,
            mark,
            source: Some(backup()),
            scratch: false,
            around: None,
            tasks: BTreeSet::from([making]),
            stage: MadeStage::Half { identity: None },
        },
        provenance: Provenance::none(),
        tasks,
        source: SourceNow::There(backup()),
        scratch_vmids: VmidRanges::default(),
        around: GuestSurroundings::empty(),
    }
}

/// A scratch guest of ours that was made, started and used.
fn scratch() -> Scene {
    let fresh = Guest { power: Power::Running, ..guest(&WHOLE) };
    let half = half_made();
    let made = MadeGuest { scratch: true, stage: MadeStage::Whole, ..half.made };
    Scene {
        ground: RemovalGround::Scratch,
        provenance: ours(fresh.id, identity(&fresh).unwrap()),
        fresh,
        made,
        scratch_vmids: "100-199".parse().unwrap(),
        ..half
    }
}

/// What a journal knows that made this guest.
fn ours(guest: GuestId, identity: IdentityHash) -> Provenance {
    let op = OperationId::from_parts(1, 1);
    let intent = StartedIntent {
        id_was_free: true,
        ..StartedIntent::new(guest, ActionKind::Restore, UnixSeconds(1_000))
    };
    let mut ledger = Ledger::default();
    for event in [
        OpEvent::Started(Box::new(intent)),
        OpEvent::Succeeded { identity: Some(identity), warning: None },
    ] {
        ledger.apply(&OpRecord { op, event }).unwrap();
    }
    ledger.provenance(guest)
}

/// Changes one thing and tells why the guest must stay.
fn refused(scene: &Scene, change: impl FnOnce(&mut Scene)) -> Option<String> {
    assert_eq!(scene.judge(), Ok(()), "with everything as it must be it may go");
    let mut scene = scene.clone();
    change(&mut scene);
    scene.judge().err().map(|refusal| refusal.detail)
}

type SceneChange = fn(&mut Scene);

/// Every change alone keeps the guest, for the reason beside it.
fn each_refused(scene: &Scene, rows: &[(&str, SceneChange)]) {
    for (why, change) in rows {
        let told = refused(scene, change).unwrap_or_else(|| panic!("it goes: {why}"));
        assert!(told.contains(why), "{:?}: {told}, not {why}", scene.ground);
    }
}

/// The guest has one key more.
fn add(scene: &mut Scene, key: &str, value: &str) {
    let known = scene.fresh.config.as_mut().unwrap();
    let more = config(&[(key, value)]).fields;
    let mut fields: Vec<_> = known.fields.iter().chain(&*more).cloned().collect();
    fields.sort_by_key(|field| field.key);
    Arc::make_mut(known).fields = fields.into();
}

fn foreign(scene: &mut Scene, kind: &str, id: &str) {
    scene.tasks.tasks.push(listed(upid(kind, id, OTHER, 1_500)));
}

/// Tasks of somebody else that keep a guest on either ground.
const KEEPS_EVERYTHING: [&str; 15] = [
    "qmstop",
    "qmigrate",
    "hamigrate",
    "qmrestore",
    "qmcreate",
    "qmdestroy",
    "qmrollback",
    "qmtemplate",
    "qmconfig",
    "qmsnapshot",
    "qmmove",
    "imgcopy",
    "vncproxy",
    "qmclone",
    "something-new",
];

/// A task of this kind by somebody else keeps the guest.
fn keeps(scene: &Scene, kind: &str) {
    let told = refused(scene, |scene| foreign(scene, kind, "120"));
    assert!(told.is_some_and(|why| why.contains(&format!("ran {kind}"))), "{kind}");
}

#[test]
fn anything_that_nobody_can_explain_keeps_a_guest_on_either_ground() {
    let rows: [(&str, SceneChange); 12] = [
        ("it is not the guest", |s| s.made.guest = "lxc/120".parse().unwrap()),
        ("is locked (backup)", |s| s.fresh.lock = Some("backup".to_owned())),
        ("no answer", |s| s.fresh.config = Err(Unreadable::new("no answer", ""))),
        ("HA manages it", |s| s.fresh.ha = Some("started".to_owned())),
        ("template", |s| s.fresh.template = true),
        ("waits for its restart", |s| {
            let waits = entry("cores", None, Some("4"));
            let keys = s.fresh.config.clone().unwrap();
            let mut waiting = GuestConfig::from_pending(GuestKind::Qemu, [waits]);
            waiting.fields = waiting.fields.iter().chain(&*keys.fields).cloned().collect();
            s.fresh.config = Ok(waiting.into());
        }),
        ("keys that evenkeel does not know", |s| {
            let known = Arc::make_mut(s.fresh.config.as_mut().unwrap());
            known.unknown.push("quantum".to_owned());
        }),
        ("detached volume", |s| {
            add(s, "unused0", "tank:vm-120-disk-9");
        }),
        ("its run state is unknown", |s| s.fresh.power = Power::Unknown),
        ("lacks Sys.Audit", |s| s.tasks.filtered = Some("lacks Sys.Audit".to_owned())),
        ("does not reach back", |s| {
            s.tasks.tasks.retain(|task| task.upid.task_id() != "7");
        }),
        ("clock is before", |s| s.tasks.node_now = UnixSeconds(10)),
    ];
    for scene in [half_made(), scratch()] {
        each_refused(&scene, &rows);
    }
}

#[test]
fn what_a_making_left_half_way_goes_only_if_it_never_ran_and_its_source_is_unchanged() {
    let rows: [(&str, SceneChange); 16] = [
        ("did not fail", |s| s.made.stage = MadeStage::UnderWay),
        ("did not fail", |s| s.made.stage = MadeStage::Whole),
        // It is removed once, whatever came of it.
        ("did not fail", |s| s.made.stage = MadeStage::Removing),
        ("it runs", |s| s.fresh.power = Power::Running),
        ("it runs", |s| s.fresh.power = Power::Paused),
        ("no task of its own", |s| s.made.tasks.clear()),
        ("ran qmrestore", |s| {
            // Only found in the list, where somebody's with our token looks the same.
            s.made.tasks = BTreeSet::from([upid("qmrestore", "120", OURS, 1_011)]);
        }),
        ("it is protected", |s| {
            s.fresh = guest(&[("memory", "128"), ("protection", "1")]);
        }),
        ("not the guest that the failed creation left", |s| s.fresh = guest(&[("memory", "129")])),
        ("not the guest that the failed creation left", |s| s.fresh = guest(&[("name", "mine")])),
        ("not the guest that the failed creation left", |s| s.fresh = guest(&WHOLE)),
        ("was not recorded", |s| s.made.source = None),
        ("no longer exists", |s| s.source = SourceNow::Gone),
        ("no answer", |s| s.source = SourceNow::Unreadable("no answer".to_owned())),
        ("changed since", |s| s.source = SourceNow::There(SourceMark::Nothing)),
        ("changed since", |s| {
            let SourceMark::Volume { volume, size_bytes, made_at } = backup() else { panic!() };
            let made_at = UnixSeconds(made_at.0 + 1);
            s.source = SourceNow::There(SourceMark::Volume { volume, size_bytes, made_at });
        }),
    ];
    each_refused(&half_made(), &rows);
    let empty = |scene: &mut Scene| scene.fresh = guest(&[]);
    assert_eq!(refused(&half_made(), empty), None, "an early failure leaves an empty file");
}

#[test]
fn every_task_of_somebody_else_keeps_what_a_making_left_but_for_a_backup_that_ended() {
    for kind in KEEPS_EVERYTHING.into_iter().chain(["qmstart", "vzstart", "hastart"]) {
        keeps(&half_made(), kind);
        if kind != "qmclone" {
            let of_another = |scene: &mut Scene| foreign(scene, kind, "121");
            assert_eq!(refused(&half_made(), of_another), None, "{kind} of another guest");
        }
    }
    // A copy is named after the guest that is copied, and may have become this one.
    for kind in ["qmclone", "vzclone"] {
        let told = refused(&half_made(), |scene| foreign(scene, kind, "9000"));
        assert!(told.is_some_and(|why| why.contains("does not say to which number")), "{kind}");
    }
    // While it is saved a stopped machine looks as if it ran; afterwards it is what it was.
    assert_eq!(refused(&half_made(), |scene| foreign(scene, "vzdump", "120")), None);
    let told = refused(&half_made(), |scene| {
        let state = TaskState::Running;
        scene.tasks.tasks.push(ListedTask { upid: upid("vzdump", "120", OTHER, 1_500), state });
    });
    assert!(told.is_some(), "somebody saves it now");
}

#[test]
fn tasks_are_known_by_name_and_not_by_time() {
    let old = upid("qmdestroy", "120", OTHER, 500);
    let known = |scene: &mut Scene| {
        scene.made.mark.replaced.insert(old.clone());
        scene.tasks.tasks.push(listed(old.clone()));
    };
    assert_eq!(refused(&half_made(), known), None, "a former guest's, from before the making");
    let set_back = |scene: &mut Scene| scene.tasks.tasks.push(listed(old.clone()));
    assert!(refused(&half_made(), set_back).is_some(), "the node's clock was set back meanwhile");
}

#[test]
fn a_copied_protection_is_no_hindrance_and_only_what_was_left_is_removed_with_its_volumes() {
    let mut scene = half_made();
    let protected: Vec<_> = WHOLE.into_iter().chain([("protection", "1")]).collect();
    scene.fresh = guest(&protected);
    let left = identity(&scene.fresh).unwrap();
    let source = SourceMark::Guest { guest: "qemu/9000".parse().unwrap(), identity: left };
    scene.made.kind = ActionKind::Clone;
    scene.made.source = Some(source.clone());
    scene.source = SourceNow::There(source);
    scene.made.stage = MadeStage::Half { identity: Some(left) };
    assert_eq!(scene.judge(), Ok(()));
    let told = refused(&scene, |scene| {
        add(scene, "scsi1", "local-lvm:vm-120-disk-7,size=8G");
    });
    assert!(
        told.is_some_and(|why| why.contains("not the guest that the failed creation left")),
        "somebody attached a disk"
    );
    let forgotten = |scene: &mut Scene| scene.made.stage = MadeStage::Half { identity: None };
    assert!(refused(&scene, forgotten).is_some(), "an older journal does not know what was left");
}

#[test]
fn scratch_goes_only_in_its_range_while_it_is_the_guest_that_we_made() {
    let rows: [(&str, SceneChange); 9] = [
        ("not made as scratch", |s| s.made.scratch = false),
        ("not made as scratch", |s| s.made.stage = MadeStage::Removing),
        ("not made as scratch", |s| s.made.stage = MadeStage::Half { identity: None }),
        ("scratch_vmids", |s| s.scratch_vmids = VmidRanges::default()),
        ("scratch_vmids", |s| s.scratch_vmids = "121-199".parse().unwrap()),
        ("it is paused", |s| s.fresh.power = Power::Paused),
        ("it is protected", |s| {
            add(s, "protection", "1");
        }),
        ("not the guest", |s| s.fresh = guest(&WHOLE[..2])),
        ("not the guest", |s| s.provenance = Provenance::none()),
    ];
    each_refused(&scratch(), &rows);
    let told = refused(&scratch(), |scene| scene.fresh = guest(&[]));
    assert!(told.is_some(), "nothing tells it from another");
    assert_eq!(refused(&scratch(), |scene| scene.source = SourceNow::Gone), None);
}

#[test]
fn a_start_does_not_end_scratch_and_every_other_task_of_somebody_else_does() {
    for kind in ["qmstart", "hastart"] {
        assert_eq!(refused(&scratch(), |scene| foreign(scene, kind, "120")), None, "{kind}");
    }
    let others = [
        "qmshutdown",
        "hastop",
        "qmreboot",
        "qmreset",
        "qmsuspend",
        "vzdump",
        "spiceproxy",
        "qmdelsnapshot",
    ];
    for kind in KEEPS_EVERYTHING.into_iter().chain(others) {
        keeps(&scratch(), kind);
    }
    let elsewhere = |scene: &mut Scene| foreign(scene, "qmclone", "9000");
    assert_eq!(refused(&scratch(), elsewhere), None, "its number was taken all the time");
}

#[test]
fn y02_what_others_gave_the_number_keeps_the_guest_on_either_ground() {
    for scene in [half_made(), scratch()] {
        let role = PartReading::Read(vec!["PVEVMUser for viewer@pve".to_owned()]);
        let told = refused(&scene, |scene| scene.around.access = role).expect("it goes");
        assert!(told.contains("viewer@pve"), "{told}");
        let hidden = PartReading::NotVisible(HiddenCause::Unreadable);
        let told = refused(&scene, |scene| scene.around.pool = hidden).expect("it goes");
        assert!(told.contains("not visible"), "{told}");
    }
}
