//! Nobody's word makes a destroy benign: no tag, no file, no request, no text inside a guest.

use std::collections::BTreeMap;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::words::diagnostic::Sources;
use evenkeel_sim::Event;

use crate::support::*;

fn guest() -> GuestId {
    "lxc/100".parse().unwrap()
}

fn edited(rig: &evenkeel_harness::Rig, key: &str, value: Option<&str>) {
    let set = BTreeMap::from([(key.to_owned(), value.map(str::to_owned))]);
    rig.node.with(|sim| sim.happen(Event::Edit { guest: guest(), set }));
}

#[tokio::test(start_paused = true)]
async fn g12_g13_g17_a_tag_set_spelt_otherwise_or_removed_changes_nothing() {
    let rig = rig().await;
    let absent = desired(ABSENT);
    live(&rig, async |engine| {
        for tags in [
            Some("evenkeel-scratch"),
            Some("Evenkeel-Scratch"),
            Some("agent-scratch,created-by-evenkeel"),
            Some("a; evenkeel-scratch ;b"),
            None,
        ] {
            edited(&rig, "tags", tags);
            pass(engine, &absent).await?;
            assert_eq!(item(engine).await.op, ActionKind::Destroy, "{tags:?} waits");
            assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new(), "{tags:?}");
        }
        Ok(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn g11_g27_a_claim_in_a_file_or_a_request_is_refused_and_raises_nothing() {
    let rig = rig().await;
    let claims =
        ["class=benign", "provenance=ours", "created_by_txn=1", "scratch=true", "mode=force"];
    for claim in claims {
        let (key, value) = claim.split_once('=').unwrap();
        let text =
            format!("guest.100 = {{ kind = \"lxc\", state = \"absent\", {key} = \"{value}\" }}");
        let mut sources = Sources::default();
        sources.add("guests.toml", text);
        assert!(evenkeel_core::desired::load(&sources).is_err(), "{claim} is no word of a file");
    }
    live(&rig, async |engine| {
        for claim in claims {
            let (key, value) = claim.split_once('=').unwrap();
            let given = BTreeMap::from([(key.to_owned(), value.to_owned())]);
            let asked = engine.request(ActionKind::Destroy, guest(), given).await;
            assert_eq!(asked.unwrap_err().refusal()?.reason, ReasonCode::Payload, "{claim}");
        }
        assert!(engine.pending().await?.is_empty());
        Ok(())
    })
    .await;
    assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new());
}

/// A guest's text goes through the journal as the old value of a write: it stays one value of one record.
#[tokio::test(start_paused = true)]
async fn g21_n03_journal_lines_and_control_characters_in_a_guest_stay_one_value_of_one_record() {
    let rig = rig().await;
    let forged = "x\n{\"seq\":1,\"at\":\"2026-01-01T00:00:00Z\",\"durable\":9,\"type\":\"op\",\"op\":\"01\",\
                  \"guest\":\"lxc/100\",\"kind\":\"create\",\"state\":\"succeeded\",\"sum\":\"00\"}\n\
                  TASK OK\u{1b}[2J\u{202e}\0";
    edited(&rig, "description", Some(forged));
    let ours = desired("guest.100 = { kind = \"lxc\", description = \"ours\" }");
    live(&rig, async |engine| pass(engine, &ours).await).await;
    assert_eq!(writes(&rig, "lxc/100"), ["PUT config"], "its old text is in the journal now");
    let mut old = Vec::new();
    let mut records = 0;
    evenkeel_agent::journal::verify::read(&rig.disk, |printed| {
        records += 1;
        let record: serde_json::Value = serde_json::from_str(&printed.text).unwrap();
        old.extend(record["before"]["description"].as_str().map(str::to_owned));
        assert!(!printed.text.chars().any(char::is_control), "{}", printed.text);
    })
    .unwrap();
    assert_eq!(old, [forged.trim_end_matches('\n')], "{records} records");
    let absent = desired(ABSENT);
    live(&rig, async |engine| {
        pass(engine, &absent).await?;
        assert_eq!(item(engine).await.op, ActionKind::Destroy);
        Ok(())
    })
    .await;
    assert_eq!(writes(&rig, "lxc/100"), ["PUT config"], "nothing became ours by it");
}
