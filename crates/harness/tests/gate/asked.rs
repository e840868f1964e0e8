//! Acts nobody declares are asked for, signed and done: snapshots, volumes, a protection.

use std::collections::BTreeMap;

use evenkeel_agent::engine::{Engine, OpOutcome, OpReport};
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_harness::Rig;
use evenkeel_sim::Event;

use crate::support::*;

fn params(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Asks, signs, submits and awaits.
async fn done(
    rig: &Rig,
    engine: &mut Engine,
    op: ActionKind,
    guest: &str,
    given: &[(&str, &str)],
) -> OpReport {
    let asked = engine.request(op, guest.parse().unwrap(), params(given)).await;
    let id = asked.unwrap();
    let item = engine.pending().await.unwrap().remove(&id).unwrap().0;
    let nonce = u128::from(rig.ambient.next()) + 1;
    let approval = anna().approve(&item, nonce, now(rig));
    carried_out(engine, &approval).await
}

fn snapshots(rig: &Rig, guest: &str) -> usize {
    let guest: GuestId = guest.parse().unwrap();
    rig.node.with(|sim| {
        let found = sim.world.guests.values().find(|other| other.id == guest).unwrap();
        found.config.snapshots.len()
    })
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_rolled_back_to_and_then_removed_by_two_signatures() {
    let rig = rig().await;
    foreign(&rig, "POST", "lxc/102/snapshot", &[("snapname", "before")]).await;
    foreign(&rig, "PUT", "lxc/102/config", &[("description", "after it")]).await;
    live(&rig, async |engine| {
        let report =
            done(&rig, engine, ActionKind::Rollback, "lxc/102", &[("snapname", "before")]).await;
        assert_eq!(report.end, OpOutcome::Succeeded { warning: None }, "{report:?}");
        let report =
            done(&rig, engine, ActionKind::DeleteSnapshot, "lxc/102", &[("snapname", "before")])
                .await;
        assert_eq!(report.end, OpOutcome::Succeeded { warning: None }, "{report:?}");
        Ok(())
    })
    .await;
    assert_eq!(snapshots(&rig, "lxc/102"), 0);
    let sent = writes(&rig, "lxc/102");
    assert_eq!(sent.iter().filter(|write| *write == "POST rollback").count(), 1, "{sent:?}");
}

/// Which guest the item would be about nobody can tell: this one is on its way out.
#[tokio::test(start_paused = true)]
async fn p15_nothing_is_asked_for_while_somebody_else_destroys_the_guest() {
    let rig = rig().await;
    let guest: GuestId = "lxc/100".parse().unwrap();
    rig.node.with(|sim| {
        (sim.timings.short_ms, sim.timings.copy_ms) = (60_000, 60_000);
        sim.happen(Event::Power { guest, running: false });
    });
    let (name, secret, _) = evenkeel_sim::TOKENS[2];
    let path = "/api2/json/nodes/pve1/lxc/100";
    let request = evenkeel_sim::SimRequest::new("DELETE", path).token(&format!("{name}={secret}"));
    rig.node.send(request).await;
    live(&rig, async |engine| {
        tokio::time::sleep(std::time::Duration::from_secs(10)).await;
        let asked = engine.request(ActionKind::Destroy, guest, BTreeMap::new()).await;
        assert_eq!(asked.unwrap_err().refusal()?.reason, ReasonCode::IdentityUnproven);
        assert!(engine.pending().await?.is_empty());
        Ok(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_is_not_there_is_not_asked_for() {
    let rig = rig().await;
    live(&rig, async |engine| {
        for name in ["gone", "current", ""] {
            let given = params(&[("snapname", name)]);
            let asked =
                engine.request(ActionKind::Rollback, "lxc/102".parse().unwrap(), given).await;
            assert_eq!(asked.unwrap_err().refusal()?.reason, ReasonCode::Payload);
        }
        Ok(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_detached_volume_is_freed_by_its_slot_and_never_by_the_storage() {
    let rig = rig().await;
    let guest = "lxc/100".parse().unwrap();
    rig.node.with(|sim| sim.happen(Event::Power { guest, running: false }));
    foreign(&rig, "PUT", "lxc/100/config", &[("delete", "mp0")]).await;
    live(&rig, async |engine| {
        let report =
            done(&rig, engine, ActionKind::DeleteVolume, "lxc/100", &[("slot", "unused0")]).await;
        assert_eq!(report.end, OpOutcome::Succeeded { warning: None }, "{report:?}");
        let given = params(&[("slot", "rootfs")]);
        let asked =
            engine.request(ActionKind::DeleteVolume, "lxc/100".parse().unwrap(), given).await;
        assert_eq!(asked.unwrap_err().refusal()?.reason, ReasonCode::Payload);
        Ok(())
    })
    .await;
    let storage = rig.node.with(|sim| {
        sim.records().iter().any(|record| record.mutating && record.path.contains("/storage/"))
    });
    assert!(!storage, "nothing is deleted through a storage");
}

#[tokio::test(start_paused = true)]
async fn a_protection_is_taken_off_by_signature_alone() {
    let rig = rig().await;
    protect(&rig, "lxc/100");
    let open = desired("guest.100 = { kind = \"lxc\", protection = false }");
    live(&rig, async |engine| {
        pass(engine, &open).await?;
        assert!(protected(&rig, "lxc/100"));
        let item = item(engine).await;
        let approval = anna().approve(&item, 7, now(&rig));
        let report = carried_out(engine, &approval).await;
        assert_eq!(report.end, OpOutcome::Succeeded { warning: None }, "{report:?}");
        Ok(())
    })
    .await;
    assert!(!protected(&rig, "lxc/100"));
}

#[tokio::test(start_paused = true)]
async fn what_has_no_executor_or_needs_no_signature_is_not_asked_for() {
    let rig = rig().await;
    live(&rig, async |engine| {
        for (op, given, reason) in [
            (ActionKind::WipeStorage, vec![], ReasonCode::NotExecutable),
            (ActionKind::Decommission, vec![], ReasonCode::NotExecutable),
            (ActionKind::Restore, vec![], ReasonCode::NotExecutable),
            (ActionKind::SetConfig, vec![("cores", "2")], ReasonCode::NotPending),
        ] {
            let asked = engine.request(op, "lxc/102".parse().unwrap(), params(&given)).await;
            assert_eq!(asked.unwrap_err().refusal()?.reason, reason, "{op}");
        }
        Ok(())
    })
    .await;
    assert!(live(&rig, async |engine| engine.pending().await).await.is_empty());
}

/// Not even signed: PVE would let two disks write to one volume, or read a guest's bytes as another format.
#[tokio::test(start_paused = true)]
async fn x12_x13_one_volume_in_two_slots_or_another_format_is_not_put_before_a_signer() {
    let rig = rig().await;
    let guest: GuestId = "qemu/101".parse().unwrap();
    let stored =
        rig.node.with(|sim| sim.world.guest(guest).unwrap().config.active["scsi0"].clone());
    let volume = stored.split(',').next().unwrap();
    live(&rig, async |engine| {
        for (slot, value, words) in [
            ("scsi5", volume.to_owned(), "in `scsi0` too"),
            ("scsi0", format!("{volume},format=qcow2"), "`format` in `scsi0`"),
        ] {
            let params = BTreeMap::from([(slot.to_owned(), value)]);
            let refusal = engine
                .request(ActionKind::SetConfig, guest, params)
                .await
                .unwrap_err()
                .refusal()?;
            assert_eq!(refusal.reason, ReasonCode::NotExecutable, "{refusal}");
            assert!(refusal.detail.contains(words), "{refusal}");
        }
        Ok(())
    })
    .await;
    assert_eq!(writes(&rig, "qemu/101"), Vec::<String>::new());
}

/// Proxmox starts a machine from the memory of its snapshot, whatever a rollback says.
#[tokio::test(start_paused = true)]
async fn y13_a_rollback_to_a_snapshot_with_memory_says_that_the_machine_runs_afterwards() {
    const MACHINE: &str = "qemu/101";
    let id: GuestId = MACHINE.parse().unwrap();
    let rig = rig().await;
    let set = BTreeMap::from([("scsi0".to_owned(), Some("tank:vm-101-disk-0,size=8G".to_owned()))]);
    rig.node.with(|sim| {
        let config = &mut sim.world.guest_mut(id).unwrap().config;
        config.active.retain(|key, _| !key.starts_with("scsi") && !key.starts_with("efi"));
        sim.happen(Event::Edit { guest: id, set });
        sim.happen(Event::Power { guest: id, running: true });
    });
    let take = async |name: &str, vmstate: &str| {
        let form = [("snapname", name), ("vmstate", vmstate)];
        foreign(&rig, "POST", &format!("{MACHINE}/snapshot"), &form).await;
    };
    take("cold", "0").await;
    take("warm", "1").await;
    rig.node.with(|sim| sim.happen(Event::Power { guest: id, running: false }));
    let runs = |rig: &Rig| rig.node.with(|sim| sim.world.guest(id).unwrap().power.is_running());
    live(&rig, async |engine| {
        let refused = engine
            .request(ActionKind::Rollback, id, params(&[("snapname", "cold"), ("start", "1")]))
            .await;
        assert!(refused.is_err_and(|error| error.to_string().contains("holds memory")));
        let raised = engine
            .request(ActionKind::Rollback, id, params(&[("snapname", "warm"), ("start", "0")]))
            .await;
        let item = engine.pending().await.unwrap().remove(&raised.unwrap()).unwrap().0;
        assert_eq!(item.params["start"], "1", "it is read, not believed");
        assert!(item.losses.iter().any(|loss| loss.what.contains("holds memory")), "{item:?}");
        let end = carried_out(engine, &anna().approve(&item, 7, now(&rig))).await.end;
        assert_eq!(end, OpOutcome::Succeeded { warning: None });
        Ok(())
    })
    .await;
    assert!(runs(&rig), "as was signed");
    assert_eq!(count(&rig, MACHINE, "POST rollback"), 1);
}
