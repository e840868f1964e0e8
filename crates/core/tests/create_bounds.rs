//! `[policy.create]` at the planner: each of its fields, asked with a declaration that claims to be the hub's.
//!
//! Every rule is tried three times: for a hub within the limit, for a hub beyond it, and for local files, which no limit
//! holds.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::actual::{ConfigEntry, GuestConfig};
use evenkeel_core::desired::DeclaredBy;
use evenkeel_core::gate::create_policy::{CreateContext, CreatePolicy, CreateUsage};
use evenkeel_core::gate::new_guest::SourceContent;
use evenkeel_core::gate::{FreshGuest, GateVerdict, NodeSite, judge};
use evenkeel_core::model::id::GuestKind;
use evenkeel_core::model::quantity::Bytes;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::plan::{Action, Held, Plan, PlanContext, plan};

const GIB: u64 = 1 << 30;

const CONTAINER: &str = "[guest.1000]\nkind = \"lxc\"\nsource = { template = \"local:vztmpl/debian-12.tar.zst\" }\n\
    rootfs = { storage = \"local-lvm\", size = \"8GiB\" }\nnet0 = { name = \"eth0\", bridge = \"vmbr1\" }\n";
const MACHINE: &str = "lxc/1000 stopped\nunprivileged: 1\nrootfs: local-lvm:vm-1000-disk-0,size=8G\n\
    net0: name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:01\n";

fn policy() -> CreatePolicy {
    let sources =
        ["local:vztmpl/*", "local:import/*", "store:backup/*-lxc-101-*", "clone:9000-9009"];
    CreatePolicy {
        vmids: "1000-1999".parse().unwrap(),
        sources: sources.map(|text| text.parse().unwrap()).to_vec(),
        storages: [("local-lvm".parse().unwrap(), Bytes(100 * GIB))].into(),
        bridges: ["vmbr1".to_owned()].into(),
        per_day: 10,
        privileged: false,
    }
}

/// A plan of what somebody declares.
struct Asked {
    by: DeclaredBy,
    declared: String,
    actual: String,
    policy: Option<CreatePolicy>,
    usage: CreateUsage,
    sources: BTreeMap<u32, SourceContent>,
}

fn asked(declared: &str) -> Asked {
    Asked {
        by: DeclaredBy::Hub,
        declared: declared.to_owned(),
        actual: String::new(),
        policy: Some(policy()),
        usage: CreateUsage::default(),
        sources: BTreeMap::new(),
    }
}

impl Asked {
    fn on(self, actual: &str) -> Self {
        Self { actual: actual.to_owned(), ..self }
    }

    fn by(self, by: DeclaredBy) -> Self {
        Self { by, ..self }
    }

    fn used(mut self, gib: u64) -> Self {
        self.usage.bytes.insert("local-lvm".parse().unwrap(), Bytes(gib * GIB));
        self
    }

    fn from(mut self, kind: GuestKind, saved: &[(&str, &str)]) -> Self {
        let entry = |(key, value): &(&str, &str)| ConfigEntry {
            key: (*key).to_owned(),
            value: Some((*value).to_owned()),
            pending: None,
            delete: 0,
        };
        let config = GuestConfig::from_pending(kind, saved.iter().map(entry));
        self.sources.insert(1000, SourceContent::Guest(config.into()));
        self
    }

    fn planned(&self) -> Plan {
        let mut desired = support::desired(&self.declared);
        desired.guests.values_mut().for_each(|guest| guest.by = self.by);
        let (actual, context) = support::actual(&self.actual);
        plan(&desired, &actual, &self.known(context))
    }

    fn known(&self, context: PlanContext) -> PlanContext {
        let create = CreateContext { policy: self.policy.clone(), usage: self.usage.clone() };
        let sources = self.sources.iter();
        let sources =
            sources.map(|(vmid, content)| ((*vmid).try_into().unwrap(), content.clone())).collect();
        PlanContext { create, sources, ..context }
    }

    fn actions(&self) -> Vec<Action> {
        let planned = self.planned();
        let is_sound = planned.guests.iter().all(|guest| guest.problems.is_empty());
        assert!(is_sound, "{}", support::shown(&planned));
        planned.actions().cloned().collect()
    }

    /// All that is planned runs.
    #[track_caller]
    fn goes(self) {
        let actions = self.actions();
        assert!(!actions.is_empty(), "{}", self.declared);
        let held: Vec<_> = actions.iter().filter_map(|action| action.held.as_ref()).collect();
        assert!(held.is_empty(), "{held:?}");
    }

    /// The hub is held by this field with these words, in the plan and in the lane, and local files are not.
    #[track_caller]
    fn held_by(self, field: &str, words: &str) {
        let actions = self.actions();
        let held = actions.iter().find_map(|action| Some((action, action.held.clone()?)));
        let (action, held) = held.unwrap_or_else(|| panic!("nothing is held: {actions:?}"));
        says(&held, field, words);
        self.held_in_lane(action, field, words);
        self.by(DeclaredBy::LocalFiles).goes();
    }

    /// The gate says the same of an act that was planned when nothing held it.
    #[track_caller]
    fn held_in_lane(&self, action: &Action, field: &str, words: &str) {
        let mut desired = support::desired(&self.declared);
        desired.guests.values_mut().for_each(|guest| guest.by = self.by);
        let (actual, context) = support::actual(&self.actual);
        let PlanContext { create, sources, making, .. } = self.known(context);
        let vmid = action.guest.vmid;
        let fresh = actual.guests.get(&vmid).map_or(FreshGuest::NotThere, FreshGuest::Here);
        let known = PlanContext { create, sources, making, ..PlanContext::default() };
        let planned = Action { held: None, ..action.clone() };
        let site = NodeSite::of(&actual);
        let verdict = judge(&planned, &desired.guests[&vmid], fresh, &site, &known);
        let GateVerdict::Held(held) = verdict else { panic!("{verdict:?}") };
        says(&held, field, words);
    }
}

#[track_caller]
fn says(held: &Held, field: &str, words: &str) {
    assert_eq!(held.reason(), ReasonCode::Policy, "{held}");
    let field = format!("`{field}` under [policy.create]");
    assert!(held.to_string().contains(&field), "{field}: {held}");
    assert!(held.to_string().contains(words), "{words}: {held}");
}

#[test]
fn a_hub_has_made_what_is_within_every_limit() {
    asked(CONTAINER).goes();
    let actions = asked(CONTAINER).actions();
    assert_eq!(actions[0].step.kind(), ActionKind::Create);
}

#[test]
fn without_the_section_a_hub_has_nothing_made_grown_moved_or_plugged_and_the_rest_goes_on() {
    let larger = "[guest.1000]\nkind = \"lxc\"\ncores = 3\nrootfs = { storage = \"local-lvm\", size = \"9GiB\" }\n\
        mp0 = { storage = \"local-lvm\", size = \"1GiB\", mp = \"/srv\" }\nnet0 = { name = \"eth0\", bridge = \"vmbr1\" }\n";
    let moved = "[guest.1000]\nkind = \"lxc\"\nrootfs = { storage = \"tank\", size = \"8GiB\" }\n";
    for (declared, actual, holds) in [(CONTAINER, "", 1), (larger, MACHINE, 2), (moved, MACHINE, 1)]
    {
        for by in [DeclaredBy::Hub, DeclaredBy::UnsignedHub] {
            let unlimited = Asked { policy: None, ..asked(declared).on(actual).by(by) };
            let actions = unlimited.actions();
            let held = actions.iter().filter_map(|action| action.held.as_ref());
            let held = held.filter(|held| !held.to_string().contains("nobody signed"));
            let held: Vec<_> = held.collect();
            let unsigned_making = by == DeclaredBy::UnsignedHub && declared == CONTAINER;
            // Its mount point is no key that an unsigned document may change at all.
            let unsigned_mount = by == DeclaredBy::UnsignedHub && declared == larger;
            let holds = holds - i32::from(unsigned_making || unsigned_mount);
            assert_eq!(i32::try_from(held.len()), Ok(holds), "{held:?}");
            for held in held {
                assert_eq!(held.reason(), ReasonCode::Policy);
                let told = held.to_string();
                assert!(
                    told.contains("no [policy.create]") && told.contains("root may add it"),
                    "{told}"
                );
            }
            let runs = actions.iter().filter(|action| action.held.is_none());
            let runs: Vec<_> = runs.flat_map(|action| action.step.params().into_keys()).collect();
            let rest: &[&str] = if declared == larger { &["cores", "digest"] } else { &[] };
            assert_eq!(runs, rest, "{by:?}");
        }
        let local = Asked { policy: None, ..asked(declared).on(actual) };
        local.by(DeclaredBy::LocalFiles).goes();
    }
}

#[test]
fn vmids_bound_what_is_made() {
    asked(&CONTAINER.replace("1000", "1999")).goes();
    asked(&CONTAINER.replace("1000", "999")).held_by("vmids", "lxc/999");
}

#[test]
fn sources_bound_what_is_read_in() {
    asked(&CONTAINER.replace("local:", "other:")).held_by("sources", "other:vztmpl/debian-12");
    let clone = "[guest.1000]\nkind = \"qemu\"\nsource = { clone = 9000 }\n";
    let disk = [("scsi0", "local-lvm:vm-9000-disk-0,size=8G")];
    asked(clone).from(GuestKind::Qemu, &disk).goes();
    let other = clone.replace("9000", "9010");
    asked(&other).from(GuestKind::Qemu, &disk).held_by("sources", "clone:9010");
    // A drive that names an image by itself is no way round.
    let machine =
        "[guest.1000]\nkind = \"qemu\"\nscsi1 = \"local-lvm:0,import-from=local:import/a.qcow2\"\n";
    let there = "qemu/1000 stopped\nscsi0: local-lvm:vm-1000-disk-0,size=8G\n";
    let refused = asked(machine).on(there);
    let held = refused.actions()[0].held.clone().unwrap();
    says(&held, "sources", "scsi1");
}

#[test]
fn a_backup_is_bounded_by_what_its_archive_holds() {
    let backup = "[guest.1000]\nkind = \"lxc\"\n\
        source = { backup = \"store:backup/vzdump-lxc-101-2026_11_01-02_00_00.tar.zst\" }\n";
    let saved = |storage: &str, gib: u32| {
        [
            ("rootfs", format!("{storage}:vm-101-disk-0,size={gib}G")),
            ("mp0", format!("tank:vm-101-disk-1,mp=/srv,size={gib}G")),
        ]
    };
    let of = |storage: &str, gib: u32| {
        let saved = saved(storage, gib);
        let saved: Vec<_> = saved.iter().map(|(key, value)| (*key, value.as_str())).collect();
        asked(backup).from(GuestKind::Lxc, &saved)
    };
    // Everything comes back where the root volume was.
    of("local-lvm", 50).goes();
    assert_eq!(of("local-lvm", 50).actions()[0].step.params()["storage"], "local-lvm");
    of("local-lvm", 51).held_by("storages", "102 GiB more on local-lvm");
    of("tank", 1).held_by("storages", "tank");
    let other = backup.replace("-101-", "-102-");
    Asked { declared: other, ..of("local-lvm", 1) }.held_by("sources", "vzdump-lxc-102");
    // Of an archive that cannot be read nobody knows anything, whoever declares it.
    for by in [DeclaredBy::Hub, DeclaredBy::LocalFiles] {
        let actions = asked(backup).by(by).actions();
        let told = actions[0].held.as_ref().unwrap();
        assert_eq!(told.reason(), ReasonCode::Storage);
        assert!(told.to_string().contains("declare rootfs with its storage"), "{told}");
    }
    let rooted = format!("{backup}rootfs = {{ storage = \"local-lvm\", size = \"8GiB\" }}\n");
    asked(&rooted).held_by("storages", "could not read");
}

#[test]
fn storages_bound_new_guests_by_all_their_bytes() {
    asked(CONTAINER).used(92).goes();
    asked(CONTAINER)
        .used(93)
        .held_by("storages", "8 GiB more on local-lvm, where 93 GiB of 100 GiB are used");
    asked(&CONTAINER.replace("local-lvm", "tank")).held_by("storages", "tank");
}

#[test]
fn storages_bound_growth() {
    let larger =
        "[guest.1000]\nkind = \"lxc\"\nrootfs = { storage = \"local-lvm\", size = \"10GiB\" }\n";
    asked(larger).on(MACHINE).used(98).goes();
    asked(larger).on(MACHINE).used(99).held_by("storages", "2 GiB more on local-lvm");
    let elsewhere = MACHINE.replace("local-lvm", "tank");
    asked(&larger.replace("local-lvm", "tank")).on(&elsewhere).held_by("storages", "tank");
}

#[test]
fn storages_bound_new_volumes_and_count_them_together() {
    let mounts = "[guest.1000]\nkind = \"lxc\"\ncores = 3\nmp0 = { storage = \"local-lvm\", size = \"4GiB\", mp = \"/a\" }\n\
        mp1 = { storage = \"local-lvm\", size = \"5GiB\", mp = \"/b\" }\n";
    asked(mounts).on(MACHINE).used(91).goes();
    asked(mounts).on(MACHINE).used(92).held_by("storages", "5 GiB more on local-lvm, where 96 GiB");
    // What fits is written, with what is not about volumes.
    let actions = asked(mounts).on(MACHINE).used(92).actions();
    let told: Vec<_> = actions
        .iter()
        .map(|action| (action.held.is_none(), action.step.params().into_keys().collect::<Vec<_>>()))
        .collect();
    let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        told,
        [(true, keys(&["cores", "digest", "mp0"])), (false, keys(&["digest", "mp1"]))]
    );
}

#[test]
fn storages_bound_moves_and_the_growth_after_them() {
    let here = MACHINE.replace("local-lvm", "tank");
    let moved =
        "[guest.1000]\nkind = \"lxc\"\nrootfs = { storage = \"local-lvm\", size = \"8GiB\" }\n";
    asked(moved).on(&here).used(92).goes();
    asked(moved).on(&here).used(93).held_by("storages", "8 GiB more on local-lvm");
    // The volume grows where it shall be, and only there.
    let larger = moved.replace("8GiB", "10GiB");
    asked(&larger).on(&here).used(90).goes();
    asked(&larger).on(&here).used(91).held_by("storages", "2 GiB more on local-lvm");
}

#[test]
fn bridges_bound_cards_of_new_and_of_old_guests() {
    asked(&CONTAINER.replace("vmbr1", "vmbr0")).held_by("bridges", "vmbr0");
    let card = |bridge: &str, tag: u32| {
        format!(
            "[guest.1000]\nkind = \"lxc\"\nnet0 = {{ name = \"eth0\", bridge = \"{bridge}\", tag = {tag} }}\n"
        )
    };
    asked(&card("vmbr1", 5)).on(MACHINE).goes();
    asked(&card("vmbr2", 5)).on(MACHINE).held_by("bridges", "vmbr2");
    // A card that stays where somebody else put it may change.
    asked(&card("vmbr0", 5)).on(MACHINE).goes();
    let new = "[guest.1000]\nkind = \"lxc\"\nnet1 = { name = \"eth1\", bridge = \"vmbr0\" }\n";
    asked(new).on(MACHINE).held_by("bridges", "net1");
}

#[test]
fn per_day_bounds_how_many_are_made_in_one_plan_too() {
    let made = |made_in_last_day| CreateUsage { made_in_last_day, ..CreateUsage::default() };
    Asked { usage: made(9), ..asked(CONTAINER) }.goes();
    let full = Asked { usage: made(10), ..asked(CONTAINER) };
    full.held_by("per_day", "10 guests were made");
    let two = format!("{CONTAINER}{}", CONTAINER.replace("1000", "1001"));
    Asked { usage: made(8), ..asked(&two) }.goes();
    let last = Asked { usage: made(9), ..asked(&two) };
    let held: Vec<_> = last.actions().iter().map(|action| action.held.is_some()).collect();
    assert_eq!(held, [false, true], "the second of two");
    // One that is held for another reason does not take the place of one that is not.
    let observed = two.replacen("kind = \"lxc\"\n", "kind = \"lxc\"\nmode = \"observe\"\n", 1);
    let last = Asked { usage: made(9), ..asked(&observed) };
    let held: Vec<_> = last.actions().iter().map(|action| action.held.is_some()).collect();
    assert_eq!(held, [true, false], "the first is only observed");
}

#[test]
fn two_guests_of_one_plan_do_not_both_get_the_last_room() {
    let two = format!("{CONTAINER}{}", CONTAINER.replace("1000", "1001"));
    asked(&two).used(84).goes();
    let held: Vec<_> = asked(&two).used(85).actions().iter().map(|a| a.held.is_some()).collect();
    assert_eq!(held, [false, true]);
}

#[test]
fn privileged_containers_are_made_where_root_allows_it() {
    let privileged = format!("{CONTAINER}unprivileged = false\n");
    asked(&privileged).held_by("privileged", "lxc/1000");
    let allowed = CreatePolicy { privileged: true, ..policy() };
    Asked { policy: Some(allowed), ..asked(&privileged) }.goes();
}

#[test]
fn an_unsigned_document_makes_nothing_whatever_root_allows() {
    let scratch = format!("{CONTAINER}scratch = true\n");
    for declared in [CONTAINER, &scratch] {
        let actions = asked(declared).by(DeclaredBy::UnsignedHub).actions();
        let held = actions[0].held.as_ref().unwrap();
        assert_eq!(held.reason(), ReasonCode::Policy);
        assert!(held.to_string().contains("may not change `source`"), "{held}");
    }
    // It grows volumes within the limits, and changes no network card.
    let larger =
        "[guest.1000]\nkind = \"lxc\"\nrootfs = { storage = \"local-lvm\", size = \"10GiB\" }\n";
    asked(larger).by(DeclaredBy::UnsignedHub).on(MACHINE).goes();
    asked(larger).by(DeclaredBy::UnsignedHub).on(MACHINE).used(99).held_by("storages", "2 GiB");
    let card = "[guest.1000]\nkind = \"lxc\"\nnet0 = { name = \"eth0\", bridge = \"vmbr1\" }\n";
    let actions = asked(card).by(DeclaredBy::UnsignedHub).on(MACHINE).actions();
    assert!(actions[0].held.as_ref().unwrap().to_string().contains("may not change `net0`"));
}

/// A clone that never ran, as its source made it.
fn copied(config: &str, declared: &str) -> Asked {
    let declared = format!(
        "[guest.1000]\nkind = \"lxc\"\nrun = \"running\"\nsource = {{ clone = 9000 }}\n{declared}"
    );
    asked(&declared).on(&format!("made lxc/1000\nlxc/1000 stopped\n{config}"))
}

#[test]
fn what_a_copy_brings_keeps_a_hubs_guest_from_starting_though_the_hub_declares_it() {
    let plain = "unprivileged: 1\nrootfs: local-lvm:vm-1000-disk-0,size=8G\n";
    copied(plain, "").goes();
    copied(&format!("{plain}net0: name=eth0,bridge=vmbr1\n"), "").goes();
    let card = format!("{plain}net0: name=eth0,bridge=vmbr0\n");
    copied(&card, "").held_by("bridges", "its first start waits: net0");
    let declared = "net0 = { name = \"eth0\", bridge = \"vmbr0\" }\n";
    copied(&card, declared).held_by("bridges", "net0");
    let privileged = "unprivileged: 0\nrootfs: local-lvm:vm-1000-disk-0,size=8G\n";
    copied(privileged, "unprivileged = false\n").held_by("privileged", "lxc/1000");
    let opened = format!("{plain}mp0: /srv/host,mp=/srv\n");
    let declared = "mp0 = \"/srv/host,mp=/srv\"\n";
    for declared in ["", declared] {
        let actions = copied(&opened, declared).actions();
        let held = actions[0].held.as_ref().unwrap();
        assert_eq!(held.reason(), ReasonCode::Policy, "{held}");
        assert!(held.to_string().contains("opens the host"), "{held}");
    }
    copied(&opened, declared).by(DeclaredBy::LocalFiles).goes();
}
