//! Every parameter of every act that can be signed is spelled out: one that is left out, whoever signed it so, is refused
//! by the host and nothing is sent.

use evenkeel_agent::engine::{Engine, Submitted};
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::sign::{Namespace, PendingItem};
use evenkeel_harness::{Rig, statement};
use evenkeel_sim::Event;
use serde_json::Value;

use crate::support::*;

async fn asked(
    engine: &mut Engine,
    op: ActionKind,
    guest: &str,
    given: &[(&str, &str)],
) -> PendingItem {
    let given = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let asked = engine.request(op, guest.parse().unwrap(), given.collect()).await;
    let id = asked.unwrap_or_else(|refusal| panic!("{op} {guest}: {refusal}"));
    engine.pending().await.unwrap().remove(&id).unwrap().0
}

const QEMU: &str = "qemu/103";

/// The act with this parameter left out, signed by an operator all the same.
fn without(rig: &Rig, item: &PendingItem, name: &str) -> String {
    let bytes = statement(item, 7, now(rig)).to_bytes().unwrap();
    let mut value: Value = serde_json::from_slice(&bytes).unwrap();
    value["params"].as_object_mut().unwrap().remove(name).unwrap();
    anna().seal(Namespace::Op, &serde_json::to_vec(&value).unwrap())
}

/// One item of each act that has an executor, for both kinds where both have it.
async fn every_act(rig: &Rig, engine: &mut Engine) -> Vec<PendingItem> {
    let mut items = Vec::new();
    for guest in ["lxc/100", QEMU] {
        items.push(asked(engine, ActionKind::Destroy, guest, &[]).await);
        protect(rig, guest);
        items.push(asked(engine, ActionKind::SetConfig, guest, &[("protection", "0")]).await);
        for op in [ActionKind::Rollback, ActionKind::DeleteSnapshot] {
            items.push(asked(engine, op, guest, &[("snapname", "before")]).await);
        }
    }
    items.push(asked(engine, ActionKind::DeleteVolume, "lxc/100", &[("slot", "unused0")]).await);
    items
}

#[tokio::test(start_paused = true)]
async fn p10_no_act_runs_with_a_parameter_left_out() {
    let rig = rig().await;
    for guest in ["lxc/100", QEMU] {
        let id: GuestId = guest.parse().unwrap();
        rig.node.with(|sim| sim.happen(Event::Power { guest: id, running: false }));
        // First, so that the snapshot does not name it.
        if guest == "lxc/100" {
            foreign(&rig, "PUT", "lxc/100/config", &[("delete", "mp0")]).await;
        }
        foreign(&rig, "POST", &format!("{guest}/snapshot"), &[("snapname", "before")]).await;
    }
    rig.node.with(evenkeel_sim::Simulator::clear_records);
    let mut tried = 0;
    live(&rig, async |engine| {
        for item in every_act(&rig, engine).await {
            for name in item.params.keys() {
                let envelope = without(&rig, &item, name);
                let submitted = engine.submit_approval(envelope.as_bytes()).await?;
                let Submitted::Refused(refusal) = submitted else {
                    panic!("{} without {name}: {submitted:?}", item.op)
                };
                // A change of configuration is whatever it names: with less in it, it is another act.
                let is_change = item.op == ActionKind::SetConfig;
                let expected = if is_change { ReasonCode::Stale } else { ReasonCode::Payload };
                assert_eq!(refusal.reason, expected, "{} without {name}: {refusal}", item.op);
                tried += 1;
            }
        }
        Ok(())
    })
    .await;
    assert_eq!(tried, 7 + 6 + 2 * (3 + 3 + 1) + 2, "every parameter of every act");
    for guest in ["lxc/100", QEMU] {
        assert_eq!(writes(&rig, guest), Vec::<String>::new());
    }
}
