//! Where root lets a hub go without signatures, it lets nobody into a guest, and disturbs within an hour's budget.

use evenkeel_core::fleet::WireDocument;
use evenkeel_core::gate::create_policy::CreatePolicy;
use evenkeel_core::model::quantity::Bytes;
use evenkeel_harness::script::{desired, pass, put_guest};
use evenkeel_sim::Event;

use crate::support::{Fleet, anna, minutes};

fn offer(fleet: &Fleet, generation: u64, text: &str) {
    let document: WireDocument = Fleet::document(generation, text);
    fleet.offer(generation, &document);
}

#[tokio::test(start_paused = true)]
async fn what_opens_a_guest_is_held_and_the_rest_is_done() {
    let fleet = Fleet::unsigned().await;
    offer(
        &fleet,
        1,
        "[guest.101]\nkind = \"qemu\"\ndescription = \"ours\"\nsshkeys = [\"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA me\"]\nciuser = \"root\"\n\
         boot = \"order=net0\"\nbios = \"ovmf\"\nide2 = \"local:iso/evil.iso,media=cdrom\"\nnet0 = { model = \"virtio\", bridge = \"vmbr9\" }\n",
    );
    fleet.live(minutes(5)).await;
    assert_eq!(fleet.view.health().refused, None);
    assert!(fleet.actual("qemu/101", "description").unwrap_or_default().contains("ours"));
    for key in ["sshkeys", "ciuser", "bios"] {
        assert_eq!(fleet.actual("qemu/101", key), None, "{key}");
    }
    assert!(!fleet.actual("qemu/101", "net0").unwrap_or_default().contains("vmbr9"));
    assert!(!fleet.actual("qemu/101", "ide2").unwrap_or_default().contains("evil"));
    assert_eq!(fleet.writes(), ["POST qemu/101 config"]);

    // The same with an author's word.
    let text = "[guest.101]\nkind = \"qemu\"\ndescription = \"ours\"\nciuser = \"root\"\n";
    fleet.push(2, text);
    fleet.live(minutes(5)).await;
    assert_eq!(fleet.actual("qemu/101", "ciuser").as_deref(), Some("root"));
}

/// Whoever can write local files has root's word.
#[tokio::test(start_paused = true)]
async fn what_opens_a_guest_is_done_by_local_files() {
    let fleet = Fleet::new().await;
    let off = Event::Power { guest: "qemu/101".parse().unwrap(), running: false };
    fleet.rig.node.with(|sim| sim.happen(off));
    let key = anna().key;
    let local = desired(&format!(
        "[guest.101]\nkind = \"qemu\"\nsshkeys = [\"{key} me\"]\nciuser = \"root\"\nnameserver = [\"203.0.113.9\"]\n\
         net0 = {{ model = \"virtio\", bridge = \"vmbr9\" }}\n"
    ));
    let lived = fleet.rig.live(async |engine| pass(engine, &local).await);
    Box::pin(lived).await.unwrap().unwrap();
    for (key, text) in
        [("sshkeys", "ssh-ed25519"), ("ciuser", "root"), ("nameserver", "203."), ("net0", "vmbr9")]
    {
        let actual = fleet.actual("qemu/101", key).unwrap_or_default();
        assert!(actual.contains(text), "{key} {actual}");
    }
}

#[tokio::test(start_paused = true)]
async fn z06_keys_that_nobody_thought_of_are_held_in_an_unsigned_document() {
    let fleet = Fleet::unsigned().await;
    let known = |key: &str| fleet.actual("lxc/100", key);
    let unlisted = [
        "cmode",
        "nameserver",
        "searchdomain",
        "startup",
        "tags",
        "timezone",
        "tty",
        "features",
        "hostname",
        "net0",
        "onboot",
    ];
    let before = unlisted.map(known);
    offer(
        &fleet,
        1,
        "[guest.100]\nkind = \"lxc\"\ncores = 3\nmemory = 768\ncmode = \"shell\"\nnameserver = [\"203.0.113.9\"]\n\
         searchdomain = [\"evil.example\"]\nhostname = \"db\"\nonboot = true\nstartup = \"order=1\"\ntags = [\"test\"]\n\
         timezone = \"host\"\ntty = 6\nfeatures = \"nesting=1\"\nnet0 = { name = \"eth0\", ip = \"10.9.9.5/24\", gw = \"10.9.9.9\" }\n\
         [guest.101]\nkind = \"qemu\"\nserial0 = \"socket\"\nsmbios1 = \"serial=ZHM9bm9jbG91ZA==,base64=1\"\nname = \"db\"\n\
         agent = \"enabled=1\"\nvga = \"serial0\"\nrng0 = \"source=/dev/urandom\"\nhotplug = \"cpu,memory\"\n",
    );
    fleet.live(minutes(5)).await;
    assert_eq!(fleet.view.health().refused, None);
    assert_eq!(fleet.writes(), ["PUT lxc/100 config"], "one write, of what is allowed");
    assert_eq!((known("cores").as_deref(), known("memory").as_deref()), (Some("3"), Some("768")));
    assert_eq!(unlisted.map(known), before);
}

#[tokio::test(start_paused = true)]
async fn a_hub_has_nothing_made_grown_or_cut_off() {
    let fleet = Fleet::unsigned().await;
    offer(
        &fleet,
        1,
        "[guest.100]\nkind = \"lxc\"\ncores = 3\nmp7 = \"local-lvm:8,mp=/data\"\n\
         [guest.555]\nkind = \"lxc\"\nsource = { template = \"local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst\" }\nrootfs = \"local-lvm:4\"\n",
    );
    fleet.live(minutes(5)).await;
    assert_eq!(fleet.writes(), ["PUT lxc/100 config"]);
    assert_eq!(fleet.actual("lxc/100", "cores").as_deref(), Some("3"));
    assert_eq!(fleet.actual("lxc/100", "mp7"), None);
}

#[tokio::test(start_paused = true)]
async fn guests_that_it_declares_running_are_started() {
    let fleet = Fleet::unsigned().await;
    let off = |guest: &str| Event::Power { guest: guest.parse().unwrap(), running: false };
    for guest in ["lxc/100", "lxc/102"] {
        fleet.rig.node.with(|sim| sim.happen(off(guest)));
    }
    offer(&fleet, 1, "[guest.100]\nkind = \"lxc\"\nrun = \"running\"\n");
    fleet.live(minutes(5)).await;
    assert_eq!(fleet.view.health().refused, None);
    assert_eq!(fleet.writes(), ["POST lxc/100 start"], "what is declared, and nobody else");
}

#[tokio::test(start_paused = true)]
async fn volumes_move_to_the_storages_that_root_lists_and_to_no_other() {
    let wish = "[guest.300]\nkind = \"qemu\"\nscsi0 = { storage = \"tank\", size = \"8GiB\" }\n";
    for (listed, moved) in [("tank", &["POST qemu/300 move_disk"][..]), ("local-lvm", &[])] {
        let mut fleet = Fleet::unsigned().await;
        put_guest(&fleet.rig, "qemu/300", &[("scsi0", "local-lvm:vm-300-disk-0,size=8G")], false);
        let storages = [(listed.parse().unwrap(), Bytes(100 << 30))].into();
        let create = CreatePolicy { storages, ..CreatePolicy::default() };
        fleet.rig.approvals.as_mut().unwrap().policy.create = Some(create);
        offer(&fleet, 1, wish);
        fleet.live(minutes(5)).await;
        assert_eq!(fleet.view.health().refused, None);
        assert_eq!(fleet.writes(), moved, "{listed}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_it_declares_absent_waits_for_a_signature_up_to_the_limit_of_items() {
    let mut fleet = Fleet::unsigned().await;
    fleet.rig.approvals.as_mut().unwrap().policy.pending_items = 1;
    let absent = "[guest.100]\nkind = \"lxc\"\nstate = \"absent\"\n[guest.102]\nkind = \"lxc\"\nstate = \"absent\"\n";
    offer(&fleet, 1, absent);
    fleet.live(minutes(5)).await;
    assert_eq!(fleet.view.health().refused, None);
    let asked = fleet.rig.live(async |engine| engine.pending().await);
    assert_eq!(Box::pin(asked).await.unwrap().unwrap().len(), 1);
    assert_eq!(fleet.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn disruptive_acts_of_a_hub_have_an_hourly_budget_and_benign_ones_go_on() {
    let mut fleet = Fleet::new().await;
    fleet.rig.approvals.as_mut().unwrap().policy.disruptive_per_hour = 1;
    // Two containers that run shall be shut down.
    let wish = |run: &str, cores: u32| {
        format!(
            "[guest.100]\nkind = \"lxc\"\nrun = \"{run}\"\ncores = {cores}\n[guest.102]\nkind = \"lxc\"\nrun = \"{run}\"\ncores = {cores}\n"
        )
    };
    fleet.push(1, &wish("stopped", 3));
    fleet.live(minutes(20)).await;
    let stops =
        |fleet: &Fleet| fleet.writes().iter().filter(|write| write.ends_with(" shutdown")).count();
    assert_eq!(stops(&fleet), 1, "{:?}", fleet.writes());
    for guest in ["lxc/100", "lxc/102"] {
        assert_eq!(fleet.actual(guest, "cores").as_deref(), Some("3"), "benign goes on");
    }
    fleet.live(minutes(120)).await;
    assert_eq!(stops(&fleet), 2, "an hour allows one more: {:?}", fleet.writes());
}

/// Local files are root's word.
#[tokio::test(start_paused = true)]
async fn disruptive_acts_of_local_files_have_no_budget() {
    let wish = "[guest.100]\nkind = \"lxc\"\nrun = \"stopped\"\n[guest.102]\nkind = \"lxc\"\nrun = \"stopped\"\n";
    let both = ["POST lxc/100 shutdown", "POST lxc/102 shutdown"];
    for (by_the_hub, sent) in [(true, &[][..]), (false, &both)] {
        let mut fleet = Fleet::new().await;
        fleet.rig.approvals.as_mut().unwrap().policy.disruptive_per_hour = 0;
        if by_the_hub {
            fleet.push(1, wish);
            fleet.live(minutes(5)).await;
        } else {
            let local = desired(wish);
            let lived = fleet.rig.live(async |engine| pass(engine, &local).await);
            Box::pin(lived).await.unwrap().unwrap();
        }
        let mut writes = fleet.writes();
        writes.sort();
        assert_eq!(writes, sent);
    }
}
