//! What a signed or asked act takes of the token is known before anything is sent or spent, and named.

use std::collections::BTreeMap;

use evenkeel_agent::engine::OpOutcome;
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_harness::Rig;
use evenkeel_sim::{Event, TOKENS};

use crate::support::*;

const GUEST: &str = "lxc/102";

async fn node() -> Rig {
    let (name, secret, _) = TOKENS[2];
    let rig = rig().await.with_token(name, secret);
    protect(&rig, GUEST);
    rig
}

fn withhold(rig: &Rig, path: &str, privilege: &str) {
    let holder = "ops@pve".to_owned();
    let path = path.to_owned();
    let privilege = privilege.to_owned();
    rig.node.with(|sim| sim.happen(Event::Withhold { holder, path, privilege }));
}

/// A destroy of a guest that runs and is protected, saved first: every step has a right of its own.
const ROWS: [(&str, &str); 5] = [
    ("/vms/102", "VM.Allocate"),
    ("/vms/102", "VM.PowerMgmt"),
    ("/vms/102", "VM.Config.Options"),
    ("/vms/102", "VM.Backup"),
    ("/storage/store", "Datastore.AllocateSpace"),
];

fn saved() -> BTreeMap<String, String> {
    BTreeMap::from([("final_backup".to_owned(), "store".to_owned())])
}

#[tokio::test(start_paused = true)]
async fn a_destroy_whose_rights_are_missing_is_not_put_before_a_signer() {
    for (path, privilege) in ROWS {
        let rig = node().await;
        withhold(&rig, path, privilege);
        let refusal = live(&rig, async |engine| {
            let asked = engine.request(ActionKind::Destroy, GUEST.parse().unwrap(), saved()).await;
            asked.unwrap_err().refusal()
        })
        .await;
        assert_eq!(refusal.reason, ReasonCode::Rights, "{privilege}: {refusal}");
        let named = format!("{privilege} on {path}");
        assert!(refusal.detail.contains(&named), "{refusal}");
    }
}

/// The right goes after the item was raised: the approval is refused, and good again once the right is back.
#[tokio::test(start_paused = true)]
async fn an_approval_is_not_spent_on_an_act_that_the_token_may_not_do() {
    for (path, privilege) in ROWS {
        let rig = node().await;
        let end = live(&rig, async |engine| {
            engine.request(ActionKind::Destroy, GUEST.parse().unwrap(), saved()).await.unwrap();
            let approval = anna().approve(&item(engine).await, 7, now(&rig));
            withhold(&rig, path, privilege);
            let before = writes(&rig, GUEST);
            let refused = refused(engine, &approval).await;
            assert_eq!(refused, ReasonCode::Rights, "{privilege}");
            assert_eq!(writes(&rig, GUEST), before, "{privilege}: nothing was sent");
            rig.node.with(|sim| sim.world.access.revoke(path, "ops@pve"));
            Ok(carried_out(engine, &approval).await.end)
        })
        .await;
        assert!(matches!(end, OpOutcome::Succeeded { .. }), "{privilege}: {end:?}");
        assert!(!exists(&rig, GUEST), "{privilege}");
    }
}

/// Proxmox answers such a backup with 200 and a task that fails.
#[tokio::test(start_paused = true)]
async fn a_backup_without_its_right_is_refused_before_it_is_asked_for() {
    for (path, privilege) in
        [("/vms/102", "VM.Backup"), ("/storage/store", "Datastore.AllocateSpace")]
    {
        let rig = node().await;
        withhold(&rig, path, privilege);
        let refusal = live(&rig, async |engine| {
            let params = BTreeMap::from([("storage".to_owned(), "store".to_owned())]);
            let asked = engine.ask(ActionKind::Backup, GUEST.parse().unwrap(), params).await;
            asked.unwrap_err().refusal()
        })
        .await;
        assert_eq!(refusal.reason, ReasonCode::Rights, "{privilege}: {refusal}");
        let sent = rig.node.with(|sim| {
            sim.records().iter().filter(|record| record.path.ends_with("/vzdump")).count()
        });
        assert_eq!(sent, 0, "{privilege}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_signed_act_names_the_right_it_lacks() {
    let rig = node().await;
    foreign(&rig, "POST", "lxc/102/snapshot", &[("snapname", "before")]).await;
    let snapshot = || BTreeMap::from([("snapname".to_owned(), "before".to_owned())]);
    withhold(&rig, "/vms/102", "VM.Snapshot");
    withhold(&rig, "/vms/102", "VM.Snapshot.Rollback");
    let told = live(&rig, async |engine| {
        let mut told = Vec::new();
        for op in [ActionKind::Rollback, ActionKind::DeleteSnapshot] {
            let asked = engine.request(op, GUEST.parse().unwrap(), snapshot()).await;
            told.push(asked.unwrap_err().refusal()?);
        }
        Ok(told)
    })
    .await;
    assert!(told.iter().all(|refusal| refusal.reason == ReasonCode::Rights), "{told:?}");
    assert!(told[0].detail.contains("VM.Snapshot.Rollback or VM.Snapshot on /vms/102"), "{told:?}");
    assert!(told[1].detail.contains("lacks VM.Snapshot on /vms/102"), "{told:?}");
}
