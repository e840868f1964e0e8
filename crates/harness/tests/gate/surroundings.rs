//! A destroy takes more than the guest: firewall, roles and pool of its number. A signer is told all of it, and what comes
//! after that is not signed for.

use std::collections::BTreeMap;

use evenkeel_agent::engine::OpOutcome;
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_harness::Rig;
use evenkeel_sim::{Event, NumberThing, TOKENS};

use crate::support::*;

const GUEST: &str = "lxc/100";

fn give(rig: &Rig, thing: NumberThing) {
    let guest = GUEST.parse().unwrap();
    rig.node.with(|sim| sim.happen(Event::Around { guest, thing, present: true }));
}

#[tokio::test(start_paused = true)]
async fn y02_a_signer_is_told_what_goes_with_the_guest() {
    let rows = [
        (NumberThing::Firewall, "its firewall: rule in ACCEPT dport=22"),
        (NumberThing::FirewallAlias, "its firewall: alias office"),
        (NumberThing::Access, "roles granted on it: PVEVMUser for user viewer@pve"),
        (NumberThing::Pool, "its pool: theirs"),
    ];
    for (thing, words) in rows {
        let rig = rig().await;
        give(&rig, thing);
        let found = live(&rig, async |engine| {
            pass(engine, &desired(ABSENT)).await?;
            let found = item(engine).await;
            let approval = anna().approve(&found, 7, now(&rig));
            let end = carried_out(engine, &approval).await.end;
            assert!(matches!(end, OpOutcome::Succeeded { .. }), "{thing:?}: {end:?}");
            Ok(found)
        })
        .await;
        let told: Vec<&str> = found.losses.iter().map(|loss| loss.what.as_str()).collect();
        assert!(told.iter().any(|what| what.starts_with(words)), "{thing:?}: {told:?}");
        assert!(!exists(&rig, GUEST), "{thing:?}");
    }
}

/// With purge Proxmox also forgets the guest in jobs and in HA.
#[tokio::test(start_paused = true)]
async fn y02_a_purge_names_jobs_and_ha_among_its_losses() {
    let rig = rig().await;
    let things = [NumberThing::Ha, NumberThing::BackupJob, NumberThing::Replication];
    for thing in things {
        give(&rig, thing);
    }
    let found = live(&rig, async |engine| {
        pass(engine, &desired("")).await?;
        let asked = engine.request(ActionKind::Destroy, GUEST.parse().unwrap(), BTreeMap::new());
        asked.await.unwrap();
        Ok(item(engine).await)
    })
    .await;
    assert_eq!(found.params["purge"], "1", "HA manages it");
    let told: Vec<&str> = found.losses.iter().map(|loss| loss.what.as_str()).collect();
    for words in ["its HA entry: ct:100", "lists it alone and is deleted", "its replication: 100-0"]
    {
        assert!(told.iter().any(|what| what.contains(words)), "{words}: {told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn y02_what_the_token_may_not_see_is_told_as_not_visible() {
    let (name, secret, _) = TOKENS[2];
    let rig = rig().await.with_token(name, secret);
    give(&rig, NumberThing::Access);
    let holder = "ops@pve".to_owned();
    let path = "/access".to_owned();
    let privilege = "Sys.Audit".to_owned();
    rig.node.with(|sim| sim.happen(Event::Withhold { holder, path, privilege }));
    let found = live(&rig, async |engine| {
        pass(engine, &desired(ABSENT)).await?;
        Ok(item(engine).await)
    })
    .await;
    let told: Vec<&str> = found.losses.iter().map(|loss| loss.what.as_str()).collect();
    let hidden = "roles granted on it: not visible, the token lacks Sys.Audit on /access";
    assert!(told.contains(&hidden), "{told:?}");
}

/// What came after the item was raised was put before nobody: the DELETE is not sent, and the item is raised anew.
#[tokio::test(start_paused = true)]
async fn y02_what_came_after_the_item_was_raised_is_not_destroyed_by_its_approval() {
    for thing in [NumberThing::Firewall, NumberThing::Access, NumberThing::Pool] {
        let rig = rig().await;
        let (first, second) = live(&rig, async |engine| {
            let approval = approved(&rig, engine, &desired(ABSENT)).await;
            let first = item(engine).await;
            give(&rig, thing);
            assert_eq!(refused(engine, &approval).await, ReasonCode::Stale, "{thing:?}");
            pass(engine, &desired(ABSENT)).await?;
            Ok((first, item(engine).await))
        })
        .await;
        assert_eq!(writes(&rig, GUEST), Vec::<String>::new(), "{thing:?}");
        assert!(second.losses.len() > first.losses.len(), "{thing:?}: {:?}", second.losses);
    }
}

/// The same between the stop and the DELETE.
#[tokio::test(start_paused = true)]
async fn y02_what_comes_between_the_stop_and_the_delete_ends_the_destroy() {
    let rig = rig().await;
    let running = "lxc/102";
    let absent = desired("guest.102 = { kind = \"lxc\", state = \"absent\" }");
    let end = live(&rig, async |engine| {
        let approval = approved(&rig, engine, &absent).await;
        let submitted = engine.submit_approval(approval.as_bytes()).await?;
        let acts = async {
            while count(&rig, running, "POST stop") == 0 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            let guest = running.parse().unwrap();
            let thing = NumberThing::Access;
            rig.node.with(|sim| sim.happen(Event::Around { guest, thing, present: true }));
            std::future::pending::<()>().await;
        };
        tokio::select! {
            report = ended(engine, submitted) => Ok(report.end),
            () = acts => unreachable!("a person who waits for ever"),
        }
    })
    .await;
    assert!(matches!(end, OpOutcome::Failed { .. }), "{end:?}");
    assert_eq!(count(&rig, running, "DELETE 102"), 0);
    assert!(exists(&rig, running));
}

/// Proxmox destroys no replicated guest without purge: nobody is asked to sign what would be refused.
#[tokio::test(start_paused = true)]
async fn a_replicated_guest_is_not_put_before_a_signer_without_purge() {
    let rig = rig().await;
    give(&rig, NumberThing::Replication);
    let waiting = live(&rig, async |engine| {
        pass(engine, &desired(ABSENT)).await?;
        Ok(engine.pending().await.unwrap().len())
    })
    .await;
    assert_eq!(waiting, 0);
}
