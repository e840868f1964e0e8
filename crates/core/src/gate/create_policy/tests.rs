//! Every field of `[policy.create]`, asked with a declaration that claims to be the hub's.

use super::*;
use crate::desired::load;
use crate::words::diagnostic::Sources;

const CONTAINER: &str = "[guest.1000]\nkind = \"lxc\"\nsource = { template = \"local:vztmpl/debian-12.tar.zst\" }\n\
                         rootfs = { storage = \"local-lvm\", size = \"8GiB\" }\nnet0 = { name = \"eth0\", bridge = \"vmbr1\" }\n";
const CLONE: &str = "[guest.1000]\nkind = \"qemu\"\nsource = { clone = 9000 }\n";
const IMAGE: &str = "[guest.1000]\nkind = \"qemu\"\nsource = { image = \"local:import/debian.qcow2\", into = \"scsi0\" }\n\
                     scsi0 = { storage = \"local-lvm\", size = \"20GiB\" }\nide2 = { storage = \"local-lvm\", cloudinit = true }\n";

fn guest(text: &str) -> DeclaredGuest {
    let mut sources = Sources::default();
    sources.add("a.toml", text);
    let desired = load(&sources).unwrap_or_else(|errors| panic!("{errors:?} in {text}"));
    desired.guests.into_values().next().unwrap()
}

fn policy() -> CreatePolicy {
    CreatePolicy {
        vmids: "1000-1999".parse().unwrap(),
        sources: ["local:vztmpl/*", "local:import/*", "clone:9000-9009"]
            .map(|text| text.parse().unwrap())
            .to_vec(),
        storages: [("local-lvm".parse().unwrap(), Bytes(100 * Bytes::GIB))].into(),
        bridges: ["vmbr1".to_owned()].into(),
        per_day: 10,
        privileged: false,
    }
}

/// Who declares it decides; the numbers are the same for both.
fn judged(
    by: DeclaredBy,
    policy: Option<&CreatePolicy>,
    usage: &CreateUsage,
    text: &str,
    brought: SourceContribution<'_>,
) -> Result<(), Refusal> {
    CreateJudge { by, policy, usage }.create(&guest(text), brought)
}

fn hub(policy: &CreatePolicy, usage: &CreateUsage, text: &str) -> Result<(), Refusal> {
    let none = BTreeMap::new();
    judged(DeclaredBy::Hub, Some(policy), usage, text, SourceContribution::Volumes(&none))
}

/// The hub is refused by this field, and the local files are not.
fn refused_by(field: &str, policy: &CreatePolicy, usage: &CreateUsage, text: &str) {
    let refusal = hub(policy, usage, text).expect_err(text);
    assert_eq!(refusal.reason, ReasonCode::Policy);
    let named = format!("let root widen `{field}` under [policy.create] in agent.toml");
    assert!(refusal.detail.ends_with(&named), "{field}: {}", refusal.detail);
    let local =
        judged(DeclaredBy::LocalFiles, Some(policy), usage, text, SourceContribution::Unknown);
    assert_eq!(local, Ok(()), "{field}");
}

fn brought(slot: &str, storage: &str, gib: u64) -> BTreeMap<KeyRef, BroughtVolume> {
    let key = crate::registry::find(GuestKind::Qemu, slot).unwrap();
    let storage = storage.parse().unwrap();
    let size = Bytes(gib * Bytes::GIB);
    [(key, BroughtVolume { storage, size })].into()
}

#[test]
fn what_is_within_all_limits_is_made_for_a_hub() {
    let usage = CreateUsage::default();
    for text in [CONTAINER, IMAGE] {
        assert_eq!(hub(&policy(), &usage, text), Ok(()), "{text}");
    }
    let brought = brought("scsi0", "local-lvm", 10);
    let clone = judged(
        DeclaredBy::Hub,
        Some(&policy()),
        &usage,
        CLONE,
        SourceContribution::Volumes(&brought),
    );
    assert_eq!(clone, Ok(()));
    let empty = "[guest.1000]\nkind = \"qemu\"\nsource = {}\n";
    let no_sources = CreatePolicy { sources: Vec::new(), ..policy() };
    assert_eq!(hub(&no_sources, &usage, empty), Ok(()), "nothing is read in");
}

#[test]
fn without_the_section_nothing_is_made_for_a_hub_and_everything_for_local_files() {
    let usage = CreateUsage::default();
    let judge = |by| CreateJudge { by, policy: None, usage: &usage };
    let refusal =
        judge(DeclaredBy::Hub).create(&guest(CONTAINER), SourceContribution::Unknown).unwrap_err();
    assert_eq!(refusal.reason, ReasonCode::Policy);
    assert!(refusal.detail.contains("has no [policy.create]"), "{refusal:?}");
    assert_eq!(
        judge(DeclaredBy::LocalFiles).create(&guest(CONTAINER), SourceContribution::Unknown),
        Ok(())
    );
    let id = guest(CONTAINER).id;
    let storage = "local-lvm".parse().unwrap();
    assert!(judge(DeclaredBy::Hub).allocate(id, &storage, Bytes(1)).is_err());
    assert_eq!(judge(DeclaredBy::LocalFiles).allocate(id, &storage, Bytes(u64::MAX)), Ok(()));
    // An empty section is no better than none.
    refused_by("vmids", &CreatePolicy::default(), &usage, CONTAINER);
}

#[test]
fn a_number_outside_of_vmids_is_refused() {
    let usage = CreateUsage::default();
    for number in ["999", "2000"] {
        refused_by("vmids", &policy(), &usage, &CONTAINER.replace("1000", number));
    }
    assert_eq!(hub(&policy(), &usage, &CONTAINER.replace("1000", "1999")), Ok(()));
}

#[test]
fn a_source_that_is_not_listed_is_refused() {
    let usage = CreateUsage::default();
    for source in [
        "{ template = \"other:vztmpl/debian-12.tar.zst\" }",
        "{ template = \"local:vztmpl/../import/x\" }",
        "{ backup = \"local:backup/vzdump-lxc-101.tar.zst\" }",
        "{ clone = 8999 }",
        "{ clone = 9010 }",
    ] {
        let text = format!("[guest.1000]\nkind = \"lxc\"\nsource = {source}\n");
        refused_by("sources", &policy(), &usage, &text);
    }
    // A pattern of one content says nothing of another.
    let backups = CreatePolicy { sources: vec!["local:backup/*".parse().unwrap()], ..policy() };
    refused_by("sources", &backups, &usage, CONTAINER);
}

#[test]
fn a_storage_that_is_not_listed_or_full_is_refused() {
    let usage = CreateUsage::default();
    refused_by("storages", &policy(), &usage, &CONTAINER.replace("local-lvm", "tank"));
    refused_by("storages", &policy(), &usage, &CONTAINER.replace("8GiB", "101GiB"));
    assert_eq!(hub(&policy(), &usage, &CONTAINER.replace("8GiB", "100GiB")), Ok(()));
    let used = CreateUsage {
        bytes: [("local-lvm".parse().unwrap(), Bytes(93 * Bytes::GIB))].into(),
        ..CreateUsage::default()
    };
    refused_by("storages", &policy(), &used, CONTAINER);
    let refusal = hub(&policy(), &used, CONTAINER).unwrap_err();
    assert!(
        refusal.detail.contains("8 GiB more on local-lvm, where 93 GiB of 100 GiB are used"),
        "{refusal:?}"
    );
    // Several volumes count together, cloud-init's drive too.
    let two = format!(
        "{CONTAINER}mp0 = {{ storage = \"local-lvm\", size = \"93GiB\", mp = \"/srv\" }}\n"
    );
    refused_by("storages", &policy(), &usage, &two);
    refused_by("storages", &policy(), &usage, &IMAGE.replace("20GiB", "100GiB"));
    // Where the root volume goes must be said: Proxmox VE would choose.
    let rootless =
        "[guest.1000]\nkind = \"lxc\"\nsource = { template = \"local:vztmpl/a.tar.zst\" }\n";
    refused_by("storages", &policy(), &usage, rootless);
}

#[test]
fn what_a_source_brings_counts_and_what_nobody_could_read_is_refused() {
    let usage = CreateUsage::default();
    let made = |text: &str, brought: SourceContribution<'_>| {
        judged(DeclaredBy::Hub, Some(&policy()), &usage, text, brought)
    };
    for text in [CLONE, IMAGE] {
        let refusal = made(text, SourceContribution::Unknown).unwrap_err();
        assert!(refusal.detail.contains("could not read"), "{refusal:?}");
    }
    let large = brought("scsi0", "local-lvm", 101);
    let elsewhere = brought("scsi0", "tank", 1);
    assert!(
        made(CLONE, SourceContribution::Volumes(&large)).unwrap_err().detail.contains("101 GiB")
    );
    assert!(
        made(CLONE, SourceContribution::Volumes(&elsewhere)).unwrap_err().detail.contains("tank")
    );
    // A slot that is declared too is one volume, as large as the larger of both.
    let declared = format!("{CLONE}scsi0 = {{ storage = \"local-lvm\", size = \"60GiB\" }}\n");
    let source = brought("scsi0", "local-lvm", 60);
    assert_eq!(made(&declared, SourceContribution::Volumes(&source)), Ok(()));
    assert!(
        made(IMAGE, SourceContribution::Volumes(&large)).is_err(),
        "an image larger than its disk"
    );
}

#[test]
fn a_bridge_that_is_not_listed_is_refused_when_made_and_when_changed() {
    let usage = CreateUsage::default();
    refused_by("bridges", &policy(), &usage, &CONTAINER.replace("vmbr1", "vmbr0"));
    refused_by("bridges", &policy(), &usage, &CONTAINER.replace(", bridge = \"vmbr1\"", ""));
    let other = guest(&CONTAINER.replace("vmbr1", "vmbr0"));
    let WantedState::Present(spec) = &other.state else { panic!() };
    let limits = policy();
    for (by, refused) in [(DeclaredBy::Hub, 1), (DeclaredBy::LocalFiles, 0)] {
        let judge = CreateJudge { by, policy: Some(&limits), usage: &usage };
        let keys = spec.fields.iter().filter_map(|field| Some((field.key, field.want.as_ref()?)));
        let told = keys.filter(|(key, value)| judge.network(other.id, *key, value).is_err());
        assert_eq!(told.count(), refused, "{by:?}");
    }
}

#[test]
fn more_than_per_day_are_refused() {
    let made = |made_in_last_day| CreateUsage { made_in_last_day, ..CreateUsage::default() };
    assert_eq!(hub(&policy(), &made(9), CONTAINER), Ok(()));
    refused_by("per_day", &policy(), &made(10), CONTAINER);
    let never = CreatePolicy { per_day: 0, ..policy() };
    refused_by("per_day", &never, &made(0), CONTAINER);
}

#[test]
fn a_privileged_container_is_refused_unless_it_is_allowed() {
    let usage = CreateUsage::default();
    let privileged = format!("{CONTAINER}unprivileged = false\n");
    refused_by("privileged", &policy(), &usage, &privileged);
    let allowed = CreatePolicy { privileged: true, ..policy() };
    assert_eq!(hub(&allowed, &usage, &privileged), Ok(()));
    assert_eq!(hub(&policy(), &usage, &format!("{CONTAINER}unprivileged = true\n")), Ok(()));
}

#[test]
fn growth_new_volumes_and_moves_are_bounded_by_storages() {
    let limits = policy();
    let usage = CreateUsage {
        bytes: [("local-lvm".parse().unwrap(), Bytes(99 * Bytes::GIB))].into(),
        ..CreateUsage::default()
    };
    let id = guest(CONTAINER).id;
    let allocate = |by, storage: &str, gib: u64| {
        let judge = CreateJudge { by, policy: Some(&limits), usage: &usage };
        judge.allocate(id, &storage.parse().unwrap(), Bytes(gib * Bytes::GIB))
    };
    assert_eq!(allocate(DeclaredBy::Hub, "local-lvm", 1), Ok(()));
    for (storage, gib) in [("local-lvm", 2), ("tank", 0), ("local-lvm", u64::MAX / Bytes::GIB)] {
        let refusal = allocate(DeclaredBy::Hub, storage, gib).unwrap_err();
        assert_eq!(refusal.reason, ReasonCode::Policy);
        assert!(refusal.detail.contains("`storages`"), "{refusal:?}");
        assert_eq!(allocate(DeclaredBy::LocalFiles, storage, gib), Ok(()));
    }
}

#[test]
fn scratch_from_a_hub_widens_no_limit() {
    let usage = CreateUsage::default();
    let scratch = |text: &str| format!("{text}scratch = true\n");
    assert_eq!(hub(&policy(), &usage, &scratch(CONTAINER)), Ok(()));
    for (field, text) in [
        ("vmids", CONTAINER.replace("guest.1000", "guest.999")),
        ("sources", CONTAINER.replace("local:vztmpl/", "other:vztmpl/")),
        ("storages", CONTAINER.replace("local-lvm", "tank")),
        ("bridges", CONTAINER.replace("vmbr1", "vmbr0")),
        ("privileged", format!("{CONTAINER}unprivileged = false\n")),
    ] {
        refused_by(field, &policy(), &usage, &text);
        refused_by(field, &policy(), &usage, &scratch(&text));
    }
    let used_up = CreateUsage { made_in_last_day: 10, ..CreateUsage::default() };
    refused_by("per_day", &policy(), &used_up, &scratch(CONTAINER));
    let none = BTreeMap::new();
    let refused = judged(
        DeclaredBy::Hub,
        None,
        &usage,
        &scratch(CONTAINER),
        SourceContribution::Volumes(&none),
    );
    assert_eq!(refused.map_err(|refusal| refusal.reason), Err(ReasonCode::Policy), "no section");
}
