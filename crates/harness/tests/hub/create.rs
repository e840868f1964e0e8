//! What a hub has made is what root's `[policy.create]` lets it: each field once, against the simulated node.

use evenkeel_core::gate::create_policy::CreatePolicy;
use evenkeel_core::model::quantity::Bytes;
use evenkeel_sim::{BackupFile, Config, Event};

use tokio::time::sleep;

use crate::support::{Fleet, minutes};

const TEMPLATE: &str = "local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst";

fn policy() -> CreatePolicy {
    CreatePolicy {
        vmids: "1000-1999".parse().unwrap(),
        sources: vec!["local:vztmpl/*".parse().unwrap(), "clone:9000-9009".parse().unwrap()],
        storages: [("local-lvm".parse().unwrap(), Bytes(20 << 30))].into(),
        bridges: ["vmbr0".to_owned()].into(),
        per_day: 2,
        privileged: false,
    }
}

async fn fleet(policy: CreatePolicy) -> Fleet {
    let mut fleet = Fleet::new().await;
    fleet.rig.approvals.as_mut().unwrap().policy.create = Some(policy);
    fleet
}

/// A container of so many GiB.
fn container(vmid: u32, gib: u32) -> String {
    format!(
        "[guest.{vmid}]\nkind = \"lxc\"\nsource = {{ template = \"{TEMPLATE}\" }}\n\
         rootfs = {{ storage = \"local-lvm\", size = \"{gib}GiB\" }}\nnet0 = {{ name = \"eth0\", bridge = \"vmbr0\" }}\n"
    )
}

/// The numbers of the guests that were made.
fn made(fleet: &Fleet) -> Vec<u32> {
    fleet.rig.node.with(|sim| {
        let all = sim.world.guests.keys().copied();
        all.filter(|vmid| *vmid >= 900).collect()
    })
}

/// The words of every hold, as the report of the host's own pass tells them.
async fn holds(fleet: &Fleet, text: &str) -> Vec<String> {
    let files = evenkeel_core::fleet::DocumentFiles::new([("a.toml".to_owned(), text.to_owned())]);
    let loaded = files.unwrap().load(evenkeel_core::desired::DeclaredBy::Hub).unwrap();
    let told = fleet.rig.live(async |engine| {
        let report = evenkeel_harness::script::pass(engine, &loaded.desired).await?;
        Ok(report.holds.iter().map(|hold| format!("{}: {}", hold.reason, hold.why)).collect())
    });
    told.await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_hub_has_made_what_root_allows_and_it_is_as_declared() {
    let fleet = fleet(policy()).await;
    fleet.push(1, &format!("{}run = \"running\"\n", container(1000, 8)));
    fleet.live(minutes(5)).await;
    assert_eq!(made(&fleet), [1000], "{:?}", fleet.writes());
    assert_eq!(fleet.actual("lxc/1000", "unprivileged").as_deref(), Some("1"));
    let told = fleet.writes();
    assert_eq!(told.iter().filter(|write| write.ends_with(" start")).count(), 1, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn each_field_holds_what_is_beyond_it_with_its_name() {
    let beyond = [
        ("vmids", container(999, 8)),
        ("sources", container(1000, 8).replace("vztmpl/debian", "vztmpl/../x/debian")),
        ("storages", container(1000, 21)),
        ("bridges", container(1000, 8).replace("vmbr0", "vmbr9")),
        ("privileged", format!("{}unprivileged = false\n", container(1000, 8))),
    ];
    let fleet = fleet(policy()).await;
    for (field, text) in &beyond {
        let told = holds(&fleet, text).await;
        let named = format!("`{field}` under [policy.create]");
        assert!(
            told.len() == 1 && told[0].starts_with("policy: ") && told[0].contains(&named),
            "{field}: {told:?}"
        );
    }
    // The same from a hub, one document after the other: nothing is made, and what is allowed still is.
    for (generation, (_, text)) in (1..).zip(&beyond) {
        fleet.push(generation, text);
        fleet.live(minutes(3)).await;
    }
    assert_eq!((made(&fleet), fleet.writes()), (vec![], vec![]));
    fleet.push(9, &container(1000, 8));
    fleet.live(minutes(3)).await;
    assert_eq!(made(&fleet), [1000]);
}

#[tokio::test(start_paused = true)]
async fn two_guests_at_once_do_not_both_get_the_last_room() {
    let fleet = fleet(CreatePolicy { per_day: 10, ..policy() }).await;
    fleet.push(1, &format!("{}{}{}", container(1000, 8), container(1001, 8), container(1002, 8)));
    fleet.live(minutes(10)).await;
    assert_eq!(made(&fleet), [1000, 1001]);
    // What the hub no longer declares has not given its room back.
    fleet.push(2, &container(1003, 8));
    fleet.live(minutes(10)).await;
    assert_eq!(made(&fleet), [1000, 1001]);
    fleet.push(3, &container(1003, 4));
    fleet.live(minutes(10)).await;
    assert_eq!(made(&fleet), [1000, 1001, 1003]);
}

#[tokio::test(start_paused = true)]
async fn the_makings_of_a_day_are_counted_across_restarts() {
    let fleet = fleet(policy()).await;
    let one = container(1000, 1);
    let two = container(1001, 1);
    let three = container(1002, 1);
    fleet.push(1, &one);
    fleet.live(minutes(5)).await;
    fleet.push(2, &format!("{one}{two}{three}"));
    // Every life is another agent.
    for _ in 0..3 {
        fleet.live(minutes(5)).await;
        assert_eq!(made(&fleet), [1000, 1001]);
        sleep(minutes(7 * 60)).await;
    }
    let told = holds(&fleet, &format!("{one}{two}{three}")).await;
    assert!(told[0].contains("2 guests were made for the hub in the last 24 hours"), "{told:?}");
    sleep(minutes(3 * 60)).await;
    fleet.live(minutes(5)).await;
    assert_eq!(made(&fleet), [1000, 1001, 1002], "a day allows two more");
}

#[tokio::test(start_paused = true)]
async fn growth_and_new_volumes_are_bounded_by_what_storages_list() {
    let fleet = fleet(policy()).await;
    fleet.push(1, &container(1000, 8));
    fleet.live(minutes(5)).await;
    fleet.push(2, &container(1000, 13));
    fleet.live(minutes(5)).await;
    assert!(fleet.actual("lxc/1000", "rootfs").unwrap().contains("size=13G"));
    // A detached volume still takes its room, although the configuration no longer says how much.
    let mount = "mp0 = { storage = \"local-lvm\", size = \"6GiB\", mp = \"/a\" }\n";
    fleet.push(3, &format!("{}{mount}", container(1000, 13)));
    fleet.live(minutes(5)).await;
    assert!(fleet.actual("lxc/1000", "mp0").unwrap().contains("size=6G"));
    fleet.push(4, &format!("{}unset = [\"mp0\"]\n", container(1000, 13)));
    fleet.live(minutes(5)).await;
    assert!(fleet.actual("lxc/1000", "unused0").is_some(), "{:?}", fleet.writes());
    fleet.push(5, &format!("{}unset = [\"mp0\"]\n", container(1000, 15)));
    fleet.live(minutes(5)).await;
    assert!(fleet.actual("lxc/1000", "rootfs").unwrap().contains("size=13G"));
    fleet.push(6, &format!("{}unset = [\"mp0\"]\n", container(1000, 14)));
    fleet.live(minutes(5)).await;
    assert!(fleet.actual("lxc/1000", "rootfs").unwrap().contains("size=14G"));
}

#[tokio::test(start_paused = true)]
async fn two_lanes_do_not_both_take_what_the_plan_could_not_see_was_gone() {
    let fleet = fleet(CreatePolicy { per_day: 10, ..policy() }).await;
    let mount = "mp0 = { storage = \"local-lvm\", size = \"9GiB\", mp = \"/a\" }\n";
    fleet.push(1, &format!("{}{mount}", container(1000, 1)));
    fleet.live(minutes(5)).await;
    // No configuration tells the size of a detached volume: by them two guests of 6 GiB fit, and really one does.
    let detached = format!("{}unset = [\"mp0\"]\n", container(1000, 1));
    fleet.push(2, &detached);
    fleet.live(minutes(5)).await;
    assert!(fleet.actual("lxc/1000", "unused0").is_some(), "{:?}", fleet.writes());
    fleet.push(3, &format!("{detached}{}{}", container(1001, 6), container(1002, 6)));
    fleet.live(minutes(10)).await;
    assert_eq!(made(&fleet).len(), 2, "{:?}", fleet.writes());
}

#[tokio::test(start_paused = true)]
async fn cards_of_a_hub_come_onto_listed_bridges_alone() {
    let fleet = fleet(policy()).await;
    let card = |bridge: &str| {
        format!(
            "[guest.100]\nkind = \"lxc\"\nnet7 = {{ name = \"eth7\", bridge = \"{bridge}\" }}\n"
        )
    };
    fleet.push(1, &card("vmbr1"));
    fleet.live(minutes(5)).await;
    assert_eq!(fleet.actual("lxc/100", "net7"), None);
    fleet.push(2, &card("vmbr0"));
    fleet.live(minutes(5)).await;
    assert!(fleet.actual("lxc/100", "net7").unwrap().contains("bridge=vmbr0"));
}

#[tokio::test(start_paused = true)]
async fn a_scratch_guest_of_a_hub_goes_unsigned_only_where_root_lists_its_number() {
    for (range, goes) in [("1000-1099", true), ("1100-1199", false)] {
        let mut fleet = fleet(policy()).await;
        fleet.rig.scratch_vmids = range.parse().unwrap();
        fleet.push(1, &format!("{}scratch = true\n", container(1000, 1)));
        fleet.live(minutes(5)).await;
        assert_eq!(made(&fleet), [1000]);
        fleet.push(2, "[guest.1000]\nkind = \"lxc\"\nstate = \"absent\"\n");
        fleet.live(minutes(5)).await;
        assert_eq!(made(&fleet).is_empty(), goes, "{range}: {:?}", fleet.writes());
    }
    // It counts when the guest is made, and again when it is to go.
    let mut fleet = fleet(policy()).await;
    fleet.push(1, &format!("{}scratch = true\n", container(1000, 1)));
    fleet.live(minutes(5)).await;
    fleet.rig.scratch_vmids = "1000-1099".parse().unwrap();
    fleet.push(2, "[guest.1000]\nkind = \"lxc\"\nstate = \"absent\"\n");
    fleet.live(minutes(5)).await;
    assert_eq!(made(&fleet), [1000]);
}

#[tokio::test(start_paused = true)]
async fn a_document_that_claims_a_class_or_an_origin_is_refused_whole() {
    let fleet = fleet(policy()).await;
    for (generation, claim) in (1..).zip([
        "class = \"benign\"\n",
        "provenance = \"ours\"\n",
        "by = \"local\"\n",
        "policy = { create = { per_day = 99 } }\n",
    ]) {
        fleet.push(generation, &format!("{}{claim}", container(1000, 1)));
        fleet.live(minutes(3)).await;
        assert!(fleet.view.health().refused.is_some(), "{claim}");
    }
    assert_eq!(fleet.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_unsigned_document_makes_nothing_and_grows_within_the_limits() {
    // The guests of this node have volumes of their own, which count once a hub declares them.
    let storages = [("local-lvm".parse().unwrap(), Bytes(200 << 30))].into();
    let mut fleet = fleet(CreatePolicy { storages, ..policy() }).await;
    fleet.rig.approvals.as_mut().unwrap().policy.desired_signed = false;
    fleet.offer(1, &Fleet::document(1, &format!("{}scratch = true\n", container(1000, 1))));
    fleet.live(minutes(5)).await;
    assert_eq!(fleet.view.health().refused, None);
    assert_eq!((made(&fleet), fleet.writes()), (vec![], vec![]));
    // A new mount could cover what runs there: no limit of root's lets an unsigned document have one.
    let mount = "[guest.100]\nkind = \"lxc\"\nmp7 = { storage = \"local-lvm\", size = \"1GiB\", mp = \"/a\" }\n";
    fleet.offer(2, &Fleet::document(2, mount));
    fleet.live(minutes(5)).await;
    assert_eq!((fleet.actual("lxc/100", "mp7"), fleet.writes()), (None, vec![]));
    let grown = |gib: u32| {
        format!(
            "[guest.100]\nkind = \"lxc\"\nrootfs = {{ storage = \"local-lvm\", size = \"{gib}GiB\" }}\n"
        )
    };
    fleet.offer(3, &Fleet::document(3, &grown(300)));
    fleet.live(minutes(5)).await;
    assert_eq!(fleet.writes(), Vec::<String>::new(), "beyond root's limit");
    fleet.offer(4, &Fleet::document(4, &grown(100)));
    fleet.live(minutes(5)).await;
    assert_eq!(fleet.writes(), ["PUT lxc/100 resize"]);
}

/// Puts a backup of a container onto the node: a root volume, and a mount that was on another storage.
fn saved(fleet: &Fleet, more: &[(&str, &str)]) -> String {
    fleet.rig.node.with(|sim| {
        let mut config = Config::of(&[
            ("memory", "256"),
            ("hostname", "old"),
            ("unprivileged", "1"),
            ("rootfs", "local-lvm:vm-150-disk-0,size=5G"),
            ("mp0", "store:150/vm-150-disk-1.raw,mp=/srv,backup=1,size=3G"),
        ]);
        let more = more.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        config.active.extend(more);
        let ctime = 1_700_000_000;
        let format = "tar.zst".to_owned();
        let size_bytes = 1 << 20;
        let excludes = Vec::new();
        let file =
            BackupFile { ctime, format, size_bytes, notes: None, protected: false, excludes };
        sim.world.put_backup("store", "lxc/150".parse().unwrap(), &config, &file).unwrap()
    })
}

#[tokio::test(start_paused = true)]
async fn a_container_comes_back_from_its_archive_with_its_sizes_and_mounts() {
    let sources = vec!["store:backup/*".parse().unwrap()];
    let limit = |gib: u64| CreatePolicy {
        sources: sources.clone(),
        storages: [("local-lvm".parse().unwrap(), Bytes(gib << 30))].into(),
        ..policy()
    };
    // Too little room is told with what the archive holds.
    let tight = fleet(limit(7)).await;
    let archive = saved(&tight, &[]);
    let text = format!(
        "[guest.1000]\nkind = \"lxc\"\nsource = {{ backup = \"{archive}\" }}\nmemory = 512\n"
    );
    let told = holds(&tight, &text).await;
    assert!(
        told[0].contains("8 GiB more on local-lvm, where 0 bytes of 7 GiB are used"),
        "{told:?}"
    );
    assert_eq!(made(&tight), Vec::<u32>::new());
    let roomy = fleet(limit(8)).await;
    saved(&roomy, &[]);
    roomy.push(1, &format!("{text}run = \"running\"\n"));
    roomy.live(minutes(5)).await;
    assert_eq!(made(&roomy), [1000], "{:?}", roomy.writes());
    let root = roomy.actual("lxc/1000", "rootfs").unwrap();
    assert!(root.starts_with("local-lvm:") && root.contains("size=5G"), "{root}");
    let mount = roomy.actual("lxc/1000", "mp0").unwrap();
    assert!(mount.starts_with("local-lvm:") && mount.contains("size=3G"), "{mount}");
    assert_eq!(roomy.actual("lxc/1000", "memory").as_deref(), Some("512"));
    assert!(roomy.writes().iter().any(|write| write.ends_with(" start")), "{:?}", roomy.writes());
}

#[tokio::test(start_paused = true)]
async fn what_an_archive_brings_cannot_be_declared_into_a_start() {
    let sources = vec!["store:backup/*".parse().unwrap()];
    let fleet = fleet(CreatePolicy { sources, ..policy() }).await;
    let archive = saved(&fleet, &[("net0", "name=eth0,bridge=vmbr9,hwaddr=BC:24:11:00:00:09")]);
    let text = format!(
        "[guest.1000]\nkind = \"lxc\"\nrun = \"running\"\nsource = {{ backup = \"{archive}\" }}\n"
    );
    fleet.push(1, &text);
    fleet.live(minutes(5)).await;
    assert_eq!(made(&fleet), [1000]);
    fleet.push(2, &format!("{text}net0 = {{ name = \"eth0\", bridge = \"vmbr9\" }}\n"));
    fleet.live(minutes(5)).await;
    let starts = |fleet: &Fleet| fleet.writes().iter().any(|write| write.ends_with(" start"));
    assert!(!starts(&fleet), "{:?}", fleet.writes());
    fleet.push(3, &format!("{text}net0 = {{ name = \"eth0\", bridge = \"vmbr0\" }}\n"));
    fleet.live(minutes(5)).await;
    assert!(starts(&fleet), "{:?}", fleet.writes());
}

/// A storage of 9.1.5 or later may list a volume without its size: how much of the limit is used is not known then.
#[tokio::test(start_paused = true)]
async fn y17_room_that_a_list_does_not_tell_is_not_free() {
    let fleet = fleet(policy()).await;
    let hide = |hidden| {
        let storage = "local-lvm".to_owned();
        fleet.rig.node.with(|sim| sim.happen(Event::HideSizes { storage, hidden }));
    };
    fleet.push(1, &container(1000, 1));
    fleet.live(minutes(5)).await;
    assert_eq!(made(&fleet), [1000]);
    hide(true);
    let both = format!("{}{}", container(1000, 1), container(1001, 1));
    fleet.push(2, &both);
    fleet.live(minutes(5)).await;
    assert_eq!(made(&fleet), [1000], "{:?}", fleet.writes());
    hide(false);
    fleet.live(minutes(5)).await;
    assert_eq!(made(&fleet), [1000, 1001]);
}
